"""Pins that change at both edges of a clock."""

from amaranth.hdl import ClockDomain, ClockSignal, Const, Instance, Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.platforms import is_board

__all__ = ["MOST_DELAY", "TAP", "DdrInput", "DdrOutput", "delayed", "taps"]

TAP = 25  # ps: a step of DELAYG (FPGA-TN-02035)
MOST_DELAY = 127 * TAP


def taps(delay: int) -> int:
    """Return the number of taps of DELAYG for a delay in ps; raises ValueError if there is none."""
    if not 0 <= delay <= MOST_DELAY or delay % TAP:
        raise ValueError(f"a delay is a multiple of {TAP} ps up to {MOST_DELAY} ps, not {delay!r}")
    return delay // TAP


def _is_ecp5(platform) -> bool:
    return getattr(platform, "family", None) == "ecp5"


def delayed(m: Module, platform, name: str, signal, delay: int, *, beside: bool = False):
    """Return ``signal``, of a pin, after ``delay`` ps; raises ValueError if the platform cannot delay it.

    DELAYG takes some time even with 0 taps. ``beside`` adds one with these to a signal whose neighbours have theirs.
    """
    if not (taps(delay) or beside) or not is_board(platform):  # a simulation of the logic has no delays
        return signal
    if not _is_ecp5(platform):
        raise ValueError(f"only ECP5 delays pins, by {delay} ps or any other time")
    later = Signal(name=f"{name}_delayed")
    m.submodules[f"{name}_delay"] = Instance(
        "DELAYG", p_DEL_MODE="USER_DEFINED", p_DEL_VALUE=taps(delay), i_A=signal, o_Z=later
    )
    return later


class DdrInput(wiring.Component):
    """Input pins that are sampled at both edges.

    Latency: 1 to 3 cycles, depending on the FPGA.

    Parameters
    ----------
    port : the pins
    domain : clock domain of ``rise`` and ``fall``
    delay : time in ps by which the pins are delayed, only with ECP5

    Members
    -------
    rise, fall : Out, a bit for each pin
        The pins at a rising edge, and at the falling edge behind it.

    """

    def __init__(self, port, domain: str, *, delay: int = 0):
        taps(delay)
        self.port, self.domain, self.delay = port, domain, delay
        super().__init__({"rise": Out(len(port)), "fall": Out(len(port))})

    def elaborate(self, platform):
        m = Module()
        if _is_ecp5(platform):
            m.submodules.pins = pins = io.Buffer("i", self.port)
            for index in range(len(self.port)):
                m.submodules[f"ddr_{index}"] = Instance(
                    "IDDRX1F", i_SCLK=ClockSignal(self.domain), i_RST=Const(0),
                    i_D=delayed(m, platform, f"pin_{index}", pins.i[index], self.delay),
                    o_Q0=self.rise[index], o_Q1=self.fall[index],
                )  # fmt: skip
        elif is_board(platform):
            delayed(m, platform, "pins", Const(0), self.delay)
            m.submodules.pins = pins = io.DDRBuffer("i", self.port, i_domain=self.domain)
            m.d.comb += [self.rise.eq(pins.i[0]), self.fall.eq(pins.i[1])]
        else:
            m.submodules.pins = pins = io.Buffer("i", self.port)
            falling = _falling(m, self.domain)
            at_rise = Signal(len(self.port))
            at_fall = Signal(len(self.port))
            m.d[self.domain] += [at_rise.eq(pins.i), self.rise.eq(at_rise), self.fall.eq(at_fall)]
            m.d[falling] += at_fall.eq(pins.i)
        return m


class DdrOutput(wiring.Component):
    """Output pins that change at both edges.

    Latency: 1 to 3 cycles, depending on the FPGA.

    Parameters
    ----------
    port : the pins
    domain : clock domain of ``high`` and ``low``
    delay : time in ps by which the pins are delayed, only with ECP5
    beside : other pins are delayed, by this time more; only with ECP5

    Members
    -------
    high, low : In, a bit for each pin
        The pins from a rising edge on, and from the falling edge behind it on.

    """

    def __init__(self, port, domain: str, *, delay: int = 0, beside: bool = False):
        taps(delay)
        self.port, self.domain, self.delay, self.beside = port, domain, delay, beside
        super().__init__({"high": In(len(port)), "low": In(len(port))})

    def elaborate(self, platform):
        m = Module()
        if _is_ecp5(platform):
            m.submodules.pins = pins = io.Buffer("o", self.port)
            for index in range(len(self.port)):
                driven = Signal(name=f"driven_{index}")
                m.submodules[f"ddr_{index}"] = Instance(
                    "ODDRX1F", i_SCLK=ClockSignal(self.domain), i_RST=Const(0),
                    i_D0=self.high[index], i_D1=self.low[index], o_Q=driven,
                )  # fmt: skip
                later = delayed(m, platform, f"pin_{index}", driven, self.delay, beside=self.beside)
                m.d.comb += pins.o[index].eq(later)
        elif is_board(platform):
            delayed(m, platform, "pins", Const(0), self.delay, beside=self.beside)
            m.submodules.pins = pins = io.DDRBuffer("o", self.port, o_domain=self.domain)
            m.d.comb += [pins.o[0].eq(self.high), pins.o[1].eq(self.low)]
        else:
            m.submodules.pins = pins = io.Buffer("o", self.port)
            falling = _falling(m, self.domain)
            high = Signal(len(self.port))
            next_low = Signal(len(self.port))
            low = Signal(len(self.port))
            m.d[self.domain] += [high.eq(self.high), next_low.eq(self.low)]
            m.d[falling] += low.eq(next_low)
            m.d.comb += pins.o.eq(Mux(ClockSignal(self.domain), high, low))
        return m


def _falling(m: Module, domain: str) -> str:
    """Return the name of a domain with the falling edges of another one."""
    name = f"{domain}_falling"
    m.domains += ClockDomain(name, clk_edge="neg", reset_less=True, local=True)
    m.d.comb += ClockSignal(name).eq(ClockSignal(domain))
    return name
