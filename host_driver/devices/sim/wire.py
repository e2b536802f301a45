"""The frames on the sockets between a program and the process that simulates its device.

A frame is a header (kind, note, length of the rest) and some octets. Each direction of each stream is a flow with a
window of its own, counted in beats. A sender that has used up the window waits for a GRANT. A slow reader
therefore delays no other flow, and no queue grows beyond its window. Ethernet frames have none: those that wait too
long are lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

TOP = "RNIC_SIMULATION_TOP"  # environment variables of the process: the arguments of ``layout.of``
ENDS = "RNIC_SIMULATION_ENDS"  # and the descriptors of the sockets, or of the pseudo-terminal of a simulated board
NOISE = "RNIC_SIMULATION_NOISE"  # for tests: a seed, and the probability that an octet of the terminal is damaged
HEADER = Struct("<BBxxI")
WORD = Struct("<I")
EVENT = Struct("<3I")  # the words of EVENT, EVENT_OFFSET_LO, EVENT_OFFSET_HI
PLACE = Struct("<II")  # an address in the memory of an RDMA engine, and a number of octets
COMMAND = Struct("<B3I")  # connection, ports, the peer's address, ISS
STATION = Struct("<Q3I")  # MAC, address, mask, gateway, each as an integer whose first octet is the most significant
STATUS = Struct("<HIIH")  # status, the peer's address, ports; how many commands were carried out before, modulo 2**16
EVENT_WINDOW = 64  # events
WINDOW = 256 * 1024  # octets of full beats


class Kind(IntEnum):
    """The kinds of frames."""

    HELLO = 0  # the simulation is up
    ULPDU = 1  # note, in frames from the device: the Verdict, GOOD, STREAM or CRC
    MPA = 2
    EVENT = 3
    GRANT = 4  # note: the Kind of the flow; a WORD: the number of beats or events that may be sent in addition
    GET = 5  # note: register address / 4; answered by VALUE
    SET = 6  # note: register address / 4; a WORD; answered by VALUE
    VALUE = 7  # a WORD
    DRAIN = 8  # answered by DRAINED when the receive direction has delivered everything
    DRAINED = 9
    PUSH = 10  # note: register address / 4; WORDs to write to it, without an answer
    INTERRUPT = 11  # asks for the next interrupt, of the RDMA engine or the network path; answered by INTERRUPT
    WRITE = 12  # a WORD, the address, and octets to write there
    READ = 13  # a PLACE to read; answered by BLOCK
    BLOCK = 14  # whole beats from the beginning of the PLACE on
    FRAME = 15  # an Ethernet frame, without FCS; to a whole RNIC, with a Damage as note
    CABLE = 16  # of a whole RNIC: note: whether its cable is in
    OCTETS = 17  # of a network path, note: the connection; octets to send as a packet, or received octets
    COMMAND = 18  # note: a Command of rtl.tcp.words; a COMMAND
    STATION = 19  # a STATION: the addresses of this host
    STATUS = 20  # note: the connection; a STATUS, after each change and each command
    ACCEPT = 21  # note: the connection; a WORD: 1 if received octets of it are wanted, 0 if not


class Damage(IntEnum):
    """What happens to a frame on the last metre, between the pipe and the MAC of a whole RNIC."""

    NONE = 0
    FCS = 1  # a bit of the FCS is flipped
    ERROR = 2  # the PHY reports an error (RX_ER)
    RUNT = 3  # it is a valid frame of 63 octets


def beats(octets: int, lanes: int) -> int:
    """The number of beats of a packet."""
    return max(1, -(-octets // (4 * lanes)))


def window(lanes: int) -> int:
    """The window of a stream's flow, in beats."""
    return WINDOW // (4 * lanes)


def frame(kind: int, note: int = 0, octets: bytes = b"") -> bytes:
    """A frame, ready to send."""
    return HEADER.pack(kind, note, len(octets)) + octets


def take_frames(received: bytearray) -> Iterator[tuple[int, int, bytes]]:
    """Take the whole frames from the front of ``received``: kind, note, octets."""
    at, found = 0, []
    with memoryview(received) as view:
        while len(view) - at >= HEADER.size:
            kind, note, length = HEADER.unpack_from(view, at)
            end = at + HEADER.size + length
            if end > len(view):
                break
            found.append((kind, note, bytes(view[at + HEADER.size : end])))
            at = end
    del received[:at]
    return iter(found)
