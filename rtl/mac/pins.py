"""What the adapters to PHYs share: their pins, and their clocks."""

from amaranth.hdl import ClockDomain, ClockSignal, Module, Signal
from amaranth.lib import io
from amaranth.lib.cdc import FFSynchronizer

from open_rnic.rtl.lib.platforms import is_board
from open_rnic.rtl.mac.ddr import delayed
from open_rnic.rtl.mac.registers import Speed

__all__ = ["add_clocks", "clock_of", "pin", "speed_in"]


def pin(pins, *names: str):
    """Return the member of ``pins`` that has one of ``names``; boards do not agree on all of them."""
    for name in names:
        if hasattr(pins, name):
            return getattr(pins, name)
    raise ValueError(f"the pins have no {' or '.join(names)}")


def clock_of(m: Module, platform, name: str, port, hertz: float, *, delay: int = 0) -> Signal:
    """Return the clock at a pin, which has at most ``hertz``."""
    m.submodules[name] = buffer = io.Buffer("i", port)
    if is_board(platform):
        platform.add_clock_constraint(port.io, hertz)
    return delayed(m, platform, name, buffer.i, delay)


def add_clocks(m: Module, adapter) -> None:
    """Add the clock domains of which an adapter has the clocks: its outputs ``mac_rx_clk`` and ``mac_tx_clk``."""
    for domain in ("mac_rx", "mac_tx"):
        if f"{domain}_clk" in adapter.signature.members:
            m.domains += ClockDomain(domain, reset_less=True, local=True)
            m.d.comb += ClockSignal(domain).eq(getattr(adapter, f"{domain}_clk"))


def speed_in(m: Module, domain: str, speed) -> Signal:
    """Return ``speed``, which rarely changes, in another clock domain."""
    there = Signal(Speed, name=f"speed_{domain}")
    m.submodules[f"speed_{domain}"] = FFSynchronizer(speed, there, o_domain=domain)
    return there
