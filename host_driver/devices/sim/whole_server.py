"""The server in the process that simulates a whole RNIC: frames over a socket, octets of GMII at the RTL.

It adds preamble, padding and FCS, and checks those of the RTL. Milliseconds of real time become ticks of the RTL. While
nothing moves, simulated time goes on from tick to tick only.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any
from zlib import crc32

import cocotb

from open_rnic.host_driver.devices.sim.dut import start
from open_rnic.host_driver.devices.sim.layout import DEPTH, WHOLE_CONTROL, WHOLE_STATUS
from open_rnic.host_driver.devices.sim.path_server import PAUSE
from open_rnic.host_driver.devices.sim.path_wire import Damage, Kind
from open_rnic.host_driver.devices.sim.server import Clock, Drain, Feed, Link
from open_rnic.host_driver.devices.sim.wire import SOCKET, frame, take_frames

_PREAMBLE = bytes([0x55] * 7 + [0xD5])
_FCS = 4  # octets
_LEAST = 60  # octets of a frame without FCS
_CYCLES = 1024  # of GMII between two steps of Python: time for half a ring
_IDLE = 256  # cycles for the ticks that have come
_WAITING_FRAMES = 64  # frames on their way into the RTL; further ones are lost, as in a switch


def fcs(octets: bytes) -> bytes:
    """Return the FCS of a frame (IEEE 802.3 §3.2.9)."""
    return crc32(octets).to_bytes(_FCS, "little")


def on_gmii(given: bytes, damage: int = Damage.NONE) -> bytes:
    """Return the octets at GMII of a frame, which may be damaged."""
    padded = given.ljust(_LEAST, b"\0")
    check = bytearray(fcs(padded))
    if damage == Damage.FCS:
        check[0] ^= 1
    if damage == Damage.RUNT:
        padded = padded[:_LEAST - 1]
        check = bytearray(fcs(padded))
    return _PREAMBLE + padded + check


class BadFrameError(Exception):
    """The RTL has transmitted octets that are no frame."""


def from_gmii(octets: bytes) -> bytes:
    """Return the frame in these octets; raises BadFrameError if anything is wrong with it."""
    body, check = octets[len(_PREAMBLE) : -_FCS], octets[-_FCS:]
    if not octets.startswith(_PREAMBLE) or len(body) < _LEAST or fcs(body) != check:
        raise BadFrameError(f"{len(octets)} octets at GMII are no frame: {octets[:80].hex()}")
    return body


class WholeServer:
    """The RNIC at the other end of a link."""

    def __init__(self, dut: Any, link: Link):
        self._link = link
        self._clock = Clock(dut, WHOLE_CONTROL, WHOLE_STATUS)
        self._clock.control["up"] = 1
        self._rx = Feed(Kind.FRAME, "rx_frames", 1)
        self._tx = Drain(Kind.FRAME, "tx_frames", 1, range(1))
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._cut = False  # a frame may have been cut off

    async def run(self) -> None:
        """Serve until the program goes away."""
        self._link.send(frame(Kind.HELLO))
        control = self._clock.control
        began = time.monotonic()
        status = await self._clock.step(_IDLE)
        while (messages := self._link.receive()) is not None:
            for each in messages:
                self._take(*each)
            control["ticks"] = int((time.monotonic() - began) * 1000) & 0xFFFF
            while self._waiting and self._rx.backlog < DEPTH:
                damage, given = self._waiting.popleft()
                octets = on_gmii(given, damage)
                self._rx.add(octets, len(octets) // 2 if damage == Damage.ERROR else 0)
            self._rx.step(status["rx_frames_taken"])
            out = self._frames(status)
            if out:
                self._link.send(out)
            control.update(rx_frames_posted=self._rx.posted, tx_frames_freed=self._tx.freed)
            busy = status["active"] or not self._rx.empty or self._waiting
            if not busy and not messages:
                self._link.wait(PAUSE)
                self._link.send(b"")
            status = await self._clock.step(_CYCLES if busy or messages else _IDLE)

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        if kind == Kind.FRAME:
            if len(self._waiting) < _WAITING_FRAMES:
                self._waiting.append((note, octets))
        elif kind == Kind.CABLE:
            self._clock.control["up"] = note
            self._cut = True

    def _frames(self, status: dict[str, int]) -> bytes:
        """Return the frames that the RTL has transmitted, to be sent."""
        self._tx.credit = DEPTH
        found = bytearray(self._tx.step(status["tx_frames_written"], status["tx_frames_notes"]))
        out = b""
        for _, _, octets in take_frames(found):
            try:
                out += frame(Kind.FRAME, 0, from_gmii(octets))
            except BadFrameError:
                if not self._cut:
                    raise
        return out


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """The only test of the simulation: it ends with the program that started it."""
    await start(dut)
    link = Link(int(os.environ[SOCKET]))
    await WholeServer(dut, link).run()
    link.close()
