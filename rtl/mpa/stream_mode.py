"""Stream mode: octets that pass unchanged before MPA is enabled, at an exact octet (RFC 6581 §4.2, RFC 5044 §7.1)."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.events import Event, report
from open_rnic.rtl.layouts import Packet, TxUlpdu
from open_rnic.rtl.lib.stream import check_lanes
from open_rnic.rtl.registers import Cause, DirectionState, EventKind, Verdict

__all__ = ["RxModeSwitch", "TxModeSwitch", "in_turn"]

_SWITCH = {
    "octets": In(32),
    "enable": In(1),
    "state": Out(DirectionState),
    "event": Out(Event),
}


def _complete(m: Module, passed: Signal, octets: Signal) -> Value:
    """All octets of stream mode have passed: for the host to read, so a cycle late."""
    halves = Signal(2)
    m.d.sync += halves.eq(Cat(passed.word_select(n, 16) == octets.word_select(n, 16) for n in range(2)))
    return halves.all()


class TxModeSwitch(wiring.Component):
    """Sends the host's first packets past the MPA blocks, and ULPDUs into them.

    In MPA mode combinational. In stream mode a beat takes 6 cycles. A packet that runs past ``octets``, by its
    announced length or in fact, is an error: it is dropped whole, or from the beat on in which that shows,
    and so is all that follows. One of no octets is dropped.

    Members
    -------
    i : packets from the host
    stream : those of stream mode
    mpa : those of MPA mode: ULPDUs
    octets : length of stream mode, since reset
    enable : go on to MPA mode behind it
    state : STREAM, WAITING for ``enable``, MPA, STOPPED after an error
    event : TX_MPA; ERROR; a cycle late
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(TxUlpdu(lanes))),
            "stream": Out(stream.Signature(Packet(lanes))),
            "mpa": Out(stream.Signature(TxUlpdu(lanes))),
            **_SWITCH,
        })

    def elaborate(self, platform):
        m = Module()
        i = self.i.payload
        count = Mux(i.last, i.octets, 4 * self.lanes)
        passed = Signal(32)
        room = Signal(32)  # octets that may still pass
        none = Signal()
        there = Signal()  # a beat
        inside = Signal()  # of a packet
        wanted = Signal(16)  # octets of the beat, or of its packet, if that is known to have more
        surplus = Signal(signed(34))  # of these, octets too many
        over = Signal()
        leaving = Signal.like(i.octets)
        m.d.comb += [
            self.mpa.payload.eq(i),
            *(self.stream.payload[name].eq(i[name]) for name in Packet(self.lanes).members),
        ]
        event = Signal(Event)
        m.d.sync += self.event.eq(event)
        complete = _complete(m, passed, self.octets)
        m.d.comb += self.state.eq(Mux(complete, DirectionState.WAITING, DirectionState.STREAM))
        with m.FSM():
            with m.State("Measure"):
                m.d.sync += room.eq(self.octets - passed)
                m.next = "Look"
            with m.State("Look"):
                m.d.sync += [
                    none.eq(room == 0),
                    there.eq(self.i.valid),
                    wanted.eq(Mux(inside | (count > i.length), count, i.length)),
                ]
                m.next = "Compare"
            with m.State("Compare"):
                m.d.sync += surplus.eq(wanted - room)
                m.next = "Weigh"
            with m.State("Weigh"):
                m.d.sync += over.eq(surplus > 0)
                m.next = "Measure"
                with m.If(none & ~inside):
                    with m.If(self.enable):
                        report(m, event, EventKind.TX_MPA)
                        m.next = "Mpa"
                with m.Elif(there):
                    m.next = "Pass"
            with m.State("Pass"):
                with m.If(over):
                    report(m, event, EventKind.ERROR, detail=Cause.TX_STREAM, value=surplus)
                    m.next = "Stopped"
                with m.Else():
                    m.d.comb += [
                        self.stream.valid.eq(count != 0),
                        self.i.ready.eq(self.stream.ready | (count == 0)),
                    ]
                    m.d.sync += leaving.eq(count)
                    with m.If(self.i.ready):
                        m.d.sync += inside.eq(~i.last)
                        m.next = "Count"
            with m.State("Count"):
                m.d.sync += passed.eq(passed + leaving)
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


class RxModeSwitch(wiring.Component):
    """Sends the first octets of the stream to the host, and what follows into the MPA blocks.

    Octets behind the first ``octets`` are kept waiting until that is raised, or MPA enabled. A chunk that lies
    across the border is cut in two. One of no octets is dropped.

    In MPA mode latency 1 cycle, one beat a cycle. In stream mode a beat takes 4 cycles, and a cut one cycle for each
    octet before it.

    Members
    -------
    i : chunks
    stream : chunks of stream mode
    mpa : chunks of MPA mode, with ``octets`` valid on every beat
    octets, enable, state : as of :class:`TxModeSwitch`, but for the missing error
    event : RX_MPA, a cycle late
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        shape = Packet(lanes)
        super().__init__({
            "i": In(stream.Signature(shape)),
            "stream": Out(stream.Signature(shape)),
            "mpa": Out(stream.Signature(shape)),
            **_SWITCH,
        })

    def elaborate(self, platform):
        m = Module()
        beat = Signal(Packet(self.lanes), reset_less=True)
        present = Signal()
        taken = Signal()  # the beat leaves in this cycle
        none = Signal()  # of the octets of stream mode are left
        there = Signal()  # a beat is present
        empty = Signal()  # the beat has no octets
        fits = Signal()  # the beat belongs to stream mode as a whole
        ends = Signal()  # the beat reaches the end of stream mode
        passed = Signal(32)
        room = Signal(32)
        count = Signal.like(beat.octets)
        surplus = Signal.like(beat.octets)  # octets still to be shifted out of the beat
        m.d.comb += [
            count.eq(beat.octets),
            self.i.ready.eq(~present | taken),
            self.mpa.payload.eq(beat),
            self.stream.payload.data.eq(beat.data),
            self.stream.payload.octets.eq(Mux(fits, count, room)),
            self.stream.payload.last.eq(beat.last | ends),
        ]
        with m.If(self.i.ready):
            m.d.sync += [
                beat.eq(self.i.payload),
                beat.octets.eq(Mux(self.i.payload.last, self.i.payload.octets, 4 * self.lanes)),
                present.eq(self.i.valid),
            ]

        event = Signal(Event)
        m.d.sync += self.event.eq(event)
        complete = _complete(m, passed, self.octets)
        m.d.comb += self.state.eq(Mux(complete, DirectionState.WAITING, DirectionState.STREAM))
        with m.FSM():
            with m.State("Measure"):
                m.d.sync += room.eq(self.octets - passed)
                m.next = "Weigh"
            with m.State("Weigh"):
                m.d.sync += [
                    none.eq(room == 0),
                    there.eq(present),
                    empty.eq(count == 0),
                    fits.eq(count <= room),
                    ends.eq(count >= room),
                ]
                m.next = "Decide"
            with m.State("Decide"):
                m.next = "Measure"
                with m.If(none):
                    with m.If(self.enable):
                        report(m, event, EventKind.RX_MPA)
                        m.next = "Mpa"
                with m.Elif(there):
                    m.next = "Pass"
            with m.State("Pass"):
                with m.If(empty):
                    m.d.comb += taken.eq(1)
                    m.next = "Measure"
                with m.Else():
                    m.d.comb += [self.stream.valid.eq(1), taken.eq(self.stream.ready & fits)]
                    with m.If(self.stream.ready):
                        m.d.sync += passed.eq(passed + self.stream.payload.octets)
                        with m.If(fits):
                            m.next = "Measure"
                        with m.Else():
                            # What stays behind a cut is a chunk of its own.
                            m.d.sync += [surplus.eq(room), beat.octets.eq(count - room), beat.last.eq(1)]
                            m.next = "Shift"
            with m.State("Shift"):
                m.d.sync += [beat.data.eq(beat.data >> 8), surplus.eq(surplus - 1)]
                with m.If(surplus == 1):
                    m.next = "Measure"
            with m.State("Mpa"):
                m.d.comb += [
                    self.state.eq(DirectionState.MPA),
                    self.mpa.valid.eq(present),
                    taken.eq(self.mpa.ready),
                ]
        return m


def in_turn(m: Module, switch: TxModeSwitch | RxModeSwitch, packets, to) -> None:
    """Send stream-mode packets to ``to``, then ``packets``: when one of them has a beat, the other has none."""
    in_mpa = Signal()  # a cycle late, which is sooner than the first FPDU
    m.d.sync += in_mpa.eq(switch.state == DirectionState.MPA)
    m.d.comb += [
        to.valid.eq(packets.valid | switch.stream.valid),
        packets.ready.eq(to.ready),
        switch.stream.ready.eq(to.ready),
    ]
    fields = to.payload.shape().members
    with m.If(in_mpa):
        m.d.comb += to.payload.eq(packets.payload)
    with m.Else():
        m.d.comb += [to.payload[name].eq(switch.stream.payload[name]) for name in fields if name != "verdict"]
        if "verdict" in fields:
            m.d.comb += to.payload.verdict.eq(Verdict.STREAM)
