"""Whether this machine lets tests have network stacks of their own."""

import asyncio

import pytest

from open_rnic.host_driver.net.pipe import PortError
from open_rnic.host_driver.net.tap import TapNetwork


def why_not():
    """Why there is no TapNetwork here; empty if there is one."""

    async def attempt():
        async with TapNetwork("10.9.0.1/24"):
            pass

    try:
        asyncio.run(attempt())
    except PortError as error:
        return str(error)
    return ""


WHY_NOT = why_not()
needs_tap = pytest.mark.skipif(WHY_NOT != "", reason=WHY_NOT)
