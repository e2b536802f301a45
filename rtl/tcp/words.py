"""The words that the program of TCP works on: the row of a connection, the words of an event, scratch, and ports."""

from enum import IntEnum, IntFlag
from types import SimpleNamespace

from open_rnic.rtl.sequencer.isa import HEADER, PORTS, ROW, SCRATCH, Place, Region

__all__ = ["PIECE", "Bit", "Command", "Reason", "SegmentBit", "State", "port", "row", "segment", "t"]

PIECE = 1024  # octets that leave a receive ring as one packet, at most


class State(IntFlag):
    """The states of RFC 9293 §3.3.2, a bit each. CLOSED has none."""

    CLOSED = 0
    ESTABLISHED = 1
    SYN_SENT = 2
    SYN_RECEIVED = 4
    FIN_WAIT_1 = 8
    FIN_WAIT_2 = 16
    CLOSE_WAIT = 32
    CLOSING = 64
    LAST_ACK = 128
    TIME_WAIT = 256
    LISTEN = 512

    SYNCHRONIZED = ESTABLISHED | FIN_WAIT_1 | FIN_WAIT_2 | CLOSE_WAIT | CLOSING | LAST_ACK | TIME_WAIT


class Bit(IntFlag):
    """The bits of ``row.flags``."""

    CLOSES = 1  # a FIN is due behind the last octet
    FINISHED = 2  # the peer's FIN has been received, and everything before it
    FIN_KEPT = 4  # a FIN was received behind a hole
    FAST = 8  # fast recovery (RFC 6582)
    TIMEOUT = 16  # everything outstanding at a timeout counts as lost
    MUST_ACK = 32  # an acknowledgment is due
    TIMED = 64  # a segment is timed
    UNANSWERED = 128  # octets were sent since the peer's last segment
    RETRANSMIT = 256  # timers that run
    PERSIST = 512
    ACK = 1024
    END = 2048
    SACK = 4096  # both ends permit SACK
    MEASURED = 8192  # SRTT is valid
    SYN_DUE = 16384  # a SYN is due
    KEEP_ALIVE = 32768  # a timer, too

    UNUSUAL = CLOSES | FINISHED | FAST | TIMEOUT | FIN_KEPT  # for which a segment takes the long way
    TIMERS = RETRANSMIT | PERSIST | ACK | END | KEEP_ALIVE


class Command(IntEnum):
    """The commands of the host for a connection."""

    LISTEN_AT = 1
    OPEN = 2
    CLOSE = 3
    ABORT = 4
    UNLISTEN = 5  # forget a connection in LISTEN; a SYN may have been faster
    KEEP_ALIVE = 6  # probe a silent peer


class SegmentBit(IntFlag):
    """The bits of ``segment.flags``: the control bits, and an option."""

    FIN = 1
    SYN = 2
    RST = 4
    PSH = 8
    ACK = 16
    URG = 32
    SACK_PERMITTED = 64


class Reason(IntEnum):
    """How a connection ended, as in the port ``status``."""

    CLOSED = 1 << 12
    ABORTED = 2 << 12
    RESET = 3 << 12
    REFUSED = 4 << 12
    TIMED_OUT = 5 << 12


def _words(region: Region, names: str) -> SimpleNamespace:
    words = names.split()
    if len(words) > region.size:
        raise ValueError(f"{len(words)} words, but room for {region.size}")
    return SimpleNamespace(**{name: Place(region.start + at) for at, name in enumerate(words)})


# A connection. The names are those of host_driver.tcp: ``next`` to ``fin`` belong to its Receiver, ``una`` to
# ``duplicates`` to its Sender. ``ports`` has the port of this end in its upper half, as in segments that are sent.
row = _words(
    ROW,
    """
    state flags address ports
    next edge read unacknowledged fin discarded
    start0 end0 start1 end1 start2 end2 start3 end3
    iss una sent end window largest window_seq window_ack
    mss twice_mss cwnd threshold credit initial
    recovery resent duplicates
    rto srtt8 rttvar4 timed_end timed_at sent_at unanswered
    deadline ack_at end_at
    challenge_at challenges syns tries
    head fresh tail
    heard_at probed_at alive_at probes idle interval most_probes
    """,
)

# A segment, as the loader writes it. ``ports`` is in the order of segments that are sent. ``flags`` has the control
# bits, and SACK_PERMITTED. ``length`` is the number of octets of payload, ``mss`` the option, 0 if it is absent.
segment = _words(HEADER, "source ports seq ack flags window length mss")

# ``now`` is the time in ticks; the arguments are those of a command or of an event other than a segment.
t = _words(
    SCRATCH,
    """
    now argument0 argument1 argument2 argument3
    seq flags length start until control room count ack x y z old behind blocked pipe allowed right
    """,
)

port = _words(
    PORTS,
    """
    destination length word payload_from payload
    place first take
    begin_receive deliver finish begin_send release
    want permit status bind_address bind_ports
    """,
)
