"""Builds a target of litex-boards with an RNIC behind its Ethernet port."""

import inspect
import json
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from pkgutil import iter_modules

import litex_boards.targets
from litex.soc.cores.cpu import CPUS
from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import SoCCore, soc_core_argdict, soc_core_args

from open_rnic.boards.litex import add_rnic
from open_rnic.boards.litex.tools import REPORT, tools
from open_rnic.boards.litex.work_queue import add_work_queue
from open_rnic.rtl.rdma.fabric import Fabric

__all__ = ["Report", "build", "make"]

#: Boards whose target is that of others, or wants to know their revision, with the parameters that tell it.
_SHARED = {
    "colorlight_5a_75b": ("colorlight_5a_75x", {"board": "5a-75b", "revision": "7.0"}),
    "colorlight_5a_75e": ("colorlight_5a_75x", {"board": "5a-75e", "revision": "7.1"}),
    "colorlight_i5a_907": ("colorlight_5a_75x", {"board": "i5a-907", "revision": "7.0"}),
    "colorlight_i9": ("colorlight_i5", {"board": "i9", "revision": "7.2"}),
    "pano_logic_g2": ("pano_logic_g2", {"revision": "c"}),
}
_MOST_HZ = 50e6  # of sys by default, as the RNIC is slow in a small FPGA


@dataclass(frozen=True)
class Report:
    """What nextpnr says of a build: used and available cells by kind, and Hz reached and asked for by clock."""

    cells: dict[str, tuple[int, int]]
    clocks: dict[str, tuple[float, float]]

    @property
    def slow(self) -> list[str]:
        """The clocks that are slower than requested."""
        return [name for name, (reached, asked) in self.clocks.items() if reached < asked]


def make(board: str, *, cpu_type: str | None, folder: Path, given: Mapping[str, str], rnic: Mapping[str, object]):
    """Return the SoC of a target, with Ethernet, whose LiteEth MAC gives place to an RNIC.

    ``given`` are the texts of parameters of the target's ``BaseSoC``, or of LiteX's SoC, ``rnic`` the parameters of
    :func:`.add_rnic`. Raises ValueError if the target cannot have an RNIC or fails, and ImportError, which says how to
    install it, if a package is missing.
    """
    target, shared = _target(board)
    if cpu_type not in {None, *CPUS}:
        raise ValueError(f"LiteX has no CPU {cpu_type!r}")
    with _packages():
        base = import_module(f"litex_boards.targets.{target}").BaseSoC
    own = _parameters(base)
    if "with_ethernet" not in own:
        raise ValueError(f"the target {board} has no Ethernet")

    class Soc(base):
        rnic_phy, has_etherbone = None, False

        def add_ethernet(self, name="ethmac", phy=None, **_):
            self.rnic_phy = phy

        def add_etherbone(self, *_, **__):
            self.has_etherbone = True

        def add_sdram(self, *arguments, **options):  # without a cache and a bridge that no master would use
            super().add_sdram(*arguments, **{**options, "with_soc_interconnect": bool(self.bus.masters)})

    options = _options(cpu_type)
    settings = _settings(board, {**_parameters(SoCCore), **options, **own, **shared}, given)
    if isinstance(frequency := own.get("sys_clk_freq"), int | float) and frequency > _MOST_HZ:
        shared = {**shared, "sys_clk_freq": _MOST_HZ}
    soc = _soc(Soc, board, {**options, "with_ethernet": True}, {**shared, **settings})
    if soc.has_etherbone:
        raise ValueError(f"{board}: Etherbone and the RNIC cannot share a PHY: leave out with_etherbone")
    if soc.rnic_phy is None:
        raise ValueError(f"the target {board} has added no PHY of LiteEth")
    has_cpu = cpu_type is not None
    fabric = Fabric.WORK if has_cpu else Fabric.NONE  # no target has a source of samples
    added = add_rnic(soc, soc.rnic_phy, folder=folder, fabric=fabric, registers=has_cpu, **rnic)
    added.add_milliseconds(soc.sys_clk_freq)
    if has_cpu:
        add_work_queue(soc, added)
    return soc


def _options(cpu_type: str | None) -> dict[str, object]:
    """Return LiteX's parameters of a SoC with this CPU."""
    parser = ArgumentParser()
    soc_core_args(parser)
    always = [f"--cpu-type={cpu_type}", "--no-ident-version"]  # no time in the SoC and its BIOS
    alone = ["--no-uart", "--no-timer", "--no-ctrl", "--integrated-sram-size=0"] if cpu_type is None else []
    return soc_core_argdict(parser.parse_args([*always, *alone]))


def _parameters(kind: type) -> dict[str, object]:
    """Return the parameters by which a class is made, with their defaults."""
    found = inspect.signature(kind).parameters.values()
    return {each.name: each.default for each in found if each.kind is not each.VAR_KEYWORD}


def _settings(board: str, known: Mapping[str, object], given: Mapping[str, str]) -> dict[str, object]:
    """Return the values of the texts in ``given``: of the types of the defaults in ``known``."""
    for name in given:
        if name not in known or name in {"cpu_type", "platform"}:
            raise ValueError(f"the target {board} has no parameter {name!r}")
    return {name: _value(name, text, known[name]) for name, text in given.items()}


def _value(name: str, text: str, default: object) -> object:
    words = {"true": True, "false": False}
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in words:
            raise ValueError(f"{name} is true or false, not {text!r}")
        return words[text.lower()]
    for kind in (partial(int, base=0), float):
        with suppress(ValueError):
            return kind(text)
    if isinstance(default, int | float):
        raise ValueError(f"{name} is a number, not {text!r}")
    return words.get(text.lower(), text)


def _soc(kind: type, board: str, options: Mapping[str, object], settings: Mapping[str, object]):
    """Return the SoC. Targets check little of what they are given, so an error of any type may come of it."""
    with _packages(), redirect_stderr(sys.stderr):  # which LiteX's SoCError takes away
        try:
            return kind(**{**options, **settings})
        except ImportError:
            raise
        except Exception as error:
            said = ", ".join(f"{name}={each}" for name, each in {"cpu_type": options["cpu_type"], **settings}.items())
            why = ": ".join(filter(None, (type(error).__name__, str(error))))
            raise ValueError(f"{board}: its target in litex-boards fails with {said}: {why}") from None


@contextmanager
def _packages():
    """Say how to install a package that a target needs. Of the package of a CPU's Verilog, LiteX says so itself."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = error.name.partition(".")[0]
        way = f": run pip install {package}=={version('litex')}" if package.startswith("lite") else ""
        raise ImportError(f"its target in litex-boards needs the Python package {package}{way}") from None


def _target(board: str) -> tuple[str, dict[str, object]]:
    """Return the target for a board, by its name or without its maker's, and the parameters that tell it which one."""
    names = {*_SHARED, *(each.name for each in iter_modules(litex_boards.targets.__path__))}
    match sorted([board] if board in names else [each for each in names if each.endswith(f"_{board}")]):
        case [name]:
            return _SHARED.get(name, (name, {}))
        case []:
            near = get_close_matches(board, names, n=1) or sorted(each for each in names if board in each)
            hint = f"; there is {', '.join(near)}" if near else ""
            raise ValueError(f"litex-boards has no target {board!r}{hint}")
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
