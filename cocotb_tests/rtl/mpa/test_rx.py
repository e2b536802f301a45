# amaranth: UnusedElaboratable=no
"""The blocks of receive, from chunks to ULPDUs, alone and in chains."""

import functools
import itertools
import random

import cocotb
import crc32c
import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Part, Sink, Source, bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import cut, filler
from open_rnic.cocotb_tests.harness.ice40 import Ice40
from open_rnic.cocotb_tests.plugins.lengths import beside, long, widths
from open_rnic.cocotb_tests.rtl.together import Chain, Together
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.formats.layouts import Packet, StreamBeat
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.lib.stream import Buffer
from open_rnic.rtl.mpa.rx.delineator import Delineator
from open_rnic.rtl.mpa.rx.fpdu_checker import FpduChecker
from open_rnic.rtl.mpa.rx.fpdu_lane_receiver import LaneReceiver
from open_rnic.rtl.mpa.rx.markers import ChunkPacker
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.registers import Cause


class Counted(wiring.Component):
    """Sets ``octets`` on every beat, as :class:`.RxModeSwitch` does."""

    def __init__(self, lanes):
        shape = Packet(lanes)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        with m.If(~self.i.payload.last):
            m.d.comb += self.o.payload.octets.eq(4 * self.i.payload.shape().lanes)
        return m


def blocks(lanes, ice40=False):
    # The sink requires that invalid octets of a stalled beat do not change, either, so the chain ends with a buffer.
    checker = FpduChecker(lanes)
    chain = Chain(Counted(lanes), ChunkPacker(lanes), Delineator(lanes), checker, Buffer(checker.o.payload.shape()))
    together = Together(rx=chain, packer=ChunkPacker(lanes), switch=RxModeSwitch(lanes))
    return Ice40(together) if ice40 else together


def blocks_of_1_lane():
    rx = Chain(Counted(1), Lanes(), LaneReceiver())
    return Together(rx=rx, packer=ChunkPacker(1), switch=RxModeSwitch(1))


def block(key):
    return blocks_of_1_lane() if key == ONE_LANE else blocks(key)


class Lanes(wiring.Component):
    """A :class:`ChunkPacker` that leaves markers in the stream."""

    def __init__(self):
        super().__init__({"i": In(stream.Signature(Packet(1))), "o": Out(stream.Signature(StreamBeat(1)))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.packer = packer = ChunkPacker(1)
        wiring.connect(m, wiring.flipped(self.i), packer.i)
        wiring.connect(m, packer.o, wiring.flipped(self.o))
        return m


class Receiver:
    """Drivers for the chain, and a framer, which begin at a random position in the marked stream."""

    def __init__(self, dut, start, markers, gaps, backpressure):
        self.source = Source(dut, "rx__i", gaps or pauses(0.3))
        self.sink = Sink(dut, "rx__o", backpressure or stalls(0.3))
        self.framer = FpduFramer(markers=bool(markers), crc=True, offset=4 * start)

    @classmethod
    async def begin(cls, dut, markers, maximum=64768, gaps=None, backpressure=None, start=None):
        start = random.randrange(128) if start is None else start
        for port, value in {"markers": markers, "start": start, "maximum": maximum, "enable": 1}.items():
            getattr(dut, f"rx__{port}").value = value
        await RisingEdge(dut.clk)
        return cls(dut, start, markers, gaps, backpressure)

    async def receive(self):
        """Return a ULPDU, and the findings about it: cause, value, size and number of markers."""
        octets, fields = await self.sink.receive()
        return octets, Cause(fields["cause"]), fields["value"], fields["size"], fields["markers"]


def ulpdus(width):
    sizes = [*range(2 * width + 2), *range(495, 515), 2000]
    return [random.randbytes(each) for each in random.sample(sizes, len(sizes))]


async def framed_ulpdus_are_received(dut, markers):
    receiver = await Receiver.begin(dut, markers)
    sent = ulpdus(4 * parameter("lanes"))
    fpdus = [receiver.framer.frame(each) for each in sent]
    for chunk in cut(b"".join(fpdus), random.choice([1, 40, 2000])):
        receiver.source.send(chunk)
    for ulpdu, fpdu in zip(sent, fpdus, strict=True):
        octets, cause, value, size, count = await receiver.receive()
        assert (octets, cause, value, size) == (ulpdu, Cause.NONE, len(ulpdu), len(fpdu) // 4)
        assert count == size - (len(ulpdu) + 5) // 4 - 1


@bench()
async def ulpdus_are_received_without_markers(dut):
    await framed_ulpdus_are_received(dut, 0)


@bench()
async def ulpdus_are_received_with_markers(dut):
    await framed_ulpdus_are_received(dut, 1)


@bench()
async def the_beats_of_an_fpdu_follow_each_other_without_a_gap(dut):
    receiver = await Receiver.begin(dut, 0, gaps=never(), backpressure=never())
    width = 4 * parameter("lanes")
    before = bytes(random.randrange(width))  # so that the FPDU begins in any lane
    receiver.source.send(b"".join(receiver.framer.frame(each) for each in (before, bytes(50 * width))))
    await receiver.receive()
    await RisingEdge(dut.clk)
    while not dut.rx__o__valid.value:
        await RisingEdge(dut.clk)
    for _ in range(40):
        assert dut.rx__o__valid.value
        await RisingEdge(dut.clk)
    await receiver.receive()


@bench()
async def each_fpdu_keeps_its_findings_while_more_wait_than_have_a_place(dut):
    receiver = await Receiver.begin(dut, 0, gaps=never(), backpressure=itertools.chain([300], never()))
    sent = [random.randbytes(random.randrange(max(3, 4 * parameter("lanes") - 6))) for _ in range(60)]  # of one beat
    receiver.source.send(b"".join(receiver.framer.frame(each) for each in sent))
    for each in sent:
        assert await receiver.receive() == (each, Cause.NONE, len(each), (len(each) + 9) // 4, 0)


@bench()
async def a_marker_between_pad_and_crc_belongs_to_the_fpdu(dut):
    receiver = await Receiver.begin(dut, 1)
    for size in [*range(20), 487]:
        ulpdu = random.randbytes(size)
        before = filler(receiver.framer.offset, 512 - (2 + size + 3) // 4 * 4)
        for each in (before, ulpdu):
            fpdu = receiver.framer.frame(each)
            receiver.source.send(fpdu)
            octets, cause, *_, markers = await receiver.receive()
            assert (octets, cause) == (each, Cause.NONE)
        assert markers == 1
        assert fpdu[-8:-4] == (len(fpdu) - 8).to_bytes(4, "big")


@cocotb.parametrize(edge=[-1, 0, 1])
@cocotb.parametrize(beats=range(4))
@bench()
async def markers_are_found_wherever_the_stream_begins(dut, beats, edge):
    """So many beats before a marker, and a lane more or less."""
    start = (edge - beats * parameter("lanes")) % 128
    receiver = await Receiver.begin(dut, 1, gaps=never(), backpressure=never(), start=start)
    sent = [bytes(500)] * 3
    receiver.source.send(b"".join(receiver.framer.frame(each) for each in sent))
    for each in sent:
        assert (await receiver.receive())[:2] == (each, Cause.NONE)


@bench()
async def delineation_stops_at_a_ulpdu_length_over_the_maximum(dut):
    receiver = await Receiver.begin(dut, 1, maximum=90)
    for size in (90, 3, 91, 4):
        receiver.source.send(receiver.framer.frame(bytes(size)))
    for expected in (Cause.NONE, 90), (Cause.NONE, 3), (Cause.RX_LENGTH, 91):
        assert (await receiver.receive())[1:3] == expected
    for _ in range(100):
        receiver.source.send(bytes(64))
    await receiver.source.drained()
    assert receiver.sink.empty()


@bench()
async def a_wrong_fpduptr_does_not_affect_other_fpdus(dut):
    receiver = await Receiver.begin(dut, 1)
    receiver.framer.frame(filler(receiver.framer.offset, 0))
    dut.rx__start.value = receiver.framer.offset // 4 % 128  # so that the next FPDU begins with a marker
    await RisingEdge(dut.clk)
    for nth in range(6):
        fpdu = receiver.framer.frame(bytes(500))
        if wrong := nth % 2:
            octets = bytes([fpdu[0], fpdu[1], 0, 4]) + fpdu[4:-4]
            fpdu = octets + crc32c.crc32c(octets).to_bytes(4, "little")
        receiver.source.send(fpdu)
        assert (await receiver.receive())[1] is (Cause.FPDUPTR if wrong else Cause.NONE)


@bench()
async def each_new_lane_is_sent_once_and_at_once_even_if_empty_chunks_follow(dut):
    dut.packer__markers.value = dut.packer__start.value = 0
    dut.packer__o__ready.value = 1
    source = Source(dut, "packer__i")
    for _ in range(3 * parameter("lanes")):
        source.send(bytes(4))
        for _ in range(30):
            source.send(b"")
        beats = []
        for _ in range(40):
            await RisingEdge(dut.clk)
            beats.append(int(dut.packer__o__valid.value))
        assert (sum(beats[:10]), sum(beats)) == (1, 1)
        assert int(dut.packer__i__valid.value) == 0


@bench()
async def a_chunk_of_stream_mode_is_cut_at_the_limit_and_nowhere_else(dut):
    dut.switch__enable.value = dut.switch__octets.value = limit = 0
    source, sink = Source(dut, "switch__i", pauses(0.3)), Sink(dut, "switch__stream", stalls(0.3))
    width = 4 * parameter("lanes")
    for size in range(1, 3 * width):
        chunk, rest = random.randbytes(size), random.randbytes(random.randint(0, -size % width))  # both end in a beat
        source.send(chunk + rest)
        for each in filter(None, (chunk, rest)):
            limit += len(each)
            dut.switch__octets.value = limit
            assert (await sink.receive()).octets == each


@bench()
async def an_fpdu_is_received_before_the_next_one_arrives(dut):
    receiver = await Receiver.begin(dut, 1)
    for size in (0, 500, 7, 1000, 1, 2, 3):
        receiver.source.send(receiver.framer.frame(bytes(size)))
        assert (await receiver.receive())[0] == bytes(size)


@bench()
async def wrong_crcs_are_detected(dut):
    receiver = await Receiver.begin(dut, random.randrange(2))
    expected = []
    for nth, each in enumerate(ulpdus(4 * parameter("lanes"))):
        fpdu = receiver.framer.frame(each)
        bad = nth % 5 == 3
        at = random.randrange(6, len(fpdu))  # behind ULPDU_Length
        receiver.source.send(fpdu[:at] + bytes([fpdu[at] ^ bad]) + fpdu[at + 1:])
        expected.append((each, Cause.CRC if bad else Cause.NONE))
    for ulpdu, cause in expected:
        octets, found, value, *_ = await receiver.receive()
        assert (found, value) == (cause, len(ulpdu))
        assert octets == ulpdu or cause is Cause.CRC


WIDTHS = (1, 2, 4, 16)
ONE_LANE = "one lane"


def part(key):
    """The blocks ``key`` beside others of the same run."""
    short = (*beside(1, WIDTHS), ONE_LANE)
    return Part(block, key, short if key in short else beside(key, WIDTHS))


@pytest.mark.parametrize("lanes", widths(*WIDTHS))
def test_rx_blocks(lanes):
    simulate(part(lanes), __name__, parameters={"lanes": lanes})


@long("the whole data path of an iCE40 is in the short run")
def test_rx_blocks_of_an_ice40():
    simulate(functools.partial(blocks, 2, ice40=True), __name__, parameters={"lanes": 2})


def test_rx_blocks_of_1_lane():
    simulate(part(ONE_LANE), __name__, parameters={"lanes": 1})


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_a_chunk_that_waits_during_reset_is_whole(lanes):
    switch, chunk = RxModeSwitch(lanes), bytes(range(1, 4 * lanes + 1))

    async def sent_at_once(context):
        context.set(switch.octets, len(chunk))
        context.set(switch.i.payload, {"data": int.from_bytes(chunk, "little"), "octets": len(chunk), "last": 1})
        context.set(switch.i.valid, 1)
        (data,) = await context.tick().sample(switch.stream.payload.data).until(switch.stream.valid)
        assert data.to_bytes(len(chunk), "little") == chunk

    simulator = Simulator(switch)
    simulator.add_clock(1e-6)
    simulator.add_testbench(sent_at_once)
    simulator.run_until(1e-4)
