"""The mode switch of receive: stream mode first, then MPA (RFC 6581 §4.2)."""

from amaranth.hdl import Module, Mux, Signal

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.copies import copies, parts_of
from open_rnic.rtl.mpa.stream_mode import ModeSwitch, StreamCount
from open_rnic.rtl.registers import DirectionState, EventKind

__all__ = ["RxModeSwitch"]


class RxModeSwitch(ModeSwitch):
    """Sends the first ``octets`` of the stream to the host, and all later octets into the MPA blocks.

    Octets after the first ``octets`` wait until ``octets`` is raised or MPA is enabled. A chunk that crosses the
    boundary is cut in two. A chunk of no octets is discarded.

    Latency: 1 cycle in MPA mode. Throughput: one beat per cycle in MPA mode; one beat every 5 cycles in stream mode,
    and a cut takes 1 cycle for each octet before it.

    Members
    -------
    i : In, stream of :class:`.Packet`
        Chunks.
    stream : Out, stream of :class:`.Packet`
        Chunks of stream mode.
    mpa : Out, stream of :class:`.Packet`
        Chunks of MPA mode, with ``octets`` valid on every beat.
    octets, enable, state : see :class:`.ModeSwitch`; this switch never reports STOPPED
    event : Out, :class:`.Event`
        RX_MPA.
    """

    def __init__(self, lanes: int):
        super().__init__(lanes, Packet(lanes))

    def elaborate(self, platform):
        m = Module()
        begun = Signal()  # MPA mode has begun
        sent_on = Signal()  # in the next cycle, stream mode has sent the beat
        shifts_on = Signal()  # the beat loses its first octet in the next cycle
        beat, present = self._hold(m, begun, sent_on, shifts_on)
        counted = StreamCount(m, self)
        with m.FSM():
            counted.measure(m, then="Weigh")
            empty, fits = self._weigh(m, counted, beat, present)
            self._pass(m, counted, beat, empty, fits, sent_on, shifts_on)
            with m.State("Mpa"):
                m.d.comb += self.state.eq(DirectionState.MPA)
                m.d.sync += begun.eq(1)
        return m

    def _hold(self, m, begun, sent_on, shifts_on):
        """Hold a beat until it has left. Return it, and whether there is one."""
        beat = Signal(Packet(self.lanes), reset_less=True)
        # Each part of a wide beat has a copy, because a clock enable is late if it must reach all.
        presents = [Signal(name=f"present_{n}") for n in range(parts_of(self.lanes))]
        present = presents[0]
        # The beat leaves: in stream mode two cycles after it was sent, because what decides is far from it.
        taken = Signal()
        sent = Signal()  # stream mode has sent it
        given = self.i.payload
        m.d.sync += sent.eq(sent_on)
        m.d.comb += [
            taken.eq(sent | (begun & self.mpa.ready)),
            self.i.ready.eq(~present | taken),
            self.mpa.valid.eq(begun & present),
            self.mpa.payload.eq(beat),
        ]
        with m.If(self.i.ready):
            m.d.sync += [beat.octets.eq(Mux(given.last, given.octets, 4 * self.lanes)), beat.last.eq(given.last)]
        size = len(beat.data) // len(presents)
        shifted = beat.data >> 8
        shifts = copies(m, shifts_on, len(presents), "shifts")
        changes = copies(m, sent_on | shifts_on, len(presents), "changes")
        for n, there_too in enumerate(presents):
            with m.If(~there_too | taken):
                m.d.sync += there_too.eq(self.i.valid)
            with m.If(~there_too | changes[n] | (begun & self.mpa.ready)):
                m.d.sync += beat.data.word_select(n, size).eq(
                    Mux(shifts[n] & there_too, shifted.word_select(n, size), given.data.word_select(n, size))
                )
        return beat, present

    def _weigh(self, m, counted, beat, present):
        """Compare the beat with the rest of stream mode. Return whether it is empty, and whether all of it fits."""
        none = Signal()  # ``room`` is 0
        there = Signal()  # ``present``, as of state Weigh
        empty = Signal()
        fits = Signal()
        ends = Signal()  # the beat reaches the end of stream mode
        count = Signal.like(beat.octets)
        near = counted.room[:len(count)]  # all of ``room``, if no more than a beat
        is_near = counted.room[len(count):] == 0
        m.d.comb += [
            count.eq(beat.octets),
            self.stream.payload.data.eq(beat.data),
            self.stream.payload.octets.eq(Mux(fits, count, counted.room)),
            self.stream.payload.last.eq(beat.last | ends),
        ]
        with m.State("Weigh"):
            m.d.sync += [
                none.eq(counted.room == 0),
                there.eq(present),
                empty.eq(count == 0),
                fits.eq(~is_near | (count <= near)),
                ends.eq(is_near & (count >= near)),
            ]
            m.next = "Decide"
        with m.State("Decide"):
            m.next = "Measure"
            with m.If(none):
                counted.enter_mpa(m, EventKind.RX_MPA)
            with m.Elif(there):
                m.next = "Pass"
        return empty, fits

    def _pass(self, m, counted, beat, empty, fits, sent_on, shifts_on):
        """Send the beat. If not all of it fits, the octets after the cut are a chunk of their own."""
        surplus = Signal.like(beat.octets)  # octets still to be shifted out of the beat
        room = counted.room
        with m.State("Pass"):
            with m.If(empty):
                m.next = "Leave"
            with m.Else():
                m.d.comb += self.stream.valid.eq(1)
                with m.If(self.stream.ready):
                    m.d.sync += counted.passed.eq(counted.passed + self.stream.payload.octets)
                    with m.If(fits):
                        m.next = "Leave"
                    with m.Else():
                        m.d.sync += [surplus.eq(room), beat.octets.eq(beat.octets - room), beat.last.eq(1)]
                        m.next = "Shift"
        with m.State("Leave"):
            m.d.comb += sent_on.eq(1)
            m.next = "Measure"
        with m.State("Shift"):
            m.d.comb += shifts_on.eq(1)
            m.d.sync += surplus.eq(surplus - 1)
            with m.If(surplus == 1):
                m.next = "Measure"
