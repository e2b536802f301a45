"""The data path with RDMA and samples on AXI: cocotbext-axi's RAM is the memory, and Python the peer."""

import itertools
import random
import struct
from functools import partial

import pytest
from cocotb.triggers import ClockCycles

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.ddp import ReadRequest, decode, tagged_segments, untagged_segments
from open_rnic.host_driver.devices.sim.cocotbext_axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiResp,
    AxiStreamBus,
    AxiStreamSink,
    AxiStreamSource,
)
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.rtl.formats.opcodes import Opcode, Queue
from open_rnic.rtl.rdma import registers as rdma_registers
from open_rnic.rtl.rdma import sample_registers
from open_rnic.rtl.rdma.axi import AxiRdmaDatapath
from open_rnic.rtl.rdma.registers import Command, Right
from open_rnic.rtl.rdma.sample_registers import Doorbell
from open_rnic.rtl.registers import BY_NAME, Cause

NAMES = {**BY_NAME, **rdma_registers.BY_NAME, **sample_registers.BY_NAME}
MULPDU = 200
STAG, TO, ADDRESS, OCTETS = 0xABCD_EF01, 0x1_FFFF_FF80, 0x1003, 0x800  # the region
BUFFER = 0x3000
PEER_STAG, PEER_TO = 0x5555_0001, 0xFFFF_FFFF_0000
HEAD = 0x40  # offset in the region, at which the address is a multiple of 8, once 5 is added


class Device:
    """Drivers for all ports, and a peer that frames and segments."""

    def __init__(self, dut, pauses):
        def port(kind, prefix):
            return kind(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst)

        dut.sample_tick.value = 0
        self.dut = dut
        self.lite = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.ram = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.clk, dut.rst, size=1 << 16)
        self.mpa_in, self.mpa_out = port(AxiStreamSource, "s_axis_mpa"), port(AxiStreamSink, "m_axis_mpa")
        self.ulpdu_in, self.ulpdu_out = port(AxiStreamSource, "s_axis_ulpdu"), port(AxiStreamSink, "m_axis_ulpdu")
        bus = AxiStreamBus.from_prefix(dut, "s_axis_samples")
        self.samples = AxiStreamSource(bus, dut.clk, dut.rst, byte_lanes=len(dut.s_axis_samples_tdata) // 8)
        self.framer = FpduFramer(markers=False, crc=True)
        self.cut = False
        if pauses:
            write, read = self.ram.write_if, self.ram.read_if
            for each in (self.mpa_in, self.mpa_out, self.samples, write.aw_channel, write.w_channel, write.b_channel,
                         read.ar_channel, read.r_channel):  # fmt: skip
                each.set_pause_generator(itertools.cycle(random.choices([0, 1], k=997)))

    async def get(self, name, field=None):
        word = await self.lite.read_dword(NAMES[name].address)
        return word if field is None else NAMES[name][field].get(word)

    async def set(self, name, **fields):
        register = NAMES[name]
        word = register.reset
        for field, value in fields.items():
            word = word & ~register[field].mask | register[field].put(value)
        await self.lite.write_dword(register.address, word)

    async def command(self, kind, *words, flags=0):
        for word in (kind << 28 | flags, *words):
            await self.lite.write_dword(NAMES["RDMA_COMMAND"].address, word)

    async def start(self):
        await self.set("CONFIG", rdmap=0)
        while not await self.get("RDMA_STATUS", "ready"):
            pass
        await self.set("RDMA_LIMITS", mulpdu=MULPDU, ird=4, ord=4)
        await self.set("RDMA_CONTROL", enable=1, waits=1)
        await self.set("CONTROL", tx_enable=1, rx_enable=1)
        rights = Right.REMOTE_READ | Right.REMOTE_WRITE
        await self.command(Command.REGION, ADDRESS, OCTETS, TO & 0xFFFF_FFFF, TO >> 32, STAG,
                           flags=(STAG & 0xFFFF) << 8 | rights)  # fmt: skip

    async def send(self, ulpdus):
        for ulpdu in ulpdus:
            await self.mpa_in.send(self.framer.frame(ulpdu))

    async def receive(self):
        fpdu = bytes((await self.mpa_out.recv()).tdata)
        if self.cut:  # the sink has put the FPDU behind the octets of one that a reset has cut
            fpdu, self.cut = fpdu[-len(self.framer.frame(bytes(MULPDU))) :], False
        ulpdu = fpdu[2 : 2 + int.from_bytes(fpdu[:2], "big")]
        assert fpdu == FpduFramer(markers=False, crc=True).frame(ulpdu)
        return decode(ulpdu)

    async def message(self):
        """Receive segments up to the last one of a tagged message: the first segment, and all octets."""
        first = segment = await self.receive()
        octets = bytes(segment.payload)
        while not segment.last:
            segment = await self.receive()
            octets += bytes(segment.payload)
        return first, octets


@bench(cycles=300_000)
async def octets_pass_between_the_peer_and_memory(dut):
    device = Device(dut, parameter("pauses"))
    await device.start()
    ram = device.ram

    # An RDMA Write of the peer, and then an RDMA Read of the octets: the octets around them are untouched.
    ram.write(ADDRESS - 16, b"\xee" * (OCTETS + 32))
    written = random.randbytes(777)
    await device.send(tagged_segments(Opcode.RDMA_WRITE, STAG, TO + 5, written, MULPDU))
    request = ReadRequest(0x1234, 0x5678, 790, STAG, TO).encode()
    await device.send(untagged_segments(Opcode.RDMA_READ_REQUEST, Queue.READ, 1, request, MULPDU))
    first, octets = await device.message()
    assert (first.opcode, first.stag, first.to) == (Opcode.RDMA_READ_RESPONSE, 0x1234, 0x5678)
    assert octets == b"\xee" * 5 + written + b"\xee" * 8
    assert ram.read(ADDRESS - 16, 21 + 777 + 100) == b"\xee" * 21 + written + b"\xee" * 100

    # A Send into a posted buffer.
    sent = random.randbytes(333)
    await device.command(Command.BUFFER, BUFFER, 400)
    await device.send(untagged_segments(Opcode.SEND_SE, Queue.SEND, 1, sent, MULPDU))
    while not await device.get("RDMA_STATUS", "placing") and not dut.rdma_irq.value:
        pass
    while not (received := await device.get("RDMA_RECEIVED")):
        pass
    assert NAMES["RDMA_RECEIVED"]["opcode"].get(received) == Opcode.SEND_SE
    assert await device.get("RDMA_RECEIVED_OCTETS") == len(sent)
    assert ram.read(BUFFER, len(sent)) == sent

    # An RDMA Write of this end, from two pieces.
    pieces = (0x5001, random.randbytes(300)), (0x6002, random.randbytes(251))
    for address, octets in pieces:
        ram.write(address, octets)
    await device.command(
        Command.WORK, 551, PEER_STAG, PEER_TO & 0xFFFF_FFFF, PEER_TO >> 32,
        *(word for address, octets in pieces for word in (address, len(octets))),
        flags=Opcode.RDMA_WRITE | 2 << 8,
    )  # fmt: skip
    first, octets = await device.message()
    assert (first.opcode, first.stag, first.to) == (Opcode.RDMA_WRITE, PEER_STAG, PEER_TO)
    assert octets == pieces[0][1] + pieces[1][1]
    assert await device.get("RDMA_DONE", "sent") == 1
    assert not dut.memory_fault.value


@bench()
async def a_read_that_memory_answers_with_an_error_ends_the_stream(dut):
    device = Device(dut, False)
    await device.start()
    channel, answered = device.ram.read_if.r_channel, itertools.count()
    send = channel.send

    async def send_faulty(word):
        if next(answered) == 100:
            word.rresp = AxiResp.SLVERR
        await send(word)

    channel.send = send_faulty
    octets = 800
    request = ReadRequest(1, 2, octets, STAG, TO).encode()
    await device.send(untagged_segments(Opcode.RDMA_READ_REQUEST, Queue.READ, 1, request, MULPDU))
    peer, good = FpduDelineator(markers=False, crc=True), b""
    while not peer.error:
        peer.feed(bytes((await device.mpa_out.recv()).tdata))
        good += b"".join(bytes(decode(each).payload) for each in peer.take())
    assert peer.error.cause is Cause.CRC
    assert 4 * parameter("lanes") * 100 - MULPDU < len(good) < 4 * parameter("lanes") * 101
    assert good == device.ram.read(ADDRESS, octets)[: len(good)]
    assert dut.memory_fault.value
    assert dut.rdma_irq.value
    assert await device.get("RDMA_STATUS", "memory_failed")
    assert Cause(await device.get("ERROR", "cause")) is Cause.TX_MISMATCH
    await ClockCycles(dut.clk, 1000)
    assert device.mpa_out.empty()
    assert not await device.get("RDMA_STATUS", "sending")


@bench(cycles=300_000)
async def a_write_that_memory_answers_with_an_error_ends_the_stream(dut):
    """No message completes whose octets, or those of a message before it, are not all in memory."""
    device = Device(dut, False)
    channel = device.ram.write_if.b_channel
    send, latency = channel.send, parameter("latency")
    channel.set_pause_generator(itertools.cycle([1] * latency + [0]))
    faulty, answered = None, 0

    async def send_faulty(response):
        nonlocal answered
        if answered == faulty:
            response.bresp = AxiResp.SLVERR
        answered += 1
        await send(response)

    async def receive_write_and_send():
        await device.command(Command.BUFFER, BUFFER, 400)
        await device.send(tagged_segments(Opcode.RDMA_WRITE, STAG, TO, random.randbytes(251), MULPDU))
        await device.send(untagged_segments(Opcode.SEND, Queue.SEND, 1, random.randbytes(75), MULPDU))

    async def read_from_the_peer():
        sink, octets = 0x7777_0002, random.randbytes(251)
        await device.command(Command.REGION, BUFFER, len(octets), BUFFER, 0, sink,
                             flags=(sink & 0xFFFF) << 8 | Right.LOCAL_WRITE)  # fmt: skip
        await device.command(Command.WORK, len(octets), PEER_STAG, 0, 0, BUFFER, sink,
                             flags=Opcode.RDMA_READ_REQUEST | 1 << 8)  # fmt: skip
        assert (await device.receive()).opcode is Opcode.RDMA_READ_REQUEST
        await device.send(tagged_segments(Opcode.RDMA_READ_RESPONSE, sink, BUFFER, octets, MULPDU))

    channel.send = send_faulty
    for receive in (receive_write_and_send, read_from_the_peer):
        faults = [None]
        while faults:
            faulty, answered = faults.pop(), 0
            device.framer = FpduFramer(markers=False, crc=True)
            await device.start()
            await device.get("RDMA_STATUS")  # clears the interrupt
            await receive()
            while not dut.rdma_irq.value:
                await ClockCycles(dut.clk, 1)
            await ClockCycles(dut.clk, 20 + 130 * (latency + 1))
            completed = await device.get("RDMA_RECEIVED", "valid") + await device.get("RDMA_DONE", "reads")
            failed = await device.get("RDMA_STATUS", "memory_failed")
            assert (completed, failed, dut.memory_fault.value) == ((1, 0, 0) if faulty is None else (0, 1, 1))
            if faulty is None:
                faults = sorted({0, 1, answered // 3, answered // 2, answered - 2, answered - 1})
            else:  # nothing is answered, either
                request = ReadRequest(1, 2, 10, STAG, TO).encode()
                await device.send(untagged_segments(Opcode.RDMA_READ_REQUEST, Queue.READ, 1, request, MULPDU))
                await ClockCycles(dut.clk, 200)
                assert device.mpa_out.empty()
                assert not await device.get("RDMA_STATUS", "sending")
                assert not await device.get("RDMA_STATUS", "placing")
            await device.set("CONTROL", reset=1)
            await ClockCycles(dut.clk, 20)


@bench(cycles=600_000)
async def samples_reach_the_ring_of_the_peer(dut):
    device = Device(dut, parameter("pauses"))
    await device.start()
    sample, ring, head = parameter("sample"), bytearray(1000), 5 + HEAD
    assert (ADDRESS + head) % 8 == 0
    for name, value in {
        "RING_STAG": PEER_STAG, "RING_TO_LO": PEER_TO & 0xFFFF_FFFF, "RING_TO_HI": PEER_TO >> 32,
        "RING_OCTETS": len(ring), "WRITE_OCTETS": 256, "BELL_OCTETS": 500, "HEAD_ADDRESS": ADDRESS + head,
    }.items():  # fmt: skip
        await device.set(f"SAMPLE_{name}", value=value)
    await device.set("SAMPLE_CONTROL", enable=1, doorbell=Doorbell.SEND)
    octets = random.randbytes(4000 // sample * sample)
    await device.samples.send(octets)
    tail, received, msn = 0, b"", 0
    while len(received) < len(octets):
        segment = await device.receive()
        if segment.opcode is Opcode.RDMA_WRITE:
            assert segment.stag == PEER_STAG
            place = segment.to - PEER_TO
            assert place == tail % len(ring)
            tail += len(segment.payload)
            assert tail - len(received) <= len(ring)
            ring[place : place + len(segment.payload)] = segment.payload
        else:
            msn += 1
            assert (segment.opcode, segment.qn, segment.msn, segment.mo) == (Opcode.SEND, Queue.SEND, msn, 0)
            assert struct.unpack("<QQ", segment.payload) == (tail, 0)
            while len(received) < tail:
                received += ring[len(received) % len(ring)].to_bytes(1, "little")
            await device.send(tagged_segments(Opcode.RDMA_WRITE, STAG, TO + head, struct.pack("<Q", tail), MULPDU))
    assert received == octets
    assert msn == len(octets) // 500
    assert await device.get("SAMPLE_DROPPED_LO") == 0


@bench(cycles=200_000)
async def a_reset_leaves_the_bus_in_order(dut):
    """CONTROL.reset in the middle of a Read Response or of an RDMA Write; the next connection uses the same bus."""
    device = Device(dut, False)
    device.ram.read_if.r_channel.set_pause_generator(itertools.cycle([1] * 20 + [0]))
    device.ram.write_if.w_channel.set_pause_generator(itertools.cycle([1] * 20 + [0]))
    for round_number in range(3):
        await device.start()
        written = random.randbytes(500)
        await device.send(tagged_segments(Opcode.RDMA_WRITE, STAG, TO, written, MULPDU))
        request = ReadRequest(1, 2, 500, STAG, TO).encode()
        await device.send(untagged_segments(Opcode.RDMA_READ_REQUEST, Queue.READ, 1, request, MULPDU))
        if round_number == 2:
            assert (await device.message())[1] == written
            return
        await ClockCycles(dut.clk, 1500 if round_number else 4000)
        assert not device.mpa_in.active
        await device.set("CONTROL", reset=1)
        await ClockCycles(dut.clk, 20)
        device.mpa_out.clear()
        device.cut = True


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("lanes", [1, 4])
def test_octets_pass_between_the_peer_and_memory(lanes, pauses):
    simulate(partial(AxiRdmaDatapath, lanes), octets_pass_between_the_peer_and_memory,
             parameters={"pauses": pauses})  # fmt: skip


@pytest.mark.parametrize("lanes", shortened("another width", 1, [1, 2]))
def test_a_read_that_memory_answers_with_an_error_ends_the_stream(lanes):
    simulate(partial(AxiRdmaDatapath, lanes), a_read_that_memory_answers_with_an_error_ends_the_stream,
             parameters={"lanes": lanes})  # fmt: skip


@pytest.mark.parametrize(("lanes", "latency"), [(1, 0), (1, 9), (4, 0)])
def test_a_write_that_memory_answers_with_an_error_ends_the_stream(lanes, latency):
    simulate(partial(AxiRdmaDatapath, lanes), a_write_that_memory_answers_with_an_error_ends_the_stream,
             parameters={"latency": latency})  # fmt: skip


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize(("lanes", "sample"), shortened("another width", 1, [(1, 4), (4, 2)]))
def test_samples_reach_the_ring_of_the_peer(lanes, sample, pauses):
    simulate(partial(AxiRdmaDatapath, lanes, sample=sample), samples_reach_the_ring_of_the_peer,
             parameters={"pauses": pauses, "sample": sample})  # fmt: skip


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_reset_leaves_the_bus_in_order(lanes):
    simulate(partial(AxiRdmaDatapath, lanes), a_reset_leaves_the_bus_in_order)
