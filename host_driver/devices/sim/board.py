"""A whole board in simulation, at the other end of a cable: the RTL of both, and how it is built.

The board's UART pins toggle bit by bit. At the other end of the wires is a UART, which stands for the USB adapter; its
octets cross to Python through rings in memory, as those of ``rings`` do, so that a bit costs no step of Python.
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
    control, status : as CONTROL and STATUS have them: positions in the rings, octets that were lost as a ring was full,
        and whether anything is under way on the line or in the link
    """

    def __init__(self, path: Any):
        self._path = path
        super().__init__({"control": In(data.StructLayout(CONTROL)), "status": Out(data.StructLayout(STATUS))})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.path = path = self._path
        m.submodules.adapter = adapter = Uart(path.period)
        m.d.comb += [path.rx.eq(adapter.tx), adapter.rx.eq(path.tx)]

        # An octet in a word: Verilator's vpi_get_value_array makes no room for fewer than two octets.
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

        # A wire that rests at one is quiet; between two bits that are zero it is not.
        busy = path.active | adapter.i.valid | ~adapter.i.ready | ~adapter.tx | ~path.tx
        with m.If(busy):
            m.d.sync += quiet.eq(0)
        with m.Elif(~quiet.all()):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += status.active.eq(~quiet.all())
        return m


def make(lanes: str, period: str, size: str) -> SimulatedBoard:
    """A board with a data path of so many lanes, clock cycles in a bit, and octets of a frame."""
    return SimulatedBoard(UartDatapath(int(lanes), Fraction(period), size=int(size)))
