"""The sequencer: executes a program for one event after the other."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from open_rnic.rtl.sequencer.isa import ADDRESSES, CONSTANTS, HEADER, INDEX, PORTS, QUEUE, QUEUED, Op
from open_rnic.rtl.sequencer.program import Program
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

    def elaborate(self, platform):
        m = Module()
        instructions = self.program.instructions()
        m.submodules.rom = fetch = Rom(WORD, [WORD.from_bits(each.encode()) for each in instructions])
        addresses = range(1 << (len(instructions) - 1).bit_length())
        constants = [0] * 32 + self.program.constants
        words = Memory(shape=32, depth=1 << (self.index_bits + 7), init=constants)
        m.submodules.words = words

        write = words.write_port()
        read_a = words.read_port(transparent_for=(write,))
        read_b = words.read_port(transparent_for=(write,))

        # Fetch, read the operands, execute. The first two are cancelled if a branch is taken.
        counter = Signal(addresses)
        fetched = Signal()  # an instruction is in the second stage
        third = Signal()  # an instruction is in the third stage
        executes = Signal()  # it is not cancelled
        executed = Signal(WORD, reset_less=True)
        go = Signal()  # all stages advance
        taken = Signal()
        target = Signal(addresses)
        late = Signal()  # the conditional branch that was executed in the last cycle is taken
        late_target = Signal(addresses)
        page = Signal()
        selected = Signal(range(QUEUE))
        waits = Signal()
        sums = Signal()  # the result is a sum or a difference
        subtracts = Signal()
        writes_port = Signal()
        m.d.comb += [
            executes.eq(third & ~late),
            waits.eq(executes & (executed.op == Op.WAIT)),
            self.idle.eq(waits & ~self.valid),
            go.eq(Mux(waits, self.start, ~writes_port | ~self.valid | self.ready)),
            fetch.en.eq(go),
            fetch.addr.eq(Mux(taken, target, counter)),
            read_a.en.eq(go),
            read_b.en.eq(go),
        ]
        with m.If(go):
            m.d.sync += [
                counter.eq(fetch.addr + 1),
                fetched.eq(1),
                third.eq(fetched & ~taken),
                executed.eq(fetch.data),
                sums.eq((fetch.data.op == Op.ADD) | (fetch.data.op == Op.SUB)),
                subtracts.eq(fetch.data.op != Op.ADD),
            ]

        for port, code in ((read_a, fetch.data.a), (read_b, fetch.data.b[:7])):
            m.d.comb += port.addr.eq(self._address(m, code, page, selected))

        # Execute
        a = read_a.data
        b = Signal(32)
        total = Signal(32)
        result = Signal(32)
        op = executed.op
        equal = Signal()
        common = Signal()
        less = total[31]
        m.d.comb += [
            b.eq(Mux(executed.immediate, executed.b, read_b.data)),
            total.eq((Cat(Const(1, 1), a) + Cat(subtracts, b ^ subtracts.replicate(32)))[1:]),
            equal.eq(a == b),
            common.eq((a & b).any()),
        ]
        # The sum is late, and its sign later still, so that they pass as few levels of logic as possible.
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
        m.d.comb += result.eq(Mux(sums, total, Mux(less, low, high)))

        # Branches
        stack = Array(Signal(addresses, name=f"return_{at}", reset_less=True) for at in range(STACK))
        level = Signal(range(STACK))
        behind = Signal(addresses)  # the address behind the instruction that is executed
        satisfied = Signal()
        at_once = Signal()  # the branch is taken without a condition
        top = Signal.like(level)  # the place of the address to return to
        m.d.comb += [taken.eq(late | (executes & at_once)), target.eq(executed.d), top.eq(level - 1)]
        with m.If(go):
            m.d.sync += [late.eq(executes & satisfied), late_target.eq(executed.d)]
        with m.Switch(op):
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
            with m.Case(Op.JUMP, Op.CALL):
                m.d.comb += at_once.eq(1)
            with m.Case(Op.RETURN):
                m.d.comb += [at_once.eq(1), target.eq(stack[top])]
            with m.Case(Op.WAIT):
                m.d.comb += [at_once.eq(1), target.eq(self.entry)]
        with m.If(late):
            m.d.comb += target.eq(late_target)
        at_second = Signal(addresses)  # the address of the instruction in the second stage
        with m.If(go):
            m.d.sync += [at_second.eq(fetch.addr), behind.eq(at_second + 1)]
        with m.If(go & executes):
            with m.If(op == Op.CALL):
                m.d.sync += [stack[level].eq(behind), level.eq(level + 1)]
            with m.If(op == Op.RETURN):
                m.d.sync += level.eq(level - 1)
            with m.If(op == Op.WAIT):
                m.d.sync += [level.eq(0), page.eq(self.page), self.current.eq(self.connection)]

        # Write the result, or a word from outside.
        writes = Signal()  # the instruction writes a word or to a port
        code = executed.d[:7]
        to_port = Signal()
        m.d.comb += [
            writes.eq(executes & (op < Op.EQ)),
            to_port.eq(code >= CONSTANTS.start),
            writes_port.eq(writes & (code >= PORTS.start)),
            self.given_ready.eq(op[4]),
            write.en.eq(Mux(op[4], self.give, writes & ~to_port)),
            write.addr.eq(Mux(op[4], self.place, self._address(m, code, page, selected))),
            write.data.eq(result),
        ]
        # Writes to ports pass a register, as the blocks behind decide much in the same cycle.
        with m.If(~self.valid | self.ready):
            m.d.sync += [self.valid.eq(writes_port), self.port.eq(code - PORTS.start), self.value.eq(result)]
        with m.If(go & writes & (code == INDEX.code)):
            m.d.sync += selected.eq(result)
        return m

    def _address(self, m, code, page, selected):
        """The address in the memory: of rows, 64 words each; of queues, 32 each; of the header's pages and the rest."""
        address = Signal(self.index_bits + 7)
        with m.If(~code[6]):
            m.d.comb += address.eq(Cat(code[:6], self.current, Const(1, 1)))
        with m.Elif(code == QUEUED.code):
            m.d.comb += address.eq(Cat(selected, self.current, Const(1, 1)))
        with m.Else():
            of_header = code < HEADER.start + HEADER.size
            m.d.comb += address.eq(Cat(code[:6], page & of_header))
        return address
