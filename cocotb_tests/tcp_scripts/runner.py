"""Runs a script on a subject: gives it what comes in, and compares what leaves."""

from dataclasses import replace
from ipaddress import IPv4Address

from open_rnic.cocotb_tests.tcp_scripts.script import (
    FLAGS,
    HERE,
    Case,
    Number,
    Options,
    Script,
    ScriptError,
    Shape,
    Step,
)
from open_rnic.host_driver.net.checksum import checksum, pseudo_header
from open_rnic.host_driver.tcp.segment import PROTOCOL, Flag, Segment
from open_rnic.host_driver.tcp.sequence import on_the_wire, unwrap

__all__ = ["ISNS", "Player"]

# Initial sequence numbers of this end and of the peer: those around which numbers wrap, and an arbitrary pair.
ISNS = ((0, 0), (0x7FFF_FFF0, 0xFFFF_FFFF), (0xFFFF_FFF0, 0x7FFF_FFFF), (0x9E37_79B9, 0x3C6E_F372))
BEGIN = 5000  # ms


def stream(first: int, count: int) -> bytes:
    """The octets that each end sends, from number ``first`` on."""
    return bytes((number * 167 + (number >> 8) * 13) & 0xFF for number in range(first, first + count))


class Player:
    """Runs a case. ``trace`` has all segments that left, with their times since the begin."""

    def __init__(self, case: Case, subject, iss: int, irs: int):
        self.case, self.subject, self.iss, self.irs = case, subject, iss, irs
        self.stamp = None  # the TSval that the script calls 0; the peer's is its initial sequence number
        self.now = BEGIN
        self.sent = self.read = 0
        self.trace = []
        self.pending = []

    def run(self) -> list[tuple[int, IPv4Address, Segment]]:
        """Return the trace. Raises ScriptError with the line that is not met."""
        self.subject.come(self.now)
        for script in self.case.scripts:
            for step in script.steps:
                try:
                    self.step(step)
                except ScriptError as error:
                    raise self.error(script, step, error) from None
        try:
            self.nothing_waits()
        except ScriptError as error:
            raise self.error(script, step, error) from None
        return self.trace

    def error(self, script: Script, step: Step, error: ScriptError) -> ScriptError:
        """Say where it happened."""
        subject = type(self.subject).__name__
        where = f"{script.file}:{step.line}: {self.case.name!r}, {subject}, ISNs {self.iss:#x} and {self.irs:#x}"
        return ScriptError(f"{where}:\n{error}")

    def step(self, step: Step) -> None:
        """Run one line."""
        if step.delay:
            self.nothing_waits()
            if step.delay > 1:
                self.come(self.now + step.delay - 1)
                self.nothing_waits()
            self.come(self.now + 1)
        if step.kind == "out":
            return self.expect(step.segment)
        self.nothing_waits()
        match step.kind:
            case "in":
                source, octets = self.encode(step.segment)
                self.subject.receive(source, octets)
            case "user":
                self.act(*step.words)
            case "state":
                wanted, state = " ".join(step.words), self.subject.state
                if state != wanted:
                    raise ScriptError(f"the state is {state}, not {wanted}")
        return self.collect()

    def come(self, now: int) -> None:
        """Let the time come."""
        self.now = now
        self.subject.come(now)
        self.collect()

    def act(self, command: str, *numbers: str) -> None:
        """Do what the user does."""
        count = int(numbers[0]) if numbers else 0
        if command == "send":
            octets = stream(self.sent + 1, count)
            if (taken := self.subject.send(octets)) != len(octets):
                raise ScriptError(f"{taken} octets were taken")
            self.sent += len(octets)
        elif command == "read":
            octets = self.subject.read(count)
            if octets != stream(self.read + 1, count):
                raise ScriptError(f"{len(octets)} octets were read, or other ones")
            self.read += len(octets)
        else:
            if command in ("listen", "open"):
                self.sent = self.read = 0
            getattr(self.subject, command)(*map(int, numbers))

    # Segments

    def collect(self) -> None:
        """Take the segments that have left."""
        while self.subject.segments:
            each = self.now - BEGIN, *self.subject.segments.popleft()
            self.trace.append(each)
            self.pending.append(each[1:])

    def nothing_waits(self) -> None:
        """Nothing may have left that the script does not mention."""
        self.collect()
        if self.pending:
            raise ScriptError(f"left     {self.shape(*self.pending[0])}\nexpected nothing")

    def expect(self, wanted: Shape) -> None:
        """Compare the next segment with the expected one."""
        if not self.pending:
            raise ScriptError(f"left     nothing\nexpected {wanted}")
        address, segment = self.pending.pop(0)
        if segment.timestamps and self.stamp is None:
            self.stamp = segment.timestamps[0] - (wanted.options.timestamps or (0, 0))[0]
        found = self.shape(address, segment, wanted)
        if found != replace(wanted, window=found.window if wanted.window is None else wanted.window):
            raise ScriptError(f"left     {found}\nexpected {wanted}")
        if not wanted.seq.absolute and segment.payload != stream(wanted.seq.value, len(segment.payload)):
            raise ScriptError(f"left     {found}\nwith other octets")

    def encode(self, shape: Shape) -> tuple[IPv4Address, bytes]:
        """Return the address and the octets of a segment of the peer."""
        flags = Flag(sum(1 << FLAGS.index(flag) for flag in shape.flags if flag != "-"))
        seq, options = self.number(shape.seq, self.irs), shape.options
        stamps = options.timestamps
        segment = Segment(
            shape.peer_port, shape.port, seq, self.number(shape.ack, self.iss), flags,
            65535 if shape.window is None else shape.window,
            stream(shape.seq.value + bool(flags & Flag.SYN), shape.length), mss=options.mss, scale=options.scale,
            sack_permitted=options.sack_permitted,
            sack=tuple(tuple(on_the_wire(edge + self.iss) for edge in block) for block in options.sack),
            timestamps=stamps and (on_the_wire(stamps[0] + self.irs), on_the_wire(stamps[1] + (self.stamp or 0))),
        )  # fmt: skip
        octets = segment.encode(shape.address, HERE)
        header, payload = octets[: octets[12] >> 2], octets[octets[12] >> 2 :]
        header = bytearray(header[:20] + options.raw + bytes(-len(options.raw) % 4) + header[20:])
        header[12] = len(header) << 2
        header[18:20] = shape.urgent.to_bytes(2, "big")
        return shape.address, spoiled(header, payload, shape)

    @staticmethod
    def number(number: Number | None, initial: int) -> int:
        """The number on the wire."""
        if number is None:
            return 0
        return on_the_wire(number.value + (0 if number.absolute else initial))

    def shape(self, address: IPv4Address, segment: Segment, wanted: Shape | None = None) -> Shape:
        """Return a segment as a script shows it, with absolute numbers where the wanted one has them."""

        def number(value: int, initial: int, like: Number | None) -> Number:
            if like and like.absolute:
                return Number(value, absolute=True)
            return Number(unwrap(value, initial) - initial)

        flags = "".join(flag for bit, flag in enumerate(FLAGS) if segment.flags >> bit & 1)
        stamps = segment.timestamps
        options = Options(
            segment.mss, segment.sack_permitted, segment.scale,
            stamps and (on_the_wire(stamps[0] - (self.stamp or 0)), on_the_wire(stamps[1] - self.irs)),
            tuple(tuple(unwrap(edge, self.irs) - self.irs for edge in block) for block in segment.sack),
        )  # fmt: skip
        ack = number(segment.ack, self.irs, wanted and wanted.ack) if segment.flags & Flag.ACK else None
        if ack is None and segment.ack:
            raise ScriptError(f"without ACK, the acknowledgment number is {segment.ack:#x}, not 0")
        return Shape(
            flags or "-", number(segment.seq, self.iss, wanted and wanted.seq), len(segment.payload), ack,
            segment.window, options, address, segment.destination, segment.source,
        )  # fmt: skip


def spoiled(header: bytearray, payload: bytes, shape: Shape) -> bytes:
    """Return the octets of a segment with its checksum, and with the defect that the script wants."""
    match shape.defect and shape.defect.split():
        case ["offset", words]:
            header[12] = int(words) << 4
        case ["cut"]:
            header = header[:19]
    header[16:18] = bytes(2)
    octets = bytes(header) + payload
    value = checksum(pseudo_header(shape.address, HERE, PROTOCOL, len(octets)), octets)
    value ^= shape.defect == "checksum"
    return octets[:16] + value.to_bytes(2, "big") + octets[18:]
