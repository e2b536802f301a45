"""A frame pipe: an Ethernet segment in software between two ports, with faults by a seeded plan.

Here a frame crosses a segment on which every frame arrives twice::

    one, segment = joined()
    other, end = joined()
    async with Pipe(segment, end, Faults(duplicate=1.0), seed=1, capture=Path("pipe.pcapng")):
        other.receive = print
        one.send(frame)

A port is anything that frames can be given to and that gives frames: a TAP device (:mod:`.tap`), a guest in QEMU
(:mod:`.qemu`), a stack in Python or simulated hardware (``joined``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Protocol

from open_rnic.host_driver.net.capture import FrameCapture
from open_rnic.host_driver.net.faults import Arrival, Direction, Fault, Faults, Kind

__all__ = [
    "Direction", "Fault", "Faults", "JoinedPort", "Kind", "Pipe", "Port", "PortError", "Switch", "discard", "joined",
]  # fmt: skip


class Port(Protocol):
    """A place where whole Ethernet frames go in and out, without preamble and FCS.

    Members
    -------
    receive : called for each frame that comes out of the port; the owner of the port's other side sets it

    """

    receive: Callable[[bytes], None]

    def send(self, frame: bytes) -> None:
        """Give a frame to the port. Never blocks, and raises nothing: a frame that the port cannot take is lost."""


class PortError(OSError):
    """A port cannot be opened, or has failed; the message is one line."""


def discard(frame: bytes) -> None:
    """Lose a frame: what a port does with its frames until ``receive`` is set."""


class JoinedPort:
    """A port whose frames come out of another port at once, within the call of ``send``."""

    def __init__(self) -> None:
        self.receive: Callable[[bytes], None] = discard
        self._other = self

    def send(self, frame: bytes) -> None:
        """Give a frame to the other port."""
        self._other.receive(frame)


def joined() -> tuple[JoinedPort, JoinedPort]:
    """Return two ports; what is sent into one comes out of the other."""
    one, other = JoinedPort(), JoinedPort()
    one._other, other._other = other, one
    return one, other


class Switch:
    """An Ethernet switch without faults, which learns where each MAC address is. Frames leave it in the event loop."""

    def __init__(self) -> None:
        self._ports: list[JoinedPort] = []
        self._places: dict[bytes, JoinedPort] = {}

    def port(self) -> JoinedPort:
        """Return another port; what is sent into it enters the switch."""
        outside, inside = joined()
        inside.receive = partial(self._pass, inside)
        self._ports.append(inside)
        return outside

    def _pass(self, source: JoinedPort, frame: bytes) -> None:
        self._places[frame[6:12]] = source
        place = self._places.get(frame[:6])
        for port in self._ports if place is None else [place]:
            if port is not source:
                asyncio.get_running_loop().call_soon(port.send, frame)


class Pipe:
    """An Ethernet segment between two ports, as an asynchronous context manager, which does not close the ports.

    Frames leave a port and arrive at the other through the event loop, never within the same call. Frames arrive with
    the timing of the loop, which is late by up to 1 ms, so that several may arrive in a burst; but as the times of
    arrival are computed from when frames left, the rate is exact.

    Parameters
    ----------
    one, other : the ports
    faults : the plan of both directions, or of one to other, then other to one
    seed : of all decisions; the directions' decisions are independent
    capture : a pcapng file to write, which names the interfaces ``one`` and ``other``. Each frame is written when it
        leaves a port, as outbound, and when it arrives at the other, as inbound. The comment on a frame that met
        faults has its number in its direction and the faults.

    Members
    -------
    directions : the ways from one to other and from other to one, with their logs and counters

    """

    def __init__(
        self,
        one: Port,
        other: Port,
        faults: Faults | tuple[Faults, Faults] | None = None,
        seed: int = 0,
        capture: Path | None = None,
    ) -> None:
        self.directions = Direction(seed=f"{seed}, one to other"), Direction(seed=f"{seed}, other to one")
        self._ports = one, other
        self._path = capture
        self._capture: FrameCapture | None = None
        self._timers: list[asyncio.TimerHandle | None] = [None, None]
        self.change(faults or Faults())

    def change(self, faults: Faults | tuple[Faults, Faults]) -> None:
        """Exchange the plan for the frames that leave a port from now on."""
        pair = faults if isinstance(faults, tuple) else (faults, faults)
        for direction, plan in zip(self.directions, pair, strict=True):
            direction.faults = plan

    def cut(self) -> None:
        """Pull the cable: all frames are lost until ``join``, those on their way too."""
        for side, direction in enumerate(self.directions):
            direction.cut(self._loop.time())
            self._schedule(side)

    def join(self) -> None:
        """Put the cable in again."""
        for direction in self.directions:
            direction.join()

    async def __aenter__(self) -> Pipe:
        self._loop = asyncio.get_running_loop()
        self._epoch = time.time_ns() - int(self._loop.time() * 1e9)
        if self._path is not None:
            self._capture = FrameCapture(self._path, ("one", "other"))
        for side, port in enumerate(self._ports):
            port.receive = partial(self._leave, side)
        return self

    async def __aexit__(self, *exception: object) -> None:
        for port in self._ports:
            port.receive = discard
        for timer in self._timers:
            if timer is not None:
                timer.cancel()
        if self._capture is not None:
            self._capture.close()

    def _leave(self, side: int, frame: bytes) -> None:
        """Take a frame from the port of this side."""
        now = self._loop.time()
        direction = self.directions[side]
        number = direction.offered
        kinds = direction.offer(frame, now)
        self._record(side, Arrival(number, frame, kinds), now, outbound=True)
        self._schedule(side)

    def _schedule(self, side: int) -> None:
        """Set the timer for the next arrival from this side."""
        timer, deadline = self._timers[side], self.directions[side].deadline
        if timer is not None:
            if timer.when() == deadline:
                return
            timer.cancel()
        self._timers[side] = None if deadline is None else self._loop.call_at(deadline, self._arrive, side)

    def _arrive(self, side: int) -> None:
        """Give the frames from this side that have arrived to the other port."""
        self._timers[side] = None
        now = self._loop.time()
        for arrival in self.directions[side].arrivals(now):
            self._record(1 - side, arrival, now, outbound=False)
            self._ports[1 - side].send(arrival.frame)
        self._schedule(side)

    def _record(self, interface: int, seen: Arrival, now: float, *, outbound: bool) -> None:
        if self._capture is not None:
            comment = f"frame {seen.number}: {', '.join(seen.kinds)}" if seen.kinds else ""
            at = self._epoch + int(now * 1e9)
            self._capture.write(interface, seen.frame, at, outbound=outbound, comment=comment)
