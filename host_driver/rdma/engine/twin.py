"""The RDMA engine in software: DDP and RDMAP (RFC 5041, RFC 5040) behind the registers of ``rtl.rdma.registers``.

It is the twin of the RTL, sans-IO and synchronous: ULPDUs, registers and decisions are the same, and time is missing.
It decides whether a ULPDU is acceptable, and nothing more: the host finds out what is wrong with a refused one, makes
the Terminate, and keeps completions in order (``host_driver.rdma.offload``)::

    write(), read() ─▸          ─▸ next_ulpdu()
          receive() ─▸  Engine  ─▸ passed: ULPDUs for the host
                                ◂▸ memory
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from open_rnic.host_driver.ddp import (
    FIRST_MSN,
    READ_QN,
    SEND_QN,
    TAGGED_OCTETS,
    TO_END,
    UNTAGGED_OCTETS,
    DdpError,
    Due,
    NoBufferError,
    Opcode,
    Place,
    ReadRequest,
    Tagged,
    Untagged,
    decode,
    next_msn,
    refusal,
    source_refusal,
)
from open_rnic.host_driver.rdma.engine.commands import FENCE, INVALIDATE, KIND, MAX_PIECES, PIECES
from open_rnic.rtl.formats.opcodes import TAGGED, UNTAGGED
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, REQUEST_WORDS, Command
from open_rnic.rtl.registers import Access, Rtr

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets

_WORD = 0xFFFF_FFFF


class Memory(Protocol):
    """Octets by their 32-bit address."""

    def read(self, address: int, octets: int) -> bytes:
        """Return octets."""

    def write(self, address: int, octets: Octets) -> None:
        """Write octets."""


class _Region(NamedTuple):
    """A row of the STag table."""

    stag: int
    access: int  # with INVALIDATE
    address: int
    octets: int
    to: int


class _Work(NamedTuple):
    """A message to send; of an RDMA Read, the only piece is the sink's address and STag."""

    opcode: int
    fence: bool
    octets: int
    stag: int
    to: int
    pieces: tuple[tuple[int, int], ...]

    @property
    def reads(self) -> bool:
        """Whether this is an RDMA Read."""
        return self.opcode == Opcode.RDMA_READ_REQUEST


@dataclass(slots=True)
class _Buffer:
    """A posted buffer for a Send."""

    address: int
    octets: int
    withdrawn: bool = False


@dataclass(slots=True)
class _Request:
    """An RDMA Read Request of the peer, and what is left of it."""

    msn: int
    whole: ReadRequest
    rest: ReadRequest


@dataclass(slots=True)
class _Message:
    """The message that is being sent: the next octet is the one at ``at``."""

    work: _Work
    msn: int
    at: int = 0


class Engine:
    """DDP and RDMAP of one connection.

    ``regions``, ``buffers``, ``work`` and ``reads`` are the sizes of CAPABILITIES, powers of two. ``passed`` holds the
    ULPDUs for the host, which takes them. The owner calls ``receive`` and ``next_ulpdu`` only while ``enabled``.
    """

    def __init__(
        self, memory: Memory, *, regions: int = 1024, buffers: int = 64, work: int = 64, reads: int = 16
    ) -> None:
        self._sizes = {"regions": regions, "buffers": buffers, "work": work, "reads": reads}
        for name, size in self._sizes.items():
            if size < 1 or size & (size - 1):
                raise ValueError(f"{name} is a power of two, not {size}")
        self._memory = memory
        self._rows = regions
        self.reset()

    def reset(self) -> None:
        """Forget everything, and reset the registers that the host writes."""
        self._words = {name: register.reset for name, register in BY_NAME.items()}
        self._words["RDMA_CAPABILITIES"] = sum(
            BY_NAME["RDMA_CAPABILITIES"][name].put(size.bit_length() - 1) for name, size in self._sizes.items()
        )
        self.passed: deque[bytes] = deque()
        self._command: list[int] = []
        self._table: dict[int, _Region] = {}  # by row
        self._done_changed = self._status_changed = False  # since the register was read
        self._flags = 0  # bits of STATUS, when they were last compared

        self._buffers: deque[_Buffer] = deque()
        self._oldest = 0  # the number of the first of them
        self._received: deque[tuple[int, int, int]] = deque()  # Opcode, octets, STag; Opcode 0: it was withdrawn
        self._rx_msn = {SEND_QN: FIRST_MSN, READ_QN: FIRST_MSN}
        self._rx_mo = 0
        self._send_begun = self._write_begun = False
        self._blocked = self._refused = self._passed = False
        self._rx_ulpdus = 0

        self._work: deque[_Work] = deque()  # not begun
        self._reads: deque[Due] = deque()
        self._read_rtr = 0  # 1 while the Read RTR of this end is unanswered
        self._requests: deque[_Request] = deque()
        self._message: _Message | None = None
        self._answering = False  # a Read Response has begun
        self._responses_next = True
        self._source_refused = False
        self._source_at = 0  # words of the request that have been read
        self._tx_send_msn = self._tx_read_msn = FIRST_MSN
        self._tx_ulpdus = self._sent = self._reads_done = 0
        self._compare()

    # Registers

    @property
    def enabled(self) -> bool:
        """Whether the engine, not the host, takes and sends ULPDUs."""
        return bool(self._control("enable"))

    @property
    def irq(self) -> bool:
        """The interrupt: a Send has completed, or DONE or a flag of STATUS has changed since it was read."""
        return bool(self._received) or self._done_changed or self._status_changed

    def _compare(self) -> None:
        """Notice a change of the flags of STATUS."""
        flags = self._status() & _FLAGS
        self._status_changed |= flags != self._flags
        self._flags = flags

    def _read_status(self) -> int:
        self._status_changed = False
        return self._status()

    def read(self, name: str) -> int:
        """Return a register's word; raises ValueError for an unknown name."""
        if name in _LIVE:
            return _LIVE[name](self) & _WORD
        if name not in self._words:
            raise ValueError(f"no register is called {name}")
        return self._words[name]

    def write(self, name: str, value: int) -> None:
        """Write a register; raises ValueError for an unknown name and for more than 32 bits."""
        if name not in self._words:
            raise ValueError(f"no register is called {name}")
        if not 0 <= value <= _WORD:
            raise ValueError(f"{name} holds 32 bits, not {value}")
        if name == "RDMA_COMMAND":
            self._take(value)
        elif mask := _WRITABLE[name]:
            self._words[name] = value & mask

    def _control(self, flag: str) -> int:
        return BY_NAME["RDMA_CONTROL"][flag].get(self._words["RDMA_CONTROL"])

    def _limit(self, name: str) -> int:
        return BY_NAME["RDMA_LIMITS"][name].get(self._words["RDMA_LIMITS"])

    def _pop_received(self) -> int:
        if not self._received:
            return 0
        opcode, octets, stag = self._received.popleft()
        self._words["RDMA_RECEIVED_OCTETS"] = octets
        self._words["RDMA_RECEIVED_STAG"] = stag
        register = BY_NAME["RDMA_RECEIVED"]
        return register["valid"].put(1) | register["opcode"].put(opcode)

    def _read_done(self) -> int:
        self._done_changed = False
        register = BY_NAME["RDMA_DONE"]
        return register["sent"].put(self._sent & 0xFFFF) | register["reads"].put(self._reads_done & 0xFFFF)

    def _status(self) -> int:
        flags = {
            "ready": True,
            "refused": self._refused,
            "source_refused": self._source_refused,
            "passed": self._passed,
            "blocked": self._blocked,
            "sending": (self._message is not None or self._answering) and not self._silent,
            "send_begun": self._send_begun,
            "write_begun": self._write_begun,
            "requests": len(self._requests),
            "reads": len(self._reads) + self._read_rtr,
        }
        return sum(BY_NAME["RDMA_STATUS"][name].put(int(value)) for name, value in flags.items())

    def _source_word(self) -> int:
        """Return the next word of the RDMA Read Request whose source must not be read."""
        if not self._source_refused or self._source_at == REQUEST_WORDS:
            return 0
        header = self._requests[0].whole.encode()
        at, self._source_at = 4 * self._source_at, self._source_at + 1
        return int.from_bytes(header[at : at + 4], "big")

    def _ulpdus(self) -> int:
        register = BY_NAME["RDMA_ULPDUS"]
        return register["received"].put(self._rx_ulpdus & 0xFFFF) | register["sent"].put(self._tx_ulpdus & 0xFFFF)

    # Commands

    def _take(self, word: int) -> None:
        """Take a word of a command, and carry the command out if it is the last one."""
        self._command.append(word)
        first = self._command[0]
        kind = first >> KIND
        follow = _FOLLOW.get(kind, 0)
        if kind == Command.WORK:
            follow += 2 * (first >> PIECES & MAX_PIECES)
        if len(self._command) <= follow:
            return
        words, self._command = self._command[1:], []
        match kind:
            case Command.REGION:
                address, octets, low, high, stag = words
                self._table[stag % self._rows] = _Region(stag, first & 0xF, address, octets, high << 32 | low)
            case Command.REVOKE:
                if self.find(words[0]):
                    del self._table[words[0] % self._rows]
            case Command.BUFFER:
                self._buffers.append(_Buffer(words[0], words[1]))
            case Command.WITHDRAW:
                if (place := (words[0] - self._oldest) % self._sizes["buffers"]) < len(self._buffers):
                    self._buffers[place].withdrawn = True
                    self._skip()
            case Command.WORK:
                octets, stag, low, high, *pieces = words
                work = _Work(
                    first & 0xF,
                    bool(first & FENCE),
                    octets,
                    stag,
                    high << 32 | low,
                    tuple(zip(pieces[::2], pieces[1::2], strict=True)),
                )
                self._work.append(work)

    # What :func:`.refusal` asks

    def find(self, stag: int) -> _Region | None:
        """Return the row of this STag; None if it is not valid."""
        region = self._table.get(stag % self._rows)
        return region if region and region.stag == stag else None

    def allows(self, region: _Region) -> bool:
        """Return True: the table has regions of this connection alone."""
        return True

    def invalidates(self, region: _Region) -> bool:
        """Return whether the peer's Sends may invalidate the region's STag."""
        return bool(region.access & INVALIDATE)

    def _place(self) -> Place:
        buffer = self._buffers[0].octets if self._buffers else None
        due = self._reads[0] if self._reads else None
        return Place(self._rx_msn, self._rx_mo, buffer, len(self._requests), self._limit("ird"), due)

    # The MSNs and the Read that the data path's own RTRs use (RFC 6581 §4.4.2)

    def rtr_sent(self, kind: Rtr) -> None:
        """Note that the data path sends this RTR before anything else."""
        if kind is Rtr.SEND:
            self._tx_send_msn = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:
            self._tx_read_msn = next_msn(FIRST_MSN)
            self._read_rtr = 1

    def rtr_answered(self) -> None:
        """Note that the Read Response to the Read RTR has arrived."""
        self._read_rtr = 0

    def rtr_received(self, kind: Rtr, octets: int) -> None:
        """Note that the data path has consumed this RTR, a ULPDU of this many octets. It may have no header."""
        if kind is Rtr.SEND and octets >= UNTAGGED_OCTETS:
            self._rx_msn[SEND_QN] = next_msn(FIRST_MSN)
        elif kind is Rtr.READ:
            self._rx_msn[READ_QN] = next_msn(FIRST_MSN)

    # Receive

    def receive(self, ulpdu: bytes) -> bool:
        """Take a ULPDU from the peer; False stalls a Send without a buffer, to be offered again once one is posted.

        A ULPDU that is refused changes no octet of memory. ULPDUs behind it are discarded (RFC 5041 §7.1), and not
        counted.
        """
        self._blocked = False
        taken = self._stopped or self._receive(ulpdu)
        self._compare()
        return taken

    @property
    def _stopped(self) -> bool:
        return self._refused or self._source_refused

    @property
    def _silent(self) -> bool:
        return self._stopped or bool(self._control("stop"))

    def _receive(self, ulpdu: bytes) -> bool:
        try:
            segment = decode(ulpdu)
        except DdpError:
            segment = None
        if segment is None or segment.opcode not in (TAGGED if isinstance(segment, Tagged) else UNTAGGED):
            self.passed.append(ulpdu)  # a Terminate, or no valid header
            self._refused = self._passed = True
            return True
        error = refusal(segment, len(segment.payload), self._place, self)
        drops, waits = self._control("drops"), self._control("waits")
        if error is None:
            self._process(segment)
        elif not isinstance(error, NoBufferError) or not (waits or drops):
            self._refuse(ulpdu)
            return True
        elif not drops:
            self._blocked = True
            return False
        else:
            self._pass(error.segment)
        self._rx_ulpdus += 1
        return True

    def _refuse(self, ulpdu: bytes) -> None:
        self._refused = True
        header = ulpdu[: 4 * HEADER_WORDS].ljust(4 * HEADER_WORDS, b"\0")
        for n in range(HEADER_WORDS):
            self._words[f"RDMA_REFUSED_{n}"] = int.from_bytes(header[4 * n : 4 * n + 4], "big")
        self._words["RDMA_REFUSED_LENGTH"] = len(ulpdu)

    def _process(self, segment: Tagged | Untagged) -> None:
        """Process a segment that is good."""
        if isinstance(segment, Tagged):
            if segment.payload:
                region = self.find(segment.stag)
                assert region
                self._memory.write(region.address + segment.to - region.to, segment.payload)
            if segment.opcode is Opcode.RDMA_WRITE:
                self._write_begun = not segment.last
            else:
                self._take_response(segment)
            return
        if segment.qn == READ_QN:
            if not self._control("shut"):
                request = ReadRequest.decode(segment.payload)
                self._requests.append(_Request(segment.msn, request, request))
            self._pass(segment)
            return
        if segment.payload:
            self._memory.write(self._buffers[0].address + segment.mo, segment.payload)
        self._pass(segment)
        if segment.last:
            self._release(segment.opcode, segment.mo + len(segment.payload), segment.stag)
            if segment.opcode.invalidates:
                del self._table[segment.stag % self._rows]
            self._skip()

    def _pass(self, segment: Untagged) -> None:
        """Expect the segment behind this one."""
        if segment.qn == SEND_QN:
            self._send_begun = not segment.last
            self._rx_mo = 0 if segment.last else segment.mo + len(segment.payload)
        if segment.last:
            self._rx_msn[segment.qn] = next_msn(segment.msn)

    def _take_response(self, segment: Tagged) -> None:
        read = self._reads[0]
        self._reads[0] = read._replace(arrived=read.arrived + len(segment.payload))
        if segment.last:
            self._reads.popleft()
            self._reads_done += 1
            self._done_changed = True

    def _release(self, opcode: int, octets: int = 0, stag: int = 0) -> None:
        """Give the oldest buffer back to the host."""
        self._buffers.popleft()
        self._oldest += 1
        self._received.append((opcode, octets, stag))

    def _skip(self) -> None:
        """Give withdrawn buffers back for which no Send has begun."""
        while self._buffers and self._buffers[0].withdrawn and not self._send_begun:
            self._release(0)

    # Transmit

    def next_ulpdu(self) -> bytes | None:
        """Return the next ULPDU to send; None if there is none now.

        Read Responses and own messages take turns, message by message (RFC 5040 §5.5).
        """
        if self._silent:
            return None
        if self._message is None and not self._answering:
            if self._requests and (self._responses_next or not self._may_begin):
                self._answering = True
                self._responses_next = False
            elif self._may_begin:
                self._begin(self._work.popleft())
                self._responses_next = True
            else:
                return None
        ulpdu = self._response_segment() if self._answering else self._segment()
        self._tx_ulpdus += ulpdu is not None
        self._compare()
        return ulpdu

    @property
    def _may_begin(self) -> bool:
        if not self._work:
            return False
        work = self._work[0]  # RFC 5040 §5.5 rule 13: work behind one that must wait waits, too
        if work.fence and self._reads:  # RFC 5040 §5.5 rule 12
            return False
        return not work.reads or len(self._reads) + self._read_rtr < self._limit("ord")

    def _begin(self, work: _Work) -> None:
        msn = 0
        if work.reads:
            ((address, stag),) = work.pieces
            self._reads.append(Due(stag, address, work.octets))
            msn, self._tx_read_msn = self._tx_read_msn, next_msn(self._tx_read_msn)
        elif work.opcode != Opcode.RDMA_WRITE:
            msn, self._tx_send_msn = self._tx_send_msn, next_msn(self._tx_send_msn)
        self._message = _Message(work, msn)

    def _segment(self) -> bytes:
        assert self._message
        message, work = self._message, self._message.work
        opcode = Opcode(work.opcode)
        if work.reads:
            ((address, stag),) = work.pieces
            header = ReadRequest(stag, address, work.octets, work.stag, work.to).encode()
            self._message = None
            return Untagged(opcode, READ_QN, message.msn, 0, True, header).encode()
        tagged = opcode is Opcode.RDMA_WRITE
        room = self._limit("mulpdu") - (TAGGED_OCTETS if tagged else UNTAGGED_OCTETS)
        at, octets = message.at, min(room, work.octets - message.at)
        last = at + octets == work.octets
        payload = self._gather(work.pieces, at, octets)
        message.at += octets
        if last:
            self._message = None
            self._sent += 1
            self._done_changed = True
        if tagged:
            return Tagged(opcode, work.stag, (work.to + at) % TO_END, last, payload).encode()
        stag = work.stag if opcode.invalidates else 0
        return Untagged(opcode, SEND_QN, message.msn, at, last, payload, stag).encode()

    def _gather(self, pieces: tuple[tuple[int, int], ...], at: int, octets: int) -> bytes:
        found = []
        for address, size in pieces:
            if at < size and octets:
                part = min(size - at, octets)
                found.append(self._memory.read(address + at, part))
                at, octets = at + part, octets - part
            at -= min(at, size)
        return b"".join(found)

    def _response_segment(self) -> bytes | None:
        """Answer the oldest request; its source is checked for each segment, as it may be revoked meanwhile."""
        rest = self._requests[0].rest
        if source_refusal(rest, self):
            self._source_refused = True
            return None
        payload = b""
        if rest.size:
            region = self.find(rest.source_stag)
            assert region
            octets = min(rest.size, self._limit("mulpdu") - TAGGED_OCTETS)
            payload = self._memory.read(region.address + rest.source_to - region.to, octets)
        last = len(payload) == rest.size
        if last:
            self._requests.popleft()
            self._answering = False
        else:
            self._requests[0].rest = rest.after(len(payload))
        return Tagged(Opcode.RDMA_READ_RESPONSE, rest.sink_stag, rest.sink_to, last, payload).encode()


# Words behind the first one
_FOLLOW: dict[int, int] = {
    Command.REGION: 5, Command.REVOKE: 1, Command.BUFFER: 2, Command.WITHDRAW: 1, Command.WORK: 4,
}  # fmt: skip
_WRITABLE = {
    name: sum(field.mask for field in register.fields if field.access is Access.RW)
    for name, register in BY_NAME.items()
}
_FLAGS = sum(
    BY_NAME["RDMA_STATUS"][name].mask for name in ("ready", "refused", "source_refused", "passed", "blocked")
)
# Registers whose words are computed when they are read
_LIVE: dict[str, Callable[[Engine], int]] = {
    "RDMA_RECEIVED": Engine._pop_received,
    "RDMA_DONE": Engine._read_done,
    "RDMA_STATUS": Engine._read_status,
    "RDMA_ULPDUS": Engine._ulpdus,
    "RDMA_RX_SEND_MSN": lambda engine: engine._rx_msn[SEND_QN],
    "RDMA_RX_READ_MSN": lambda engine: engine._rx_msn[READ_QN],
    "RDMA_RX_MO": lambda engine: engine._rx_mo,
    "RDMA_RX_ARRIVED": lambda engine: engine._reads[0].arrived if engine._reads else 0,
    "RDMA_SOURCE": Engine._source_word,
    "RDMA_SOURCE_LEFT": lambda engine: engine._requests[0].rest.size if engine._source_refused else 0,
}
