"""Facts about RTRs (RFC 6581 §9.2) that blocks share."""

from amaranth.hdl import Module, Mux
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.rows import connection_shape, only_many
from open_rnic.rtl.registers import EventKind, Model, Role, Rtr

__all__ = ["HEADER", "Report", "Rtrs", "report_rtrs"]

HEADER = 48  # octets, whole beats at up to 4 lanes, that hold the longest RTR: a Read Request of 46 octets


class Report(data.Struct):
    """A report of receive to the fence: what has arrived in this cycle."""

    good: 1  # a good FPDU has ended
    rtr: 1  # an RTR, or with ``permissive`` the FPDU in its place
    respond: 1  # it is a Read RTR, and must be answered


class Rtrs(wiring.Signature):
    """The RTRs of a connection, for the ULP in the device: they use MSNs.

    Members
    -------
    sends : Out, :class:`.Rtr`
        The RTR that this end sends, by CONFIG: it has the first MSN of its queue.
    received : Out, :class:`.Rtr`
        The RTR of the peer, before any later ULPDU, for one cycle; NONE for an RTR without a DDP header.
    answered : Out, 1 bit
        The Read Response to this end's Read RTR has arrived. For one cycle.
    sends_of, connection : In, Out
        Only with many connections: that of ``sends``; that of ``received`` and ``answered``.
    """

    def __init__(self, connections: int = 1):
        number = connection_shape(connections)
        super().__init__({
            "sends": Out(Rtr), "received": Out(Rtr), "answered": Out(1),
            **only_many(connections, {"sends_of": In(number), "connection": Out(number)}),
        })  # fmt: skip


def report_rtrs(m: Module, rtrs: Rtrs, event: data.View, *, role, model, rtr_send):
    """Report to the ULP in the device which MSNs the RTRs have used, by an event of receive and by CONFIG."""
    initiates = (role == Role.INITIATOR) & (model == Model.PEER_TO_PEER)
    has_msn = (event.kind == EventKind.RTR_RECEIVED) & (event.value != 0)
    m.d.comb += rtrs.sends.eq(Mux(initiates, rtr_send, Rtr.NONE))
    m.d.sync += [
        rtrs.received.eq(Mux(has_msn, event.detail, Rtr.NONE)),
        rtrs.answered.eq(event.kind == EventKind.RESPONSE_RECEIVED),
    ]
