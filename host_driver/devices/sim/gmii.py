"""The frames of a whole RNIC in a simulation: octets of GMII, with preamble, padding and FCS."""

from __future__ import annotations

from zlib import crc32

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.frames import Frames
from open_rnic.host_driver.devices.sim.wire import Damage, Kind

__all__ = ["Gmii"]

_PREAMBLE = bytes([0x55] * 7 + [0xD5])
_FCS = 4  # octets
_LEAST = 60  # octets of a frame without FCS


class BadFrameError(Exception):
    """The RTL has transmitted octets that are no frame."""


class Gmii(Frames):
    """It adds preamble, padding and FCS, which may be damaged, and checks those of the RTL. The cable can be pulled."""

    def __init__(self, clock: Clock):
        super().__init__(clock)
        clock.control["up"] = 1
        self._cut = False  # a frame may have been cut off

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        super().take(kind, note, octets)
        if kind == Kind.CABLE:
            self.clock.control["up"] = note
            self._cut = True

    def enter(self, octets: bytes, damage: int) -> tuple[bytes, int]:
        """See Frames; the number is the octet with RX_ER."""
        padded = octets.ljust(_LEAST, b"\0")
        if damage == Damage.RUNT:
            padded = padded[: _LEAST - 1]
        check = _fcs(padded)
        if damage == Damage.FCS:
            check = bytes((check[0] ^ 1,)) + check[1:]
        on_gmii = _PREAMBLE + padded + check
        return on_gmii, len(on_gmii) // 2 if damage == Damage.ERROR else 0

    def leave(self, octets: bytes) -> bytes:
        """See Frames. Raises BadFrameError if anything is wrong with octets that have not been cut off."""
        body, check = octets[len(_PREAMBLE) : -_FCS], octets[-_FCS:]
        if octets.startswith(_PREAMBLE) and len(body) >= _LEAST and _fcs(body) == check:
            return body
        if self._cut:
            return b""
        raise BadFrameError(f"{len(octets)} octets at GMII are no frame: {octets[:80].hex()}")


def _fcs(octets: bytes) -> bytes:
    """Return the FCS of a frame (IEEE 802.3 §3.2.9)."""
    return crc32(octets).to_bytes(_FCS, "little")
