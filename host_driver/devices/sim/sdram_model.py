"""An SDRAM in simulation: LiteDRAM's model behind the board's own controller."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.ports import dfi_of
from open_rnic.rtl.memory.sdram import dfi_pins

__all__ = ["SdramModel"]


class SdramModel(wiring.Component):  # type: ignore[misc]
    """LiteDRAM's model of an SDRAM with its PHY, in the clock domain of the controller.

    Members
    -------
    dfi : In, :class:`.Dfi`
        Of DDR3 SDRAM, words come with any setting of the delays.
    """

    def __init__(self, chip: Chip, clock_hz: int):
        self.chip, self.clock_hz = chip, clock_hz
        super().__init__({"dfi": In(dfi_of(chip))})

    def elaborate(self, platform: Any) -> Module:  # noqa: D102
        m = Module()
        name = f"model_of_{self.chip.name.lower()}"
        platform.add_file(f"{name}.v", litedram.model(self.chip, self.clock_hz, name))
        m.submodules.model = Instance(
            name, i_sys_clk=ClockSignal(), i_sys_rst=ResetSignal(allow_reset_less=True), **dfi_pins(self.dfi)
        )
        if self.chip.strobes:
            m.d.comb += self.dfi.delays.seen.eq(-1)
        return m
