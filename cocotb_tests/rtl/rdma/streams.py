"""Streams in Amaranth's simulator: a giver and a taker that idle and stall, and a run with a limit of cycles."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import ClockDomain, Module, Signal, Value
from amaranth.sim import Simulator

__all__ = ["UNTIL_VALID", "give", "now_and_then", "pass_cycles", "run", "take", "until"]

PERIOD = 1e-8  # s
UNTIL_VALID = -1  # ``ready`` is 0 until ``valid`` is 1


def now_and_then(rng: random.Random, chance: float, longest: int = 4, *, until_valid: bool = False) -> Iterator[int]:
    """Yield numbers of cycles to wait: 1 to ``longest`` with probability ``chance``, otherwise 0."""
    while True:
        pause = rng.randint(1, longest) if rng.random() < chance else 0
        yield UNTIL_VALID if pause and until_valid and rng.random() < 0.5 else pause


class _Context:
    """The context of a testbench, which makes each trigger once: making them takes longer than the design does."""

    def __init__(self, context: Any, clk: Signal):
        self._context, self._edge = context, context.posedge(clk)
        self._ticks: dict[tuple[int, ...], Any] = {}
        self.get, self.delay = context.get, context.delay

    def tick(self, *values: Any) -> Any:
        """Return what waits for the next cycle, and then returns True and the ``values`` in it."""
        key = tuple(map(id, values))
        if key not in self._ticks:
            self._ticks[key] = self._edge.sample(*values), values  # which keep their ids
        return self._ticks[key][0]

    def set(self, value: Any, to: Any) -> None:
        """Write a value; the simulator looks at the whole design even if it has this value already."""
        if not isinstance(value, Signal) or self.get(value) != to:
            self._context.set(value, to)


async def pass_cycles(ctx: Any, count: int) -> None:
    """Wait for ``count`` cycles, without looking at each."""
    if count > 1:
        await ctx.delay((count - 0.75) * PERIOD)
    if count:
        await ctx.tick()


async def until(ctx: Any, condition: Any, *values: Any) -> tuple[Any, ...]:
    """Wait for a cycle in which ``condition`` is true, and return ``values`` in it."""
    tick = ctx.tick(condition, *values)
    while True:
        _, true, *sampled = await tick
        if true:
            return tuple(sampled)


async def give(ctx: Any, stream: Any, payload: Any, idle: Iterator[int]) -> None:
    """Transfer one beat; while the stream idles, its payload is all ones."""
    if pause := next(idle):
        ctx.set(Value.cast(stream.payload), -1)
        await pass_cycles(ctx, pause)
    ctx.set(stream.payload, payload)
    ctx.set(stream.valid, 1)
    await until(ctx, stream.ready)
    ctx.set(stream.valid, 0)


async def take(ctx: Any, stream: Any, stall: Iterator[int]) -> Any:
    """Take one beat, which must not change or be withdrawn while it is stalled."""
    pause = next(stall)
    if pause == UNTIL_VALID:
        await until(ctx, stream.valid)
        pause = 1
    held = None
    for _ in range(pause):
        _, valid, payload = await ctx.tick(stream.valid, stream.payload)
        assert held is None or (valid and payload == held), "a beat was changed or withdrawn before its transfer"
        held = payload if valid else None
    ctx.set(stream.ready, 1)
    [payload] = await until(ctx, stream.valid, stream.payload)
    assert held is None or payload == held, "a beat was changed before its transfer"
    ctx.set(stream.ready, 0)
    return payload


def run(dut: Any, main: Callable, *others: Callable, cycles: int) -> None:
    """Simulate until ``main`` returns, beside ``others``; raise AssertionError if that takes over ``cycles`` cycles."""
    m = Module()
    m.domains.sync = sync = ClockDomain()
    m.submodules.dut = dut
    simulator = Simulator(m)
    simulator.add_clock(PERIOD)
    done = False

    async def until_done(ctx: Any) -> None:
        nonlocal done
        await main(ctx)
        done = True

    async def limit(ctx: Any) -> None:
        await pass_cycles(ctx, cycles)
        raise AssertionError(f"not finished after {cycles} cycles")

    def add(testbench: Callable, **options: bool) -> None:
        async def with_context(ctx: Any) -> None:
            await testbench(_Context(ctx, sync.clk))

        simulator.add_testbench(with_context, **options)

    add(until_done)
    for other in (*others, limit):
        add(other, background=True)
    simulator.run()
    assert done
