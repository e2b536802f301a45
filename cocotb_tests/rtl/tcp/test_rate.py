"""The network path keeps up with 1 Gb/s at 62.5 MHz: every limit is in cycles.

A full frame (1,514 octets) takes 769 cycles on the wire, the shortest frame (60 octets) 42.
"""

import functools
import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Rate, Sink, Source, bench, parameter, simulate
from open_rnic.cocotb_tests.rtl.tcp.shadow import HERE, THERE, decode
from open_rnic.cocotb_tests.rtl.tcp.wire import FULL_FRAME, Wire
from open_rnic.host_driver.net.frames import Arp, ArpOperation, Ethernet, EtherType
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.rtl.tcp.engine import CommandLayout, TcpEngine
from open_rnic.rtl.tcp.path import NetworkPath
from open_rnic.rtl.tcp.words import Command, State

CONNECTIONS = 4
MSS = 1460
TICK = 62_500  # cycles of a millisecond
SIDES = ("a", "b")
MACS = {side: bytes((2, 0, 0, 0, 0, number)) for number, side in enumerate(SIDES)}
ADDRESSES = {"a": HERE, "b": THERE}
PORTS = {"a": 7000, "b": 8000}


class Pair(wiring.Component):
    """Two network paths, ``a`` and ``b``, of which the test is the wires."""

    def __init__(self):
        self.paths = {side: NetworkPath(CONNECTIONS) for side in SIDES}
        super().__init__({side: wiring.Out(path.signature) for side, path in self.paths.items()})

    def elaborate(self, platform):
        m = Module()
        for side, path in self.paths.items():
            m.submodules[side] = path
            wiring.connect(m, path, wiring.flipped(getattr(self, side)))
        return m


async def cycles(dut, count):
    """Wait."""
    for _ in range(count):
        await RisingEdge(dut.clk)


async def ticks(dut, *ports):
    """Drive ``tick``: a pulse each millisecond."""
    while True:
        await cycles(dut, TICK - 1)
        for port in ports:
            port.value = 1
        await cycles(dut, 1)
        for port in ports:
            port.value = 0


async def give(dut, prefix, **fields):
    """Give the command."""
    payload, valid, ready = (getattr(dut, f"{prefix}command__{name}") for name in ("payload", "valid", "ready"))
    payload.value = CommandLayout(CONNECTIONS).const({"connection": 0} | fields).as_bits()
    valid.value = 1
    await RisingEdge(dut.clk)
    while not ready.value:
        await RisingEdge(dut.clk)
    valid.value = 0


class Packets(Source):
    """Packets of the user, whose ``connection`` is valid on each beat."""

    def _beats(self, octets, fields):
        lsb, width = self._extra["connection"]
        mask = ((1 << width) - 1) << lsb
        for word in super()._beats(octets, fields):
            yield word & ~mask | fields["connection"] << lsb


class Both:
    """Two paths, joined by two wires, with a connection between them."""

    def __init__(self, dut, **lost):
        self.dut = dut
        self.wires, self.sources, self.sinks = {}, {}, {}
        for side, other in (SIDES, SIDES[::-1]):
            for name, value in {
                "mac": int.from_bytes(MACS[side], "big"), "address": int(ADDRESSES[side]), "prefix": 0xFFFF_FF00,
                "gateway": 0, "tick": 0, "accept": 1, "show": 0, "command__valid": 0, "resolve_valid": 0,
            }.items():  # fmt: skip
                if hasattr(dut, f"{side}__{name}"):
                    getattr(dut, f"{side}__{name}").value = value
            self.wires[side] = Wire(dut, f"{side}__", f"{other}__", *([lost[side]] if side in lost else []))
            self.sources[side] = Packets(dut, f"{side}__to_send")
            self.sinks[side] = Sink(dut, f"{side}__received")
        cocotb.start_soon(ticks(dut, *(getattr(dut, f"{side}__tick") for side in SIDES)))

    async def open(self):
        """Open the connection."""
        dut = self.dut
        # A path learns its neighbour's MAC from a request for its own address.
        for side, other in (SIDES, SIDES[::-1]):
            question = Arp(ArpOperation.REQUEST, MACS[other], ADDRESSES[other], bytes(6), ADDRESSES[side])
            frame = Ethernet(b"\xff" * 6, MACS[other], EtherType.ARP, question.encode()).encode()
            Wire(dut, None, f"{side}__").send(frame)
            await cycles(dut, 200)
        await give(dut, "b__", kind=Command.LISTEN_AT, ports=PORTS["b"] << 16, address=0, iss=random.getrandbits(32))
        await give(
            dut, "a__", kind=Command.OPEN, ports=PORTS["a"] << 16 | PORTS["b"], address=int(ADDRESSES["b"]),
            iss=random.getrandbits(32),
        )  # fmt: skip
        for _ in range(5000):
            if all(getattr(dut, f"{side}__status").value == State.ESTABLISHED for side in SIDES):
                break
            await RisingEdge(dut.clk)
        else:
            raise AssertionError("the connection is not established")
        await cycles(dut, 200)

    async def receive(self, side, octets):
        """Wait for octets at a side."""
        found = b""
        while len(found) < len(octets):
            found += (await self.sinks[side].receive()).octets
        assert found == octets

    def segments(self, side):
        """The segments that left a side: the cycle in which each began, and its number of octets."""
        return [(began, len(frame) - 54) for began, frame in self.wires[side].frames if frame[12:14] == b"\x08\0"]


@bench(cycles=600_000)
async def full_segments(dut):
    """Limits: ``cycles`` for a full segment, and ``extra`` cycles in all for the ``losses``, numbers of frames of a."""
    count, sides, losses = parameter("count"), parameter("sides"), parameter("losses")
    both = Both(dut, a=losses.__contains__)
    await both.open()
    sent = {side: [random.randbytes(MSS) for _ in range(count)] for side in sides}
    waiting = []
    for side, other in (SIDES, SIDES[::-1]):
        if side in sides:
            for packet in sent[side]:
                both.sources[side].send(packet, connection=0)
            waiting.append(cocotb.start_soon(both.receive(other, b"".join(sent[side]))))
    for each in waiting:
        await each
    for side in sides:
        full = [began for began, octets in both.segments(side) if octets == MSS][10:]
        resent = len(full) + 10 - count
        used = full[-1] - full[0]
        dut._log.info("%s: %.2f cycles a full segment, %d resent", side, used / (len(full) - 1), resent)
        assert used <= (len(full) - 1 - resent) * parameter("cycles") + parameter("extra")
        assert resent <= len(losses)


@pytest.mark.parametrize(("sides", "cycles_each"), [("a", FULL_FRAME), ("ab", 1080)])
def test_full_segments_leave_back_to_back(sides, cycles_each):
    simulate(
        functools.partial(Pair), __name__, name="full_segments",
        parameters={"count": 220, "sides": sides, "losses": [], "cycles": cycles_each, "extra": 0},
    )  # fmt: skip


def test_a_lost_segment_costs_its_retransmission():
    simulate(
        functools.partial(Pair), __name__, name="full_segments",
        parameters={"count": 220, "sides": "a", "losses": [100], "cycles": FULL_FRAME, "extra": 20 * FULL_FRAME},
    )  # fmt: skip


class Peer:
    """A peer of a bare engine: it sends segments as fast as they are taken."""

    def __init__(self, dut):
        self.dut = dut
        dut.tick.value, dut.accept.value, dut.show.value, dut.command__valid.value = 0, 1, 0, 0
        dut.soon.value = 1
        self.there, self.here = Source(dut, "segments_in"), Sink(dut, "segments_out")
        self.user, self.received = Packets(dut, "to_send"), Sink(dut, "received")
        self.rate, self.sends = Rate(dut, "segments_in"), Rate(dut, "segments_out")
        cocotb.start_soon(ticks(dut, dut.tick))

    def segment(self, **fields):
        """A segment to the connection."""
        given = {"source": PORTS["b"], "destination": PORTS["a"], "seq": self.seq, "ack": self.ack, "window": 0xFFFF}
        return Segment(**given | {"flags": Flag.ACK} | fields)

    def data(self, octets):
        """The next segment of so many octets."""
        segment = self.segment(payload=random.randbytes(octets))
        self.seq = (self.seq + octets) % 2**32
        return segment

    def give(self, segment):
        """Send a segment to the engine."""
        octets = segment.encode(ADDRESSES["b"], ADDRESSES["a"])
        self.there.send(octets, source=int(ADDRESSES["b"]), length=len(octets))

    async def answer(self):
        """Wait for a segment of the engine."""
        octets, fields = await self.here.receive()
        assert fields["length"] == len(octets)
        return decode(octets, fields["destination"])

    async def open(self):
        """Open the connection."""
        await give(self.dut, "", kind=Command.LISTEN_AT, ports=PORTS["a"] << 16, address=0, iss=random.getrandbits(32))
        self.seq, self.ack = random.getrandbits(32), 0
        self.give(self.segment(flags=Flag.SYN, mss=MSS))
        answer = await self.answer()
        self.seq, self.ack = (self.seq + 1) % 2**32, (answer.seq + 1) % 2**32
        self.give(self.segment())
        await cycles(self.dut, 500)
        assert self.dut.status.value == State.ESTABLISHED

    async def passes(self, name, segments, limit):
        """Send segments as fast as they are taken; check the cycles for each of them."""
        await cycles(self.dut, 1000)
        self.rate.restart()
        for each in segments:
            self.give(each)
        await self.there.drained()
        cycles_each = self.rate.used / len(segments)
        self.dut._log.info("%s: %.1f cycles", name, cycles_each)
        assert cycles_each <= limit, name


@bench(cycles=400_000)
async def shortest_segments(dut):
    peer = Peer(dut)
    await peer.open()
    count = 300
    await peer.passes("acknowledgments of nothing new", [peer.segment()] * count, 140)
    peer.user.send(random.randbytes(8000), connection=0)
    await cycles(dut, 8000)
    acks = [peer.segment(ack=(peer.ack + 4 * number) % 2**32) for number in range(1, count)]
    await peer.passes("acknowledgments of 4 octets", acks, 300)
    peer.ack = (peer.ack + 8000) % 2**32
    await peer.passes("the rest", [peer.segment()], 300)
    for octets in (1, 6):
        await peer.passes(f"segments of {octets} octets", [peer.data(octets) for _ in range(count)], 300)
    await peer.passes("segments of no connection", [peer.segment(source=1)] * count, 60)
    await peer.passes("resets of no connection", [peer.segment(source=1, flags=Flag.RST)] * count, 60)


def test_the_cycles_of_the_shortest_segments():
    simulate(TcpEngine(CONNECTIONS), __name__, name="shortest_segments")
