"""The pins of a DDR3 SDRAM at an ECP5."""

from amaranth.hdl import ClockSignal, Const, Instance, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.ports import dfi_of
from open_rnic.rtl.memory.sdram import dfi_pins

__all__ = ["Ddr3Phy"]

_OUTPUTS = {  # LiteDRAM's names, by those of the resource
    "a": "a", "ba": "ba", "dm": "dm", "clk_en": "cke", "odt": "odt", "ras": "ras_n", "cas": "cas_n", "we": "we_n",
    "cs": "cs_n", "rst": "reset_n",
}  # fmt: skip


class Ddr3Phy(wiring.Component):
    """LiteDRAM's PHY of an ECP5 for DDR3 SDRAM, which has two clock cycles in each cycle of the controller.

    The clock domain ``sdram`` is that of the pins, whose clock can be stopped; ``sync`` is made of it by a divider;
    ``init`` is slower than both, and runs all the time. When the delay line that the pins share has found the length of
    a clock cycle, the PHY stops the clock of ``sdram`` and resets the divider, for a microsecond, so that the registers
    of all pins begin together. Until then, they are in reset. If that never happens, no word can be read.

    Parameters
    ----------
    chip : the SDRAM
    clock_hz : frequency of ``sync``
    pins : of the platform's resource "ddr3"; a chip select and a reset may be missing

    Members
    -------
    dfi : In, :class:`.Dfi`
    stop, restart : Out, 1 bit
        Stop the clock of ``sdram``; reset the divider.

    """

    def __init__(self, chip: Chip, clock_hz: int, pins):
        self.chip, self.clock_hz, self.pins = chip, clock_hz, pins
        super().__init__({"dfi": In(dfi_of(chip)), "stop": Out(1), "restart": Out(1)})

    def elaborate(self, platform):
        m = Module()
        locked = Signal()  # the PLL has, as "init" has no reset but the global one
        stopped = Signal()
        restarted = Signal()
        runs = Signal()
        with m.If(self.stop):
            m.d.init += stopped.eq(1)
        m.d.init += [locked.eq(1), restarted.eq(stopped & ~self.stop)]
        m.submodules.runs = FFSynchronizer(restarted, runs)
        name = f"ecp5_phy_{self.chip.name.lower()}"
        platform.add_file(f"{name}.v", litedram.phy(self.chip, self.clock_hz, name))
        m.submodules.phy = Instance(
            name, i_sys_clk=ClockSignal(), i_sys_rst=~runs, i_sys2x_clk=ClockSignal("sdram"), i_sys2x_rst=Const(0),
            i_init_clk=ClockSignal("init"), i_init_rst=~locked, o_clock_stop=self.stop, o_clock_reset=self.restart,
            **dfi_pins(self.dfi, delays=True), **self._pins(),
        )  # fmt: skip
        return m

    def _pins(self):
        """Return the pins of the instance. Those of commands have registers of their own, so no inverter."""
        pins = self.pins
        found = {f"o_pin_{_OUTPUTS[name]}": port.io for name, port in vars(pins).items() if name in _OUTPUTS}
        for name, ports in (("dq", pins.dq.io), ("dqs_p", pins.dqs.p)):
            found |= {f"io_pin_{name}_{n}": port for n, port in enumerate(ports)}
        return found | {"o_pin_clk_p": pins.clk.p}
