"""tshark's verdict on a capture, as something that this project did not write.

It dissects MPA, DDP and RDMAP and checks every CRC. It knows nothing of what RFC 6581 added.
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
    "tcp.try_heuristic_first:TRUE",  # whatever protocol else may have the port
    "--disable-protocol",
    "rpcordma",  # these take short Sends for theirs
    "--disable-protocol",
    "smb_direct",
)
_STARTUP = 20
SMALL = 97  # octets
NUDGED = bytes.fromhex("000ec140 4e554447")  # how case.nudge's RDMA Writes begin
LAIN = 0.5  # seconds for which FPDUs must have lain at the guest before it is to blame that nothing comes of them


@dataclass
class End:
    """What one end has sent, as tshark sees it."""

    fpdus: int = 0
    good: int = 0  # CRCs
    bad: int = 0
    octets: int = 0  # of startup frames and FPDUs
    opcodes: dict[str, int] = field(default_factory=dict)
    terminates: list[str] = field(default_factory=list)  # layer/type/code


@dataclass
class Dissection:
    """A capture as tshark sees it; ``odd`` are the frames that it cannot read."""

    siw: End = field(default_factory=End)
    ours: End = field(default_factory=End)
    odd: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """What a case's capture must show.

    ``crc``: CRCs were negotiated; None: no connection came about. ``terminates``: who says what, in order and as it is
    on the wire, such as "siw 0/2/6". ``bad_siw`` and ``bad_ours``: FPDUs of that end whose CRC must be bad.
    ``whole``: every octet of every stream belongs to a frame that tshark has dissected. ``siw_first``: so many FPDUs of
    siw's come before the first of ours. ``depths``: the IRD and the ORD in our startup frame, None: whatever.
    ``small`` and ``inside``: so many pieces of at most SMALL octets, and so many FPDUs that begin inside a piece, must
    have reached siw, and so many us.
    """

    crc: bool | None = True
    terminates: tuple[str, ...] = ()
    bad_siw: int = 0
    bad_ours: int = 0
    whole: bool = True
    siw_first: int = 0
    depths: tuple[int | None, int | None] = None, None
    small: tuple[int, int] = 0, 0
    inside: tuple[int, int] = 0, 0


async def dissect(file: Path) -> Dissection:
    """Have tshark dissect a capture; raises InteropError when it cannot."""
    return read(await run(["tshark", "-r", file, *OPTIONS, "-V", "-O", "iwarp_mpa,iwarp_ddp_rdmap"], timeout=120))


def read(text: str) -> Dissection:
    """What tshark prints with -V and -O, as a dissection."""
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
    """What in a capture is not as it must be, a line each.

    ``octets`` are what ``extract`` gives; ``sent`` is how many FPDUs our end says it has sent, None if that is not
    known.
    """
    wrong = [f"tshark cannot read frame {number}" for number in found.odd]
    for name, end, bad in (("siw", found.siw, expected.bad_siw), ("ours", found.ours, expected.bad_ours)):
        if end.bad != bad:
            wrong.append(f"tshark finds {end.bad} bad CRCs in what {name} sent, not {bad}")
        if expected.crc is not None and end.good != (end.fpdus - bad if expected.crc else 0):
            wrong.append(f"tshark finds {end.good} good CRCs in {end.fpdus} FPDUs that {name} sent")
        if expected.crc is None and end.fpdus:
            wrong.append(f"tshark finds {end.fpdus} FPDUs that {name} sent without a connection")
        total = sum(count for address, count in octets.items() if (address == ADDRESS) == (name == "siw"))
        if expected.whole and total != end.octets:
            wrong.append(f"tshark dissects {end.octets} of the {total} octets that {name} sent")
    terminates = tuple([f"siw {what}" for what in found.siw.terminates] + [f"ours {w}" for w in found.ours.terminates])
    if terminates != expected.terminates:
        seen = ", ".join(terminates) or "none"
        wrong.append(f"tshark sees Terminates: {seen}; due: {', '.join(expected.terminates) or 'none'}")
    if sent is not None and expected.whole and found.ours.fpdus != sent:
        wrong.append(f"tshark finds {found.ours.fpdus} FPDUs of ours, which sent {sent}")
    return wrong


def streams(traffic: Traffic, expected: Expected) -> list[str]:
    """What is in other places than it must be, and whether there was a connection at all."""
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
            wrong.append(f"{before} FPDUs of siw's came before our first, not {expected.siw_first}")
    return wrong if traffic.connections else ["the capture has no connection"]


def overlooked(traffic: Traffic, nudges: int) -> list[str]:
    """Why it is not siw that had overlooked FPDUs when it was nudged: empty when the capture shows that it had.

    Everything that we had sent must have lain at the guest, acknowledged, for LAIN seconds before the nudge, some of it
    FPDUs, and nothing but a startup frame have come back.
    """
    wrong, found = [], 0
    for ours, siw in map(_ends, traffic.connections):
        for number, nudge in enumerate(ours.fpdus):
            if not nudge.head.startswith(NUDGED):
                continue
            found += 1
            there = next((time for time, upto in ours.acknowledged if upto >= nudge.offset), nudge.begun)
            if not number:
                wrong.append("a nudge was our first FPDU")
            elif nudge.begun - there < LAIN:
                lain = max(nudge.begun - there, 0)
                wrong.append(f"what we had sent before a nudge had lain at the guest for {lain:.2f} s, not {LAIN:g}")
            if any(fpdu.begun < nudge.begun for fpdu in siw.fpdus):
                wrong.append("siw had sent FPDUs before it was nudged, and this end had not noticed")
    return wrong if found == nudges else [*wrong, f"the capture has {found} nudges, not {nudges}"]


@dataclass(frozen=True)
class Pieces:
    """In what pieces FPDUs have reached an end: pieces of at most SMALL octets, and FPDUs that begin inside one."""

    small: int
    inside: int

    @classmethod
    def of(cls, stream: Stream, pieces: Sequence[tuple[int, int]]) -> Pieces:
        """``pieces`` of the stream have an offset and a number of octets each."""
        begin = stream.fpdus[0].offset if stream.fpdus else stream.octets
        pieces = sorted(piece for piece in pieces if piece[0] >= begin)
        starts = {offset for offset, _ in pieces}
        small = sum(octets <= SMALL for _, octets in pieces)
        return cls(small, sum(fpdu.offset not in starts for fpdu in stream.fpdus))

    def __str__(self) -> str:
        return f"{self.small} pieces of at most {SMALL} octets, {self.inside} FPDUs that began inside a piece"


def pieces(traffic: Traffic, received: Sequence[tuple[int, int]]) -> tuple[Pieces, Pieces]:
    """In what pieces siw got the octets of the first connection, as captured, and we, who ``received`` these."""
    ours, siw = _ends(traffic.connections[0])
    return Pieces.of(ours, [(offset, octets) for _, offset, octets in ours.segments]), Pieces.of(siw, received)


def _ends(connection: tuple[Stream, Stream]) -> tuple[Stream, Stream]:
    """Our stream, and siw's."""
    initiator, responder = connection
    return (responder, initiator) if initiator.source == ADDRESS else (initiator, responder)


def summary(found: Dissection) -> str:
    """What tshark saw, in a few words."""
    fpdus, good = found.siw.fpdus + found.ours.fpdus, found.siw.good + found.ours.good
    bad = found.siw.bad + found.ours.bad
    if not fpdus:
        return "startup frames only"
    crcs = "no CRC" if not good + bad else f"{good} good CRCs" + (f", {bad} bad" if bad else "")
    return f"{fpdus} FPDUs, {crcs}"


def _terminates(frame: str) -> list[str]:
    """Layer, error type and error code of each Terminate in a frame, as they are on the wire."""
    found = []
    for part in re.split(r"^\s+Terminate Control$", frame, flags=re.MULTILINE)[1:]:
        layer = re.search(r"([01]{4}) \.{4} = Layer", part)
        kind = re.search(r"\.{4} ([01]{4}) = Error Types", part)
        code = re.search(r"Error Code.*0x([0-9a-f]{2})\)?$", part, re.MULTILINE)
        if layer and kind and code:
            found.append(f"{int(layer[1], 2)}/{int(kind[1], 2)}/{int(code[1], 16)}")
    return found
