# amaranth: UnusedElaboratable=no
"""Buffers, queues, the store, the receive mode switch and the event queue, each alone; and invalid parameters."""

import functools
import random

import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Rate, Sink, Source, at_width, bench, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import cut
from open_rnic.cocotb_tests.harness.ice40 import Ice40
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.rtl.together import Together
from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.lib.stream import Buffer, Fifo, LateFifo, ReadyFifo
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.mpa.events import Event, EventQueue
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward
from open_rnic.rtl.registers import EventKind, Verdict

STORE = 512
SOURCES = 4
DEPTH = 3


def blocks(lanes, ice40=False):
    together = Together(
        buffer=Buffer(Packet(lanes, note=4)),
        fifo=Fifo(Packet(lanes, note=4), 4),
        ready_fifo=ReadyFifo(Packet(lanes, note=4), 4),
        late_fifo=LateFifo(Packet(lanes, note=4), 4),
        store=StoreAndForward(lanes, STORE),
        keeping=StoreAndForward(lanes, STORE, keep_terminates=True),
        switch=RxModeSwitch(lanes),
        events=EventQueue(SOURCES, DEPTH),
    )
    return Ice40(together) if ice40 else together


@bench()
async def buffers_and_fifos_pass_packets(dut):
    for name in ("buffer", "fifo", "ready_fifo", "late_fifo"):
        source, sink = Source(dut, f"{name}__i", pauses(0.4)), Sink(dut, f"{name}__o", stalls(0.4))
        packets = [random.randbytes(size) for size in range(100)]
        for nth, each in enumerate(packets):
            source.send(each, note=nth % 16)
        for nth, each in enumerate(packets):
            assert await sink.receive() == (each, {"note": nth % 16})


@bench()
async def a_beat_is_transferred_in_each_cycle(dut):
    for name in ("buffer", "fifo", "ready_fifo", "late_fifo", "store"):
        source, sink, rate = Source(dut, f"{name}__i"), Sink(dut, f"{name}__o"), Rate(dut, f"{name}__o")
        fields = {"length": STORE // 4, "verdict": Verdict.GOOD} if name == "store" else {"note": 0}
        for _ in range(20):
            source.send(bytes(STORE // 4), **fields)
        for _ in range(20):
            await sink.receive()
        assert rate.used == rate.moved == 20 * source.beats(STORE // 4)


@bench()
async def the_store_discards_bad_ulpdus(dut):
    source, sink = Source(dut, "store__i", pauses(0.2)), Sink(dut, "store__o", stalls(0.4, longest=20))
    good = []
    for _ in range(300):
        verdict = random.choice([Verdict.GOOD, Verdict.GOOD, Verdict.CRC, Verdict.MARKER])
        octets = random.randbytes(random.choice([0, 1, random.randrange(STORE), STORE]))
        source.send(octets, length=len(octets), verdict=verdict)
        if verdict is Verdict.GOOD:
            good.append(octets)
    for each in good:
        assert await sink.receive() == (each, {"length": len(each), "verdict": Verdict.GOOD})
    await source.drained()
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert sink.empty()


@bench()
async def the_store_keeps_bad_terminates(dut):
    """And no other bad ULPDU, whatever its first octets are."""
    source, sink = Source(dut, "keeping__i", pauses(0.2)), Sink(dut, "keeping__o", stalls(0.4, longest=20))
    kept = []
    for _ in range(300):
        verdict = random.choice([Verdict.GOOD, Verdict.CRC, Verdict.MARKER])
        octets = bytes([random.choice([0x41, 0x40, 0xC1]), random.choice([0x47, 0x43, 0x87])])
        octets += random.randbytes(random.choice([0, 2, random.randrange(STORE - 1)]))
        source.send(octets, length=len(octets), verdict=verdict)
        if verdict is Verdict.GOOD or (not octets[0] & 0x80 and octets[1] & 0xF == 7):
            kept.append((octets, verdict))
    for octets, verdict in kept:
        assert await sink.receive() == (octets, {"length": len(octets), "verdict": verdict})
    await source.drained()
    for _ in range(10):
        await RisingEdge(dut.clk)
    assert sink.empty()


@bench()
async def the_receive_mode_switch_switches_at_the_exact_octet(dut):
    octets, before = random.randbytes(400), random.randrange(1, 100)
    dut.switch__octets.value, dut.switch__enable.value = before, 1
    source = Source(dut, "switch__i", pauses(0.3))
    sinks = Sink(dut, "switch__stream", stalls(0.3)), Sink(dut, "switch__mpa", stalls(0.3))
    for chunk in cut(octets, 30):
        source.send(chunk)
    for sink, expected in zip(sinks, (octets[:before], octets[before:]), strict=True):
        found = b""
        while len(found) < len(expected):
            found += (await sink.receive()).octets
        assert found == expected


@bench()
async def events_of_one_cycle_are_queued_in_the_order_of_their_sources(dut):
    edge = RisingEdge(dut.clk)
    inputs = [getattr(dut, f"events__i__{nth}") for nth in range(SOURCES)]
    layout = Event.as_shape()

    async def report(kinds):
        """Report an event of each kind, with random fields; return the words of all events but NONE."""
        words = []
        for each, kind in zip(inputs, kinds, strict=True):
            words.append(random.getrandbits(layout.size) & ~0xFF | kind)
            each.value = words[-1]
        await edge
        for each in inputs:
            each.value = 0
        return [word for word, kind in zip(words, kinds, strict=True) if kind]

    async def take():
        words = []
        while True:
            await edge
            if not dut.events__o__valid.value:
                return words
            words.append(dut.events__o__payload.value.to_unsigned())
            dut.events__o__ready.value = 1
            await edge
            dut.events__o__ready.value = 0

    dut.events__o__ready.value = 0
    for each in inputs:
        each.value = 0
    kinds = [EventKind.TX_MPA, EventKind.NONE, EventKind.ERROR, EventKind.FENCE_OPEN]
    reported = await report(kinds)
    for _ in range(6):
        await edge
    assert dut.events__level.value == 3
    assert await take() == reported
    lost, reported = 0, []
    for _ in range(DEPTH + 2):
        reported += await report([EventKind.ERROR] + [EventKind.NONE] * (SOURCES - 1))
        for _ in range(4):
            lost += int(dut.events__lost.value)
            await edge
    assert lost == 2
    assert await take() == reported[:DEPTH]


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_queues(lanes):
    simulate(at_width(blocks, lanes, (1, 4, 16)), __name__)


@long("the whole data path of an iCE40 is in the short run")
def test_queues_of_an_ice40():
    simulate(functools.partial(blocks, 2, ice40=True), __name__)


@pytest.mark.parametrize("lanes", [0, 3, 2 * LANES[-1], -1])
def test_an_invalid_width_is_rejected(lanes):
    for block in (MpaDatapath, RxModeSwitch, Packet):
        with pytest.raises(ValueError, match=f"lanes must be one of {', '.join(map(str, LANES))}, not {lanes}"):
            block(lanes)


@pytest.mark.parametrize("depth", [0, 1, 256])
def test_an_invalid_depth_of_the_event_fifo_is_rejected(depth):
    for make in (lambda: EventQueue(2, depth), lambda: MpaDatapath(1, event_depth=depth)):
        with pytest.raises(ValueError, match=f"event_depth must be from 2 to 255, not {depth}"):
            make()


@pytest.mark.parametrize("octets", [64, 1000, -128])
def test_an_invalid_size_of_the_store_is_rejected(octets):
    for make in (lambda: StoreAndForward(1, octets), lambda: MpaDatapath(1, store_and_forward=octets)):
        with pytest.raises(ValueError, match=f"store_and_forward must be a power of 2 from 128 on, not {octets}"):
            make()
