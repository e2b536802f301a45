"""The exchange of a connection as a ladder: the frames between the two ends, and the reports of their devices.

Both ends are observed. Each startup frame is a rung, and so is the first FPDU of each direction, because it opens a
fence. Later FPDUs are left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from textwrap import wrap
from typing import Any

from open_rnic.host_driver import ddp
from open_rnic.host_driver.connection import Address
from open_rnic.host_driver.device import Event
from open_rnic.host_driver.mpa.negotiation import Negotiated
from open_rnic.host_driver.observer import Agreed, Closed, Counted, Direction, Frame, Octets, Opened, Reported, Seen
from open_rnic.rtl.registers import Cause, EventKind, Model, Role, Rtr

_WIDTH = 46  # columns between the two ends
_EVENTS = {
    EventKind.TX_MPA: "MPA on transmit",
    EventKind.RX_MPA: "MPA on receive",
    EventKind.FENCE_OPEN: "TX fence opens",
    EventKind.RTR_SENT: "RTR sent",
    EventKind.RTR_RECEIVED: "RTR received",
    EventKind.RESPONSE_SENT: "Read Response sent",
    EventKind.RESPONSE_RECEIVED: "Read Response received",
    EventKind.TERMINATE_SENT: "Terminate sent",
}


@dataclass(frozen=True)
class Step:
    """A step of the exchange at ``end``; ``sent`` if it went to the other end."""

    seconds: float  # since the first step, which is the MPA Request
    end: Role
    sent: bool
    what: str
    details: tuple[str, ...]
    fields: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the step as plain data."""
        peer = Role(1 - self.end)
        place = {"from": _name(self.end), "to": _name(peer)} if self.sent else {"at": _name(self.end)}
        return {"seconds": round(self.seconds, 6), **place, "what": self.what, **self.fields}

    def lines(self, width: int) -> list[str]:
        """Return the step as text, with details beside the ladder if they fit into ``width`` columns, or inside it."""
        left = self.end is Role.INITIATOR
        if self.sent:
            bar = "─" * (_WIDTH - len(self.what) - 5)
            rung = f"│─ {self.what} {bar}▸│" if left else f"│◂{bar} {self.what} ─│"
        else:
            rung = f"● {self.what:<{_WIDTH - 3}} │" if left else f"│ {self.what:>{_WIDTH - 3}} ●"
        rungs = [f"{self.seconds:9.4f}  {rung}"]
        beside = list(self.details)
        if max(map(len, beside), default=0) > width - len(rungs[0]) - 2:
            inside = [part for each in beside for part in wrap(each, _WIDTH - 3)]
            rungs += [f"{'':11}│ {part:<{_WIDTH - 3}} │" for part in inside]
            beside = []
        else:
            rungs += [f"{'':11}│{'':{_WIDTH - 1}}│"] * (len(beside) - 1)
        return [f"{rung}  {detail}".rstrip() for rung, detail in zip_longest(rungs, beside, fillvalue="")]


class Ladder:
    """The steps so far. ``write`` is called with each line of text as soon as it is complete.

    Lines have at most ``width`` columns, if those are 58 or more.
    """

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic, width: int = 200
    ) -> None:
        self.steps: list[Step] = []
        self._write = write
        self._width = width
        self._clock = clock
        self._start: float | None = None

    def end(self, role: Role) -> LadderEnd:
        """The observer of one end."""
        return LadderEnd(self, role)

    def head(self, initiator: Address, responder: Address) -> None:
        """Start the ladder with a line that names the two ends."""
        left, right = f"initiator, port {initiator[1]}", f"responder, port {responder[1]}"
        self._write(f"{'seconds':>9}  {left}{right:>{_WIDTH + 1 - len(left)}}")

    def add(self, end: Role, what: str, *details: str, sent: bool = False, fields: dict[str, Any]) -> None:
        """Add a step that happened just now."""
        now = self._clock()
        if self._start is None:
            self._start = now
        step = Step(now - self._start, end, sent, what, details, fields)
        self.steps.append(step)
        for line in step.lines(self._width):
            self._write(line)


class LadderEnd:
    """The observer of one end."""

    def __init__(self, ladder: Ladder, role: Role) -> None:
        self._ladder = ladder
        self._role = role
        self._negotiated: Negotiated | None = None
        self._fpdu_seen = False
        self._startup_sent = 0

    def __call__(self, seen: Seen) -> None:
        """See ``host_driver.observer``."""
        match seen:
            case Opened(local, peer) if self._role is Role.INITIATOR:
                self._ladder.head(local, peer)
            case Frame(Direction.TX, frame):
                self._startup_sent = len(frame.encode())
                self._ladder.add(self._role, str(frame.kind), *frame.describe(), sent=True, fields=frame.fields())
            case Agreed(negotiated):
                self._negotiated = negotiated
            case Octets(Direction.TX, octets) if self._startup_sent:
                self._startup_sent -= len(octets)
            case Octets(Direction.TX, octets) if self._negotiated and not self._fpdu_seen:
                self._fpdu_seen = True
                self._first_fpdu(octets, self._negotiated)
            case Counted(Direction.TX, fpdus) if not self._fpdu_seen:
                self._fpdu_seen = True
                self._ladder.add(self._role, "first FPDUs", sent=True, fields={"fpdus": fpdus})
            case Reported(event):
                self._event(event)
            case Closed():
                self._ladder.add(self._role, "TCP connection closed", fields={})

    def _event(self, event: Event) -> None:
        fields: dict[str, Any] = {"event": event.kind.name, "offset": event.offset}
        details: tuple[str, ...] = ()
        what = _EVENTS.get(event.kind, str(event))
        match event.kind:
            case EventKind.RTR_SENT | EventKind.RTR_RECEIVED:
                fields["rtr"] = Rtr(event.detail).name.lower()
                what = f"{what}: {fields['rtr'].capitalize()}"
            case EventKind.ERROR:
                fields |= {"error": event.cause.code, "cause": Cause(event.detail).name, "value": event.value}
                what, details = f"error {event.cause.code}", (str(event),)
        if event.offset and not details:
            details = (f"stream offset {event.offset}",)
        self._ladder.add(self._role, what, *details, fields=fields)

    def _first_fpdu(self, octets: bytes, negotiated: Negotiated) -> None:
        fpdu = octets[4:] if negotiated.markers_tx else octets  # the leading marker
        length = int.from_bytes(fpdu[:2], "big")
        crc = fpdu[-4:].hex()
        fields: dict[str, Any] = {"octets": len(octets), "ulpdu_length": length, "crc": crc}
        frame = f"FPDU of {len(octets)} octets: ULPDU_Length {length}, CRC {crc if negotiated.crc else 'off'}"
        if negotiated.markers_tx:
            fields["marker"] = octets[:4].hex()
            frame += f", behind marker {fields['marker']}"
        details = [frame]
        rtr = negotiated.rtr_send is not Rtr.NONE and negotiated.model is Model.PEER_TO_PEER
        try:
            segment = ddp.decode(fpdu[2 : 2 + length])
        except ddp.DdpError as error:
            what = "first FPDU"
            details.append(str(error))
        else:
            what = f"{'RTR: ' if rtr else ''}{segment.opcode}"
            details.append(str(segment))
            fields["opcode"] = segment.opcode.name
        self._ladder.add(self._role, what, *details, sent=True, fields=fields)


def _name(role: Role) -> str:
    return role.name.lower()
