"""A UART with 8 data bits, no parity and one stop bit."""

from fractions import Fraction

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["LEAST", "Uart", "UartRx", "UartTx"]

LEAST = 4  # minimum length of a bit in cycles
PRECISION = Fraction(1, 500)  # maximum relative error of the length of a bit


def check_period(period: Fraction | int) -> None:
    """Raise ValueError if ``period``, the length of a bit, is less than 4 cycles."""
    if period < LEAST:
        raise ValueError(f"a bit must take at least {LEAST} clock cycles, not {float(period):.2f}")


class _Bits:
    """Times bits. Their length need not be an integer number of cycles: its fraction accumulates from bit to bit.

    ``ends`` is 1 in the last cycle of a bit, and ``whole`` is the integer part of the length.
    """

    def __init__(self, m: Module, period: Fraction | int):
        places = 0
        while abs(Fraction(round(period * 2**places), 2**places) - period) > period * PRECISION:
            places += 1
        whole, rest = divmod(round(period * 2**places), 2**places)
        self.whole = whole
        self._m = m
        self._left = Signal(range(whole + 1))
        self._part = Signal(places)  # the accumulated fraction; no bits if the length is an integer
        self.ends = Signal()
        carry = Signal()
        m.d.comb += self.ends.eq(self._left == 0)
        m.d.sync += self._left.eq(self._left - 1)
        with m.If(self.ends):
            m.d.sync += self._left.eq(Mux(carry, whole, whole - 1))
        total = Signal(places + 1)
        m.d.comb += [total.eq(self._part + rest), carry.eq(total[-1])]
        with m.If(self.ends):
            m.d.sync += self._part.eq(total)

    def restart(self, cycles: int) -> None:
        """Let the next bit end ``cycles`` cycles after this one."""
        self._m.d.sync += [self._left.eq(cycles - 1), self._part.eq(0)]


class UartRx(wiring.Component):
    """Receives octets from a wire.

    The wire is sampled in every cycle, with a majority vote over three samples, and each octet is timed from the edge
    of its start bit. The transmitter's rate may differ by 4 %, less 2 samples in the 10 bits of an octet: by 2.75 % if
    a bit has 16 cycles. An octet without a stop bit is discarded; reception resumes once the line has been idle.

    Parameters
    ----------
    period : length of a bit in clock cycles, at least 4; need not be an integer

    Members
    -------
    rx : In, 1 bit
        The wire. It need not be synchronous to the clock.
    o : Out, stream of 8 bits
        The octets. Each is valid for 1 cycle, in the middle of its stop bit, and lost if ``ready`` is 0 in this cycle.

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

        # The register starts with ones. When the 0 of the start bit reaches its end, the next bit is the stop bit.
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
    period : length of a bit in clock cycles, at least 4; need not be an integer

    Members
    -------
    i : In, stream of 8 bits
        The octets.
    tx : Out, 1 bit
        The wire, driven by a register.

    """

    def __init__(self, period: Fraction | int):
        check_period(period)
        self.period = period
        super().__init__({"i": In(stream.Signature(8)), "tx": Out(1, init=1)})

    def elaborate(self, platform):
        m = Module()
        bits = _Bits(m, self.period)
        waiting = Signal(9, init=0x1FF)  # bit 0 is on the wire; the next ones follow
        left = Signal(4)  # number of bits that have not ended, including the one on the wire
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
    """Both directions of a UART.

    Parameters
    ----------
    period : length of a bit in clock cycles, at least 4; need not be an integer

    Members
    -------
    rx : In, 1 bit
        The receive wire.
    tx : Out, 1 bit
        The transmit wire.
    o : Out, stream of 8 bits
        Received octets. An octet is lost if ``ready`` is 0 when it is valid.
    i : In, stream of 8 bits
        Octets to send.

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
