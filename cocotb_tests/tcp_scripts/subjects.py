"""The subjects of scripts: the twin, and the program of the TCP engine in the interpreter."""

from collections import deque
from dataclasses import replace
from ipaddress import IPv4Address

from open_rnic.cocotb_tests.rtl.tcp.programmed import Programmed
from open_rnic.cocotb_tests.rtl.tcp.shadow import decode, twin_config
from open_rnic.cocotb_tests.tcp_scripts.script import HERE, PEER_PORT, PORT, THERE, Case
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import Segment, SegmentError
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import PIECE, Command, Reason, State

__all__ = ["Engine", "Program", "Twin", "engine_status"]

OPTIONS = {"timestamps": "timestamps", "scaling": "scaling", "sack sending": "sack_sending"}


def pieces(count: int) -> list[int]:
    """The pieces in which the RTL gives octets to its user."""
    return [min(PIECE, count - at) for at in range(0, count, PIECE)]


def engine_status(status: int) -> str:
    """The status of an engine's connection, as a script names it."""
    if status >= min(Reason):
        return f"CLOSED {Reason(status).name.lower()}"
    return State(status).name.replace("_", "-")


class Twin:
    """The twin with the options of the RTL, and those that the case needs."""

    def __init__(self, case: Case, iss: int):
        config = replace(twin_config(EngineConfig(**case.config)), **{OPTIONS[each]: True for each in case.needs
                                                                     if each in OPTIONS})  # fmt: skip
        self.endpoint = Endpoint(HERE, config, iss=lambda *_: iss)
        self.connection = None
        self.ended = ""
        self.now = 0

    def come(self, now: int) -> None:
        """Let the time come."""
        while (deadline := self.endpoint.deadline) is not None and deadline <= now:
            self.endpoint.tick(deadline)
        self.now = now

    def receive(self, source: IPv4Address, octets: bytes) -> None:
        """Take the octets of a segment."""
        try:
            segment = Segment.decode(octets, source, HERE)
        except SegmentError:
            return
        self.endpoint.receive(source, segment, self.now)
        if PORT in self.endpoint.accepted and self.endpoint.connections:
            self.endpoint.unlisten(PORT)  # as in the engine, the listener becomes the connection
            self.connection = next(iter(self.endpoint.connections.values()))

    def listen(self) -> None:
        self.endpoint.listen(PORT)
        self.connection = None

    def open(self) -> None:
        self.connection = self.endpoint.open(THERE, PEER_PORT, self.now, PORT)

    def close(self) -> None:
        if self.connection:
            self.endpoint.close(self.connection, self.now)
        else:
            self._unlisten()

    def abort(self) -> None:
        if self.connection:
            self.endpoint.abort(self.connection)
        else:
            self._unlisten()

    def keep_alive(self, idle: int, interval: int, probes: int) -> None:
        self.endpoint.keep_alive(self.connection, KeepAlive(idle, interval, probes), self.now)

    def _unlisten(self) -> None:
        self.endpoint.unlisten(PORT)
        self.ended = " aborted"

    def send(self, octets: bytes) -> int:
        return self.endpoint.send(self.connection, octets, self.now)

    def read(self, count: int) -> bytes:
        return b"".join([self.endpoint.take(self.connection, each, self.now) for each in pieces(count)])

    @property
    def state(self) -> str:
        """The state, with CLOSED the reason."""
        if self.connection:
            end = self.connection.end
            return self.connection.state.value + (f" {end.name.lower()}" if end else "")
        return "LISTEN" if PORT in self.endpoint.accepted else f"CLOSED{self.ended}"

    @property
    def segments(self) -> deque[tuple[IPv4Address, Segment]]:
        """The segments that were sent."""
        return self.endpoint.segments


class Engine:
    """A connection of an engine: ``engine`` is one, with the methods of :class:`.Programmed`."""

    def __init__(self, engine):
        self.engine = engine
        self.segments: deque[tuple[IPv4Address, Segment]] = deque()

    def come(self, now: int) -> None:
        """Let the time come."""
        self.engine.tick(now)
        self.collect()

    def listen(self) -> None:
        self._command(Command.LISTEN_AT)

    def open(self) -> None:
        self._command(Command.OPEN, int(THERE), PEER_PORT)

    def close(self) -> None:
        self._command(Command.CLOSE)

    def abort(self) -> None:
        self._command(Command.ABORT)

    def keep_alive(self, idle: int, interval: int, probes: int) -> None:
        self._command(Command.KEEP_ALIVE, idle * 1000, probes, interval * 1000)

    def _command(self, *arguments: int) -> None:
        self.engine.command(*arguments)
        self.collect()

    def send(self, octets: bytes) -> int:
        count = self.engine.send(octets, self.engine.now)
        self.collect()
        return count

    def read(self, count: int) -> bytes:
        octets = self.engine.take(pieces(count), self.engine.now)
        self.collect()
        return octets

    def collect(self) -> None:
        """Take the segments that were sent."""
        while self.engine.segments:
            address, octets = self.engine.segments.popleft()
            self.segments.append((IPv4Address(address), decode(octets, address)))


class Program(Engine):
    """The program of the engine, in the interpreter; it takes segments that are decoded already."""

    def __init__(self, case: Case, iss: int):
        super().__init__(Programmed(EngineConfig(**case.config), PORT, iss))

    def receive(self, source: IPv4Address, octets: bytes) -> None:
        """Take the octets of a segment."""
        try:
            segment = Segment.decode(octets, source, HERE)
        except SegmentError:
            return
        self.engine.receive(int(source), segment, self.engine.now)
        self.collect()

    @property
    def state(self) -> str:
        """The state, with CLOSED the reason."""
        if self.engine.state is State.CLOSED:
            return engine_status(self.engine.events[-1]) if self.engine.events else "CLOSED"
        return engine_status(self.engine.state)
