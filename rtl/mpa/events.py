"""Events for the host: reported by blocks, queued, and read through the registers."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.registers import EventKind

__all__ = ["Event", "EventQueue", "check_depth", "one_of", "report"]


class Event(data.Struct):
    """An event, with the fields of the registers EVENT and EVENT_OFFSET."""

    kind: EventKind
    detail: 8
    value: 16
    offset: 48


def check_depth(depth: int) -> None:
    """Raise ValueError unless ``depth`` is a possible depth of the event FIFO: 2 to 255 entries."""
    if not 2 <= depth <= 255:
        raise ValueError(f"event_depth must be from 2 to 255, not {depth!r}")


def report(m: Module, event: data.View, kind: EventKind, **fields):
    """Report an event of this ``kind`` in this cycle; fields that are not given are 0."""
    m.d.comb += [event.kind.eq(kind), *(event[name].eq(value) for name, value in fields.items())]


def one_of(first, second):
    """Return the event of two sources, which must not report events in the same cycle."""
    return Mux(first.kind == EventKind.NONE, second, first)


class EventQueue(wiring.Component):
    """Queues the events of several sources, each of which reports at most one event per cycle.

    Events of the same cycle are queued in the order of their sources. Each source has a place for one event that waits
    for the events of other sources. An event is lost if this place is taken, or if the queue is full.

    Throughput: one event per cycle.

    Members
    -------
    i : In, array of :class:`Event`
        One event for each source; kind NONE if the source has nothing to report.
    o : Out, stream of :class:`Event`
        The queue.
    level : Out, 8 bits
        Number of events in the queue.
    lost : Out, 1 bit
        An event is lost in this cycle.
    """

    def __init__(self, sources: int, depth: int):
        check_depth(depth)
        self.sources = sources
        self.depth = depth
        super().__init__({
            "i": In(Event).array(sources),
            "o": Out(stream.Signature(Event)),
            "level": Out(8),
            "lost": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = SyncFIFOBuffered(width=Event.as_shape().size, depth=self.depth)
        free = Const(1)  # no event of an earlier source waits
        lost = Const(0)
        next_in = Signal(Event, reset_less=True)
        enters = Signal()
        m.d.sync += enters.eq(0)
        for n, given in enumerate(self.i):
            waits = Signal(name=f"waits_{n}")
            waiting = Signal(Event, name=f"waiting_{n}", reset_less=True)
            comes = given.kind != EventKind.NONE
            with m.If(waits & free):
                m.d.sync += [enters.eq(1), next_in.eq(waiting)]
            with m.If(~waits | free):
                m.d.sync += [waits.eq(comes), waiting.eq(given)]
            lost |= comes & waits & ~free
            free &= ~waits

        m.d.comb += [
            fifo.w_data.eq(next_in),
            fifo.w_en.eq(enters),
            self.o.valid.eq(fifo.r_rdy),
            self.o.payload.eq(fifo.r_data),
            fifo.r_en.eq(self.o.ready),
            self.level.eq(Mux(fifo.r_rdy, fifo.level, 0)),
            self.lost.eq(lost | (fifo.w_en & ~fifo.w_rdy)),
        ]
        return m
