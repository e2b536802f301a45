"""The instructions of the sequencer, and the places where their operands lie.

An instruction has 35 bits: ``op`` (5), ``a`` (7), ``b`` (12) and ``d`` (11), the most significant first. The result of
an arithmetic instruction is written to the place in the low 7 bits of ``d``; a branch continues at address ``d``.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

__all__ = [
    "ADDRESSES",
    "CONSTANTS",
    "HEADER",
    "IMMEDIATE",
    "INDEX",
    "MASK",
    "NONE",
    "PORTS",
    "QUEUE",
    "QUEUED",
    "ROW",
    "SCRATCH",
    "Instruction",
    "Op",
    "Place",
    "Region",
    "evaluate",
    "taken",
]

MASK = 0xFFFF_FFFF
ADDRESSES = 1 << 11  # the longest program
IMMEDIATE = 1 << 11  # set in ``b``: the other 11 bits are the operand itself


class Op(IntEnum):
    """The operations, on words of 32 bits modulo 2**32.

    LT, GE, MIN and MAX compare by the sign of ``a - b``: numbers that are less than 2**31 apart, sequence numbers
    (RFC 9293 §3.4) as well as sizes.
    """

    ADD = 0
    SUB = 1
    AND = 2
    OR = 3
    CLEAR = 4  # a & ~b
    MIN = 5
    MAX = 6
    HALF = 7  # a >> 1
    HIGH = 8  # a >> 16
    EQ = 16
    NE = 17
    LT = 18
    GE = 19
    ANY = 20  # a & b != 0
    NONE = 21  # a & b == 0
    JUMP = 22
    CALL = 23  # the address of the next instruction is pushed, on a stack of 4
    RETURN = 24
    WAIT = 25  # until an event; continue at its entry

    @property
    def branches(self) -> bool:
        """Whether ``d`` is an address, and nothing is written."""
        return self >= Op.EQ


class Place(NamedTuple):
    """A word that an instruction can read or write, by its 7-bit code."""

    code: int


class Region(NamedTuple):
    """A range of codes of places."""

    start: int
    size: int


ROW = Region(0, 64)  # of the current connection
HEADER = Region(64, 8)  # the current segment's words
SCRATCH = Region(72, 23)
QUEUED = Place(95)  # the word of the connection's queue that was last selected with INDEX
CONSTANTS = Region(96, 32)  # when read
NONE = Place(96)  # when written: nowhere
INDEX = Place(97)  # when written: selects the word of the queue, one instruction later
PORTS = Region(98, 30)  # when written: out of the sequencer
QUEUE = 32  # words of each connection's queue


@dataclass(frozen=True)
class Instruction:
    """One instruction; see the module's docstring for the fields."""

    op: Op
    a: int = 0
    b: int = 0
    d: int = 0

    def encode(self) -> int:
        """Return the 35 bits."""
        return self.op << 30 | self.a << 23 | self.b << 11 | self.d


def evaluate(op: Op, a: int, b: int) -> int:
    """Return the result of an arithmetic instruction."""
    less = (a - b) >> 31 & 1
    match op:
        case Op.ADD:
            return (a + b) & MASK
        case Op.SUB:
            return (a - b) & MASK
        case Op.AND:
            return a & b
        case Op.OR:
            return a | b
        case Op.CLEAR:
            return a & ~b & MASK
        case Op.MIN:
            return a if less else b
        case Op.MAX:
            return b if less else a
        case Op.HALF:
            return a >> 1
        case Op.HIGH:
            return a >> 16
    raise ValueError(f"{op.name} has no result")


def taken(op: Op, a: int, b: int) -> bool:
    """Return whether a conditional branch is taken."""
    match op:
        case Op.EQ:
            return a == b
        case Op.NE:
            return a != b
        case Op.LT:
            return bool((a - b) >> 31 & 1)
        case Op.GE:
            return not (a - b) >> 31 & 1
        case Op.ANY:
            return bool(a & b)
        case Op.NONE:
            return not a & b
    raise ValueError(f"{op.name} has no condition")
