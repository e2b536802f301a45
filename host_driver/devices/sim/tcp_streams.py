"""The TCP of a network path in a simulation: octets, commands, and the states of connections."""

from __future__ import annotations

from collections import deque

from open_rnic.host_driver.devices.sim.dut import Clock
from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.host_driver.devices.sim.ring_ends import Drain, Feed
from open_rnic.host_driver.devices.sim.wire import COMMAND, STATION, STATUS, WORD, Kind, frame
from open_rnic.rtl.tcp.words import State

__all__ = ["TcpStreams"]

_REST, _PAUSE = 0.5, 0.002  # seconds between two looks at the clock, without connections and with some


class TcpStreams(Peripheral):
    """The streams of all connections, whose number is the width of ``accept``, and what else their host has to do."""

    def __init__(self, clock: Clock):
        super().__init__(clock)
        self._to_send = Feed(clock, "to_send")
        self._received = Drain(clock, "received")
        self._commands: deque[tuple[int, bytes]] = deque()
        self._given = self._done = self._reported = 0  # commands, modulo 2**16
        self._known = [(0, 0, 0, 0)] * clock.layout.control["accept"]

    @property
    def work(self) -> int:  # type: ignore[override]
        """See Peripheral."""
        return self._to_send.backlog if self._given == self._done else self.clock.layout.slices[1]

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """See Peripheral."""
        control = self.clock.control
        match kind:
            case Kind.OCTETS:
                self._to_send.add_packet(octets, note)
            case Kind.COMMAND:
                self._commands.append((note, octets))
            case Kind.STATION:
                control.update(zip(("mac", "address", "prefix", "gateway"), STATION.unpack(octets), strict=True))
            case Kind.ACCEPT:
                (wanted,) = WORD.unpack(octets)
                control["accept"] = control["accept"] & ~(1 << note) | wanted << note

    async def serve(self) -> bytes:
        """See Peripheral."""
        out = self._changes()
        self._command()
        if count := self._to_send.move():
            out += frame(Kind.GRANT, Kind.OCTETS, WORD.pack(count))
        return out + b"".join(frame(Kind.OCTETS, connection, octets) for connection, octets in self._received.packets())

    async def pause(self) -> float | None:
        """See Peripheral."""
        if self._commands or self._given != self._reported:
            return 0
        return _REST if all(state in (State.CLOSED, State.LISTEN) for state, *_ in self._known) else _PAUSE

    def _changes(self) -> bytes:
        status, out, self._reported = self.clock.status, b"", self._done
        for at, known in enumerate(self._known):
            now = status[f"status_{at}"], status[f"peer_{at}"], status[f"ports_{at}"], self._done
            if now != known:
                self._known[at] = now
                out += frame(Kind.STATUS, at, STATUS.pack(*now))
        return out

    def _command(self) -> None:
        control = self.clock.control
        if self.clock.status["turn"] != control["turn"]:
            return
        # The RTL took the last command at least a step ago, which is longer than it needs to carry the command out.
        self._done = self._given
        if self._commands:
            self._given = (self._given + 1) & 0xFFFF
            kind, octets = self._commands.popleft()
            control.update(zip(("connection", "ports", "peer", "iss"), COMMAND.unpack(octets), strict=True))
            control.update(kind=kind, turn=control["turn"] ^ 1)
