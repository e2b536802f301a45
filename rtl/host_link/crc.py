"""The CRC of the link's frames."""

from functools import reduce
from operator import xor

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib import gf2
from open_rnic.rtl.lib.crc32c import POLYNOMIAL

__all__ = ["RESIDUE", "FrameCrc"]

ONES = 0xFFFF_FFFF
RESIDUE = 0xB798_B438  # the value of the register after a frame with its CRC
_BIT = tuple((bit >> 1) ^ (POLYNOMIAL if bit & 1 else 0) for bit in gf2.identity(32))


class FrameCrc(wiring.Component):
    """Computes the CRC-32C of a frame, octet by octet.

    Throughput: one octet in 8 / ``bits`` cycles.

    Parameters
    ----------
    bits : number of bits that are processed in a cycle: 1, 2 or 4

    Members
    -------
    start : In, 1 bit
        Begin a frame. Must not be set together with ``valid``.
    valid : In, 1 bit
        An octet is to be processed. ``valid`` and ``octet`` are held until ``done``.
    octet : In, 8 bits
        The octet.
    first : Out, 1 bit
        The octet is in its first cycle.
    done : Out, 1 bit
        The octet is in its last cycle.
    shift : In, 1 bit
        With ``valid``: shift the register by 8 bits, to output the CRC on ``crc``; ``octet`` is ignored.
    crc : Out, 8 bits
        With ``first`` and ``shift``, the next octet of the CRC, beginning with the least significant one.
    good : Out, 1 bit
        The octets since ``start`` are a frame and its CRC.

    """

    def __init__(self, bits: int):
        if bits not in (1, 2, 4):
            raise ValueError(f"bits must be 1, 2 or 4, not {bits!r}")
        self.bits = bits
        super().__init__({
            "start": In(1),
            "valid": In(1),
            "octet": In(8),
            "first": Out(1),
            "done": Out(1),
            "shift": In(1),
            "crc": Out(8),
            "good": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        bits = self.bits
        register = Signal(32, init=ONES)
        low = Signal(bits)
        part = Signal(range(8 // bits))
        octet = self.octet.word_select(part, bits)
        m.d.comb += [self.first.eq(self.valid & (part == 0)), self.done.eq(self.valid & part.all())]
        with m.If(self.valid):
            m.d.sync += part.eq(part + 1)
        # The high bits of the register shift down. The contribution of the low bits and of the octet is XORed to them.
        m.d.comb += low.eq((register[:bits] ^ octet) & ~self.shift.replicate(bits))
        rows = gf2.rows(gf2.power(_BIT, bits)[:bits])
        with m.If(self.start):
            m.d.sync += register.eq(ONES)
        with m.Elif(self.valid):
            m.d.sync += register.eq(Cat(
                reduce(xor, (low[i] for i in range(bits) if row >> i & 1),
                       register[n + bits] if n + bits < 32 else Const(0, 1))
                for n, row in enumerate(rows)
            ))
        m.d.comb += [self.crc.eq(~register[:8]), self.good.eq(register == RESIDUE)]
        return m
