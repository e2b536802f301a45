"""Report predictions as tables, JSON and CSV. The HTML page is in :mod:`.page`."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import Any, TextIO

import msgspec

from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.split import connections, simulate
from open_rnic.host_driver.tools.split.connections import Counted
from open_rnic.host_driver.tools.split.model import RATES, REFERENCE, Prediction, Setting, sources
from open_rnic.host_driver.tools.split.profile import Cost, Figure
from open_rnic.host_driver.tools.split.simulate import Simulated
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import Stage

__all__ = ["Crossover", "Report", "crossovers", "front", "size_of", "standing"]

_NOTHING = 1e-3  # relative differences up to this are ignored
_SHORT = 64  # octets of the short messages for which latency is reported, beside REFERENCE


@dataclass(frozen=True)
class Crossover:
    """The message size, in octets, above which one split is better than another; interpolated between two sizes."""

    size: float
    value: float
    before: str
    after: str


@dataclass(frozen=True)
class Report:
    """The results of ``rnic split``.

    ``predictions`` covers all splits and widths, and ``question`` all combinations of markers and CRCs. ``named`` holds
    the splits that appear in every table and plot. ``runs`` are results of simulations.
    """

    setting: Setting
    origins: Sequence[str]  #: lines of text that name the origin of the figures
    predictions: Sequence[Prediction]
    named: frozenset[frozenset[Stage]]
    question: Sequence[Prediction] = ()
    runs: Sequence[Simulated] = ()
    counts: Sequence[Counted] = ()  #: octets over the links of whole devices

    # --- for people

    def tables(self, *, everything: bool = False, short: bool = False) -> list[Table]:
        """Return the tables. ``everything`` includes all splits; ``short`` leaves out the table of single runs."""
        question = [self.markers_and_crc()] if self.question else []
        simulated = [simulate.table(self.runs)] if self.runs and not short else []
        summary = [simulate.summary(self.runs)] if self.runs else []
        counted = [connections.table(self.counts)] if self.counts else []
        return [self.splits(everything=everything), *question, self.costs(), *simulated, *summary, *counted]

    def shown(self, *, everything: bool = False) -> list[Prediction]:
        """Return the predictions in the table: named splits and those on the Pareto front, or all of them."""
        best = {id(each) for each in front(self.predictions)}
        return [
            each for each in self.predictions
            if everything or id(each) in best or each.split.device in self.named
        ]  # fmt: skip

    def splits(self, *, everything: bool = False) -> Table:
        """Return a table with a row for each split."""
        headings = (
            "on the device", "lanes", "host cycles an octet", *(f"cores {rate} Gb/s" for rate in RATES), "Gb/s",
            f"½ RTT µs, {_SHORT} octets", f"½ RTT µs, {size_of(REFERENCE)}", "link octets", "LUTs", "MHz",
            "set-up ms", "limit",
        )  # fmt: skip
        rows = []
        for each in self.shown(everything=everything):
            point = each.at(REFERENCE)
            rows.append((
                each.name,
                str(each.lanes) if each.split.device else "",
                f"{point.cycles_per_octet:.3f}",
                *(_cores(each, rate) for rate in RATES),
                _figure(point.rate * 8e-9),
                _figure(each.at(_SHORT).half_round_trip * 1e6),
                _figure(point.half_round_trip * 1e6),
                f"{sum(point.link.values()) / point.size:.2f}",
                f"{each.luts:,.0f}",
                "" if each.clock is None else f"{each.clock / 1e6:.0f}",
                f"{each.setup * 1e3:.2f}",
                _limit(point.limit),
            ))  # fmt: skip
        setting = self.setting
        on = " and ".join(name for name, there in (("markers", setting.markers), ("CRCs", setting.crc)) if there)
        where = "; ".join((setting.host.title, setting.link.title, setting.device.title))
        title = f"{where}: messages of {size_of(REFERENCE)}, EMSS {setting.emss:,}, {on or 'neither markers nor CRCs'}"
        few = {"on the device", "lanes", "host cycles an octet", "Gb/s", headings[-6], "LUTs", "limit"}
        extra = [nth for nth, heading in enumerate(headings) if heading not in few]
        return Table(title, headings, rows, left=(0, len(headings) - 1), extra=extra)

    def markers_and_crc(self) -> Table:
        """Return a table of the cost of markers and CRCs, on the host and on the device."""
        headings = ("markers", "CRC", "on the device", "lanes", "host cycles an octet", "more than neither",
                    "Gb/s", f"½ RTT µs, {_SHORT} octets", "LUTs", "limit")  # fmt: skip
        rows = []
        for each in self.question:
            [base] = [
                other for other in self.question
                if not (other.markers or other.crc)
                and (other.lanes, bool(other.split.device)) == (each.lanes, bool(each.split.device))
            ]  # fmt: skip
            point = each.at(REFERENCE)
            more = point.cycles_per_octet - base.at(REFERENCE).cycles_per_octet
            rows.append((
                "yes" if each.markers else "no",
                "yes" if each.crc else "no",
                each.name,
                str(each.lanes) if each.split.device else "",
                f"{point.cycles_per_octet:.3f}",
                f"{more:+.3f}" if each is not base else "",
                _figure(point.rate * 8e-9),
                _figure(each.at(_SHORT).half_round_trip * 1e6),
                f"{each.luts:,.0f}",
                _limit(point.limit),
            ))  # fmt: skip
        title = f"The cost of markers and CRCs: messages of {size_of(REFERENCE)}, TCP left out"
        return Table(title, headings, rows, left=(0, 1, 2, 9), extra=(7, 8, 9))

    def costs(self) -> Table:
        """Return a table of the cost of each stage on the host."""
        setting, host = self.setting, self.setting.host
        fpdu = max(setting.ulpdus(REFERENCE)) + 6
        costs = {f"CRC, {tier}": cost for tier, cost in host.crc.items()}
        costs |= {"marker insertion": host.marker_insertion, "marker removal": host.marker_removal}
        costs |= {"copy, in cache": Cost(host.copies.per_octet, host.copies.per_fpdu)}
        costs |= {"copy, from memory": Cost(host.copies.per_octet_from_memory, host.copies.per_fpdu)}
        for name, calls in (("send", host.tcp_transmit), ("receive", host.tcp_receive)):
            share = Figure(calls.per_call.value / (REFERENCE // fpdu), calls.per_call.source)
            costs[f"TCP, {name}, {size_of(REFERENCE)} a call"] = Cost(calls.per_octet, share)
        rows = []
        for name, cost in costs.items():
            cycles = cost.per_fpdu.value / fpdu + cost.per_octet.value
            rate = f"{host.clock_hz.value / cycles * 8e-9:,.0f}" if cycles else ""
            rows.append((name, f"{cost.per_octet.value:.3f}", f"{cost.per_fpdu.value:.1f}", f"{cycles:.3f}", rate))
        headings = (
            "stage",
            "cycles an octet",
            "and an FPDU",
            f"cycles an octet of FPDUs of {fpdu:,}",
            "Gb/s, one core",
        )
        clock = f"{host.clock_hz.value / 1e9:.2f} GHz"
        return Table(f"The cost of stages on {host.title}, {clock}", headings, rows, left=(0,))

    # --- for programs

    def plain(self) -> dict[str, Any]:
        """Return all results as plain data; the names include the units."""
        setting = self.setting
        return {
            "host": setting.host.title,
            "link": setting.link.title,
            "device": setting.device.title,
            "emss_octets": setting.emss,
            "piece_octets": setting.pieces,
            "wire_gbit_per_s": setting.wire,
            "cores": setting.cores,
            "origins": list(self.origins),
            "figures": [{"name": name, "value": each.value, "source": each.source} for name, each in sources(setting)],
            "splits": [_plain(each) for each in self.predictions],
            "question": [_plain(each) for each in self.question],
            "runs": [_run(each) for each in self.runs],
            "connections": [
                {
                    "on_device": sorted(each.device),
                    "message_octets": each.octets,
                    "link_octets_predicted": each.predicted,
                    "link_octets_counted": each.counted,
                }
                for each in self.counts
            ],
            "crossovers": {
                what: [vars(each) for each in crossovers(list(self.lines(lanes)), what)]
                for what in ("throughput", "half round trip")
                for lanes in [max(each.lanes for each in self.predictions)]
            },
        }

    def lines(self, lanes: int) -> list[Prediction]:
        """Return the named splits of a width, which the plots show."""
        return [
            each for each in self.predictions
            if each.split.device in self.named and (each.lanes == lanes or not each.split.device)
        ]  # fmt: skip

    def write_json(self, file: TextIO) -> None:
        """Write one JSON object."""
        file.write(msgspec.json.format(msgspec.json.encode(self.plain()), indent=1).decode() + "\n")

    def write_csv(self, file: TextIO) -> None:
        """Write a line for each split and message size."""
        rows = [row for each in self.predictions for row in _rows(each)]
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def front(predictions: Sequence[Prediction]) -> list[Prediction]:
    """Return the Pareto front of LUTs and host cycles, from few LUTs to many.

    A split with more LUTs is only included if it saves at least half a percent of the cycles.
    """
    found: list[Prediction] = []
    for each in sorted(predictions, key=lambda each: (each.luts, each.at(REFERENCE).cycles_per_octet)):
        if not found or each.at(REFERENCE).cycles_per_octet < 0.995 * found[-1].at(REFERENCE).cycles_per_octet:
            found.append(each)
    return found


def crossovers(lines: Sequence[Prediction], what: str) -> list[Crossover]:
    """Return the message sizes above which one split is better than another, for the plot ``what``.

    Compares each split with the host alone, and the best split at each size with the best one at the next size.
    Differences within a thousandth are ignored.
    """
    values = {id(line): _values(line, what) for line in lines}

    def value(line: Prediction, nth: int) -> float:
        return values[id(line)][nth]

    def crossing(one: Prediction, other: Prediction, before: int, after: int) -> Crossover | None:
        """Return the crossover of two splits between two sizes, if there is one."""
        gaps = [value(one, nth) - value(other, nth) for nth in (before, after)]
        if gaps[0] * gaps[1] > 0:
            return None
        share = gaps[0] / (gaps[0] - gaps[1])
        size, height = (
            low + share * (high - low)
            for low, high in (
                (log(one.points[before].size), log(one.points[after].size)),
                (value(other, before), value(other, after)),
            )
        )
        names = (other.name, one.name) if gaps[1] > 0 else (one.name, other.name)
        return Crossover(exp(size), exp(height if what == "throughput" else -height), *names)

    found: list[Crossover | None] = []
    for base in (line for line in lines if not line.split.device):
        for line in lines:
            sure = [nth for nth in range(len(line.points)) if abs(value(line, nth) - value(base, nth)) > _NOTHING]
            found += [crossing(line, base, before, after) for before, after in pairwise(sure)]
    best: Prediction | None = None
    since = 0
    for nth in range(len(lines[0].points) if lines else 0):
        now = max(lines, key=lambda line: value(line, nth))
        if best is None or value(now, nth) > value(best, nth) + _NOTHING:
            if best is not None and best.split.device and now.split.device:
                found.append(crossing(now, best, since, nth))
            best = now
        since = nth
    return sorted((each for each in found if each is not None), key=lambda each: each.size)


def standing(lines: Sequence[Prediction], what: str) -> tuple[list[str], list[str], list[str]]:
    """Return the splits that are better than the host alone at every size, worse at every size, and always equal.

    A split that is better at some sizes and worse at others is in none of the lists. Differences within a thousandth
    are ignored.
    """
    better: list[str] = []
    worse: list[str] = []
    same: list[str] = []
    for base in (line for line in lines if not line.split.device):
        for line in (each for each in lines if each.split.device):
            gaps = [one - other for one, other in zip(_values(line, what), _values(base, what), strict=True)]
            sure = [gap for gap in gaps if abs(gap) > _NOTHING]
            if not sure:
                same.append(line.name)
            elif min(sure) > 0:
                better.append(line.name)
            elif max(sure) < 0:
                worse.append(line.name)
    return better, worse, same


def _values(line: Prediction, what: str) -> list[float]:
    """Return a value for each size: a higher value is better, and differences are relative."""
    return [log(point.rate) if what == "throughput" else -log(point.half_round_trip) for point in line.points]


def _run(each: Simulated) -> dict[str, Any]:
    task = each.task
    return {
        "on_device": sorted(task.split.device),
        "direction": task.direction.value,
        "lanes": task.lanes,
        "markers": task.markers,
        "crc": task.crc,
        "message_octets": task.message,
        "cycles_predicted": each.predicted,
        "cycles_simulated": each.simulated,
        "link_octets": each.link,
    }


def _plain(each: Prediction) -> dict[str, Any]:
    return {
        "on_device": sorted(each.split.device),
        "name": each.name,
        "lanes": each.lanes,
        "markers": each.markers,
        "crc": each.crc,
        "luts": each.luts,
        "clock_hz": each.clock,
        "setup_s": each.setup,
        "points": list(_rows(each)),
    }


def _rows(each: Prediction) -> list[dict[str, Any]]:
    return [
        {
            "on_device": "+".join(sorted(each.split.device)),
            "lanes": each.lanes,
            "markers": each.markers,
            "crc": each.crc,
            "message_octets": point.size,
            "throughput_octets_per_s": point.rate,
            "half_round_trip_s": point.half_round_trip,
            "host_cycles_per_octet": point.cycles_per_octet,
            **{f"host_cycles_{stage}": stages.get(stage, 0.0) for stage in (*map(str, Stage), "link")},
            **{f"link_octets_{direction}": octets for direction, octets in point.link.items()},
            **{f"cores_at_{rate}_gbit_per_s": _number(each.cores(rate, point.size)) for rate in RATES},
            "luts": each.luts,
            "clock_hz": each.clock,
            "setup_s": each.setup,
            "limit": point.limit,
            "slowest": point.slowest,
        }
        for point in each.points
        for stages in [point.stages]
    ]


def _limit(resource: str) -> str:
    """Return a short form without the stages of a device's pipeline, which are in the CSV."""
    return resource.partition(":")[0] if resource.startswith("device") else resource


def _number(cores: float | str) -> float | None:
    return None if isinstance(cores, str) else cores


def _cores(each: Prediction, rate: float) -> str:
    """Return the cores for a rate, in brackets if another resource does not reach the rate."""
    worth = f"{each.worth(rate):.2f}"
    return f"({worth})" if isinstance(each.cores(rate), str) else worth


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
