"""Write programs for the sequencer.

For example, ``p.If(p.lt(row.edge, t.right))`` opens a block that is executed if ``edge`` is left of ``right``::

    p = Program()
    with p.routine("promise"):
        p.add(t.right, row.next, 1000)
        with p.If(p.lt(row.edge, t.right)):
            p.move(row.edge, t.right)

Operands are places, and integers: as second operand up to 2,047, otherwise from the table of constants.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from open_rnic.rtl.sequencer.isa import ADDRESSES, CONSTANTS, IMMEDIATE, INDEX, MASK, NONE, Instruction, Op, Place

__all__ = ["Condition", "Operand", "Program", "ProgramError"]

Operand = Place | int

_OPPOSITE = {Op.EQ: Op.NE, Op.NE: Op.EQ, Op.LT: Op.GE, Op.GE: Op.LT, Op.ANY: Op.NONE, Op.NONE: Op.ANY}


class ProgramError(ValueError):
    """A program that the sequencer cannot hold."""


@dataclass(frozen=True)
class Condition:
    """A comparison of two operands."""

    op: Op
    a: Operand
    b: Operand

    def __invert__(self) -> "Condition":
        return replace(self, op=_OPPOSITE[self.op])


@dataclass
class _Label:
    address: int | None = None


class Program:
    """A program, its entries by name, and its constants."""

    def __init__(self) -> None:
        self.constants: list[int] = []
        self.names: dict[str, _Label] = {}
        self._written: list[tuple[Instruction, _Label | None]] = []
        self._passed: list[_Label] = []  # where the block that ended last was left, for Else

    # Arithmetic

    def add(self, to: Place, a: Operand, b: Operand) -> None:
        """``to = a + b``."""
        self._write(Op.ADD, a, b, to.code)

    def sub(self, to: Place, a: Operand, b: Operand) -> None:
        """``to = a - b``."""
        self._write(Op.SUB, a, b, to.code)

    def and_(self, to: Place, a: Operand, b: Operand) -> None:
        """``to = a & b``."""
        self._write(Op.AND, a, b, to.code)

    def or_(self, to: Place, a: Operand, b: Operand) -> None:
        """``to = a | b``."""
        self._write(Op.OR, a, b, to.code)

    def min(self, to: Place, a: Operand, b: Operand) -> None:
        """``to`` = the lower one of ``a`` and ``b``."""
        self._write(Op.MIN, a, b, to.code)

    def max(self, to: Place, a: Operand, b: Operand) -> None:
        """``to`` = the higher one of ``a`` and ``b``."""
        self._write(Op.MAX, a, b, to.code)

    def half(self, to: Place, a: Operand) -> None:
        """``to = a >> 1``."""
        self._write(Op.HALF, a, 0, to.code)

    def high(self, to: Place, a: Operand) -> None:
        """``to = a >> 16``."""
        self._write(Op.HIGH, a, 0, to.code)

    def move(self, to: Place, a: Operand) -> None:
        """``to = a``."""
        if isinstance(a, int):
            self._write(Op.AND, a, a, to.code) if a >= IMMEDIATE else self._write(Op.ADD, 0, a, to.code)
        else:
            self._write(Op.OR, a, 0, to.code)

    def set(self, word: Place, bits: int) -> None:
        """Set bits of a word."""
        self._write(Op.OR, word, bits, word.code)

    def clear(self, word: Place, bits: int) -> None:
        """Clear bits of a word."""
        self._write(Op.CLEAR, word, bits, word.code)

    def select(self, at: Operand) -> None:
        """Select the word of the queue that QUEUED stands for."""
        self.move(INDEX, at)
        self.move(NONE, 0)  # the selection takes effect one instruction later

    # Conditions

    def eq(self, a: Operand, b: Operand) -> Condition:
        """``a == b``."""
        return Condition(Op.EQ, a, b)

    def ne(self, a: Operand, b: Operand) -> Condition:
        """``a != b``."""
        return Condition(Op.NE, a, b)

    def lt(self, a: Operand, b: Operand) -> Condition:
        """``a < b``, by the sign of the difference."""
        return Condition(Op.LT, a, b)

    def le(self, a: Operand, b: Operand) -> Condition:
        """``a <= b``, by the sign of the difference."""
        return Condition(Op.GE, b, a)

    def any(self, a: Operand, bits: int) -> Condition:
        """One of the bits of ``a`` is set."""
        return Condition(Op.ANY, a, bits)

    def none(self, a: Operand, bits: int) -> Condition:
        """None of the bits of ``a`` is set."""
        return Condition(Op.NONE, a, bits)

    # Flow

    @contextmanager
    def If(self, *conditions: Condition) -> Iterator[None]:  # noqa: N802 - as in Amaranth
        """A block that is executed if all conditions hold."""
        behind = _Label()
        for each in conditions:
            self._branch(~each, behind)
        yield
        self._place(behind)

    @contextmanager
    def Else(self) -> Iterator[None]:  # noqa: N802
        """A block that is executed if the one before was not. It must follow :meth:`If` at once."""
        at = len(self._written)
        behind = _Label()
        exit_before = self._passed[-1]  # the block before jumps over this one, and its exit moves behind the jump
        if exit_before.address != at:
            raise ProgramError("Else does not follow If")
        self.jump(behind)
        exit_before.address = at + 1
        yield
        self._place(behind)

    def label(self, name: str) -> None:
        """Give the next instruction a name."""
        self._place(self._named(name))

    def jump(self, to: "str | _Label") -> None:
        """Continue elsewhere."""
        self._write(Op.JUMP, label=self._named(to) if isinstance(to, str) else to)

    def jump_if(self, condition: Condition, to: str) -> None:
        """Continue elsewhere if the condition holds."""
        self._branch(condition, self._named(to))

    def call(self, name: str) -> None:
        """Execute a routine."""
        self._write(Op.CALL, label=self._named(name))

    def ret(self) -> None:
        """End the routine."""
        self._write(Op.RETURN)

    def wait(self) -> None:
        """Wait for the next event, and continue at its entry."""
        self._write(Op.WAIT)

    @contextmanager
    def routine(self, name: str) -> Iterator[None]:
        """A routine for :meth:`call`, which ends with the block."""
        self.label(name)
        yield
        self.ret()

    # The result

    def instructions(self) -> list[Instruction]:
        """Return the program. Raises ProgramError if it is too long or a name is missing."""
        missing = [name for name, label in self.names.items() if label.address is None]
        if missing:
            raise ProgramError(f"the program jumps to {', '.join(missing)}, which it does not have")
        if len(self._written) > ADDRESSES:
            raise ProgramError(f"{len(self._written)} instructions; at most {ADDRESSES} fit")
        return [each if label is None else replace(each, d=label.address or 0) for each, label in self._written]

    def entry(self, name: str) -> int:
        """Return the address of a name."""
        address = self.names[name].address
        assert address is not None, name
        return address

    def name_of(self, address: int) -> str:
        """Return the last name before an address, for messages."""
        before = [(label.address, name) for name, label in self.names.items() if (label.address or 0) <= address]
        return max(before, key=lambda each: each[0] or 0)[1] if before else "?"

    # Inside

    def _constant(self, value: int) -> int:
        value &= MASK
        if value not in self.constants:
            if len(self.constants) == CONSTANTS.size:
                raise ProgramError(f"more than {CONSTANTS.size} constants: no room for {value:#x}")
            self.constants.append(value)
        return CONSTANTS.start + self.constants.index(value)

    def _write(
        self, op: Op, a: Operand = 0, b: Operand = 0, d: int = 0, label: _Label | None = None
    ) -> None:
        first = a.code if isinstance(a, Place) else self._constant(a)
        if isinstance(b, Place):
            second = b.code
        elif 0 <= b < IMMEDIATE:
            second = IMMEDIATE | b
        else:
            second = self._constant(b)
        self._written.append((Instruction(op, first, second, d), label))

    def _branch(self, condition: Condition, to: _Label) -> None:
        self._write(condition.op, condition.a, condition.b, label=to)

    def _named(self, name: str) -> _Label:
        return self.names.setdefault(name, _Label())

    def _place(self, label: _Label) -> None:
        if label.address is not None:
            raise ProgramError("a name is given twice")
        label.address = len(self._written)
        self._passed.append(label)

