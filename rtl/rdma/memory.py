"""Block RAM behind a memory port, and a memory in the fabric beside it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.rdma.layouts import MemoryPort, word_bits

__all__ = ["BlockMemory", "MemoryHub", "add_memory", "check_memory", "memory_members"]


def check_memory(lanes: int, octets: int) -> None:
    """Raise ValueError if ``octets`` is not a size of a block RAM: a power of 2, at least two words, at most 1 GiB."""
    least = 8 * lanes
    if not least <= octets <= 1 << 30 or octets & (octets - 1):
        raise ValueError(f"a memory of {lanes} lanes must have a power of 2 of octets from {least} on, not {octets!r}")


def memory_members(lanes: int, outside: bool) -> dict:
    """Return the port of a component whose memory is outside of it, if it is."""
    return {"memory": Out(MemoryPort(lanes))} if outside else {}


def add_memory(m: Module, component, port, octets: int) -> None:
    """Connect ``port`` with the memory outside of ``component``, or with a block RAM if it has no port for it."""
    if "memory" in component.signature.members:
        wiring.connect(m, port, wiring.flipped(component.memory))
    else:
        m.submodules.memory = memory = BlockMemory(component.lanes, octets)
        wiring.connect(m, port, memory.port)


class BlockMemory(wiring.Component):
    """A block RAM of ``octets`` octets behind a :class:`.MemoryPort`.

    Addresses are modulo ``octets``. ``port.write.ready`` is always 1, and a word can be read back in the cycle after
    its transfer, whether ``last`` is set or not. A read in the same cycle as a write returns the octets from before it.

    Latency: 1 cycle from a read to its word. Throughput: a write and a read in every cycle. ``port.read.ready`` depends
    on ``port.words.ready`` in the same cycle. Octets are 0 until they have been written.

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    """

    def __init__(self, lanes: int, octets: int):
        check_lanes(lanes)
        check_memory(lanes, octets)
        self.lanes = lanes
        self.octets = octets
        super().__init__({"port": In(MemoryPort(lanes))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=32 * self.lanes, depth=self.octets // (4 * self.lanes), init=[])
        write = memory.write_port(granularity=8)
        read = memory.read_port()
        port = self.port
        beat = port.write.payload
        m.d.comb += [
            port.write.ready.eq(1),
            write.addr.eq(beat.address),
            write.data.eq(beat.data),
            write.en.eq(Mux(port.write.valid, beat.mask, 0)),
            port.read.ready.eq(port.words.ready | ~port.words.valid),
            read.addr.eq(port.read.payload),
            read.en.eq(port.read.ready),
            port.words.payload.eq(read.data),
        ]
        with m.If(port.read.ready):
            m.d.sync += port.words.valid.eq(port.read.valid)
        return m


class MemoryHub(wiring.Component):
    """Puts a memory of the fabric, which the engine only reads, beside the main memory.

    Octet addresses whose bit 31 is set belong to the fabric. Words return in the order of the reads. The first read of
    one side is taken while words of the other side are outstanding, but it is not taken while words of its own side are
    that were asked for before those. Writes with bit 31 set have no effect.

    Latency: combinational. Throughput: a write and a read in every cycle, as far as both memories allow it.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    outstanding : words of each side that can be outstanding: 2 to this power, minus 1

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory, to the engine.
    main : Out, :class:`.MemoryPort`
        The side of the engine, to the main memory.
    read : Out, stream of a word's address
        Words to read from the fabric; bit 31 of the octet address is set.
    words : In, stream of 32 * ``lanes`` bits
        The words, in the order of the reads.

    """

    def __init__(self, lanes: int, *, outstanding: int = 8):
        check_lanes(lanes)
        self.lanes = lanes
        self.outstanding = outstanding
        super().__init__({
            "port": In(MemoryPort(lanes)),
            "main": Out(MemoryPort(lanes)),
            "read": Out(stream.Signature(word_bits(lanes))),
            "words": In(stream.Signature(32 * lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        port, main = self.port, self.main

        aside = Signal()  # the write is not for the main memory
        m.d.comb += [
            aside.eq(port.write.payload.address[-1]),
            main.write.payload.eq(port.write.payload),
            main.write.valid.eq(port.write.valid & ~aside),
            port.write.ready.eq(main.write.ready | aside),
        ]

        # Reads and words of side 0, the main memory, and side 1, the fabric. All outstanding words of the side that was
        # not asked last are older than those of the side that was.
        reads = (main.read, self.read)
        words = (main.words, self.words)
        counts = [Signal(self.outstanding, name=f"count_{side}") for side in range(2)]
        asked = Signal()  # the side that was asked last
        gives = Signal()  # the side whose word is the next one
        m.d.comb += gives.eq(asked ^ Mux(asked, counts[0], counts[1]).any())
        for side in range(2):
            chosen = port.read.payload[-1] if side else ~port.read.payload[-1]
            allowed = Signal(name=f"allowed_{side}")
            passes = Signal(name=f"passes_{side}")
            leaves = Signal(name=f"leaves_{side}")
            m.d.comb += [
                allowed.eq(chosen & Mux(asked == side, ~counts[side].all(), counts[side] == 0)),
                reads[side].payload.eq(port.read.payload),
                reads[side].valid.eq(port.read.valid & allowed),
                passes.eq(reads[side].valid & reads[side].ready),
                words[side].ready.eq(port.words.ready & (gives == side)),
                leaves.eq(words[side].valid & words[side].ready),
            ]
            m.d.sync += counts[side].eq(counts[side] + passes - leaves)
            with m.If(passes):
                m.d.sync += asked.eq(side)
            with m.If(chosen):
                m.d.comb += port.read.ready.eq(reads[side].ready & allowed)
            with m.If(gives == side):
                m.d.comb += [port.words.valid.eq(words[side].valid), port.words.payload.eq(words[side].payload)]
        m.d.comb += [port.fault.eq(main.fault & ~gives), port.write_fault.eq(main.write_fault)]
        return m
