"""Extract the packets of one case from a capture of the guest's network interface, and make a copy for tshark.

The network between the two ends can cut a stream anywhere. tshark cannot follow a stream if an FPDU starts in the last
octets of a segment, and does not dissect an FPDU that shares a segment with a startup frame. In the copy, each startup
frame and each FPDU therefore has its own segment.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dpkt import UnpackError, ethernet, ip, pcap, pcapng, tcp

from open_rnic.host_driver.mpa.startup_frames import HEADER_OCTETS, FrameKind, StartupDecoder, StartupError

_SNAPLEN = 1 << 18
_WRAP = 2**32
_HEAD = 64


@dataclass(frozen=True)
class Unit:
    """A startup frame or an FPDU. ``head`` is the complete startup frame, or the first 64 octets of the FPDU."""

    offset: int  # position of its first octet in the stream
    size: int  # octets
    begun: float  # time in seconds at which its first octet was captured
    head: bytes


@dataclass
class Stream:
    """One direction of a TCP connection. Offsets are in octets, and the first octet has offset 0."""

    source: str  # the sender's address
    start: int  # sequence number of the first octet
    startup: StartupDecoder
    segments: list[tuple[float, int, int]] = field(default_factory=list)  # time, offset, size; each octet once
    acknowledged: list[tuple[float, int]] = field(default_factory=list)  # time, acknowledged offset
    frames: list[Unit] = field(default_factory=list)
    octets: int = 0  # number captured without a gap
    given: int = 0  # number of these in complete startup frames and FPDUs
    _held: bytearray = field(default_factory=bytearray)
    _early: dict[int, bytes] = field(default_factory=dict)  # segments behind a gap, by offset

    @property
    def next(self) -> int:
        """The sequence number of the next startup frame or FPDU in the copy."""
        return self.start + self.given

    @property
    def fpdus(self) -> list[Unit]:
        """The FPDUs: ``frames`` without its first entry, which is the startup frame."""
        return self.frames[1:]

    def take(self, time: float, sequence: int, octets: bytes) -> None:
        """Add a segment, which may be a retransmission or out of order."""
        offset = (sequence - self.start) % _WRAP
        if octets and offset < _WRAP // 2:
            self._early[offset] = max(octets, self._early.get(offset, b""), key=len)
        for at in sorted(self._early):
            if at > self.octets:
                return
            new = self._early.pop(at)[self.octets - at :]
            if new:
                self.segments.append((time, self.octets, len(new)))
            self._held += new
            self.octets += len(new)

    def units(self) -> Iterator[bytes]:
        """Yield each startup frame and FPDU that is now complete; raises StartupError for an invalid startup frame."""
        if self.startup.missing:
            self.startup.feed(bytes(self._held[self.startup.received :][: self.startup.missing]))
            if not self.startup.frame and self.startup.received == HEADER_OCTETS:  # the size is now known
                self.startup.feed(bytes(self._held[HEADER_OCTETS:][: self.startup.missing]))
            if self.startup.missing:
                return
            yield self._give(self.startup.received)
        while len(self._held) >= 2:
            length = 2 + int.from_bytes(self._held[:2], "big")
            if len(self._held) < (size := length + -length % 4 + 4):
                return
            yield self._give(size)

    def _give(self, size: int) -> bytes:
        unit = bytes(self._held[:size])
        del self._held[:size]
        begun = next(time for time, offset, octets in reversed(self.segments) if offset <= self.given)
        self.frames.append(Unit(self.given, size, begun, unit[: None if not self.frames else _HEAD]))
        self.given += size
        return unit


@dataclass
class Traffic:
    """The connections of a case, each as the initiator's and the responder's stream."""

    connections: list[tuple[Stream, Stream]] = field(default_factory=list)

    @property
    def octets(self) -> dict[str, int]:
        """The number of octets sent from each address."""
        total: dict[str, int] = {}
        for stream in (stream for both in self.connections for stream in both):
            total[stream.source] = total.get(stream.source, 0) + stream.octets
        return total


def extract(raw: Path, file: Path, aligned: Path, ports: Collection[int]) -> Traffic:
    """Copy the TCP packets from and to these ports from the pcap file ``raw`` into two pcapng files.

    ``file`` gets the unchanged packets, and ``aligned`` the copy for tshark. If ``raw`` ends inside a packet, because
    the guest was killed, that packet is ignored.
    """
    streams: dict[tuple[bytes, int, bytes, int], Stream] = {}
    traffic = Traffic()
    with file.open("wb") as out, aligned.open("wb") as out_aligned:
        writer = pcapng.Writer(out, snaplen=_SNAPLEN)
        writer_aligned = pcapng.Writer(out_aligned, snaplen=_SNAPLEN)
        for time, octets, packet in _packets(raw):
            segment = packet.data
            if not {segment.sport, segment.dport} & set(ports):
                continue
            writer.writepkt(octets, ts=time)
            key = packet.src, segment.sport, packet.dst, segment.dport
            other = streams.get((*key[2:], *key[:2]))
            if segment.flags & tcp.TH_SYN:
                kind = FrameKind.REPLY if segment.flags & tcp.TH_ACK else FrameKind.REQUEST
                known = streams.get(key)
                if known is None or known.start != segment.seq + 1:  # not a retransmitted SYN
                    source = ".".join(map(str, packet.src))
                    streams[key] = Stream(source, segment.seq + 1, StartupDecoder(kind))
                    if other and kind is FrameKind.REPLY:
                        traffic.connections.append((other, streams[key]))
                    writer_aligned.writepkt(octets, ts=time)
            elif stream := streams.get(key):
                stream.take(time, segment.seq, bytes(segment.data))
                if other and segment.flags & tcp.TH_ACK:
                    other.acknowledged.append((time, (segment.ack - other.start) % _WRAP))
                with contextlib.suppress(StartupError):  # the copy then contains nothing of this direction
                    for unit in stream.units():
                        sequence, acknowledged = stream.next - len(unit), other.next if other else 0
                        writer_aligned.writepkt(_packet(packet, sequence, acknowledged, unit), ts=time)
    return traffic


def _packet(like: ip.IP, sequence: int, acknowledged: int, octets: bytes) -> bytes:
    """Return a packet with the addresses and ports of packet ``like``."""
    segment = tcp.TCP(
        sport=like.data.sport,
        dport=like.data.dport,
        seq=sequence % _WRAP,
        ack=acknowledged % _WRAP,
        flags=tcp.TH_ACK | tcp.TH_PUSH,
        win=65535,
        data=octets,
    )
    packet = ip.IP(src=like.src, dst=like.dst, p=ip.IP_PROTO_TCP, ttl=64, df=1, data=segment)
    packet.len = len(packet)
    return bytes(ethernet.Ethernet(src=bytes(6), dst=bytes(6), type=ethernet.ETH_TYPE_IP, data=packet))


def _packets(raw: Path) -> Iterator[tuple[float, bytes, ip.IP]]:
    with raw.open("rb") as file:
        try:
            for time, octets in pcap.Reader(file):
                packet = ethernet.Ethernet(octets).data
                if isinstance(packet, ip.IP) and isinstance(packet.data, tcp.TCP):
                    yield time, octets, packet
        except (UnpackError, ValueError):
            return
