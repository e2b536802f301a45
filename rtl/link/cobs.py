"""Consistent Overhead Byte Stuffing (Cheshire and Baker, IEEE/ACM Transactions on Networking 7.2, 1999).

A frame becomes blocks of a code and up to 254 octets other than zero; code ``n`` says that ``n - 1`` follow, and then a
zero, unless ``n`` is 255 or the frame ends. So there are no zeros in it, and one marks its end.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CobsDecoder", "CobsEncoder", "Octet"]

LONGEST = 255  # code
DONE = 254  # what the complement of a code ends at, counted up by the octets that follow


class Octet(data.Struct):
    """An octet of a frame, or, with ``end``, the frame's end without an octet."""

    octet: 8
    end: 1


class CobsDecoder(wiring.Component):
    """Decodes octets into frames.

    A frame whose last block is truncated is not detected; the frame's CRC must find it. An empty frame is discarded.

    Latency: combinational. Throughput: one octet per cycle.

    Members
    -------
    i : In, stream of 8 bits
        Encoded octets.
    valid : Out, 1 bit
        ``octet`` is an octet of the frame.
    octet : Out, 8 bits
        The octet.
    end : Out, 1 bit
        A frame ends in this cycle.
    """

    i: In(stream.Signature(8))
    valid: Out(1)
    octet: Out(8)
    end: Out(1)

    def elaborate(self, platform):
        m = Module()
        octet = self.i.payload
        left = Signal(8, init=DONE)  # of the block's octets; counts up
        inside = Signal()  # a frame
        due = Signal()  # a zero, before the next block
        in_block = Signal()
        zero = Signal()
        m.d.comb += [
            self.i.ready.eq(1),
            in_block.eq(left != DONE),
            zero.eq(octet == 0),
            self.octet.eq(octet & in_block.replicate(8)),
            self.valid.eq(self.i.valid & ~zero & (in_block | due)),
            self.end.eq(self.i.valid & zero & inside),
        ]
        with m.If(self.i.valid):
            m.d.sync += inside.eq(~zero)
            with m.If(zero):
                m.d.sync += [left.eq(DONE), due.eq(0)]
            with m.Elif(in_block):
                m.d.sync += left.eq(left + 1)
            with m.Else():
                m.d.sync += [left.eq(~octet), due.eq(octet != LONGEST)]
        return m


class CobsEncoder(wiring.Component):
    """Writes frames into memory, encoded, with the zero behind them.

    Throughput: one octet per cycle; a block of 254 octets without a zero takes 1 cycle more, and so does the end. A
    frame that does not fit overwrites its own beginning.

    Parameters
    ----------
    size : octets of memory, a power of 2
    margin : octets that are kept for the end of the frame, a power of 2

    Members
    -------
    i : octets of the frame, and its end
    full : only ``margin`` octets have room
    write, address, data : into memory; the zero in the cycle after the end was taken

    """

    def __init__(self, size: int, margin: int):
        self.size = size
        self.margin = margin
        super().__init__({
            "i": In(stream.Signature(Octet)),
            "full": Out(1),
            "write": Out(1),
            "address": Out(range(size)),
            "data": Out(8),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.i.payload
        code = Signal(8, init=1)  # of the block
        place = Signal(range(self.size))  # where it belongs
        next_ = Signal(range(self.size), init=1)  # where the next octet goes
        closes = Signal()  # the block is complete
        moves = Signal()
        m.d.comb += self.full.eq(next_[self.margin.bit_length() - 1:].all())
        m.d.comb += self.address.eq(Mux(closes, place, next_))
        with m.If(moves):
            m.d.sync += next_.eq(next_ + 1)
            m.d.sync += code.eq(code + 1)
            with m.If(closes):
                m.d.sync += [place.eq(next_), code.eq(1)]
        m.d.comb += self.data.eq(Mux(closes, code, i.octet))
        with m.FSM():
            with m.State("Octets"):
                m.d.comb += [
                    self.i.ready.eq(1),
                    self.write.eq(self.i.valid),
                    moves.eq(self.i.valid & ~i.end),
                    closes.eq(i.end | (i.octet == 0)),
                ]
                with m.If(self.i.valid):
                    with m.If(i.end):
                        m.next = "End"
                    with m.Elif((code == LONGEST - 1) & ~closes):
                        m.next = "Block"
            with m.State("Block"):
                m.d.comb += [self.write.eq(1), moves.eq(1), closes.eq(1)]
                m.next = "Octets"
            with m.State("End"):
                m.d.comb += [self.write.eq(1), self.data.eq(0)]
                m.d.sync += [code.eq(1), place.eq(0), next_.eq(1)]
                m.next = "Octets"
        return m
