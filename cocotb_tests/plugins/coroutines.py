"""Runs tests that are coroutines, each in an event loop of its own, with a time limit; none may leave a task behind."""

import asyncio
import inspect
from collections.abc import Awaitable

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG


def run(test: Awaitable[None], seconds: float = HANG) -> None:
    """Run a coroutine with a time limit, and check that it leaves no task behind."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await test
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, left

    asyncio.run(limited())


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test with its fixtures if it is a coroutine function."""
    if not inspect.iscoroutinefunction(pyfuncitem.function):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True
