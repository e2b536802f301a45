"""The program of the TCP engine, executed by the interpreter, with rings in Python: an endpoint like the twin's."""

import functools
import random
from collections import deque

from open_rnic.host_driver.tcp.ring import Ring
from open_rnic.host_driver.tcp.segment import Segment
from open_rnic.rtl.sequencer.interpreter import Interpreter
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.engine import HEADER
from open_rnic.rtl.tcp.microcode import tcp_program
from open_rnic.rtl.tcp.words import SegmentBit, State, port, row, segment, t

MASK = 0xFFFF_FFFF
_program = functools.cache(tcp_program)  # which is made once for all connections, and is not changed


class Programmed:
    """One connection in a row of the program. ``segments`` has the segments that it sent; ``octets`` those received."""

    def __init__(self, config: EngineConfig, local_port: int, iss: int):
        self.config = config
        self.local_port, self.iss = local_port, iss
        self.segments: deque[tuple[int, Segment]] = deque()
        self.events: list[int] = []
        self.send_ring, self.receive_ring = Ring(config.send_ring), Ring(config.receive_ring)
        self.read = self.limit = self.tail = self.una = 0
        self.bound = (0, 0)
        self.wants = False
        self.permitted = 0
        self.packets = 0
        self.cut_through = b""  # the packet that is in a frame already
        self.building: dict = {}
        self.payload = b""
        self.taken_segment = False
        names = vars(port)
        self.machine = Interpreter(
            _program(config), 1, {place.code: getattr(self, f"_{name}") for name, place in names.items()}
        )
        self.now = 0

    # Ports

    def _destination(self, _, value):
        self.building = {"destination": value, "words": []}

    def _length(self, _, value):
        self.building["length"] = value

    def _word(self, _, value):
        self.building["words"].append(value)

    def _payload_from(self, _, value):
        self.building["from"] = value

    def _payload(self, _, value):
        octets = self.send_ring.read(self.building["from"], value) if value else self.cut_through
        header = b"".join(word.to_bytes(4, "big") for word in self.building["words"])
        assert self.building["length"] == len(header) + len(octets)
        assert header[12] >> 4 == len(header) // 4
        self.segments.append((self.building["destination"], header + octets))

    def _place(self, _, value):
        self.place = value

    def _first(self, _, value):
        self.first = value

    def _take(self, _, value):
        assert not self.taken_segment, "a segment is taken once"
        self.taken_segment = True
        if value:
            self.receive_ring.write((self.place + self.first) & MASK, self.payload[self.first : value])

    def _begin_receive(self, _, value):
        self.read = self.limit = value

    def _deliver(self, _, value):
        self.limit = value

    def _finish(self, _, value):
        self.finished = True

    def _begin_send(self, _, value):
        self.tail = self.una = value

    def _release(self, _, value):
        assert (value - self.una) & MASK <= self.config.send_ring
        self.una = value

    def _want(self, _, value):
        self.wants = True

    def _permit(self, _, value):
        self.permitted = value

    def _status(self, _, value):
        self.events.append(value)

    def _bind_address(self, _, value):
        self.bound = (value, self.bound[1])

    def _bind_ports(self, _, value):
        self.bound = (self.bound[0], value)

    # Events

    def run(self, entry, words=None):
        self.machine.run(entry, 0, {t.now: self.now, **(words or {})})
        while self.wants:
            self.wants = False
            self.machine.run("output", 0)

    def command(self, command, address=0, remote_port=0, iss=None):
        self.run("command", {
            t.argument0: command, t.argument1: self.local_port << 16 | remote_port, t.argument2: address,
            t.argument3: self.iss if iss is None else iss,
        })  # fmt: skip

    def receive(self, source: int, given: Segment, now: int) -> None:
        self.now = now
        self.payload, self.taken_segment = given.payload, False
        ports = given.destination << 16 | given.source
        words = {
            segment.source: source, segment.ports: ports, segment.seq: given.seq, segment.ack: given.ack,
            segment.flags: given.flags | (SegmentBit.SACK_PERMITTED if given.sack_permitted else 0),
            segment.window: given.window, segment.length: len(given.payload), segment.mss: given.mss or 0,
        }  # fmt: skip
        bound = self.bound == (source, ports) or (self.state is State.LISTEN and given.destination == self.local_port)
        self.run("segment" if bound and self.bound[1] else "stray", words)
        assert self.taken_segment or not self.payload, "the payload was not taken"

    def send(self, octets: bytes, now: int) -> int:
        self.now = now
        room = self.config.send_ring - ((self.tail - self.una) & MASK)
        octets = octets[:room]
        if octets:
            self.send_ring.write(self.tail, octets)
            self.tail = (self.tail + len(octets)) & MASK
            self._queue(octets)
        return len(octets)

    def _queue(self, octets: bytes) -> None:
        """Let every second packet be cut through, if that is permitted."""
        self.packets += 1
        self.permitted = 0
        if self.packets % 2:
            self.run("coming")
        if len(octets) > self.permitted:
            self.run("queued", {t.argument0: len(octets)})
        else:
            self.building = {"destination": self.bound[0], "length": HEADER + len(octets), "words": []}
            self.cut_through = octets
            self.run("depart", {t.argument0: len(octets)})
            self.cut_through = b""

    def most_to_send(self, room: int) -> int:
        """How many of the octets for which there is room may be sent as a packet."""
        return room

    def pieces(self, rng: random.Random, available: int) -> list[int]:
        """The pieces in which the user takes octets."""
        return [min(available, rng.choice([1, 100, 1000, 100_000]))]

    def take(self, pieces: list[int], now: int) -> bytes:
        self.now = now
        octets = b""
        for count in pieces:
            octets += self.receive_ring.read(self.read, count)
            self.read = (self.read + count) & MASK
            self.run("taken", {t.argument0: count})
        return octets

    def tick(self, now: int) -> None:
        self.now = now
        self.run("tick")

    def word(self, name: str) -> int:
        return self.machine.rows[0][getattr(row, name).code]

    @property
    def state(self) -> State:
        return State(self.word("state"))
