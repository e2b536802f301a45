"""A data path with an RDMA engine and a sample writer in simulation: its memory port has rings, too."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
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


def memory_rings(
    m: Module, memory: wiring.PureInterface, lanes: int, control: Any, status: Any, suffix: str = ""
) -> None:
    """Put rings at a memory port; ``suffix`` follows their names.

    Nothing flushes them, because a reset of the engine leaves its accesses to memory as they are.
    """
    writes, reads, words = WriteRing(lanes), ReadRing(lanes), WordRing(lanes)
    wiring.connect(m, memory.write, writes.i)
    wiring.connect(m, memory.read, reads.i)
    wiring.connect(m, words.o, memory.words)
    for name, ring in (("writes", writes), ("reads", reads)):
        m.submodules[f"{name}{suffix}"] = ring
        m.d.comb += [
            ring.freed.eq(control[f"{name}{suffix}_freed"]), status[f"{name}{suffix}_written"].eq(ring.written),
        ]  # fmt: skip
    m.submodules[f"words{suffix}"] = words
    m.d.comb += [words.posted.eq(control[f"words{suffix}_posted"]), status[f"words{suffix}_taken"].eq(words.taken)]


class SimulatedRdma(SimulatedDatapath):
    """An ``rtl.rdma.sampling.SamplingDatapath`` as a :class:`.SimulatedDatapath`, with rings at its memory port, too.

    A tick of its sample writer passes every TICK clock cycles.
    """

    def __init__(self, datapath: SamplingDatapath):
        super().__init__(datapath, rdma=True)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = super().elaborate(platform)
        memory_rings(m, self._datapath.memory, self._datapath.lanes, self.control, self.status)
        cycle = Signal(range(TICK))
        m.d.comb += self._datapath.tick.eq(cycle == TICK - 1)
        m.d.sync += cycle.eq(cycle + 1)  # TICK is a power of 2
        return m


# Peers on loopback send ULPDUs of up to 64 KiB.
SIZES = {"store_and_forward": 1 << 17, "regions": 1024, "buffers": 64, "work": 64, "reads": 128}


def make(lanes: str) -> SimulatedRdma:
    """Return a data path of ``lanes`` lanes with an RDMA engine, a sample writer and a signal generator."""
    return SimulatedRdma(SamplingDatapath(int(lanes), generates=True, **SIZES))
