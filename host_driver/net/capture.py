"""Captures of frames as pcapng, for Wireshark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpkt import pcapng

__all__ = ["FrameCapture"]

_SNAPLEN = 1 << 18
# Codes of options: draft-ietf-opsawg-pcapng §4.2 (Interface Description Block) and §4.3 (Enhanced Packet Block)
_IF_NAME, _IF_TSRESOL, _EPB_FLAGS = 2, 9, 2
_NANOSECONDS = bytes([9])
_INBOUND, _OUTBOUND = 1, 2


def _options(*options: tuple[int, bytes]) -> list[pcapng.PcapngOptionLE]:
    return [*(pcapng.PcapngOptionLE(code=code, data=data) for code, data in options), pcapng.PcapngOptionLE()]


class FrameCapture:
    """A pcapng file of Ethernet frames at named interfaces. Raises OSError if the file cannot be written."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._file = path.open("wb")
        self._file.write(bytes(pcapng.SectionHeaderBlockLE()))
        for name in names:
            options = _options((_IF_NAME, name.encode()), (_IF_TSRESOL, _NANOSECONDS))
            self._file.write(bytes(pcapng.InterfaceDescriptionBlockLE(snaplen=_SNAPLEN, opts=options)))

    def write(self, interface: int, frame: bytes, time: int, *, outbound: bool, comment: str = "") -> None:
        """Write a frame that left (``outbound``) or reached an interface, at ``time``, in ns since 1970."""
        options = [(_EPB_FLAGS, (_OUTBOUND if outbound else _INBOUND).to_bytes(4, "little"))]
        if comment:
            options.insert(0, (pcapng.PCAPNG_OPT_COMMENT, comment.encode()))
        block = pcapng.EnhancedPacketBlockLE(
            iface_id=interface, ts_high=time >> 32, ts_low=time % 2**32, pkt_data=frame, opts=_options(*options)
        )
        self._file.write(bytes(block))

    def close(self) -> None:
        """Complete the file. Idempotent."""
        self._file.close()
