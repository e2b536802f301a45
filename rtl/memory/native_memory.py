"""The memory port on LiteDRAM's native ports."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.lib.stream import Fifo
from open_rnic.rtl.memory.ports import NativePort, Split
from open_rnic.rtl.memory.wide_reads import WideReads
from open_rnic.rtl.memory.wide_writes import WideWrites

__all__ = ["NativeMemory"]


class NativeMemory(wiring.Component):
    """A :class:`.MemoryPort` on two of LiteDRAM's native ports, whose words are as wide or a power of 2 times as wide.

    ::

        port.write ▸ WideWrites ▸ queue ▸ writes
        port.read  ▸ WideReads ▸ reads
        port.words ◂ WideReads ◂ reads

    Whole words are written, as on many boards the pins that would mask octets (DQM) are tied to ground: a word of which
    some octets have not been given is read first. Other writes wait meanwhile, reads do not.

    The words in the queue are written when it is half full, or when a write with ``last`` waits for them. Then all of
    them are, so that the memory changes its direction rarely.

    Latency: 1 cycle from ``port.read`` to ``port.words`` besides the memory's. Throughput: a word in each cycle, as far
    as the memory allows. SDRAM knows no faults, and none are signalled.

    Parameters
    ----------
    split : how an address of ``port`` is one of the native ports
    depth : words of a native port that can wait to be written, or that can be asked for: a power of 2

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory. Addresses are modulo its size.
    writes, reads : Out, :class:`.NativePort`
        An access by one of them takes effect before all that the other begins after its word was taken or given.

    """

    def __init__(self, split: Split, *, depth: int = 32):
        self.split, self.depth = split, depth
        native = NativePort(split.address_bits, split.bits)
        super().__init__({"port": In(MemoryPort(split.lanes)), "writes": Out(native), "reads": Out(native)})

    def elaborate(self, platform):
        m = Module()
        port = self.port
        m.submodules.gatherer = gatherer = WideWrites(self.split)
        m.submodules.reader = reader = WideReads(self.split, self.depth)
        wiring.connect(m, wiring.flipped(port.write), gatherer.write)
        wiring.connect(m, wiring.flipped(port.read), reader.read)
        wiring.connect(m, reader.words, wiring.flipped(port.words))
        m.d.comb += [
            self.reads.command.valid.eq(reader.asks.valid),
            self.reads.command.payload.address.eq(reader.asks.payload),
            reader.asks.ready.eq(self.reads.command.ready),
            reader.gives.eq(self.reads.gives),
            reader.given.eq(self.reads.read_data),
            reader.forget.eq(port.write.valid & port.write.ready & port.write.payload.last),
        ]
        self._write(m, gatherer)
        return m

    def _write(self, m, gatherer):
        """Write what the gatherer gives, and read first what a word lacks."""
        native, command = self.writes, self.writes.command
        m.submodules.queue = queue = Fifo(gatherer.o.payload.shape(), self.depth, spare=self.depth // 2)
        m.submodules.taken = taken = Fifo(self.split.bits, 16)  # words whose writes have been commanded
        wiring.connect(m, gatherer.o, queue.i)
        head = queue.o.payload
        rest = Signal(self.split.bits)  # the word as it is in the memory
        has_rest = Signal()
        asked = Signal()  # for the rest
        is_whole = Signal()
        drains = Signal()
        moves = Signal()
        m.d.comb += [
            is_whole.eq(head.mask.all() | has_rest),
            command.valid.eq(queue.o.valid & drains & Mux(is_whole, taken.i.ready, ~asked)),
            command.payload.write.eq(is_whole),
            command.payload.address.eq(head.address),
            moves.eq(command.valid & command.ready),
            queue.o.ready.eq(moves & is_whole),
            taken.i.valid.eq(moves & is_whole),
            taken.i.payload.eq(Cat(
                Mux(head.mask[n], head.data.word_select(n, 8), rest.word_select(n, 8))
                for n in range(self.split.bits // 8)
            )),
            native.write_data.eq(taken.o.payload),
            taken.o.ready.eq(native.takes),
            gatherer.done.eq(~queue.o.valid & ~taken.o.valid),
        ]  # fmt: skip
        m.d.sync += drains.eq(queue.o.valid & (drains | gatherer.waits | ~queue.spare))
        with m.If(moves):
            m.d.sync += [asked.eq(~is_whole), has_rest.eq(0)]
        with m.If(native.gives):
            m.d.sync += [asked.eq(0), has_rest.eq(1), rest.eq(native.read_data)]
