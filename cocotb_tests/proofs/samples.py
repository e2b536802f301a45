"""The sample writer overwrites nothing that is needed, and loses no sample without counting it (rtl/rdma)."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Mux, Signal

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import fifo_level, fifo_states
from open_rnic.rtl.rdma.sample_schedule import OUTSTANDING, SampleSchedule

_SIZE = 8  # octets of the buffer; a sample has one
_BITS = 6  # of the numbers of octets
_LARGEST = 1 << _BITS - 1  # octets of a ring
_SETTINGS = "ring_octets", "write_octets", "bell_octets", "bell_ticks"
_OF = f"SampleSchedule, a buffer of {_SIZE} octets"


def _schedule():
    return SampleSchedule(1, _SIZE, bits=_BITS)


def _number(m, value, name):
    """A number of octets, or of one of them."""
    number = Signal(_BITS, name=name)
    m.d.comb += number.eq(value)
    return number


def _settled(m, schedule):
    """The registers do not change, and the ring is not too large."""
    m.fixed(*(getattr(schedule.settings, name) for name in _SETTINGS))
    m.given(schedule.settings.ring_octets <= _LARGEST)


def _given(m, schedule):
    """The octets of an RDMA Write that is given to the engine in this cycle; 0 if none is."""
    piece = schedule.o
    return _number(m, Mux(piece.valid & piece.ready & ~piece.payload.bell, piece.payload.octets, 0), "octets_given")


def _waits(m, schedule):
    """Relate the numbers of octets that wait, all and those of a flush, to those that are about to leave."""
    tail = schedule["tail_low"]
    waiting = _number(m, schedule["stored"] - tail, "octets_waiting")
    end = _number(m, schedule["flush_end"] - tail, "octets_of_flush")
    flushes, measured = schedule["flushes"], ~schedule.within("Measure")
    decides = schedule.within("Decide") | schedule.within("Give")
    m.states(waiting <= _SIZE, ~flushes | (end <= waiting))
    m.states(~measured | (schedule["waiting"] <= Mux(flushes, end, waiting)))
    m.states(~decides | (schedule.o.payload.octets <= schedule["waiting"]))


def _fills(m, schedule):
    """Relate the room in the ring to what is about to be written, and the head to what was announced."""
    piece, size = schedule.o.payload, schedule.settings.ring_octets
    tail, freed, place = schedule["tail_low"], schedule.status.freed, schedule["ring_place"]
    used = _number(m, tail - freed, "octets_in_ring")
    since_head = _number(m, schedule["announced"] - freed, "octets_announced")
    m.states(since_head <= used, used <= size, (place < size) | ((size == 0) & (place == 0)))
    measured = ~schedule.within("Measure")
    bounded = measured & ~schedule.within("Limit")
    m.states(~measured | ((schedule["to_end"] == size - place) & (schedule["used"] <= size)))
    m.states(~measured | (schedule["used"] >= used))
    m.states(~bounded | ((schedule["room"] <= size - used) & (schedule["most"] <= schedule["to_end"])))
    decides = schedule.within("Decide") | schedule.within("Give")
    m.states(~decides | (piece.octets <= schedule["most"]))
    gives = schedule.within("Give") & ~piece.bell
    m.states(~gives | (piece.octets <= schedule["room"]))
    checks, farthest = schedule["checks_head"], schedule["farthest"]
    m.states(~checks | ((schedule["advance"] == (schedule["checked_head"] - freed)[:_BITS]) & (farthest <= since_head)))


def _counted(m, schedule):
    """Count the samples that have been stored, given to the engine, and read by it."""
    given = schedule["given"]
    octets = _given(m, schedule)
    # The pieces that the engine has not finished, oldest first.
    lengths = [Signal(range(_SIZE + 1), name=f"length_{n}") for n in range(OUTSTANDING)]
    count = Signal(range(OUTSTANDING + 1))
    m.given(~schedule.done | ((count != 0) & given.o.valid))
    passes = schedule.o.valid & schedule.o.ready
    after = Signal.like(count)
    m.d.comb += after.eq(count - schedule.done)
    m.d.sync += count.eq(after + passes)
    for n, length in enumerate(lengths):
        later = lengths[n + 1] if n + 1 < OUTSTANDING else 0
        m.d.sync += length.eq(Mux(passes & (after == n), octets, Mux(schedule.done, later, length)))
    stored = Signal(_BITS, name="samples_stored")
    sent = Signal(_BITS, name="samples_sent")
    read = Signal(_BITS, name="samples_read")
    m.d.sync += [
        stored.eq(stored + schedule.stores),
        sent.eq(sent + octets),
        read.eq(read + Mux(schedule.done, lengths[0], 0)),
    ]
    waiting = _number(m, stored - sent, "samples_waiting")
    unread = _number(m, stored - read, "samples_unread")
    m.states(fifo_states(given), fifo_level(given) == count)
    total = _number(m, sum(Mux(n < count, length, 0) for n, length in enumerate(lengths)), "octets_outstanding")
    for n, length in enumerate(lengths):
        entry = given.stored(m, "memory", given["head"] + n)
        m.states((n >= count) | (entry[1:] == length))
    m.states(total == (sent - read)[:_BITS], waiting <= unread, unread <= _SIZE, schedule["level"] == unread)
    m.states(schedule["stored"] == stored, schedule["tail_low"] == sent)
    m.states(~schedule.within("Give") | given.i.ready)
    _waits(m, schedule)
    return stored, sent, read


@proves(
    "no octet of the ring is overwritten before it is freed: the tail is at most the ring's size ahead of the head, and"
    " an RDMA Write lies inside the ring, behind the last one",
    _schedule,
    Mutant("a Write passes the end of the ring", SampleSchedule, "Mux(self.to_end < most, self.to_end, most)", "most"),
    Mutant("room is measured without the octets that were given", SampleSchedule,
           "room.eq(settings.ring_octets - used)", "room.eq(settings.ring_octets)"),
    Mutant("a flush fills more than the room", SampleSchedule, "Mux(fits, piece.octets, self.room)", "piece.octets"),
    Mutant("the head may pass the tail", SampleSchedule, "with m.If(advance <= farthest):", "with m.If(1):"),
    of=_OF,
    depth=1,
    reach=30,
)  # fmt: skip
def ring(m, schedule):
    _settled(m, schedule)
    _fills(m, schedule)
    size, octets = schedule.settings.ring_octets, _given(m, schedule)
    tail, place = Signal(_BITS, name="octets_written"), Signal(_BITS, name="place_due")
    end = _number(m, place + octets, "place_behind")
    m.d.sync += [tail.eq(tail + octets), place.eq(Mux(end == size, 0, end))]
    m.always((octets == 0) | (schedule.o.payload.place == place), octets <= (size - place)[:_BITS])
    m.always((tail - schedule.status.freed)[:_BITS] <= size)
    m.states(schedule["tail_low"] == tail, schedule["ring_place"] == place)


@proves(
    "the head is one that the peer has written, and moves forwards, up to the octets that were announced",
    _schedule,
    Mutant("a head is taken without a write", SampleSchedule, "with m.If(self.head_written):", "with m.If(1):"),
    of=_OF,
)
def head(m, schedule):
    _settled(m, schedule)
    _fills(m, schedule)
    never = _number(m, AnyConst(_BITS), "never_written")
    m.given(never != 0, ~(schedule.head_written & (schedule.head == never)))
    freed_before, announced_before = m.last(schedule.status.freed), m.last(schedule["announced"])
    m.always(schedule.status.freed != never)
    m.always((schedule.status.freed - freed_before)[:_BITS] <= (announced_before - freed_before)[:_BITS])
    m.states(schedule["newest_head"] != never, schedule["checked_head"] != never)


@proves(
    "a sample is not overwritten in the buffer before the engine has read it, and RDMA Writes have all samples in"
    " order",
    _schedule,
    Mutant("a sample is stored without room", SampleSchedule, "[self.sample.bit_length() - 1 :].any() & ~status.gap",
           "[self.sample.bit_length() - 1 :].any() | ~status.gap"),
    Mutant("room is free when the engine takes the Write", SampleSchedule, "Mux(self.done & oldest.valid,",
           "Mux(oldest.valid,"),
    Mutant("a Write has more octets than wait", SampleSchedule, "Mux(self.waiting < most, self.waiting, most)", "most"),
    of=_OF,
    depth=1,
    reach=30,
)  # fmt: skip
def buffer(m, schedule):
    _settled(m, schedule)
    stored, sent, read = _counted(m, schedule)
    octets = _given(m, schedule)
    m.always(~schedule.stores | ((stored - read)[:_BITS] < _SIZE), ~schedule.stores | (schedule.place == stored[:3]))
    m.always((octets == 0) | (schedule.o.payload.start == sent), octets <= (stored - sent)[:_BITS])


@proves(
    "each sample that is taken is stored or counted, and samples are only missing where a doorbell has been given",
    _schedule,
    Mutant("a sample is lost without being counted", SampleSchedule, "loses.eq(wanted & ~has_room & settings.drops)",
           "loses.eq(wanted & ~has_room & settings.drops & ~status.gap)"),
    Mutant("samples are stored before those before the gap were announced", SampleSchedule,
           "with m.If(status.gap & ~status.pending):", "with m.If(status.gap):"),
    of=_OF,
    depth=2,
    reach=30,
    engine="smtbmc --nopresat z3",
)  # fmt: skip
def drops(m, schedule):
    _settled(m, schedule)
    m.given(schedule.settings.rings)
    taken = schedule.settings.enable & schedule.offered & schedule.ready
    lost = taken & ~schedule.stores
    lost_count = Signal(_BITS)
    missing = Signal()  # samples have been lost since the last one that was stored
    announced = Signal(_BITS, name="samples_announced")
    stored, _sent, _read = _counted(m, schedule)
    m.d.sync += lost_count.eq(lost_count + lost)
    with m.If(schedule.stores):
        m.d.sync += missing.eq(0)
    with m.Elif(lost):
        m.d.sync += missing.eq(1)
    with m.If(schedule.status.bell):
        m.d.sync += announced.eq(schedule.status.tail[:_BITS])
    m.always(~schedule.stores | taken, schedule.status.dropped[:_BITS] == lost_count)
    m.always(~(schedule.stores & missing) | (announced == stored))
    m.states(schedule["announced"] == announced)
    _fills(m, schedule)
    since = _number(m, stored - announced, "octets_since_bell")
    m.states((schedule["tail_low"] - announced)[:_BITS] <= since)
    m.states(~missing | schedule.status.gap | (announced == stored))
    m.states(~(schedule.status.gap & ~schedule.status.pending) | (announced == stored))
