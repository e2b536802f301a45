"""Access to the RTL from the Python in the simulator's process: clock, reset, registers and memories."""

from __future__ import annotations

import ctypes
from typing import Any

from cocotb.handle import Immediate
from cocotb.triggers import Timer

from open_rnic.host_driver.devices.sim.layout import DEPTH, Layout, pack, unpack
from open_rnic.host_driver.devices.sim.signals import start_clock

PERIOD = 2  # simulator time steps per clock cycle


async def start(dut: Any) -> None:
    """Start the clock and reset the RTL; returns while the clock is low, away from the active edge."""
    start_clock(dut.clk, PERIOD)
    dut.rst.value = 1
    dut.control.value = 0
    await Timer(4 * PERIOD, "step")
    dut.rst.value = 0
    await Timer(PERIOD, "step")


class Clock:
    """The clock of a simulation, and the words ``control`` and ``status`` at its edges."""

    def __init__(self, dut: Any, layout: Layout):
        self.layout = layout
        self.control = dict.fromkeys(layout.control, 0)
        self.status = dict.fromkeys(layout.status, 0)  # at the end of the last step
        self.cycles = 0  # since the beginning
        self._dut = dut
        self._written = 0

    async def step(self, cycles: int = 0) -> None:
        """Let the clock run, for a short slice by default. Begins and ends while it is low, off the active edge."""
        cycles = cycles or self.layout.slices[0]
        control = pack(self.layout.control, self.control)
        if control != self._written:
            self._dut.control.set(Immediate(control))
            self._written = control
        await Timer(cycles * PERIOD, "step")
        self.cycles += cycles
        self.status = unpack(self.layout.status, int(self._dut.status.value))

    async def access(self, address: int, write: int = 0, value: int = 0) -> int:
        """Access a register, by its address / 4."""
        turn = self.control["turn"] ^ 1
        self.control.update(turn=turn, write=write, address=address, write_data=value)
        while self.status["turn"] != turn:
            await self.step(4)
        return self.status["read_data"]


class _ArrayValue(ctypes.Structure):
    """s_vpi_arrayvalue of IEEE 1800-2017 §38.16."""

    _fields_ = [("format", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("value", ctypes.c_void_p)]


_RAW_TWO_STATE = 17  # vpiRawTwoStateVal: elements as octets, the least significant first


class Memory:
    """A memory in the simulation, found by the name of its instance. Ranges wrap around at its end."""

    _vpi = ctypes.CDLL(None)
    _vpi.vpi_handle_by_name.restype = ctypes.c_void_p

    def __init__(self, name: str, element: int):
        self.element = element  # octets of an element
        self._handle = ctypes.c_void_p(self._vpi.vpi_handle_by_name(name.encode(), None))
        if not self._handle:
            raise RuntimeError(f"the simulation has no memory {name}")

    def write(self, position: int, octets: bytes) -> None:
        """Write whole elements, from index ``position`` on."""
        value = _ArrayValue(_RAW_TWO_STATE, 0, ctypes.cast(ctypes.c_char_p(octets), ctypes.c_void_p))
        index = ctypes.c_int32(position % DEPTH)
        count = len(octets) // self.element
        self._vpi.vpi_put_value_array(self._handle, ctypes.byref(value), ctypes.byref(index), count)

    def read(self, position: int, count: int) -> bytes:
        """Return the octets of ``count`` elements from index ``position`` on."""
        value = _ArrayValue(_RAW_TWO_STATE, 0, None)
        index = ctypes.c_int32(position % DEPTH)
        self._vpi.vpi_get_value_array(self._handle, ctypes.byref(value), ctypes.byref(index), count)
        return ctypes.string_at(value.value, count * self.element)
