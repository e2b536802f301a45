"""The server in the process that simulates a network path: frames and octets over a socket, time by the clock.

Python takes a step once in many clock cycles. Milliseconds of real time become ticks of the RTL.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any

import cocotb
from cocotb.handle import Immediate
from cocotb.triggers import Timer

from open_rnic.host_driver.devices.sim.dut import PERIOD, start
from open_rnic.host_driver.devices.sim.layout import DEPTH, pack, path_control, path_status, unpack
from open_rnic.host_driver.devices.sim.path_wire import COMMAND, CONNECTIONS, STATION, STATUS, Kind
from open_rnic.host_driver.devices.sim.server import Drain, Feed, Link
from open_rnic.host_driver.devices.sim.wire import SOCKET, WORD, frame, take_frames
from open_rnic.rtl.tcp.words import State

_SHORT, _LONG = 64, 512  # clock cycles between two steps of Python, with little and with much to do
_PADDING = bytes(2)  # before each frame
_WAITING_FRAMES = 64  # frames that wait for the ring; further ones are lost, as in a network card
_PAUSE, _REST = 0.002, 0.5  # seconds between two looks at the clock, with connections and without


class PathServer:
    """The network path at the other end of a link."""

    def __init__(self, dut: Any, link: Link, connections: int):
        self._dut = dut
        self._link = link
        self._connections = connections
        self._layouts = path_control(connections), path_status(connections)
        self._rx_frames = Feed(Kind.FRAME, "rx_frames", 1)
        self._to_send = Feed(Kind.OCTETS, "to_send", 1)
        self._tx_frames = Drain(Kind.FRAME, "tx_frames", 1, range(1))
        self._received = Drain(Kind.OCTETS, "received", 1, range(connections))
        self._frames: deque[bytes] = deque()
        self._commands: deque[tuple[int, bytes]] = deque()
        self._known: list[tuple[int, int, int, int]] = [(0, 0, 0, 0)] * connections
        self._given = self._done = 0  # commands
        self._control = dict.fromkeys(self._layouts[0], 0)
        self._written = 0

    async def run(self) -> None:
        """Serve until the program goes away."""
        self._link.send(frame(Kind.HELLO))
        began = time.monotonic()
        status = await self._step(_SHORT)
        while (messages := self._link.receive()) is not None:
            for each in messages:
                self._take(*each)
            self._control["ticks"] = int((time.monotonic() - began) * 1000) & 0xFFFF
            self._command(status)
            out = self._move(status)
            busy = self._rx_frames.backlog + self._to_send.backlog + len(self._frames)
            before = status
            status = await self._step(_LONG if busy > _SHORT or self._given != self._done else _SHORT)
            out += self._changes(status)
            if out:
                self._link.send(out)
            if status == before and self._given == self._done and not (out or messages or busy or self._commands):
                active = any(state not in (State.CLOSED, State.LISTEN) for state, *_ in self._known)
                self._link.wait(_PAUSE if active else _REST)
                self._link.send(b"")

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        match kind:
            case Kind.FRAME:
                if len(self._frames) < _WAITING_FRAMES:
                    self._frames.append(octets)
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
        while self._frames and self._rx_frames.backlog < DEPTH:
            self._rx_frames.add(_PADDING + self._frames.popleft())
        self._rx_frames.step(status["rx_frames_taken"])
        out = self._to_send.step(status["to_send_taken"])
        self._tx_frames.credit = self._received.credit = DEPTH
        out += self._received.step(status["received_written"], status["received_notes"])
        frames = bytearray(self._tx_frames.step(status["tx_frames_written"], status["tx_frames_notes"]))
        for _, _, octets in take_frames(frames):
            out += frame(Kind.FRAME, 0, octets[len(_PADDING) :])
        self._control["rx_frames_posted"] = self._rx_frames.posted
        self._control["to_send_posted"] = self._to_send.posted
        self._control["tx_frames_freed"] = self._tx_frames.freed
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

    async def _step(self, cycles: int) -> dict[str, int]:
        control = pack(self._layouts[0], self._control)
        if control != self._written:
            self._dut.control.set(Immediate(control))
            self._written = control
        await Timer(cycles * PERIOD, "step")
        return unpack(self._layouts[1], int(self._dut.status.value))


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """The only test of the simulation: it ends with the program that started it."""
    await start(dut)
    link = Link(int(os.environ[SOCKET]))
    await PathServer(dut, link, int(os.environ[CONNECTIONS])).run()
    link.close()
