"""The network interface against its twin in Python, with frames made by dpkt."""

import functools
import itertools
import random
from ipaddress import IPv4Address

import cocotb
import dpkt
import pytest

from open_rnic.cocotb_tests.harness import Rate, bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.rtl.net.bench import (
    BROADCAST,
    BROADCAST_MAC,
    FAR,
    FASTER,
    GATEWAY,
    LIMITED,
    MAC,
    NONE,
    OTHER,
    OTHER_MAC,
    OURS,
    PEER,
    PEER_MAC,
    PORT,
    REPLY,
    REQUEST,
    TCP,
    Interface,
    Twin,
    arp,
    echo,
    ethernet,
    ipv4,
    tcp,
    udp,
)
from open_rnic.host_driver.net.checksum import checksum, pseudo_header
from open_rnic.rtl.net.net import Net

NET = functools.partial(Net, udp_ports=(PORT,), unit=1024 // FASTER)
ECHO_REPLY = dpkt.icmp.ICMP_ECHOREPLY
LENGTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 1457, 1458, 1459, 1460)


def segment(payload, options=b""):
    """Return a TCP segment with a checksum of 0."""
    header = dpkt.tcp.TCP(
        sport=random.getrandbits(16), dport=random.getrandbits(16), seq=random.getrandbits(32),
        flags=random.getrandbits(8), urp=random.getrandbits(16), opts=options, off=5 + len(options) // 4, data=payload,
    )  # fmt: skip
    return bytes(header)[:16] + b"\0\0" + bytes(header)[18:]


@bench()
async def segments_are_delivered(dut):
    interface, twin = Interface(dut, tcp_rx=stalls(0.2)), Twin()
    frames = [tcp(random.randbytes(length), tcp_options=bytes(4 * random.randrange(3))) for length in LENGTHS]
    frames += [tcp(bytes(length), tcp_options=b"\1" * 40, to=PEER_MAC) for length in (1, 2)]
    frames += [tcp(random.randbytes(random.randrange(200)), source=random.choice([PEER, OTHER])) for _ in range(50)]
    for frame in frames:
        twin.receive(frame)
        interface.give(frame)
        await interface.taken(400)
    for each in twin.segments:
        assert await interface.segment() == each
    await interface.taken()
    assert interface.silent()
    discarded = len(frames) - len(twin.segments)  # those to another MAC, and longer than the MTU
    assert interface.counts == {"no_room": 0, "checksum": 0, "ignored": discarded}


@bench()
async def segments_are_sent(dut):
    interface, twin = Interface(dut, tx_frames=stalls(0.2)), Twin()
    await interface.introduce(twin)
    for length in LENGTHS:
        octets = segment(random.randbytes(length))
        interface.send_segment(octets)
        packet = dpkt.ip.IP(
            src=OURS.packed, dst=PEER.packed, p=TCP, data=dpkt.tcp.TCP(octets), df=1, len=20 + len(octets)
        )
        assert await interface.sent() == ethernet(packet, 0x0800, PEER_MAC, bytes((2, 0, 0, 0, 0, 1))).ljust(60, b"\0")


async def segment_leaves(interface, twin, octets, destination=PEER):
    """Check the next frame, which has this segment."""
    twin.host.send(TCP, destination, with_checksum(octets, destination), 0.0)
    assert await interface.sent() == twin.receive(b"")[0]


def with_checksum(octets, destination):
    """Return a segment with its checksum."""
    value = checksum(pseudo_header(OURS, destination, TCP, len(octets)), octets)
    return octets[:16] + value.to_bytes(2, "big") + octets[18:]


@bench()
async def stored_packets_leave_as_segments(dut):
    """With any pauses, between segments on the other way."""
    interface, twin = Interface(dut, gateway=GATEWAY, tx_frames=stalls(0.2)), Twin(GATEWAY)
    await interface.introduce(twin)
    await interface.introduce(twin, GATEWAY, OTHER_MAC)
    for length in (*range(9, 30), 100, *range(1453, 1461), *(random.randrange(30, 1460) for _ in range(20))):
        destination = random.choice([PEER, FAR])
        octets = segment(random.randbytes(length))
        await interface.store(octets[20:], destination, random.choice([0, 0.5]))
        assert await interface.stored(), length
        await interface.finish(octets)
        await segment_leaves(interface, twin, octets, destination)
        if random.random() < 0.5:
            octets = segment(random.randbytes(random.randrange(100)))
            interface.send_segment(octets)
            await segment_leaves(interface, twin, octets)


@bench()
async def other_frames_overtake_a_stored_packet(dut):
    """Whenever they come; the packet is given up, and leaves no trace."""
    interface, twin = Interface(dut), Twin()
    await interface.introduce(twin)

    def of_tcp():
        octets = segment(random.randbytes(random.randrange(40)))
        interface.send_segment(octets)
        twin.host.send(TCP, PEER, with_checksum(octets, PEER), 0.0)
        return twin.receive(b"")

    def of_udp():
        payload = random.randbytes(40)
        interface.send_datagram(payload)
        twin.host.send_udp(PORT, PEER, 5000, payload, 0.0)
        return twin.receive(b"")

    def received(frame):
        interface.give(frame)
        return twin.receive(frame)

    for give in (
        of_tcp, of_udp, lambda: received(echo(random.randbytes(40))),
        lambda: received(arp(REQUEST, PEER_MAC, PEER, OURS)),
    ):  # fmt: skip
        for delay in (0, 1, 2, 3, 4, 10, 20, 100):
            storing = cocotb.start_soon(interface.store(random.randbytes(200), idle=0))
            await interface.wait(delay)
            expected = give()
            assert [await interface.sent()] == expected
            await storing
            assert not await interface.stored()
            assert interface.silent()


@bench()
async def a_packet_that_cannot_leave_is_given_up(dut):
    interface, stranger, twin = Interface(dut), Twin(), Twin()
    stranger.host.send(TCP, PEER, segment(b""), 0.0)
    await interface.store(bytes(100))
    assert not await interface.stored()
    assert await interface.sent() == stranger.receive(b"")[0]  # the question for the MAC
    await interface.introduce(twin)
    for length, destination in ((8, PEER), (1461, PEER), (1600, PEER), (100, FAR), (100, OURS), (100, BROADCAST)):
        await interface.store(random.randbytes(length), destination)
        assert not await interface.stored(), (length, destination)
    await interface.store(bytes(100))
    assert await interface.stored()
    await interface.cancel()
    assert not await interface.stored()
    assert interface.silent()
    octets = segment(random.randbytes(100))
    await interface.store(octets[20:])
    await interface.finish(octets)
    await segment_leaves(interface, twin, octets)


@bench()
async def an_unknown_next_hop_is_asked_for(dut):
    interface, twin = Interface(dut, gateway=GATEWAY), Twin(GATEWAY)
    for destination in (PEER, FAR):
        twin.host.send(TCP, destination, segment(b""), 0.0)
        interface.send_segment(segment(b"payload"), destination)
        assert await interface.sent() == twin.receive(b"")[0]
    interface.send_segment(segment(b"payload"), FAR)
    await interface.wait(100)
    assert interface.silent()
    for reply in (arp(REPLY, PEER_MAC, PEER, OURS), arp(REPLY, OTHER_MAC, GATEWAY, OURS)):
        interface.give(reply)
        await interface.taken()
    interface.send_segment(segment(b"payload"), FAR)
    assert (await interface.sent())[:6] == OTHER_MAC
    interface.send_segment(segment(b"payload"), PEER)
    assert (await interface.sent())[:6] == PEER_MAC
    await interface.wait(100)
    assert interface.silent()


@bench()
async def back_to_back_frames_are_received(dut):
    """A beat in each cycle or in every second one; the queues are never full."""
    interface, twin = Interface(dut, itertools.cycle([parameter("pause")])), Twin()
    kinds = tcp, udp, echo, functools.partial(ipv4, protocol=TCP)
    for _ in range(400):
        frame = random.choice(kinds)(random.randbytes(random.randrange(60)))
        frame, bad = mutated(frame) if random.random() < 0.3 else frame, random.random() < 0.1
        interface.give(frame, bad=bad)
        if not bad:
            twin.receive(frame)
    await interface.taken()
    for each in twin.segments:
        assert await interface.segment() == each
    await interface.wait(100)
    assert interface.sinks["tcp_rx"].empty()


def mutated(frame):
    """Return the frame with a bit changed, cut off, or with octets behind it."""
    kind = random.randrange(3)
    if kind == 0:
        return frame[: random.randrange(1, len(frame))]
    if kind == 1:
        return frame + random.randbytes(random.randrange(40))
    octets = bytearray(frame)
    octets[random.randrange(len(octets))] ^= 1 << random.randrange(8)
    return bytes(octets)


def tagged(frame, priority, vlan):
    """Return a frame with a tag, or perhaps two."""
    tag = b"\x81\x00" + (priority << 13 | vlan).to_bytes(2, "big")
    return frame[:12] + tag * random.choice([1, 1, 1, 2]) + frame[12:]


def random_frame(rng):
    """Return any frame: good or bad, for this host or another."""
    no_hosts = [*map(IPv4Address, ("10.9.0.0", "127.0.0.1", "224.0.0.1")), NONE, BROADCAST, LIMITED]
    sources = [PEER] * 8 + [OTHER, FAR, OURS, *no_hosts]
    destinations = [OURS] * 8 + [OTHER, *no_hosts]
    macs = [MAC] * 8 + [BROADCAST_MAC, OTHER_MAC, bytes.fromhex("01005e000001")]
    where = {"source": rng.choice(sources), "destination": rng.choice(destinations), "to": rng.choice(macs)}
    where["options"] = bytes(4 * rng.choice([0, 0, 0, 1, 10]))
    payload = rng.randbytes(rng.choice([0, 1, 2, 3, 4, 5, 20, 100, 1460, rng.randrange(1500)]))
    kind = rng.randrange(8)
    if kind == 0:
        sender_mac, operation = rng.choice([PEER_MAC, OTHER_MAC, MAC, bytes(6), BROADCAST_MAC]), rng.choice([1, 2, 3])
        frame = arp(operation, sender_mac, rng.choice(sources), rng.choice(destinations), destination=where["to"])
        return frame + bytes(rng.choice([0, 18]))
    if kind == 1:
        return ipv4(payload, rng.choice([2, 6, 17, 1, 253]), **where, df=rng.randrange(2), mf=rng.randrange(2))
    if kind == 2:
        return ethernet(payload, rng.choice([0x0800, 0x0806, 0x86DD, 46]), where["to"])
    if kind == 3:
        return udp(payload, port=rng.choice([PORT, PORT, PORT + 256]), **where)
    if kind == 4:
        return echo(payload, kind=rng.choice([8, 8, 8, 0, 3]), **where)
    return tcp(payload, tcp_options=b"\1" * (4 * rng.choice([0, 0, 1, 10])), **where)


@bench(cycles=400_000)
async def any_frame_is_treated_as_by_the_twin(dut):
    interface, twin = Interface(dut, pauses(0.1), tx_frames=stalls(0.1), tcp_rx=stalls(0.1), udp_rx=stalls(0.1)), Twin()
    await interface.introduce(twin)
    await interface.introduce(twin, OTHER, OTHER_MAC)
    for _ in range(600):
        frame, now = random_frame(random), 0.0
        if random.random() < 0.3:
            frame = mutated(frame)
        if random.random() < 0.2:
            frame = tagged(frame, *random.choice([(0, 0), (7, 0), (7, 0), (0, 1), (5, 0x800), (7, 0x0FF)]))
        frames = [each for each in twin.receive(frame, now) if each[12:14] != b"\x08\x00" or each[34] == ECHO_REPLY]
        interface.give(frame)
        await interface.taken(20)
        for each in twin.segments:
            assert await interface.segment() == each, frame.hex()
        for each in twin.datagrams:
            assert await interface.datagram() == each, frame.hex()
        for each in frames:
            assert await interface.sent() == each, frame.hex()
        twin.segments.clear(), twin.datagrams.clear()
        await interface.wait(20)
        assert interface.silent(), frame.hex()


@bench()
async def a_segment_is_delivered_whole_or_counted(dut):
    """While ``tcp_rx`` stalls, at least two full segments are kept, and small ones as long as there is room."""
    stalled = itertools.chain([4000], itertools.repeat(0))
    interface, twin = Interface(dut, tcp_rx=stalled), Twin()
    for length in (1460, 1460, 1460, 0, 100, 1460, *[500] * 20):
        frame = tcp(random.randbytes(length))
        interface.give(frame)
        twin.receive(frame)
    await interface.frames.drained()
    lost = interface.counts["no_room"]
    assert 0 < lost <= len(twin.segments) - 4
    left = iter(twin.segments)
    for number in range(len(twin.segments) - lost):
        found = await interface.segment()
        assert found in left  # in order
        if number < 2:
            assert len(found[1]) == 1480
    await interface.taken()
    assert interface.silent()


@bench()
async def receive_does_not_wait_for_transmit(dut):
    """While ``tx_frames`` and ``udp_rx`` stall, segments are delivered; echo requests and datagrams are counted."""
    interface, twin = Interface(dut, tx_frames=itertools.repeat(20_000), udp_rx=itertools.repeat(20_000)), Twin()
    for _ in range(20):
        question = arp(REQUEST, PEER_MAC, PEER, OURS)
        for frame in (echo(bytes(1472)), udp(bytes(1472)), question, tcp(random.randbytes(9))):
            interface.give(frame)
            twin.receive(frame)
    for each in twin.segments:
        assert await interface.segment() == each
    await interface.taken()
    assert interface.counts["no_room"] >= 19 + 19
    assert interface.counts["checksum"] == interface.counts["ignored"] == 0


@bench(cycles=400_000)
async def macs_are_confirmed_and_forgotten(dut):
    interface = Interface(dut)
    await interface.introduce()
    await interface.pass_time(59_000)
    interface.send_segment(segment(b""))
    assert (await interface.sent())[:6] == PEER_MAC
    await interface.wait(50)
    assert interface.silent()
    await interface.pass_time(8_000)
    for _ in range(2):  # of two segments, one leads to a request
        interface.send_segment(segment(b""))
    frames = [await interface.sent() for _ in range(3)]
    assert sorted(frame[12:14] for frame in frames) == [b"\x08\x00", b"\x08\x00", b"\x08\x06"]
    assert {frame[:6] for frame in frames} == {PEER_MAC}
    await interface.pass_time(60_000)
    for _ in range(2):
        interface.send_segment(segment(b""))
    request = await interface.sent()
    assert request == arp(REQUEST, MAC, OURS, PEER).ljust(60, b"\0")
    await interface.wait(100)
    assert interface.silent()


@bench()
async def requests_for_an_address_are_a_second_apart(dut):
    interface = Interface(dut)
    for _ in range(10):
        interface.send_segment(segment(b""))
        assert await interface.sent() == arp(REQUEST, MAC, OURS, PEER).ljust(60, b"\0")
        for _ in range(3):
            await interface.pass_time(random.randrange(300))
            interface.send_segment(segment(b""))
        await interface.wait(100)
        assert interface.silent()
        await interface.pass_time(2048)
    interface.give(arp(REPLY, PEER_MAC, PEER, OURS))
    await interface.taken()
    interface.send_segment(segment(b""))
    assert (await interface.sent())[:6] == PEER_MAC
    for address in (FAR, OURS, BROADCAST, LIMITED, NONE):
        interface.send_segment(segment(b""), address)
    await interface.wait(100)
    assert interface.silent()


@bench(cycles=400_000)
async def the_address_is_defended(dut):
    interface, twin = Interface(dut), Twin()
    probe = arp(REQUEST, OTHER_MAC, NONE, OURS)
    announcement, reply = arp(REQUEST, OTHER_MAC, OURS, OURS), arp(REPLY, OTHER_MAC, OURS, PEER)
    interface.give(probe)
    assert [await interface.sent()] == twin.receive(probe)
    assert interface.conflicts == 0
    interface.give(announcement)
    assert [await interface.sent()] == twin.receive(announcement)
    for frame, seconds in ((reply, 8), (announcement, 0)):
        await interface.pass_time(1000 * seconds)
        interface.give(frame)
        await interface.taken()
        assert interface.silent()
        assert not twin.receive(frame, seconds)
    await interface.pass_time(4000)
    interface.give(reply)
    assert [await interface.sent()] == twin.receive(reply, 12.0)
    interface.give(arp(REQUEST, MAC, OURS, OURS))  # a frame that has come back
    await interface.taken()
    assert interface.conflicts == 4
    assert interface.silent()


@bench(cycles=400_000)
async def the_oldest_neighbour_is_forgotten(dut):
    interface = Interface(dut)
    neighbours = [(PEER + number, bytes((2, 0, 0, 0, 1, number))) for number in range(9)]
    for address, mac in neighbours[:8]:
        await interface.introduce(address=address, mac=mac)
        await interface.pass_time(1024)
    await interface.introduce(None, *neighbours[0])
    await interface.introduce(None, *neighbours[8])
    for address, mac in (*neighbours[:1], *neighbours[2:]):
        interface.send_segment(segment(b""), address)
        assert (await interface.sent())[:6] == mac
    interface.send_segment(segment(b""), neighbours[1][0])
    assert await interface.sent() == arp(REQUEST, MAC, OURS, neighbours[1][0]).ljust(60, b"\0")


@bench()
async def segments_are_sent_at_the_rate_of_the_wire(dut):
    """A frame of 64 octets with the FCS takes 84 octets on the wire, 42 cycles of 16 ns; one of 1,518 takes 769."""
    interface, twin = Interface(dut, tx_frames=itertools.cycle([1])), Twin()
    for number in reversed(range(8)):  # the peer's entry is found last
        await interface.introduce(twin, PEER + number)
    rate = Rate(dut, "tx_frames")
    for lengths, cycles in (([0] * 20, 20 * 42), ([1460] * 4, 4 * 769), ([1460, 0] * 4, 4 * (769 + 42))):
        await interface.wait(10)
        rate.restart()
        for length in lengths:
            interface.send_segment(segment(random.randbytes(length)))
        for _ in lengths:
            await interface.sent()
        dut._log.info("%s octets: %d cycles", lengths, rate.used)
        assert rate.used <= cycles


@bench()
async def echo_requests_are_answered(dut):
    interface, twin = Interface(dut, tx_frames=stalls(0.2)), Twin()
    await interface.introduce(twin)
    for length in (*LENGTHS, 1471, 1472):
        request = echo(random.randbytes(length))
        interface.give(request)
        assert [await interface.sent()] == twin.receive(request)


@bench()
async def datagrams_are_delivered_and_sent(dut):
    interface, twin = Interface(dut, tx_frames=stalls(0.2), udp_rx=stalls(0.2)), Twin()
    await interface.introduce(twin)
    for length in (*LENGTHS, 1471, 1472):
        destination, to = random.choice([(OURS, None), (BROADCAST, BROADCAST_MAC), (LIMITED, BROADCAST_MAC)])
        frame = udp(random.randbytes(length), destination=destination, **({"to": to} if to else {}))
        interface.give(frame)
        twin.receive(frame)
        assert await interface.datagram() == twin.datagrams.pop()
        payload = random.randbytes(length)
        destination = random.choice([PEER, BROADCAST, LIMITED])
        interface.send_datagram(payload, destination)
        twin.host.send_udp(PORT, destination, 5000, payload, 0.0)
        assert await interface.sent() == twin.receive(b"")[0]


@pytest.mark.parametrize(
    "bench",
    [
        segments_are_delivered,
        segments_are_sent,
        stored_packets_leave_as_segments,
        other_frames_overtake_a_stored_packet,
        a_packet_that_cannot_leave_is_given_up,
        an_unknown_next_hop_is_asked_for,
        a_segment_is_delivered_whole_or_counted,
        any_frame_is_treated_as_by_the_twin,
        macs_are_confirmed_and_forgotten,
        receive_does_not_wait_for_transmit,
        requests_for_an_address_are_a_second_apart,
        the_address_is_defended,
        the_oldest_neighbour_is_forgotten,
        segments_are_sent_at_the_rate_of_the_wire,
        echo_requests_are_answered,
        datagrams_are_delivered_and_sent,
    ],
)
def test_net(bench):
    simulate(NET, bench)


@pytest.mark.parametrize("pause", [0, 1])
def test_net_at_full_rate(pause):
    simulate(NET, back_to_back_frames_are_received, parameters={"pause": pause})
