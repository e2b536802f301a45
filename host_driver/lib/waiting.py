"""A place where tasks wait until a condition holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Gate:
    """Tasks wait in ``until`` for their conditions; code that may have made a condition true calls ``look``.

    A condition is a function without side effects that must not raise.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until the condition holds. It holds when this returns, whatever other tasks did in between."""
        while not holds():
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = holds
            try:
                await waiter
            finally:
                del self._waiting[waiter]

    def look(self) -> None:
        """Wake the tasks whose condition holds now."""
        for waiter, holds in self._waiting.items():
            if not waiter.done() and holds():
                waiter.set_result(None)
