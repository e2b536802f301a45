"""What the adapters to PHYs share: their pins, and their clock domains."""

from amaranth.hdl import ClockDomain, ClockSignal, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer

from open_rnic.rtl.mac.ddr import delayed
from open_rnic.rtl.mac.layouts import Speed

__all__ = ["clocked", "pin", "speed_in"]


def pin(pins, *names: str):
    """Return the member of ``pins`` that has one of ``names``; boards do not agree on all of them."""
    for name in names:
        if hasattr(pins, name):
            return getattr(pins, name)
    raise ValueError(f"the pins have no {' or '.join(names)}")


def clocked(m: Module, platform, domain: str, port, hertz: float, *, delay: int = 0) -> None:
    """Add a clock domain whose clock is a pin, of at most ``hertz``."""
    m.domains += ClockDomain(domain, reset_less=True)
    m.submodules[f"{domain}_clock"] = buffer = io.Buffer("i", port)
    clock = Signal(name=f"{domain}_pin")
    m.d.comb += [clock.eq(delayed(m, platform, domain, buffer.i, delay)), ClockSignal(domain).eq(clock)]
    if platform is not None:
        platform.add_clock_constraint(clock, hertz)


def speed_in(m: Module, domain: str, speed) -> Signal:
    """Return ``speed``, which rarely changes, in another clock domain."""
    there = Signal(Speed, name=f"speed_{domain}")
    m.submodules[f"speed_{domain}"] = FFSynchronizer(speed.as_value(), there.as_value(), o_domain=domain)
    return there
