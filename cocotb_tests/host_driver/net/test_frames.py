"""The formats of frames against dpkt: what one side encodes, the other decodes; damaged octets never pass."""

from ipaddress import IPv4Address

import dpkt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.net.checksum import checksum
from open_rnic.host_driver.net.frames import (
    BROADCAST_MAC,
    Arp,
    ArpOperation,
    Discard,
    Ethernet,
    EtherType,
    FrameError,
    IcmpEcho,
    IcmpUnreachable,
    Ipv4,
    Protocol,
    Udp,
)

MACS = st.binary(min_size=6, max_size=6)
ADDRESSES = st.integers(0, 2**32 - 1).map(IPv4Address)
U8, U16 = st.integers(0, 0xFF), st.integers(0, 0xFFFF)
PAYLOADS = st.binary(max_size=200)
A, B = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")

ETHERNETS = st.builds(Ethernet, MACS, MACS, U16, PAYLOADS)
ARPS = st.builds(Arp, st.sampled_from(ArpOperation), MACS, ADDRESSES, MACS, ADDRESSES)
IPV4S = st.builds(Ipv4, ADDRESSES, ADDRESSES, U8, PAYLOADS, U8, U16)
ECHOES = st.builds(IcmpEcho, st.booleans(), U16, U16, PAYLOADS)
UNREACHABLES = st.builds(IcmpUnreachable, U8, PAYLOADS)
UDPS = st.builds(Udp, U16, U16, PAYLOADS)


@given(st.one_of(ETHERNETS, ARPS, IPV4S, ECHOES, UNREACHABLES))
def test_decode_reverses_encode(frame):
    assert type(frame).decode(frame.encode()) == frame


@given(UDPS, ADDRESSES, ADDRESSES)
def test_decode_of_udp_reverses_encode(datagram, source, destination):
    assert Udp.decode(datagram.encode(source, destination), source, destination) == datagram


@given(ETHERNETS)
def test_ethernet_is_that_of_dpkt(frame):
    theirs = dpkt.ethernet.Ethernet(dst=frame.destination, src=frame.source, type=frame.ethertype, data=frame.payload)
    assert frame.encode() == bytes(theirs)


@given(ARPS)
def test_arp_is_that_of_dpkt(packet):
    theirs = dpkt.arp.ARP(
        op=packet.operation,
        sha=packet.sender_mac,
        spa=packet.sender.packed,
        tha=packet.target_mac,
        tpa=packet.target.packed,
    )
    assert packet.encode() == bytes(theirs)


@given(IPV4S)
def test_ipv4_is_that_of_dpkt(packet):
    theirs = dpkt.ip.IP(
        src=packet.source.packed,
        dst=packet.destination.packed,
        p=packet.protocol,
        ttl=packet.ttl,
        id=packet.identification,
        df=1,
        data=packet.payload,
    )
    assert packet.encode() == bytes(theirs)


@given(ECHOES)
def test_icmp_echo_is_that_of_dpkt(echo):
    data = dpkt.icmp.ICMP.Echo(id=echo.identifier, seq=echo.sequence, data=echo.payload)
    assert echo.encode() == bytes(dpkt.icmp.ICMP(type=0 if echo.reply else 8, data=data))


@given(UDPS, ADDRESSES, ADDRESSES)
def test_udp_is_that_of_dpkt(datagram, source, destination):
    theirs = dpkt.udp.UDP(
        sport=datagram.source_port,
        dport=datagram.destination_port,
        ulen=8 + len(datagram.payload),
        data=datagram.payload,
    )
    packet = dpkt.ip.IP(src=source.packed, dst=destination.packed, p=dpkt.ip.IP_PROTO_UDP, data=theirs)
    assert datagram.encode(source, destination) == bytes(packet)[20:]


def test_port_unreachable_is_that_of_dpkt():
    quoted = Ipv4(A, B, Protocol.UDP, bytes(8)).encode()
    theirs = dpkt.icmp.ICMP(IcmpUnreachable(3, quoted).encode())
    assert (theirs.type, theirs.code, bytes(theirs.unreach.ip)) == (3, 3, quoted)


def options(octets):
    """An IPv4 packet of dpkt with options."""
    packet = dpkt.ip.IP(src=A.packed, dst=B.packed, p=253, opts=octets, data=b"payload")
    packet.hl = 5 + len(octets) // 4
    return bytes(packet)


@pytest.mark.parametrize("octets", [0, 4, 40])
def test_options_are_skipped(octets):
    packet = Ipv4.decode(options(b"\x01" * octets))
    assert (packet.payload, packet.header) == (b"payload", options(b"\x01" * octets)[: 20 + octets])


@given(IPV4S, PAYLOADS)
def test_padding_behind_an_ipv4_packet_is_cut_off(packet, padding):
    assert Ipv4.decode(packet.encode() + padding) == packet


@given(UDPS, PAYLOADS)
def test_octets_behind_a_udp_datagram_are_cut_off(datagram, padding):
    assert Udp.decode(datagram.encode(A, B) + padding, A, B) == datagram


def test_udp_checksum_of_zero_is_sent_as_ones():
    ports = next(ports for ports in range(0x10000) if not checksum(Udp(ports, 9, b"").encode(A, B)[:6], PSEUDO_UDP))
    assert Udp(ports, 9, b"").encode(A, B)[6:] == b"\xff\xff"
    assert Udp.decode(Udp(ports, 9, b"").encode(A, B), A, B) == Udp(ports, 9, b"")


PSEUDO_UDP = A.packed + B.packed + bytes([0, 17, 0, 8])


def test_udp_without_a_checksum_is_accepted():
    octets = bytearray(Udp(7, 9, b"payload").encode(A, B))
    octets[6:8] = b"\0\0"
    octets[-1] ^= 1
    assert Udp.decode(bytes(octets), A, B).payload == b"payloae"


def with_header(change, **changes):
    """An IPv4 packet whose header fields dpkt has changed, with a correct header checksum."""
    packet = dpkt.ip.IP(Ipv4(A, B, 253, b"payload").encode())
    for name, value in changes.items():
        setattr(packet, name, value)
    packet.sum = 0
    header = packet.pack_hdr()
    packet.sum = dpkt.in_cksum(header)
    return packet.pack_hdr() + change(b"payload")


IPV4_ERRORS = [
    ({"v": 6}, "the IP version is 6, not 4"),
    ({"hl": 4}, "the IHL is 4, less than 5"),
    ({"hl": 15}, "an IPv4 packet with IHL 15 has 27 octets, fewer than 60"),
    ({"len": 19}, "the IPv4 total length is 19, not 20 to 27"),
    ({"len": 28}, "the IPv4 total length is 28, not 20 to 27"),
    ({"mf": 1}, "flags and fragment offset are 0x6000: a fragment"),
    ({"offset": 1}, "flags and fragment offset are 0x4001: a fragment"),
]


@pytest.mark.parametrize(("changes", "message"), IPV4_ERRORS)
def test_ipv4_error_names_the_field(changes, message):
    with pytest.raises(FrameError, match=f"^{message}$") as caught:
        Ipv4.decode(with_header(bytes, **changes))
    assert caught.value.reason is (Discard.FRAGMENT if "fragment" in message else Discard.MALFORMED)


def arp(**fields):
    return bytes(dpkt.arp.ARP(**{"sha": b"\2" * 6, "spa": A.packed, "tha": bytes(6), "tpa": B.packed} | fields))


ERRORS = [
    (Ethernet.decode, bytes(13), "an Ethernet frame has 13 octets, fewer than 14"),
    (Arp.decode, bytes(27), "an ARP packet has 27 octets, fewer than 28"),
    (Arp.decode, arp(hrd=6), "the ARP hardware type is 0x6, not 0x1"),
    (Arp.decode, arp(pro=0x86DD), "the ARP protocol type is 0x86dd, not 0x800"),
    (Arp.decode, arp(hln=8), "the ARP hardware address length is 0x8, not 0x6"),
    (Arp.decode, arp(pln=16), "the ARP protocol address length is 0x10, not 0x4"),
    (Arp.decode, arp(op=3), "the ARP operation is 3, neither request nor reply"),
    (Ipv4.decode, bytes(19), "an IPv4 packet has 19 octets, fewer than 20"),
    (IcmpEcho.decode, bytes(7), "an ICMP message has 7 octets, fewer than 8"),
    (IcmpEcho.decode, IcmpUnreachable(3, b"").encode(), "the ICMP type is 3, not an echo"),
    (IcmpEcho.decode, bytes.fromhex("0801f7fe00000000"), "the code of an ICMP echo is 1, not 0"),
    (IcmpUnreachable.decode, IcmpEcho(True, 1, 2, b"").encode(), "the ICMP type is 0, not Destination Unreachable"),
    (IcmpEcho.decode, bytes.fromhex("0800f7fe00000000"), "the checksum of an ICMP message is wrong by 0x0001"),
    (lambda octets: Udp.decode(octets, A, B), bytes(7), "a UDP datagram has 7 octets, fewer than 8"),
    (lambda octets: Udp.decode(octets, A, B), b"\0\1\0\2\0\x07\0\0", "the UDP length is 7, not 8 to 8"),
    (lambda octets: Udp.decode(octets, A, B), b"\0\1\0\2\0\x09\0\0", "the UDP length is 9, not 8 to 8"),
    (lambda payload: Ipv4(A, B, 6, payload).encode(), bytes(65516), "the IPv4 total length is 65536, more than 65535"),
    (lambda payload: Udp(1, 2, payload).encode(A, B), bytes(65528), "the UDP length is 65536, more than 65535"),
    (
        lambda mac: Ethernet(mac, BROADCAST_MAC, 0, b""),
        bytes(5),
        "the Ethernet destination is 00:00:00:00:00, not 6 octets",
    ),
]


@pytest.mark.parametrize(("action", "octets", "message"), ERRORS)
def test_error_names_the_field(action, octets, message):
    with pytest.raises(FrameError, match=f"^{message}$"):
        action(octets)


def decoded(decode, octets):
    """What ``decode`` returns; None if it raises FrameError. Any other exception is a failure."""
    try:
        return decode(octets)
    except FrameError:
        return None


@given(st.binary(max_size=80))
def test_random_octets_are_decoded_or_refused(octets):
    for decode in (Ethernet.decode, Arp.decode, Ipv4.decode, IcmpEcho.decode, IcmpUnreachable.decode):
        decoded(decode, octets)
    decoded(lambda octets: Udp.decode(octets, A, B), octets)


def repaired(octets, at, before=b"", length=None):
    """The octets with dpkt's checksum at offset ``at``, over ``before`` and the first ``length`` octets."""
    if len(octets) < at + 2:
        return octets
    cleared = octets[:at] + b"\0\0" + octets[at + 2 :]
    return octets[:at] + dpkt.in_cksum(before + cleared[:length]).to_bytes(2, "big") + octets[at + 2 :]


def repaired_ipv4(octets):
    return repaired(octets, 10, length=4 * (octets[0] & 0xF)) if octets else octets


def repaired_icmp(octets):
    return repaired(octets, 2)


def repaired_udp(octets):
    length = int.from_bytes(octets[4:6], "big")
    return repaired(octets, 6, before=A.packed + B.packed + b"\0\x11" + octets[4:6], length=length)


@st.composite
def mutated(draw, frames, repair):
    """Octets of a frame with a few changes or cut short, in half of the cases with a checksum that is correct again."""
    octets = bytearray(draw(frames))
    for _ in range(draw(st.integers(0, 3))):
        octets[draw(st.integers(0, len(octets) - 1))] = draw(U8)
    del octets[draw(st.integers(0, len(octets))) if draw(st.booleans()) else len(octets) :]
    return repair(bytes(octets)) if draw(st.booleans()) else bytes(octets)


def dpkt_decoded(kind, octets):
    try:
        return kind(octets)
    except dpkt.UnpackError:
        return None


@given(mutated(IPV4S.map(Ipv4.encode), repaired_ipv4))
def test_mutated_ipv4_is_accepted_exactly_if_dpkt_and_the_checksum_agree(octets):
    packet, theirs = decoded(Ipv4.decode, octets), dpkt_decoded(dpkt.ip.IP, octets)
    good = (
        theirs is not None
        and (theirs.v, theirs.mf, theirs.offset) == (4, 0, 0)
        and 4 * theirs.hl <= theirs.len <= len(octets)
        and dpkt.in_cksum(octets[: 4 * theirs.hl]) == 0
    )
    assert (packet is not None) == good
    if good:
        assert (packet.source.packed, packet.destination.packed, packet.protocol) == (theirs.src, theirs.dst, theirs.p)
        assert packet.payload == octets[4 * theirs.hl : theirs.len]


@given(mutated(ECHOES.map(IcmpEcho.encode), repaired_icmp))
def test_mutated_icmp_is_accepted_exactly_if_its_checksum_is_correct(octets):
    good = len(octets) >= 8 and octets[0] in (0, 8) and octets[1] == 0 and dpkt.in_cksum(octets) == 0
    assert (decoded(IcmpEcho.decode, octets) is not None) == good


@given(mutated(UDPS.map(lambda datagram: datagram.encode(A, B)), repaired_udp))
def test_mutated_udp_is_accepted_exactly_if_it_has_a_correct_checksum_or_none(octets):
    datagram = decoded(lambda octets: Udp.decode(octets, A, B), octets)
    theirs = dpkt_decoded(dpkt.udp.UDP, octets)
    good = theirs is not None and 8 <= theirs.ulen <= len(octets)
    if good and theirs.sum:
        covered = octets[: theirs.ulen]
        good = dpkt.in_cksum(A.packed + B.packed + b"\0\x11" + covered[4:6] + covered) == 0
    assert (datagram is not None) == good
    if good:
        assert datagram == Udp(theirs.sport, theirs.dport, octets[8 : theirs.ulen])


def test_types_are_those_of_dpkt():
    assert (EtherType.IPV4, EtherType.ARP) == (dpkt.ethernet.ETH_TYPE_IP, dpkt.ethernet.ETH_TYPE_ARP)
    assert list(Protocol) == [dpkt.ip.IP_PROTO_ICMP, dpkt.ip.IP_PROTO_TCP, dpkt.ip.IP_PROTO_UDP]
