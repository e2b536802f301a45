"""Signals of a simulation, in the simulator's process, without the cost of looking at them in each cycle."""

from __future__ import annotations

from typing import Any

from cocotb.triggers import RisingEdge

__all__ = ["level", "rises_with"]


def level(signal: Any) -> int:
    """Return the value of a signal as an unsigned number.

    ``signal.value`` makes objects for values of four states, which takes some ten times as long, and in the end most of
    a simulation's time. Verilator has two states.
    """
    return int(signal._handle.get_signal_val_binstr(), 2)


async def rises_with(edge: RisingEdge, signal: Any) -> None:
    """Wait for the next rising clock ``edge`` before which ``signal`` is 1."""
    await edge
    while not level(signal):
        await RisingEdge(signal)
        await edge
