"""Reads the DDP and RDMAP header of each ULPDU, and finds its payload."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu
from open_rnic.rtl.formats.opcodes import TAGGED, TAGGED_OCTETS, UNTAGGED, UNTAGGED_OCTETS, VERSION
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Clear, connection_field, connection_shape, forget, only_many
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.rdma.registers import HEADER_WORDS

__all__ = ["Header", "HeaderReader", "PayloadBeat"]


class Header(data.StructLayout):
    """A header as it came, and the length of its ULPDU.

    Members
    -------
    octets : 160 bits
        The first 20 octets of the ULPDU; octet 0 is in bits 7:0.
    length : 16 bits
    payload : 16 bits
        Octets behind the header.
    """

    def __init__(self):
        super().__init__({"octets": 32 * HEADER_WORDS, "length": 16, "payload": 16})

    def __call__(self, target):
        return _HeaderView(self, target)


class _HeaderView(data.View):
    def field(self, at: int, octets: int):
        """The number in these octets."""
        return swap_octets(self.octets[8 * at : 8 * (at + octets)])

    tagged = property(lambda self: self.octets[7])
    last = property(lambda self: self.octets[6])
    opcode = property(lambda self: self.octets[8:12])
    stag = property(lambda self: self.field(2, 4))
    to = property(lambda self: self.field(6, 8))
    qn = property(lambda self: self.field(6, 4))
    msn = property(lambda self: self.field(10, 4))
    mo = property(lambda self: self.field(14, 4))


class PayloadBeat(data.StructLayout):
    """A beat of a ULPDU, from the beat with the end of the header on.

    Members
    -------
    data : 32 * ``lanes`` bits
    header : 1 bit
        The header ends in this beat.
    start : range(4 * ``lanes``)
        The first octet behind the header in this beat.
    count : range(4 * ``lanes`` + 1)
        Octets of the payload in this beat.
    last : 1 bit
        The ULPDU ends with this beat.

    connection : range(``connections``)
    """

    def __init__(self, lanes: int, connections: int = 1):
        octets = 4 * lanes
        super().__init__({
            "data": 32 * lanes, "header": 1, "start": range(octets), "count": range(octets + 1), "last": 1,
            **connection_field(connections),
        })  # fmt: skip


class HeaderReader(wiring.Component):
    """Takes the ULPDUs that the engine processes, and passes the others to the host.

    The others are a Terminate, and a ULPDU without a valid header: shorter than its header, of an unknown version or
    Opcode, or with an Opcode that does not belong into its kind of segment. Such a ULPDU waits until all before it have
    been processed. It is the last one that is taken: ``passed`` is then set, and all later ULPDUs are discarded. While
    ``enable`` is 0, everything passes to the host, and nothing is discarded.

    Latency: 1 cycle. Throughput: one beat per cycle. It stalls as a whole while ``o.ready`` is 0.

    Members
    -------
    i : In, stream of :class:`.RxUlpdu`
        Good ULPDUs, and bad ones that are Terminates; stream octets while ``enable`` is 0.
    host : Out, stream of :class:`.RxUlpdu`
    o : Out, stream of :class:`PayloadBeat`
    header : Out, :class:`Header`
        With ``o.payload.header``, the header.
    enable : In, 1 bit
        Does not change while a beat is offered at ``i``, nor within a ULPDU.
    discard : In, 1 bit
        ULPDUs are discarded.
    idle : In, 1 bit
        No beat is behind ``o``.
    passed : Out, 1 bit for each connection

    Only with many connections:

    connection : Out
        The connection of the beat at ``i``, of which ``enable`` and ``discard`` are expected.
    ends : Out, 1 bit
        A ULPDU of this connection has been passed or discarded.
    inside : Out, 1 bit
        A ULPDU has begun.
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        ulpdus = stream.Signature(RxUlpdu(lanes, connections))
        many = {"connection": Out(connection_shape(connections)), "ends": Out(1), "inside": Out(1),
                "clear": In(Clear(connections))}
        super().__init__({
            "i": In(ulpdus), "host": Out(ulpdus), "o": Out(stream.Signature(PayloadBeat(lanes, connections))),
            "header": Out(Header()), "enable": In(1), "discard": In(1), "idle": In(1), "passed": Out(connections),
            **only_many(connections, many),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        beat = self.i.payload
        inside = Signal()  # the ULPDU has begun
        begins = Signal()
        free = Signal()
        taken = Signal()
        m.d.comb += [
            begins.eq(~inside), free.eq(~self.o.valid | self.o.ready), taken.eq(self.i.valid & self.i.ready),
        ]  # fmt: skip
        with m.If(taken):
            m.d.sync += inside.eq(~beat.last)
        tagged, strange = self._check(m, begins, taken)
        passes, discards = self._decide(m, begins, strange, free, taken)
        self._locate(m, begins, tagged, ~passes & ~discards, free, taken)
        if self.connections > 1:
            m.d.comb += [
                self.connection.eq(beat.connection),
                self.ends.eq(taken & beat.last & (passes | discards)),
                self.inside.eq(inside | self.i.valid),
            ]
            forget(m, self.clear, self.passed)
        return m

    def _check(self, m, begins, taken):
        """Return whether the ULPDU is tagged, and whether its first beat has no valid header."""
        beat = self.i.payload
        tagged = Signal()
        was_tagged = Signal()
        strange = Signal()
        opcode = beat.data[8:12]
        m.d.comb += [
            tagged.eq(Mux(begins, beat.data[7], was_tagged)),
            strange.eq(
                (beat.data[:2] != VERSION)
                | (beat.data[14:16] != VERSION)
                | ~Mux(tagged, opcode.matches(*TAGGED), opcode.matches(*UNTAGGED))
                | (beat.length < Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS))
            ),
        ]
        with m.If(taken):
            m.d.sync += was_tagged.eq(tagged)
        return tagged, strange

    def _decide(self, m, begins, strange, free, taken):
        """Decide with the first beat: return whether the ULPDU passes to the host, and whether it is discarded."""
        beat = self.i.payload
        has_passed = self.passed.bit_select(beat.connection, 1)
        passes = Signal()
        discards = Signal()
        offered = Signal()  # the host has been offered the first beat
        chosen_passes = Signal()
        chosen_discards = Signal()
        waits = Signal()  # the ULPDU passes, but not yet
        m.d.comb += [
            passes.eq(Mux(begins, offered | ~self.enable | (strange & ~self.discard & ~has_passed), chosen_passes)),
            discards.eq(Mux(begins, ~offered & self.enable & (self.discard | has_passed), chosen_discards)),
            waits.eq(self.enable & begins & ~offered & ~(self.idle & ~self.o.valid)),
            self.host.payload.eq(beat),
            self.host.valid.eq(self.i.valid & passes & ~waits),
            self.i.ready.eq(discards | Mux(passes, self.host.ready & ~waits, free)),
        ]
        m.d.sync += offered.eq(self.host.valid & ~self.host.ready & begins)
        with m.If(taken):
            m.d.sync += [chosen_passes.eq(passes), chosen_discards.eq(discards)]
            with m.If(passes & self.enable):
                m.d.sync += has_passed.eq(1)
        return passes, discards

    def _locate(self, m, begins, tagged, processed, free, taken):
        """Keep the header, and pass the beats from its end on, with the place of the payload in them."""
        beat = self.i.payload
        octets = 4 * self.lanes
        number = Signal(range(HEADER_WORDS + 1))  # of the beat
        behind = Signal()  # its header has ended
        ends_header = Signal()
        count = Signal(range(octets + 1))
        start = Signal(range(octets))
        m.d.comb += [
            ends_header.eq(
                ~behind & (number == Mux(tagged, (TAGGED_OCTETS - 1) // octets, (UNTAGGED_OCTETS - 1) // octets))
            ),
            start.eq(Mux(behind, 0, Mux(tagged, TAGGED_OCTETS % octets, UNTAGGED_OCTETS % octets))),
            count.eq(Mux(beat.last, beat.octets, octets) - start),
        ]
        with m.If(free):
            m.d.sync += [
                self.o.valid.eq(self.i.valid & processed & (behind | ends_header)),
                *(self.o.payload[name].eq(beat[name]) for name in ("data", "last", "connection")),
                self.o.payload.header.eq(ends_header),
                self.o.payload.start.eq(start),
                self.o.payload.count.eq(count),
            ]
        with m.If(taken):
            m.d.sync += [
                behind.eq((behind | ends_header) & ~beat.last),
                number.eq(Mux(beat.last, 0, Mux(behind, number, number + 1))),
            ]
        with m.If(taken & processed):
            with m.If(begins):
                m.d.sync += [
                    self.header.length.eq(beat.length),
                    self.header.payload.eq(beat.length - Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS)),
                ]
            for word in range(HEADER_WORDS):
                with m.If(~behind & (number == word // self.lanes)):
                    lane = word % self.lanes
                    m.d.sync += self.header.octets[32 * word : 32 * word + 32].eq(beat.data[32 * lane : 32 * lane + 32])
