"""The server in the process that simulates a network path: frames and octets over a socket, time by the clock.

Python takes a step once in many clock cycles. Milliseconds of real time become ticks of the RTL.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.dut import start
from open_rnic.host_driver.devices.sim.layout import DEPTH, path_control, path_status
from open_rnic.host_driver.devices.sim.path_wire import COMMAND, CONNECTIONS, STATION, STATUS, Kind
from open_rnic.host_driver.devices.sim.server import Clock, Drain, Feed, Link
from open_rnic.host_driver.devices.sim.wire import SOCKET, WORD, frame, take_frames
from open_rnic.rtl.tcp.words import State

_SHORT, _LONG = 64, 512  # clock cycles between two steps of Python, with little and with much to do
_PADDING = bytes(2)  # before each frame
_WAITING_FRAMES = 64  # frames that wait for the ring; further ones are lost, as in a network card
PAUSE, _REST = 0.002, 0.5  # seconds between two looks at the clock, with connections and without


class Frames:
    """The Ethernet frames of a path, with the fields of its rings in ``control``."""

    def __init__(self, control: dict[str, int]):
        self._control = control
        self._rx = Feed(Kind.FRAME, "rx_frames", 1)
        self._tx = Drain(Kind.FRAME, "tx_frames", 1, range(1))
        self._waiting: deque[bytes] = deque()

    def add(self, octets: bytes) -> None:
        """Take a frame of the network; it is lost if too many wait."""
        if len(self._waiting) < _WAITING_FRAMES:
            self._waiting.append(octets)

    @property
    def busy(self) -> int:
        """Beats and frames that wait for the RTL."""
        return self._rx.backlog + len(self._waiting)

    def move(self, status: dict[str, int]) -> bytes:
        """Move all that is ready, both ways; return octets to send."""
        while self._waiting and self._rx.backlog < DEPTH:
            self._rx.add(_PADDING + self._waiting.popleft())
        self._rx.step(status["rx_frames_taken"])
        self._tx.credit = DEPTH
        frames = bytearray(self._tx.step(status["tx_frames_written"], status["tx_frames_notes"]))
        self._control.update(rx_frames_posted=self._rx.posted, tx_frames_freed=self._tx.freed)
        return b"".join(frame(Kind.FRAME, 0, octets[len(_PADDING) :]) for _, _, octets in take_frames(frames))


class PathServer:
    """The network path at the other end of a link."""

    def __init__(self, dut: Any, link: Link, connections: int):
        self._link = link
        self._connections = connections
        self._clock = Clock(dut, path_control(connections), path_status(connections))
        self._to_send = Feed(Kind.OCTETS, "to_send", 1)
        self._received = Drain(Kind.OCTETS, "received", 1, range(connections))
        self._commands: deque[tuple[int, bytes]] = deque()
        self._known: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * connections
        self._given = self._done = 0  # commands
        self._control = self._clock.control
        self._frames = Frames(self._control)

    async def run(self) -> None:
        """Serve until the program goes away."""
        self._link.send(frame(Kind.HELLO))
        began = time.monotonic()
        status = await self._clock.step(_SHORT)
        while (messages := self._link.receive()) is not None:
            for each in messages:
                self._take(*each)
            self._control["ticks"] = int((time.monotonic() - began) * 1000) & 0xFFFF
            self._command(status)
            out = self._move(status)
            busy = self._frames.busy + self._to_send.backlog
            before = status
            status = await self._clock.step(_LONG if busy > _SHORT or self._given != self._done else _SHORT)
            out += self._changes(status)
            if out:
                self._link.send(out)
            if status == before and self._given == self._done and not (out or messages or busy or self._commands):
                active = any(state not in (State.CLOSED, State.LISTEN) for state, *_ in self._known)
                self._link.wait(PAUSE if active else _REST)
                self._link.send(b"")

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        match kind:
            case Kind.FRAME:
                self._frames.add(octets)
            case Kind.OCTETS:
                self._to_send.add(octets, note)
            case Kind.COMMAND:
                self._commands.append((note, octets))
            case Kind.STATION:
                names = "mac", "address", "prefix", "gateway"
                self._control.update(zip(names, STATION.unpack(octets), strict=True))
            case Kind.ACCEPT:
                (wanted,) = WORD.unpack(octets)
                self._control["accept"] = self._control["accept"] & ~(1 << note) | wanted << note

    def _command(self, status: dict[str, int]) -> None:
        if status["turn"] != self._control["turn"]:
            return
        # The RTL took the last command at least a step ago, which is longer than it needs to carry the command out.
        self._done = self._given
        if self._commands:
            self._given = (self._given + 1) & 0xFFFF
            kind, octets = self._commands.popleft()
            names = "connection", "ports", "peer", "iss"
            self._control.update(zip(names, COMMAND.unpack(octets), strict=True))
            self._control.update(kind=kind, turn=self._control["turn"] ^ 1)

    def _move(self, status: dict[str, int]) -> bytes:
        """Move all that the streams have ready, both ways; return octets to send."""
        out = self._frames.move(status) + self._to_send.step(status["to_send_taken"])
        self._received.credit = DEPTH
        out += self._received.step(status["received_written"], status["received_notes"])
        self._control["to_send_posted"] = self._to_send.posted
        self._control["received_freed"] = self._received.freed
        return out

    def _changes(self, status: dict[str, int]) -> bytes:
        out = b""
        for at in range(self._connections):
            now = status[f"status_{at}"], status[f"peer_{at}"], status[f"ports_{at}"], self._done
            if now != self._known[at]:
                self._known[at] = now
                out += frame(Kind.STATUS, at, STATUS.pack(*now))
        return out


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """The only test of the simulation: it ends with the program that started it."""
    await start(dut)
    link = Link(int(os.environ[SOCKET]))
    await PathServer(dut, link, int(os.environ[CONNECTIONS])).run()
    link.close()
