"""The management interface of PHYs: MDC and MDIO (IEEE 802.3 §22.2.4, §22.3.4)."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["Mdio", "MdioAccess"]

_PREAMBLE = 32  # bits
_TURNAROUND = 46  # number of the first of two bits, in which a PHY that is read begins to drive MDIO
_IDLE = 64  # number of a bit behind an access, in which a PHY that was read stops to drive MDIO


class MdioAccess(data.StructLayout):
    """An access to a register of a PHY.

    Members
    -------
    data : 16 bits
        The word to write.
    register : 5 bits
    phy : 5 bits
        The address of the PHY.
    write : 1 bit
    """

    def __init__(self):
        super().__init__({"data": 16, "register": 5, "phy": 5, "write": 1})


class Mdio(wiring.Component):
    """The master of MDIO, which reads and writes registers of PHYs.

    MDIO changes at falling edges of MDC, and is sampled before rising edges. The wire needs a pull-up resistor.

    Latency: an access takes 130 half periods of MDC.

    Parameters
    ----------
    half : cycles of half a period of MDC, at least 3: 200 ns for PHYs that keep to IEEE 802.3

    Members
    -------
    access : In, :class:`MdioAccess`
        Must stay as it is until ``done``.
    start : In, 1 bit
        Begin an access. Ignored during one, also in the cycle of ``done``.
    done : Out, 1 bit
        Pulses at the end of an access.
    read : Out, 16 bits
        The word that was read, from ``done`` until the next access begins.
    answered : Out, 1 bit
        Likewise, of a read: there is a PHY with this address.
    mdc, mdio_o, mdio_oe : Out, 1 bit
    mdio_i : In, 1 bit
        The pins.

    """

    def __init__(self, half: int):
        if half < 3:
            raise ValueError(f"half must be at least 3 cycles, not {half!r}")
        self.half = half
        super().__init__({
            "access": In(MdioAccess()),
            "start": In(1),
            "done": Out(1),
            "read": Out(16),
            "answered": Out(1),
            "mdc": Out(1),
            "mdio_o": Out(1, init=1),
            "mdio_oe": Out(1),
            "mdio_i": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        access = self.access
        sampled = Signal()
        m.submodules.pin = FFSynchronizer(self.mdio_i, sampled, init=1)
        busy = Signal()
        cycle = Signal(range(self.half))
        ends = Signal()  # half a period
        number = Signal(range(_IDLE + 1))
        following = Signal(32)  # bits behind the preamble, from the most significant one on
        m.d.comb += [
            ends.eq(cycle == self.half - 1),
            self.done.eq(busy & ends & self.mdc & (number == _IDLE)),
        ]
        with m.If(~busy):
            # Start, operation, addresses, turnaround, data.
            m.d.sync += [
                following.eq(Cat(access.data, Const(0b10, 2), access.register, access.phy,
                                 access.write, ~access.write, Const(0b01, 2))),
                busy.eq(self.start), self.mdio_oe.eq(self.start), self.mdio_o.eq(1), number.eq(0), cycle.eq(0),
            ]  # fmt: skip
        with m.Elif(ends):
            m.d.sync += [cycle.eq(0), self.mdc.eq(~self.mdc)]
            with m.If(~self.mdc & (number != _IDLE)):
                m.d.sync += self.read.eq(Cat(sampled, self.read))
                with m.If(number == _TURNAROUND + 1):
                    m.d.sync += self.answered.eq(~sampled)
            with m.If(self.mdc):
                m.d.sync += [number.eq(number + 1), busy.eq(~self.done)]
                with m.If(number >= _PREAMBLE - 1):
                    m.d.sync += [self.mdio_o.eq(following[-1]), following.eq(following << 1)]
                with m.If((~access.write & (number == _TURNAROUND - 1)) | (number == _IDLE - 1)):
                    m.d.sync += self.mdio_oe.eq(0)
        with m.Else():
            m.d.sync += cycle.eq(cycle + 1)
        return m
