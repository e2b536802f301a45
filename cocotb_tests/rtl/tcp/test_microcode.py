"""The program of the TCP engine sends the same segments as the twin, in random traffic under faults."""

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.tcp.programmed import Programmed
from open_rnic.cocotb_tests.rtl.tcp.shadow import Shadow
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.rtl.sequencer.interpreter import Interpreter
from open_rnic.rtl.sequencer.isa import ADDRESSES
from open_rnic.rtl.sequencer.rom import REST
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode import ENTRIES, tcp_program
from open_rnic.rtl.tcp.words import Bit, Command, Reason, State, port, row, t

STEPS = 10_000


@pytest.mark.parametrize("seed", shortened("more seeds", 2, range(6)))
def test_the_program_sends_what_the_twin_sends(seed):
    steps = 0
    while steps < STEPS:
        steps += Shadow(seed).run(STEPS)
        seed += 1000


def test_the_program_fits_and_has_all_entries():
    program = tcp_program(EngineConfig())
    assert len(program.instructions()) <= ADDRESSES // 2 + REST  # in two block RAMs
    assert len({program.entry(name) for name in ENTRIES}) == len(ENTRIES)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param({"una": 1000, "sent": 1000, "end": 1000, "window": 0}, id="the last octet was acknowledged"),
        pytest.param({"una": 1000, "sent": 3000, "end": 4000, "window": 500}, id="the window has opened a little"),
    ],
)
def test_a_segment_before_the_persist_timer_expires_may_leave_nothing_to_probe_with(words):
    writes = []
    ports = {place.code: lambda _, value, name=name: writes.append((name, value)) for name, place in vars(port).items()}
    interpreter = Interpreter(tcp_program(EngineConfig()), 1, ports)
    for name, value in {**words, "state": State.ESTABLISHED, "flags": Bit.PERSIST, "mss": 536, "rto": 200}.items():
        interpreter.rows[0][getattr(row, name).code] = value
    interpreter.run("tick", 0, {t.now: 0})
    assert writes == [("want", 0)]


@pytest.mark.parametrize("states", [0, State.SYN_RECEIVED], ids=["LISTEN", "or SYN-RECEIVED"])
@pytest.mark.parametrize("syn_was_faster", [False, True])
def test_unlisten_ends_only_what_is_in_these_states(syn_was_faster, states):
    tcp = Programmed(EngineConfig(), 7000, iss=0)
    tcp.command(Command.LISTEN_AT)
    if syn_was_faster:
        tcp.receive(0x0A09_0002, Segment(8000, 7000, 0, 0, Flag.SYN, 1000), 0)
    tcp.events.clear()
    tcp.command(Command.UNLISTEN, states)
    assert tcp.events == [State.SYN_RECEIVED if syn_was_faster and not states else Reason.ABORTED]
