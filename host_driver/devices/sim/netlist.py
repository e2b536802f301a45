"""A whole RNIC as the netlist after synthesis for an ECP5, in simulation: the cells that place and route gets."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amaranth.hdl import Instance, Module, Signal

from open_rnic.boards.flows import FLOWS
from open_rnic.host_driver.devices.sim.ecp5_cells import CELLS
from open_rnic.host_driver.devices.sim.elaborate import run_yosys_in, to_rtlil
from open_rnic.host_driver.devices.sim.layout import STATION, WHOLE
from open_rnic.host_driver.devices.sim.octets import OctetTop
from open_rnic.host_driver.net.host import local_mac
from open_rnic.rtl.formats.memory_bus import MemoryBus
from open_rnic.rtl.rnic.plain_rnic import PlainRnic
from open_rnic.rtl.tcp.config import Station

__all__ = ["SimulatedNetlist", "synthesized"]

_FLOW = FLOWS["ecp5"]
_NAME = "rnic"
_SLOWER = 16  # milliseconds of the host in one of the netlist, of which fewer cycles are simulated in a second
_SYNTHESIS = f"""\
read_rtlil design.il
hierarchy -top {_NAME}
{_FLOW.script}
synth_ecp5 {_FLOW.overrides["synth_opts"]} -top {_NAME}
select {_NAME}
write_rtlil -selected cells.il
design -reset
read_rtlil cells.il
read_verilog -overwrite +/ecp5/cells_sim.v
read_verilog -overwrite -icells cells.v
hierarchy -top {_NAME} -purge_lib
proc -norom
flatten -wb
opt_clean
opt_expr
memory_dff
memory_collect
opt_clean
write_rtlil netlist.il
"""


def synthesized(component: Any) -> str:
    """Return a component as a netlist of an ECP5 in RTLIL, whose cells are expressions; its name is ``rnic``.

    Synthesis is that of :mod:`.flows`. Of block RAM, what a port reads of a word that the other one writes is inverted:
    the data sheet says nothing of it. Raises ValueError if Yosys fails.
    """
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "design.il").write_text(to_rtlil(component, name=_NAME))
        (folder / "cells.v").write_text(CELLS)
        done = run_yosys_in(folder, _SYNTHESIS)
        if done.returncode:
            raise ValueError(f"Yosys makes no netlist: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
        return (folder / "netlist.il").read_text()


class SimulatedNetlist(OctetTop):
    """The netlist of a board's RNIC with a cable, whose ends are rings; without the pins and the PLL.

    All of it has the clock of GMII. Its milliseconds last longer than the host's, so that its timers leave room for
    frames of such a simulation.
    """

    def __init__(self, connections: int, ring: int, memory: int):
        self._connections = connections
        rnic = PlainRnic(
            connections=connections, ring=ring, memory=memory, memory_bus=MemoryBus.NONE,
            station=Station.of(local_mac(STATION.ip), STATION),
        )  # fmt: skip
        super().__init__(WHOLE, ("netlist.il", synthesized(rnic)))

    def elaborate(self, platform: Any) -> Module:  # noqa: D102
        m = Module()
        active, due, tick, before = Signal(), Signal(), Signal(), Signal(range(_SLOWER))
        m.d.comb += tick.eq(due & (before == 0))
        m.d.sync += before.eq(before + due)
        m.submodules.rnic = Instance(_NAME, **self.rnic(active, tick, self.streams(m)))
        self.finish(m, platform, self._connections, due, active)
        return m


def make(connections: str, ring: str, memory: str) -> SimulatedNetlist:
    """Return the netlist of an RNIC: its connections, the octets of their rings each way and of their memory."""
    return SimulatedNetlist(int(connections), int(ring), int(memory))
