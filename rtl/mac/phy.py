"""Sets a PHY up, and watches its link, by MDIO."""

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.layouts import LinkState
from open_rnic.rtl.mac.mdio import Mdio, MdioAccess
from open_rnic.rtl.mac.registers import Speed

__all__ = ["PhyControl", "PhySettings"]

# Registers of PHYs (IEEE 802.3 §22.2.4), in the order in which they are read.
_CONTROL, _STATUS, _OURS, _THEIRS, _OURS_1000, _THEIRS_1000 = 0, 1, 4, 5, 9, 10
_POLLED = (_CONTROL, _OURS_1000, _THEIRS_1000, _OURS, _THEIRS, _STATUS)


@dataclass(frozen=True)
class PhySettings:
    """A PHY of a board.

    Parameters
    ----------
    address : of the PHY on MDIO, or several that it may have; the first one that has a link is used
    writes : registers that are written after the reset, and again whenever the PHY has not answered: pairs of a
        register's number and a word
    reset : milliseconds for which the PHY is reset after power-up; 0: it is never reset
    wait : milliseconds from then on until the first access
    gigabit : whether the PHY has registers for 1 Gb/s

    """

    address: int | tuple[int, ...] = 0
    writes: tuple[tuple[int, int], ...] = ()
    reset: int = 10
    wait: int = 50
    gigabit: bool = True

    def __post_init__(self):
        if not self.addresses:
            raise ValueError("a PHY has an address")
        for address in self.addresses:
            if not 0 <= address < 32:
                raise ValueError(f"the address of a PHY is 0 to 31, not {address!r}")
        for register, word in self.writes:
            if not 0 <= register < 32 or not 0 <= word < 1 << 16:
                raise ValueError(f"a write to a PHY is a register of 0 to 31 and 16 bits, not {register!r}, {word!r}")
        for name, time in (("reset", self.reset), ("wait", self.wait)):
            if not 0 <= time < 1 << 12:
                raise ValueError(f"{name} is 0 to 4095 ms, not {time!r}")

    @property
    def addresses(self) -> tuple[int, ...]:
        """The addresses that the PHY may have."""
        return (self.address,) if isinstance(self.address, int) else self.address


class PhyControl(wiring.Component):
    """Resets a PHY, writes its settings, and then reads the state of its link each millisecond.

    With auto-negotiation, the link is up when it has completed, and has the fastest mode that both ends have offered;
    without, it has the mode of the PHY's control register. A loss of the link between two readings is seen, too, as
    the PHY keeps it for the next reading. A PHY that does not answer is set up again, each millisecond. If the PHY may
    have several addresses, one that does not answer or has no link is followed by the next one, a millisecond later.

    Parameters
    ----------
    settings : of the PHY
    half : cycles of half a period of MDC; see :class:`.Mdio`

    Members
    -------
    tick : In, 1 bit
        A pulse each millisecond.
    restart : In, 1 bit
        Pulse: begin again, with the reset.
    link : Out, :class:`LinkState`
    answers : Out, 1 bit
        The PHY has answered when it was read last.
    address : Out, 5 bits
        The address that is read.
    access : In, :class:`.MdioAccess`
    access_start : In, 1 bit
        Pulse: make an access, between two readings.
    access_pending : Out, 1 bit
        The access has not been made. ``access`` must stay as it is.
    access_read : Out, 16 bits
    access_answered : Out, 1 bit
        The result of the access.
    phy_reset, mdc, mdio_o, mdio_oe : Out, 1 bit
    mdio_i : In, 1 bit
        The pins; ``phy_reset`` is 1 during a reset.

    """

    def __init__(self, settings: PhySettings, half: int):
        self.settings = settings
        self.mdio = Mdio(half)
        super().__init__({
            "tick": In(1),
            "restart": In(1),
            "link": Out(LinkState()),
            "answers": Out(1),
            "address": Out(5),
            "access": In(MdioAccess()),
            "access_start": In(1),
            "access_pending": Out(1),
            "access_read": Out(16),
            "access_answered": Out(1),
            "phy_reset": Out(1, init=settings.reset != 0),
            "mdc": Out(1),
            "mdio_o": Out(1),
            "mdio_oe": Out(1),
            "mdio_i": In(1),
        })
        # Writes, then reads, in one list of register numbers and words.
        polled = [each for each in _POLLED if settings.gigabit or each not in (_OURS_1000, _THEIRS_1000)]
        self._steps = [*settings.writes, *((register, 0) for register in polled)]
        self._step = Signal(range(len(self._steps)))
        self._place = Signal(range(len(settings.addresses)))  # of the address
        last = len(settings.addresses) - 1
        self._advance = [self._place.eq(Mux(self._place == last, 0, self._place + 1))] if last else []
        self._due = Signal()  # a millisecond has passed
        self._restarts = Signal()
        # The modes in the registers; of two bits that follow one another, the first stands for half duplex.
        self._gigabit = Signal(2)  # both ends offer 1 Gb/s
        self._slower = Signal(4)  # both ends offer 10 Mb/s, then 100 Mb/s
        self._fixed = Signal()  # without auto-negotiation
        self._fixed_speed = Signal(Speed)
        self._fixed_duplex = Signal()

    def elaborate(self, platform):
        m = Module()
        m.submodules.mdio = mdio = self.mdio
        m.d.comb += [
            self.mdc.eq(mdio.mdc),
            self.mdio_o.eq(mdio.mdio_o),
            self.mdio_oe.eq(mdio.mdio_oe),
            mdio.mdio_i.eq(self.mdio_i),
        ]
        m.d.sync += [self._due.eq(self._due | self.tick), self._restarts.eq(self._restarts | self.restart)]
        with m.If(self.access_start):
            m.d.sync += self.access_pending.eq(1)
        link = self._link(m)
        with m.FSM():
            self._reset(m)
            self._choose(m)
            self._access(m)
            self._poll(m, link)
        return m

    def _reset(self, m):
        time_left = Signal(range(max(1, self.settings.reset, self.settings.wait) + 1))
        with m.State("Begin"):
            m.d.sync += [
                self._restarts.eq(0),
                self._step.eq(0),
                self.link.eq(0),
                self.answers.eq(0),
                self.phy_reset.eq(self.settings.reset != 0),
                time_left.eq(self.settings.reset),
            ]
            m.next = "Reset"

        with m.State("Reset"):
            m.d.sync += time_left.eq(time_left - self.tick)
            with m.If(time_left == 0):
                m.d.sync += [self.phy_reset.eq(0), time_left.eq(self.settings.wait)]
                m.next = "Wait"

        with m.State("Wait"):
            m.d.sync += time_left.eq(time_left - self.tick)
            with m.If(time_left == 0):
                m.next = "Idle"

    def _choose(self, m):
        with m.State("Idle"):
            with m.If(self._restarts):
                m.next = "Begin"
            with m.Elif(self.access_pending):
                m.next = "Access"
            with m.Elif(self._due):
                m.d.sync += self._due.eq(self.tick)
                m.next = "Step"

    def _access(self, m):
        """Make the access of a user."""
        mdio = self.mdio
        with m.State("Access"):
            m.d.comb += [mdio.access.eq(self.access), mdio.start.eq(1)]
            with m.If(mdio.done):
                m.d.sync += [
                    self.access_pending.eq(0),
                    self.access_read.eq(mdio.read),
                    self.access_answered.eq(mdio.answered),
                ]
                m.next = "Idle"

    def _poll(self, m, link):
        """Write or read the next register of the list. A PHY that does not answer is set up again."""
        mdio, first_read = self.mdio, len(self.settings.writes)
        step_register = Signal(5)
        step_word = Signal(16)
        m.d.comb += [
            step_register.eq(Array(Const(register, 5) for register, _ in self._steps)[self._step]),
            step_word.eq(Array(Const(word, 16) for _, word in self._steps)[self._step]),
            self.address.eq(Array(Const(each, 5) for each in self.settings.addresses)[self._place]),
        ]
        with m.State("Step"):
            m.d.comb += [
                mdio.access.data.eq(step_word),
                mdio.access.register.eq(step_register),
                mdio.access.phy.eq(self.address),
                mdio.access.write.eq(self._step < first_read),
                mdio.start.eq(1),
            ]
            with m.If(mdio.done):
                m.d.sync += self._step.eq(self._step + 1)
                with m.If(~mdio.access.write & ~mdio.answered):
                    m.d.sync += [self._step.eq(0), self.link.eq(0), self.answers.eq(0), *self._advance]
                    m.next = "Idle"
                with m.Elif(~mdio.access.write):
                    self._read(m, step_register, link)

    def _read(self, m, register, link):
        """Keep the contents of a register. The status is the last one, with which the state of the link is known."""
        read = self.mdio.read
        ours = Signal(4)
        with m.Switch(register):
            with m.Case(_CONTROL):
                m.d.sync += [
                    self._fixed.eq(~read[12]),
                    self._fixed_speed.eq(Cat(read[13], read[6])),
                    self._fixed_duplex.eq(read[8]),
                ]
            with m.Case(_OURS_1000):
                m.d.sync += ours.eq(read[8:10])
            with m.Case(_THEIRS_1000):
                m.d.sync += self._gigabit.eq(ours & read[10:12])
            with m.Case(_OURS):
                m.d.sync += ours.eq(read[5:9])
            with m.Case(_THEIRS):
                m.d.sync += self._slower.eq(ours & read[5:9])
            with m.Case(_STATUS):
                m.d.sync += [self._step.eq(len(self.settings.writes)), self.link.eq(link), self.answers.eq(1)]
                if self._advance:
                    with m.If(~link.up):
                        m.d.sync += [self._step.eq(0), *self._advance]
                m.next = "Idle"

    def _link(self, m):
        """Return the state of the link, while the status is read."""
        link = Signal(LinkState())
        m.d.comb += link.up.eq(self.mdio.read[2] & (self._fixed | self.mdio.read[5]))
        with m.If(self._fixed):
            m.d.comb += [link.speed.eq(self._fixed_speed), link.full_duplex.eq(self._fixed_duplex)]
        with m.Elif(self._gigabit.any()):
            m.d.comb += [link.speed.eq(Speed.MBIT_1000), link.full_duplex.eq(self._gigabit[1])]
        with m.Elif(self._slower[2:].any()):
            m.d.comb += [link.speed.eq(Speed.MBIT_100), link.full_duplex.eq(self._slower[3])]
        with m.Else():
            m.d.comb += [link.speed.eq(Speed.MBIT_10), link.full_duplex.eq(self._slower[1])]
        return link
