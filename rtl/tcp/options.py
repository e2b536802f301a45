"""Reads the options of a SYN."""

from amaranth.hdl import Module, Signal
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["OptionParser"]

END, NOP, MSS, SACK_PERMITTED = 0, 1, 2, 4


class Expects(enum.Enum, shape=2):
    """The octet that an :class:`OptionParser` expects next."""

    KIND = 0
    LENGTH = 1
    VALUE = 2
    NOTHING = 3


class OptionParser(wiring.Component):
    """Finds the options MSS and SACK-permitted among octets that come one by one (RFC 9293 §3.2, RFC 2018 §2).

    The first option of a kind counts. An option with an illegal length ends the options (RFC 9293 §3.2, MUST-7); the
    parser knows how many octets there are, so that an option that is too long has no effect.

    Members
    -------
    start : In, 1 bit
        Forget everything. ``room`` is valid.
    room : In, 6 bits
        Number of octets of all options.
    valid : In, 1 bit
    octet : In, 8 bits
        The next octet.
    mss : Out, 16 bits
        The option's value, 0 if it is absent.
    sack_permitted : Out, 1 bit
    """

    def __init__(self):
        super().__init__({
            "start": In(1), "room": In(6), "valid": In(1), "octet": In(8), "mss": Out(16), "sack_permitted": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        left = Signal(6)  # octets that are left, the current one included
        kind = Signal(8)
        length = Signal(8)
        rest = Signal(8)  # octets of the option that are left, the current one included
        has_mss = Signal()  # the first one counts
        fits = Signal()
        state = Signal(Expects)
        m.d.comb += fits.eq((self.octet >= 2) & (self.octet <= left + 1))
        with m.If(self.start):
            m.d.sync += [left.eq(self.room), self.mss.eq(0), self.sack_permitted.eq(0), has_mss.eq(0)]
            m.d.sync += state.eq(Expects.KIND)
        with m.Elif(self.valid):
            m.d.sync += left.eq(left - 1)
            with m.Switch(state):
                with m.Case(Expects.KIND):
                    m.d.sync += kind.eq(self.octet)
                    with m.If(self.octet == END):
                        m.d.sync += state.eq(Expects.NOTHING)
                    with m.Elif(self.octet != NOP):
                        m.d.sync += state.eq(Expects.LENGTH)
                with m.Case(Expects.LENGTH):
                    m.d.sync += [length.eq(self.octet), rest.eq(self.octet - 2), state.eq(Expects.VALUE)]
                    with m.If(~fits):
                        m.d.sync += state.eq(Expects.NOTHING)
                    with m.Elif(self.octet == 2):
                        m.d.sync += state.eq(Expects.KIND)
                        with m.If(kind == SACK_PERMITTED):
                            m.d.sync += self.sack_permitted.eq(1)
                with m.Case(Expects.VALUE):
                    m.d.sync += rest.eq(rest - 1)
                    with m.If((kind == MSS) & (length == 4) & ~has_mss):
                        m.d.sync += self.mss.eq(self.mss << 8 | self.octet)
                    with m.If(rest == 1):
                        m.d.sync += [has_mss.eq(has_mss | ((kind == MSS) & (length == 4))), state.eq(Expects.KIND)]
        return m
