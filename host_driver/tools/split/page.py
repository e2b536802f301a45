"""The report as a single HTML page, without other files, network access, or scripts other than its own."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from datetime import date
from importlib.metadata import version
from importlib.resources import files
from math import log2
from typing import Any

from open_rnic.host_driver.lib.optional_packages import missing
from open_rnic.host_driver.tools.split.model import LINK, RATES, REFERENCE, Prediction, sources
from open_rnic.host_driver.tools.split.report import Report, crossovers, front, standing
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import Stage

__all__ = ["page"]

# A colour has one meaning on the page: a split or a stage. Widths are distinguished by their markers.
_SPLITS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#444444", "#b8860b", "#56b4e9", "#7b3294", "#8c510a",
           "#66a61e")  # fmt: skip
_STAGES = ("#88ccee", "#332288", "#117733", "#999933", "#882255", "#ddcc77", "#6699cc", "#aa4466", "#44aa99", "#bbbbbb",
           "#f4a582", "#5aae61")  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v")
_WIDTH, _HEIGHT = 8.6, 4.2  # inches


def page(report: Report, command: str, day: date) -> str:
    """Return the page, which names ``command`` and ``day`` as its origin.

    Raises ModuleNotFoundError if matplotlib is missing.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise missing("matplotlib", "bench") from None
    from jinja2 import Environment, StrictUndefined

    # Text stays text, so that readers can search it and programs can read it aloud; ids are reproducible.
    style = {"svg.fonttype": "none", "svg.hashsalt": "split", "font.family": "sans-serif", "axes.spines.top": False,
             "axes.spines.right": False, "axes.grid": True, "grid.color": "#e4e4e4", "font.size": 10}  # fmt: skip
    with matplotlib.rc_context(style):
        widths = sorted({each.lanes for each in report.predictions})
        groups = [_group(report, lanes) for lanes in widths]
        pareto = _drawn("pareto", lambda axes: _pareto(axes, report))
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["octets"] = size_of
    environment.globals["lanes"] = _lanes
    template = environment.from_string((files(__package__) / "report.html.j2").read_text())
    tables = report.tables()
    return template.render(
        setting=report.setting,
        origins=report.origins,
        groups=groups,
        pareto=pareto,
        tables=[{"title": each.title, "headings": each.headings, "rows": each.rows, "left": each.left}
                for each in tables],
        verdicts=verdicts(report),
        reference=REFERENCE,
        rates=RATES,
        front=front(report.predictions),
        figures=sources(report.setting),
        command=command,
        day=day,
        version=version("open-rnic"),
    )  # fmt: skip


def _group(report: Report, lanes: int) -> dict[str, Any]:
    lines = report.lines(lanes)
    return {
        "lanes": lanes,
        "lines": [
            {"name": line.name, "colour": _SPLITS[nth % len(_SPLITS)], "width": _thickness(nth, lines)}
            for nth, line in enumerate(lines)
        ],
        "throughput": _drawn(f"throughput{lanes}", lambda axes: _curves(axes, lines, "throughput")),
        "latency": _drawn(f"latency{lanes}", lambda axes: _curves(axes, lines, "half round trip")),
        "cycles": _drawn(f"cycles{lanes}", lambda axes: _stacked(axes, lines)),
        "throughput_said": _said(lines, "throughput", "faster", "slower"),
        "latency_said": _said(lines, "half round trip", "sooner", "later"),
    }


def _thickness(nth: int, lines: Sequence[Prediction]) -> float:
    """Return a line width in points. Later lines are thinner, so that the lines that they cover remain visible."""
    return 1.2 + (len(lines) - 1 - nth)


def _said(lines: Sequence[Prediction], what: str, better: str, worse: str) -> str:
    """Describe which split is better above which size, and which are better or worse than the host at all sizes."""
    sentences = []
    found = crossovers(lines, what)
    if found:
        sentences.append("Circles: " + "; ".join(
            f"from about {size_of(each.size)} “{each.after}” is {better} than “{each.before}”" for each in found
        ) + ".")  # fmt: skip
    for names, word in zip(standing(lines, what), (f"{better} than", f"{worse} than", "the same as"), strict=True):
        if names:
            which = " and ".join(filter(None, (", ".join(f"“{each}”" for each in names[:-1]), f"“{names[-1]}”")))
            are = "is" if len(names) == 1 else "are"
            sentences.append(f"At every size {which} {are} {word} the host alone.")
    return " ".join(sentences)


def verdicts(report: Report) -> list[str]:
    """Return a sentence for each named split at each width on whether it pays off."""
    named = [each for each in report.predictions if each.split.device in report.named]
    host = next((each for each in report.predictions if not each.split.device), None)
    if host is None:
        return []
    sentences = []
    base = host.at(REFERENCE)
    for each in sorted(named, key=lambda line: line.lanes):
        if not each.split.device:
            continue
        point = each.at(REFERENCE)
        saved = base.cycles_per_octet - point.cycles_per_octet
        change = point.rate / base.rate - 1
        cycles = (f"saves {saved:.3f} host cycles an octet, {saved / base.cycles_per_octet:.0%}" if saved > 0
                  else f"costs {-saved:.3f} host cycles an octet more")  # fmt: skip
        pays = "pays" if saved > 0 and change > -0.01 else "pays in host cycles alone" if saved > 0 else "does not pay"
        if saved <= 0 and change > 0.01:
            pays = "pays in throughput alone"
        link = (point.stages.get(LINK, 0.0) - base.stages.get(LINK, 0.0)) / REFERENCE
        if "estimate" in report.setting.link.host_s_per_transfer.source and abs(link) > 0.01 * base.cycles_per_octet:
            cycles += f", with {link:+.3f} for the link, which is an estimate"
        rate = "stays the same"
        if abs(change) >= 0.005:
            rate = f"{'rises' if change > 0 else 'falls'} by {abs(change):.0%}"
        sentences.append(f"“{each.name}” on the device with {_lanes(each.lanes)} {cycles}; throughput {rate}, for "
                    f"{each.luts:,.0f} LUTs: offload {pays}.")  # fmt: skip
    return sentences


def _lanes(count: int) -> str:
    return f"{count} lane{'' if count == 1 else 's'}"


def _drawn(name: str, draw: Callable[[Any], None]) -> str:
    """Return an SVG element with what ``draw`` draws on axes; its ids begin with ``name``."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    draw(figure.add_subplot())
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = out.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)  # ids of several plots must differ in one page
    text = re.sub(r"url\(#", f"url(#{name}-", text)
    text = re.sub(r'xlink:href="#', f'href="#{name}-', text)
    text = re.sub(r' (?:width|height)="[\d.]+pt"', "", text, count=2)
    return re.sub(r' xmlns:xlink="[^"]*"', "", text)


def _sizes(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes[::2], [size_of(size).replace(" octets", "").replace(" octet", "") for size in sizes[::2]])
    axes.set_xlabel("octets of a message", labelpad=8)


def _curves(axes: Any, lines: Sequence[Prediction], what: str) -> None:
    for nth, line in enumerate(lines):
        sizes = [point.size for point in line.points]
        values = [point.rate * 8e-9 if what == "throughput" else point.half_round_trip * 1e6 for point in line.points]
        [drawn] = axes.plot(sizes, values, color=_SPLITS[nth % len(_SPLITS)], linewidth=_thickness(nth, lines))
        drawn.set_gid(f"line-{nth}")
    _sizes(axes, [point.size for point in lines[0].points])
    axes.set_yscale("log")
    axes.set_ylabel("throughput, Gb/s" if what == "throughput" else "half round trip, µs")
    circles: dict[tuple[float, float], tuple[float, float]] = {}  # by position: one circle for lines that overlap
    for each in crossovers(lines, what):
        value = each.value * (8e-9 if what == "throughput" else 1e6)
        circles.setdefault((round(log2(each.size), 1), round(log2(value), 1)), (each.size, value))
    for size, value in circles.values():
        axes.plot([size], [value], marker="o", markersize=9, fillstyle="none", color="black", linestyle="none")
    _label(axes, [(size, value, size_of(size)) for size, value in circles.values()])


def _label(axes: Any, labels: Sequence[tuple[float, float, str]]) -> None:
    """Put a label beside each point, where it covers no other label."""
    axes.figure.draw_without_rendering()  # computes the layout, and thereby the positions of labels
    taken: list[Any] = []
    for x, y, text in labels:
        made = axes.annotate(text, (x, y), textcoords="offset points", xytext=_PLACES[0], fontsize=9, zorder=5,
                             bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.5})  # fmt: skip
        for place in _PLACES:
            made.set_position(place)
            made.set_horizontalalignment("left" if place[0] > 0 else "right")
            box = made.get_window_extent()
            inside = axes.bbox.x0 <= box.x0 and box.x1 <= axes.figure.bbox.x1 and axes.bbox.y0 <= box.y0
            if inside and not any(box.overlaps(other) for other in taken):
                break
        taken.append(box)


# Positions of a label relative to its point, in order of preference; enough of them for dense points.
_PLACES = [(side, up) for far in range(0, 120, 12) for side in (6, -6) for up in (5 + far, -14 - far)]


def _stacked(axes: Any, lines: Sequence[Prediction]) -> None:
    bottom = [0.0] * len(lines)
    names = [line.name for line in lines]
    for nth, stage in enumerate([*map(str, Stage), LINK]):
        height = [line.at(REFERENCE).stages.get(stage, 0.0) / REFERENCE for line in lines]
        if any(height):
            label = "the link" if stage == LINK else stage
            axes.barh(names, height, left=bottom, color=_STAGES[nth % len(_STAGES)], label=label)
            bottom = [a + b for a, b in zip(bottom, height, strict=True)]
    axes.invert_yaxis()
    axes.set_axisbelow(True)
    axes.set_xlabel(f"host cycles an octet, sent and received, messages of {size_of(REFERENCE)}")
    axes.legend(frameon=False, fontsize=9, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


def _pareto(axes: Any, report: Report) -> None:
    for nth, lanes in enumerate(sorted({each.lanes for each in report.predictions})):
        shown = [each for each in report.predictions if each.lanes == lanes]
        cycles = [each.at(REFERENCE).cycles_per_octet for each in shown]
        axes.plot([each.luts for each in shown], cycles, _MARKERS[nth % len(_MARKERS)], color="#888888", markersize=4,
                  alpha=0.6, label=_lanes(lanes))  # fmt: skip
    best = front(report.predictions)
    values = [each.at(REFERENCE).cycles_per_octet for each in best]
    axes.step([each.luts for each in best], values, where="post", color="black", linewidth=1, label="Pareto front")
    axes.set_xlabel("LUTs")
    axes.set_ylabel("host cycles an octet, sent and received")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    _label(axes, [(each.luts, value, each.name) for each, value in zip(best, values, strict=True)
                  if each.split.device in report.named])  # fmt: skip
