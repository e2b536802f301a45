"""The twin of the RDMA engine: :class:`.Engine` behind the registers and commands of ``rtl.rdma.registers``.

It is synchronous: ULPDUs, registers and decisions are those of the RTL, and time is missing. It decides whether a ULPDU
is acceptable, and nothing more: the host finds out what is wrong with a refused one, makes the Terminate, and keeps
completions in order (``host_driver.rdma.offload``)::

    write(), read() ─▸        ─▸ next_ulpdu()
          receive() ─▸  Twin  ─▸ ulpdus: ULPDUs for the host
                              ◂▸ memory
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from open_rnic.host_driver.ddp import READ_QN, SEND_QN, DdpError, Opcode, ReadRequest
from open_rnic.host_driver.rdma.engine.commands import FENCE, INVALIDATE, KIND, MAX_PIECES, PIECES
from open_rnic.host_driver.rdma.engine.engine import Engine, Message, Request, UntaggedBuffer
from open_rnic.rtl.formats.opcodes import SENDS
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, REQUEST_WORDS, Command
from open_rnic.rtl.registers import Access

if TYPE_CHECKING:
    from open_rnic.host_driver.ddp import Octets

_WORD = 0xFFFF_FFFF


class Memory(Protocol):
    """Octets by their 32-bit address."""

    def read(self, address: int, octets: int) -> bytes:
        """Return octets."""

    def write(self, address: int, octets: Octets) -> None:
        """Write octets."""


class _Span:
    """Octets of memory from an address on."""

    def __init__(self, memory: Memory, address: int, octets: int) -> None:
        self._memory, self._address, self._octets = memory, address, octets

    def __len__(self) -> int:
        return self._octets

    def __getitem__(self, octets: slice) -> memoryview:
        start, end, _ = octets.indices(self._octets)
        return memoryview(self._memory.read(self._address + start, end - start) if start < end else b"")

    def __setitem__(self, octets: slice, payload: Octets) -> None:
        self._memory.write(self._address + octets.start, payload)


class _Gathered:
    """The octets of several spans, one behind the other."""

    def __init__(self, spans: Sequence[_Span]) -> None:
        self._spans = spans
        self._octets = sum(map(len, spans))

    def __len__(self) -> int:
        return self._octets

    def __getitem__(self, octets: slice) -> bytes:
        start, end, _ = octets.indices(self._octets)
        found = []
        for span in self._spans:
            found.append(span[max(start, 0) : max(end, 0)])
            start, end = start - len(span), end - len(span)
        return b"".join(found)


class _Region(NamedTuple):
    """A row of the STag table."""

    stag: int
    access: int  # with INVALIDATE
    octets: int
    to: int
    view: _Span


class Twin:
    """The engine of one connection.

    ``regions``, ``buffers``, ``work`` and ``reads`` are the sizes of CAPABILITIES, powers of two. ``ulpdus`` holds the
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
        self.engine: Engine[_Region, Message, UntaggedBuffer] = Engine(self)
        self._words = {name: register.reset for name, register in BY_NAME.items()}
        self._words["RDMA_CAPABILITIES"] = sum(
            BY_NAME["RDMA_CAPABILITIES"][name].put(size.bit_length() - 1) for name, size in self._sizes.items()
        )
        self._apply()
        self.ulpdus: deque[bytes] = deque()
        self._command: list[int] = []
        self._table: dict[int, _Region] = {}  # by row
        self._done_changed = self._status_changed = False  # since the register was read
        self._flags = 0  # bits of STATUS, when they were last compared

        self.oldest = 0  # the number of the first buffer that is posted
        self._received: deque[tuple[int, int, int]] = deque()  # Opcode, octets, STag; Opcode 0: it was withdrawn
        self._blocked = self._refused = self._passed = self._source_refused = False
        self._source_at = 0  # words of the request that have been read
        self._rx_ulpdus = self._tx_ulpdus = self._sent = self._reads_done = 0
        self._compare()

    # Registers

    @property
    def enabled(self) -> bool:
        """Whether the engine, not the host, takes and sends ULPDUs."""
        return bool(BY_NAME["RDMA_CONTROL"]["enable"].get(self._words["RDMA_CONTROL"]))

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
            self._apply()

    def _apply(self) -> None:
        """Let the engine have the settings."""
        for register, names in _SETTINGS.items():
            for name, setting in names.items():
                setattr(self.engine, setting, BY_NAME[register][name].get(self._words[register]))

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
        engine = self.engine
        flags = {
            "ready": True,
            "refused": self._refused,
            "source_refused": self._source_refused,
            "passed": self._passed,
            "blocked": self._blocked,
            "sending": engine.sending,
            "send_begun": engine.send_begun,
            "write_begun": engine.write_begun is not None,
            "requests": len(engine.requests),
            "reads": len(engine.reads) + engine.read_rtr,
        }
        return sum(BY_NAME["RDMA_STATUS"][name].put(int(value)) for name, value in flags.items())

    def _source_word(self) -> int:
        """Return the next word of the RDMA Read Request whose source must not be read."""
        if not self._source_refused or self._source_at == REQUEST_WORDS:
            return 0
        header = self.engine.requests[0].whole.encode()
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
                span = _Span(self._memory, address, octets)
                self._table[stag % self._rows] = _Region(stag, first & 0xF, octets, high << 32 | low, span)
            case Command.REVOKE:
                if self.find(words[0]):
                    del self._table[words[0] % self._rows]
            case Command.BUFFER:
                self.engine.receives.append(UntaggedBuffer(_Span(self._memory, *words)))
            case Command.WITHDRAW:
                if (place := (words[0] - self.oldest) % self._sizes["buffers"]) < len(self.engine.receives):
                    self.engine.receives[place].context = _WITHDRAWN
                    self._skip()
            case Command.WORK:
                self.engine.work.append(self._message(first, *words))

    def _message(self, first: int, octets: int, stag: int, low: int, high: int, *pieces: int) -> Message:
        opcode = Opcode(first & 0xF)
        if opcode in SENDS and not opcode.invalidates:
            stag = 0
        message = Message(opcode, octets, b"", stag, high << 32 | low, bool(first & FENCE))
        if message.reads:
            address, sink = pieces
            message.sink = sink, address
        else:
            places = zip(pieces[::2], pieces[1::2], strict=True)
            message.data = _Gathered([_Span(self._memory, *place) for place in places])
        return message

    # The engine's owner

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

    def invalidate(self, region: _Region) -> None:
        """See Owner."""
        del self._table[region.stag % self._rows]

    def sink(self, read: Message) -> tuple[int, int]:
        """See Owner."""
        return read.sink

    def finished(self, message: Message) -> None:
        """See Owner."""
        self._done_changed = True
        if message.reads:
            self._reads_done += 1
        else:
            self._sent += 1

    def received(self, buffer: UntaggedBuffer) -> None:
        """See Owner."""
        self._give_back(buffer.opcode, buffer.octets, buffer.invalidated or 0)
        self._skip()

    def requested(self, request: Request) -> None:
        """See Owner: it is checked when it is answered."""

    def passed(self, ulpdu: bytes) -> None:
        """See Owner."""
        self.ulpdus.append(ulpdu)
        self._refused = self._passed = True

    def refused(self, error: DdpError, ulpdu: bytes) -> None:
        """See Owner."""
        self._refused = True
        header = ulpdu[: 4 * HEADER_WORDS].ljust(4 * HEADER_WORDS, b"\0")
        for n in range(HEADER_WORDS):
            self._words[f"RDMA_REFUSED_{n}"] = int.from_bytes(header[4 * n : 4 * n + 4], "big")
        self._words["RDMA_REFUSED_LENGTH"] = len(ulpdu)

    def source_refused(self, error: DdpError, request: ReadRequest, msn: int) -> None:
        """See Owner."""
        self._source_refused = True

    def _give_back(self, opcode: int, octets: int = 0, stag: int = 0) -> None:
        self.oldest += 1
        self._received.append((opcode, octets, stag))

    def _skip(self) -> None:
        """Give withdrawn buffers back for which no Send has begun."""
        receives = self.engine.receives
        while receives and receives[0].context is _WITHDRAWN and not self.engine.send_begun:
            receives.popleft()
            self._give_back(0)

    # ULPDUs

    def receive(self, ulpdu: bytes) -> bool:
        """See Engine. A ULPDU that is refused or discarded is not counted."""
        self._blocked = not self.engine.receive(ulpdu)
        self._rx_ulpdus += not (self._blocked or self.engine.stopped)
        self._compare()
        return not self._blocked

    def next_ulpdu(self) -> bytes | None:
        """See Engine."""
        ulpdu = self.engine.next_ulpdu()
        self._tx_ulpdus += ulpdu is not None
        self._compare()
        return ulpdu


_WITHDRAWN = "withdrawn"  # the context of such a buffer
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
# The engine's settings, by register and field
_SETTINGS = {
    "RDMA_CONTROL": {"waits": "waits", "drops": "drops", "shut": "shut", "stop": "stops"},
    "RDMA_LIMITS": {"mulpdu": "mulpdu", "ird": "ird", "ord": "ord"},
}
# Registers whose words are computed when they are read
_LIVE: dict[str, Callable[[Twin], int]] = {
    "RDMA_RECEIVED": Twin._pop_received,
    "RDMA_DONE": Twin._read_done,
    "RDMA_STATUS": Twin._read_status,
    "RDMA_ULPDUS": Twin._ulpdus,
    "RDMA_RX_SEND_MSN": lambda twin: twin.engine.rx_msn[SEND_QN],
    "RDMA_RX_READ_MSN": lambda twin: twin.engine.rx_msn[READ_QN],
    "RDMA_RX_MO": lambda twin: twin.engine.rx_mo,
    "RDMA_RX_ARRIVED": lambda twin: twin.engine.reads[0].arrived if twin.engine.reads else 0,
    "RDMA_SOURCE": Twin._source_word,
    "RDMA_SOURCE_LEFT": lambda twin: twin.engine.requests[0].rest.size if twin._source_refused else 0,
}
