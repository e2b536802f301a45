"""Execute a program in Python, as the sequencer does in hardware: for tests and proofs of programs."""

from collections.abc import Callable, Mapping

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import (
    CONSTANTS,
    HEADER,
    IMMEDIATE,
    INDEX,
    MASK,
    NONE,
    QUEUE,
    QUEUED,
    ROW,
    SCRATCH,
    Op,
    Place,
    evaluate,
    taken,
)  # fmt: skip

__all__ = ["Interpreter"]

LONGEST = 5000  # instructions of one event


class Interpreter:
    """The words of all connections, and the execution of events.

    ``ports`` are called with the connection and the word that is written. ``steps`` counts executed instructions and
    ``cycles`` the cycles that the hardware takes for them, without stalls.
    """

    def __init__(self, program: Program, connections: int, ports: Mapping[int, Callable[[int, int], None]]) -> None:
        self.program = program
        self.instructions = program.instructions()
        self.rows = [[0] * ROW.size for _ in range(connections)]
        self.queues = [[0] * QUEUE for _ in range(connections)]
        self.words = [0] * (1 << 7)  # the header and scratch
        for at, value in enumerate(program.constants):
            self.words[CONSTANTS.start + at] = value
        self.ports = ports
        self.index = 0
        self.steps = 0
        self.cycles = 0

    def run(self, entry: str, connection: int, words: Mapping[Place, int] | None = None) -> None:
        """Execute an event of a connection, with words that it brings."""
        for place, value in (words or {}).items():
            self.words[place.code] = value & MASK
        at = self.program.entry(entry)
        stack: list[int] = []
        selected = self.index  # the word of the queue that the current instruction reads
        for _ in range(LONGEST):
            instruction = self.instructions[at]
            op = instruction.op
            at += 1
            self.steps += 1
            self.cycles += 1
            following = self.index
            if op is Op.WAIT:
                return
            a = self._read(instruction.a, connection, selected)
            b = instruction.b & (IMMEDIATE - 1)
            if not instruction.b & IMMEDIATE:
                b = self._read(instruction.b, connection, selected)
            if not op.branches:
                self._write(instruction.d & 0x7F, connection, evaluate(op, a, b))
            elif op is Op.RETURN:
                at = stack.pop()
                self.cycles += 1
            elif op in (Op.JUMP, Op.CALL) or taken(op, a, b):
                self.cycles += 1 if op in (Op.JUMP, Op.CALL) else 2
                if op is Op.CALL:
                    stack.append(at)
                    assert len(stack) <= 4, self.program.name_of(at)
                at = instruction.d
            selected = following
        raise RuntimeError(f"the program does not end: it is at {self.program.name_of(at)}")

    def _read(self, code: int, connection: int, selected: int) -> int:
        if code < ROW.size:
            return self.rows[connection][code]
        if code == QUEUED.code:
            return self.queues[connection][selected]
        return self.words[code]

    def _write(self, code: int, connection: int, value: int) -> None:
        if code < ROW.size:
            self.rows[connection][code] = value
        elif code == QUEUED.code:
            self.queues[connection][self.index] = value
        elif code < CONSTANTS.start:
            assert HEADER.start <= code < SCRATCH.start + SCRATCH.size
            self.words[code] = value
        elif code == INDEX.code:
            self.index = value % QUEUE
        elif code != NONE.code:
            self.ports[code](connection, value)
