# amaranth: UnusedElaboratable=no
"""The event FIFO does not lose an event without reporting the loss (rtl/mpa/events.py)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, connect, flipped

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.mpa.events import Event, EventQueue
from open_rnic.rtl.registers import MAP, EventKind
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

_STATUS = next(register for register in MAP if register.name == "EVENT_STATUS")
_OVERFLOW = _STATUS["overflow"]
_SOURCES, _DEPTH = 4, 3  # as many sources as in the data path, and a FIFO that is soon full


def _some(event):
    return event.kind != EventKind.NONE


@proves(
    "each reported event is read once, unchanged, unless `lost` has been 1, which happens only while others wait",
    lambda: EventQueue(_SOURCES, _DEPTH),
    Mutant("`lost` is not set if the FIFO is full", EventQueue, "lost | (fifo.w_en & ~fifo.w_rdy)", "lost"),
    Mutant(
        "`lost` is not set if the place of a source is occupied",
        EventQueue,
        "lost |= comes & waits & ~free",
        "lost |= 0",
    ),
    Mutant(
        "an event is queued twice",
        EventQueue,
        "with m.If(~waits | free):",
        "with m.If(~waits | (free & (fifo.level != 1))):",
    ),
    Mutant(
        "the event of another source is queued",
        EventQueue,
        "next_in.eq(waiting)",
        "next_in.eq(self.i[0])",
    ),
    Mutant("`lost` is set without a cause", EventQueue, "lost = Const(0)", "lost = Const(1)"),
    name="lost",
    of="EventQueue, 4 sources, depth 3",
    depth=1,
    reach=16,
)
def _(m, queue):
    lost, reads = m.ever(queue.lost), queue.o.valid & queue.o.ready
    some = [_some(event) for event in queue.i]
    owed = Signal(8)  # number of events that were reported, but not yet read
    m.d.sync += owed.eq(owed + sum(some) - reads)
    # Without new events, each source's place is empty after _SOURCES cycles, and queued events show 2 cycles later.
    idle = Signal(range(_SOURCES + 3))
    with m.If(sum(some) != 0):
        m.d.sync += idle.eq(0)
    with m.Elif(idle != _SOURCES + 2):
        m.d.sync += idle.eq(idle + 1)
    empty = (idle == _SOURCES + 2) & ~queue.o.valid

    # An arbitrary event of any source. For the induction, its location: in the place of its source, on its way into the
    # FIFO, or in the FIFO behind ``before`` others.
    watched, waits, enters, before = Signal(), Signal(), Signal(), Signal(range(_DEPTH + 1))
    source, event = Signal(range(_SOURCES)), Signal.like(Value.cast(queue.o.payload))
    fifo, entering, next_in = queue["fifo"], queue["enters"], queue["next_in"]
    taken = [queue[f"waits_{n}"] for n in range(_SOURCES)]
    places = [queue[f"waiting_{n}"] for n in range(_SOURCES)]
    for n, given in enumerate(queue.i):
        free = ~Cat(taken[:n]).any()
        with m.If(_some(given) & ~watched & AnySeq(1)):
            m.d.sync += [watched.eq(1), waits.eq(1), enters.eq(0), source.eq(n), event.eq(given)]
        with m.If(watched & waits & (source == n)):
            m.states(lost | (taken[n] & (Value.cast(places[n]) == event)))
            with m.If(free):
                m.d.sync += [waits.eq(0), enters.eq(1)]
    with m.If(watched & enters):
        m.d.sync += [enters.eq(0), before.eq(fifo.level - reads)]
        m.states(lost | (entering & (Value.cast(next_in) == event)))
    queued = watched & ~waits & ~enters
    with m.If(queued & reads):
        m.d.sync += before.eq(before - 1)
        with m.If((before == 0) & (Value.cast(queue.o.payload) == event)):
            m.d.sync += watched.eq(0)

    with m.If(empty & ~lost):
        m.always(owed == 0, ~watched)
    m.always(lost | ~queue.lost | (owed != 0))

    inner, consume = fifo["inner_level"], fifo["consume"]
    at = before - fifo.r_rdy
    stored = fifo.stored(m, "storage", Mux(consume + at < _DEPTH - 1, consume + at, consume + at - (_DEPTH - 1)))
    waiting = sum(taken)
    m.states(inner <= _DEPTH - 1, (consume < _DEPTH - 1) & (fifo["produce"] < _DEPTH - 1))
    m.states((fifo["produce"] == consume) == ((inner == 0) | (inner == _DEPTH - 1)))
    m.states(waiting <= Mux(idle < _SOURCES, _SOURCES - idle, 0), (idle <= _SOURCES) | ~entering)
    m.states((idle != _SOURCES + 2) | fifo.r_rdy | (inner == 0), ~(waits & enters))
    with m.If(~lost):
        m.states(owed == fifo.level + waiting + entering, ~queued | (before < fifo.level))
        m.states(~queued | (Mux((before == 0) & fifo.r_rdy, fifo.r_data, stored) == event))


class Flag(Component):
    """The registers and the events of the data path, with arbitrary sources of events."""

    def __init__(self):
        super().__init__({"i": In(Event).array(_SOURCES), "bus": In(RegisterBus())})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterBank()
        connect(m, flipped(self.bus), registers.bus)
        path = MpaDatapath(1, event_depth=_DEPTH)
        path._events(m, registers, list(self.i))
        return m


@proves(
    "the host reads the overflow flag after an event was lost, until it has cleared the flag",
    lambda: Flag(),
    Mutant(
        "clearing the flag hides an event that is lost in the same cycle",
        MpaDatapath,
        "with m.If(events.lost):",
        "with m.If(events.lost & ~registers.EVENT_STATUS.clear_overflow):",
    ),
    Mutant(
        "any write clears the flag",
        RegisterBank,
        'clear_{field.name}"].eq(Mux(writes, written, 0))',
        'clear_{field.name}"].eq(writes)',
    ),
    name="flag",
    of="MpaDatapath, RegisterBank",
    depth=4,
)
def _(m, path):
    bus, lost = path.bus, path["events"].lost
    access = Cat(bus.request, bus.write, bus.address, bus.write_data)
    m.given(~m.last(bus.request & ~bus.ack) | (access == m.last(access)))

    second, third = (path["registers"][name] for name in ("second", "third"))
    m.states(second + third + bus.ack <= bus.request)

    asked = bus.request & (bus.address == _STATUS.address >> 2)
    clears = asked & bus.write & bus.write_data[_OVERFLOW.lsb]
    overflow = path["registers"].EVENT_STATUS.overflow
    m.always(~m.last(lost) | overflow, ~m.last(overflow) | overflow | m.last(clears))
    was = m.last(m.last(overflow))
    m.always(~(asked & bus.ack & ~bus.write) | (bus.read_data[_OVERFLOW.lsb] == was))
