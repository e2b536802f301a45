"""Two endpoints of the twin against each other, under faults, in simulated time."""

from random import Random

import pytest

from open_rnic.cocotb_tests.host_driver.tcp.network import PORT, Faults, Network, exchange
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import End
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.host_driver.tcp.states import State


def random_config(rng):
    return TcpConfig(
        sack=rng.random() < 0.7,
        timestamps=rng.random() < 0.7,
        scaling=rng.random() < 0.7,
        send_ring=rng.choice([1500, 8192, 1 << 18]),
        receive_ring=rng.choice([1, 100, 1500, 8192, 1 << 18]),
        ranges=rng.choice([1, 4, 32]),
    )


@pytest.mark.parametrize("seed", range(30))
def test_octets_arrive_in_order_under_faults_with_any_options(seed):
    rng = Random(seed)
    configs = random_config(rng), random_config(rng)
    faults = Faults(rng.choice([0, 0.01, 0.05, 0.1]), rng.choice([0, 0.05]), rng.choice([0, 0.1]))
    small = min(each.receive_ring for each in configs) < 200
    exchange(Network(seed, faults, configs), (1000, 1000) if small else (100_000, 100_000))


@pytest.mark.parametrize("number", [2**32 - 1, 2**32 - 2, 2**32 - 1000, 2**31 - 5, 0])
def test_sequence_numbers_wrap(number):
    network = Network(1, Faults(loss=0.05, reordering=0.1), numbers=(number, number))
    exchange(network, (50_000, 50_000))


def test_without_faults_nothing_is_sent_twice():
    network = Network(1)
    ends = exchange(network, (500_000, 500_000))
    assert [each.retransmissions for each in ends] == [0, 0]


def test_a_lost_segment_is_sent_again_without_a_timeout():
    network = Network(2, Faults(loss=0.01))
    exchange(network, (1_000_000, 0))
    assert network.now < 12_000  # of simulated time; with a timeout for each loss it would be 7 times as much


def test_a_packet_of_the_user_has_segments_of_its_own():
    network = Network(3)
    ours, _ = network.open()
    sizes = [100, 1448, 1, 700]
    for size in sizes:
        network.active.send(ours, bytes(size), network.now)
    for _ in range(20):
        network.step(1)
    assert [len(each.payload) for each in network.segments if each.payload] == sizes


@pytest.mark.parametrize("size", [20 * 1448 - 1, 20 * 1448, 20 * 1448 + 1])
def test_no_segment_is_longer_than_the_mss_and_the_fin_is_in_the_last(size):
    network = Network(12)
    ours, theirs = network.open()
    network.active.send(ours, bytes(size), network.now)
    network.active.close(ours, network.now)
    while ours.state is not State.FIN_WAIT_2:
        network.step()
    sent = [each for each in network.segments if each.payload]
    assert [len(each.payload) for each in sent] == [min(1448, size - at) for at in range(0, size, 1448)]
    assert [bool(each.flags & Flag.FIN) for each in sent] == [False] * (len(sent) - 1) + [True]
    assert theirs.receiver.available == size


def test_both_ends_close_and_the_first_to_close_waits():
    network = Network(4)
    ours, theirs = network.open()
    network.active.close(ours, network.now)
    while ours.state is not State.FIN_WAIT_2:
        network.step()
    assert theirs.state is State.CLOSE_WAIT
    network.passive.close(theirs, network.now)
    while theirs.state is not State.CLOSED:
        network.step()
    assert (ours.state, theirs.end) == (State.TIME_WAIT, End.CLOSED)
    while network.step():
        pass
    assert ours.end is End.CLOSED
    assert not network.active.connections


def test_simultaneous_close_leaves_both_ends_in_time_wait():
    network = Network(5)
    ours, theirs = network.open()
    network.active.close(ours, network.now)
    network.passive.close(theirs, network.now)
    for _ in range(50):
        network.step(1)
    assert (ours.state, theirs.state) == (State.TIME_WAIT, State.TIME_WAIT)


def test_a_peer_that_vanishes_times_out():
    network = Network(6)
    ours, _ = network.open()
    network.faults = Faults(loss=1.0)
    network.active.send(ours, b"octets", network.now)
    while network.step():
        pass
    assert ours.end is End.TIMED_OUT
    assert network.now >= TcpConfig().give_up


def test_a_zero_window_is_probed_until_it_opens():
    network = Network(7, configs=(TcpConfig(), TcpConfig(receive_ring=4096)))
    ours, theirs = network.open()
    network.active.send(ours, bytes(10_000), network.now)
    start = network.now
    while network.now < start + 3_600_000:
        network.step()
    assert ours.end is None
    assert theirs.receiver.available == 4096
    received = 0
    while received < 10_000:
        received += len(network.passive.take(theirs, 10_000, network.now))
        network.step(10)


def test_a_window_that_the_peer_has_shrunk_to_zero_is_probed_and_its_octets_follow_at_once_when_it_opens():
    network = Network(11)
    ours, _ = network.open()
    active, peer, sender = network.active, network.passive.address, ours.sender

    def answer(window):
        """The peer acknowledges nothing new."""
        last = network.segments[-1]
        active.segments.clear()
        numbers = (last.ack, sender.una % 2**32)
        stamps = last.timestamps[::-1]
        active.receive(peer, Segment(PORT, last.source, *numbers, Flag.ACK, window, timestamps=stamps), network.now)
        return [each for _, each in active.segments]

    active.send(ours, bytes(10_000), network.now)
    for _ in range(100):
        answer(0)
        network.now = active.deadline
        active.tick(network.now)
    assert network.now > 3_600_000
    assert sender.in_flight == 10_000
    assert [(each.seq, len(each.payload)) for _, each in active.segments] == [(sender.una % 2**32, 1)]
    again = answer(65535)
    assert again[0].seq == sender.una % 2**32
    assert len(again[0].payload) == sender.mss


def test_a_segment_without_a_connection_is_answered_with_a_reset():
    network = Network(8)
    opening = network.active.open(network.passive.address, 9, 0)
    while opening.end is None:
        network.step()
    assert opening.end is End.REFUSED
    assert network.segments[-1].flags == Flag.RST | Flag.ACK


def test_an_abort_resets_the_peer():
    network = Network(9)
    ours, theirs = network.open()
    network.active.abort(ours)
    network.step()
    network.step()
    assert (ours.end, theirs.end) == (End.ABORTED, End.RESET)


def test_octets_that_nobody_takes_cause_a_reset_at_release():
    network = Network(10)
    ours, theirs = network.open()
    network.active.send(ours, b"octets", network.now)
    while not theirs.receiver.available:
        network.step()
    network.passive.release(theirs, network.now)
    network.step()
    assert ours.end is End.RESET
