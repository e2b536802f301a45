"""A model of the device's end of a link (``docs/link.md``), whose streams stall at random."""

import random

from open_rnic.host_driver.devices.serial.frames import ZERO, frame, unframe
from open_rnic.rtl.host_link.protocol import (
    HEADER,
    LAST,
    OCTETS,
    OCTETS_LAST,
    OCTETS_ULPDU,
    SHORT,
    SIZES,
    TURN,
    VALUE,
    VERSION,
    Ask,
    Op,
    Status,
)


class DeviceModel:
    """Answers request frames. It returns ULPDUs as MPA packets, and MPA chunks as ULPDUs; registers keep their values.

    ``done`` counts the executed operations.
    """

    def __init__(self, rng: random.Random, size: int = SIZES[0]):
        self._rng = rng
        self._size = size
        self._received = bytearray()
        self._session, self._expected = 0, 0
        self._kept = {}
        self._damaged = 0
        self._turns = {Op.ULPDU: 0, Op.MPA: 0}
        self._partial = {Op.ULPDU: bytearray(), Op.MPA: bytearray()}
        self._out = {Op.ULPDU: [], Op.MPA: []}  # packets received on this stream, to be sent on the other one
        self.registers = {}
        self.done = 0

    def receive(self, octets: bytes) -> bytes:
        """Process octets from the line, and return the octets of the answers."""
        self._received += octets
        *frames, self._received = self._received.split(ZERO)
        return b"".join(self._answer(bytes(each)) for each in frames if each)

    def load(self, address: int) -> int:
        """Read the register at this address / 4."""
        return self.registers.get(address, 0)

    def store(self, address: int, word: int) -> None:
        """Write it."""
        self.registers[address] = word

    def status(self) -> int:
        """Return the bits of the status that say what is pending."""
        return 0

    def _answer(self, encoded: bytes) -> bytes:
        body = unframe(encoded)
        if body is None or len(body) < HEADER:
            self._damaged = (self._damaged + 1) & 0xFF
            return b""
        sequence, session = body[0] & 15, int.from_bytes(body[1:HEADER], "little")
        fresh = not self._session
        if session != self._session:
            if not body[0] & Ask.OPEN:
                return self._response(body, b"", Status.REFUSED | (Status.FRESH if fresh else 0))
            self._session, self._expected = session, sequence
        behind = (self._expected - sequence) & 15
        if behind == 0:
            self._expected = (sequence + 1) & 15
            records = self._carry_out(body)
            self._kept[sequence & 1] = self._response(body, records, self.status())
        return self._kept[sequence & 1] if behind <= 2 else b""

    def _response(self, body: bytes, records: bytes, status: int) -> bytes:
        info = VERSION << 4 | self._size.bit_length() - 1
        return frame(body[:HEADER] + records + bytes((status, self._damaged, info)))

    def _carry_out(self, body: bytes) -> bytes:
        at, records = HEADER, bytearray()
        while True:
            first = body[at]
            kind, arguments = Op(first >> 3 & 7), body[at + 1 : at + 1 + (first & 7)]
            at += 1 + len(arguments)
            self.done += 1
            match kind:
                case Op.END:
                    return bytes(records) + self._give(body[0], len(records))
                case Op.READ:
                    value = self.load(int.from_bytes(arguments, "little"))
                    records += value.to_bytes(4, "little") + bytes((VALUE,))
                case Op.WRITE:
                    self.store(int.from_bytes(arguments[4:], "little"), int.from_bytes(arguments[:4], "little"))
                case Op.CLEAR:
                    self._turns = dict.fromkeys(self._turns, 0)
                case Op.ULPDU | Op.MPA | Op.EMPTY:
                    end = at if kind is Op.EMPTY else int.from_bytes(arguments[2:], "little") + 1
                    records += self._put(Op.MPA if kind is Op.MPA else Op.ULPDU, first, body, at, end)
                    at = end

    def _put(self, stream: Op, first: int, body: bytes, at: int, end: int) -> bytes:
        if bool(first & TURN) != self._turns[stream]:
            return b""
        short = self._rng.random() < 0.1
        stop = self._rng.randrange(at, end) if short and end > at else at if short else end
        self._partial[stream] += body[at:stop]
        if short:
            self._turns[stream] ^= 1
            return bytes((stop & 0xFF, SHORT | stop >> 8))
        if first & LAST:
            self._out[stream].append(bytes(self._partial[stream]))
            self._partial[stream].clear()
        return b""

    def _give(self, asked: int, used: int) -> bytes:
        records = bytearray()
        for stream, wanted, bit in ((Op.ULPDU, Ask.MPA, 0), (Op.MPA, Ask.ULPDU, OCTETS_ULPDU)):
            packets = self._out[stream]
            while asked & wanted and packets and used + len(records) < self._size // 2 and self._rng.random() < 0.9:
                piece, packets[0] = packets[0][:100], packets[0][100:]
                last = not packets[0]
                records += piece + bytes((len(piece), OCTETS | bit | OCTETS_LAST * last))
                if last:
                    packets.pop(0)
        return bytes(records)
