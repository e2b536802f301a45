"""The clocks, generated from the board's oscillator."""

from collections.abc import Mapping
from fractions import Fraction

from amaranth.hdl import ClockDomain, ClockSignal, Const, Elaboratable, Instance, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import ResetSynchronizer

__all__ = ["PLLS", "Pll", "ecp5_pll", "xilinx_pll"]

_ECP5_OUTPUTS = "CLKOP", "CLKOS", "CLKOS2", "CLKOS3"


def ecp5_pll(source: int, *targets: int) -> dict[str, int]:
    """Return the dividers of an EHXPLLL from ``source`` to ``targets`` Hz; raises ValueError if there are none.

    Limits of the data sheet (FPGA-DS-02012): at least 3.125 MHz at the phase detector, 400 to 800 MHz at the VCO.
    """
    ratio = Fraction(targets[0], source)
    dividers = [
        [targets[0] * n // each for each in targets] for n in range(1, 129)
        if 400e6 <= targets[0] * n <= 800e6 and all(targets[0] * n % each == 0 for each in targets)
    ]  # fmt: skip
    dividers = [each for each in dividers if max(each) <= 128]
    if max(ratio.numerator, ratio.denominator) > 80 or source / ratio.denominator < 3.125e6 or not dividers:
        raise ValueError(_impossible(source, targets))
    parameters = {"CLKI_DIV": ratio.denominator, "CLKFB_DIV": ratio.numerator}
    for output, divider in zip(_ECP5_OUTPUTS, dividers[len(dividers) // 2], strict=False):
        parameters |= {f"{output}_DIV": divider, f"{output}_CPHASE": divider - 1}
    return parameters


def xilinx_pll(source: int, *targets: int) -> dict[str, int]:
    """Return the dividers of a PLLE2_BASE of speed grade 1 (DS181): input 19 to 800 MHz, VCO 800 to 1600 MHz."""
    for times in range(2, 65):
        by = [Fraction(source * times, each) for each in targets]
        fit = all(each.denominator == 1 and each <= 128 for each in by)
        if fit and source >= 19e6 and 800e6 <= source * times <= 1600e6:
            outputs = {f"CLKOUT{n}_DIVIDE": int(each) for n, each in enumerate(by)}
            return {"CLKFBOUT_MULT": times, **outputs, "DIVCLK_DIVIDE": 1}
    raise ValueError(_impossible(source, targets))


def _impossible(source: int, targets: tuple[int, ...]) -> str:
    made = " and ".join(f"{each / 1e6:g}" for each in targets)
    return f"no PLL can make {made} MHz from {source / 1e6:g} MHz"


class Pll(Elaboratable):
    """Drives the domain "sync", and others, from the platform's default clock of ``source`` Hz.

    ``targets`` has the frequency in Hz of each domain; "sync" is the first one. It is held in reset until the PLL has
    locked. On ECP5, this is the global reset, which takes no resources. The other domains have no reset.

    With ``edge``, one of the domains, which has twice the frequency of "sync", has the clock of the pins of DDR3 SDRAM,
    on ECP5. While ``stop`` is set, it stands still; "sync" is made of it by a divider, which ``restart`` resets.
    """

    def __init__(self, flow: str, source: int, targets: Mapping[str, int], edge: str | None = None):
        if flow not in PLLS:
            raise ValueError(f"there is no PLL for {flow}: use the oscillator's {source / 1e6:g} MHz as the clock")
        dividers, self._make = PLLS[flow]
        self.source, self.targets, self.edge = source, dict(targets), edge
        self.stop, self.restart = Signal(), Signal()
        # The outputs of the PLL, whose feedback is the first one.
        self.outputs = {} if edge is None else {edge: self.targets[edge]}
        self.outputs |= {name: each for name, each in self.targets.items() if edge is None or name != "sync"}
        self.domains = [ClockDomain(name, reset_less=flow == "ecp5" or name != "sync") for name in targets]
        self.dividers = {f"p_{name}": value for name, value in dividers(source, *self.outputs.values()).items()}

    def elaborate(self, platform):
        m = Module()
        m.submodules.oscillator = oscillator = io.Buffer("i", platform.request(platform.default_clk, dir="-"))
        clocks = {name: Signal(name=f"clock_{name}") for name in self.targets}
        locked = Signal()
        reset = Signal()
        if platform.default_rst is not None:
            m.submodules.reset = button = io.Buffer("i", platform.request(platform.default_rst, dir="-"))
            m.d.comb += reset.eq(button.i)
        self._make(self, m, oscillator.i, clocks, locked, reset)
        m.d.comb += [ClockSignal(name).eq(clock) for name, clock in clocks.items()]
        return m

    def _ecp5(self, m, oscillator, clocks, locked, reset):
        made = dict(clocks)
        if self.edge is not None:
            made[self.edge] = Signal(name=f"made_{self.edge}")
            m.submodules.gate = Instance(
                "ECLKSYNCB", i_ECLKI=made[self.edge], i_STOP=self.stop, o_ECLKO=clocks[self.edge]
            )
            m.submodules.divider = Instance(
                "CLKDIVF", p_DIV="2.0", i_CLKI=clocks[self.edge], i_RST=self.restart, i_ALIGNWD=Const(0),
                o_CDIVX=clocks["sync"],
            )  # fmt: skip
        pins = {}
        for output, (name, target) in zip(_ECP5_OUTPUTS, self.outputs.items(), strict=False):
            pins |= {
                f"p_{output}_ENABLE": "ENABLED", f"p_{output}_FPHASE": 0,
                f"a_FREQUENCY_PIN_{output}": str(target / 1e6), f"i_EN{output}": Const(1), f"o_{output}": made[name],
            }  # fmt: skip
        m.submodules.pll = Instance(
            "EHXPLLL", **self.dividers, **pins, p_FEEDBK_PATH="CLKOP",
            a_FREQUENCY_PIN_CLKI=str(self.source / 1e6),
            i_CLKI=oscillator, i_CLKFB=made[next(iter(self.outputs))], i_RST=Const(0), i_STDBY=Const(0),
            i_PHASESEL0=Const(0), i_PHASESEL1=Const(0), i_PHASEDIR=Const(1), i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1), i_PLLWAKESYNC=Const(0), o_LOCK=locked,
        )  # fmt: skip
        go = Signal(2)
        for index, before in enumerate((locked & ~reset, go[0])):
            m.submodules[f"go{index}"] = Instance(
                "FD1S3AX", p_GSR="DISABLED", i_CK=clocks["sync"], i_D=before, o_Q=go[index]
            )
        m.submodules.gsr = Instance("SGSR", i_CLK=clocks["sync"], i_GSR=go[1])

    def _xilinx(self, m, oscillator, clocks, locked, reset):
        feedback = Signal()
        made = [Signal(name=f"made_{name}") for name in self.targets]
        m.submodules.pll = Instance(
            "PLLE2_BASE", **self.dividers, p_CLKIN1_PERIOD=1e9 / self.source, i_CLKIN1=oscillator,
            i_CLKFBIN=feedback, o_CLKFBOUT=feedback, i_RST=reset, i_PWRDWN=Const(0), o_LOCKED=locked,
            **{f"o_CLKOUT{n}": each for n, each in enumerate(made)},
        )  # fmt: skip
        for each, (name, clock) in zip(made, clocks.items(), strict=True):
            m.submodules[f"buffer_{name}"] = Instance("BUFG", i_I=each, o_O=clock)
        m.submodules.ready = ResetSynchronizer(~locked, domain="sync")


PLLS = {
    "ecp5": (ecp5_pll, Pll._ecp5),
    "vivado": (xilinx_pll, Pll._xilinx),
}
