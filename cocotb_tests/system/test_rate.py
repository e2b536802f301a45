"""Full rate and latency, as ``rnic bench rtl`` counts them: cycles used, relative to cycles needed."""

import random
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.host_driver.tools.bench.rtl.cycles import DIRECTIONS, Load, count
from open_rnic.host_driver.tools.bench.rtl.report import Report
from open_rnic.rtl.lib.lanes import LANES

COUNTED = 400  # beats
TOLERANCE = 4  # cycles by which markers and earlier FPDUs may shift an FPDU's end, regardless of the test's length
PAGE = Path(__file__).parents[2] / "docs/performance.md"


def loads(width):
    lengths = (0, 1, 2, width - 1, width, width + 1, 64, 1430, 1442, 8882)
    mixed = tuple(random.choice([0, 1, 2, width, 64, 536, 1442]) for _ in range(16))
    return [*(Load(f"{each}", (each,), COUNTED) for each in lengths), Load(f"mixed {mixed}", mixed, COUNTED)]


@pytest.mark.parametrize("direction", shortened("TX+RX has both", 1, [*DIRECTIONS][::-1]))
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_a_beat_is_transferred_in_each_cycle(lanes, direction):
    found = count(direction, lanes, loads(4 * lanes))
    # Receive may need fewer cycles, because it removes markers before it makes beats of FPDUs.
    slow = [flow for flow in found.flows if flow.used - flow.needed > (0 if flow.direction == "TX" else TOLERANCE)]
    assert not slow
    assert len(found.flows) >= 4 * 11


@pytest.mark.parametrize("lanes", LANES)
def test_the_latencies_of_the_page_are_those_of_the_rtl(lanes):
    found = count("TX+RX", lanes, [])
    _, table = Report([], [found]).tables()
    title, _, headings, rule, *rows = table.markdown().splitlines()
    assert len(rows) == 2
    assert f"{title}\n\n{headings}\n{rule}\n" in PAGE.read_text()
    assert {*rows} <= {*PAGE.read_text().splitlines()}
    # CRCs and markers move a latency by at most a cycle.
    for _, same in groupby(found.latencies, attrgetter("direction", "octets", "behind")):
        plain, marked = same
        assert abs(plain.first - marked.first) <= 1
        assert abs(plain.last - marked.last) <= 1
