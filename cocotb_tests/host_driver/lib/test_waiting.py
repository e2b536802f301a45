"""Tasks that wait for conditions."""

import asyncio

from open_rnic.host_driver.lib.waiting import Gate


async def test_only_tasks_whose_condition_holds_wake():
    gate, state = Gate(), set()
    one, two = (asyncio.create_task(gate.until(lambda each=each: each in state)) for each in ("one", "two"))
    await asyncio.sleep(0)
    state.add("two")
    gate.look()
    await two
    assert not one.done()
    state.add("one")
    gate.look()
    await one


async def test_a_task_whose_condition_no_longer_holds_keeps_waiting():
    gate, items, taken = Gate(), [], []

    async def take():
        await gate.until(lambda: items)
        taken.append(items.pop())

    tasks = [asyncio.create_task(take()) for _ in range(2)]
    await asyncio.sleep(0)
    items.append(1)
    gate.look()
    await tasks[0]
    await asyncio.sleep(0)
    assert (taken, tasks[1].done()) == ([1], False)
    items.append(2)
    gate.look()
    await tasks[1]


async def test_a_cancelled_task_leaves_the_gate():
    gate = Gate()
    task = asyncio.create_task(gate.until(lambda: False))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert not gate._waiting
