"""An IPv4 host with one Ethernet interface, without I/O.

Its user passes it the frames that arrive and the time, transmits the frames that it makes, and calls ``tick`` when
``deadline`` has come::

    host = Host(mac, IPv4Interface("10.9.0.1/24"))
    host.udp[7] = lambda source, port, payload, now: host.send_udp(7, source, port, payload, now)  # an echo server
    host.receive(frame, now)
    while host.frames:
        transmit(host.frames.popleft())

Received packets never wait: replies to them are queued like all others if ARP must resolve an address first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from ipaddress import IPv4Address, IPv4Interface
from random import Random

from open_rnic.host_driver.net.arp import ArpCache
from open_rnic.host_driver.net.claim import AddressClaim, ClaimState
from open_rnic.host_driver.net.frames import (
    BROADCAST_MAC,
    IPV4_OCTETS,
    MAC_OCTETS,
    UNKNOWN_MAC,
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
    Unreachable,
)

LEAST_MTU = 576  # RFC 791 §3.1: every host accepts packets of this length
MOST_MTU = 65535
_QUOTED_OCTETS = 8  # of a packet's data, in ICMP errors (RFC 1122 §3.2.2)
_LIMITED_BROADCAST = IPv4Address("255.255.255.255")

UdpHandler = Callable[[IPv4Address, int, bytes, float], None]


class NoRouteError(OSError):
    """A packet cannot be sent to its destination, or not from this host's address."""


class PacketTooLongError(OSError):
    """A packet is longer than the MTU; it would have to be fragmented."""


def local_mac(address: IPv4Address) -> bytes:
    """Return a MAC address that no two hosts of a network share: locally administered, individual (IEEE 802)."""
    return bytes((2, 0)) + address.packed


def _is_no_host(address: IPv4Address) -> bool:
    """Whether no host can have this address (RFC 1122 §3.2.1.3): 0/8, loopback, multicast and above."""
    first = address.packed[0]
    return first in (0, 127) or first >= 224


class Host:
    """An IPv4 host: Ethernet, ARP, IPv4 without fragments, ICMP echo and UDP.

    ``mac`` has 6 octets. ``gateway``, an address in the same network, is the next hop for all other networks; without
    it, they cannot be reached. ``mtu`` is the longest IPv4 packet in octets, 576 to 65,535. Raises ValueError for
    values that a host cannot have.

    Attributes
    ----------
    frames : the frames to be transmitted, without padding and FCS, the first on the left
    handlers : a function for each IPv4 protocol, called with the packet and the time. It may raise FrameError, which
        discards and counts the packet. The host's own for ICMP and UDP are there; only UDP receives broadcasts. Packets
        have been checked so that ``send`` to their source does not raise NoRouteError
    udp : a function for each local UDP port, called with the sender's address and port, the payload, and the time
    counters : the number of packets discarded for each reason

    """

    def __init__(
        self, mac: bytes, address: IPv4Interface, gateway: IPv4Address | None = None, *, mtu: int = 1500
    ) -> None:
        if len(mac) != MAC_OCTETS or mac[0] & 1 or mac == UNKNOWN_MAC:
            raise ValueError(f"{mac.hex(':')} is not the MAC of one host")
        network = address.network
        directed = {network.network_address, network.broadcast_address} if network.prefixlen < 31 else set()  # RFC 3021
        if _is_no_host(address.ip) or address.ip in directed:
            raise ValueError(f"{address} is not the address of a host")
        if gateway is not None and (gateway not in network or gateway in directed or gateway == address.ip):
            raise ValueError(f"the gateway {gateway} is not another host in {network}")
        if not LEAST_MTU <= mtu <= MOST_MTU:
            raise ValueError(f"the MTU is {LEAST_MTU} to {MOST_MTU} octets, not {mtu}")
        self.mac = mac
        self.address = address
        self.gateway = gateway
        self.mtu = mtu
        self.frames: deque[bytes] = deque()
        self.handlers: dict[int, Callable[[Ipv4, float], None]] = {
            Protocol.ICMP: self._receive_icmp,
            Protocol.UDP: self._receive_udp,
        }
        self.udp: dict[int, UdpHandler] = {}
        self.counters: Counter[Discard] = Counter()
        self._ip = address.ip
        self._broadcasts = frozenset({_LIMITED_BROADCAST, *directed})  # RFC 1122 §3.3.6: also the network's own address
        self._arp = ArpCache(self._request, self._transmit_ipv4, self.counters)
        self._claim = AddressClaim(mac, self._ip, self._broadcast_arp, Random(mac))  # RFC 5227 §2.1.1: random delays

    # Time.

    @property
    def deadline(self) -> float | None:
        """The time at which ``tick`` must be called next, in seconds; None if nothing is due."""
        return min((each for each in (self._arp.deadline, self._claim.deadline) if each is not None), default=None)

    def tick(self, now: float) -> None:
        """Do what is due at this time."""
        self._arp.tick(now)
        self._claim.tick(now)

    # The address.

    def probe(self, now: float) -> None:
        """Ask whether another host uses the address (RFC 5227 §2.1).

        Call it before anything is sent. ``probing`` is set for 4 to 7 seconds, in which packets are neither sent nor
        received. Then ``conflict`` is the result.
        """
        self._claim.probe(now)

    @property
    def probing(self) -> bool:
        """Whether the address is being probed."""
        return self._claim.state is ClaimState.PROBING

    @property
    def conflict(self) -> bytes | None:
        """The MAC of another host that uses this host's address; None if none was seen since the last ``probe``.

        If that host was found by ``probe``, this host no longer uses the address. Otherwise both do.
        """
        return self._claim.conflict

    # Transmit.

    def send(self, protocol: int, destination: IPv4Address, payload: bytes, now: float) -> None:
        """Send an IPv4 packet to a host or, by broadcast, to all hosts of the network.

        Raises NoRouteError if the destination cannot be reached, and PacketTooLongError if the packet exceeds the MTU.
        A packet whose next hop does not answer ARP is discarded and counted.
        """
        if self._claim.state is not ClaimState.HELD:
            reason = "is still being probed" if self.probing else f"is in use by {(self.conflict or b'').hex(':')}"
            raise NoRouteError(f"no packet can be sent from {self._ip}: the address {reason}")
        if IPV4_OCTETS + len(payload) > self.mtu:
            raise PacketTooLongError(f"a packet of {IPV4_OCTETS + len(payload)} octets exceeds the MTU of {self.mtu}")
        packet = Ipv4(self._ip, destination, protocol, payload).encode()
        if destination in self._broadcasts:
            self._transmit_ipv4(BROADCAST_MAC, packet)
        else:
            self._arp.send(self.next_hop(destination), packet, now)

    def send_udp(self, source_port: int, destination: IPv4Address, port: int, payload: bytes, now: float) -> None:
        """Send a UDP datagram; raises what ``send`` raises."""
        self.send(Protocol.UDP, destination, Udp(source_port, port, payload).encode(self._ip, destination), now)

    def next_hop(self, destination: IPv4Address) -> IPv4Address:
        """Return the neighbour that gets packets to the destination (RFC 1122 §3.3.1.1). Raises NoRouteError."""
        if destination == self._ip:
            raise NoRouteError(f"{destination} is this host's own address, and there is no loopback")
        if _is_no_host(destination):
            raise NoRouteError(f"{destination} is not the address of a host")
        if destination in self.address.network:
            return destination
        if self.gateway is None:
            network = self.address.network
            raise NoRouteError(f"no route to {destination}: it is outside of {network}, and there is no gateway")
        return self.gateway

    def _transmit(self, mac: bytes, ethertype: EtherType, payload: bytes) -> None:
        self.frames.append(Ethernet(mac, self.mac, ethertype, payload).encode())

    def _transmit_ipv4(self, mac: bytes, packet: bytes) -> None:
        self._transmit(mac, EtherType.IPV4, packet)

    def _request(self, address: IPv4Address, mac: bytes) -> None:
        arp = Arp(ArpOperation.REQUEST, self.mac, self._ip, UNKNOWN_MAC, address)
        self._transmit(mac, EtherType.ARP, arp.encode())

    def _broadcast_arp(self, packet: Arp) -> None:
        self._transmit(BROADCAST_MAC, EtherType.ARP, packet.encode())

    # Receive.

    def receive(self, frame: bytes, now: float) -> None:
        """Take a frame from the interface, without its FCS. It is processed at once, or discarded and counted."""
        try:
            self._receive(Ethernet.decode(frame).untagged(), now)
        except FrameError as error:
            self._count(error.reason)

    def _count(self, reason: Discard) -> None:
        self.counters[reason] += 1

    def _receive(self, frame: Ethernet, now: float) -> None:
        broadcast = frame.destination == BROADCAST_MAC
        if frame.destination != self.mac and not broadcast:
            self._count(Discard.MULTICAST if frame.destination[0] & 1 else Discard.OTHER_MAC)
        elif len(frame.payload) > self.mtu:
            self._count(Discard.TOO_LONG)
        elif frame.ethertype == EtherType.IPV4:
            self._receive_ipv4(Ipv4.decode(frame.payload), broadcast, now)
        elif frame.ethertype == EtherType.ARP:
            self._receive_arp(Arp.decode(frame.payload), now)
        else:
            self._count(Discard.ETHERTYPE)

    def _receive_arp(self, packet: Arp, now: float) -> None:
        """Learn the sender, and answer a request (RFC 826)."""
        if packet.sender_mac[0] & 1 or packet.sender_mac == UNKNOWN_MAC:
            raise FrameError(f"the sender hardware address is {packet.sender_mac.hex(':')}, not that of one host")
        if self._claim.contest(packet, now):
            self._count(Discard.CONFLICT)
            return
        asked = packet.operation is ArpOperation.REQUEST and packet.target == self._ip != packet.sender
        if asked and self._claim.state is not ClaimState.HELD:
            self._count(Discard.NOT_HELD)
            return
        learned = self._is_neighbour(packet.sender) and self._arp.learn(
            packet.sender, packet.sender_mac, now, create=asked
        )
        if asked:
            if packet.is_probe:
                self._count(Discard.CONFLICT)
            reply = Arp(ArpOperation.REPLY, self.mac, self._ip, packet.sender_mac, packet.sender)
            self._transmit(packet.sender_mac, EtherType.ARP, reply.encode())
        elif not learned:
            self._count(Discard.ARP_UNASKED)

    def _is_neighbour(self, address: IPv4Address) -> bool:
        """Whether a host of this network can have the address."""
        return address in self.address.network and address not in self._broadcasts

    def _receive_ipv4(self, packet: Ipv4, broadcast_frame: bool, now: float) -> None:
        broadcast = packet.destination in self._broadcasts
        if packet.destination != self._ip and not broadcast:
            self._count(Discard.OTHER_ADDRESS)
        elif _is_no_host(packet.source) or packet.source in self._broadcasts or packet.source == self._ip:
            self._count(Discard.BAD_SOURCE)  # RFC 1122 §3.2.1.3
        elif self.gateway is None and packet.source not in self.address.network:
            self._count(Discard.NO_ROUTE)
        elif self._claim.state is not ClaimState.HELD:
            self._count(Discard.NOT_HELD)
        elif (broadcast and packet.protocol != Protocol.UDP) or (broadcast_frame and not broadcast):
            self._count(Discard.BROADCAST)  # RFC 1122 §3.2.2.6 and RFC 9293 §3.9.2.3; RFC 1122 §3.3.6
        elif handler := self.handlers.get(packet.protocol):
            handler(packet, now)
        else:
            self._count(Discard.NO_PROTOCOL)
            self._report(Unreachable.PROTOCOL, packet, now)

    def _report(self, code: Unreachable, packet: Ipv4, now: float) -> None:
        """Send an ICMP error about a packet (RFC 1122 §3.2.2.1), unless it is a broadcast (§3.2.2)."""
        if packet.destination == self._ip:
            error = IcmpUnreachable(code, packet.header + packet.payload[:_QUOTED_OCTETS])
            self.send(Protocol.ICMP, packet.source, error.encode(), now)

    def _receive_icmp(self, packet: Ipv4, now: float) -> None:
        """Answer an echo request with all of its data (RFC 1122 §3.2.2.6)."""
        echo = IcmpEcho.decode(packet.payload)
        if echo.reply:
            self._count(Discard.ICMP_TYPE)
            return
        reply = IcmpEcho(True, echo.identifier, echo.sequence, echo.payload)
        self.send(Protocol.ICMP, packet.source, reply.encode(), now)

    def _receive_udp(self, packet: Ipv4, now: float) -> None:
        datagram = Udp.decode(packet.payload, packet.source, packet.destination)
        if handler := self.udp.get(datagram.destination_port):
            handler(packet.source, datagram.source_port, datagram.payload, now)
        else:
            self._count(Discard.NO_PORT)
            self._report(Unreachable.PORT, packet, now)  # RFC 1122 §4.1.3.1
