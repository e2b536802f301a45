"""The sequencer: executes a program for one event after the other."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import ADDRESSES, CONSTANTS, HEADER, INDEX, PORTS, QUEUE, QUEUED, Op
from open_rnic.rtl.sequencer.rom import Rom

__all__ = ["Sequencer"]

STACK = 4
WORD = data.StructLayout({"d": 11, "b": 11, "immediate": 1, "a": 7, "op": 5})  # an instruction


class Sequencer(wiring.Component):
    """Executes ``program`` over the words of up to ``connections`` connections, 4 or more, a power of 2.

    An instruction takes one cycle, an event one more, as do JUMP, CALL and RETURN; a conditional branch that is taken
    takes two more. Programs read a word that the previous instruction has written. While an instruction writes to a
    port that is not ready, the sequencer stalls.

    Members
    -------
    idle : Out, 1 bit
        The program waits for an event, and all its writes to ports have been accepted.
    start : In, 1 bit
        Execute an event. Only while ``idle``.
    entry : In, 11 bits
        The address of its first instruction.
    connection : In
        The event's connection.
    page : In, 1 bit
        The page in which the words of the event's segment lie.
    give : In, 1 bit
        Write ``given`` to ``place``. ``given_ready`` is 1 in the cycle in which this happens.
    place : In, 7 bits
        The low 6 bits of the word's code; bit 6 is the page, for the words of a segment.
    given : In, 32 bits
    given_ready : Out, 1 bit
    port : Out, 5 bits
        Number of the port that is written.
    value : Out, 32 bits
        The word that is written.
    valid : Out, 1 bit
    ready : In, 1 bit
    current : Out
        The connection of the event that is executed.
    """

    def __init__(self, program: Program, connections: int):
        self.program = program
        self.index_bits = max(2, exact_log2(connections))
        super().__init__({
            "idle": Out(1),
            "start": In(1),
            "entry": In(range(ADDRESSES)),
            "connection": In(self.index_bits),
            "page": In(1),
            "give": In(1),
            "place": In(7),
            "given": In(32),
            "given_ready": Out(1),
            "port": Out(5),
            "value": Out(32),
            "valid": Out(1),
            "ready": In(1),
            "current": Out(self.index_bits),
        })
        # Fetch, read the operands, execute. The first two are cancelled if a branch is taken.
        self._go = Signal()  # all stages advance
        self._executed = Signal(WORD, reset_less=True)  # the instruction in the third stage
        self._executes = Signal()  # it is not cancelled
        self._writes_port = Signal()
        self._taken = Signal()  # a branch is taken
        self._target = Signal(range(1 << (len(program.instructions()) - 1).bit_length()))  # its address
        self._late = Signal()  # the conditional branch that was executed in the last cycle is taken
        self._page = Signal()  # of the event
        self._selected = Signal(range(QUEUE))  # the word of the queue

    def elaborate(self, platform):
        m = Module()
        instructions = self.program.instructions()
        constants = [0] * 32 + self.program.constants
        m.submodules.rom = fetch = Rom(WORD, [WORD.from_bits(each.encode()) for each in instructions])
        m.submodules.words = words = Memory(shape=32, depth=1 << (self.index_bits + 7), init=constants)
        write = words.write_port()
        read_a = words.read_port(transparent_for=(write,))
        read_b = words.read_port(transparent_for=(write,))
        self._fetch(m, fetch)
        for port, code in ((read_a, fetch.data.a), (read_b, fetch.data.b[:7])):
            m.d.comb += [port.en.eq(self._go), port.addr.eq(self._address(m, code))]

        a = read_a.data
        b = Signal(32)
        result = Signal(32)
        m.d.comb += b.eq(Mux(self._executed.immediate, self._executed.b, read_b.data))
        total, sums = self._add(m, fetch.data.op, a, b)
        less = total[31]
        m.d.comb += result.eq(Mux(sums, total, self._choose(m, a, b, less)))
        self._branch(m, self._satisfied(m, a, b, less), returns_to=self._stack(m, fetch.addr))
        self._write(m, write, result)
        return m

    def _fetch(self, m, fetch):
        """Advance the stages, unless the program waits for an event, or a port is not ready."""
        counter = Signal.like(self._target)
        fetched = Signal()  # an instruction is in the second stage
        third = Signal()  # an instruction is in the third stage
        waits = Signal()
        m.d.comb += [
            self._executes.eq(third & ~self._late),
            waits.eq(self._executes & (self._executed.op == Op.WAIT)),
            self.idle.eq(waits & ~self.valid),
            self._go.eq(Mux(waits, self.start, ~self._writes_port | ~self.valid | self.ready)),
            fetch.en.eq(self._go),
            fetch.addr.eq(Mux(self._taken, self._target, counter)),
        ]
        with m.If(self._go):
            m.d.sync += [
                counter.eq(fetch.addr + 1),
                fetched.eq(1),
                third.eq(fetched & ~self._taken),
                self._executed.eq(fetch.data),
            ]

    def _add(self, m, fetched_op, a, b):
        """Return the sum or the difference, and whether it is the result; this is decoded a stage before."""
        total = Signal(32)
        sums = Signal()  # the result is a sum or a difference
        subtracts = Signal()
        with m.If(self._go):
            m.d.sync += [
                sums.eq((fetched_op == Op.ADD) | (fetched_op == Op.SUB)),
                subtracts.eq(fetched_op != Op.ADD),
            ]
        m.d.comb += total.eq((Cat(Const(1, 1), a) + Cat(subtracts, b ^ subtracts.replicate(32)))[1:])
        return total, sums

    def _choose(self, m, a, b, less):
        """Return the result of the operations that do not add.

        The sum is late, and its sign later still, so that they pass as few levels of logic as possible.
        """
        op = self._executed.op
        low = Signal(32)  # the result if the sign asks for it
        high = Signal(32)  # the result otherwise, and of all operations that do not ask the sign
        m.d.comb += [low.eq(Mux(op[0], a, b)), high.eq(Mux(op[0], b, a))]  # MIN, MAX
        with m.Switch(op):
            with m.Case(Op.AND):
                m.d.comb += [low.eq(a & b), high.eq(a & b)]
            with m.Case(Op.OR):
                m.d.comb += [low.eq(a | b), high.eq(a | b)]
            with m.Case(Op.CLEAR):
                m.d.comb += [low.eq(a & ~b), high.eq(a & ~b)]
            with m.Case(Op.HALF):
                m.d.comb += [low.eq(a >> 1), high.eq(a >> 1)]
            with m.Case(Op.HIGH):
                m.d.comb += [low.eq(a >> 16), high.eq(a >> 16)]
            with m.Case("1----"):  # branches have no result: their turn is used for words from outside
                m.d.comb += [low.eq(self.given), high.eq(self.given)]
        return Mux(less, low, high)

    def _satisfied(self, m, a, b, less):
        """Return whether the instruction is a branch whose condition holds."""
        equal = Signal()
        common = Signal()
        satisfied = Signal()
        m.d.comb += [equal.eq(a == b), common.eq((a & b).any())]
        with m.Switch(self._executed.op):
            with m.Case(Op.EQ):
                m.d.comb += satisfied.eq(equal)
            with m.Case(Op.NE):
                m.d.comb += satisfied.eq(~equal)
            with m.Case(Op.LT):
                m.d.comb += satisfied.eq(less)
            with m.Case(Op.GE):
                m.d.comb += satisfied.eq(~less)
            with m.Case(Op.ANY):
                m.d.comb += satisfied.eq(common)
            with m.Case(Op.NONE):
                m.d.comb += satisfied.eq(~common)
        return satisfied

    def _branch(self, m, satisfied, returns_to):
        """Take a branch: at once without a condition, and otherwise in the next cycle."""
        late_target = Signal.like(self._target)
        at_once = Signal()
        m.d.comb += [self._taken.eq(self._late | (self._executes & at_once)), self._target.eq(self._executed.d)]
        with m.If(self._go):
            m.d.sync += [self._late.eq(self._executes & satisfied), late_target.eq(self._executed.d)]
        with m.Switch(self._executed.op):
            with m.Case(Op.JUMP, Op.CALL):
                m.d.comb += at_once.eq(1)
            with m.Case(Op.RETURN):
                m.d.comb += [at_once.eq(1), self._target.eq(returns_to)]
            with m.Case(Op.WAIT):
                m.d.comb += [at_once.eq(1), self._target.eq(self.entry)]
        with m.If(self._late):
            m.d.comb += self._target.eq(late_target)

    def _stack(self, m, address):
        """Push the address behind a CALL, and return the one on top. An event begins with an empty stack."""
        stack = Array(Signal.like(self._target, name=f"return_{at}", reset_less=True) for at in range(STACK))
        level = Signal(range(STACK))
        top = Signal.like(level)  # the place of the address to return to
        at_second = Signal.like(self._target)  # the address of the instruction in the second stage
        behind = Signal.like(self._target)  # the address behind the instruction that is executed
        op = self._executed.op
        m.d.comb += top.eq(level - 1)
        with m.If(self._go):
            m.d.sync += [at_second.eq(address), behind.eq(at_second + 1)]
        with m.If(self._go & self._executes):
            with m.If(op == Op.CALL):
                m.d.sync += [stack[level].eq(behind), level.eq(level + 1)]
            with m.If(op == Op.RETURN):
                m.d.sync += level.eq(level - 1)
            with m.If(op == Op.WAIT):
                m.d.sync += [level.eq(0), self._page.eq(self.page), self.current.eq(self.connection)]
        return stack[top]

    def _write(self, m, write, result):
        """Write the result, to the memory or a port, or a word from outside."""
        writes = Signal()  # the instruction writes a word or to a port
        code = self._executed.d[:7]
        to_port = Signal()
        outside = self._executed.op[4]
        m.d.comb += [
            writes.eq(self._executes & (self._executed.op < Op.EQ)),
            to_port.eq(code >= CONSTANTS.start),
            self._writes_port.eq(writes & (code >= PORTS.start)),
            self.given_ready.eq(outside),
            write.en.eq(Mux(outside, self.give, writes & ~to_port)),
            write.addr.eq(Mux(outside, self.place, self._address(m, code))),
            write.data.eq(result),
        ]
        # Writes to ports pass a register, as the blocks behind decide much in the same cycle.
        with m.If(~self.valid | self.ready):
            m.d.sync += [self.valid.eq(self._writes_port), self.port.eq(code - PORTS.start), self.value.eq(result)]
        with m.If(self._go & writes & (code == INDEX.code)):
            m.d.sync += self._selected.eq(result)

    def _address(self, m, code):
        """The address in the memory: of rows, 64 words each; of queues, 32 each; of the header's pages and the rest."""
        address = Signal(self.index_bits + 7)
        with m.If(~code[6]):
            m.d.comb += address.eq(Cat(code[:6], self.current, Const(1, 1)))
        with m.Elif(code == QUEUED.code):
            m.d.comb += address.eq(Cat(self._selected, self.current, Const(1, 1)))
        with m.Else():
            of_header = code < HEADER.start + HEADER.size
            m.d.comb += address.eq(Cat(code[:6], self._page & of_header))
        return address
