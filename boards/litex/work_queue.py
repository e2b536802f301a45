"""A doorbell for the CPU of a SoC: what it posts, the RNIC sends to the peer of a connection."""

from litex.gen import LiteXModule
from litex.soc.interconnect.csr import CSRField, CSRStatus, CSRStorage
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourcePulse
from migen import If

from open_rnic.boards.litex import Rnic

__all__ = ["WorkQueue", "add_work_queue"]


class WorkQueue(LiteXModule):
    """CSRs whose values a write of ``post`` makes work of :attr:`.Rnic.work`.

    ``address``, ``octets``, ``stag`` and ``to`` are those of :class:`.Work`; ``post`` has its Opcode and connection.
    While ``room`` is 0, the RNIC has not taken them yet, and they must not be written. ``done`` and ``failed`` count
    reports of all connections, modulo 2^32; each is the event ``report``.

    Parameters
    ----------
    rnic : has the port for work, which nothing else drives

    """

    def __init__(self, rnic: Rnic):
        if rnic.work is None:
            raise ValueError("a work queue needs an RNIC with a port for work: fabric=Fabric.WORK")
        self.address = CSRStorage(32, description="The address of the octets, from the beginning of the RNIC's memory.")
        self.octets = CSRStorage(32, description="Their number.")
        self.stag = CSRStorage(32, description="The STag in the peer, or the one that a Send invalidates.")
        self.to = CSRStorage(64, description="The TO in the peer.")
        self.post = CSRStorage(description="A write posts.", fields=[
            CSRField("opcode", size=4, description="0: RDMA Write; 3: Send (RFC 5040 §4.1)."),
            CSRField("connection", size=8, offset=8),
        ])  # fmt: skip
        self.room = CSRStatus(description="The RNIC has taken the last post.")
        self.done = CSRStatus(32, description="Posts whose octets have all been read.")
        self.failed = CSRStatus(32, description="Posts that were discarded.")
        self.ev = EventManager()
        self.ev.report = EventSourcePulse(description="A post is done or has failed.")
        self.ev.finalize()

        work = rnic.work
        self.comb += [
            *(getattr(work, name).eq(getattr(self, name).storage) for name in ("address", "octets", "stag", "to")),
            work.opcode.eq(self.post.fields.opcode), work.connection.eq(self.post.fields.connection),
            self.room.status.eq(~work.valid & ~self.post.re),
            self.ev.report.trigger.eq(rnic.work_done | (rnic.work_failed != 0)),
        ]  # fmt: skip
        self.sync += [
            If(self.post.re, work.valid.eq(1)).Elif(work.ready, work.valid.eq(0)),
            self.done.status.eq(self.done.status + rnic.work_done),
            self.failed.status.eq(self.failed.status + rnic.work_failed),
        ]


def add_work_queue(soc, rnic: Rnic) -> None:
    """Add a :class:`WorkQueue`, ``rnic_work``, to a SoC, and its interrupt, if the CPU has interrupts."""
    soc.add_module(name="rnic_work", module=WorkQueue(rnic))
    if soc.irq.enabled:
        soc.irq.add("rnic_work")
