"""The MSNs of many connections (RFC 5041 §5.3)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data

from open_rnic.rtl.formats.opcodes import FIRST_MSN
from open_rnic.rtl.lib.rows import Cells

__all__ = ["MsnCells"]


class MsnCells:
    """The MSNs ``send`` and ``read`` of the next Send and RDMA Read Request of connection ``at``, of many.

    Cells begin with 0, but MSNs with FIRST_MSN, or the one behind it if a RTR has had that. So a cell has a bit that
    says whether it has been written; until then its number is 0, and the first MSN takes its place.

    Parameters
    ----------
    rtr_of : the connection of :meth:`note_rtr`
    clear : a :class:`.Clear`
    next_msn : the MSN behind the one that is used

    """

    def __init__(self, m: Module, connections: int, at, rtr_of, clear, next_msn: Value):
        rtrs = Signal(2)  # the first Send, or the first RDMA Read Request, was a RTR
        self._rtrs = Cells(m, rtrs, connections, rtr_of, clear)

        def queue(name, rtr):
            stored = Signal(data.StructLayout({"number": 32, "used": 1}), name=name)
            cells = Cells(m, Value.cast(stored), connections, at, clear, Cat(next_msn, Const(1)))
            return cells, stored.number | Mux(stored.used, 0, FIRST_MSN << rtr)

        send_rtr, read_rtr = self._rtrs.read(m, at)
        self._sends, self.send = queue("next_send", send_rtr)
        self._reads, self.read = queue("next_read", read_rtr)

    def use_send(self, m: Module) -> None:
        """Go on to the next MSN of Sends, under the conditions of ``m``."""
        self._sends.write(m)

    def use_read(self, m: Module) -> None:
        """Go on to the next MSN of RDMA Read Requests, under the conditions of ``m``."""
        self._reads.write(m)

    def note_rtr(self, m: Module, send: ValueLike, read: ValueLike) -> None:
        """Note, under the conditions of ``m``, whether a RTR is the first message of either queue."""
        self._rtrs.write(m, Cat(send, read))
