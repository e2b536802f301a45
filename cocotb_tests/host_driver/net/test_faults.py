"""One direction of the frame pipe: seeded faults, rate, queue and delay, by scripted time."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.net.faults import Direction, Fault, Faults, Kind

FRAMES = [random.Random(each).randbytes(60 + each) for each in range(1000)]
FATES = ("drop", "duplicate", "reorder", "corrupt", "truncate")


def through(direction, frames, spacing=1.0):
    """Offer the frames one after the other; return those that arrive."""
    arrived = []
    for at, frame in enumerate(frames):
        direction.offer(frame, at * spacing)
        arrived += direction.due(at * spacing)
    return arrived + direction.due(float("inf"))


def test_without_faults_every_frame_arrives_at_once():
    direction = Direction()
    assert direction.offer(b"frame", 1.0) == ()
    assert direction.deadline == 1.0
    assert direction.due(1.0) == [b"frame"]
    assert direction.deadline is None
    assert (direction.offered, direction.delivered, direction.log) == (1, 1, [])


def test_a_seed_repeats_every_decision_and_another_seed_does_not():
    faults = Faults(**dict.fromkeys(FATES, 0.1), jitter=0.1)
    runs = [Direction(faults, seed) for seed in (1, 1, 2)]
    first, second, third = (through(each, FRAMES) for each in runs)
    assert (first, runs[0].log) == (second, runs[1].log)
    assert first != third


def test_the_fate_of_a_frame_depends_neither_on_its_time_nor_its_length_nor_other_faults():
    usual, other = Direction(Faults(drop=0.1), 5), Direction(Faults(drop=0.1, corrupt=0.5, duplicate=0.5, queue=0), 5)
    through(usual, FRAMES)
    through(other, [frame[:20] for frame in FRAMES], spacing=0.001)

    def dropped(direction):
        return [fault.number for fault in direction.log if fault.kind is Kind.DROP]

    assert dropped(usual) == dropped(other) != []


def test_spared_frames_meet_no_fault_and_do_not_change_the_fate_of_others():
    plain, mixed = Direction(Faults(drop=0.5), 3), Direction(Faults(drop=0.5, only=lambda frame: len(frame) > 42), 3)
    spared = bytes(42)
    arrived = through(mixed, [each for frame in FRAMES for each in (spared, frame)])
    assert arrived.count(spared) == len(FRAMES)
    assert [frame for frame in arrived if frame != spared] == through(plain, FRAMES)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("drop", Kind.DROP), ("duplicate", Kind.DUPLICATE), ("reorder", Kind.REORDER), ("corrupt", Kind.CORRUPT),
     ("truncate", Kind.TRUNCATE)],
)  # fmt: skip
def test_a_fault_is_counted_and_logged_as_often_as_its_probability_demands(fault, kind):
    direction = Direction(Faults(**{fault: 0.1}), seed=1)
    met = [at for at, frame in enumerate(FRAMES) if direction.offer(frame, float(at))]
    assert direction.log == [Fault(at, float(at), kind) for at in met]
    assert direction.counts == {kind: len(met)}
    assert 70 <= len(met) <= 130  # of 1,000, with this seed


def test_a_dropped_frame_does_not_arrive():
    assert through(Direction(Faults(drop=1.0)), FRAMES) == []


def test_the_second_copy_follows_the_first():
    assert through(Direction(Faults(duplicate=1.0)), FRAMES[:3]) == [each for each in FRAMES[:3] for _ in range(2)]


def test_a_late_frame_is_overtaken_by_frames_that_are_not_late():
    direction = Direction(Faults(reorder=1.0, reorder_by=0.5, delay=1.0))
    direction.offer(b"late", 0.0)
    direction.faults = Faults(delay=1.0)
    direction.offer(b"in time", 0.25)
    assert direction.due(1.25) == [b"in time"]
    assert direction.deadline == 1.5
    assert direction.due(1.5) == [b"late"]


@given(st.binary(min_size=13, max_size=100), st.integers(1, 4), st.integers())
def test_corruption_flips_exactly_its_bits_behind_the_mac_addresses(frame, bits, seed):
    [arrived] = through(Direction(Faults(corrupt=1.0, corrupt_bits=bits), seed), [frame])
    assert arrived[:12] == frame[:12]
    assert len(arrived) == len(frame)
    assert (int.from_bytes(arrived, "big") ^ int.from_bytes(frame, "big")).bit_count() == bits


def test_a_frame_with_a_bad_fcs_is_lost():
    direction = Direction(Faults(corrupt=1.0, bad_fcs=True))
    assert through(direction, FRAMES) == []
    assert direction.counts == {Kind.BAD_FCS: len(FRAMES)}


def test_truncation_leaves_the_ethernet_header_and_the_beginning():
    for frame, arrived in zip(FRAMES, through(Direction(Faults(truncate=1.0)), FRAMES), strict=True):
        assert 14 <= len(arrived) < len(frame)
        assert frame.startswith(arrived)


def test_a_frame_that_is_too_short_for_a_damage_is_left_alone():
    direction = Direction(Faults(truncate=1.0, corrupt=1.0))
    assert through(direction, [bytes(12), b""]) == [bytes(12), b""]
    assert direction.log == []


def test_frames_take_their_time_at_the_rate_and_then_the_delay():
    direction = Direction(Faults(rate=8000.0, delay=1.0))  # 1,000 octets per second
    for _ in range(3):
        direction.offer(bytes(500), 0.0)
    assert [len(direction.due(now)) for now in (1.49, 1.5, 1.99, 2.0, 2.5)] == [0, 1, 0, 1, 1]
    direction.offer(bytes(500), 10.0)
    assert direction.deadline == 11.5


def test_a_frame_that_finds_the_queue_full_is_lost():
    direction = Direction(Faults(rate=8000.0, queue=2))
    offered = [direction.offer(bytes(1000), now) for now in (0.0, 0.0, 0.0, 0.0, 0.99, 1.0, 1.0)]
    full = (Kind.OVERFLOW,)
    assert offered == [(), (), (), full, full, (), full]
    assert direction.counts == {Kind.OVERFLOW: 3}
    assert len(direction.due(3.0)) == 3
    assert direction.deadline == 4.0


def test_jitter_never_changes_the_order():
    direction = Direction(Faults(delay=1.0, jitter=5.0), seed=4)
    assert through(direction, FRAMES, spacing=0.1) == FRAMES


def test_a_cut_loses_frames_on_their_way_and_all_until_the_cable_is_joined():
    direction = Direction(Faults(delay=1.0, rate=8000.0))
    direction.offer(b"on its way", 0.0)
    direction.cut(0.5)
    assert direction.deadline is None
    assert direction.offer(b"lost", 0.6) == (Kind.CUT,)
    direction.join()
    assert direction.offer(b"arrives", 0.7) == ()
    assert direction.due(2.0) == [b"arrives"]
    assert direction.log == [Fault(0, 0.5, Kind.CUT), Fault(1, 0.6, Kind.CUT)]


probabilities = st.sampled_from([0.0, 0.1, 0.5, 1.0])
seconds = st.floats(0, 2)
plans = st.builds(
    Faults,
    **dict.fromkeys(FATES, probabilities),
    reorder_by=seconds,
    corrupt_bits=st.integers(1, 3),
    bad_fcs=st.booleans(),
    delay=seconds,
    jitter=seconds,
    rate=st.none() | st.floats(100, 1e9),
    queue=st.integers(0, 10),
)
steps = st.lists(st.tuples(st.floats(0, 1), st.sampled_from(["offer", "due", "change", "cut", "join"]), plans))


@given(steps, st.integers())
def test_frames_are_conserved(steps, seed):
    direction = Direction(seed=seed)
    now = 0.0
    delivered = 0
    for wait, action, plan in steps:
        now += wait
        match action:
            case "offer":
                direction.offer(bytes(100), now)
            case "due":
                delivered += len(direction.due(now))
                assert direction.deadline is None or direction.deadline > now
            case "change":
                direction.faults = plan
            case "cut":
                direction.cut(now)
            case "join":
                direction.join()
        expected = direction.offered - direction.lost + direction.counts[Kind.DUPLICATE]
        assert direction.delivered + direction.flying == expected
        assert direction.delivered == delivered
    assert direction.counts.total() == len(direction.log)


@pytest.mark.parametrize(
    ("name", "value"),
    [("drop", 1.1), ("corrupt", -0.1), ("delay", -1.0), ("jitter", float("nan")), ("rate", 0.0), ("queue", -1),
     ("corrupt_bits", 0)],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match=f"^{name} is .*{value}"):
        Faults(**{name: value})
