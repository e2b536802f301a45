"""The surroundings of a design whose Ethernet port is two streams of octets: a cable, and milliseconds."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockDomain, ClockSignal, Module, ResetSignal, Signal

from open_rnic.host_driver.devices.sim.layout import Layout
from open_rnic.host_driver.devices.sim.network_path import ticks
from open_rnic.host_driver.devices.sim.rings import Simulated
from open_rnic.host_driver.devices.sim.whole import GmiiCable

__all__ = ["OctetTop"]

_QUIET = 1 << 11  # cycles without anything to see, after which nothing more is expected to happen


class OctetTop(Simulated):
    """A cable whose octets are the streams of a design in ``file``, with its name; all has the clock of GMII."""

    def __init__(self, kind: Layout, file: tuple[str, str]):
        self._file = file
        super().__init__(kind)

    def streams(self, m: Module) -> dict[str, Signal]:
        """Return the signals of both streams, by names such as ``rx_data`` and ``tx_valid``."""
        m.submodules.cable = cable = self.cable = GmiiCable()
        m.d.comb += cable.up.eq(self.control.up)
        self.ring_in(m, "rx_frames", cable.i)
        self.ring_out(m, "tx_frames", cable.o)
        names = [f"{side}_{name}" for side in ("rx", "tx") for name in ("data", "error", "last", "valid", "ready")]
        s = {name: Signal(8 if name.endswith("data") else 1, name=name) for name in names}
        held, holds, errs = Signal(8), Signal(), Signal()
        with m.If(cable.rx.strobe):
            m.d.sync += [held.eq(cable.rx.data), errs.eq(cable.rx.error), holds.eq(cable.rx.valid)]
        m.d.comb += [
            s["rx_data"].eq(held), s["rx_error"].eq(errs), s["rx_last"].eq(~cable.rx.valid),
            s["rx_valid"].eq(holds & cable.rx.strobe),
            cable.tx.valid.eq(s["tx_valid"]), cable.tx.data.eq(s["tx_data"]), s["tx_ready"].eq(cable.tx.strobe),
        ]  # fmt: skip
        return s

    def rnic(self, active: Signal, tick: Signal, s: dict[str, Signal]) -> dict[str, Any]:
        """Return the ports of a :class:`.PlainRnic` but those of its memory, as arguments of an ``Instance``."""
        clock = ClockSignal("sync")
        return {
            "i_clk": clock, "i_rst": ResetSignal("sync"), "i_tick": tick, "i_rx_clk": clock, "i_tx_clk": clock,
            **{f"i_s_axis_rx_t{name}": s[f"rx_{name}"] for name in ("data", "last", "valid")},
            "i_s_axis_rx_tuser": s["rx_error"], "o_s_axis_rx_tready": s["rx_ready"],
            **{f"o_m_axis_tx_t{name}": s[f"tx_{name}"] for name in ("data", "last", "valid")},
            "i_m_axis_tx_tready": s["tx_ready"],
            "i_mdio_i": 1, "i_uart_rx": 1, "i_s_axis_samples_tdata": 0, "i_s_axis_samples_tvalid": 0,
            "o_active": active,
        }  # fmt: skip

    def finish(self, m: Module, platform: Any, connections: int, tick: Signal, active: Signal) -> None:
        """Add the design, its clocks and milliseconds."""
        platform.add_file(*self._file)
        ticks(m, self, connections, tick)
        self.active(m, self.cable.moves | active, _QUIET)
        m.domains += ClockDomain("gmii")
        m.d.comb += [ClockSignal("gmii").eq(ClockSignal("sync")), ResetSignal("gmii").eq(ResetSignal("sync"))]
