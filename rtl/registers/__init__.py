"""The register map, as plain data.

The register bank in gateware, the host's constants and the reference in ``docs/registers.md`` are all generated from
this module. It imports no hardware library, so that a host can use it without one.

Registers are 32 bits wide, and their addresses are multiples of 4. Reserved fields read as zero, and writes to them
are ignored. Reads have no side effects, except that reading ``EVENT`` pops the event FIFO.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

__all__ = [
    "BY_NAME", "IDENTITY", "MAP", "MAX_ULPDU", "VERSION", "WORD", "Access", "Cause", "DirectionState", "EventKind",
    "Field", "Model", "Register", "Role", "Rtr", "Verdict", "each_connection", "of_connections", "with_resets",
    "words_of",
]  # fmt: skip

IDENTITY = int.from_bytes(b"MPA1", "big")
VERSION = 0x0001_0000
MAX_ULPDU = 64768  # RFC 5044 §3: the largest ULPDU that MPA carries


class Access(IntEnum):
    """The kinds of access that the host has to a field."""

    RO = 0
    RW = 1
    PULSE = 2  # writing 1 triggers an action; reads as zero
    CLEAR = 3  # writing 1 clears the flag
    PUSH = 4  # each write hands over a value; reads as zero


class Role(IntEnum):
    """The role of this end, which determines the startup frame that it sends (RFC 5044 §7.1)."""

    INITIATOR = 0
    RESPONDER = 1


class Model(IntEnum):
    """The connection model, Control Flag A of RFC 6581 §9.2."""

    CLIENT_SERVER = 0
    PEER_TO_PEER = 1


class Rtr(IntEnum):
    """A kind of RTR (RFC 6581 §9.2). In a field that holds a set of kinds, bit ``kind - 1`` stands for ``kind``."""

    NONE = 0
    SEND = 1  # Control Flag B
    WRITE = 2  # Control Flag C
    READ = 3  # Control Flag D

    @property
    def bit(self) -> int:
        """The bit of this kind in a set: 1, 2 or 4. NONE has no bit: 0."""
        return (1 << self) >> 1


class Verdict(IntEnum):
    """The device's verdict on octets that it delivers, valid on their last beat."""

    GOOD = 0  # a complete ULPDU without errors
    STREAM = 1  # octets of stream mode, received before MPA mode
    CRC = 2  # RFC 5044 §8, error 2
    MARKER = 3  # RFC 5044 §8, error 3


class EventKind(IntEnum):
    """The kind of an event. ``detail`` and ``value`` are fields of the register EVENT."""

    NONE = 0
    TX_MPA = 1  # the transmit direction has entered MPA mode
    RX_MPA = 2  # the receive direction has entered MPA mode
    FENCE_OPEN = 3  # the fence has opened: ULPDUs of the host may leave
    RTR_SENT = 4  # detail: the Rtr kind
    RTR_RECEIVED = 5  # detail: the Rtr kind; value: the RTR's ULPDU_Length
    RESPONSE_SENT = 6  # the device has sent a zero-length Read Response to the peer's Read RTR
    RESPONSE_RECEIVED = 7  # the zero-length Read Response to this end's Read RTR has arrived
    TERMINATE_SENT = 8
    ERROR = 9  # detail: the Cause; value: depends on the Cause


class Cause(IntEnum):
    """The cause of an error. ``code`` is its MPA error code."""

    NONE = 0
    CRC = 1  # value: ULPDU_Length
    FPDUPTR = 2  # value: the received FPDUPTR
    RX_LENGTH = 3  # ULPDU_Length is over RX_MAX_ULPDU; value: ULPDU_Length
    NOT_RTR = 4  # the first FPDU is not a negotiated RTR; value: ULPDU_Length
    TX_LENGTH = 5  # a ULPDU over TX_MAX_ULPDU was rejected; value: its announced length
    TX_MISMATCH = 6  # the length of a ULPDU differs from the announced one; value: the announced length
    TX_STREAM = 7  # a stream-mode packet exceeded TX_STREAM_OCTETS; value: the number of excess octets

    @property
    def code(self) -> int:
        """The MPA error code: RFC 5044 §8 for 2 and 3, RFC 6581 §8 for 5 (local catastrophic)."""
        return {Cause.NONE: 0, Cause.CRC: 2, Cause.FPDUPTR: 3, Cause.RX_LENGTH: 3}.get(self, 5)


class DirectionState(IntEnum):
    """The state of one direction of the connection."""

    STREAM = 0  # stream mode: octets pass unchanged
    WAITING = 1  # all octets of stream mode have passed, and MPA mode is not enabled yet
    MPA = 2  # MPA mode
    STOPPED = 3  # after an error, or after a Terminate


@dataclass(frozen=True)
class Field:
    """A field of a register: ``width`` bits, of which bit ``lsb`` is the least significant.

    Of a field with a bit for each connection, ``first`` is the connection of the least significant one.
    """

    name: str
    lsb: int
    width: int
    doc: str
    access: Access = Access.RO
    reset: int = 0
    enum: type[IntEnum] | None = None
    first: int | None = None

    @property
    def mask(self) -> int:
        """The mask of the field in its register."""
        return ((1 << self.width) - 1) << self.lsb

    def get(self, word: int) -> int:
        """Return the value of the field in ``word``, the value of its register."""
        return (word & self.mask) >> self.lsb

    def put(self, value: int) -> int:
        """Return ``value``, shifted to the position of the field; raises ValueError if it does not fit."""
        if not 0 <= value < (1 << self.width):
            raise ValueError(f"{self.name} holds {self.width} bits, not {value}")
        return value << self.lsb


@dataclass(frozen=True)
class Register:
    """A 32-bit register at octet address ``address``."""

    name: str
    address: int
    doc: str
    fields: tuple[Field, ...] = field(default=())
    pops: bool = False  # a read removes an entry from a FIFO

    def __getitem__(self, name: str) -> Field:
        for each in self.fields:
            if each.name == name:
                return each
        raise KeyError(f"{self.name} has no field {name}")

    @property
    def reset(self) -> int:
        """The register's value after reset."""
        return sum(each.put(each.reset) for each in self.fields)


def with_resets(registers: Iterable[Register], resets: Mapping[str, Mapping[str, int]]) -> tuple[Register, ...]:
    """Return a register map with other reset values, which ``resets`` has by the names of register and field."""
    return tuple(
        replace(
            register,
            fields=tuple(
                replace(each, reset=resets.get(register.name, {}).get(each.name, each.reset))
                for each in register.fields
            ),
        )
        for register in registers
    )


WORD = 32  # bits of a register


def each_connection(
    name: str, addresses: Iterable[int], doc: str, bit: str, access: Access = Access.RO
) -> tuple[Register, ...]:
    """Return registers with a bit for each connection: NAME, and for those from number 32 on NAME_32.

    ``bit`` describes the bit of a connection, which it calls {}.
    """
    registers = []
    for word, address in enumerate(addresses):
        first = word * WORD
        connection = f"connection {first} + n" if first else "connection n"
        value = Field("value", 0, WORD, f"bit n: {bit.format(connection)}", access, first=first)
        more = f" From connection {first} on." if first else ""
        registers.append(Register(f"{name}_{first}" if first else name, address, doc + more, (value,)))
    return tuple(registers)


def words_of(name: str, connections: int) -> tuple[str, ...]:
    """Return the names of the registers of :func:`each_connection` that a device with so many connections has."""
    return tuple(f"{name}_{first}" if first else name for first in range(0, connections, WORD))


def of_connections(registers: Iterable[Register], connections: int) -> tuple[Register, ...]:
    """Return the registers of a device with so many connections, which has no bits for others."""
    return tuple(
        replace(
            register,
            fields=tuple(
                each if each.first is None else replace(each, width=min(each.width, connections - each.first))
                for each in register.fields
            ),
        )
        for register in registers
        if all(each.first is None or each.first < connections for each in register.fields)
    )


def _word(doc: str, access: Access = Access.RO, reset: int = 0, width: int = 32) -> tuple[Field, ...]:
    return (Field("value", 0, width, doc, access, reset),)


def _flag(name: str, lsb: int, doc: str, access: Access = Access.RW, reset: int = 0) -> Field:
    return Field(name, lsb, 1, doc, access, reset)


MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x000, "Identifies the device.", _word('"MPA1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x004, "The version of the register map.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x008, "The parameters with which the device was built.", (
        Field("lanes", 0, 8, "width of the data path in 32-bit lanes"),
        Field("event_depth", 8, 8, "entries of the event FIFO"),
        _flag("store_and_forward", 16, "1: bad ULPDUs are discarded; 0: they are delivered with a verdict", Access.RO),
    )),
    Register("CONTROL", 0x00C, "Controls the connection.", (
        _flag("tx_enable", 0, "enter MPA mode on transmit after TX_STREAM_OCTETS octets"),
        _flag("rx_enable", 1, "enter MPA mode on receive after RX_STREAM_OCTETS octets"),
        _flag("reset", 2, "reset the connection and all registers to their state after power-up", Access.PULSE),
    )),
    Register("CONFIG", 0x010, "The result of the negotiation. It is written before CONTROL enables a direction.", (
        Field("role", 0, 1, "the role of this end", Access.RW, enum=Role),
        Field("model", 1, 1, "the connection model", Access.RW, enum=Model),
        Field("rtr_send", 2, 2, "the RTR that an initiator sends", Access.RW, enum=Rtr),
        Field("rtr_accept", 4, 3, "the RTRs that a responder accepts: bit 0 Send, 1 Write, 2 Read", Access.RW),
        _flag("permissive", 7,
              "any first FPDU except a Terminate opens a responder's fence, and is delivered unless it is an RTR"),
        _flag("markers_tx", 8, "insert markers"),
        _flag("markers_rx", 9, "expect markers"),
        _flag("crc_tx", 10, "generate CRCs; if clear, the CRC field is zero", reset=1),
        _flag("crc_rx", 11, "check CRCs", reset=1),
        _flag("rdmap", 12, "the ULP is RDMAP: only one Terminate leaves after an error, and nothing after a Terminate",
              reset=1),
    )),
    Register("TX_MAX_ULPDU", 0x014, "The maximum length of a ULPDU on transmit. Longer ones are rejected.",
             _word("octets", Access.RW, MAX_ULPDU, 16)),
    Register("RX_MAX_ULPDU", 0x018, "The maximum ULPDU_Length on receive. A larger one is MPA error 3.",
             _word("octets", Access.RW, MAX_ULPDU, 16)),
    Register("TX_STREAM_OCTETS", 0x01C, "The length of stream mode on transmit: octets that pass unchanged before "
             "MPA mode.", _word("octets since reset", Access.RW)),
    Register("RX_STREAM_OCTETS", 0x020, "The length of stream mode on receive: octets that pass unchanged before "
             "MPA mode. Later octets are stalled until this length is increased or MPA mode is enabled.",
             _word("octets since reset", Access.RW)),
    Register("TX_MPA_OFFSET", 0x024, "The position in the marked stream at which transmit starts; a multiple of 4.",
             _word("octets, modulo 512", Access.RW, 0, 9)),
    Register("RX_MPA_OFFSET", 0x028, "The position in the marked stream at which receive starts; a multiple of 4.",
             _word("octets, modulo 512", Access.RW, 0, 9)),
    Register("STATE", 0x02C, "The state of the connection.", (
        Field("tx", 0, 2, "the transmit direction", enum=DirectionState),
        Field("rx", 2, 2, "the receive direction", enum=DirectionState),
        _flag("fence_open", 4, "the fence is open: ULPDUs may leave", Access.RO),
    )),
    Register("EVENT", 0x030, "The oldest event, which a read removes from the FIFO. Zero if the FIFO is empty.", (
        Field("kind", 0, 8, "kind of event", enum=EventKind),
        Field("detail", 8, 8, "for an RTR, its kind, as in CONFIG.rtr_send; for an error, its cause, as in ERROR"),
        Field("value", 16, 16, "for a received RTR, its ULPDU_Length; for an error, its value, as in ERROR"),
    ), pops=True),
    Register("EVENT_OFFSET_LO", 0x034, "Stream offset of the event that was read last, low half.",
             _word("octets from the start of MPA mode on receive to the FPDU that caused the event, plus "
                   "RX_MPA_OFFSET; 0 if no received FPDU caused it")),
    Register("EVENT_OFFSET_HI", 0x038, "Stream offset of the event that was read last, high half.",
             _word("octets", width=16)),
    Register("EVENT_STATUS", 0x03C, "The status of the event FIFO.", (
        Field("level", 0, 8, "number of events in the FIFO"),
        _flag("overflow", 8, "an event was lost because the FIFO was full", Access.CLEAR),
    )),
    Register("ERROR", 0x040, "The last error, kept until reset.", (
        Field("code", 0, 8, "MPA error code; 0: no error"),
        Field("cause", 8, 8, "cause of the error", enum=Cause),
        Field("value", 16, 16, "CRC, RX_LENGTH, NOT_RTR: ULPDU_Length; FPDUPTR: the received FPDUPTR; "
              "TX_LENGTH, TX_MISMATCH: the announced length; TX_STREAM: the number of excess octets"),
    )),
    Register("ERROR_OFFSET_LO", 0x044, "Stream offset of the last error, low half.", _word("octets")),
    Register("ERROR_OFFSET_HI", 0x048, "Stream offset of the last error, high half.", _word("octets", width=16)),
    Register("CYCLES_LO", 0x080, "Clock cycles since reset, low half.", _word("cycles")),
    Register("CYCLES_HI", 0x084, "Clock cycles since reset, high half.", _word("cycles")),
    Register("TX_FPDUS", 0x088, "FPDUs sent.", _word("FPDUs")),
    Register("TX_OCTETS_LO", 0x08C, "Octets of FPDUs and markers sent, low half.", _word("octets")),
    Register("TX_OCTETS_HI", 0x090, "Octets of FPDUs and markers sent, high half.", _word("octets")),
    Register("TX_MARKERS", 0x094, "Markers sent.", _word("markers")),
    Register("TX_STALLS", 0x098, "Cycles in which the outgoing MPA stream was stalled.", _word("cycles")),
    Register("RX_FPDUS", 0x09C, "Good FPDUs received.", _word("FPDUs")),
    Register("RX_OCTETS_LO", 0x0A0, "Octets of good FPDUs and their markers received, low half.", _word("octets")),
    Register("RX_OCTETS_HI", 0x0A4, "Octets of good FPDUs and their markers received, high half.", _word("octets")),
    Register("RX_MARKERS", 0x0A8, "Markers of good FPDUs received.", _word("markers")),
    Register("RX_CRC_ERRORS", 0x0AC, "FPDUs received with a wrong CRC.", _word("FPDUs")),
    Register("RX_STALLS", 0x0B0, "Cycles in which receive stalled the incoming MPA stream.", _word("cycles")),
)

BY_NAME: dict[str, Register] = {each.name: each for each in MAP}
