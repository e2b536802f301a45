"""The watcher gives MPA whole FPDUs of any connection, and the host the octets before them."""

import random

import cocotb
import pytest
from amaranth.hdl import Array, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from cocotb.triggers import FallingEdge, RisingEdge

from open_rnic.cocotb_tests.harness import Part, Sink, Source, bench, never, parameter, simulate, stalls
from open_rnic.cocotb_tests.harness.rings import Rings
from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.host_driver.devices.sim.slow_memory import SlowMemory
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.mpa.shared_mpa import RxSettings
from open_rnic.rtl.rnic.watcher import Tag, Watcher
from open_rnic.rtl.tcp.config import RingMemory
from open_rnic.rtl.tcp.receive_ring import ReceiveRings

SIZE = 2048
BITS = (1 << 32) - 1
LOST = 4  # cycles without a beat, between FPDUs that wait


class WatchedRings(wiring.Component):
    """A watcher at its rings, with the settings of each connection as an input; without ``lanes``, at real rings.

    With ``latency``, real rings lie in a slow memory; with ``seed``, too, it pauses at random.
    """

    def __init__(self, connections: int, lanes: int = 0, latency: int = 0, seed: int = 0):
        self.watcher = Watcher(connections, SIZE, lanes or 1)
        self.parts = {"watcher": self.watcher}
        members = dict(self.watcher.signature.members)
        of_watch = self.watcher.watch.signature.members
        members["watch"] = Out(wiring.Signature({name: each for name, each in of_watch.items() if name != "settings"}))
        self.slow = SlowMemory(connections * SIZE, latency, seed) if latency else None
        if not lanes:
            self.parts["rings"] = ReceiveRings(connections, SIZE, Tag(connections), RingMemory() if latency else None)
            of_rings = dict(self.parts["rings"].signature.members)
            of_rings = {name: each for name, each in of_rings.items() if name != "shown" and "memory" not in name}
            del members["rings"]
            members |= of_rings
        super().__init__(members | {"settings": In(RxSettings).array(connections)})

    def elaborate(self, platform):
        m = Module()
        for name, part in self.parts.items():
            m.submodules[name] = part
        if "rings" in self.parts:
            connect(m, self.parts["rings"].shown, self.watcher.rings)
        if self.slow is not None:
            m.submodules.slow = self.slow
            connect(m, self.parts["rings"].memory, self.slow.port)
        watch = self.watcher.watch
        m.d.comb += [
            self.watch.connection.eq(watch.connection),
            watch.settings.eq(Array(self.settings)[watch.connection]),
            *(getattr(watch, name).eq(getattr(self.watch, name)) for name in ("unchecked", "failed", "holds")),
        ]
        for part in self.parts.values():
            for name, member in part.signature.members.items():
                if name == "watch" or name not in self.signature.members:
                    continue
                if member.is_signature:
                    inner, outer = getattr(part, name), flipped(getattr(self, name))
                    connect(m, inner, outer)
                elif member.flow is Out:
                    m.d.comb += getattr(self, name).eq(getattr(part, name))
                else:
                    m.d.comb += getattr(part, name).eq(getattr(self, name))
        return m


class Stream:
    """A connection: its stream, and what arrives of it."""

    def __init__(self, number, *, length=None, fpdus=20):
        self.number = number
        self.start = random.getrandbits(32)
        self.markers = random.random() < 0.4
        self.offset = 4 * random.randrange(128) if self.markers else 0
        self.before = random.randbytes(random.choice((20, random.randrange(1, 100))))
        framer = FpduFramer(markers=self.markers, crc=True, offset=self.offset)
        lengths = [length or random.choice((0, 2, 14, 18, random.randrange(1200))) for _ in range(fpdus)]
        self.fpdus = [framer.frame(random.randbytes(each)) for each in lengths]
        self.octets = self.before + b"".join(self.fpdus)
        self.delivered = self.noted = 0
        self.stream, self.trains, self.places = bytearray(), [], []

    def settings(self, enable):
        fields = {"stream_octets": len(self.before), "enable": enable, "markers": self.markers,
                  "start": self.offset // 4, "maximum": 1300}  # fmt: skip
        return RxSettings.const(fields).as_value().value

    def add_too_long(self):
        """Append the beginning of an FPDU that is too long; return the octets of it that are given."""
        place = (self.offset + sum(map(len, self.fpdus))) % 512
        lead = bytes(4) if self.markers and not place else b""
        first = lead + random.choice((1301, 0xFFFF)).to_bytes(2, "big") + random.randbytes(300)
        self.octets += first
        return first[: 4 + len(lead)]

    def expected_places(self):
        place = self.offset // 4
        for fpdu in self.fpdus:
            yield place
            place = (place + len(fpdu) // 4) % 128


class Bench:
    """The program of TCP, the host and MPA; with ``lanes``, at a model of the rings of this width."""

    def __init__(self, dut, streams, backpressure=None):
        self.dut = dut
        self.streams = streams
        self.sink = Sink(dut, "trains", backpressure or stalls(0.2))
        for name in ("watch__failed", "watch__holds", "watch__unchecked", "changed", "clear", "words__pop", "show",
                     "words__connection", "state_of"):  # fmt: skip
            getattr(dut, name).value = 0
        dut.enters__ready.value = 1
        self.stirred = 0
        dut.accept.value = (1 << len(streams)) - 1
        for each in streams:
            self.set(each, enable=1)
        self.model = Rings(dut, "rings", len(streams), SIZE) if parameter("lanes") else None
        if self.model is None:
            for name in ("place", "first", "take", "deliver", "finish", "begin_receive", "noted"):
                getattr(dut, name).value = 0
            dut.has_payload.value = 1
            self.payload = Source(dut, "i")
        self.flags = {"failed": 0, "holds": 0}
        cocotb.start_soon(self._flag())
        cocotb.start_soon(self._stir())
        cocotb.start_soon(self._note())
        cocotb.start_soon(self._receive())
        cocotb.start_soon(self._read_words())

    def set(self, stream, enable):
        getattr(self.dut, f"settings__{stream.number}").value = stream.settings(enable)
        self.stir(stream)

    def stir(self, stream):
        """Report a change to the watcher a cycle later, for one cycle."""
        self.stirred |= 1 << stream.number

    async def write(self, name, value, connection):
        dut = self.dut
        if self.model is not None:
            match name:
                case "begin_receive":
                    await self.model.begin(connection, value)
                case "finish":
                    self.model.finish(connection)
            await RisingEdge(dut.clk)
            return
        getattr(dut, name).value, dut.value.value, dut.connection.value = 1, value & BITS, connection
        await FallingEdge(dut.clk)
        while not dut.ready.value:
            await FallingEdge(dut.clk)
        await RisingEdge(dut.clk)
        getattr(dut, name).value = 0

    async def begin(self):
        for each in self.streams:
            self.dut.clear.value = 1 | each.number << 1
            await RisingEdge(self.dut.clk)
        self.dut.clear.value = 0
        for each in self.streams:
            await self.write("begin_receive", each.start, each.number)

    async def deliver(self, stream, octets):
        """A segment of ``octets`` arrives."""
        payload = stream.octets[stream.delivered : stream.delivered + octets]
        if self.model is not None:
            self.model.deliver(stream.number, payload)
            stream.delivered += len(payload)
            return
        await self.write("place", stream.start + stream.delivered, stream.number)
        await self.write("first", 0, stream.number)
        await self.write("take", len(payload), stream.number)
        self.payload.send(payload)
        stream.delivered += len(payload)
        await self.write("deliver", stream.start + stream.delivered, stream.number)

    def room(self, stream):
        return SIZE - (stream.delivered - stream.noted)

    async def _stir(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.dut.changed.value, self.stirred = self.stirred, 0

    async def _flag(self):
        dut = self.dut
        while True:
            for name, flags in self.flags.items():
                getattr(dut, f"watch__{name}").value = flags >> int(dut.watch__connection.value) & 1
            await FallingEdge(dut.clk)

    async def _note(self):
        dut = self.dut
        while self.model is not None:
            await RisingEdge(dut.clk)
            for each in self.streams:
                each.noted = self.model.left[each.number]
        while True:
            await RisingEdge(dut.clk)
            dut.noted.value = 0
            await FallingEdge(dut.clk)
            if dut.taken.value and random.random() < 0.3:
                dut.noted.value = 1
                self.streams[int(dut.taken_of.value)].noted += int(dut.count.value)

    async def _receive(self):
        while True:
            packet = await self.sink.receive()
            stream = self.streams[packet.fields["connection"]]
            stream.trains.append(packet.octets)
            stream.places.append(packet.fields["place"])

    async def _read_words(self):
        dut = self.dut
        while True:
            number = random.randrange(len(self.streams))
            dut.words__connection.value = number
            dut.words__pop.value = 0
            await FallingEdge(dut.clk)
            if int(dut.words__full.value) >> number & 1:
                word = int(dut.words__word.value)
                self.streams[number].stream += (word & BITS).to_bytes(4, "little")[: word >> 32]
                dut.words__pop.value = 1 << number
            await RisingEdge(dut.clk)

    async def run(self, cycles=40_000):
        """Deliver all octets of all streams, in segments of any size, and wait until they have left."""
        for _ in range(cycles):
            due = [each for each in self.streams if each.delivered < len(each.octets)]
            for each in random.sample(due, min(1, len(due))):
                size = random.choice((1, 3, 100, 1000))
                if self.room(each) >= size:
                    await self.deliver(each, size)
            await RisingEdge(self.dut.clk)
            if not due and all(each.noted == len(each.octets) for each in self.streams):
                return
        raise AssertionError([(len(each.octets), each.delivered, each.noted) for each in self.streams])


@bench(cycles=400_000)
async def fpdus_of_all_connections_arrive_whole(dut):
    streams = [Stream(n) for n in range(parameter("connections"))]
    tested = Bench(dut, streams)
    await tested.begin()
    await tested.run()
    for each in streams:
        assert bytes(each.stream) == each.before
        assert each.trains == each.fpdus
        assert not each.markers or each.places == list(each.expected_places())
        dut.show.value = each.number
        await FallingEdge(dut.clk)
        assert dut.octets.value == len(each.octets)
        await RisingEdge(dut.clk)


@bench(cycles=400_000)
async def between_fpdus_that_wait_few_cycles_are_lost(dut):
    shortest = 4 * 6 * (parameter("lanes") or 1) - 6  # octets of a ULPDU: its FPDU has 6 beats
    streams = [
        Stream(n, length=random.choice((shortest, shortest + 4, 100))) for n in range(parameter("connections"))
    ]
    tested = Bench(dut, streams, never())
    for each in streams:
        tested.set(each, enable=0)
    await tested.begin()
    for each in streams:
        while each.delivered < min(SIZE, len(each.octets)):
            await tested.deliver(each, min(SIZE, len(each.octets)))
    while not all(len(each.stream) == len(each.before) for each in streams):
        await RisingEdge(dut.clk)
    for each in streams:
        tested.set(each, enable=1)
    for _ in range(100):  # all are looked at, while the first ones leave
        await RisingEdge(dut.clk)
    lost = []
    while sum(len(each.trains) for each in streams) < 15 * len(streams):
        await FallingEdge(dut.clk)
        if dut.trains__valid.value:
            lost.append(0)
        elif lost:
            lost[-1] += 1
    assert max(lost[:-1]) <= LOST, lost


@bench(cycles=100_000)
async def a_connection_that_failed_or_holds_delays_no_other(dut):
    streams = [Stream(n, fpdus=8) for n in range(parameter("connections"))]
    failed, held = streams[0], streams[-1]
    tested = Bench(dut, streams)
    tested.flags["failed"] = 1 << failed.number
    send = FpduFramer(markers=held.markers, crc=True, offset=held.offset).frame(bytes([0x41, 0x40 | Opcode.SEND]) * 9)
    held.fpdus = [send]
    held.octets = held.before + send
    if held is not failed:
        tested.flags["holds"] = 1 << held.number
    await tested.begin()
    free = [each for each in streams if each is not held]
    for each in streams:
        while each.delivered < len(each.octets):
            # There is room for so many beside an FPDU that waits for its end.
            if tested.room(each) >= min(700, len(each.octets) - each.delivered):
                await tested.deliver(each, 700)
            await RisingEdge(dut.clk)
    while any(each.noted < len(each.octets) for each in free):
        await RisingEdge(dut.clk)
    assert failed.trains == []
    assert all(each.trains == each.fpdus for each in free if each is not failed)
    if held is not failed:
        assert held.trains == []
        tested.flags["holds"] = 0
        tested.stir(held)
        while held.noted < len(held.octets):
            await RisingEdge(dut.clk)
        assert held.trains == [send]


@bench(cycles=100_000)
async def an_fpdu_that_is_too_long_is_given_without_its_rest(dut):
    streams = [Stream(n, fpdus=3) for n in range(parameter("connections"))]
    wrong = random.choice(streams)
    first = wrong.add_too_long()
    tested = Bench(dut, streams)
    await tested.begin()
    await tested.run()
    assert wrong.trains[:-1] == wrong.fpdus
    assert wrong.trains[-1] == first
    assert all(each.trains == each.fpdus for each in streams if each is not wrong)


@bench(cycles=200_000)
async def a_connection_ends_and_another_takes_its_place(dut):
    streams = [Stream(n, fpdus=4) for n in range(parameter("connections"))]
    ended = random.choice(streams)
    ended.add_too_long()
    tested = Bench(dut, streams)
    await tested.begin()
    await tested.run()
    assert not dut.finished.value
    await tested.write("finish", 0, ended.number)
    while dut.finished.value != 1 << ended.number:
        await RisingEdge(dut.clk)
    while not dut.idle.value:
        await RisingEdge(dut.clk)
    dut.clear.value = 1 | ended.number << 1
    await RisingEdge(dut.clk)
    dut.clear.value = 0
    streams[ended.number] = again = Stream(ended.number)
    tested.set(again, enable=1)
    await tested.write("begin_receive", again.start, again.number)
    await tested.run()
    assert (bytes(again.stream), again.trains) == (again.before, again.fpdus)
    assert all(each.trains == each.fpdus for each in streams)


SHORT = ((1, 0), (16, 0), (4, 1), (4, 4), (4, 0, 40, 0))  # the arguments of those in `make test`
OTHERS = ((2, 0), (1, 1), (1, 2), (1, 4), (4, 2), (4, 0, 10, 1))


def watched(*arguments):
    return Part(watched_rings, arguments, SHORT if arguments in SHORT else OTHERS)


def watched_rings(arguments):
    return WatchedRings(*arguments)


@pytest.mark.parametrize("connections", shortened("a number between both ends", 2, [1, 16, 2]))
def test_watcher(connections):
    simulate(watched(connections, 0), __name__, parameters={"connections": connections, "lanes": 0})


@pytest.mark.parametrize("lanes", widths(1, 2, 4))
@pytest.mark.parametrize("connections", shortened("1 is in test_watcher", 1, [4, 1]))
def test_watcher_at_each_width(connections, lanes):
    simulate(
        watched(connections, lanes), __name__, parameters={"connections": connections, "lanes": lanes}
    )


@pytest.mark.parametrize(("latency", "seed"), shortened("a faster memory", 1, [(40, 0), (10, 1)]))
def test_watcher_of_rings_in_a_slow_memory(latency, seed):
    made = watched(4, 0, latency, seed)
    simulate(
        made,
        fpdus_of_all_connections_arrive_whole,
        a_connection_that_failed_or_holds_delays_no_other,
        an_fpdu_that_is_too_long_is_given_without_its_rest,
        a_connection_ends_and_another_takes_its_place,
        parameters={"connections": 4, "lanes": 0},
    )
