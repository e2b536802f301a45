"""A capture of a connection as pcapng, made from the octets that both ends send.

Host software sees octets, not packets, so the packets are constructed: Ethernet, IPv4 or IPv6, and TCP with the
connection's real addresses and ports, a handshake, sequence numbers that start at 0 in each direction, correct
checksums, and FINs. Each startup frame and each FPDU has a segment of its own, as RFC 5044 §5.1 recommends and RFC 6581
§4.3 assumes. Wireshark checks CRCs in a stream with markers only then.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from dpkt import ethernet, ip, ip6, pcapng, tcp

from open_rnic.host_driver.connection import Address
from open_rnic.host_driver.observer import Closed, Direction, Observer, Octets, Opened, Seen
from open_rnic.rtl.registers import Role

_SNAPLEN = 1 << 18
# The largest payload for the 16-bit length fields of IPv4 and IPv6. The longest FPDU, of a ULPDU of 64,768 octets with
# 129 markers, has 65,292 octets, so no FPDU is ever split.
_MAX_PAYLOAD = 65535 - 20 - 20
_OPTIONS = b"\x02\x04" + _MAX_PAYLOAD.to_bytes(2, "big") + b"\x03\x03\x0e\x01"  # MSS; window scale 14
_WINDOW = 65535


@dataclass
class _End:
    """One end's half of the TCP connection."""

    mac: bytes
    address: bytes = b""
    port: int = 0
    sequence: int = 0  # of the next octet
    identification: int = 0
    finished: bool = False


class Capture:
    """A writer of one connection to ``file``. ``end`` returns an observer for each of its ends.

    ``clock`` returns seconds since 1970. The observers raise OSError if the file cannot be written.
    """

    def __init__(self, file: BinaryIO, clock: Callable[[], float] = time.time) -> None:
        self._writer = pcapng.Writer(file, snaplen=_SNAPLEN)
        self._clock = clock
        self._ends = {role: _End(mac=bytes((2, 0, 0, 0, 0, role + 1))) for role in Role}  # locally administered

    def end(self, role: Role) -> Observer:
        """The observer for one end of the connection."""

        def observe(seen: Seen) -> None:
            match seen:
                case Opened(local, peer):
                    self.opened(role, local, peer)
                case Octets(Direction.TX, octets):
                    self.sent(role, octets)
                case Closed():
                    self.closed(role)

        return observe

    def opened(self, role: Role, local: Address, peer: Address) -> None:
        """Write the handshake, once."""
        if self._ends[role].address:
            return
        for end, place in ((self._ends[role], local), (self._other(role), peer)):
            family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
            end.address, end.port = socket.inet_pton(family, place[0].partition("%")[0]), place[1]
        self._packet(Role.INITIATOR, tcp.TH_SYN, options=_OPTIONS)
        self._packet(Role.RESPONDER, tcp.TH_SYN | tcp.TH_ACK, options=_OPTIONS)
        self._packet(Role.INITIATOR, tcp.TH_ACK)

    def sent(self, role: Role, octets: bytes) -> None:
        """Write octets from this end."""
        for at in range(0, len(octets), _MAX_PAYLOAD):
            self._packet(role, tcp.TH_ACK | tcp.TH_PUSH, octets[at : at + _MAX_PAYLOAD])

    def closed(self, role: Role) -> None:
        """Write this end's FIN, and after both the last acknowledgement."""
        self._packet(role, tcp.TH_FIN | tcp.TH_ACK)
        self._ends[role].finished = True
        if self._other(role).finished:
            self._packet(Role(1 - role), tcp.TH_ACK)

    def _other(self, role: Role) -> _End:
        return self._ends[Role(1 - role)]

    def _packet(self, role: Role, flags: int, octets: bytes = b"", options: bytes = b"") -> None:
        source, destination = self._ends[role], self._other(role)
        segment = tcp.TCP(
            sport=source.port,
            dport=destination.port,
            seq=source.sequence,
            ack=destination.sequence if flags & tcp.TH_ACK else 0,
            off=5 + len(options) // 4,
            flags=flags,
            win=_WINDOW,
            opts=options,
            data=octets,
        )
        occupied = len(octets) + bool(flags & (tcp.TH_SYN | tcp.TH_FIN))
        source.sequence = (source.sequence + occupied) % 2**32
        packet, kind = self._ip(source, destination, segment)
        frame = ethernet.Ethernet(src=source.mac, dst=destination.mac, type=kind, data=packet)
        self._writer.writepkt(bytes(frame), ts=self._clock())

    def _ip(self, source: _End, destination: _End, segment: tcp.TCP) -> tuple[object, int]:
        if len(source.address) == 16:
            packet = ip6.IP6(src=source.address, dst=destination.address, nxt=ip.IP_PROTO_TCP, hlim=64, data=segment)
            packet.plen = len(segment)
            return packet, ethernet.ETH_TYPE_IP6
        source.identification = (source.identification + 1) % 2**16
        packet = ip.IP(
            src=source.address,
            dst=destination.address,
            p=ip.IP_PROTO_TCP,
            ttl=64,
            df=1,
            id=source.identification,
            data=segment,
        )
        packet.len = len(packet)
        return packet, ethernet.ETH_TYPE_IP
