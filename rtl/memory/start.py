"""Initialises an SDRAM without a processor."""

from amaranth.hdl import Array, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import Out

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.ports import dfi_of
from open_rnic.rtl.memory.read_training import ReadTraining

__all__ = ["SdramStart"]

_SETTLES = 64  # cycles after each step, as LiteDRAM's software takes some, too


class SdramStart(wiring.Component):
    """Takes the steps of initialisation that LiteDRAM names, and then trains the reads of a PHY that has delays.

    It has the SDRAM from reset on until it is ready: for half a millisecond at 50 MHz, DDR3 SDRAM for 1.3 milliseconds
    at 75 MHz. If no setting of the PHY works, it fails, and has the SDRAM forever.

    Parameters
    ----------
    chip : the SDRAM
    clock_hz : frequency of the clock, which is half of the SDRAM's

    Members
    -------
    dfi : Out, :class:`.Dfi`
    ready, failed : Out, 1 bit

    """

    def __init__(self, chip: Chip, clock_hz: int):
        self.chip, self.clock_hz = chip, clock_hz
        super().__init__({"dfi": Out(dfi_of(chip)), "ready": Out(1), "failed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        stepped = Signal()  # all steps have been taken
        if self.chip.strobes:
            timing = litedram.timing(self.chip, self.clock_hz)
            m.submodules.training = training = ReadTraining(self.chip, timing)
            expose(m, training, self, ("dfi", "failed"))
            m.d.comb += [training.start.eq(stepped), self.ready.eq(training.done)]
        else:
            m.d.comb += self.ready.eq(stepped)
        self._step(m, stepped)
        return m

    def _step(self, m, stepped):
        """Take the steps."""
        steps = litedram.steps(self.chip, self.clock_hz)
        number = Signal(range(len(steps) + 1))
        left = Signal(range(max(step.wait for step in steps) + _SETTLES + 1))
        first = Signal(init=1)  # cycle of the step
        command = self.dfi.p0

        def field(name):
            return Array(int(vars(step)[name]) for step in steps)[number]

        with m.If(~stepped):
            m.d.comb += [
                command.address.eq(field("address")),
                command.bank.eq(field("bank")),
                command.cs_n.eq(~(first & field("cs"))),
                command.ras_n.eq(~(first & field("ras"))),  # where CS is tied to ground, too
                command.cas_n.eq(~(first & field("cas"))),
                command.we_n.eq(~(first & field("we"))),
            ]
            with m.If(first):
                m.d.sync += [first.eq(0), left.eq(field("wait") + _SETTLES)]
            with m.Elif(left == 0):
                m.d.sync += [first.eq(1), number.eq(number + 1), stepped.eq(number == len(steps) - 1)]
            with m.Else():
                m.d.sync += left.eq(left - 1)
        # Levels stay as the last step leaves them.
        for phase in (self.dfi.p0, self.dfi.p1):
            m.d.comb += [phase.cke.eq(field("cke")), phase.reset_n.eq(field("reset_n")), phase.odt.eq(field("reset_n"))]
