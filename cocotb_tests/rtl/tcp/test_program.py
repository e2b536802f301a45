"""The program of the TCP engine sends the same segments as the twin, in random traffic under faults."""

import pytest

from open_rnic.cocotb_tests.rtl.tcp.shadow import Shadow
from open_rnic.rtl.sequencer.isa import ADDRESSES
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.program import ENTRIES, tcp_program

STEPS = 10_000


@pytest.mark.parametrize("seed", range(6))
def test_the_program_sends_what_the_twin_sends(seed):
    steps = 0
    while steps < STEPS:
        steps += Shadow(seed).run(STEPS)
        seed += 1000


def test_the_program_fits_and_has_all_entries():
    program = tcp_program(EngineConfig())
    assert len(program.instructions()) <= ADDRESSES // 2
    assert len({program.entry(name) for name in ENTRIES}) == len(ENTRIES)
