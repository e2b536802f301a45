"""A whole board in simulation, with the USB adapter at the other end of its cable.

The UART pins of the board toggle bit by bit. They are connected to a second UART, which stands for the USB adapter. Its
octets are exchanged with Python through rings in memory, as those of ``rings`` are, so that a bit needs no step of
Python.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from amaranth.hdl import Module, Signal

from open_rnic.host_driver.devices.sim.layout import BOARD
from open_rnic.host_driver.devices.sim.rings import Simulated
from open_rnic.rtl.host_link.top import UartDatapath
from open_rnic.rtl.host_link.uart import Uart


class SimulatedBoard(Simulated):
    """A ``UartDatapath``, and the other end of its cable. ``from_board_lost`` octets found a full ring."""

    def __init__(self, path: Any):
        self._path = path
        super().__init__(BOARD)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.path = path = self._path
        m.submodules.adapter = adapter = Uart(path.period)
        m.d.comb += [path.rx.eq(adapter.tx), adapter.rx.eq(path.tx)]
        self.ring_in(m, "to_board", adapter.i)
        self.ring_out(m, "from_board", adapter.o)
        lost = Signal(8)
        m.d.comb += self.status.from_board_lost.eq(lost)
        m.d.sync += lost.eq(lost + (adapter.o.valid & ~adapter.o.ready))

        # An idle line is 1. A line that is 0 transmits a start bit or data.
        busy = path.active | adapter.i.valid | ~adapter.i.ready | ~adapter.tx | ~path.tx
        self.active(m, busy, 256)
        return m


def make(lanes: str, period: str, size: str, memory: str = "0") -> SimulatedBoard:
    """Return a board: the lanes of its data path, the clock cycles per bit, the octets of a frame, and of memory."""
    return SimulatedBoard(UartDatapath(int(lanes), Fraction(period), size=int(size), memory=int(memory)))
