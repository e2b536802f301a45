"""Splits in simulation: their output, the octets over the host link, and the accuracy of predicted cycles.

A run raises SplitError unless its output is that of the complete software data path.
"""

import random
from dataclasses import replace
from itertools import combinations, product
from statistics import median

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_split import SETTING
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.split import run as split_run
from open_rnic.host_driver.tools.split.cycles import device_cycles
from open_rnic.host_driver.tools.split.run import Case, SplitError, run, run_all, write
from open_rnic.host_driver.tools.split.stages import (
    MPA,
    RDMA,
    RECEIVE,
    RTL,
    TCP,
    TRANSMIT,
    Direction,
    Side,
    Split,
    Stage,
    parts,
)
from open_rnic.rtl.registers import MAX_ULPDU

LANES = 2
LOADS = {
    "one octet": [1],
    "nothing": [0],
    "two MTUs": [1442] * 2,
    "small": [64] * 8,
    "mixed": [1, 300, 2, 40, 8, 7, 9, 1000, 0, 0, 3],
}


def placements(direction):
    """Return all splits of the stages of MPA of this direction."""
    stages = [stage for stage in (TRANSMIT if direction is Direction.TRANSMIT else RECEIVE) if stage in MPA]
    return [Split(frozenset(chosen)) for count in range(5) for chosen in combinations(stages, count)]


def ulpdus(lengths):
    return tuple(random.randbytes(each) for each in lengths)


@pytest.mark.parametrize("direction", Direction)
def test_every_split_runs_and_its_cycles_are_predicted(direction):
    splits = placements(direction)
    assert len(splits) == 16
    runs = run_all(
        Case(split, direction, LANES, ulpdus(lengths), markers, crc)
        for split, lengths, markers, crc in product(splits, LOADS.values(), (False, True), (False, True))
    )
    assert all((each.error is None) == (each.case.split == Split(frozenset())) for each in runs)
    errors = {each: abs(each.error) for each in runs if each.error is not None}
    worst = max(errors, key=errors.__getitem__)
    assert median(errors.values()) <= 0.03
    assert errors[worst] <= 0.10, (worst.case.split, list(map(len, worst.case.ulpdus)), worst.segments)


@long("another width, of one stage")
def test_the_cycles_of_the_crc_check_of_wide_beats_are_predicted_exactly():
    split = Split(frozenset({Stage.CRC_CHECK}))
    for each in run_all(Case(split, Direction.RECEIVE, 8, ulpdus(lengths), True, True) for lengths in LOADS.values()):
        assert each.error == 0, each.segments


def test_the_octets_that_cross_the_host_link_are_counted():
    sent = ulpdus([1000, 3])
    split = Split(frozenset({Stage.MARKER_INSERTION}))
    found = run(split, Direction.TRANSMIT, lanes=LANES, ulpdus=sent, markers=True, crc=True)
    framed = sum(map(len, FpduFramer(markers=False, crc=True).frame_all(sent))) - 4 * 2  # without CRCs
    assert [(each.to, each.before, each.packets, each.octets) for each in found.crossings] == [
        (Side.DEVICE, Stage.MARKER_INSERTION, 2, framed),
        (Side.HOST, Stage.CRC_GENERATION, 2, framed + 4 * 3),  # with markers, the last one between PAD and CRC
    ]


def test_a_stage_without_rtl_is_rejected():
    with pytest.raises(ValueError, match="the RTL has no startup"):
        device_cycles((Stage.STARTUP,), Direction.RECEIVE, LANES, [1], markers=True, crc=True)


def sizes(message, markers):
    """Return the lengths of the ULPDUs of a message."""
    return replace(SETTING, markers=markers).ulpdus(message)


@long("the cycles of single blocks are in test_every_split_runs_and_its_cycles_are_predicted")
@pytest.mark.parametrize("messages", shortened("longer messages, and one between", 1, [([1, 1500],), ([64, 16384],)]))
@pytest.mark.parametrize("direction", Direction)
def test_placement_and_tcp_run_and_their_cycles_are_predicted(direction, messages):
    """Between the two is MPA on the host, or on the device."""
    devices = [RDMA, TCP, RTL]
    runs = run_all(
        Case(Split(device), direction, 1, write(sizes(message, markers)), markers, True)
        for device, message, markers in product(devices, messages, (False, True))
    )
    for each in runs:
        expected = [part[0] for _, stages in each.case.split.segments(direction) for part in parts(stages)
                    if part[0] in each.case.split.device]  # fmt: skip
        assert [segment.stages[0] for segment in each.segments] == expected
        assert abs(each.error) <= 0.06, (each.case.split, len(each.case.ulpdus), each.segments)
        assert all(abs(one.error) <= 0.01 for one in each.segments if one.stages[0] not in TCP)


@pytest.mark.parametrize(("device", "lanes", "ulpdus", "said"), [
    (["placement"], 1, write([20]), "one block does copies, placement: all or none of them"),
    (["tcp"], 2, write([20]), "TCP in RTL has 1 lane, not 2"),
    (["copies", "placement"], 2, [b"x"], "ULPDU 0 is not the segment of an RDMA Write that placement needs"),
    (["copies", "placement"], 2, [*write([20, 30]), *write([20])], "ULPDU 1 is not the segment"),
])  # fmt: skip
def test_a_case_that_the_device_cannot_do_is_rejected(device, lanes, ulpdus, said):
    with pytest.raises(ValueError, match=said):
        Case(Split.of(device), Direction.TRANSMIT, lanes, tuple(ulpdus), True, True)


def test_a_width_without_rtl_is_rejected():
    with pytest.raises(ValueError, match="lanes must be one of 1, 2, 4, 8, 16, not 3"):
        Case(Split.of([]), Direction.TRANSMIT, 3, (b"",), True, True)


def test_a_ulpdu_that_is_too_long_for_mpa_is_rejected():
    with pytest.raises(ValueError, match="ULPDU 1 has 64769 octets"):
        Case(Split.of([]), Direction.TRANSMIT, LANES, (b"", bytes(MAX_ULPDU + 1)), True, True)


def test_a_split_with_wrong_output_is_an_error(monkeypatch):
    monkeypatch.setattr(split_run.software, "frame", lambda ulpdus: (bytes(4) for _ in ulpdus))
    with pytest.raises(SplitError, match="transmit"):
        run(Split.of([]), Direction.TRANSMIT, lanes=LANES, ulpdus=[b"1"], markers=True, crc=True)


def test_at_1_lane_one_block_does_three_stages():
    split = Split.of(["marker-removal", "framing", "crc-check"])
    found = run(split, Direction.RECEIVE, lanes=1, ulpdus=ulpdus([1, 64, 1442, 5]), markers=True, crc=True)
    assert found.error == pytest.approx(0, abs=0.02)
    with pytest.raises(ValueError, match="at 1 lane one block does crc-check, framing, marker-removal: all or none"):
        run(Split.of(["framing"]), Direction.RECEIVE, lanes=1, ulpdus=[b"1"], markers=True, crc=True)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("direction", Direction)
def test_a_long_stream_takes_one_cycle_per_beat(direction, lanes):
    stages = tuple(stage for stage in (TRANSMIT if direction is Direction.TRANSMIT else RECEIVE) if stage in MPA)
    few, many = ([1442] * count for count in (10, 170))  # 160 more FPDUs are a whole number of beats
    more = (device_cycles(stages, direction, lanes, each, markers=False, crc=True) for each in (many, few))
    assert next(more) - next(more) == 160 * -(-1448 // (4 * lanes))


def test_the_latency_of_a_segment_is_that_of_all_its_blocks():
    """A ULPDU of one beat passes fence, framer, inserter and appender."""
    stages = Stage.FENCE, Stage.FRAMING, Stage.MARKER_INSERTION, Stage.CRC_GENERATION
    alone = [device_cycles((each,), Direction.TRANSMIT, LANES, [1], markers=False, crc=True) - 2 for each in stages]
    together = device_cycles(stages, Direction.TRANSMIT, LANES, [1], markers=False, crc=True) - 2
    assert together == sum(alone)
