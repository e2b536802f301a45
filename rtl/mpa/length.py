"""A queue that measures ULPDUs, for sources that do not know a ULPDU's length before its end."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo

__all__ = ["UNKNOWN", "LengthFifo", "check_measure"]

UNKNOWN = 0xFFFF  # over MAX_ULPDU, so that a ULPDU with this length is rejected
_PACKETS = 16  # the number of complete packets that may wait


def check_measure(octets: int) -> None:
    """Raise ValueError unless ``octets`` is a possible size of the queue: a power of 2, at least 128."""
    if octets < 128 or octets & (octets - 1):
        raise ValueError(f"measure must be a power of 2 from 128 on, not {octets!r}")


class LengthFifo(wiring.Component):
    """Stores each packet until its end has arrived, and announces its length with its first beat.

    A packet that does not fit is announced with the length UNKNOWN, and passes beat by beat. In MPA mode,
    :class:`.Fence` refuses it (TX_LENGTH, value 65535). In stream mode, :class:`.TxModeSwitch` refuses it (TX_STREAM),
    unless TX_STREAM_OCTETS allows 65,535 octets more.

    Latency: 3 cycles from a packet's last beat at ``i`` to its first beat at ``o``. Throughput: one beat per cycle, if
    two packets fit into the memory. At most 16 complete packets wait in the queue.

    Parameters
    ----------
    lanes : width of the streams in 32-bit lanes
    octets : size of the memory, a power of 2, at least 128, which is also the longest packet that fits

    Members
    -------
    i : In, stream of :class:`.Packet`
        Packets.
    o : Out, stream of :class:`.TxUlpdu`
        The same packets with their lengths.

    """

    def __init__(self, lanes: int, octets: int):
        check_lanes(lanes)
        check_measure(octets)
        self.lanes = lanes
        self.octets = octets
        super().__init__({"i": In(stream.Signature(Packet(lanes))), "o": Out(stream.Signature(TxUlpdu(lanes)))})

    def elaborate(self, platform):
        m = Module()
        beat = self.i.payload
        depth = self.octets // (4 * self.lanes)
        m.submodules.beats = beats = SyncFIFOBuffered(width=Value.cast(beat).shape().width, depth=depth)
        m.submodules.lengths = lengths = Fifo(16, _PACKETS)  # the lengths of packets whose last beat has not left
        measured = Signal(16)  # octets in the earlier beats of the packet, at most UNKNOWN
        total = Signal(17)
        length = Signal(16)
        inside = Signal()  # a beat of the packet is in the memory
        announced = Signal()  # the packet does not fit: the queue holds UNKNOWN as its length
        does_not_fit = Signal()
        enters = Signal()
        m.d.comb += [
            enters.eq(self.i.valid & self.i.ready),
            self.i.ready.eq(beats.w_rdy & lengths.i.ready),
            beats.w_en.eq(enters),
            beats.w_data.eq(beat),
            total.eq(measured + Mux(beat.last, beat.octets, 4 * self.lanes)),
            length.eq(Mux(total > UNKNOWN, UNKNOWN, total)),
            does_not_fit.eq(self.i.valid & (beats.level == depth) & inside & ~announced & ~lengths.o.valid),
            lengths.i.valid.eq((enters & beat.last & ~announced) | does_not_fit),
            lengths.i.payload.eq(Mux(does_not_fit, UNKNOWN, length)),
        ]
        with m.If(does_not_fit):
            m.d.sync += announced.eq(1)
        with m.If(enters):
            m.d.sync += [inside.eq(~beat.last), measured.eq(Mux(beat.last, 0, length))]
            with m.If(beat.last):
                m.d.sync += announced.eq(0)

        m.d.comb += [
            Cat(*(self.o.payload[name] for name in Packet(self.lanes).members)).eq(beats.r_data),
            self.o.payload.length.eq(lengths.o.payload),
            self.o.valid.eq(beats.r_rdy & lengths.o.valid),
            beats.r_en.eq(lengths.o.valid & self.o.ready),
            lengths.o.ready.eq(beats.r_rdy & self.o.ready & self.o.payload.last),
        ]
        return m
