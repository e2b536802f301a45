"""A whole board in simulation, with the USB adapter at the other end of its cable.

The UART pins of the board toggle bit by bit. They are connected to a second UART, which stands for the USB adapter. Its
octets are exchanged with Python through rings in memory, as those of ``rings`` are, so that a bit needs no step of
Python.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim.layout import BOARD
from open_rnic.host_driver.devices.sim.rdma import ReadRing, WordRing
from open_rnic.rtl.link.top import UartDatapath
from open_rnic.rtl.link.uart import Uart


class SimulatedBoard(wiring.Component):  # type: ignore[misc]
    """A ``rtl.link.top.UartDatapath``, and the other end of its cable.

    Members
    -------
    control, status : words with the fields of ``layout.BOARD``: positions in the rings, the number of octets lost
        because a ring was full, and whether anything is under way on the line or in the link
    """

    def __init__(self, path: Any):
        self._path = path
        words = {"control": In(data.StructLayout(BOARD.control)), "status": Out(data.StructLayout(BOARD.status))}
        super().__init__(words)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.path = path = self._path
        m.submodules.adapter = adapter = Uart(path.period)
        m.d.comb += [path.rx.eq(adapter.tx), adapter.rx.eq(path.tx)]

        # One octet per word, as Verilator's vpi_get_value_array provides no room for fewer than two octets.
        control, status = self.control, self.status
        m.submodules.to_board = to_board = WordRing(1)
        m.submodules.from_board = from_board = ReadRing(1)
        lost = Signal(8)
        m.d.comb += [
            adapter.i.payload.eq(to_board.o.payload),
            adapter.i.valid.eq(to_board.o.valid),
            to_board.o.ready.eq(adapter.i.ready),
            from_board.i.payload.eq(adapter.o.payload),
            from_board.i.valid.eq(adapter.o.valid),
            to_board.posted.eq(control.to_board_posted),
            status.to_board_taken.eq(to_board.taken),
            from_board.freed.eq(control.from_board_freed),
            status.from_board_written.eq(from_board.written),
            status.from_board_lost.eq(lost),
        ]
        m.d.sync += lost.eq(lost + (adapter.o.valid & ~from_board.i.ready))
        quiet = Signal(8)

        # An idle line is 1. A line that is 0 transmits a start bit or data.
        busy = path.active | adapter.i.valid | ~adapter.i.ready | ~adapter.tx | ~path.tx
        with m.If(busy):
            m.d.sync += quiet.eq(0)
        with m.Elif(~quiet.all()):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += status.active.eq(~quiet.all())
        return m


def make(lanes: str, period: str, size: str, memory: str = "0") -> SimulatedBoard:
    """Return a board: the lanes of its data path, the clock cycles per bit, the octets of a frame, and of memory."""
    return SimulatedBoard(UartDatapath(int(lanes), Fraction(period), size=int(size), memory=int(memory)))
