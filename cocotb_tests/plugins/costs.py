"""Where the time of a test run goes: ``python -m open_rnic.cocotb_tests.plugins.costs [--markdown PAGE]``.

Every run of the tests writes a ledger (:mod:`open_rnic.host_driver.builds.ledger`) and keeps it in
:file:`build/costs`. This prints the ledger of the last run as tables. All figures are seconds of processor time, so
that they hardly depend on what else the machine does.
"""

import argparse
import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from open_rnic.host_driver.builds.folders import built
from open_rnic.host_driver.tools.bench.table import put

PARTS = {
    "elaboration": "Amaranth, of simulations that were not known",
    "yosys": "Yosys, which writes their Verilog",
    "verilator": "Verilator",
    "compiler": "the C++ compiler",
    "model": "simulations, with the benches in them",
    "programs": "other programs that tests start, with the simulations of devices",
    "python": "pytest, and the tests in its processes",
}
FEW = 15  # of the costliest tests and builds


class Costs(NamedTuple):
    """The sums of a ledger.

    Fields
    ------
    parts : seconds of each of PARTS
    files : of each file of tests: tests, seconds, builds, seconds of builds
    tests : seconds of each test
    builds : seconds of each build
    """

    parts: Counter[str]
    files: dict[str, list[float]]
    tests: Counter[str]
    builds: Counter[str]


def last() -> Path:
    """Return the file with the ledger of the last run."""
    return built("costs") / "last.jsonl"


def merge(folder: Path) -> None:
    """Keep the ledgers of all processes in ``folder`` as that of the last run."""
    last().parent.mkdir(parents=True, exist_ok=True)
    last().write_text("".join(path.read_text() for path in sorted(folder.glob("*.jsonl"))))


def read(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a ledger."""
    for line in path.read_text().splitlines():
        yield json.loads(line)


def add(lines: Iterable[dict[str, Any]]) -> Costs:
    """Return the sums of a ledger."""
    costs = Costs(Counter(), defaultdict(lambda: [0, 0, 0, 0]), Counter(), Counter())
    for line in lines:
        row = costs.files[(line["name"] if line["kind"] == "test" else line["test"]).partition("::")[0]]
        if line["kind"] == "test":
            seconds = line["own"] + line["started"]
            costs.tests[line["name"]] += seconds
            costs.parts.update(python=line["own"], programs=line["started"])
            row[0] += 1
            row[1] += seconds
        elif line["kind"] == "elaboration":
            costs.parts.update(elaboration=line["python"], python=-line["python"])
        elif line["kind"] == "build":
            parts = {part: line[part] for part in ("yosys", "verilator", "compiler")}
            costs.parts.update(parts)
            costs.builds[line["name"]] += sum(parts.values())
            row[2] += 1
            row[3] += sum(parts.values())
            costs.parts["programs"] -= sum(parts.values())
        elif line["kind"] == "simulation":
            costs.parts.update(model=line["model"], programs=-line["model"])
    return costs


def tables(costs: Costs) -> Iterator[tuple[tuple[str, ...], list[tuple[str, ...]]]]:
    """Yield the head and the rows of each table."""
    total = sum(costs.parts.values())
    yield ("part", "s"), [
        *((text, f"{costs.parts[part]:.0f}") for part, text in PARTS.items()), ("all", f"{total:.0f}"),
    ]  # fmt: skip
    files = sorted(costs.files.items(), key=lambda item: -item[1][1])
    yield ("file", "tests", "s", "builds", "s of builds"), [
        (name, *(f"{each:.0f}" for each in row)) for name, row in files if row[1] >= 1
    ]
    yield (f"costliest {FEW} tests", "s"), [(name, f"{each:.0f}") for name, each in costs.tests.most_common(FEW)]
    yield (f"costliest {FEW} of {len(costs.builds)} builds", "s"), [
        (name.rpartition("-")[0], f"{each:.0f}") for name, each in costs.builds.most_common(FEW)
    ]


def markdown(costs: Costs) -> str:
    """Return the tables as Markdown."""
    lines: list[str] = []
    for head, rows in tables(costs):
        lines += ["", f"| {' | '.join(head)} |", f"|---|{'--:|' * (len(head) - 1)}"]
        lines += [f"| {' | '.join(each.replace('|', chr(92) + '|') for each in row)} |" for row in rows]
    return "\n".join(lines[1:]) + "\n"


def summary(costs: Costs) -> str:
    """Return one line for the end of a test run."""
    total, builds = sum(costs.parts.values()), sum(costs.builds.values())
    return f"{total:.0f} s of processor time, {builds:.0f} s of it for {len(costs.builds)} builds of simulations"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}.costs", description=__doc__.partition("\n")[0])
    parser.add_argument("ledger", nargs="?", type=Path, help="file of a ledger; default: that of the last run of tests")
    parser.add_argument("--markdown", type=Path, help="page in which to update the tables between their comments")
    options = parser.parse_args(arguments)
    path = options.ledger or last()
    if not path.exists():
        print(f"{os.path.relpath(path)} does not exist: run the tests first", file=sys.stderr)
        return 1
    costs = add(read(path))
    if options.markdown:
        try:
            put(options.markdown, "costs", markdown(costs))
        except (OSError, ValueError) as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    for head, rows in tables(costs):
        table = Table(*head)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*row)
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
