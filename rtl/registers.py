"""The register map, as plain data.

This is the one description from which the register bank in gateware, the host's constants and the
reference in ``docs/registers.md`` are made. It imports nothing, so that a host can use it without
any hardware library.

Registers are 32 bits wide and lie at multiples of 4. Reserved fields read zero, and what is written
to them is ignored. Reading changes nothing, except that reading ``EVENT`` pops the event FIFO.
"""

from dataclasses import dataclass, field
from enum import IntEnum

IDENTITY = int.from_bytes(b"MPA1", "big")
VERSION = 0x0001_0000
MAX_ULPDU = 64768  # RFC 5044 §3: the largest ULPDU that MPA carries


class Access(IntEnum):
    """What the host may do with a field."""

    RO = 0
    RW = 1
    PULSE = 2  # a written one acts once, and reads zero
    CLEAR = 3  # a written one clears the flag


class Role(IntEnum):
    """Which startup frame this end sends (RFC 5044 §7.1)."""

    INITIATOR = 0
    RESPONDER = 1


class Model(IntEnum):
    """The connection model, Control Flag A of RFC 6581 §9.2."""

    CLIENT_SERVER = 0
    PEER_TO_PEER = 1


class Rtr(IntEnum):
    """An RTR indication (RFC 6581 §9.2); as a set, bit ``kind - 1`` of a field."""

    NONE = 0
    SEND = 1  # Control Flag B
    WRITE = 2  # Control Flag C
    READ = 3  # Control Flag D

    @property
    def bit(self) -> int:
        """The kind as a member of a set: 1, 2 or 4; NONE is the empty set."""
        return (1 << self) >> 1


class Verdict(IntEnum):
    """What the device says of the octets that it delivers, on their last beat."""

    GOOD = 0  # a whole ULPDU
    STREAM = 1  # octets of stream mode, from before MPA was enabled
    CRC = 2  # RFC 5044 §8, error 2
    MARKER = 3  # RFC 5044 §8, error 3


class EventKind(IntEnum):
    """What an entry of the event FIFO reports."""

    NONE = 0
    TX_MPA = 1  # the transmit direction has entered MPA mode
    RX_MPA = 2  # the receive direction has entered MPA mode
    FENCE_OPEN = 3
    RTR_SENT = 4  # detail: the Rtr kind
    RTR_RECEIVED = 5  # detail: the Rtr kind; value: the RTR's ULPDU_Length
    RESPONSE_SENT = 6  # the zero-length Read Response that answers a Read RTR
    RESPONSE_RECEIVED = 7  # the zero-length Read Response to our Read RTR
    TERMINATE_SENT = 8
    ERROR = 9  # detail: the Cause; value: as the Cause says


class Cause(IntEnum):
    """Why the device stopped. ``code`` is the MPA error code for it."""

    NONE = 0
    CRC = 1  # value: ULPDU_Length
    FPDUPTR = 2  # value: the FPDUPTR found
    RX_LENGTH = 3  # ULPDU_Length over RX_MAX_ULPDU; value: ULPDU_Length
    NOT_RTR = 4  # the first FPDU is not a negotiated RTR; value: ULPDU_Length
    TX_LENGTH = 5  # a ULPDU over TX_MAX_ULPDU was refused; value: its length
    TX_MISMATCH = 6  # a ULPDU was not as long as announced; value: the announced length
    TX_STREAM = 7  # a stream-mode packet ran past TX_STREAM_OCTETS; value: the octets too many

    @property
    def code(self) -> int:
        """The MPA error code: RFC 5044 §8 for 2 and 3, RFC 6581 §8 for 5 (local catastrophic)."""
        return {Cause.NONE: 0, Cause.CRC: 2, Cause.FPDUPTR: 3, Cause.RX_LENGTH: 3}.get(self, 5)


class DirectionState(IntEnum):
    """Where a direction of the connection stands."""

    STREAM = 0  # passing octets unchanged
    WAITING = 1  # all stream-mode octets have passed, MPA is not enabled yet
    MPA = 2
    STOPPED = 3  # after an error, or after a Terminate


@dataclass(frozen=True)
class Field:
    """``width`` bits from bit ``lsb`` up."""

    name: str
    lsb: int
    width: int
    doc: str
    access: Access = Access.RO
    reset: int = 0
    enum: type[IntEnum] | None = None

    @property
    def mask(self) -> int:
        """The field's bits, in place."""
        return ((1 << self.width) - 1) << self.lsb

    def get(self, word: int) -> int:
        """The field's value in a register's ``word``."""
        return (word & self.mask) >> self.lsb

    def put(self, value: int) -> int:
        """``value`` in the field's place; raises ValueError when it does not fit."""
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
    pops: bool = False  # reading it takes an entry from a FIFO

    def __getitem__(self, name: str) -> Field:
        for each in self.fields:
            if each.name == name:
                return each
        raise KeyError(f"{self.name} has no field {name}")

    @property
    def reset(self) -> int:
        """The register's value after reset."""
        return sum(each.put(each.reset) for each in self.fields)


def _word(doc: str, access: Access = Access.RO, reset: int = 0, width: int = 32) -> tuple[Field, ...]:
    return (Field("value", 0, width, doc, access, reset),)


def _flag(name: str, lsb: int, doc: str, access: Access = Access.RW, reset: int = 0) -> Field:
    return Field(name, lsb, 1, doc, access, reset)


MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x000, "What this is.", _word('"MPA1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x004, "Which register map this is.", (
        Field("minor", 0, 16, "raised by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "raised by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x008, "What the device was built with.", (
        Field("lanes", 0, 8, "width of the data path in 32-bit lanes"),
        Field("event_depth", 8, 8, "entries of the event FIFO"),
        _flag("store_and_forward", 16, "bad ULPDUs are dropped instead of marked", Access.RO),
    )),
    Register("CONTROL", 0x00C, "What the connection does.", (
        _flag("tx_enable", 0, "MPA on transmit, from octet TX_STREAM_OCTETS on"),
        _flag("rx_enable", 1, "MPA on receive, from octet RX_STREAM_OCTETS on"),
        _flag("reset", 2, "forget the connection: everything is as after power-up, these registers too", Access.PULSE),
    )),
    Register("CONFIG", 0x010, "What was negotiated. Written before CONTROL enables a direction.", (
        Field("role", 0, 1, "this end's role", Access.RW, enum=Role),
        Field("model", 1, 1, "the connection model", Access.RW, enum=Model),
        Field("rtr_send", 2, 2, "the RTR that an initiator sends", Access.RW, enum=Rtr),
        Field("rtr_accept", 4, 3, "the RTRs that a responder takes: bit 0 Send, 1 Write, 2 Read", Access.RW),
        _flag("permissive", 7,
              "any first FPDU but a Terminate opens a responder's fence; one that is no RTR is delivered"),
        _flag("markers_tx", 8, "insert markers"),
        _flag("markers_rx", 9, "expect markers"),
        _flag("crc_tx", 10, "generate CRCs; the field is zero otherwise", reset=1),
        _flag("crc_rx", 11, "check CRCs", reset=1),
        _flag("rdmap", 12, "RDMAP is above: one Terminate passes after an error, and nothing after a Terminate",
              reset=1),
    )),
    Register("TX_MAX_ULPDU", 0x014, "Longer ULPDUs are refused on transmit.",
             _word("octets", Access.RW, MAX_ULPDU, 16)),
    Register("RX_MAX_ULPDU", 0x018, "A longer ULPDU_Length is error 3 on receive.",
             _word("octets", Access.RW, MAX_ULPDU, 16)),
    Register("TX_STREAM_OCTETS", 0x01C, "Octets that pass unchanged before MPA on transmit.",
             _word("octets since reset", Access.RW)),
    Register("RX_STREAM_OCTETS", 0x020, "Octets that pass unchanged before MPA on receive; what follows them "
             "is held back until this is raised or MPA is enabled.", _word("octets since reset", Access.RW)),
    Register("TX_MPA_OFFSET", 0x024, "Where in the marked stream transmit starts; a multiple of 4.",
             _word("octets, modulo 512", Access.RW, 0, 9)),
    Register("RX_MPA_OFFSET", 0x028, "Where in the marked stream receive starts; a multiple of 4.",
             _word("octets, modulo 512", Access.RW, 0, 9)),
    Register("STATE", 0x02C, "Where the connection stands.", (
        Field("tx", 0, 2, "the transmit direction", enum=DirectionState),
        Field("rx", 2, 2, "the receive direction", enum=DirectionState),
        _flag("fence_open", 4, "ULPDUs may leave", Access.RO),
    )),
    Register("EVENT", 0x030, "The oldest event; reading it takes it from the FIFO. Zero: there is none.", (
        Field("kind", 0, 8, "what happened", enum=EventKind),
        Field("detail", 8, 8, "the Rtr kind, or an error's Cause"),
        Field("value", 16, 16, "as the kind says"),
    ), pops=True),
    Register("EVENT_OFFSET_LO", 0x034, "Stream offset of the event that was taken last, low half.",
             _word("octets from the start of MPA on receive, plus RX_MPA_OFFSET, to the FPDU that the event is about; "
                   "0 when it is about none")),
    Register("EVENT_OFFSET_HI", 0x038, "Stream offset of the event that was taken last, high half.",
             _word("octets", width=16)),
    Register("EVENT_STATUS", 0x03C, "The event FIFO.", (
        Field("level", 0, 8, "events waiting"),
        _flag("overflow", 8, "an event was lost because the FIFO was full", Access.CLEAR),
    )),
    Register("ERROR", 0x040, "The last error, kept until reset.", (
        Field("code", 0, 8, "MPA error code; 0: none"),
        Field("cause", 8, 8, "its cause", enum=Cause),
        Field("value", 16, 16, "as the cause says"),
    )),
    Register("ERROR_OFFSET_LO", 0x044, "Stream offset of the last error, low half.", _word("octets")),
    Register("ERROR_OFFSET_HI", 0x048, "Stream offset of the last error, high half.", _word("octets", width=16)),
    Register("CYCLES_LO", 0x080, "Clock cycles since reset, low half.", _word("cycles")),
    Register("CYCLES_HI", 0x084, "Clock cycles since reset, high half.", _word("cycles")),
    Register("TX_FPDUS", 0x088, "FPDUs sent.", _word("FPDUs")),
    Register("TX_OCTETS_LO", 0x08C, "Octets of FPDUs and markers sent, low half.", _word("octets")),
    Register("TX_OCTETS_HI", 0x090, "Octets of FPDUs and markers sent, high half.", _word("octets")),
    Register("TX_MARKERS", 0x094, "Markers sent.", _word("markers")),
    Register("TX_STALLS", 0x098, "Cycles in which the MPA stream's taker held transmit up.", _word("cycles")),
    Register("RX_FPDUS", 0x09C, "Good FPDUs received.", _word("FPDUs")),
    Register("RX_OCTETS_LO", 0x0A0, "Octets of good FPDUs and their markers received, low half.", _word("octets")),
    Register("RX_OCTETS_HI", 0x0A4, "Octets of good FPDUs and their markers received, high half.", _word("octets")),
    Register("RX_MARKERS", 0x0A8, "Markers of good FPDUs.", _word("markers")),
    Register("RX_CRC_ERRORS", 0x0AC, "FPDUs whose CRC did not match.", _word("FPDUs")),
    Register("RX_STALLS", 0x0B0, "Cycles in which receive held the MPA stream's giver up.", _word("cycles")),
)

BY_NAME: dict[str, Register] = {each.name: each for each in MAP}
