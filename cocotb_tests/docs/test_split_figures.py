"""docs/split.md and the page of ``rnic split --html`` have the figures of the profiles in this repository."""

import html
import json
import re
import shlex
from pathlib import Path
from statistics import median

import pytest

from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.bench.rtl.blocks import BLOCKS
from open_rnic.host_driver.tools.bench.rtl.parts import PARTS
from open_rnic.host_driver.tools.split import page
from open_rnic.host_driver.tools.split.connections import devices
from open_rnic.host_driver.tools.split.cycles import device_cycles
from open_rnic.host_driver.tools.split.model import REFERENCE, Setting, name, predict
from open_rnic.host_driver.tools.split.profile import Device, Host, Link, find, known
from open_rnic.host_driver.tools.split.run import RTR
from open_rnic.host_driver.tools.split.simulate import _whole, tasks
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import Direction, Side, parts

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "split.md").read_text()
[COMMAND] = re.findall(r"^`rnic (split .+)` writes these tables", DOCS, re.MULTILINE)
PREDICTED = 3  # tables that need no simulation


def of_markdown(text):
    """Return the title and the rows of each table between the comments of the command."""
    kept = text.partition("<!-- rnic split -->")[2].partition("<!-- end of rnic split -->")[0]
    tables = re.findall(r"^\*\*(.+)\*\*\n\n\|.+\n\|.+\n((?:\|.+\n)+)", kept, re.MULTILINE)
    return [(title, [[cell.strip() for cell in row.strip("|").split("|")] for row in rows.splitlines()])
            for title, rows in tables]  # fmt: skip


def of_html(text):
    """Return the title and the rows of each table of figures."""
    found = []
    for table in re.findall(r'<table class="figures">(.+?)</table>', text, re.DOTALL):
        [title] = re.findall("<caption>(.+?)</caption>", table)
        rows = re.findall("<tr>(.*?)</tr>", table.partition("<tbody>")[2])
        cells = [[html.unescape(cell) for cell in re.findall("<td[^>]*>(.*?)</td>", row)] for row in rows]
        found.append((html.unescape(title), cells))
    return found


TABLES = of_markdown(DOCS)
SPLITS, QUESTION, COSTS, SUMMARY, LINKS = TABLES


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The tables that the command of docs/split.md makes without simulations: those of Markdown, and of the page."""
    folder = tmp_path_factory.mktemp("split")
    (folder / "split.md").write_text("<!-- rnic split -->\n<!-- end of rnic split -->\n")
    words = [word for word in shlex.split(COMMAND) if word != "--run"]
    words[words.index("docs/split.md")] = str(folder / "split.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPEN_RNIC_BUILD", str(folder))  # without results of this machine
        patch.setattr(page, "_drawn", lambda name, draw: "")  # plots take longer than all figures
        assert cli.run([*words, "--html", str(folder / "page.html")]) == 0
    return of_markdown((folder / "split.md").read_text()), of_html((folder / "page.html").read_text())


@pytest.mark.parametrize("nth", range(PREDICTED), ids=("splits", "markers and CRCs", "stages"))
def test_the_tables_are_those_of_the_profiles(made, nth):
    markdown, in_html = made
    assert len(markdown) == len(in_html) == PREDICTED
    assert markdown[nth] == in_html[nth]
    assert TABLES[nth] == markdown[nth], f"run rnic {COMMAND}"


def setting(lanes, **more):
    words = shlex.split(COMMAND)
    host = find(Host, words[words.index("--host") + 1])
    return Setting(host, find(Link, "pcie-gen3-x4"), find(Device, "25f"), lanes, **more)


def test_the_simulated_cycles_are_compared_with_the_present_predictions():
    both = (True, False)
    wanted = tasks([setting(lanes, markers=markers, crc=crc) for lanes in (1, 2) for markers in both for crc in both])
    assert f"in {len(wanted)} runs" in SUMMARY[0]
    for direction, lanes, runs, _, worst, where in SUMMARY[1]:
        these = [task for task in wanted if (task.direction.value, str(task.lanes)) == (direction, lanes)]
        assert int(runs) == len(these)
        what, predicted, simulated = re.fullmatch(r"(.+), ([\d,]+) / ([\d,]+)", where).groups()
        predicted, simulated = (int(each.replace(",", "")) for each in (predicted, simulated))
        assert f"{abs(predicted / simulated - 1):.2%}" == worst
        named = [task for task in these if f"{name(task.split.device)}: {size_of(task.message)}" == what]
        assert predicted in map(cycles, named), where


def cycles(task):
    """Return the predicted cycles of all that the device does of a task; on receive, the RTR comes first."""
    rtr = FpduFramer(markers=task.markers, crc=task.crc).frame(RTR)
    offset = len(rtr) if task.direction is Direction.RECEIVE else 0
    return sum(
        device_cycles(part, task.direction, task.lanes, task.ulpdus, markers=task.markers, crc=task.crc, offset=offset)
        for side, together in _whole(task).segments(task.direction) if side is Side.DEVICE
        for part in parts(together)
    )  # fmt: skip


def test_the_counted_octets_are_compared_with_the_present_predictions():
    plain = setting(1, markers=False)
    found = [predict(plain, split, [REFERENCE]) for split in devices(plain)]
    assert [row[0] for row in LINKS[1]] == [each.name for each in found]
    for row, each in zip(LINKS[1], found, strict=True):
        octets = [f"{way:,.0f}" for way in each.points[0].link.values()]
        assert [cell.partition(" / ")[0] for cell in row[1:3]] == octets


def measured(part, name, lanes):
    """Return the results of place and route of a block in docs/performance.jsonl."""
    lines = map(json.loads, (ROOT / "docs" / "performance.jsonl").read_text().splitlines())
    return [
        line["result"] for line in lines
        if (line["part"], line["block"]) == (part, name) and (line["lanes"] == lanes or not BLOCKS[name].wide)
    ]  # fmt: skip


@pytest.mark.parametrize("part", known(Device))
def test_the_profile_of_a_device_has_the_figures_of_place_and_route_in_the_docs(part):
    for lanes, blocks in find(Device, part).lanes.items():
        for which, block in blocks.items():
            found = measured(part, which, int(lanes))
            assert found, f"{which} of {lanes} lanes"
            counts = {PARTS[part].count(each["block"], each["around"], each["used"])["comb"] for each in found}
            clock = round(median(each["frequency"] for each in found), -4)
            assert ({block.luts.value}, block.clock_hz.value) == (counts, clock), f"{which} of {lanes} lanes"
            assert f"--seeds {len(found)}" in block.luts.source
