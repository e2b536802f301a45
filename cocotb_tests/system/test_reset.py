"""An RNIC that is reset while it works: registers are reset, and memories keep what they hold.

It is compared, cycle by cycle, with a fresh one that has the same inputs from the reset on.
"""

import random
from functools import partial
from ipaddress import IPv4Address

import cocotb
import dpkt
import pytest
from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.queue import Queue
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.harness import Monitor, Source, Within, bench, parameter, simulate
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.rtl.net.bench import PEER_MAC, REQUEST, arp, udp
from open_rnic.cocotb_tests.system.test_linked_rnic import answer, place
from open_rnic.cocotb_tests.system.test_wire_rate import ADDRESSES, MACS, SINK, SINK_AT, STAG, STATIONS, End
from open_rnic.host_driver.ddp import Opcode
from open_rnic.host_driver.devices.serial.frames import Request
from open_rnic.host_driver.rdma.engine import commands
from open_rnic.rtl.host_link.protocol import LINK_PORT, Ask
from open_rnic.rtl.mpa import stream_registers
from open_rnic.rtl.net.layouts import Frame
from open_rnic.rtl.rdma import memory_registers
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rdma.registers import RDMA_MAP, Right
from open_rnic.rtl.rnic.linked_rnic import LinkedRnic
from open_rnic.rtl.rnic.separate_rnic import SeparateRnic
from open_rnic.rtl.rnic.shared_rnic import SharedRnic
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import Command

RING = 4096
HOST = IPv4Address("10.9.0.9")
# What was refused, the octets of the last word in RECEIVED, and memory, which keeps its octets.
MEANINGLESS = {each.address for each in RDMA_MAP if each.name.startswith(("REFUSED_", "SOURCE"))}
MEANINGLESS |= {stream_registers.BY_NAME["STREAM_STATE"].address, memory_registers.BY_NAME["MEMORY_READ"].address}
LATER = 3000  # ticks, in which the timers of the time before would run out


class Beside(wiring.Component):
    """An RNIC, a fresh one beside it, and a peer; a host reaches both RNICs by frames, and the peer by its registers.

    Until the first reset ends, the fresh RNIC is held in reset. From then on ``differs`` says which of the outputs of
    the two differ. The reset cuts the frames at the RNIC's port; the MAC does so, too.
    """

    def __init__(self, connections):
        config = EngineConfig(send_ring=RING, receive_ring=RING)
        options = {"memory": 1 << 14, "period": 8, "fabric": Fabric.GENERATOR, "station": STATIONS["a"]}
        self.used, self.fresh = (LinkedRnic(connections, config, **options) for _ in range(2))
        rnic = SeparateRnic if connections == 1 else SharedRnic
        self.peer = rnic(connections, config, memory=1 << 14, station=STATIONS["b"])
        super().__init__({
            "reset": In(1), "tick": In(1), "differs": Out(4),
            "host": In(stream.Signature(Frame())), "heard": Out(stream.Signature(Frame())),
            "sent": self.used.signature.members["tx_frames"], "peer_bus": self.peer.signature.members["bus"],
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        begun = Signal()  # the fresh RNIC
        m.d.sync += begun.eq(begun | self.reset)
        m.submodules.used = ResetInserter(self.reset)(self.used)
        m.submodules.fresh = ResetInserter(self.reset | ~begun)(self.fresh)
        m.submodules.peer = peer = self.peer
        wiring.connect(m, wiring.flipped(self.peer_bus), peer.bus)
        self._give(m, self.used.rx_frames)
        self._take(m, self.used.tx_frames)
        for each in (self.used, self.fresh):
            m.d.comb += [each.tick.eq(self.tick), each.rx.eq(1), each.mac_bus.ack.eq(each.mac_bus.request)]
        m.d.comb += [
            peer.tick.eq(self.tick),
            Value.cast(self.fresh.rx_frames.payload).eq(self.used.rx_frames.payload),
            self.fresh.rx_frames.valid.eq(self.used.rx_frames.valid),
            self.fresh.tx_frames.ready.eq(self.used.tx_frames.ready),
        ]
        outputs = []
        for each in (self.used, self.fresh):
            sent, bus = each.tx_frames, each.mac_bus
            outputs.append((
                Cat(sent.valid, Mux(sent.valid, sent.payload, 0)), Cat(bus.request, Mux(bus.request, bus.address, 0)),
                Cat(each.tx, each.active), each.rx_frames.ready,
            ))  # fmt: skip
        m.d.comb += self.differs.eq(Mux(
            begun & ~self.reset, Cat(one != other for one, other in zip(*outputs, strict=True)), 0,
        ))  # fmt: skip
        return m

    def _give(self, m, to):
        """Give frames of the host and of the peer to the RNICs; none begins in its middle after the reset."""
        sent = self.peer.tx_frames
        inside, of_peer, lost = Signal(), Signal(), Signal()
        valid, last, takes, chooses_peer, moves = Signal(), Signal(), Signal(), Signal(), Signal()
        payload = Signal(Frame())
        m.d.comb += [
            chooses_peer.eq(Mux(inside, of_peer, ~self.host.valid)),
            valid.eq(Mux(chooses_peer, sent.valid, self.host.valid)),
            Value.cast(payload).eq(Mux(chooses_peer, Value.cast(sent.payload), Value.cast(self.host.payload))),
            takes.eq(to.ready | lost | self.reset),
            self.host.ready.eq(takes & ~chooses_peer),
            sent.ready.eq(takes & chooses_peer),
            moves.eq(valid & takes),
            last.eq(payload.last),
            to.valid.eq(valid & ~lost & ~self.reset),
            Value.cast(to.payload).eq(payload),
            self.heard.valid.eq(moves),
            self.heard.payload.eq(payload),
        ]
        with m.If(moves):
            m.d.sync += [inside.eq(~last), of_peer.eq(chooses_peer), lost.eq(lost & ~last)]
        with m.If(self.reset):
            m.d.sync += lost.eq(Mux(moves, ~last, inside))

    def _take(self, m, sent):
        """Show the frames of the RNIC, and give them to the peer; one that the reset has cut is bad."""
        received = self.peer.rx_frames
        inside = Signal()
        cut = self.reset & inside
        m.d.comb += [
            Value.cast(self.sent.payload).eq(sent.payload),
            self.sent.valid.eq(sent.valid & ~self.reset),
            Value.cast(received.payload).eq(Value.cast(sent.payload)),
            received.valid.eq((self.sent.valid & self.sent.ready) | cut),
            sent.ready.eq(received.ready & self.sent.ready),
        ]
        with m.If(cut):
            m.d.comb += [received.payload.last.eq(1), received.payload.bad.eq(1)]
        with m.If(received.valid & received.ready):
            m.d.sync += inside.eq(~received.payload.last)


class Peer(End):
    """The peer at its registers."""

    def __init__(self, dut):
        self._ports = Within(dut, "peer_")
        dut.peer_bus__request.value = 0


class Used(End):
    """The RNIC at its link, a session of its host."""

    def __init__(self, dut):
        self._dut = dut
        self.frames = Source(dut, "host")
        self._datagrams = Queue()
        self._listening = cocotb.start_soon(self._listen())

    async def _listen(self):
        sent = Monitor(self._dut, "sent")
        while True:
            frame = dpkt.ethernet.Ethernet((await sent.receive()).octets[2:])
            if isinstance(frame.data, dpkt.ip.IP) and isinstance(frame.ip.data, dpkt.udp.UDP):
                self._datagrams.put_nowait(frame.ip.udp.data)

    def give(self, frame):
        self.frames.send(bytes(2) + frame.ljust(60, b"\0"), bad=0)

    def begin(self, session):
        """Begin a session of the link; the RNIC learns the host's MAC. A frame that a reset has cut is forgotten."""
        self._session, self._sequence = session, 0
        self._listening.cancel()
        self._listening = cocotb.start_soon(self._listen())
        self.give(arp(REQUEST, PEER_MAC, HOST, IPv4Address(ADDRESSES["a"])))

    async def ask(self, request):
        sequence = self._sequence
        octets = request.encode(sequence, self._session, Ask.OPEN)
        self._sequence = (sequence + 1) % 16
        to = MACS["a"].to_bytes(6, "big")
        self.give(udp(octets, port=LINK_PORT, source=HOST, destination=IPv4Address(ADDRESSES["a"]), to=to))
        while True:
            found = answer(await self._datagrams.get())
            if (found.sequence, found.session) == (sequence, self._session):  # no other: not all frames are new
                return found.values

    async def access(self, page, register, word=None):
        request = Request(1024)
        if word is None:
            request.read(place(page, register.address))
        else:
            request.write(place(page, register.address), word)
        return next(iter(await self.ask(request)), None)

    async def read_all(self):
        """Read the words of all pages, but for those that mean nothing yet."""
        for page in range(parameter("connections") + 1):
            for base in range(0, 1024, 256):
                request = Request(1024)
                for address in sorted({*range(base, base + 256, 4)} - MEANINGLESS):
                    request.read(place(page, address))
                await self.ask(request)


async def ticks(dut, every):
    while True:
        await ClockCycles(dut.clk, every - 1)
        dut.tick.value = 1
        await RisingEdge(dut.clk)
        dut.tick.value = 0


async def connect(used, peer, rng, first=0):
    """Open the connections, from either end, and enter MPA mode; the first one is the number ``first`` of the RNIC."""
    for n in range(parameter("connections")):
        ours = used, (n + first) % parameter("connections"), 7000 + n, ADDRESSES["b"]
        theirs = peer, n, 8000 + n, ADDRESSES["a"]
        (active, row, near, to), (passive, other, far, _) = (ours, theirs) if n % 2 else (theirs, ours)
        await passive.command(Command.LISTEN_AT, other, ports=far << 16, address=0, iss=rng.getrandbits(32))
        await active.command(Command.OPEN, row, ports=near << 16 | far, address=to, iss=rng.getrandbits(32))
    for end in (used, peer):
        for n in range(parameter("connections")):
            while not await end.established(n):
                pass
    for end in (used, peer):
        for n in range(parameter("connections")):
            await end.enter_mpa(n)


async def work(used, peer, octets):
    """Post RDMA Writes and RDMA Reads at both ends."""
    for n in range(parameter("connections")):
        for end in (used, peer):
            await end.post(commands.region(SINK, SINK_AT, 512, SINK_AT, Right.LOCAL_WRITE), n)
            await end.post(commands.work(Opcode.RDMA_WRITE, octets, STAG, 0, [(0, octets)]), n)
            await end.post(commands.work(Opcode.RDMA_READ_REQUEST, 512, STAG, 0, [(SINK_AT, SINK)]), n)


async def use(used, peer, rng):
    await connect(used, peer, rng)
    while True:
        await work(used, peer, rng.randrange(1, 4000))


@bench(1_000_000)
async def a_used_rnic_is_as_a_fresh_one(dut):
    """It has the peer's frames of the time before once more, and the peer still has its connections."""
    rng = random.Random(parameter("moment"))
    dut.reset.value = dut.tick.value = 0
    dut.sent__ready.value = dut.heard__ready.value = 1
    heard, frames = Monitor(dut, "heard"), []

    async def note():
        while True:
            octets = (await heard.receive()).octets[2:]
            if octets[6:12] == MACS["b"].to_bytes(6, "big"):
                frames.append(octets)

    noting = cocotb.start_soon(note())
    ticking = cocotb.start_soon(ticks(dut, 20))  # a SYN waits for ARP for 1,000 of them
    used, peer = Used(dut), Peer(dut)
    used.begin(session=1)
    using = cocotb.start_soon(use(used, peer, rng))
    await ClockCycles(dut.clk, parameter("moment"))
    while len(frames) <= 10:
        await ClockCycles(dut.clk, 500)
    using.cancel()
    noting.cancel()
    dut.peer_bus__request.value = 0
    dut.reset.value = 1
    await ClockCycles(dut.clk, rng.randrange(2, 20))
    dut.reset.value = 0

    async def compare():
        await RisingEdge(dut.clk)
        while not (differs := int(dut.differs.value)):
            await dut.differs.value_change
        raise AssertionError(f"outputs {differs:04b} differ")

    comparing = cocotb.start_soon(compare())
    ticking.cancel()  # the RNIC has no time of its own yet
    used.begin(session=2)
    for n in range(parameter("connections")):
        await used.command(Command.ABORT, n)
    await used.command(Command.OPEN, 0, ports=6000 << 16 | 6001, address=ADDRESSES["b"], iss=1)
    ticking = cocotb.start_soon(ticks(dut, 40))
    for octets in rng.sample(frames, len(frames)):
        used.give(octets)
    await used.frames.drained()
    await ClockCycles(dut.clk, 40 * LATER)
    ticking.cancel()
    cocotb.start_soon(ticks(dut, 2000))
    used.begin(session=3)
    await used.read_all()
    peer = Peer(dut)
    for n in range(parameter("connections")):
        await peer.command(Command.ABORT, n)
    await connect(used, peer, rng, first=1)  # the same ports in other rows
    await work(used, peer, 3000)
    await used.read_all()
    comparing.cancel()


@long("a build of three RNICs")
@pytest.mark.parametrize("connections", [4, 1])
@pytest.mark.parametrize("moment", [40_000, 30_000, 60_000])
def test_a_used_rnic_is_as_a_fresh_one(moment, connections):
    simulate(
        partial(Beside, connections), a_used_rnic_is_as_a_fresh_one,
        parameters={"moment": moment, "connections": connections},
    )  # fmt: skip
