"""Consistent Overhead Byte Stuffing (Cheshire and Baker, IEEE/ACM Transactions on Networking 7.2, 1999).

For example, the frame 11 22 00 33 is encoded as 03 11 22 02 33, and a 00 marks its end.

An encoded frame consists of blocks: a code ``n``, then ``n - 1`` octets other than zero. The frame has a zero between
two blocks, unless the code of the first one is 255. An encoded frame therefore contains no zero.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["CobsDecoder", "CobsEncoder", "Octet"]

LONGEST = 255  # the code of the longest block
DONE = 254  # the decoder counts from the complement of the code up to this value


class Octet(data.Struct):
    """An octet of a frame or, if ``end`` is set, the end of the frame; ``octet`` is then ignored."""

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
        left = Signal(8, init=DONE)  # counts the octets of the block; DONE if none is left
        inside = Signal()  # a frame has begun
        due = Signal()  # a zero precedes the next block
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
    """Encodes frames, and writes them into a memory from address 0, each with the zero behind it.

    Throughput: one octet per cycle. After 254 octets without a zero, and after the end of a frame, the block stalls for
    1 cycle. A frame that does not fit overwrites its own beginning.

    Parameters
    ----------
    size : size of the memory in octets, a power of 2
    margin : number of octets that are still free when ``full`` is set, a power of 2

    Members
    -------
    i : In, stream of :class:`Octet`
        The octets of a frame, and its end.
    full : Out, 1 bit
        At most ``margin`` octets of the memory are free.
    write : Out, 1 bit
        ``data`` is written to ``address``. The zero is written in the cycle after the end was transferred.
    address : Out, range(``size``)
        The address in the memory.
    data : Out, 8 bits
        An encoded octet.

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
        code = Signal(8, init=1)  # the code of the block so far
        place = Signal(range(self.size))  # the address of the code
        next_ = Signal(range(self.size), init=1)  # the address of the next octet
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
