"""What crossed the guest's network interface: the packets of one case, and how many octets its streams have."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from dpkt import UnpackError, ethernet, ip, pcap, pcapng, tcp

_SNAPLEN = 1 << 18


@dataclass
class _Half:
    """One direction of a TCP connection."""

    start: int  # sequence number of the first octet
    octets: int = 0


def extract(raw: Path, file: Path, ports: Collection[int]) -> dict[str, int]:
    """Copy the TCP packets from and to these ports from the pcap file ``raw`` into a pcapng file.

    Gives the number of octets in each direction's streams, by the sender's address. A raw file that ends inside a
    packet, as a killed guest leaves it, is read up to there.
    """
    halves: dict[tuple[bytes, int, bytes, int], _Half] = {}
    with file.open("wb") as out:
        writer = pcapng.Writer(out, snaplen=_SNAPLEN)
        for time, octets, source, destination, segment in _segments(raw):
            if not {segment.sport, segment.dport} & set(ports):
                continue
            writer.writepkt(octets, ts=time)
            key = source, segment.sport, destination, segment.dport
            if segment.flags & tcp.TH_SYN:
                halves[key] = _Half(segment.seq + 1)
            elif half := halves.get(key):
                end = (segment.seq + len(segment.data) - half.start) % 2**32
                half.octets = max(half.octets, end if segment.data else 0)
    total: dict[str, int] = {}
    for (source, *_), half in halves.items():
        address = ".".join(map(str, source))
        total[address] = total.get(address, 0) + half.octets
    return total


def _segments(raw: Path) -> Iterator[tuple[float, bytes, bytes, bytes, tcp.TCP]]:
    with raw.open("rb") as file:
        try:
            for time, octets in pcap.Reader(file):
                packet = ethernet.Ethernet(octets).data
                if isinstance(packet, ip.IP) and isinstance(packet.data, tcp.TCP):
                    yield time, octets, packet.src, packet.dst, packet.data
        except (UnpackError, ValueError):
            return
