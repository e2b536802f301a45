"""A data path with an RDMA engine and a sample writer in simulation: its memory port has rings, too."""

from __future__ import annotations

from amaranth.hdl import Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.layout import DEPTH, TICK
from open_rnic.host_driver.devices.sim.rings import SimulatedDatapath
from open_rnic.rtl.rdma.layouts import MemoryWrite, word_bits
from open_rnic.rtl.rdma.sampling import SamplingDatapath

PLACE = data.StructLayout(layout.PLACE)


class WriteRing(wiring.Component):  # type: ignore[misc]
    """Keeps the words that are to be written until the host has taken them.

    Throughput: one word per cycle while there is room.

    Members
    -------
    i : the words
    freed : count of the words that the host has taken
    written : count of the words that have been put into the ring
    """

    def __init__(self, lanes: int):
        super().__init__({"i": In(stream.Signature(MemoryWrite(lanes))), "freed": In(16), "written": Out(16)})
        self._words = Memory(shape=32 * lanes, depth=DEPTH, init=[])
        self._places = Memory(shape=PLACE.size, depth=DEPTH, init=[])

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.shared_words = self._words
        m.submodules.shared_places = self._places
        word, place = self._words.write_port(), self._places.write_port()
        moves = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq((self.written - self.freed)[:16] != DEPTH),
            word.en.eq(moves),
            word.addr.eq(self.written),
            word.data.eq(self.i.payload.data),
            place.en.eq(moves),
            place.addr.eq(self.written),
            PLACE(place.data).word.eq(self.i.payload.address),
            PLACE(place.data).mask.eq(self.i.payload.mask),
        ]
        with m.If(moves):
            m.d.sync += self.written.eq(self.written + 1)
        return m


class ReadRing(wiring.Component):  # type: ignore[misc]
    """Keeps the numbers of the words that are to be read until the host has taken them.

    Members
    -------
    i : the numbers
    freed, written : see :class:`WriteRing`
    """

    def __init__(self, lanes: int):
        super().__init__({"i": In(stream.Signature(word_bits(lanes))), "freed": In(16), "written": Out(16)})
        self._numbers = Memory(shape=32, depth=DEPTH, init=[])

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.shared_numbers = self._numbers
        number = self._numbers.write_port()
        moves = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq((self.written - self.freed)[:16] != DEPTH),
            number.en.eq(moves),
            number.addr.eq(self.written),
            number.data.eq(self.i.payload),
        ]
        with m.If(moves):
            m.d.sync += self.written.eq(self.written + 1)
        return m


class WordRing(wiring.Component):  # type: ignore[misc]
    """Gives the words that the host has read to the engine.

    Members
    -------
    posted : count of the words that the host has put into the ring
    taken : count of the words that have been taken out of it
    o : the words
    """

    def __init__(self, lanes: int):
        super().__init__({"posted": In(16), "taken": Out(16), "o": Out(stream.Signature(32 * lanes))})
        self._words = Memory(shape=32 * lanes, depth=DEPTH, init=[])

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.shared_words = self._words
        word = self._words.read_port()
        room = self.o.ready | ~self.o.valid
        more = (self.taken != self.posted) & room
        m.d.comb += [word.en.eq(more), word.addr.eq(self.taken), self.o.payload.eq(word.data)]
        with m.If(room):
            m.d.sync += [self.o.valid.eq(more), self.taken.eq(self.taken + more)]
        return m


class SimulatedRdma(SimulatedDatapath):
    """An ``rtl.rdma.sampling.SamplingDatapath`` as a :class:`.SimulatedDatapath`, with rings at its memory port, too.

    A tick of its sample writer passes every TICK clock cycles.
    """

    def __init__(self, datapath: SamplingDatapath):
        super().__init__(datapath, layout.RDMA_CONTROL, layout.RDMA_STATUS)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = super().elaborate(platform)
        lanes, memory, control, status = self._datapath.lanes, self._datapath.memory, self.control, self.status
        flushed = ResetInserter(control.flush)
        writes, reads, words = WriteRing(lanes), ReadRing(lanes), WordRing(lanes)
        m.submodules.writes, m.submodules.reads, m.submodules.words = flushed(writes), flushed(reads), flushed(words)
        wiring.connect(m, memory.write, writes.i)
        wiring.connect(m, memory.read, reads.i)
        wiring.connect(m, words.o, memory.words)
        m.d.comb += [
            writes.freed.eq(control.writes_freed),
            reads.freed.eq(control.reads_freed),
            words.posted.eq(control.words_posted),
            status.writes_written.eq(writes.written),
            status.reads_written.eq(reads.written),
            status.words_taken.eq(words.taken),
        ]
        cycle = Signal(range(TICK))
        m.d.comb += self._datapath.tick.eq(cycle == TICK - 1)
        m.d.sync += cycle.eq(cycle + 1)  # TICK is a power of 2
        return m


def make(lanes: str) -> SimulatedRdma:
    """Return a data path of ``lanes`` lanes with an RDMA engine, a sample writer and a signal generator.

    Peers on loopback send ULPDUs of up to 64 KiB.
    """
    sizes = {"store_and_forward": 1 << 17, "regions": 1024, "buffers": 64, "work": 64, "reads": 128}
    return SimulatedRdma(SamplingDatapath(int(lanes), generates=True, **sizes))
