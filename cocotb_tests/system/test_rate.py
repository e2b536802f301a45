"""Full rate and latency, as ``rnic bench rtl`` counts them: cycles used, relative to cycles needed."""

import random

import pytest

from open_rnic.cocotb_tests.lengths import shortened, widths
from open_rnic.host_driver.tools.bench.rtl.cycles import DIRECTIONS, Load, count
from open_rnic.rtl.lib.lanes import LANES

COUNTED = 400  # beats
TOLERANCE = 4  # cycles by which markers and earlier FPDUs may shift an FPDU's end, regardless of the test's length
LATENCY = {"TX": 18, "RX": 20}  # upper limit in cycles, for a ULPDU of one beat
LATENCY_WIDE = {"TX": 22, "RX": 30}  # above 4 lanes, where beats are rotated in several cycles


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
    limit = LATENCY if lanes <= 4 else LATENCY_WIDE
    late = [each for each in found.latencies if each.cycles > limit[each.direction]]
    assert not late
