"""Signals of a simulation, in the simulator's process, at a tenth of the cost.

``signal.value`` makes and checks objects for values of four states, and a look in each cycle is a task that wakes in
each: together most of a simulation's time. Verilator has two states, and takes what is written at once
(COCOTB_TRUST_INERTIAL_WRITES, in :func:`.environment`). Clocks toggle without Python, in :file:`main.cpp`.
"""

from __future__ import annotations

import ctypes
from typing import Any

from cocotb.triggers import RisingEdge

__all__ = ["drive", "level", "rises_with", "start_clock"]

_DEPOSIT = 0  # the GPI's number of an ordinary write


def start_clock(signal: Any, period: int) -> None:
    """Toggle an input of the top, whose name ends in ``clk``, every ``period // 2`` steps, first after as many.

    A clock that runs already goes on with the new period. Raises ValueError if the top has no such input.
    """
    name = signal._name.replace("__", "___05F")  # as Verilator writes it in C++
    if not ctypes.CDLL(None).start_clock(name.encode(), ctypes.c_uint64(period // 2)):
        raise ValueError(f"{signal._name} is not a clock of the top")


def level(signal: Any) -> int:
    """Return the value of a signal as an unsigned number."""
    return int(signal._handle.get_signal_val_binstr(), 2)


def drive(signal: Any, value: int) -> None:
    """Write an unsigned number to a signal; raises ValueError if the signal has too few bits for it."""
    width = len(signal)
    if value >> width:
        raise ValueError(f"{value:#x} does not fit into the {width} bits of {signal._name}")
    if width <= 32:
        signal._handle.set_signal_val_int(_DEPOSIT, int(value))
    else:
        signal._handle.set_signal_val_binstr(_DEPOSIT, f"{value:0{width}b}")


async def rises_with(edge: RisingEdge, signal: Any) -> None:
    """Wait for the next rising clock ``edge`` before which ``signal`` is 1."""
    await edge
    while not level(signal):
        await RisingEdge(signal)
        await edge
