"""Access to the register bus of a block, in the simulator's process."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import RisingEdge

from open_rnic.host_driver.devices.sim.signals import level

__all__ = ["access_register"]


async def access_register(dut: Any, address: int, value: int | None = None) -> int:
    """Write a word to the register bus at ``address``, which counts words, or read the word there."""
    dut.bus__address.value = address
    dut.bus__write.value = value is not None
    dut.bus__write_data.value = value or 0
    dut.bus__request.value = 1
    await RisingEdge(dut.clk)
    while not level(dut.bus__ack):
        await RisingEdge(dut.clk)
    dut.bus__request.value = 0
    return level(dut.bus__read_data)
