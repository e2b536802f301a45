"""Random and mutated segments do not stop an endpoint of the twin."""

import contextlib
from ipaddress import IPv4Address
from random import Random

import pytest

from open_rnic.cocotb_tests.host_driver.tcp.network import PORT, Faults, Network, exchange
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.soaks.faults import forged
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import Flag, Segment, SegmentError
from open_rnic.host_driver.tcp.states import State

COUNT = 2_000  # segments a seed


def flipped(octets, rng):
    """Octets with one to three bits flipped, perhaps cut off."""
    found = bytearray(octets)
    for _ in range(rng.randint(1, 3)):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found[: rng.randrange(len(found))] if rng.random() < 0.2 else found)


@pytest.mark.parametrize("seed", shortened("more seeds", 1, range(3)))
def test_octets_with_flipped_bits_are_no_segment(seed):
    rng, here, there = Random(seed), IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
    network = Network(seed)
    exchange(network, (20_000, 20_000))
    for _ in range(COUNT):
        octets = rng.choice(network.segments).encode(here, there)
        wrong = bytearray(octets)
        wrong[rng.randrange(len(wrong))] ^= 1 << rng.randrange(8)
        with pytest.raises(SegmentError):
            Segment.decode(bytes(wrong), here, there)
        with contextlib.suppress(SegmentError):
            Segment.decode(flipped(octets, rng), here, there)


@pytest.mark.parametrize("seed", shortened("more seeds", 1, range(5)))
def test_forged_segments_end_a_connection_at_worst(seed):
    rng = Random(seed)
    network = Network(seed, Faults(loss=0.01))
    ours, theirs = network.open()
    for _ in range(COUNT):
        if ours.end or theirs.end:
            ours, theirs = network.open()
        for endpoint, connection in ((network.active, ours), (network.passive, theirs)):
            if not connection.end and not connection.sender.closing:
                endpoint.send(connection, rng.randbytes(rng.choice([1, 1000])), network.now)
                endpoint.take(connection, 100_000, network.now)
        endpoint = rng.choice([network.active, network.passive])
        source = network.passive if endpoint is network.active else network.active
        to_passive = endpoint is network.passive
        if candidates := [each for each in network.segments[-40:] if (each.destination == PORT) == to_passive]:
            endpoint.receive(source.address, forged(rng.choice(candidates), rng), network.now)
        network.step(5)
    exchange(network, (50_000, 50_000))


@pytest.mark.parametrize("delay", [10, 60, 100, 240])
def test_two_ends_whose_numbers_differ_do_not_acknowledge_each_other_for_ever(delay):
    """Each has taken a forged octet; beyond a round trip of half a second, they acknowledge each other twice in one."""
    network = Network(1, Faults(delay=delay), configs=2 * (TcpConfig(timestamps=False),))
    ours, theirs = network.open()
    for here, there, endpoint in ((ours, theirs, network.active), (theirs, ours, network.passive)):
        ports = there.peer.local_port, here.peer.local_port
        numbers = (here.receiver.next % 2**32, here.sender.next % 2**32)
        source = network.passive if endpoint is network.active else network.active
        endpoint.receive(source.address, Segment(*ports, *numbers, Flag.ACK, 65535, b"x"), network.now)
    before, ends = len(network.segments), network.now + 60_000
    while network.now < ends and network.step(1000):
        pass
    assert len(network.segments) - before < 8


def test_forged_syns_keep_a_peer_out_for_three_seconds():
    endpoint, flood = Endpoint(IPv4Address("10.0.0.2")), IPv4Address("10.0.9.9")
    endpoint.listen(PORT, backlog=3)
    for port in range(1000, 1003):
        endpoint.receive(flood, Segment(port, PORT, 7, 0, Flag.SYN, 65535), port - 1000)
    syn = Segment(9999, PORT, 7, 0, Flag.SYN, 65535)
    answered = {}
    for now in (500, 2999, 3000):
        endpoint.segments.clear()
        endpoint.receive(IPv4Address("10.0.0.1"), syn, now)
        answered[now] = [segment.flags for _, segment in endpoint.segments]
    assert answered == {500: [], 2999: [], 3000: [Flag.SYN | Flag.ACK]}
    assert [peer.port for peer in endpoint.connections] == [1001, 1002, 9999]


def test_a_peer_whose_syn_ack_is_lost_keeps_its_place_although_another_one_wants_it():
    endpoint, peer, other = (Endpoint(IPv4Address("10.0.0.2")), *map(IPv4Address, ("10.0.0.1", "10.0.0.3")))
    endpoint.listen(PORT, backlog=1)
    endpoint.receive(peer, Segment(1000, PORT, 7, 0, Flag.SYN, 65535), 0)
    endpoint.segments.clear()  # it is lost
    endpoint.tick(1000)
    [(_, repeated)] = endpoint.segments
    endpoint.receive(other, Segment(1000, PORT, 7, 0, Flag.SYN, 65535), 1001)
    endpoint.receive(peer, Segment(1000, PORT, 8, repeated.seq + 1, Flag.ACK, 65535), 1100)
    assert [each.state for each in endpoint.connections.values()] == [State.ESTABLISHED]
