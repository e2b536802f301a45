"""The frames on the socket between a program and the process that simulates its device.

A frame is a header (kind, note, length of the rest) and some octets. Each direction of each stream is a flow with a
window of its own, counted in beats. A sender that has used up the window waits for a GRANT. A slow reader
therefore delays no other flow, and no queue grows beyond its window.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from struct import Struct

SOCKET = "RNIC_SIMULATION_SOCKET"  # environment variables of the process: the socket's descriptor
WIDTH = "RNIC_SIMULATION_LANES"  # and the device's width
ENGINES = "RNIC_SIMULATION_ENGINES"  # of an RNIC: set if its data paths have RDMA engines
TERMINAL = "RNIC_SIMULATION_TERMINAL"  # for a simulated board: the descriptor of its pseudo-terminal
NOISE = "RNIC_SIMULATION_NOISE"  # for tests: a seed, and the probability that an octet is damaged
HEADER = Struct("<BBxxI")
WORD = Struct("<I")
EVENT = Struct("<3I")  # the words of EVENT, EVENT_OFFSET_LO, EVENT_OFFSET_HI
PLACE = Struct("<II")  # an address in the memory of an RDMA engine, and a number of octets
EVENT_WINDOW = 64  # events
WINDOW = 256 * 1024  # octets of full beats


class Kind(IntEnum):
    """The kinds of frames."""

    HELLO = 0  # the simulation is up
    ULPDU = 1  # note, in frames from the device: the Verdict, GOOD or STREAM; from an RNIC, also CRC
    MPA = 2
    EVENT = 3
    GRANT = 4  # note: the Kind of the flow; a WORD: the number of beats or events that may be sent in addition
    GET = 5  # note: register address / 4; answered by VALUE
    SET = 6  # note: register address / 4; a WORD; answered by VALUE
    VALUE = 7  # a WORD
    DRAIN = 8  # answered by DRAINED when the receive direction has delivered everything
    DRAINED = 9
    PUSH = 10  # note: register address / 4; WORDs to write to it, without an answer
    INTERRUPT = 11  # asks for the next interrupt of the RDMA engine; answered by INTERRUPT
    WRITE = 12  # a WORD, the address, and octets to write there
    READ = 13  # a PLACE to read; answered by BLOCK
    BLOCK = 14  # whole beats from the beginning of the PLACE on


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
