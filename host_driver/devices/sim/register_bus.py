"""Access to the register bus of a block, in the simulator's process."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import RisingEdge

from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with

__all__ = ["access_register"]


async def access_register(dut: Any, address: int, value: int | None = None) -> int:
    """Write a word to the register bus at ``address``, which counts words, or read the word there."""
    drive(dut.bus__address, address)
    drive(dut.bus__write, value is not None)
    drive(dut.bus__write_data, value or 0)
    drive(dut.bus__request, 1)
    await rises_with(RisingEdge(dut.clk), dut.bus__ack)
    drive(dut.bus__request, 0)
    return level(dut.bus__read_data)
