"""Check a capture with tshark, an implementation of MPA that is independent of this project.

tshark dissects MPA, DDP and RDMAP, and checks every CRC. It does not know the additions of RFC 6581.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from open_rnic.host_driver.tools.interop.capture import Stream, Traffic
from open_rnic.host_driver.tools.interop.initramfs import ADDRESS
from open_rnic.host_driver.tools.interop.tools import run

OPTIONS = (
    "-o",
    "tcp.desegment_tcp_streams:TRUE",
    "-o",
    "tcp.try_heuristic_first:TRUE",  # even if the port belongs to another protocol
    "--disable-protocol",
    "rpcordma",  # this dissector and the next claim short Sends
    "--disable-protocol",
    "smb_direct",
)
_STARTUP = 20
SMALL = 97  # largest number of octets in a small piece
NUDGED = bytes.fromhex("000ec140 4e554447")  # first octets of the RDMA Writes that case.nudge sends
BAD_CRC = "0/2/2"  # siw's Terminate for a bad CRC, as on the wire
LAIN = 0.5  # seconds after which siw has overlooked an FPDU that its kernel has acknowledged


@dataclass
class End:
    """The frames that one end sent, according to tshark."""

    fpdus: int = 0
    good: int = 0  # number of good CRCs
    bad: int = 0
    octets: int = 0  # number in startup frames and FPDUs
    opcodes: dict[str, int] = field(default_factory=dict)
    terminates: list[str] = field(default_factory=list)  # layer/type/code


@dataclass
class Dissection:
    """The result of tshark; ``odd`` lists the numbers of the packets that it cannot dissect."""

    siw: End = field(default_factory=End)
    ours: End = field(default_factory=End)
    odd: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """The requirements for the capture of a case.

    Parameters
    ----------
    crc : whether CRCs were negotiated; None if no connection was established
    terminates : sender, layer, type and code of each Terminate as on the wire, such as "siw 0/2/6" or "ours 2/0/2"
    bad_siw, bad_ours : exact numbers of FPDUs with a bad CRC from siw and from our end
    whole : whether tshark must dissect every octet of every stream
    late : most FPDUs that our end may send last, and that siw's end may close before they leave
    least : least numbers of octets from siw and from our end
    siw_first : least number of siw's FPDUs before our first FPDU
    depths : IRD and ORD in our startup frame; None for any value
    small : least number of pieces of at most SMALL octets, for those that siw received and those that we received
    inside : least number of FPDUs that began inside a piece, also for siw and for us

    """

    crc: bool | None = True
    terminates: tuple[str, ...] = ()
    bad_siw: int = 0
    bad_ours: int = 0
    whole: bool = True
    late: int = 0
    least: tuple[int, int] = 0, 0
    siw_first: int = 0
    depths: tuple[int | None, int | None] = None, None
    small: tuple[int, int] = 0, 0
    inside: tuple[int, int] = 0, 0


async def dissect(file: Path) -> Dissection:
    """Run tshark on a capture, and parse its output; raises InteropError if tshark fails."""
    return read(await run(["tshark", "-r", file, *OPTIONS, "-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"], timeout=600))


def read(text: str) -> Dissection:
    """Parse the output of tshark with -V and -O."""
    found = Dissection()
    for frame in re.split(r"^(?=Frame \d+: )", text, flags=re.MULTILINE)[1:]:
        number = frame[6 : frame.index(":")]
        source = re.search(r"^Internet Protocol.*Src: ([\d.]+)", frame, re.MULTILINE)
        end = found.siw if source and source[1] == ADDRESS else found.ours
        if "[Malformed Packet" in frame or "[Dissector bug" in frame:
            found.odd.append(number)
        for length in re.findall(r"^\s+Private data length: (\d+) bytes", frame, re.MULTILINE):
            end.octets += _STARTUP + int(length)
        lengths = [int(length) for length in re.findall(r"^\s+ULPDU length: (\d+) bytes", frame, re.MULTILINE)]
        end.fpdus += len(lengths)
        end.octets += sum(length + 2 + -(length + 2) % 4 + 4 for length in lengths)
        end.good += frame.count("(Good CRC32)")
        end.bad += frame.count("(Bad CRC32")
        for opcode in re.findall(r"OpCode: ([^(\n]+) \(", frame):
            end.opcodes[opcode] = end.opcodes.get(opcode, 0) + 1
        end.terminates += _terminates(frame)
    return found


def verdict(found: Dissection, octets: Mapping[str, int], expected: Expected, sent: int | None) -> list[str]:
    """Compare the dissection with the requirements, and return a line for each difference.

    ``octets`` is :attr:`.Traffic.octets`. ``sent`` is the number of FPDUs that our end has sent, or None if it is
    unknown.
    """
    wrong = [f"tshark cannot read frame {number}" for number in found.odd]
    ends = ("siw", found.siw, expected.bad_siw), ("our end", found.ours, expected.bad_ours)
    for (name, end, bad), least in zip(ends, expected.least, strict=True):
        if end.bad != bad:
            wrong.append(f"tshark finds {end.bad} bad CRCs in the FPDUs from {name}; expected: {bad}")
        if expected.crc is not None and end.good != (end.fpdus - bad if expected.crc else 0):
            wrong.append(f"tshark finds {end.good} good CRCs in {end.fpdus} FPDUs from {name}")
        if expected.crc is None and end.fpdus:
            wrong.append(f"tshark finds {end.fpdus} FPDUs from {name} without a connection")
        total = sum(count for address, count in octets.items() if (address == ADDRESS) == (name == "siw"))
        if total < least:
            wrong.append(f"{total} octets came from {name}; expected: {least} or more")
        if expected.whole and total != end.octets:
            wrong.append(f"tshark dissects {end.octets} of the {total} octets from {name}")
    terminates = tuple([f"siw {what}" for what in found.siw.terminates] + [f"ours {w}" for w in found.ours.terminates])
    if terminates != expected.terminates:
        seen = ", ".join(terminates) or "none"
        wrong.append(f"tshark sees Terminates: {seen}; expected: {', '.join(expected.terminates) or 'none'}")
    if sent is not None and expected.whole and not sent - expected.late <= found.ours.fpdus <= sent:
        wrong.append(f"tshark finds {found.ours.fpdus} FPDUs from our end, which sent {sent}")
    return wrong


def streams(traffic: Traffic, expected: Expected) -> list[str]:
    """Check the order of FPDUs and the depths in our startup frame; return a line for each difference."""
    wrong = []
    for ours, siw in map(_ends, traffic.connections):
        frame = ours.frames[0].head if ours.frames else b""
        words = struct.unpack_from(">HH", frame.ljust(_STARTUP + 4, b"\0"), _STARTUP)
        for name, word, due in zip(("IRD", "ORD"), words, expected.depths, strict=False):
            if due is not None and word & 0x3FFF != due:
                wrong.append(f"our startup frame has {name} {word & 0x3FFF}, not {due}")
        first = ours.fpdus[0].begun if ours.fpdus else float("inf")
        before = sum(fpdu.begun < first for fpdu in siw.fpdus)
        if before < expected.siw_first:
            wrong.append(f"siw sent {before} FPDUs before our first FPDU; expected: {expected.siw_first}")
    return wrong if traffic.connections else ["the capture has no connection"]


def overlooked(traffic: Traffic, nudges: int) -> list[str]:
    """Return the reasons why the capture does not prove that siw had overlooked FPDUs before each nudge, if any.

    The proof requires that the guest had acknowledged everything that we had sent, including at least one FPDU, LAIN
    seconds before the nudge, and that siw had sent no FPDU.
    """
    wrong, found = [], 0
    for ours, siw in map(_ends, traffic.connections):
        for number, nudge in enumerate(ours.fpdus):
            if not nudge.head.startswith(NUDGED):
                continue
            found += 1
            there = next((time for time, upto in ours.acknowledged if upto >= nudge.offset), nudge.begun)
            if not number:
                wrong.append("our first FPDU was a nudge")
            elif nudge.begun - there < LAIN:
                lain = max(nudge.begun - there, 0)
                wrong.append(f"the guest had acknowledged our octets for {lain:.2f} s before a nudge, not {LAIN:g}")
            if any(fpdu.begun < nudge.begun for fpdu in siw.fpdus):
                wrong.append("siw had sent FPDUs before a nudge, but our end had not noticed them")
    return wrong if found == nudges else [*wrong, f"the capture has {found} nudges, not {nudges}"]


def split(traffic: Traffic) -> int | None:
    """Return the position of our first FPDU whose PAD and CRC arrived in two pieces, if any. siw refuses it."""
    for ours, _ in map(_ends, traffic.connections):
        cuts = {offset + octets for _, offset, octets in ours.segments}
        for fpdu in ours.fpdus:
            trailer = fpdu.offset + 2 + int.from_bytes(fpdu.head[:2], "big")
            if cuts & set(range(trailer + 1, fpdu.offset + fpdu.size)):
                return fpdu.offset
    return None


@dataclass(frozen=True)
class Pieces:
    """The numbers of small pieces that an end received, and of FPDUs that began inside a piece."""

    small: int
    inside: int

    @classmethod
    def of(cls, stream: Stream, pieces: Sequence[tuple[int, int]]) -> Pieces:
        """Count in ``stream``; each of ``pieces`` is an offset and a number of octets."""
        begin = stream.fpdus[0].offset if stream.fpdus else stream.octets
        pieces = sorted(piece for piece in pieces if piece[0] >= begin)
        starts = {offset for offset, _ in pieces}
        small = sum(octets <= SMALL for _, octets in pieces)
        return cls(small, sum(fpdu.offset not in starts for fpdu in stream.fpdus))

    def __str__(self) -> str:
        return f"{self.small} pieces of at most {SMALL} octets, {self.inside} FPDUs that began inside a piece"


def pieces(traffic: Traffic, received: Sequence[tuple[int, int]]) -> tuple[Pieces, Pieces]:
    """Count the pieces of the first connection: those captured at siw, and those that our end ``received``."""
    ours, siw = _ends(traffic.connections[0])
    return Pieces.of(ours, [(offset, octets) for _, offset, octets in ours.segments]), Pieces.of(siw, received)


def _ends(connection: tuple[Stream, Stream]) -> tuple[Stream, Stream]:
    """Return our stream and siw's stream."""
    initiator, responder = connection
    return (responder, initiator) if initiator.source == ADDRESS else (initiator, responder)


def summary(found: Dissection) -> str:
    """Return a short description of the dissection."""
    fpdus, good = found.siw.fpdus + found.ours.fpdus, found.siw.good + found.ours.good
    bad = found.siw.bad + found.ours.bad
    if not fpdus:
        return "startup frames only"
    crcs = "no CRC" if not good + bad else f"{good} good CRCs" + (f", {bad} bad" if bad else "")
    return f"{fpdus} FPDUs, {crcs}"


def _terminates(frame: str) -> list[str]:
    """Return layer, error type and error code of each Terminate in a packet, as they are on the wire."""
    found = []
    for part in re.split(r"^\s+Terminate Control$", frame, flags=re.MULTILINE)[1:]:
        layer = re.search(r"([01]{4}) \.{4} = Layer", part)
        kind = re.search(r"\.{4} ([01]{4}) = Error Types", part)
        code = re.search(r"Error Code.*0x([0-9a-f]{2})\)?$", part, re.MULTILINE)
        if layer and kind and code:
            found.append(f"{int(layer[1], 2)}/{int(kind[1], 2)}/{int(code[1], 16)}")
    return found
