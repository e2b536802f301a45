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
RESIDUE = 0xB798_B438  # of the register, behind a frame and its CRC
_BIT = tuple((bit >> 1) ^ (POLYNOMIAL if bit & 1 else 0) for bit in gf2.identity(32))


class FrameCrc(wiring.Component):
    """CRC-32C of octets that come one after the other.

    Parameters
    ----------
    bits : taken in a cycle: 1, 2 or 4

    Members
    -------
    start : begin a frame; not together with ``valid``
    valid, octet : an octet of it, held until ``done``
    first, done : its first bits are taken, and its last
    shift : with ``valid``, there is no octet, but the register moves on by one: so the CRC comes out of ``crc``
    crc : with ``first``, the next octet of the CRC, the least significant first
    good : the octets so far are a frame and its CRC

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
        # The high bits of the register only move down; what the low ones and the octet's add is XORed to them.
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
