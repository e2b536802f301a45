"""Stream mode: an exact number of octets passes unchanged before MPA mode (RFC 6581 §4.2, RFC 5044 §7.1)."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.copies import choose, copies, parts_of
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.mpa.events import Event, report
from open_rnic.rtl.registers import DirectionState, EventKind, Verdict

__all__ = ["ModeSwitch", "StreamCount", "in_turn"]


class ModeSwitch(wiring.Component):
    """The ports that the mode switches of transmit and receive share.

    Members
    -------
    i : In, stream of ``shape``
        All packets, of both modes.
    stream : Out, stream of :class:`.Packet`
        Packets of stream mode.
    mpa : Out, stream of ``shape``
        Packets of MPA mode.
    octets : In, 32 bits
        Length of stream mode in octets, since reset. It may be raised at any time.
    enable : In, 1 bit
        Enter MPA mode after these octets.
    state : Out, :class:`.DirectionState`
        STREAM; WAITING for ``enable`` or more ``octets``; MPA; STOPPED after an error.
    event : Out, :class:`.Event`
        The change to MPA mode, and errors; 1 cycle late.
    """

    def __init__(self, lanes: int, shape):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(shape)),
            "stream": Out(stream.Signature(Packet(lanes))),
            "mpa": Out(stream.Signature(shape)),
            "octets": In(32),
            "enable": In(1),
            "state": Out(DirectionState),
            "event": Out(Event),
        })


class StreamCount:
    """The count of the octets of stream mode, and the part of the FSM that both mode switches share.

    The FSM of a switch begins with :meth:`measure`, then compares the next beat with :attr:`room`. A 32-bit comparison
    takes cycles of its own, so a beat of stream mode takes several.

    Attributes
    ----------
    passed : 32 bits
        Octets of stream mode that have passed.
    room : 32 bits
        Octets that may still pass, as of state Measure.
    event : :class:`.Event`
        The event of this cycle; the port has it 1 cycle later.

    """

    def __init__(self, m: Module, switch: ModeSwitch):
        self._switch = switch
        self.passed = Signal(32)
        self.room = Signal(32)
        self.event = Signal(Event)
        equal = Signal(2)  # the halves of the count equal those of ``octets``; may be late, as only the host reads it
        passed, octets = self.passed, switch.octets
        m.d.sync += [
            switch.event.eq(self.event),
            equal.eq(Cat(passed.word_select(n, 16) == octets.word_select(n, 16) for n in range(2))),
        ]
        m.d.comb += switch.state.eq(Mux(equal.all(), DirectionState.WAITING, DirectionState.STREAM))

    def measure(self, m: Module, then: str) -> None:
        """Add the state Measure, which updates :attr:`room`."""
        with m.State("Measure"):
            m.d.sync += self.room.eq(self._switch.octets - self.passed)
            m.next = then

    def enter_mpa(self, m: Module, kind: EventKind) -> None:
        """Enter MPA mode if it is enabled, and report ``kind``. To be used in states in which :attr:`room` is 0."""
        with m.If(self._switch.enable):
            report(m, self.event, kind)
            m.next = "Mpa"


def in_turn(m: Module, switch: ModeSwitch, packets, to) -> None:
    """Send the packets of stream mode, then ``packets``, to ``to``. They must not offer beats in the same cycle."""
    # 1 cycle late, but still set before the first beat of MPA mode.
    in_mpa = copies(m, switch.state == DirectionState.MPA, parts_of(switch.lanes), "in_mpa")
    m.d.comb += [
        to.valid.eq(packets.valid | switch.stream.valid),
        packets.ready.eq(to.ready),
        switch.stream.ready.eq(to.ready),
    ]
    stream_mode = switch.stream.payload
    m.d.comb += to.payload.data.eq(choose(in_mpa, packets.payload.data, stream_mode.data))
    others = [name for name in to.payload.shape().members if name != "data"]
    with m.If(in_mpa[0]):
        m.d.comb += [to.payload[name].eq(packets.payload[name]) for name in others]
    with m.Else():
        m.d.comb += [to.payload[name].eq(stream_mode[name]) for name in others if name in Packet(switch.lanes).members]
        if "verdict" in to.payload.shape().members:
            m.d.comb += to.payload.verdict.eq(Verdict.STREAM)
