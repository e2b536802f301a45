"""The cycles of the program of the TCP engine for each event, as a table.

``python -m open_rnic.cocotb_tests.rtl.tcp.cycles`` prints it.
"""

from collections import Counter
from collections.abc import Iterator

from open_rnic.cocotb_tests.rtl.tcp.programmed import Programmed
from open_rnic.cocotb_tests.rtl.tcp.shadow import PEER_PORT, PORT, THERE, decode
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import Bit, Command, row

__all__ = ["table"]

MSS = 1460
START = 1000  # ms


class _Connection(Programmed):
    """An established connection whose events are counted."""

    def __init__(self) -> None:
        super().__init__(EngineConfig(), PORT, 0x1234_5678)
        self.counts: list[tuple[str, int]] = []
        self.seq, self.ack = 0x8765_4321, 0
        self.now = START
        self.command(Command.LISTEN_AT)
        self.give(flags=Flag.SYN, mss=MSS)
        self.seq, self.ack = self.seq + 1, self.answer().seq + 1
        self.give()
        self.machine.rows[0][row.flags.code] |= Bit.MEASURED

    def send(self, octets: bytes, now: int, *, cut_through: bool = False) -> int:
        """As in the base, on either way."""
        self.packets = not cut_through
        return super().send(octets, now)

    def run(self, entry, words=None):
        """As in the base, with a count for each event."""
        run = self.machine.run

        def counted(entry, *arguments):
            before = self.machine.cycles
            run(entry, *arguments)
            self.counts.append((entry, self.machine.cycles - before))

        self.machine.run = counted
        try:
            super().run(entry, words)
        finally:
            self.machine.run = run

    def give(self, payload: bytes = b"", ack: int = 0, flags: Flag = Flag.ACK, **fields: int) -> None:
        """Receive the next segment, which acknowledges ``ack`` more octets."""
        self.ack += ack
        segment = Segment(PEER_PORT, PORT, self.seq, self.ack, flags, 0xFFFF, payload, **fields)
        self.seq += len(payload)
        self.receive(int(THERE), segment, self.now)

    def answer(self) -> Segment:
        """Return the last segment that was sent."""
        to, octets = self.segments.pop()
        self.segments.clear()
        return decode(octets, to)

    def counts_of(self) -> dict[str, int]:
        """Return the cycles of each event since the last call."""
        counts: Counter[str] = Counter()
        for entry, cycles in self.counts:
            counts[entry] += cycles
        self.counts.clear()
        return counts


def counted() -> Iterator[tuple[str, dict[str, int]]]:
    """Yield what happens, and the cycles of its events."""
    at = _Connection()
    at.counts_of()
    at.give()
    yield "an acknowledgment of nothing new", at.counts_of()
    at.give(b"1")
    yield "a segment in order, whose acknowledgment is delayed", at.counts_of()
    at.give(bytes(MSS))
    at.counts_of()
    at.give(bytes(MSS))
    yield "a segment in order, which is acknowledged", at.counts_of()
    at.take([1024], at.now)
    yield "octets are taken", at.counts_of()
    at.take([1024, 873], at.now)
    at.counts_of()
    for name, octets in (("a packet of one octet is sent", 1), ("a full packet is sent", MSS)):
        at.send(bytes(octets), at.now)
        yield name, at.counts_of()
    at.give(ack=1)
    yield "an acknowledgment of a packet that was timed, others in flight", at.counts_of()
    at.send(bytes(MSS), at.now)
    at.counts_of()
    at.give(ack=MSS)
    yield "an acknowledgment, others in flight", at.counts_of()
    at.send(bytes(MSS), at.now)
    at.counts_of()
    at.give(ack=2 * MSS)
    at.send(bytes(MSS), at.now)
    at.counts_of()
    at.give(bytes(MSS))
    at.counts_of()
    at.give(bytes(MSS), ack=MSS)
    yield "a segment in order with an acknowledgment", at.counts_of()
    at.send(bytes(MSS), at.now, cut_through=True)
    yield "a packet is cut through", at.counts_of()


def table() -> str:
    """Return the table, in Markdown."""
    names = ("segment", "coming", "depart", "queued", "taken", "output")
    rows = [["what happens", *(f"`{name}`" for name in names)], ["---"] * (1 + len(names))]
    rows += [[what, *(str(counts.get(name, "")) for name in names)] for what, counts in counted()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    print(table())
