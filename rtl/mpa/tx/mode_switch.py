"""The mode switch of transmit: stream mode first, then MPA (RFC 6581 §4.2)."""

from amaranth.hdl import Module, Mux, Signal, signed

from open_rnic.rtl.formats.layouts import Packet, TxUlpdu
from open_rnic.rtl.mpa.events import report
from open_rnic.rtl.mpa.stream_mode import ModeSwitch, StreamCount
from open_rnic.rtl.registers import Cause, DirectionState, EventKind

__all__ = ["TxModeSwitch"]


class TxModeSwitch(ModeSwitch):
    """Sends the first packets of the host around the MPA blocks, and ULPDUs into them.

    In stream mode a packet that is longer than the remaining ``octets``, by its announced length or in fact, is an
    error. It is discarded as a whole, or from the beat on that exceeds ``octets``; all later packets are discarded,
    too. A packet of no octets is discarded without an error.

    Latency: combinational. Throughput: one beat per cycle in MPA mode, one beat every 6 cycles in stream mode.

    Members
    -------
    i : In, stream of :class:`.TxUlpdu`
    stream : Out, stream of :class:`.Packet`
    mpa : Out, stream of :class:`.TxUlpdu`
    octets, enable, state : see :class:`.ModeSwitch`
    event : Out, :class:`.Event`
        TX_MPA; ERROR with cause TX_STREAM.
    """

    def __init__(self, lanes: int):
        super().__init__(lanes, TxUlpdu(lanes))

    def elaborate(self, platform):
        m = Module()
        i = self.i.payload
        m.d.comb += [
            self.mpa.payload.eq(i),
            *(self.stream.payload[name].eq(i[name]) for name in Packet(self.lanes).members),
        ]
        # The beat at the input, a cycle late: it stays there until it is sent.
        count = Mux(i.last, i.octets, 4 * self.lanes)
        leaving = Signal.like(i.octets)
        empty = Signal()
        ends = Signal()
        m.d.sync += [leaving.eq(count), empty.eq(count == 0), ends.eq(i.last)]
        inside = Signal()  # a packet has begun and not ended
        counted = StreamCount(m, self)
        with m.FSM():
            counted.measure(m, then="Look")
            surplus, over = self._weigh(m, counted, count, leaving, inside)
            with m.State("Pass"):
                with m.If(over):
                    report(m, counted.event, EventKind.ERROR, detail=Cause.TX_STREAM, value=surplus)
                    m.next = "Stopped"
                with m.Else():
                    m.d.comb += [self.stream.valid.eq(~empty), self.i.ready.eq(self.stream.ready | empty)]
                    with m.If(self.i.ready):
                        m.next = "Count"
            with m.State("Count"):
                m.d.sync += [counted.passed.eq(counted.passed + leaving), inside.eq(~ends)]
                m.next = "Measure"
            with m.State("Mpa"):
                m.d.comb += [
                    self.state.eq(DirectionState.MPA),
                    self.mpa.valid.eq(self.i.valid),
                    self.i.ready.eq(self.mpa.ready),
                ]
            with m.State("Stopped"):
                m.d.comb += [self.state.eq(DirectionState.STOPPED), self.i.ready.eq(1)]
        return m

    def _weigh(self, m, counted, count, leaving, inside):
        """Compare the packet with the rest of stream mode. Return how far it exceeds that, and whether it does."""
        length = self.i.payload.length
        came = Signal()  # a beat was at the input a cycle ago
        exceeds = Signal()  # it has more octets than its packet announced
        none = Signal()  # ``room`` is 0
        there = Signal()  # a beat is present
        wanted = Signal(16)  # octets of the beat, or of its whole packet if more are announced
        is_near = Signal()  # ``room`` is less than 2^16
        surplus = Signal(signed(17))  # if so, octets of ``wanted`` that exceed it
        over = Signal()
        m.d.sync += [
            came.eq(self.i.valid),
            exceeds.eq((length[len(count):] == 0) & (count > length[:len(count)])),
        ]
        with m.State("Look"):
            m.d.sync += [
                none.eq(counted.room == 0),
                there.eq(came),
                wanted.eq(Mux(inside | exceeds, leaving, length)),
            ]
            m.next = "Compare"
        with m.State("Compare"):
            m.d.sync += [is_near.eq(counted.room[16:] == 0), surplus.eq(wanted - counted.room[:16])]
            m.next = "Weigh"
        with m.State("Weigh"):
            m.d.sync += over.eq(is_near & ~surplus[-1] & (surplus[:-1] != 0))
            m.next = "Measure"
            with m.If(none & ~inside):
                counted.enter_mpa(m, EventKind.TX_MPA)
            with m.Elif(there):
                m.next = "Pass"
        return surplus, over
