"""Between the octets of requests and responses, and the beats of the data path's streams."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.link.beats import ToBeats
from open_rnic.rtl.registers import Verdict

__all__ = ["FromStreams", "ToStreams"]


class ToStreams(wiring.Component):
    """Puts octets of requests into the streams that the data path takes.

    Members
    -------
    valid, ready, octet, last, empty : as of :class:`.ToBeats`
    is_ulpdu : the octet is one of a ULPDU, not of the MPA stream
    length : of that ULPDU, in octets
    clear : forget beats that are not full
    mpa, ulpdu : the streams
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
    """Gives the octets of the beats that come out of the data path, of one of the two streams at a time.

    Members
    -------
    mpa, ulpdu : the streams
    other : go on with the other stream, from the next cycle on
    of_ulpdu : the stream is that of ULPDUs
    enable : give the octets of the stream's beat
    there : the stream has a beat
    octet : one of the beat, unless the beat is ``empty``
    taken : with ``enable``: go on with the next octet
    leaves : with its last octet, or if it is ``empty``, the beat leaves
    last : its packet ends with it
    verdict : on the last beat of a received ULPDU
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
            "there": Out(1),
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
                    self.there.eq(source.valid),
                    source.ready.eq(self.leaves),
                    self.octet.eq(beat.data.word_select(at[:-1], 8)),
                    self.last.eq(beat.last),
                    octets.eq(Mux(beat.last, beat.octets, width)),
                ]
        m.d.comb += [
            after.eq(at + 1),
            self.empty.eq(octets == 0),
            self.verdict.eq(self.ulpdu.payload.verdict),
            self.leaves.eq(self.enable & self.there & ((self.taken & (after == octets)) | self.empty)),
        ]
        with m.If(self.enable & self.taken):
            m.d.sync += at.eq(after)
        with m.If(self.leaves):
            m.d.sync += at.eq(0)
        with m.If(self.other):
            m.d.sync += self.of_ulpdu.eq(~self.of_ulpdu)
        return m
