# amaranth: UnusedElaboratable=no
"""LengthFifo announces the length of each packet with its first beat, and passes packets that do not fit."""

import random

import pytest
from cocotb.triggers import ClockCycles

from open_rnic.cocotb_tests.harness import Part, Rate, Sink, Source, bench, pauses, simulate
from open_rnic.rtl.mpa.axi import AxiMpaDatapath
from open_rnic.rtl.mpa.length import UNKNOWN, LengthFifo

OCTETS = 512


@bench()
async def the_first_beat_has_the_length_of_the_packet(dut):
    source, sink = Source(dut, "i", pauses(0.3)), Sink(dut, "o", pauses(0.3))
    sizes = [*range(9), OCTETS - 1, OCTETS, *random.choices(range(OCTETS + 1), k=100), *[0] * 50]
    packets = [random.randbytes(size) for size in random.sample(sizes, len(sizes))]
    for packet in packets:
        source.send(packet)
    for packet in packets:
        assert await sink.receive() == (packet, {"length": len(packet)})


@bench()
async def a_packet_waits_until_its_end_has_arrived(dut):
    source, sink = Source(dut, "i", iter([0, 300, *[0] * 999])), Sink(dut, "o")
    packet = random.randbytes(2 * source.octets_per_beat)
    source.send(packet)
    await ClockCycles(dut.clk, 200)
    assert not dut.o__valid.value
    assert sink.empty()
    assert await sink.receive() == (packet, {"length": len(packet)})


@bench()
async def a_packet_that_does_not_fit_passes_with_an_invalid_length(dut):
    source, sink = Source(dut, "i", pauses(0.2)), Sink(dut, "o", pauses(0.4))
    packets = [random.randbytes(size) for size in (OCTETS + 1, 3, 5 * OCTETS, OCTETS + 1, OCTETS, 0, 4 * OCTETS)]
    for packet in packets:
        source.send(packet)
    for packet in packets:
        length = len(packet) if len(packet) <= OCTETS else UNKNOWN
        assert await sink.receive() == (packet, {"length": length})


@bench()
async def a_packet_that_does_not_fit_passes_from_a_slow_source(dut):
    source, sink = Source(dut, "i", pauses(0.5, longest=60)), Sink(dut, "o")
    for _ in range(3):
        packet = random.randbytes(3 * OCTETS)
        source.send(packet)
        assert await sink.receive() == (packet, {"length": UNKNOWN})


@bench(cycles=200_000)
async def lengths_saturate(dut):
    source, sink = Source(dut, "i"), Sink(dut, "o")
    for size in (UNKNOWN - 1, UNKNOWN, UNKNOWN + 1, 2 * UNKNOWN, 7):
        source.send(bytes(size))
        assert (await sink.receive()).fields == {"length": min(size, UNKNOWN)}


@bench()
async def a_beat_is_transferred_in_each_cycle(dut):
    source, sink, rate = Source(dut, "i"), Sink(dut, "o"), Rate(dut, "o")
    for _ in range(20):
        source.send(bytes(OCTETS // 4))
    for _ in range(20):
        await sink.receive()
    assert rate.used == rate.moved == 20 * source.beats(OCTETS // 4)


SIZES = ((1, OCTETS), (4, OCTETS), (16, OCTETS), (16, 2 * (UNKNOWN + 1)))  # lanes, and octets that have room


def fifo(size):
    return LengthFifo(*size)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_lengths(lanes):
    simulate(
        Part(fifo, (lanes, OCTETS), SIZES),
        the_first_beat_has_the_length_of_the_packet,
        a_packet_waits_until_its_end_has_arrived,
        a_packet_that_does_not_fit_passes_with_an_invalid_length,
        a_packet_that_does_not_fit_passes_from_a_slow_source,
        a_beat_is_transferred_in_each_cycle,
    )


def test_lengths_saturate():
    simulate(Part(fifo, SIZES[-1], SIZES), lengths_saturate)


@pytest.mark.parametrize("octets", [64, 1000, -128])
def test_an_invalid_size_is_rejected(octets):
    for make in (LengthFifo, lambda lanes, octets: AxiMpaDatapath(lanes, measure=octets)):
        with pytest.raises(ValueError, match=f"measure must be a power of 2 from 128 on, not {octets}"):
            make(1, octets)
