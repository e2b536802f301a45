"""Builds a target of litex-boards with an RNIC behind its Ethernet port."""

import inspect
import json
import shutil
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import litex_boards.targets
from litex.soc.cores.cpu import CPUS
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import soc_core_argdict, soc_core_args

from open_rnic.boards.litex import add_rnic
from open_rnic.boards.litex.tools import REPORT, tools

__all__ = ["Report", "build", "make"]

#: Platforms that share a target with others, and the parameters by which the target knows which one it is.
_SHARED = {
    "colorlight_5a_75b": ("colorlight_5a_75x", {"board": "5a-75b"}),
    "colorlight_5a_75e": ("colorlight_5a_75x", {"board": "5a-75e"}),
    "colorlight_i5a_907": ("colorlight_5a_75x", {"board": "i5a-907"}),
}
_DEFAULTS = {"revision": "7.0", "sys_clk_freq": 50e6}  # of targets that have such a parameter


@dataclass(frozen=True)
class Report:
    """What nextpnr says of a build: used and available cells by kind, and Hz reached and asked for by clock."""

    cells: dict[str, tuple[int, int]]
    clocks: dict[str, tuple[float, float]]

    @property
    def slow(self) -> list[str]:
        """The clocks that are slower than requested."""
        return [name for name, (reached, asked) in self.clocks.items() if reached < asked]


def make(board: str, *, cpu_type: str | None, folder: Path, given: Mapping[str, object], rnic: Mapping[str, object],
         soc_options: Sequence[str] = ()):  # fmt: skip
    """Return the SoC of a target, with Ethernet, whose LiteEth MAC gives place to an RNIC.

    ``given`` are parameters of the target's ``BaseSoC``, ``rnic`` those of :func:`.add_rnic`, ``soc_options`` are
    options of LiteX's ``soc_core_args``. Raises ValueError if the target cannot have an RNIC.
    """
    target, shared = _target(board)
    base = import_module(f"litex_boards.targets.{target}").BaseSoC
    if cpu_type not in {None, *CPUS}:
        raise ValueError(f"LiteX has no CPU {cpu_type!r}")
    known = inspect.signature(base.__init__).parameters
    if "with_ethernet" not in known:
        raise ValueError(f"the target {board} has no Ethernet")
    for name in given:
        if name not in known:
            raise ValueError(f"the target {board} has no parameter {name!r}")

    class Soc(base):
        rnic_phy = None

        def add_ethernet(self, name="ethmac", phy=None, **_):
            self.rnic_phy = phy

        def add_sdram(self, *arguments, **options):  # without a cache and a bridge that no master would use
            super().add_sdram(*arguments, **{**options, "with_soc_interconnect": bool(self.bus.masters)})

    parser = ArgumentParser()
    soc_core_args(parser)
    always = [f"--cpu-type={cpu_type}", "--no-ident-version"]  # no time in the SoC and its BIOS
    alone = ["--no-uart", "--no-timer", "--no-ctrl", "--integrated-sram-size=0"] if cpu_type is None else []
    options = soc_core_argdict(parser.parse_args([*always, *alone, *soc_options]))
    soc = Soc(**{**options, **{name: each for name, each in _DEFAULTS.items() if name in known}, **shared,
                 "with_ethernet": True, **given})  # fmt: skip
    if soc.rnic_phy is None:
        raise ValueError(f"the target {board} has added no PHY of LiteEth")
    added = add_rnic(soc, soc.rnic_phy, folder=folder, samples=False, **rnic)  # no target has a source of samples
    added.add_milliseconds(soc.sys_clk_freq)
    return soc


def _target(board: str) -> tuple[str, Mapping[str, object]]:
    """Return the target for a board, by its name or without its maker's, and the parameters that tell it which one."""
    if board in _SHARED:
        return _SHARED[board]
    names = [each.name for each in iter_modules(litex_boards.targets.__path__)]
    if board in names:
        return board, {}
    match [each for each in names if each.endswith(f"_{board}")]:
        case [name]:
            return name, {}
        case []:
            raise ValueError(f"litex-boards has no target {board!r}")
        case found:
            raise ValueError(f"litex-boards has several targets {board!r}: {', '.join(found)}")


def build(soc, folder: Path, *, run: bool) -> Report | None:
    """Write the SoC's files, compile the software of its CPU, and with ``run`` build a bitstream.

    The tools are those of YoWASP beside the Python interpreter, if they are there; the compiler for a 32-bit RISC-V is
    Zig's. Returns what nextpnr says, if it has run. Raises OSError if a tool fails.
    """
    builder = Builder(soc, output_dir=str(folder), compile_software=soc.cpu_type is not None)
    gateware = folder / "gateware"
    gateware.mkdir(parents=True, exist_ok=True)
    _copy_sources(soc.platform, gateware)
    report = gateware / REPORT
    report.unlink(missing_ok=True)
    with tools(folder.resolve() / "tools", for_risc_v="-march=rv32" in (getattr(soc.cpu, "gcc_flags", None) or "")):
        builder.build(run=run)
    if not report.exists():
        return None
    said = json.loads(report.read_text())
    return Report(
        {kind: (each["used"], each["available"]) for kind, each in sorted(said["utilization"].items()) if each["used"]},
        {name: (each["achieved"] * 1e6, each["constraint"] * 1e6) for name, each in said["fmax"].items()},
    )


def _copy_sources(platform, folder: Path) -> None:
    """Let sources that are added from now on, as that of a CPU is, be copied: YoWASP's Yosys reads no packages."""
    add_source, folder = platform.add_source, folder.resolve()

    def add(filename, *options, **named):
        source = Path(filename).resolve()
        if source.parent != folder:
            source = shutil.copy(source, folder)
        add_source(str(source), *options, **named)

    platform.add_source = add
