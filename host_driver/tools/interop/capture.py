"""What crossed the guest's network interface: the packets of one case, and the same octets as tshark can read them.

The network between the two ends cuts a stream where it likes. tshark loses its way when the start of an FPDU lies at
the end of a segment, and never dissects one that shares a segment with a startup frame. So it is given a copy in which
each startup frame and FPDU has a segment of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dpkt import UnpackError, ethernet, ip, pcap, pcapng, tcp

from open_rnic.host_driver.mpa.startup import HEADER_OCTETS, FrameKind, StartupDecoder, StartupError

_SNAPLEN = 1 << 18
_WRAP = 2**32
_HEAD = 64


@dataclass(frozen=True)
class Unit:
    """A startup frame or an FPDU. ``head`` has the whole of the one, the first 64 octets of the other."""

    offset: int  # of its first octet in the stream
    size: int  # octets
    begun: float  # seconds: when its first octet came
    head: bytes


@dataclass
class Stream:
    """One direction of a TCP connection. Offsets count octets from its first one."""

    source: str  # the sender's address
    start: int  # sequence number of the first octet
    startup: StartupDecoder
    segments: list[tuple[float, int, int]] = field(default_factory=list)  # when, offset, octets; none twice
    acknowledged: list[tuple[float, int]] = field(default_factory=list)  # when, and the octets up to this offset
    frames: list[Unit] = field(default_factory=list)
    octets: int = 0  # that have come, and all before them
    given: int = 0  # of them, in whole startup frames and FPDUs
    _held: bytearray = field(default_factory=bytearray)
    _early: dict[int, bytes] = field(default_factory=dict)  # by their offset

    @property
    def next(self) -> int:
        """Sequence number of what is given next."""
        return self.start + self.given

    @property
    def fpdus(self) -> list[Unit]:
        """Without the startup frame, which is the first of ``frames``."""
        return self.frames[1:]

    def take(self, time: float, sequence: int, octets: bytes) -> None:
        """Take a segment, which may have come before, or too early."""
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
        """The startup frame and the FPDUs that are whole now; raises StartupError when there is no startup frame."""
        if self.startup.missing:
            self.startup.feed(bytes(self._held[self.startup.received :][: self.startup.missing]))
            if not self.startup.frame and self.startup.received == HEADER_OCTETS:  # now it is known how long it is
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
    """A case's connections, each with the initiator's stream and the responder's."""

    connections: list[tuple[Stream, Stream]] = field(default_factory=list)

    @property
    def octets(self) -> dict[str, int]:
        """How many octets crossed, by the sender's address."""
        total: dict[str, int] = {}
        for stream in (stream for both in self.connections for stream in both):
            total[stream.source] = total.get(stream.source, 0) + stream.octets
        return total


def extract(raw: Path, file: Path, aligned: Path, ports: Collection[int]) -> Traffic:
    """Copy the TCP packets from and to these ports from the pcap file ``raw`` into the pcapng files.

    ``file`` has them as they were, ``aligned`` as tshark can read them. A raw file that ends inside a packet, as a
    killed guest leaves it, is read up to there.
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
                if known is None or known.start != segment.seq + 1:  # and not sent again
                    source = ".".join(map(str, packet.src))
                    streams[key] = Stream(source, segment.seq + 1, StartupDecoder(kind))
                    if other and kind is FrameKind.REPLY:
                        traffic.connections.append((other, streams[key]))
                    writer_aligned.writepkt(octets, ts=time)
            elif stream := streams.get(key):
                stream.take(time, segment.seq, bytes(segment.data))
                if other and segment.flags & tcp.TH_ACK:
                    other.acknowledged.append((time, (segment.ack - other.start) % _WRAP))
                with contextlib.suppress(StartupError):  # then nothing of this direction is in the copy
                    for unit in stream.units():
                        sequence, acknowledged = stream.next - len(unit), other.next if other else 0
                        writer_aligned.writepkt(_packet(packet, sequence, acknowledged, unit), ts=time)
    return traffic


def _packet(like: ip.IP, sequence: int, acknowledged: int, octets: bytes) -> bytes:
    """A packet between the ends of another one."""
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
