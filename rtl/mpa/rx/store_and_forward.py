"""Store and forward: bad ULPDUs are not delivered."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu
from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import only_many
from open_rnic.rtl.registers import Verdict

__all__ = ["StoreAndForward", "check_store"]


def check_store(octets: int) -> None:
    """Raise ValueError if ``octets`` is not a size of the store: a power of 2, at least 128."""
    if octets < 128 or octets & (octets - 1):
        raise ValueError(f"store_and_forward must be a power of 2 from 128 on, not {octets!r}")


class StoreAndForward(wiring.Component):
    """Stores each ULPDU until its verdict has arrived, and discards it if the verdict is not GOOD.

    Latency: 2 cycles from the last beat of a ULPDU at ``i`` to its first beat at ``o``. Throughput: one beat per cycle.

    Parameters
    ----------
    lanes : width of the streams in 32-bit lanes
    octets : size of the memory, a power of 2
    keep_terminates : do not discard a bad ULPDU if it has the Opcode of a Terminate in an untagged segment (RFC 5040
        §4.1): some peers send a Terminate without a CRC

    Members
    -------
    i : In, stream of :class:`.RxUlpdu`
        ULPDUs of at most ``octets`` octets.
    o : Out, stream of :class:`.RxUlpdu`
        The ULPDUs that are not discarded.
    idle : Out, 1 bit
        No ULPDU is in the block. Only with many connections.

    """

    def __init__(self, lanes: int, octets: int, *, keep_terminates: bool = False, connections: int = 1):
        check_lanes(lanes)
        check_store(octets)
        self.lanes = lanes
        self.keep_terminates = keep_terminates
        self.beats = max(2, octets // (4 * lanes))
        self.connections = connections
        shape = RxUlpdu(lanes, connections)
        idle = only_many(connections, {"idle": Out(1)})
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), **idle})

    def elaborate(self, platform):
        m = Module()
        shape = RxUlpdu(self.lanes, self.connections)
        m.submodules.memory = memory = Memory(shape=shape.size, depth=self.beats, init=[])
        write, read = memory.write_port(), late_read(m, memory)  # of beats before ``kept``
        bits = len(write.addr) + 1
        written = Signal(bits)
        kept = Signal(bits)
        fetched = Signal(bits)

        m.d.comb += [
            self.i.ready.eq((written - fetched)[:bits] != self.beats),
            write.addr.eq(written),
            write.data.eq(self.i.payload),
            write.en.eq(self.i.valid & self.i.ready),
            read.addr.eq(fetched),
            read.en.eq((fetched != kept) & (self.o.ready | ~self.o.valid)),
            Value.cast(self.o.payload).eq(read.data),
        ]
        beat = self.i.payload
        keeps = Signal()
        m.d.comb += keeps.eq((beat.verdict == Verdict.GOOD) | self._is_terminate(m, write.en))
        with m.If(write.en):
            m.d.sync += written.eq(written + 1)
            with m.If(beat.last & keeps):
                m.d.sync += kept.eq(written + 1)
            with m.Elif(beat.last):
                m.d.sync += written.eq(kept)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(read.en), fetched.eq(fetched + read.en)]
        if self.connections > 1:
            m.d.comb += self.idle.eq(~self.o.valid & (fetched == written))
        return m

    def _is_terminate(self, m, moves):
        if not self.keep_terminates:
            return 0
        beat = self.i.payload
        inside = Signal()  # the ULPDU has begun
        terminate = Signal()
        terminate_on = Signal()  # this was so in its first beat
        m.d.comb += terminate.eq(Mux(inside, terminate_on, ~beat.data[7] & (beat.data[8:12] == Opcode.TERMINATE)))
        with m.If(moves):
            m.d.sync += [inside.eq(~beat.last), terminate_on.eq(terminate)]
        return terminate
