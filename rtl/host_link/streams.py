"""Converts between the octets of requests and responses and the beats of the data path's streams."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.host_link.beats import ToBeats
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.registers import Verdict

__all__ = ["FromStreams", "ToStreams"]


class ToStreams(wiring.Component):
    """Assembles the octets of requests into the input streams of the data path.

    Throughput: as :class:`.ToBeats`. Each stream has its own incomplete beat.

    Members
    -------
    valid, ready, octet, last, empty
        See :class:`.ToBeats`.
    is_ulpdu : In, 1 bit
        1: the octet belongs to a ULPDU; 0: to the MPA stream.
    length : In, 16 bits
        The length of the ULPDU in octets.
    clear : In, 1 bit
        Discard incomplete beats.
    mpa : Out, stream of :class:`.Packet`
        The MPA stream.
    ulpdu : Out, stream of :class:`.TxUlpdu`
        The ULPDUs.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "valid": In(1),
            "ready": Out(1),
            "octet": In(8),
            "last": In(1),
            "empty": In(1),
            "is_ulpdu": In(1),
            "length": In(16),
            "clear": In(1),
            "mpa": Out(stream.Signature(Packet(lanes))),
            "ulpdu": Out(stream.Signature(TxUlpdu(lanes))),
        })

    def elaborate(self, platform):
        m = Module()
        announced = Signal(16, reset_less=True)
        m.d.comb += self.ulpdu.payload.length.eq(announced)
        with m.If(self.valid & self.ready & self.is_ulpdu):
            m.d.sync += announced.eq(self.length)
        for name, chosen, target in (("mpa", ~self.is_ulpdu, self.mpa), ("ulpdu", self.is_ulpdu, self.ulpdu)):
            port = ToBeats(self.lanes)
            m.submodules[name] = ResetInserter(self.clear)(port)
            with m.If(chosen):
                m.d.comb += self.ready.eq(port.ready)
            m.d.comb += [
                port.valid.eq(self.valid & chosen),
                port.octet.eq(self.octet),
                port.last.eq(self.last),
                port.empty.eq(self.empty),
                *(target.payload[field].eq(port.o.payload[field]) for field in Packet(self.lanes).members),
                target.valid.eq(port.o.valid),
                port.o.ready.eq(target.ready),
            ]
        return m


class FromStreams(wiring.Component):
    """Splits beats of the output streams of the data path into octets.

    One of the two streams is selected at a time. Throughput: one octet per cycle.

    Members
    -------
    mpa : In, stream of :class:`.Packet`
        The MPA stream.
    ulpdu : In, stream of :class:`.RxUlpdu`
        The ULPDUs.
    other : In, 1 bit
        Select the other stream from the next cycle on.
    of_ulpdu : Out, 1 bit
        The selected stream: 1 ``ulpdu``, 0 ``mpa``.
    enable : In, 1 bit
        Process the beat of the selected stream.
    offered : Out, 1 bit
        The selected stream has a beat.
    octet : Out, 8 bits
        The current octet of this beat, unless ``empty`` is set.
    empty : Out, 1 bit
        The beat has no octets.
    taken : In, 1 bit
        With ``enable``: continue with the next octet.
    leaves : Out, 1 bit
        The beat is transferred in this cycle, because its last octet is ``taken`` or it is ``empty``.
    last : Out, 1 bit
        The packet ends with this beat.
    verdict : Out, :class:`.Verdict`
        The verdict on a ULPDU, valid on its last beat.
    """

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "mpa": In(stream.Signature(Packet(lanes))),
            "ulpdu": In(stream.Signature(RxUlpdu(lanes))),
            "other": In(1),
            "of_ulpdu": Out(1),
            "enable": In(1),
            "offered": Out(1),
            "octet": Out(8),
            "empty": Out(1),
            "taken": In(1),
            "leaves": Out(1),
            "last": Out(1),
            "verdict": Out(Verdict),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        at = Signal(range(width + 1))
        after = Signal.like(at)
        octets = Signal.like(at)
        for n, source in enumerate((self.mpa, self.ulpdu)):
            beat = source.payload
            with m.If(self.of_ulpdu == n):
                m.d.comb += [
                    self.offered.eq(source.valid),
                    source.ready.eq(self.leaves),
                    self.octet.eq(beat.data.word_select(at[:-1], 8)),
                    self.last.eq(beat.last),
                    octets.eq(Mux(beat.last, beat.octets, width)),
                ]
        m.d.comb += [
            after.eq(at + 1),
            self.empty.eq(octets == 0),
            self.verdict.eq(self.ulpdu.payload.verdict),
            self.leaves.eq(self.enable & self.offered & ((self.taken & (after == octets)) | self.empty)),
        ]
        with m.If(self.enable & self.taken):
            m.d.sync += at.eq(after)
        with m.If(self.leaves):
            m.d.sync += at.eq(0)
        with m.If(self.other):
            m.d.sync += self.of_ulpdu.eq(~self.of_ulpdu)
        return m
