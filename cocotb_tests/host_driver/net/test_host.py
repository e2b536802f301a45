"""The host with scripted frames and time. dpkt makes the frames that it receives, and decodes those that it makes."""

import itertools
from ipaddress import IPv4Address, IPv4Interface

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.net.arp import EXPIRED, FRESH, INTERVAL, MOST_ADDRESSES, MOST_WAITING, TRIES
from open_rnic.host_driver.net.claim import ANNOUNCE_NUM, DEFEND_INTERVAL, PROBE_NUM
from open_rnic.host_driver.net.frames import Discard, FrameError
from open_rnic.host_driver.net.host import Host, NoRouteError, PacketTooLongError

MAC, PEER_MAC, OTHER_MAC = (bytes((2, 0, 0, 0, 0, last)) for last in (1, 2, 3))
BROADCAST_MAC = b"\xff" * 6
OURS, PEER, OTHER, GATEWAY, FAR = map(IPv4Address, ("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.254", "192.0.2.1"))
NONE, BROADCAST, LIMITED = map(IPv4Address, ("0.0.0.0", "10.9.0.255", "255.255.255.255"))
PROTOCOL = 253  # for experiments (RFC 3692)
REQUEST, REPLY = dpkt.arp.ARP_OP_REQUEST, dpkt.arp.ARP_OP_REPLY


def ethernet(data, kind, destination=MAC, source=PEER_MAC):
    return bytes(dpkt.ethernet.Ethernet(dst=destination, src=source, type=kind, data=data))


def arp(operation, sender_mac, sender, target, target_mac=bytes(6), destination=BROADCAST_MAC):
    fields = {"sha": sender_mac, "spa": sender.packed, "tha": target_mac, "tpa": target.packed}
    return ethernet(dpkt.arp.ARP(op=operation, **fields), 0x0806, destination, sender_mac)


def ipv4(data, protocol=PROTOCOL, source=PEER, destination=OURS, to=MAC):
    packet = dpkt.ip.IP(src=source.packed, dst=destination.packed, p=protocol, data=data)
    return ethernet(packet, 0x0800, to)


def tagged(frame, control):
    """Return a frame with a tag of this control information: 3 bits of priority, the DEI, and the VLAN ID."""
    return frame[:12] + b"\x81\x00" + control.to_bytes(2, "big") + frame[12:]


def udp(port, payload=b"payload", **addresses):
    datagram = dpkt.udp.UDP(sport=5000, dport=port, ulen=8 + len(payload), data=payload)
    return ipv4(datagram, dpkt.ip.IP_PROTO_UDP, **addresses)


def echo(payload=b"payload", kind=dpkt.icmp.ICMP_ECHO, **addresses):
    message = dpkt.icmp.ICMP(type=kind, data=dpkt.icmp.ICMP.Echo(id=1, seq=2, data=payload))
    return ipv4(message, dpkt.ip.IP_PROTO_ICMP, **addresses)


def sent(host):
    """Take the frames that the host made, decoded by dpkt."""
    frames = [dpkt.ethernet.Ethernet(frame) for frame in host.frames]
    assert all(frame.src == host.mac for frame in frames)
    host.frames.clear()
    return frames


def sent_arp(host):
    """Take the ARP packets that the host made: Ethernet destination, operation, sender, target MAC, target."""
    frames = sent(host)
    assert all(frame.type == 0x0806 and frame.data.sha == host.mac for frame in frames)
    return [
        (frame.dst, frame.data.op, IPv4Address(frame.data.spa), frame.data.tha, IPv4Address(frame.data.tpa))
        for frame in frames
    ]


def asks(address, to=BROADCAST_MAC):
    return to, REQUEST, OURS, bytes(6), address


def payloads(host):
    """Take the IPv4 packets that the host made: the Ethernet destination and the payload of each."""
    return [(frame.dst, bytes(frame.data.data)) for frame in sent(host)]


def deadlines(host):
    """Yield the time of each deadline until none is left; fails after 100."""
    for _ in range(100):
        if host.deadline is None:
            return
        yield host.deadline
    pytest.fail("the host never runs out of deadlines")


@pytest.fixture
def host():
    return Host(MAC, IPv4Interface("10.9.0.1/24"))


@pytest.fixture
def known(host):
    """A host that knows its peer since time 0."""
    host.receive(arp(REQUEST, PEER_MAC, PEER, OURS), 0.0)
    host.frames.clear()
    return host


# ARP.


def test_request_for_our_address_is_answered(host):
    host.receive(arp(REQUEST, PEER_MAC, PEER, OURS), 0.0)
    assert sent_arp(host) == [(PEER_MAC, REPLY, OURS, PEER_MAC, PEER)]


def test_sender_of_a_request_is_learned(known):
    known.send(PROTOCOL, PEER, b"payload", 1.0)
    assert payloads(known) == [(PEER_MAC, b"payload")]
    assert known.deadline is None


def test_packets_wait_for_the_reply_and_leave_in_order(host):
    for payload in (b"1", b"2"):
        host.send(PROTOCOL, PEER, payload, 0.0)
    assert sent_arp(host) == [asks(PEER)]
    host.receive(arp(REPLY, PEER_MAC, PEER, OURS, MAC, destination=MAC), 0.5)
    assert payloads(host) == [(PEER_MAC, b"1"), (PEER_MAC, b"2")]
    assert host.deadline is None


def test_requests_are_repeated_once_a_second_and_then_given_up(host):
    host.send(PROTOCOL, PEER, b"1", 0.0)
    host.send(PROTOCOL, PEER, b"2", 0.1)
    times = [0.0] * len(sent_arp(host))
    for now in deadlines(host):
        host.tick(now - 0.001)
        assert not host.frames
        host.tick(now)
        times += [now] * len(sent_arp(host))
    assert times == [INTERVAL * number for number in range(TRIES)]
    assert host.counters == {Discard.ARP_FAILED: 2}


def test_resolution_begins_again_after_a_failure(host):
    for start in (0.0, INTERVAL * TRIES):
        host.send(PROTOCOL, PEER, b"payload", start)
        for number in range(1, TRIES + 1):
            host.tick(start + number * INTERVAL)
        assert sent_arp(host) == [asks(PEER)] * TRIES


@given(st.lists(st.tuples(st.floats(0, 0.7), st.sampled_from(["send", "tick", "answer"])), max_size=60))
def test_there_is_at_most_one_request_a_second(steps):
    host, now, times = Host(MAC, IPv4Interface("10.9.0.1/24")), 0.0, []
    for delay, step in steps:
        now += delay
        if step == "send":
            host.send(PROTOCOL, PEER, b"payload", now)
        elif step == "tick":
            host.tick(now)
        elif times and now - times[-1] < 1.0:
            host.receive(arp(REPLY, PEER_MAC, PEER, OURS, MAC, destination=MAC), now)
        times += [now for frame in sent(host) if frame.type == 0x0806]
    assert all(later - earlier >= INTERVAL for earlier, later in itertools.pairwise(times))


def test_oldest_packets_that_wait_are_discarded(host):
    for number in range(MOST_WAITING + 3):
        host.send(PROTOCOL, PEER, bytes([number]), 0.0)
    assert host.counters == {Discard.ARP_QUEUE: 3}
    host.frames.clear()
    host.receive(arp(REPLY, PEER_MAC, PEER, OURS, MAC, destination=MAC), 0.5)
    assert payloads(host) == [(PEER_MAC, bytes([number])) for number in range(3, MOST_WAITING + 3)]


def test_every_packet_to_an_unresolved_address_is_sent_or_counted():
    host = Host(MAC, IPv4Interface("10.0.0.1/8"))
    for number in range(MOST_ADDRESSES + 5):
        host.send(PROTOCOL, IPv4Address("10.1.0.0") + number, b"payload", 0.0)
    assert len(host.frames) == MOST_ADDRESSES
    assert host.counters == {Discard.ARP_QUEUE: 5}


def test_cache_is_bounded_and_forgets_the_address_confirmed_longest_ago():
    host = Host(MAC, IPv4Interface("10.0.0.1/8"))
    ours, first = IPv4Address("10.0.0.1"), IPv4Address("10.1.0.0")
    for number in [*range(MOST_ADDRESSES), 1, 0, MOST_ADDRESSES]:
        host.receive(arp(REQUEST, PEER_MAC, first + number, ours), 0.0)
    host.frames.clear()
    for number in (0, 1, 2):
        host.send(PROTOCOL, first + number, b"payload", 0.0)
    assert [frame.type for frame in sent(host)] == [0x0800, 0x0800, 0x0806]


def test_old_entry_is_used_and_polled(known):
    known.send(PROTOCOL, PEER, b"payload", FRESH - 0.001)
    assert payloads(known) == [(PEER_MAC, b"payload")]
    known.send(PROTOCOL, PEER, b"payload", FRESH)
    known.send(PROTOCOL, PEER, b"payload", FRESH + 0.1)
    packet, poll, another = known.frames
    assert packet == another
    known.frames = type(known.frames)([poll])
    assert sent_arp(known) == [asks(PEER, to=PEER_MAC)]


def test_answered_poll_confirms_the_entry(known):
    known.send(PROTOCOL, PEER, b"payload", FRESH)
    known.receive(arp(REPLY, PEER_MAC, PEER, OURS, MAC, destination=MAC), FRESH + 0.5)
    known.frames.clear()
    assert known.deadline is None
    known.send(PROTOCOL, PEER, b"payload", 2 * FRESH)
    assert payloads(known) == [(PEER_MAC, b"payload")]


def test_entry_that_does_not_answer_polls_is_dropped(known):
    known.send(PROTOCOL, PEER, b"payload", FRESH)
    for now in deadlines(known):
        known.tick(now)
    assert not known.counters  # the packet itself was sent
    known.frames.popleft()
    assert sent_arp(known) == [asks(PEER, to=PEER_MAC)] * TRIES
    known.send(PROTOCOL, PEER, b"payload", FRESH + TRIES * INTERVAL)
    assert sent_arp(known) == [asks(PEER)]


def test_expired_entry_is_resolved_again_before_it_is_used(known):
    known.send(PROTOCOL, PEER, b"payload", EXPIRED)
    assert sent_arp(known) == [asks(PEER)]


def test_gratuitous_arp_changes_a_known_entry(known):
    known.receive(arp(REQUEST, OTHER_MAC, PEER, PEER), 1.0)
    known.send(PROTOCOL, PEER, b"payload", 1.0)
    assert payloads(known) == [(OTHER_MAC, b"payload")]


@pytest.mark.parametrize("operation", [REQUEST, REPLY])
def test_gratuitous_arp_of_an_unknown_address_is_not_learned(host, operation):
    host.receive(arp(operation, PEER_MAC, PEER, PEER), 0.0)
    assert host.counters == {Discard.ARP_UNASKED: 1}
    host.send(PROTOCOL, PEER, b"payload", 0.0)
    assert sent_arp(host) == [asks(PEER)]


def test_request_for_another_host_is_counted(host):
    host.receive(arp(REQUEST, PEER_MAC, PEER, OTHER), 0.0)
    assert (host.counters, list(host.frames)) == ({Discard.ARP_UNASKED: 1}, [])


@pytest.mark.parametrize("mac", [BROADCAST_MAC, b"\x01\0\x5e\0\0\1", bytes(6)])
def test_mac_that_no_host_has_is_not_learned(host, mac):
    host.receive(arp(REQUEST, mac, PEER, OURS), 0.0)
    assert (host.counters, list(host.frames)) == ({Discard.MALFORMED: 1}, [])


@pytest.mark.parametrize("sender", [FAR, BROADCAST])
def test_sender_outside_of_the_network_is_answered_but_not_learned(host, sender):
    host.gateway = GATEWAY
    host.receive(arp(REQUEST, PEER_MAC, sender, OURS), 0.0)
    assert sent_arp(host) == [(PEER_MAC, REPLY, OURS, PEER_MAC, sender)]
    host.receive(arp(REPLY, PEER_MAC, sender, OURS), 0.0)
    assert host.counters == {Discard.ARP_UNASKED: 1}


# Conflicts (RFC 5227).


def test_probe_of_another_host_is_answered_counted_and_not_learned(host):
    host.receive(arp(REQUEST, PEER_MAC, NONE, OURS), 0.0)
    assert sent_arp(host) == [(PEER_MAC, REPLY, OURS, PEER_MAC, NONE)]
    assert host.counters == {Discard.CONFLICT: 1}
    assert host.conflict is None  # it will choose another address


@pytest.mark.parametrize("target", [OURS, PEER])
@pytest.mark.parametrize("operation", [REQUEST, REPLY])
def test_use_of_our_address_by_another_host_is_reported_and_answered_once_in_ten_seconds(host, operation, target):
    announcement = (BROADCAST_MAC, REQUEST, OURS, bytes(6), OURS)
    for now, defence in ((0.0, [announcement]), (DEFEND_INTERVAL - 0.1, []), (DEFEND_INTERVAL, [announcement])):
        host.receive(arp(operation, PEER_MAC, OURS, target), now)
        assert sent_arp(host) == defence
    assert host.conflict == PEER_MAC
    assert host.counters == {Discard.CONFLICT: 3}


def test_our_own_reflected_arp_is_no_conflict(host):
    host.receive(arp(REQUEST, MAC, OURS, OURS), 0.0)
    assert host.conflict is None
    assert host.counters == {Discard.ARP_UNASKED: 1}


def run(host, until=100.0):
    """Tick until nothing is due; returns the time and the sender of each ARP packet."""
    seen = []
    for now in itertools.takewhile(lambda now: now <= until, deadlines(host)):
        host.tick(now)
        seen += [(now, sender) for _, _, sender, _, target in sent_arp(host) if target == OURS]
    return seen


def test_probes_and_announcements_have_the_times_of_rfc_5227_section_1_1(host):
    host.probe(0.0)
    assert host.probing
    seen = run(host)
    assert [sender for _, sender in seen] == [NONE] * PROBE_NUM + [OURS] * ANNOUNCE_NUM
    times = [now for now, _ in seen]
    first, *spacing = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert 0 <= first <= 1
    assert all(1 <= each <= 2 for each in spacing[: PROBE_NUM - 1])
    assert spacing[PROBE_NUM - 1 :] == pytest.approx([2, 2])
    assert (host.probing, host.conflict) == (False, None)
    host.send(PROTOCOL, PEER, b"payload", times[-1])


def test_hosts_probe_at_different_times():
    hosts = [Host(mac, IPv4Interface("10.9.0.1/24")) for mac in (MAC, PEER_MAC)]
    for host in hosts:
        host.probe(0.0)
    assert hosts[0].deadline != hosts[1].deadline


@pytest.mark.parametrize(
    "frame",
    [
        arp(REPLY, PEER_MAC, OURS, NONE, MAC, destination=MAC),
        arp(REQUEST, PEER_MAC, OURS, OTHER),
        arp(REQUEST, PEER_MAC, NONE, OURS),  # another host probes for it at the same time
    ],
)
def test_address_in_use_ends_probing(host, frame):
    host.probe(0.0)
    run(host, until=2.0)
    host.receive(frame, 2.0)
    assert (host.probing, host.conflict, host.deadline) == (False, PEER_MAC, None)
    with pytest.raises(NoRouteError, match=r"from 10\.9\.0\.1: the address is in use by 02:00:00:00:00:02$"):
        host.send(PROTOCOL, PEER, b"", 3.0)


def test_probe_of_another_host_for_another_address_is_no_conflict(host):
    host.probe(0.0)
    host.receive(arp(REQUEST, PEER_MAC, NONE, OTHER), 0.0)
    assert (host.probing, host.conflict) == (True, None)


def test_lost_address_is_not_defended(host):
    host.probe(0.0)
    for _ in range(2):
        host.receive(arp(REQUEST, PEER_MAC, OURS, OTHER), 0.0)
    assert (host.counters, list(host.frames)) == ({Discard.CONFLICT: 2}, [])


def test_address_that_is_being_probed_is_not_used(host):
    host.probe(0.0)
    host.receive(arp(REQUEST, PEER_MAC, PEER, OURS), 0.0)
    host.receive(echo(), 0.0)
    assert host.counters == {Discard.NOT_HELD: 2}
    assert not host.frames
    with pytest.raises(NoRouteError, match=r"the address is still being probed$"):
        host.send(PROTOCOL, PEER, b"", 0.0)


def test_address_can_be_probed_again(host):
    host.probe(0.0)
    host.receive(arp(REQUEST, PEER_MAC, OURS, OTHER), 0.0)
    host.probe(60.0)
    run(host)
    assert (host.probing, host.conflict) == (False, None)


# Routes.


def test_gateway_is_the_next_hop_for_other_networks():
    host = Host(MAC, IPv4Interface("10.9.0.1/24"), GATEWAY)
    host.send(PROTOCOL, FAR, b"payload", 0.0)
    assert sent_arp(host) == [asks(GATEWAY)]
    host.receive(arp(REPLY, PEER_MAC, GATEWAY, OURS, MAC, destination=MAC), 0.0)
    (frame,) = sent(host)
    assert (frame.dst, frame.data.dst) == (PEER_MAC, FAR.packed)


@pytest.mark.parametrize("destination", [BROADCAST, LIMITED])
def test_broadcast_is_sent_to_all_hosts_at_once(host, destination):
    host.send(PROTOCOL, destination, b"payload", 0.0)
    assert payloads(host) == [(BROADCAST_MAC, b"payload")]


@pytest.mark.parametrize(
    ("destination", "message"),
    [
        (FAR, r"no route to 192\.0\.2\.1: it is outside of 10\.9\.0\.0/24, and there is no gateway"),
        (OURS, r"10\.9\.0\.1 is this host's own address, and there is no loopback"),
        (IPv4Address("127.0.0.1"), r"127\.0\.0\.1 is not the address of a host"),
        (IPv4Address("224.0.0.1"), r"224\.0\.0\.1 is not the address of a host"),
        (NONE, r"0\.0\.0\.0 is not the address of a host"),
    ],
)
def test_no_route_is_an_error(host, destination, message):
    with pytest.raises(NoRouteError, match=f"^{message}$"):
        host.send(PROTOCOL, destination, b"", 0.0)


def test_packet_longer_than_the_mtu_is_an_error(host):
    host.send(PROTOCOL, PEER, bytes(1480), 0.0)
    with pytest.raises(PacketTooLongError, match=r"^a packet of 1501 octets exceeds the MTU of 1500$"):
        host.send(PROTOCOL, PEER, bytes(1481), 0.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((bytes(5), "10.9.0.1/24"), "00:00:00:00:00 is not the MAC of one host"),
        ((bytes(6), "10.9.0.1/24"), "00:00:00:00:00:00 is not the MAC of one host"),
        ((BROADCAST_MAC, "10.9.0.1/24"), "ff:ff:ff:ff:ff:ff is not the MAC of one host"),
        ((MAC, "10.9.0.0/24"), "10.9.0.0/24 is not the address of a host"),
        ((MAC, "10.9.0.255/24"), "10.9.0.255/24 is not the address of a host"),
        ((MAC, "127.0.0.1/8"), "127.0.0.1/8 is not the address of a host"),
        ((MAC, "10.9.0.1/24", FAR), "the gateway 192.0.2.1 is not another host in 10.9.0.0/24"),
        ((MAC, "10.9.0.1/24", OURS), "the gateway 10.9.0.1 is not another host in 10.9.0.0/24"),
        ((MAC, "10.9.0.1/24", None, 575), "the MTU is 576 to 65535 octets, not 575"),
    ],
)
def test_impossible_host_is_rejected(arguments, message):
    mac, address, gateway, mtu = (*arguments, *(None, 1500)[len(arguments) - 2 :])
    with pytest.raises(ValueError, match=f"^{message}$"):
        Host(mac, IPv4Interface(address), gateway, mtu=mtu)


def test_network_of_two_addresses_has_no_broadcast():  # RFC 3021
    host = Host(MAC, IPv4Interface("10.9.0.0/31"))
    host.send(PROTOCOL, IPv4Address("10.9.0.1"), b"", 0.0)
    assert sent(host)[0].type == 0x0806


# ICMP and UDP.


@pytest.mark.parametrize("octets", [0, 1, 56, 1472])
def test_echo_request_is_answered_with_its_data(known, octets):
    known.receive(echo(b"x" * octets), 1.0)
    (frame,) = sent(known)
    assert (frame.dst, frame.data.src, frame.data.dst) == (PEER_MAC, OURS.packed, PEER.packed)
    reply = frame.data.icmp
    assert (reply.type, reply.code, reply.echo.id, reply.echo.seq, reply.echo.data) == (0, 0, 1, 2, b"x" * octets)
    assert dpkt.in_cksum(bytes(frame.data.data)) == 0


@pytest.mark.parametrize("control", [0, 7 << 13, 0xF000])
def test_frames_with_a_tag_that_has_only_a_priority_are_received_as_without_it(known, control):
    known.receive(tagged(arp(REQUEST, PEER_MAC, PEER, OURS), control), 1.0)
    known.receive(tagged(echo(), control), 1.0)
    assert [frame.type for frame in sent(known)] == [0x0806, 0x0800]


def test_answer_waits_for_arp_and_receive_does_not(host):
    host.receive(echo(b"1"), 0.0)
    host.receive(echo(b"2"), 0.0)
    assert sent_arp(host) == [asks(PEER)]
    host.receive(arp(REPLY, PEER_MAC, PEER, OURS, MAC, destination=MAC), 0.5)
    assert [frame.data.icmp.echo.data for frame in sent(host)] == [b"1", b"2"]


def test_udp_reaches_the_handler_of_its_port(known):
    received = []
    known.udp[7] = lambda *arguments: received.append(arguments)
    known.receive(udp(7), 1.5)
    assert received == [(PEER, 5000, b"payload", 1.5)]
    assert not known.counters


def test_udp_is_sent(known):
    known.send_udp(7, PEER, 5000, b"payload", 1.0)
    (frame,) = sent(known)
    datagram = frame.data.udp
    assert (datagram.sport, datagram.dport, datagram.data) == (7, 5000, b"payload")
    assert frame.data.df == 1


@pytest.mark.parametrize(("address", "to"), [(BROADCAST, BROADCAST_MAC), (LIMITED, BROADCAST_MAC)])
def test_broadcast_reaches_a_udp_handler(known, address, to):
    received = []
    known.udp[7] = lambda *arguments: received.append(arguments)
    known.receive(udp(7, destination=address, to=to), 1.0)
    assert len(received) == 1


@pytest.mark.parametrize(
    ("frame", "code", "reason"),
    [(udp(9), 3, Discard.NO_PORT), (ipv4(b"123456789"), 2, Discard.NO_PROTOCOL), (ipv4(b""), 2, Discard.NO_PROTOCOL)],
)
def test_undeliverable_packet_is_reported_to_its_sender(known, frame, code, reason):
    known.receive(frame, 1.0)
    (report,) = sent(known)
    error = report.data.icmp
    assert (report.data.dst, error.type, error.code) == (PEER.packed, 3, code)
    assert bytes(report.data.data)[8:] == frame[14 : 14 + 28]
    assert known.counters == {reason: 1}


@pytest.mark.parametrize("frame", [udp(9, destination=BROADCAST, to=BROADCAST_MAC), udp(9, destination=LIMITED)])
def test_undeliverable_broadcast_is_not_reported(known, frame):
    known.receive(frame, 1.0)
    assert (known.counters, list(known.frames)) == ({Discard.NO_PORT: 1}, [])


def test_handler_gets_its_protocol(known):
    received = []
    known.handlers[PROTOCOL] = lambda packet, now: received.append((packet.source, packet.payload, now))
    known.receive(ipv4(b"payload"), 2.0)
    assert received == [(PEER, b"payload", 2.0)]


def test_handler_can_discard_a_packet(known):
    def handler(packet, now):
        raise FrameError("the checksum is wrong", Discard.BAD_CHECKSUM)

    known.handlers[PROTOCOL] = handler
    known.receive(ipv4(b"payload"), 2.0)
    assert known.counters == {Discard.BAD_CHECKSUM: 1}


# Discarded frames.


def damaged(frame, at):
    return frame[:at] + bytes([frame[at] ^ 1]) + frame[at + 1 :]


def fragment():
    packet = dpkt.ip.IP(src=PEER.packed, dst=OURS.packed, p=PROTOCOL, mf=1, data=b"payload")
    return ethernet(packet, 0x0800)


DISCARDED = [
    (bytes(13), Discard.MALFORMED),
    (ethernet(b"", 0x0800), Discard.MALFORMED),
    (ethernet(b"", 0x0806), Discard.MALFORMED),
    (damaged(echo(), 14 + 8), Discard.BAD_CHECKSUM),
    (damaged(echo(), 14 + 28), Discard.BAD_CHECKSUM),
    (damaged(udp(7), 14 + 28), Discard.BAD_CHECKSUM),
    (fragment(), Discard.FRAGMENT),
    (ipv4(bytes(1481)), Discard.TOO_LONG),
    (echo(to=OTHER_MAC), Discard.OTHER_MAC),
    (echo(to=b"\x01\0\x5e\0\0\1"), Discard.MULTICAST),
    (ethernet(b"", 0x86DD), Discard.ETHERTYPE),
    (ethernet(b"", 0x8100), Discard.ETHERTYPE),
    (tagged(echo(), 1), Discard.ETHERTYPE),
    (tagged(echo(), 7 << 13 | 0x800), Discard.ETHERTYPE),
    (tagged(tagged(echo(), 0), 0), Discard.ETHERTYPE),
    (ethernet(bytes(46), 46), Discard.ETHERTYPE),
    (echo(destination=OTHER), Discard.OTHER_ADDRESS),
    (echo(destination=IPv4Address("224.0.0.1"), to=BROADCAST_MAC), Discard.OTHER_ADDRESS),
    *((echo(source=source), Discard.BAD_SOURCE) for source in (NONE, OURS, BROADCAST, LIMITED)),
    (echo(source=IPv4Address("127.0.0.1")), Discard.BAD_SOURCE),
    (echo(source=IPv4Address("224.0.0.1")), Discard.BAD_SOURCE),
    (echo(source=FAR), Discard.NO_ROUTE),
    (echo(destination=BROADCAST, to=BROADCAST_MAC), Discard.BROADCAST),
    (echo(destination=LIMITED), Discard.BROADCAST),
    (ipv4(b"", destination=BROADCAST), Discard.BROADCAST),
    (echo(to=BROADCAST_MAC), Discard.BROADCAST),
    (echo(kind=dpkt.icmp.ICMP_ECHOREPLY), Discard.ICMP_TYPE),
    (echo(kind=dpkt.icmp.ICMP_TSTAMP), Discard.ICMP_TYPE),
]


@pytest.mark.parametrize(("frame", "reason"), DISCARDED)
def test_discarded_frame_is_counted_and_not_answered(known, frame, reason):
    known.receive(frame, 1.0)
    assert (known.counters, list(known.frames)) == ({reason: 1}, [])


FRAMES = [
    echo(),
    udp(7),
    udp(9),
    ipv4(b"payload"),
    arp(REQUEST, PEER_MAC, PEER, OURS),
    arp(REPLY, PEER_MAC, PEER, OURS),
]


@st.composite
def mutated(draw):
    frame = bytearray(draw(st.sampled_from(FRAMES)))
    for _ in range(draw(st.integers(0, 4))):
        frame[draw(st.integers(0, len(frame) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))] if draw(st.booleans()) else frame)


def carries(frame, payload):
    """Whether the frame holds this UDP payload between correct checksums, as dpkt reads it."""
    packet = dpkt.ethernet.Ethernet(frame).data
    header, datagram = frame[14 : 14 + 4 * packet.hl], packet.udp
    covered = frame[14 + 4 * packet.hl :][: datagram.ulen]
    pseudo = packet.src + packet.dst + b"\0\x11" + covered[4:6]
    correct = dpkt.in_cksum(header) == 0 and (datagram.sum == 0 or dpkt.in_cksum(pseudo + covered) == 0)
    return correct and covered[8:] == payload


@given(st.lists(st.tuples(st.one_of(mutated(), st.binary(max_size=80)), st.floats(0, 30)), max_size=30))
def test_no_sequence_of_frames_stops_the_host(steps):
    host, now, delivered = Host(MAC, IPv4Interface("10.9.0.1/24")), 0.0, []
    host.udp[7] = lambda source, port, payload, now: delivered.append(payload)
    for frame, delay in steps:
        now += delay
        host.tick(now)
        host.frames.clear()
        discarded = host.counters.total()
        host.receive(frame, now)
        assert all(carries(frame, payload) for payload in delivered)
        replied = host.frames or host.deadline is not None  # a reply waits for ARP
        assert replied or delivered or host.counters.total() > discarded or frame[12:14] == b"\x08\x06"
        delivered.clear()
    host.receive(arp(REQUEST, PEER_MAC, PEER, OURS), now)
    host.frames.clear()
    host.receive(echo(), now)
    assert [frame.data.icmp.type for frame in sent(host)] == [0]
