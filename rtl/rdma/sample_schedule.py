"""Decides when samples leave as RDMA Writes into the peer's ring, when a doorbell follows, and what is dropped."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count
from open_rnic.rtl.lib.stream import Fifo

__all__ = ["RingPiece", "SampleSchedule", "check_buffer"]

OUTSTANDING = 4  # RDMA Writes and doorbells that the engine has not finished


def check_buffer(sample: int, octets: int) -> None:
    """Raise ValueError unless both are powers of 2, and ``octets`` is room for 4 samples or more, at most 16 MiB."""
    if sample < 1 or sample & (sample - 1):
        raise ValueError(f"the octets of a sample must be a power of 2, not {sample!r}")
    if not 4 * sample <= octets <= 1 << 24 or octets & (octets - 1):
        raise ValueError(f"the buffer must have a power of 2 of octets from {4 * sample} on, not {octets!r}")


class RingPiece(data.StructLayout):
    """An RDMA Write into the ring, or a doorbell.

    Members
    -------
    bell : 1 bit
        A doorbell; the other members have no meaning.
    octets : ``bits`` bits
        The length of the RDMA Write.
    place : ``bits`` bits
        The offset of its first octet in the ring.
    start : ``bits`` bits
        The number of its first octet, whose address in the buffer it is, modulo the size of the buffer.
    """

    def __init__(self, bits: int = 32):
        super().__init__({"bell": 1, "octets": bits, "place": bits, "start": bits})


class SampleSettings(wiring.Signature):
    """What the registers of a sample writer say.

    Members
    -------
    enable, drops : Out, 1 bit
        As in CONTROL. Without ``enable``, samples stall, or with ``drops`` are discarded and not counted.
    rings : Out, 1 bit
        Doorbells are sent; otherwise octets count as announced when they are given to the engine.
    ring_octets, write_octets, bell_octets, bell_ticks : Out, ``bits`` bits
        As the registers with these names. They do not change while ``enable`` or ``pending`` is 1.
    """

    def __init__(self, bits: int):
        flags, numbers = ("enable", "drops", "rings"), ("ring_octets", "write_octets", "bell_octets", "bell_ticks")
        super().__init__({**dict.fromkeys(flags, Out(1)), **dict.fromkeys(numbers, Out(bits))})


class SampleStatus(wiring.Signature):
    """What the registers of a sample writer show.

    Members
    -------
    gap, blocked, pending, busy : Out, 1 bit
        As in STATUS.
    bell : Out, 1 bit
        A doorbell has been transferred.
    bad_head : Out, 1 bit
        A head is ignored, because it is behind the head before it or ahead of the octets that were announced.
    tail : Out, 2 * ``bits`` bits
        The number of the first octet that has not been given to the engine.
    freed : Out, ``bits`` bits
        The head.
    dropped : Out, 64 bits
        Samples that have been dropped. The high half follows the low half by 1 cycle.
    """

    def __init__(self, bits: int):
        flags = "gap", "blocked", "pending", "busy", "bell", "bad_head"
        numbers = {"tail": 2 * bits, "freed": bits, "dropped": 64}
        super().__init__({name: Out(width) for name, width in {**dict.fromkeys(flags, 1), **numbers}.items()})


class SampleSchedule(wiring.Component):
    """Counts octets through a buffer of ``octets`` octets and the peer's ring, and decides on each RDMA Write.

    Octets have numbers from 0 on. They are ``stored`` in the buffer, given to the engine as RDMA Writes (``tail``),
    announced by doorbells, and freed by the peer (``head``); head <= announced <= tail <= stored, and
    tail <= head + ``ring_octets``.

    - An RDMA Write has ``write_octets`` octets, and half of the buffer at most; fewer only before the end of the ring,
      before a doorbell that is due after ``bell_octets``, and in a flush.
    - A flush gives all octets that are stored when it begins, as far as the ring has room, and then a doorbell. It
      begins ``bell_ticks`` ticks after the previous doorbell, or after the first sample behind it; with the first
      sample that is dropped; and when ``enable`` is 0.
    - A doorbell also follows if octets are not announced and the ring has no room for the next RDMA Write.
    - After a dropped sample, all are dropped until those before it have been announced. So samples are missing only at
      tails of doorbells; how many, the records of this doorbell and the next tell.

    Latency: an RDMA Write is given at most 11 cycles after its last sample was taken. Throughput: a sample in each
    cycle, if ``write_octets`` is a quarter of the buffer or less; an RDMA Write or a doorbell every 6 cycles.

    Parameters
    ----------
    sample, octets : octets of a sample, and of the buffer, powers of 2
    bits : width of the numbers of octets, which are modulo 2 to this power; smaller in proofs

    Members
    -------
    settings : In, :class:`SampleSettings`
    tick : In, 1 bit; a tick passes
    offered, ready : In, Out, 1 bit; there is a sample; it is taken if there is one
    stores, place : Out, 1 bit; Out; it is written to the buffer at octet ``place``; otherwise it is dropped
    head, head_written : In, ``bits`` bits; In, 1 bit; the first octet that is not freed; the peer has written it
    o : Out, stream of :class:`RingPiece`
    done : In, 1 bit; the engine has read all of the oldest piece; at least 2 cycles after its transfer
    record : Out, 128 bits; the record of the doorbell, constant from its transfer at ``o`` to its ``done``
    status : Out, :class:`SampleStatus`

    """

    def __init__(self, sample: int, octets: int, *, bits: int = 32):
        check_buffer(sample, octets)
        self.sample = sample
        self.octets = octets
        self.bits = bits
        super().__init__({
            "settings": In(SampleSettings(bits)), "tick": In(1), "offered": In(1),
            "ready": Out(1), "stores": Out(1), "place": Out(range(octets)),
            "head": In(bits), "head_written": In(1),
            "o": Out(stream.Signature(RingPiece(bits))), "done": In(1), "record": Out(128),
            "status": Out(SampleStatus(bits)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        # Numbers of octets: all that are lower have been stored, have been announced, or leave in this flush.
        self.stored = Signal(self.bits)
        self.announced = Signal(self.bits)
        self.flush_end = Signal(self.bits)
        self.flushes = Signal()
        self.bell_passes = Signal()  # all octets up to the tail become announced
        self.tail_low = Signal(self.bits)
        self.dropped_before = Signal(64)  # samples that were dropped before the last octet that has been stored
        # What a piece is decided on.
        self.ring_place = Signal(self.bits)
        self.this_flushes = Signal()
        self.waiting = Signal(range(self.octets + 1))
        self.room = Signal(self.bits)
        self.to_end = Signal(self.bits)
        self.since_bell = Signal(self.bits)
        self.bell_is_due = Signal()
        self.short = Signal()  # fewer octets wait than an RDMA Write has
        shape = data.StructLayout({"bell": 1, "octets": range(self.octets + 1)})
        m.submodules.given = self.given = Fifo(shape, OUTSTANDING)
        self._take(m)
        self._free(m)
        self._flush(m)
        self._give(m)
        return m

    def _take(self, m):
        """Samples are stored or dropped."""
        settings, status = self.settings, self.status
        level = Signal(range(self.octets + 1))
        has_room = Signal()
        wanted = Signal()
        loses = Signal()
        finished = Signal.like(level)
        dropped_low = Signal(32)
        dropped_high = Signal(32)
        oldest = self.given.o
        m.d.comb += [
            has_room.eq((self.octets - level)[self.sample.bit_length() - 1 :].any() & ~status.gap),
            wanted.eq(self.offered & settings.enable),
            self.ready.eq(settings.drops | (settings.enable & has_room)),
            self.stores.eq(wanted & has_room),
            self.place.eq(self.stored),
            loses.eq(wanted & ~has_room & settings.drops),
            oldest.ready.eq(self.done),
            finished.eq(Mux(self.done & oldest.valid, oldest.payload.octets, 0)),
            status.busy.eq(oldest.valid),
            status.dropped.eq(Cat(dropped_low, dropped_high)),
        ]
        m.d.sync += [
            level.eq(level + Mux(self.stores, self.sample, 0) - finished),
            self.stored.eq(self.stored + Mux(self.stores, self.sample, 0)),
        ]
        count(m, dropped_low, dropped_high, loses)
        with m.If(status.gap & ~status.pending):
            m.d.sync += status.gap.eq(0)
        with m.Elif(loses):
            m.d.sync += status.gap.eq(1)
        with m.If(~loses & ~status.gap):
            m.d.sync += self.dropped_before.eq(status.dropped)

    def _free(self, m):
        """The newest head is compared with the one before it and with what was announced, and becomes ``freed``."""
        status = self.status
        newest = Signal(self.bits, name="newest_head")
        fresh = Signal(name="head_is_fresh")
        checked = Signal(self.bits, name="checked_head")
        checks = Signal(name="checks_head")
        advance = Signal(self.bits)
        farthest = Signal(self.bits)
        with m.If(self.head_written):
            m.d.sync += newest.eq(self.head)
        m.d.sync += [
            fresh.eq(self.head_written | (fresh & checks)),
            checks.eq(fresh & ~checks),
            checked.eq(newest),
            advance.eq(newest - status.freed),
            farthest.eq(self.announced - status.freed),
        ]
        with m.If(checks):
            with m.If(advance <= farthest):
                m.d.sync += status.freed.eq(checked)
            with m.Else():
                m.d.comb += status.bad_head.eq(1)

    def _flush(self, m):
        """The ticks to a flush, and its begin."""
        settings, status = self.settings, self.status
        ticks = Signal(self.bits, name="ticks_left")
        m.d.sync += status.pending.eq(self.stored != self.announced)
        with m.If(self.bell_passes | ~status.pending):
            m.d.sync += ticks.eq(settings.bell_ticks)
        with m.Elif(self.tick & (ticks != 0)):
            m.d.sync += ticks.eq(ticks - 1)
        late = (ticks == 0) & (settings.bell_ticks != 0)
        with m.If(status.pending & ~self.flushes & (late | status.gap | ~settings.enable)):
            m.d.sync += [self.flushes.eq(1), self.flush_end.eq(self.stored)]

    def _give(self, m):
        """RDMA Writes and doorbells, one after the other."""
        settings, status = self.settings, self.status
        piece = self.o.payload
        write_passes = Signal()
        bell_outstanding = Signal()
        tail_high = Signal(self.bits)
        given = self.given.i.payload
        m.d.comb += [
            piece.place.eq(self.ring_place),
            piece.start.eq(self.tail_low),
            status.tail.eq(Cat(self.tail_low, tail_high)),
            given.bell.eq(piece.bell),
            given.octets.eq(Mux(piece.bell, 0, piece.octets)),
            self.given.i.valid.eq(self.o.valid & self.o.ready),
            write_passes.eq(self.o.valid & self.o.ready & ~piece.bell),
            status.bell.eq(self.o.valid & self.o.ready & piece.bell),
        ]
        count(m, self.tail_low, tail_high, Mux(write_passes, piece.octets, 0))
        with m.If(self.bell_passes | ~settings.rings):
            m.d.sync += self.announced.eq(self.tail_low)
        with m.If(self.done & self.given.o.valid & self.given.o.payload.bell):
            m.d.sync += bell_outstanding.eq(0)
        with m.FSM():
            self._measure(m)
            self._decide(m, bell_outstanding)

    def _measure(self, m):
        """Measure what waits, and what the ring has room for, in four cycles."""
        settings, status = self.settings, self.status
        used = Signal(self.bits)
        to_bell = Signal(self.bits)
        most = Signal(self.bits)
        half = self.octets // 2
        with m.State("Measure"):
            m.d.sync += [
                self.this_flushes.eq(self.flushes),
                self.waiting.eq(Mux(self.flushes, self.flush_end, self.stored) - self.tail_low),
                used.eq(self.tail_low - status.freed),
                self.to_end.eq(settings.ring_octets - self.ring_place),
                self.since_bell.eq(self.tail_low - self.announced),
                most.eq(Mux(settings.write_octets > half, half, settings.write_octets)),
            ]
            m.next = "Limit"
        with m.State("Limit"):
            m.d.sync += [
                self.room.eq(settings.ring_octets - used),
                most.eq(Mux(self.to_end < most, self.to_end, most)),
                to_bell.eq(settings.bell_octets - self.since_bell),
                self.bell_is_due.eq((settings.bell_octets != 0) & (self.since_bell >= settings.bell_octets)),
            ]
            m.next = "Fit"
        with m.State("Fit"):
            with m.If((settings.bell_octets != 0) & (to_bell < most)):
                m.d.sync += most.eq(to_bell)
            m.next = "Compare"
        with m.State("Compare"):
            m.d.sync += [
                self.short.eq(self.waiting < most),
                self.o.payload.octets.eq(Mux(self.waiting < most, self.waiting, most)),
            ]
            m.next = "Decide"

    def _decide(self, m, bell_outstanding):
        """Decide on an RDMA Write or a doorbell, and give it to the engine."""
        settings, status = self.settings, self.status
        piece = self.o.payload
        with m.State("Decide"):
            fits = self.room >= piece.octets
            some = piece.octets != 0
            blocked = some & Mux(self.this_flushes, self.room == 0, ~self.short & ~fits)
            unannounced = self.since_bell != 0
            m.d.sync += status.blocked.eq(blocked)
            m.next = "Measure"
            with m.If(self.bell_is_due | (unannounced & (blocked | (self.this_flushes & (self.waiting == 0))))):
                with m.If(settings.rings & self.given.i.ready & ~bell_outstanding):
                    m.d.sync += [
                        piece.bell.eq(1),
                        bell_outstanding.eq(1),
                        self.record.eq(Cat(status.tail, self.dropped_before)),
                    ]
                    m.next = "Give"
            with m.Elif(some & self.given.i.ready & ~blocked & (self.this_flushes | ~self.short)):
                m.d.sync += [piece.bell.eq(0), piece.octets.eq(Mux(fits, piece.octets, self.room))]
                m.next = "Give"
            with m.Elif(self.this_flushes & (self.waiting == 0)):
                m.d.sync += self.flushes.eq(0)
        with m.State("Give"):
            m.d.comb += self.o.valid.eq(1)
            with m.If(self.o.ready):
                m.next = "Measure"
                with m.If(piece.bell):
                    m.d.comb += self.bell_passes.eq(1)
                with m.Else():
                    m.d.sync += self.ring_place.eq(Mux(piece.octets == self.to_end, 0, self.ring_place + piece.octets))
