"""Streams in Amaranth's simulator: a giver and a taker that idle and stall, and a run with a limit of cycles."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from amaranth.hdl import Value
from amaranth.sim import Simulator

__all__ = ["UNTIL_VALID", "give", "now_and_then", "pass_cycles", "run", "take", "until"]

UNTIL_VALID = -1  # ``ready`` is 0 until ``valid`` is 1


def now_and_then(rng: random.Random, chance: float, longest: int = 4, *, until_valid: bool = False) -> Iterator[int]:
    """Yield numbers of cycles to wait: 1 to ``longest`` with probability ``chance``, otherwise 0."""
    while True:
        pause = rng.randint(1, longest) if rng.random() < chance else 0
        yield UNTIL_VALID if pause and until_valid and rng.random() < 0.5 else pause


async def pass_cycles(ctx: Any, count: int) -> None:
    """Wait for ``count`` cycles. Unlike ``tick().repeat``, the wait can be abandoned when the simulation ends."""
    for _ in range(count):
        await ctx.tick()


async def until(ctx: Any, condition: Any, *values: Any) -> tuple[Any, ...]:
    """Wait for a cycle in which ``condition`` is true, and return ``values`` in it. This wait can be abandoned, too."""
    while True:
        _, _, true, *sampled = await ctx.tick().sample(condition, *values)
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
        *_, valid, payload = await ctx.tick().sample(stream.valid, stream.payload)
        assert held is None or (valid and payload == held), "a beat was changed or withdrawn before its transfer"
        held = payload if valid else None
    ctx.set(stream.ready, 1)
    [payload] = await until(ctx, stream.valid, stream.payload)
    assert held is None or payload == held, "a beat was changed before its transfer"
    ctx.set(stream.ready, 0)
    return payload


def run(dut: Any, main: Callable, *others: Callable, cycles: int) -> None:
    """Simulate until ``main`` returns, beside ``others``; raise AssertionError if that takes over ``cycles`` cycles."""
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    done = False

    async def until_done(ctx: Any) -> None:
        nonlocal done
        await main(ctx)
        done = True

    async def limit(ctx: Any) -> None:
        await pass_cycles(ctx, cycles)
        raise AssertionError(f"not finished after {cycles} cycles")

    simulator.add_testbench(until_done)
    for other in (*others, limit):
        simulator.add_testbench(other, background=True)
    simulator.run()
    assert done
