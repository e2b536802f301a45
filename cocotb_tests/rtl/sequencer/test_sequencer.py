"""The sequencer executes random programs as the interpreter does, cycle for cycle."""

import random

import pytest
from amaranth.sim import Simulator

from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.rtl.sequencer.assembler import Program, ProgramError
from open_rnic.rtl.sequencer.interpreter import Interpreter
from open_rnic.rtl.sequencer.isa import HEADER, INDEX, PORTS, QUEUED, ROW, SCRATCH, Op, Place
from open_rnic.rtl.sequencer.sequencer import Sequencer

CONNECTIONS = 4


def random_program(rng):
    """Blocks of random instructions; each block is an event, calls a routine, and branches forwards only."""
    p = Program()
    p.label("start")
    p.wait()
    readable = [Place(code) for code in (*range(3), *range(HEADER.start, HEADER.start + 8), SCRATCH.start, QUEUED.code)]
    writable = [*readable, INDEX, *(Place(PORTS.start + n) for n in (0, 7, 29))]
    arithmetic = [p.add, p.sub, p.and_, p.or_, p.min, p.max]
    conditions = [p.eq, p.ne, p.lt, p.le, p.any, p.none]

    def operand():
        return rng.choice([*readable, rng.randrange(2000), rng.choice([1 << 31, 0xFFFF_FFFF, 0x1234_5678])])

    def straight():
        for _ in range(rng.randrange(6)):
            choice = rng.random()
            if choice < 0.7:
                rng.choice(arithmetic)(rng.choice(writable), rng.choice(readable), operand())
            elif choice < 0.8:
                rng.choice([p.half, p.high])(rng.choice(writable), rng.choice(readable))
            else:
                p.clear(rng.choice(readable), rng.randrange(2000))

    for number in range(20):
        p.label(f"event{number}")
        for _ in range(rng.randrange(1, 5)):
            straight()
            with p.If(rng.choice(conditions)(rng.choice(readable), operand())):
                straight()
                if rng.random() < 0.5:
                    p.call(f"routine{rng.randrange(4)}")
            if rng.random() < 0.5:
                with p.If(rng.choice(conditions)(rng.choice(readable), operand())):
                    straight()
                with p.Else():
                    straight()
        p.wait()
    for number in range(4):
        with p.routine(f"routine{number}"):
            straight()
            if number:
                p.call(f"routine{number - 1}")
            straight()
    return p


@pytest.mark.parametrize("stalls", [0, 0.3])
@pytest.mark.parametrize("seed", shortened("more random programs", 1, range(4)))
def test_random_programs(seed, stalls):
    rng = random.Random(seed)
    program = random_program(rng)
    expected, sent = [], []
    names = {PORTS.start + n: lambda c, v, n=n: expected.append((c, n, v)) for n in range(30)}
    model = Interpreter(program, CONNECTIONS, names)
    dut = Sequencer(program, CONNECTIONS)
    limits = 20, CONNECTIONS, 2, 1 << 32  # of the event, connection, page and word
    events = [[rng.randrange(limit) for limit in limits] for _ in range(200)]
    pages = [[0] * 8, [0] * 8]

    async def drive(ctx):
        for number, connection, page, word in events:
            where = rng.randrange(8)
            pages[page][where] = word
            ctx.set(dut.place, page << 6 | where)
            ctx.set(dut.given, word)
            ctx.set(dut.give, 1)
            while not ctx.get(dut.given_ready):
                await ctx.tick()
            await ctx.tick()
            ctx.set(dut.give, 0)
            while not ctx.get(dut.idle):
                await ctx.tick()
            ctx.set(dut.entry, program.entry(f"event{number}"))
            ctx.set(dut.connection, connection)
            ctx.set(dut.page, page)
            ctx.set(dut.start, 1)
            await ctx.tick()
            ctx.set(dut.start, 0)
            cycles = 1
            while not ctx.get(dut.idle):
                await ctx.tick()
                cycles += 1
            model.words[HEADER.start : HEADER.start + 8] = pages[page]
            before = model.cycles
            model.run(f"event{number}", connection)
            pages[page] = model.words[HEADER.start : HEADER.start + 8]
            if not stalls:
                # One more if a write to a port was the last instruction.
                assert cycles - (model.cycles - before) in (1, 2)

    async def watch(ctx):
        ready = 1
        ctx.set(dut.ready, 1)
        async for _, _, valid, connection, number, value in ctx.tick().sample(
            dut.valid, dut.current, dut.port, dut.value
        ):
            if valid and ready:
                sent.append((connection, number, value))
            ready = rng.random() >= stalls
            ctx.set(dut.ready, ready)

    simulator = Simulator(dut)
    simulator.add_clock(1e-6)
    simulator.add_testbench(drive)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    assert sent == expected
    assert len(sent) > 100


def test_an_else_must_follow_its_if():
    p = Program()
    with p.If(p.eq(Place(0), 0)):
        p.wait()
    p.wait()
    with pytest.raises(ProgramError, match="Else does not follow If"), p.Else():
        pass


def test_a_missing_name_is_reported():
    p = Program()
    p.call("nowhere")
    with pytest.raises(ProgramError, match="jumps to nowhere, which it does not have"):
        p.instructions()


def add_constants(p):
    for n in range(40):
        p.add(Place(0), Place(0), 0x1000_0000 + n)


def test_too_many_constants_are_reported():
    p = Program()
    with pytest.raises(ProgramError, match="more than 32 constants: no room for 0x10000020"):
        add_constants(p)


def test_every_operation_is_named_in_the_order_of_its_code():
    assert [each.branches for each in Op] == [False] * 9 + [True] * 10
    assert ROW.start == 0
