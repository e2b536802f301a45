"""The UART: octets over two wires, 8 data bits, no parity, one stop bit."""

from fractions import Fraction

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["LEAST", "Uart", "UartRx", "UartTx"]

LEAST = 4  # cycles in a bit
PRECISION = Fraction(1, 500)  # of a bit's length, at least


def check_period(period: Fraction | int) -> None:
    """Raise ValueError if ``period`` is less than 4 cycles, the minimum for a bit."""
    if period < LEAST:
        raise ValueError(f"a bit takes {LEAST} clock cycles at least, not {float(period):.2f}")


class _Bits:
    """Counts the cycles of bits, whose length need not be whole: what is left of a cycle is carried on."""

    def __init__(self, m: Module, period: Fraction | int):
        places = 0
        while abs(Fraction(round(period * 2**places), 2**places) - period) > period * PRECISION:
            places += 1
        whole, rest = divmod(round(period * 2**places), 2**places)
        self.whole = whole
        self._m = m
        self._left = Signal(range(whole + 1))
        self._part = Signal(places) if places else None
        self.ends = Signal()  # in this cycle
        carry = Signal()
        m.d.comb += self.ends.eq(self._left == 0)
        m.d.sync += self._left.eq(self._left - 1)
        with m.If(self.ends):
            m.d.sync += self._left.eq(Mux(carry, whole, whole - 1))
        if places:
            total = Signal(places + 1)
            m.d.comb += [total.eq(self._part + rest), carry.eq(total[-1])]
            with m.If(self.ends):
                m.d.sync += self._part.eq(total)

    def restart(self, cycles: int) -> None:
        """The next bit ends in so many cycles, not counting this one."""
        self._m.d.sync += self._left.eq(cycles - 1)
        if self._part is not None:
            self._m.d.sync += self._part.eq(0)


class UartRx(wiring.Component):
    """Octets from a wire.

    The wire is sampled in every cycle, with a majority vote over three samples, and each octet is timed from the edge
    of its start bit. The transmitter's rate may differ by 4 %, less 2 samples in the 10 bits of an octet. An octet
    without a stop bit is discarded; reception resumes once the line has been idle.

    Parameters
    ----------
    period : clock cycles in a bit, 4 at least; need not be whole

    Members
    -------
    rx : the wire, which need not be synchronous
    o : octets, for a cycle each, in the middle of the stop bit; lost if that is not ready

    """

    def __init__(self, period: Fraction | int):
        check_period(period)
        self.period = period
        super().__init__({"rx": In(1, init=1), "o": Out(stream.Signature(8))})

    def elaborate(self, platform):
        m = Module()
        bits = _Bits(m, self.period)
        now = Signal(init=1)
        m.submodules.synchronizer = FFSynchronizer(self.rx, now, init=1)
        before = Signal(2, init=3)
        level = Signal()
        m.d.sync += before.eq(Cat(now, before[0]))
        m.d.comb += level.eq(now & before[0] | now & before[1] | before.all())

        # Filled with ones, the start bit arrives at its end when the stop bit is next.
        taken = Signal(9)
        first = Signal()
        m.d.comb += self.o.payload.eq(taken[1:])
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [taken.eq(0x1FF), first.eq(1)]
                with m.If(~level):
                    bits.restart(max(round(self.period / 2 - Fraction(1, 2)), 1))
                    m.next = "Bits"
            with m.State("Bits"):
                with m.If(bits.ends):
                    m.d.sync += [taken.eq(Cat(taken[1:], level)), first.eq(0)]
                    with m.If(first & level):  # a glitch
                        m.next = "Idle"
                    with m.Elif(~taken[0]):
                        m.d.comb += self.o.valid.eq(level)
                        m.next = "Idle"
                        with m.If(~level):
                            m.next = "Settle"
            with m.State("Settle"):
                with m.If(level):
                    m.next = "Idle"
        return m


class UartTx(wiring.Component):
    """Sends octets over a wire, without gaps if the next octet is available in time.

    Parameters
    ----------
    period : clock cycles in a bit, 4 at least; need not be whole

    Members
    -------
    i : octets
    tx : the wire, out of a register

    """

    def __init__(self, period: Fraction | int):
        check_period(period)
        self.period = period
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        bits = _Bits(m, self.period)
        waiting = Signal(9, init=0x1FF)  # bits, the next one first
        left = Signal(4)  # bits, with the one on the wire
        m.d.comb += [
            self.tx.eq(waiting[0]),
            self.i.ready.eq((left == 0) | (bits.ends & (left == 1))),
        ]
        with m.If(self.i.ready & self.i.valid):
            m.d.sync += [waiting.eq(Cat(0, self.i.payload)), left.eq(10)]
            with m.If(left == 0):
                bits.restart(bits.whole)
        with m.Elif(bits.ends & (left != 0)):
            m.d.sync += [waiting.eq(Cat(waiting[1:], 1)), left.eq(left - 1)]
        return m


class Uart(wiring.Component):
    """Both directions: what a :class:`.Link` needs of a board.

    Parameters
    ----------
    period : clock cycles in a bit, 4 at least; need not be whole

    Members
    -------
    rx, tx : the wires
    o : octets that have come; lost if that is not ready
    i : octets to send

    """

    def __init__(self, period: Fraction | int):
        check_period(period)
        self.period = period
        super().__init__({
            "rx": In(1, init=1),
            "tx": Out(1, init=1),
            "o": Out(stream.Signature(8)),
            "i": In(stream.Signature(8)),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.receive = receive = UartRx(self.period)
        m.submodules.send = send = UartTx(self.period)
        m.d.comb += [receive.rx.eq(self.rx), self.tx.eq(send.tx)]
        wiring.connect(m, receive.o, wiring.flipped(self.o))
        wiring.connect(m, wiring.flipped(self.i), send.i)
        return m
