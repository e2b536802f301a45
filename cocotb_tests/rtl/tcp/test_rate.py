"""The network path keeps up with 1 Gb/s at 62.5 MHz: every limit is in cycles.

A full frame (1,514 octets) takes 769 cycles on the wire, the shortest frame (60 octets) 42.
"""

import functools
import random
from pathlib import Path

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Rate, Sink, Source, bench, cycles, parameter, simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.tcp.cycles import table
from open_rnic.cocotb_tests.rtl.tcp.shadow import HERE, THERE, decode
from open_rnic.cocotb_tests.rtl.tcp.wire import LEAST_FRAME, Wire, cycles_of
from open_rnic.host_driver.devices.sim.signals import level, rises_with
from open_rnic.host_driver.devices.sim.slow_memory import slow_memories
from open_rnic.host_driver.net.frames import Arp, ArpOperation, Ethernet, EtherType, Ipv4
from open_rnic.host_driver.tcp.segment import PROTOCOL, Flag, Segment
from open_rnic.rtl.tcp.config import EngineConfig, RingMemory
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


def outside(path):
    """The members of a network path without those for the memory of its rings."""
    return wiring.Signature({name: each for name, each in path.signature.members.items() if "memory" not in name})


def expose(m, path, interface):
    """Connect a network path to an interface with the signature of ``outside``."""
    for name, member in interface.signature.members.items():
        inner, outer = getattr(path, name), getattr(interface, name)
        if member.is_signature:
            wiring.connect(m, inner, wiring.flipped(outer))
        else:
            m.d.comb += outer.eq(inner) if member.flow is wiring.Out else inner.eq(outer)


class Pair(wiring.Component):
    """Two network paths, ``a`` and ``b``, of which the test is the wires.

    With ``latency``, their rings have 16 KiB, and lie in memories that take so many cycles, fewer than 63.
    """

    def __init__(self, latency: int = 0):
        memory = RingMemory(ahead=64)  # 32 words take 42 cycles, if each takes 40
        config = EngineConfig(send_ring=16384, receive_ring=16384, memory=memory) if latency else EngineConfig()
        self.latency = latency
        self.paths = {side: NetworkPath(CONNECTIONS, config) for side in SIDES}
        super().__init__({side: wiring.Out(outside(path)) for side, path in self.paths.items()})

    def elaborate(self, platform):
        m = Module()
        for side, path in self.paths.items():
            m.submodules[side] = path
            expose(m, path, getattr(self, side))
            for name, memory in slow_memories(path, self.latency).items():
                m.submodules[f"{side}_{name}"] = memory
                wiring.connect(m, getattr(path, name), memory.port)
        return m


def quiet(dut, prefix=""):
    """Drive the inputs with which nothing happens."""
    for name in ("tick", "view__show", "command__valid", "gateway"):
        if hasattr(dut, prefix + name):
            getattr(dut, prefix + name).value = 0


async def ticks(dut, *ports, every=TICK):
    """Drive ``tick``: a pulse each millisecond, which has so many cycles."""
    while True:
        await cycles(dut, every - 1)
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
    await rises_with(RisingEdge(dut.clk), ready)
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

    def __init__(self, dut, tick=TICK, **lost):
        self.dut = dut
        self.wires, self.sources, self.sinks = {}, {}, {}
        for side, other in (SIDES, SIDES[::-1]):
            quiet(dut, f"{side}__")
            for name, value in {
                "mac": int.from_bytes(MACS[side], "big"), "address": int(ADDRESSES[side]), "prefix": 0xFFFF_FF00,
                "accept": 1,
            }.items():  # fmt: skip
                getattr(dut, f"{side}__{name}").value = value
            self.wires[side] = Wire(dut, f"{side}__", f"{other}__", *([lost[side]] if side in lost else []))
            self.sources[side] = Packets(dut, f"{side}__to_send")
            self.sinks[side] = Sink(dut, f"{side}__received")
        cocotb.start_soon(ticks(dut, *(getattr(dut, f"{side}__tick") for side in SIDES), every=tick))

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
            if all(getattr(dut, f"{side}__view__status").value == State.ESTABLISHED for side in SIDES):
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
async def streams(dut):
    """Packets of ``octets`` octets leave ``sides`` back to back, but frames of a with the numbers ``losses`` are lost.

    They take the time of the wire, and ``extra`` cycles.
    """
    count, octets, sides = parameter("count"), parameter("octets"), parameter("sides")
    losses = parameter("losses")
    both = Both(dut, a=losses.__contains__)
    await both.open()
    waiting = []
    for side, other in (SIDES, SIDES[::-1]):
        if side in sides:
            packets = [random.randbytes(octets) for _ in range(count)]
            for packet in packets:
                both.sources[side].send(packet, connection=0)
            waiting.append(cocotb.start_soon(both.receive(other, b"".join(packets))))
    for each in waiting:
        await each
    for side in sides:
        full = [began for began, length in both.segments(side) if length == octets]
        resent, skipped = len(full) - count, 10
        used = full[-1] - full[skipped]
        extra = used - (len(full) - 1 - skipped) * cycles_of(54 + octets)
        dut._log.info("%s: %d cycles, %d more than the wire's, %d resent", side, used, extra, resent)
        assert extra <= parameter("extra")
        assert resent == (len(losses) if side == "a" else 0)


@pytest.mark.parametrize("sides", shortened("both ways at once are harder", 1, ["ab", "a"]))
def test_full_segments_leave_back_to_back(sides):
    simulate(
        functools.partial(Pair), streams,
        parameters={"count": 120, "octets": MSS, "sides": sides, "losses": [], "extra": 0},
    )  # fmt: skip


@pytest.mark.parametrize("sides", shortened("half a minute each; test_path.py has a slow memory, too", 0, ["ab", "a"]))
def test_full_segments_leave_back_to_back_with_rings_in_a_memory_of_40_cycles(sides):
    simulate(
        functools.partial(Pair, 40), streams,
        parameters={"count": 220, "octets": MSS, "sides": sides, "losses": [], "extra": 0},
    )  # fmt: skip


@pytest.mark.parametrize("octets", shortened("a full segment takes longest", 1, [MSS, 512]))
def test_a_lost_segment_costs_its_retransmission(octets):
    """And at most 6.1 frame times, as the congestion window is halved, and the ring holds only 5 full segments."""
    extra = int(6.1 * cycles_of(54 + octets))
    simulate(
        functools.partial(Pair), streams,
        parameters={"count": 220, "octets": octets, "sides": "a", "losses": [100], "extra": extra},
    )  # fmt: skip


class Peer:
    """A connection of the engine in a test, as its peer sees it."""

    def __init__(self, dut):
        self.dut = dut
        quiet(dut)
        dut.accept.value = 1
        self.user, self.received = Packets(dut, "to_send"), Sink(dut, "received")
        self.seq, self.ack = random.getrandbits(32), 0
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

    async def open(self):
        """Open the connection."""
        await give(self.dut, "", kind=Command.LISTEN_AT, ports=PORTS["a"] << 16, address=0, iss=random.getrandbits(32))
        self.give(self.segment(flags=Flag.SYN, mss=MSS))
        answer = await self.answer()
        self.seq, self.ack = (self.seq + 1) % 2**32, (answer.seq + 1) % 2**32
        self.give(self.segment())
        await cycles(self.dut, 500)
        assert self.dut.view__status.value == State.ESTABLISHED


class PeerOfEngine(Peer):
    """Sends segments to a bare engine, as fast as they are taken."""

    def __init__(self, dut):
        super().__init__(dut)
        dut.soon.value = 1
        self.there, self.here = Source(dut, "segments_in"), Sink(dut, "segments_out")
        self.rate, self.sends = Rate(dut, "segments_in"), Rate(dut, "segments_out")

    def give(self, segment):
        """Send a segment to the engine."""
        octets = segment.encode(THERE, HERE)
        self.there.send(octets, source=int(THERE), length=len(octets))

    async def answer(self):
        """Wait for a segment of the engine."""
        octets, fields = await self.here.receive()
        assert fields["length"] == len(octets)
        return decode(octets, fields["destination"])

    async def passes(self, name, segments, limit=LEAST_FRAME):
        """Send segments as fast as they are taken; check the cycles for each of them."""
        await cycles(self.dut, 1000)
        self.rate.restart()
        for each in segments:
            self.give(each)
        await self.there.drained()
        used = self.rate.used / len(segments)
        self.dut._log.info("%s: %.1f cycles", name, used)
        assert used <= limit, name


class PeerOfPath(Peer):
    """Sends frames to a path at the rate of the wire."""

    def __init__(self, dut):
        super().__init__(dut)
        dut.mac.value, dut.address.value = int.from_bytes(MACS["a"], "big"), int(HERE)
        dut.prefix.value = 0xFFFF_FF00
        self.here, self.there = Wire(dut, "", None), Wire(dut, None, "")
        self.no_room = self.others = 0
        cocotb.start_soon(self._count())

    async def _count(self):
        no_room = 1  # the first bit of Counts
        edge, ready, strobes = RisingEdge(self.dut.clk), self.dut.rx_frames__ready, self.dut.counts
        while True:
            await edge
            assert level(ready)
            if counts := level(strobes):
                self.no_room += counts & no_room
                self.others += not counts & no_room

    def give(self, segment):
        """Send a segment to the path."""
        self.there.send(framed(PROTOCOL, segment.encode(THERE, HERE)))

    def segments(self):
        """The segments that the path has sent."""
        packets = [Ethernet.decode(frame) for _, frame in self.here.frames]
        packets = [Ipv4.decode(each.payload) for each in packets if each.ethertype == EtherType.IPV4]
        return [Segment.decode(each.payload, HERE, THERE) for each in packets if each.protocol == PROTOCOL]

    async def answer(self):
        """Wait for a while, and return the last segment of the path."""
        await cycles(self.dut, 1000)
        return self.segments()[-1]

    async def passes(self, name, frames, lost=0):
        """Send frames back to back; check how many find no room. Return the number of segments that are sent."""
        sent, self.no_room, self.others = len(self.here.frames), 0, 0
        began = self.there.cycle
        for each in frames:
            self.there.send(each)
        while not self.there.idle:
            await cycles(self.dut, LEAST_FRAME)
        used = (self.there.cycle - began) / len(frames)
        await cycles(self.dut, 3000)
        self.dut._log.info("%s: %.1f cycles, %d without room", name, used, self.no_room)
        assert used < LEAST_FRAME + 1
        assert self.no_room <= lost, name
        return len(self.here.frames) - sent


def framed(protocol, octets):
    """The frame of an IPv4 packet."""
    packet = Ipv4(THERE, HERE, protocol, octets).encode()
    return Ethernet(MACS["a"], MACS["b"], EtherType.IPV4, packet).encode()


@bench(cycles=400_000)
async def shortest_segments(dut):
    peer = PeerOfEngine(dut)
    await peer.open()
    count = 300
    await peer.passes("acknowledgments of nothing new", [peer.segment()] * count)
    peer.user.send(random.randbytes(8000), connection=0)
    await cycles(dut, 8000)
    acks = [peer.segment(ack=(peer.ack + 4 * number) % 2**32) for number in range(1, count)]
    await peer.passes("acknowledgments of 4 octets", acks)
    peer.ack = (peer.ack + 8000) % 2**32
    peer.give(peer.segment())
    for octets in (1, 6):
        await peer.passes(f"segments of {octets} octets", [peer.data(octets) for _ in range(count)])
    await peer.passes("segments of no connection", [peer.segment(source=1)] * count)
    await peer.passes("resets of no connection", [peer.segment(source=1, flags=Flag.RST)] * count)


@bench(cycles=400_000)
async def octets_behind_others(dut):
    """Segments of which only the last octets are new, whose user waits for nothing."""
    peer = PeerOfEngine(dut)
    await peer.open()
    octets = random.randbytes(40_000)
    at = 0
    while at < len(octets):
        old = min(at, random.choice([0, 1, 5, 400, 1400]))
        new = random.randint(1, MSS - old)
        peer.give(peer.segment(seq=(peer.seq + at - old) % 2**32, payload=octets[at - old : at + new]))
        at += new
        found = b""
        await cycles(dut, 2000)
        while not peer.received.empty():
            found += (await peer.received.receive()).octets
        assert found == octets[at - new : at]


@bench(cycles=400_000)
async def shortest_segments_out(dut):
    """Segments of one octet, each of which is acknowledged at once: by a segment of one octet, or by an empty one."""
    peer = PeerOfEngine(dut)
    await peer.open()
    count = 300
    for octets, limit in ((0, parameter("out")), (1, parameter("both"))):
        await cycles(dut, 1000)
        for _ in range(16):  # packets that wait: 32 have segments of their own
            peer.user.send(random.randbytes(1), connection=0)
        peer.sends.restart()
        for _ in range(count):
            answer = await peer.answer()
            assert len(answer.payload) == 1
            peer.ack = (answer.seq + 1) % 2**32
            peer.give(peer.data(octets))
            peer.user.send(random.randbytes(1), connection=0)
        used = peer.sends.used / count
        dut._log.info("%d octets in, 1 out: %.1f cycles", octets, used)
        assert used <= limit
        for _ in range(16):
            answer = await peer.answer()
        peer.ack = (answer.seq + 1) % 2**32
        peer.give(peer.segment())


@bench(cycles=600_000)
async def shortest_frames(dut):
    peer = PeerOfPath(dut)
    question = Arp(ArpOperation.REQUEST, MACS["b"], THERE, bytes(6), HERE)
    peer.there.send(Ethernet(b"\xff" * 6, MACS["b"], EtherType.ARP, question.encode()).encode())
    await peer.open()
    count = 1000  # more than the queue of segments holds

    def frames(segments):
        return [framed(PROTOCOL, each.encode(THERE, HERE)) for each in segments]

    await peer.passes("acknowledgments", frames([peer.segment()] * count))
    for octets in (1, 6):
        await peer.passes(f"segments of {octets} octets", frames([peer.data(octets) for _ in range(count)]))
    await peer.passes("resets of no connection", frames([peer.segment(source=1, flags=Flag.RST)] * count))
    strays = frames([peer.segment(source=1)] * count)
    dut._log.info("sent %d", await peer.passes("segments of no connection", strays, lost=count))
    # Frames that are not for TCP: none of them keeps a segment out.
    others = [framed(17, random.randbytes(20)), framed(1, random.randbytes(20)), random.randbytes(60)]
    mixed = [frame for each in range(count // 4) for frame in (*others, *frames([peer.data(6)]))]
    await peer.passes("others, and segments of 6 octets", mixed)
    assert peer.others == len(mixed) * 3 // 4
    peer.give(peer.segment(seq=(peer.seq - 1) % 2**32))  # old: asks for an acknowledgment
    assert (await peer.answer()).ack == peer.seq  # nothing was lost


def test_the_shortest_segments_take_the_time_of_the_wire():
    simulate(functools.partial(TcpEngine, CONNECTIONS), shortest_segments)


def test_the_table_of_the_page_is_that_of_the_program():
    assert table() in (Path(__file__).parents[3] / "docs/tcp-engine.md").read_text()


def test_octets_are_delivered_when_they_have_been_written():
    simulate(functools.partial(TcpEngine, CONNECTIONS), octets_behind_others)


def test_the_shortest_segments_leave():
    simulate(functools.partial(TcpEngine, CONNECTIONS), shortest_segments_out, parameters={"out": 260, "both": 300})


def test_the_shortest_frames_are_received_back_to_back():
    simulate(functools.partial(NetworkPath, CONNECTIONS), shortest_frames)
