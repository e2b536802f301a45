# amaranth: UnusedElaboratable=no
"""The blocks of receive, from chunks to ULPDUs, alone and in chains."""

import functools
import random

import pytest

from cocotb_tests.blocks.together import Chain, Together
from cocotb_tests.datapath import cut
from cocotb_tests.harness import Sink, Source, bench, parameter, pauses, simulate
from host_driver.fpdu import FpduFramer
from rtl.chunks import ChunkPacker
from rtl.crc import CHECKED, CrcChecker
from rtl.deframer import FpduDeframer
from rtl.delineator import Delineator
from rtl.markers import MarkedFpdu, MarkerChecker, MarkerRemover
from rtl.registers import Cause
from rtl.stream import Buffer, Packet


def blocks(lanes):
    # The sinks want even those octets to stay as they are that are not valid, so a buffer comes last.
    return Together(
        found=Chain(ChunkPacker(lanes), Delineator(lanes), Buffer(MarkedFpdu(lanes))),
        checked=Chain(ChunkPacker(lanes), Delineator(lanes), MarkerChecker(lanes), CrcChecker(lanes),
                      MarkerRemover(lanes, **CHECKED)),
        deframer=Chain(FpduDeframer(lanes, note=4), Buffer(Packet(lanes, note=4))),
    )  # fmt: skip


class Receiver:
    """One of the chains, at a random place of the marked stream."""

    def __init__(self, dut, name, markers, maximum=64768):
        start = random.randrange(128)
        for port, value in {"markers": markers, "start": start, "maximum": maximum, "enable": 1}.items():
            if hasattr(dut, f"{name}__{port}"):
                getattr(dut, f"{name}__{port}").value = value
        self.source = Source(dut, f"{name}__i", pauses(0.3))
        self.sink = Sink(dut, f"{name}__o", pauses(0.3))
        self.framer = FpduFramer(markers=bool(markers), crc=True, offset=4 * start)


def ulpdus(width):
    sizes = [*range(2 * width + 2), *range(495, 515), 2000]
    return [random.randbytes(each) for each in random.sample(sizes, len(sizes))]


async def fpdus_come_out_as_they_are(dut, markers):
    receiver = Receiver(dut, "found", markers)
    sent = [receiver.framer.frame(each) for each in ulpdus(4 * parameter("lanes"))]
    for chunk in cut(b"".join(sent), random.choice([1, 40, 2000])):
        receiver.source.send(chunk)
    for each in sent:
        octets, fields = await receiver.sink.receive()
        assert octets == each
        assert not fields["too_long"]


@bench()
async def the_delineator_finds_fpdus(dut):
    await fpdus_come_out_as_they_are(dut, 0)


@bench()
async def the_delineator_finds_marked_fpdus(dut):
    await fpdus_come_out_as_they_are(dut, 1)


@bench()
async def the_delineator_stops_where_ulpdu_length_is_over_the_maximum(dut):
    receiver = Receiver(dut, "found", 1, maximum=90)
    for size in (90, 3, 91, 4):
        receiver.source.send(receiver.framer.frame(bytes(size)))
    for too_long in (0, 0, 1):
        assert (await receiver.sink.receive()).fields["too_long"] == too_long
    await receiver.source.drained()
    assert receiver.sink.empty()


@bench()
async def an_fpdu_comes_out_without_what_follows_it(dut):
    receiver = Receiver(dut, "found", 1)
    for size in (0, 500, 7, 1000):
        fpdu = receiver.framer.frame(bytes(size))
        receiver.source.send(fpdu)
        assert (await receiver.sink.receive()).octets == fpdu


async def checks(dut, markers):
    receiver = Receiver(dut, "checked", markers)
    expected = []
    for nth, each in enumerate(ulpdus(4 * parameter("lanes"))):
        fpdu = receiver.framer.frame(each)
        bad = nth % 5 == 3
        at = random.randrange(6, len(fpdu))  # behind ULPDU_Length
        receiver.source.send(fpdu[:at] + bytes([fpdu[at] ^ bad]) + fpdu[at + 1:])
        expected.append((each, len(fpdu) // 4, Cause.CRC if bad else Cause.NONE))
    for ulpdu, size, cause in expected:
        octets, fields = await receiver.sink.receive()
        assert fields == {"cause": cause, "value": len(ulpdu), "size": size}
        if cause is Cause.NONE:
            assert octets == FpduFramer(markers=False, crc=False).frame(ulpdu)[:-4]


@bench()
async def the_crc_is_checked_and_taken_off(dut):
    await checks(dut, 0)


@bench()
async def markers_are_checked_and_taken_out(dut):
    await checks(dut, 1)


@bench()
async def the_deframer_takes_ulpdu_length_and_pad_off(dut):
    source, sink = Source(dut, "deframer__i", pauses(0.3)), Sink(dut, "deframer__o", pauses(0.3))
    sent = ulpdus(4 * parameter("lanes"))
    for nth, each in enumerate(sent):
        source.send(FpduFramer(markers=False, crc=False).frame(each)[:-4], note=nth % 16)
    for nth, each in enumerate(sent):
        assert await sink.receive() == (each, {"note": nth % 16})


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_rx_blocks(lanes):
    simulate(functools.partial(blocks, lanes), __name__, parameters={"lanes": lanes})
