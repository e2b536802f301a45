"""FPDUs for testbenches: the positions of their fields, a checker that finds faults, and a function that adds faults.

This module needs no simulator. Stream offsets count octets of the marked stream (RFC 5044 §4.3).
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from open_rnic.host_driver.mpa.fpdu import MARKER_INTERVAL
from open_rnic.rtl.registers import MAX_ULPDU

__all__ = ["Checker", "Fault", "Field", "Fpdu", "MpaError", "Problem", "layout", "spoilt"]


class Fault(Enum):
    """A fault of an FPDU, which :class:`Checker` finds and :func:`spoilt` adds. Receivers ignore PAD and RESERVED16."""

    CRC = "the CRC does not match"
    FPDUPTR = "an FPDUPTR does not point to ULPDU_Length"
    LENGTH = "ULPDU_Length is over the maximum"
    PAD = "PAD is not zero"
    RESERVED16 = "a marker's RESERVED16 is not zero"


class Field(NamedTuple):
    """A field in octets ``start`` to ``end`` of the stream: a marker, length (ULPDU_Length), ulpdu, pad or crc."""

    name: str
    start: int
    end: int


class Problem(NamedTuple):
    """A :class:`Fault` that was found at stream offset ``offset``."""

    fault: Fault
    offset: int
    found: str

    def __str__(self) -> str:
        return f"{self.fault.value}: {self.found} at stream offset {self.offset}"


class MpaError(AssertionError):
    """An FPDU violates a rule of MPA; ``problem`` has the fault and its stream offset."""

    def __init__(self, fpdu: "Fpdu", problem: Problem):
        super().__init__(f"{problem}, in the FPDU at {fpdu.offset}")
        self.fpdu = fpdu
        self.problem = problem


@dataclass(frozen=True)
class Fpdu:
    """An FPDU as it was transferred.

    Attributes
    ----------
    offset : stream offset at which the FPDU starts, with its leading marker if it has one
    length : ULPDU_Length
    octets : all octets; if ULPDU_Length is over the maximum, only those up to and including ULPDU_Length
    fields : the fields, in order
    cuts : stream offsets at which chunks began, within the FPDU and at its start
    problems : faults, in the order in which a receiver detects them

    """

    offset: int
    length: int
    octets: bytes
    fields: tuple[Field, ...]
    cuts: tuple[int, ...] = ()
    problems: tuple[Problem, ...] = ()

    def all(self, name: str) -> bytes:
        """Return the octets of all fields of this name, concatenated: ``all("ulpdu")`` is the ULPDU."""
        return b"".join(
            self.octets[each.start - self.offset : each.end - self.offset] for each in self.fields if each.name == name
        )

    @property
    def ulpdu(self) -> bytes:
        """The ULPDU."""
        return self.all("ulpdu")

    def has(self, *faults: Fault) -> bool:
        """Whether the FPDU has one of these faults."""
        return any(each.fault in faults for each in self.problems)


def layout(offset: int, length: int, *, markers: bool) -> tuple[Field, ...]:
    """Return the fields of an FPDU that starts at stream offset ``offset``, for a ULPDU of ``length`` octets.

    A marker between two FPDUs belongs to the second one; a marker between PAD and CRC belongs to this FPDU (RFC 5044
    §4.3).
    """
    fields: list[Field] = []
    at = offset
    for name, octets in (("length", 2), ("ulpdu", length), ("pad", -(2 + length) % 4), ("crc", 4)):
        end = at + octets
        while at < end:
            step = end
            if markers:
                if at % MARKER_INTERVAL == 0:
                    fields.append(Field("marker", at, at + 4))
                    at, end = at + 4, end + 4
                step = min(end, at - at % MARKER_INTERVAL + MARKER_INTERVAL)
            fields.append(Field(name, at, step))
            at = step
    return tuple(fields)


def spoilt(
    fpdu: bytes, offset: int, fault: Fault, *, markers: bool, value: int | None = None, rng: random.Random | None = None
) -> bytes:
    """Add a fault to a good FPDU that starts at stream offset ``offset``; the CRC is correct unless it is the fault.

    ``value`` is the ULPDU_Length, FPDUPTR or RESERVED16 to insert; by default, it is random, or 65,535 for
    ULPDU_Length. Raises ValueError if the FPDU does not have such a field.
    """
    rng = rng or random.Random(random.getrandbits(64))
    octets = bytearray(fpdu)
    header = 4 if markers and offset % MARKER_INTERVAL == 0 else 0
    fields = layout(offset, int.from_bytes(fpdu[header : header + 2], "big"), markers=markers)
    name = {Fault.FPDUPTR: "marker", Fault.RESERVED16: "marker"}.get(fault, fault.name.lower())
    places = [each.start - offset for each in fields if each.name == name]
    if not places:
        raise ValueError(f"the FPDU at stream offset {offset} has no {name} to spoil")
    at = rng.choice(places)
    match fault:
        case Fault.CRC:
            octets[rng.randrange(at, at + 4)] ^= 1 << rng.randrange(8)
            return bytes(octets)
        case Fault.FPDUPTR:
            right = int.from_bytes(fpdu[at + 2 : at + 4], "big")
            wrong = right ^ (4 << rng.randrange(14)) if value is None else value
            octets[at + 2 : at + 4] = wrong.to_bytes(2, "big")
        case Fault.LENGTH:
            octets[at : at + 2] = (0xFFFF if value is None else value).to_bytes(2, "big")
        case Fault.PAD:
            octets[at] ^= 1 << rng.randrange(8)
        case Fault.RESERVED16:
            octets[at : at + 2] = (rng.randrange(1, 1 << 16) if value is None else value).to_bytes(2, "big")
    if any(fpdu[-4:]):
        octets[-4:] = crc32c(bytes(octets[:-4])).to_bytes(4, "little")
    return bytes(octets)


class Checker:
    """Finds FPDUs in the octets of an MPA stream, and the faults of each.

    The first FPDU is at stream offset ``offset``, a multiple of 4. ``ended`` is set after an FPDU with a wrong CRC or a
    ULPDU_Length over ``max_ulpdu``, because the start of the next FPDU is then unknown (RFC 5044 §8).
    """

    def __init__(self, *, markers: bool, crc: bool, offset: int = 0, max_ulpdu: int = MAX_ULPDU):
        if offset < 0 or offset % 4:
            raise ValueError(f"an FPDU cannot start at stream offset {offset}: it is not a multiple of 4, from 0 up")
        self.markers = markers
        self.crc = crc
        self.offset = offset
        self.max_ulpdu = max_ulpdu
        self.ended = False
        self._held = bytearray()
        self._cuts = [offset]
        self._needed = 0  # octets of the next FPDU, as far as they are known

    @property
    def held(self) -> int:
        """The number of octets of an incomplete FPDU."""
        return len(self._held)

    def feed(self, octets: bytes, *, ends: bool = True) -> list[Fpdu]:
        """Process octets, and return the FPDUs that they complete. If ``ends`` is set, a chunk ends behind them."""
        self._held += octets
        found: list[Fpdu] = []
        while not self.ended and len(self._held) >= self._needed and (fpdu := self._next()):
            found.append(fpdu)
            self._needed = 0
            del self._held[: len(fpdu.octets)]
            self.offset += len(fpdu.octets)
            self._cuts = [each for each in self._cuts if each >= self.offset]
        if ends and octets:
            self._cuts.append(self.offset + len(self._held))
        return found

    def _next(self) -> Fpdu | None:
        header = 4 if self.markers and self.offset % MARKER_INTERVAL == 0 else 0
        if len(self._held) < header + 2:
            return None
        length = int.from_bytes(self._held[header : header + 2], "big")
        over = length > self.max_ulpdu
        fields = layout(self.offset, 0 if over else length, markers=self.markers)
        end = self.offset + header + 2 if over else fields[-1].end
        self._needed = end - self.offset
        if len(self._held) < self._needed:
            return None
        octets = bytes(self._held[: end - self.offset])
        cuts = tuple(each for each in self._cuts if each < end)
        if over:
            self.ended = True
            problem = Problem(Fault.LENGTH, self.offset + header, f"{length}, not {self.max_ulpdu} or less")
            fields = tuple(each for each in fields if each.end <= end)
            return Fpdu(self.offset, length, octets, fields, cuts, (problem,))
        fpdu = Fpdu(self.offset, length, octets, fields, cuts)
        problems = tuple(self._problems(fpdu, self.offset + header))
        self.ended = any(each.fault is Fault.CRC for each in problems)
        return Fpdu(self.offset, length, octets, fields, cuts, problems)

    def _problems(self, fpdu: Fpdu, header: int) -> Iterable[Problem]:
        covered, crc = fpdu.octets[:-4], fpdu.octets[-4:]
        right = crc32c(covered).to_bytes(4, "little")  # RFC 5044 §4.4
        if self.crc and crc != right:
            yield Problem(Fault.CRC, fpdu.fields[-1].start, f"{crc.hex()}, not {right.hex()}")
        for name, start, end in fpdu.fields:
            octets = fpdu.octets[start - fpdu.offset : end - fpdu.offset]
            if name == "marker":
                pointer, distance = int.from_bytes(octets[2:], "big"), max(start - header, 0)
                if pointer & ~3 != distance:  # the two lowest bits are ignored
                    yield Problem(Fault.FPDUPTR, start + 2, f"{pointer}, not {distance}")
                if any(octets[:2]):
                    yield Problem(Fault.RESERVED16, start, octets[:2].hex())
            elif name == "pad" and any(octets):
                yield Problem(Fault.PAD, start, octets.hex())
