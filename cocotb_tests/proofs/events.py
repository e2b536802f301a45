"""The event FIFO loses nothing without saying so (rtl/events.py)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Mux, Signal, Value

from cocotb_tests.proofs.harness import Mutant, proves
from rtl.events import EventQueue
from rtl.registers import EventKind

_SOURCES, _DEPTH = 4, 3  # as many as in the data path, and a FIFO that is soon full


def _some(event):
    return event.kind != EventKind.NONE


@proves(
    "each event that was reported is read once, unchanged, unless `lost` was 1",
    lambda lanes: EventQueue(_SOURCES, _DEPTH),
    Mutant("`lost` says nothing of a full FIFO", "rtl.events", "lost | (fifo.w_en & ~fifo.w_rdy)", "lost"),
    Mutant(
        "`lost` says nothing of a source whose place is taken",
        "rtl.events",
        "lost |= comes & full & ~free",
        "lost |= 0",
    ),
    Mutant("an event is queued twice", "rtl.events", "with m.Elif(free):", "with m.Elif(free & (fifo.level != 1)):"),
    Mutant(
        "one source's event is taken for another's",
        "rtl.events",
        "m.d.comb += chosen.eq(kept)",
        "m.d.comb += chosen.eq(waiting[0])",
    ),
    name="lost",
    of="EventQueue",
    lanes=(1,),
    depth=1,
    reach=16,
)
def _(m, queue):
    lost, reads = m.ever(queue.lost), queue.o.valid & queue.o.ready
    some = [_some(event) for event in queue.i]
    owed = Signal(8)  # events reported, and not read
    m.d.sync += owed.eq(owed + sum(some) - reads)
    # With nothing to report, each source's place is empty in so many cycles, and what is queued shows in one more.
    idle = Signal(range(_SOURCES + 2))
    with m.If(sum(some) != 0):
        m.d.sync += idle.eq(0)
    with m.Elif(idle != _SOURCES + 1):
        m.d.sync += idle.eq(idle + 1)
    empty = (idle == _SOURCES + 1) & ~queue.o.valid

    # Any one event of any source; where it is, for the induction: with its source, or in the FIFO behind ``before``.
    watched, waits, before = Signal(), Signal(), Signal(range(_DEPTH + 1))
    source, event = Signal(range(_SOURCES)), Signal.like(Value.cast(queue.o.payload))
    fifo, places = queue["fifo"], queue["waiting"]
    for n, given in enumerate(queue.i):
        free = ~sum(_some(place) for place in places[:n]).any() if n else 1
        with m.If(_some(given) & ~watched & AnySeq(1)):
            m.d.sync += [watched.eq(1), waits.eq(1), source.eq(n), event.eq(given)]
        with m.If(watched & waits & (source == n)):
            m.states(lost | (_some(places[n]) & (Value.cast(places[n]) == event)))
            with m.If(free):
                m.d.sync += [waits.eq(0), before.eq(fifo.level - reads)]
    with m.If(watched & ~waits & reads):
        m.d.sync += before.eq(before - 1)
        with m.If((before == 0) & (Value.cast(queue.o.payload) == event)):
            m.d.sync += watched.eq(0)

    with m.If(empty & ~lost):
        m.always(owed == 0, ~watched)

    inner, storage, consume = fifo["inner_level"], fifo["storage looked at"], fifo["consume"]
    at = before - fifo.r_rdy
    m.d.comb += storage.addr.eq(Mux(consume + at < _DEPTH - 1, consume + at, consume + at - (_DEPTH - 1)))
    waiting = sum(_some(place) for place in places)
    m.states(inner <= _DEPTH - 1, (consume < _DEPTH - 1) & (fifo["produce"] < _DEPTH - 1))
    m.states((fifo["produce"] == consume) == ((inner == 0) | (inner == _DEPTH - 1)))
    m.states(waiting <= Mux(idle < _SOURCES, _SOURCES - idle, 0), (idle != _SOURCES + 1) | fifo.r_rdy | (inner == 0))
    with m.If(~lost):
        m.states(owed == fifo.level + waiting, ~watched | waits | (before < fifo.level))
        m.states(~watched | waits | (Mux((before == 0) & fifo.r_rdy, fifo.r_data, storage.data) == event))
