"""A memory outside of the FPGA, in simulation: it takes its time, and does what a memory port permits, and no more."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.lib.stream import Fifo

__all__ = ["SlowMemory", "slow_memories"]

_DEPTH = 256  # words on their way, each direction
_CLOCK = 12  # bits of the time


class SlowMemory(wiring.Component):  # type: ignore[misc]
    """A memory behind a :class:`.MemoryPort` of one lane, whose reads and writes take effect ``latency`` cycles later.

    A read overtakes the writes before it, or writes overtake the reads before them, unless ``last`` forbids it. With
    ``seed``, each of them takes a random number of cycles more, and all of them pause now and then, some of these
    pauses for 64 cycles. Addresses are modulo ``octets``.

    Throughput: without ``seed``, a read and a write in each cycle.

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    """

    def __init__(self, octets: int, latency: int, seed: int = 0):
        if not 1 <= latency < _DEPTH:
            raise ValueError(f"latency must be from 1 to {_DEPTH - 1} cycles, not {latency!r}")
        self.octets = octets
        self.latency = latency
        self.seed = seed
        super().__init__({"port": In(MemoryPort(1))})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.memory = memory = Memory(shape=32, depth=self.octets // 4, init=[])
        write_port, read_port = memory.write_port(granularity=8), memory.read_port(domain="comb")
        port, beat = self.port, self.port.write.payload
        time = Signal(_CLOCK)
        m.d.sync += time.eq(time + 1)
        pauses = self._pauses(m)

        def waits(queue: Fifo, pause: Signal) -> Signal:
            """Whether the oldest entry of a queue can leave."""
            age = Signal(_CLOCK)
            m.d.comb += age.eq(time - queue.o.payload.time)
            return queue.o.valid & (age >= self.latency - 1) & ~pause

        # Writes take effect one after the other.
        kind = data.StructLayout({"address": write_port.addr.shape(), "data": 32, "mask": 4, "time": _CLOCK})
        m.submodules.writes = writes = Fifo(kind, _DEPTH)
        sent = Signal()  # the write with ``last`` that waits is in the queue
        enters = Signal()
        m.d.comb += [
            enters.eq(port.write.valid & writes.i.ready & ~sent & ~pauses[0] & beat.mask.any()),
            writes.i.valid.eq(enters),
            *(writes.i.payload[name].eq(beat[name]) for name in ("address", "data", "mask")),
            writes.i.payload.time.eq(time),
            writes.o.ready.eq(waits(writes, pauses[1])),
            write_port.addr.eq(writes.o.payload.address),
            write_port.data.eq(writes.o.payload.data),
            write_port.en.eq(Mux(writes.o.ready, writes.o.payload.mask, 0)),
            port.write.ready.eq(Mux(beat.last, (sent | ~beat.mask.any()) & ~writes.o.valid, enters | ~beat.mask.any())),
        ]
        m.d.sync += sent.eq((sent | enters) & beat.last & port.write.valid & ~port.write.ready)

        # Words are read as late as possible.
        asked = data.StructLayout({"address": read_port.addr.shape(), "time": _CLOCK})
        m.submodules.reads = reads = Fifo(asked, _DEPTH)
        free = Signal()
        m.d.comb += [
            port.read.ready.eq(reads.i.ready & ~pauses[2]),
            reads.i.valid.eq(port.read.valid & ~pauses[2]),
            reads.i.payload.address.eq(port.read.payload),
            reads.i.payload.time.eq(time),
            free.eq(~port.words.valid | port.words.ready),
            reads.o.ready.eq(waits(reads, pauses[3]) & free),
            read_port.addr.eq(reads.o.payload.address),
        ]
        with m.If(free):
            m.d.sync += [port.words.valid.eq(reads.o.ready), port.words.payload.eq(read_port.data)]
        return m

    def _pauses(self, m: Module) -> Signal:
        """Return which of four things pause."""
        pauses = Signal(4)
        if self.seed:
            noise = Signal(32, init=self.seed)  # a linear feedback shift register, four steps a cycle
            stepped = noise
            for _ in range(4):
                stepped = Cat(stepped[1:], stepped[0] ^ stepped[10] ^ stepped[30] ^ stepped[31])
            count = Signal(6)
            long = Signal(4)
            m.d.sync += [noise.eq(stepped), count.eq(count + 1)]
            with m.If(count == 0):
                m.d.sync += long.eq(noise[16:20] & noise[20:24] & noise[24:28])
            m.d.comb += pauses.eq((noise[:4] & noise[4:8]) | long)
        return pauses


def slow_memories(path: Any, latency: int, seed: int = 0) -> dict[str, SlowMemory]:
    """Return memories for the rings of a network path, by the names of their ports, if they are outside of it."""
    config = path.engine.config
    rings = {"receive_memory": config.receive_ring, "send_memory": config.send_ring}
    return {
        name: SlowMemory(path.engine.connections * ring, latency, seed and seed + number)
        for number, (name, ring) in enumerate(rings.items())
        if name in path.signature.members
    }
