"""The data path's clock, generated from the board's oscillator."""

from fractions import Fraction

from amaranth.hdl import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer

__all__ = ["PLLS", "Pll", "ecp5_pll", "xilinx_pll"]


def ecp5_pll(source: int, target: int) -> dict[str, int]:
    """Return the dividers of an EHXPLLL from ``source`` to ``target`` Hz; raises ValueError if there are none.

    Limits of the data sheet (FPGA-DS-02012): at least 3.125 MHz at the phase detector, 400 to 800 MHz at the VCO.
    """
    ratio = Fraction(target, source)
    outside = [n for n in range(1, 129) if 400e6 <= target * n <= 800e6]
    if max(ratio.numerator, ratio.denominator) > 80 or source / ratio.denominator < 3.125e6 or not outside:
        raise ValueError(_impossible(source, target))
    inside = outside[len(outside) // 2]
    return {"CLKI_DIV": ratio.denominator, "CLKFB_DIV": ratio.numerator, "CLKOP_DIV": inside,
            "CLKOP_CPHASE": inside - 1}  # fmt: skip


def xilinx_pll(source: int, target: int) -> dict[str, int]:
    """Return the dividers of a PLLE2_BASE of speed grade 1 (DS181): input 19 to 800 MHz, VCO 800 to 1600 MHz."""
    for times in range(2, 65):
        by = Fraction(source * times, target)
        if by.denominator == 1 and by <= 128 and source >= 19e6 and 800e6 <= source * times <= 1600e6:
            return {"CLKFBOUT_MULT": times, "CLKOUT0_DIVIDE": int(by), "DIVCLK_DIVIDE": 1}
    raise ValueError(_impossible(source, target))


def _impossible(source: int, target: int) -> str:
    return f"no PLL can make {target / 1e6:g} MHz from {source / 1e6:g} MHz"


class Pll(Elaboratable):
    """Drives the domain "sync" with ``target`` Hz, made from the platform's default clock of ``source`` Hz.

    The domain is held in reset until the PLL has locked. On ECP5, this is the global reset, which takes no resources.
    """

    def __init__(self, flow: str, source: int, target: int):
        if flow not in PLLS:
            raise ValueError(f"there is no PLL for {flow}: use the oscillator's {source / 1e6:g} MHz as the clock")
        dividers, self._make = PLLS[flow]
        self.source, self.target = source, target
        self.domain = ClockDomain("sync", reset_less=flow == "ecp5")
        self.dividers = {f"p_{name}": value for name, value in dividers(source, target).items()}

    def elaborate(self, platform):
        m = Module()
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        clock = Signal()
        locked = Signal()
        reset = Signal()
        if platform.default_rst is not None:
            m.submodules.reset = button = io.Buffer("i", platform.request(platform.default_rst, dir="-"))
            m.d.comb += reset.eq(button.i)
        self._make(self, m, oscillator.i, clock, locked, reset)
        m.d.comb += ClockSignal("sync").eq(clock)
        return m

    def _ecp5(self, m, oscillator, clock, locked, reset):
        m.submodules.pll = Instance(
            "EHXPLLL", **self.dividers, p_FEEDBK_PATH="CLKOP", p_CLKOP_ENABLE="ENABLED", p_CLKOP_FPHASE=0,
            a_FREQUENCY_PIN_CLKI=str(self.source / 1e6), a_FREQUENCY_PIN_CLKOP=str(self.target / 1e6),
            i_CLKI=oscillator, i_CLKFB=clock, i_RST=Const(0), i_STDBY=Const(0), i_ENCLKOP=Const(1),
            i_PHASESEL0=Const(0), i_PHASESEL1=Const(0), i_PHASEDIR=Const(1), i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1), i_PLLWAKESYNC=Const(0), o_CLKOP=clock, o_LOCK=locked,
        )  # fmt: skip
        go = Signal(2)
        for index, before in enumerate((locked & ~reset, go[0])):
            m.submodules[f"go{index}"] = Instance("FD1S3AX", p_GSR="DISABLED", i_CK=clock, i_D=before, o_Q=go[index])
        m.submodules.gsr = Instance("SGSR", i_CLK=clock, i_GSR=go[1])

    def _xilinx(self, m, oscillator, clock, locked, reset):
        feedback = Signal()
        made = Signal()
        m.submodules.pll = Instance(
            "PLLE2_BASE", **self.dividers, p_CLKIN1_PERIOD=1e9 / self.source, i_CLKIN1=oscillator,
            i_CLKFBIN=feedback, o_CLKFBOUT=feedback, i_RST=reset, i_PWRDWN=Const(0), o_CLKOUT0=made, o_LOCKED=locked,
        )  # fmt: skip
        m.submodules.buffer = Instance("BUFG", i_I=made, o_O=clock)
        m.submodules.ready = ResetSynchronizer(~locked, domain="sync")


PLLS = {
    "ecp5": (ecp5_pll, Pll._ecp5),
    "vivado": (xilinx_pll, Pll._xilinx),
}
