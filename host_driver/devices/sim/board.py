"""A whole board in simulation, with the USB adapter at the other end of its cable.

The UART pins of the board toggle bit by bit. They are connected to a second UART, which stands for the USB adapter. Its
octets are exchanged with Python through rings in memory, as those of ``rings`` are, so that a bit needs no step of
Python.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim.layout import DEPTH
from open_rnic.rtl.link.top import UartDatapath
from open_rnic.rtl.link.uart import Uart

CONTROL = {"to_board_posted": 16, "from_board_freed": 16}
STATUS = {"to_board_taken": 16, "from_board_written": 16, "from_board_lost": 8, "active": 1}


class SimulatedBoard(wiring.Component):  # type: ignore[misc]
    """A ``rtl.link.top.UartDatapath``, and the other end of its cable.

    Members
    -------
    control, status : words with the fields of CONTROL and STATUS: positions in the rings, the number of octets lost
        because a ring was full, and whether anything is under way on the line or in the link
    """

    def __init__(self, path: Any):
        self._path = path
        super().__init__({"control": In(data.StructLayout(CONTROL)), "status": Out(data.StructLayout(STATUS))})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.path = path = self._path
        m.submodules.adapter = adapter = Uart(path.period)
        m.d.comb += [path.rx.eq(adapter.tx), adapter.rx.eq(path.tx)]

        # One octet per word, as Verilator's vpi_get_value_array provides no room for fewer than two octets.
        m.submodules.shared_to_board = to_board = Memory(shape=32, depth=DEPTH, init=[])
        m.submodules.shared_from_board = from_board = Memory(shape=32, depth=DEPTH, init=[])
        read, write = to_board.read_port(), from_board.write_port()
        control, status = self.control, self.status
        more = Signal()
        m.d.comb += [
            more.eq((status.to_board_taken != control.to_board_posted) & (adapter.i.ready | ~adapter.i.valid)),
            read.en.eq(more),
            read.addr.eq(status.to_board_taken),
            adapter.i.payload.eq(read.data),
        ]
        taken = Signal(16)
        written = Signal(16)
        lost = Signal(8)
        quiet = Signal(8)
        with m.If(adapter.i.ready | ~adapter.i.valid):
            m.d.sync += [adapter.i.valid.eq(more), taken.eq(taken + more)]

        room = Signal()
        m.d.comb += [
            room.eq((written - control.from_board_freed)[:16] != DEPTH),
            write.en.eq(adapter.o.valid & room),
            write.addr.eq(written),
            write.data.eq(adapter.o.payload),
            Cat(status.to_board_taken, status.from_board_written, status.from_board_lost).eq(Cat(taken, written, lost)),
        ]
        with m.If(adapter.o.valid):
            with m.If(room):
                m.d.sync += written.eq(written + 1)
            with m.Else():
                m.d.sync += lost.eq(lost + 1)

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
