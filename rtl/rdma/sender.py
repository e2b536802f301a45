"""Transmit: messages become ULPDUs (RFC 5041 §5.2), and RDMA Reads of the peer are answered."""

from itertools import zip_longest

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import TxUlpdu
from open_rnic.rtl.formats.opcodes import (
    FIRST_MSN,
    INVALIDATES,
    READ_REQUEST_OCTETS,
    TAGGED,
    TAGGED_OCTETS,
    UNTAGGED_OCTETS,
    VERSION,
    Opcode,
    Queue,
)
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Cells, Clear, connection_field, connection_of, connection_shape, forget
from open_rnic.rtl.lib.stream import Fifo, swap_octets
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, Fragment, Message, Segments, Sink, word_bits
from open_rnic.rtl.rdma.realigner import Realigner

__all__ = ["MAX_OUTSTANDING", "RdmaSender"]

MAX_OUTSTANDING = 16  # words of memory that may be read ahead
_PADDING = 2  # octets in front of a header, so that its fields of 32 bits lie in lanes; they hold its ULPDU's length
_SAVED = 8  # words of 32 bits
_EARLY = 6  # of these, those that are known when the header has left
_VOID = 1  # the ``start`` of octets that have no meaning


class _Source(data.StructLayout):
    """Octets of a ULPDU: some of its header, or the place of octets in a word of memory.

    If they are not in memory, ``start`` names their kind: _PADDING marks the first octets of a header, behind the
    padding that holds the length of the ULPDU, and _VOID those in the place of octets that must not be read. ``some``
    is the number of octets; 0 for a whole beat. ``done`` marks the last octets of a Send or an RDMA Write; if
    ``fabric``, of logic beside the engine. With many connections, ``connection`` is the number of the ULPDU's.
    """

    def __init__(self, lanes: int, connections: int):
        octets = 4 * lanes
        super().__init__({
            "memory": 1, "data": 32 * lanes, "start": range(octets), "some": range(octets), "last": 1, "done": 1,
            "fabric": 1, **connection_field(connections),
        })  # fmt: skip


class _Note(data.StructLayout):
    """The length of a ULPDU, and with many connections its connection."""

    def __init__(self, connections: int):
        super().__init__({"length": 16, **connection_field(connections)})


class RdmaSender(wiring.Component):
    """Transmit of the RDMA engine.

    ::

        messages ▸ segments ▸ octets of headers, and words of memory ▸ Realigner ▸ ULPDUs

    Messages leave in segments of at most ``mulpdu`` octets: each is as long as fits, except the last. Memory is not
    read for a Read Response whose source must not be read, except for a word that it has been offered already:
    ``refused`` is set, and no other segment begins. A segment that has begun, or one with a word that memory could not
    read, is given up: the ULPDU is an octet longer or shorter than its ``length``, in as many lanes, which invalidates
    its FPDU (see :class:`.Fence`). It does not count as sent, and all ULPDUs behind it are given up, too.

    Latency: 5 cycles and that of the memory, from a message to its first beat. Throughput: one beat per cycle, but a
    cycle more for each ULPDU, for each ULPDU whose octets lie in more words of memory than it has beats, and for each
    fragment.

    Members
    -------
    message : In, stream of :class:`.Message`
    fragment : In, stream of :class:`.Fragment`
        The pieces of memory of each message, in their order; the first one comes with the message.
    segments : Out, :class:`.Segments`
    runs : In, 1 bit
        ULPDUs are begun.
    mulpdu : In, 16 bits
    send_rtr, read_rtr : In, 1 bit
        Before the first message: an RTR of this end has the first MSN.
    starts : In, 1 bit
        Messages may come: the two above are settled.
    o : Out, stream of :class:`.TxUlpdu`
    read : Out, stream of a word's address
    words : In, stream of 32 * ``lanes`` bits
    fault : In, 1 bit
        See :class:`.MemoryPort`.
    asks : Out, 1 bit
        An RDMA Read Request is being sent. For one cycle.
    asked : Out, :class:`.Sink`
        With ``asks``, its sink.
    answers : Out, 1 bit
        The last octets of a Read Response have been read. For one cycle.
    left : Out, 32 bits
        Octets of the message that have not been sent.
    refused : Out, 1 bit
    failed : Out, 1 bit
        Memory could not read a word.
    sending : Out, 1 bit
    sent, fabric_sent : Out, 1 bit
        All octets of a Send or an RDMA Write, of the host or of logic beside the engine, have been read. For one cycle.
    ulpdu : Out, 1 bit
        A ULPDU has been sent, or given up.

    With many connections, ``refused``, ``failed`` and ``sending`` have a bit for each. Every message is taken for one
    segment; if another one follows, what is left of the message is given back, and comes again as a message. ``runs``
    and ``mulpdu`` are those of ``segments.message_connection``, ``answers`` is of ``segments.connection``, ``starts``
    is 1 for one cycle, and there are

    sent_of : Out
        The connection of ``sent``.
    ulpdu_of : Out
        The connection of ``ulpdu``.
    starts_of : In
        The connection of ``starts``.
    shown : In
        The connection of ``left`` and ``sending``, which is 1 bit.
    idle : Out, 1 bit
        No ULPDU is in the block.
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        each, of = connections, connection_shape(connections)
        many = {
            "sent_of": Out(of), "ulpdu_of": Out(of), "starts_of": In(of), "shown": In(of), "idle": Out(1),
            "clear": In(Clear(connections)),
        }  # fmt: skip
        super().__init__({
            **(many if connections > 1 else {}),
            "message": In(stream.Signature(Message)), "fragment": In(stream.Signature(Fragment)),
            "segments": Out(Segments(lanes, connections)),
            "runs": In(1), "mulpdu": In(16), "send_rtr": In(1), "read_rtr": In(1), "starts": In(1),
            "o": Out(stream.Signature(TxUlpdu(lanes, connections))),
            "read": Out(stream.Signature(word_bits(lanes))), "words": In(stream.Signature(32 * lanes)), "fault": In(1),
            "asks": Out(1), "asked": Out(Sink),
            "answers": Out(1), "left": Out(32), "refused": Out(each), "failed": Out(each),
            "sending": Out(1), "sent": Out(1), "fabric_sent": Out(1), "ulpdu": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self)
        x.left = Signal(32, name="rest") if x.many else self.left
        m.submodules.sources = x.sources
        m.submodules.realigner = x.realigner
        m.d.comb += [
            x.tagged.eq(x.opcode.matches(*TAGGED)),
            x.is_request.eq(x.opcode == Opcode.RDMA_READ_REQUEST),
            x.invalidates.eq(x.opcode.matches(*INVALIDATES)),
        ]
        self._number(m, x)
        self._header(m, x)
        self._begin(m, x)
        self._segment(m, x)
        self._collect(m, x)
        if x.many:
            self._share(m, x)
        return m

    def _share(self, m, x):
        """What many connections need: give back the rest of a message, and show what has been sent of it."""
        last_left = Signal(32)  # of the last message, when its last segment was to begin
        cells = Cells(m, last_left, self.connections, self.segments.message_connection, self.clear)
        with m.If(x.may_begin):
            cells.write(m, self.message.payload.octets)
        begun = Signal(5)  # ULPDUs; as many may be on their way
        ended = Signal(5)
        begins = Cells(m, begun, self.connections, self.segments.message_connection, self.clear)
        ends = Cells(m, ended, self.connections, self.ulpdu_of, self.clear)
        begins.count(m, x.begins)
        ends.count(m, self.ulpdu)
        m.d.comb += [
            self.left.eq(cells.read(m, self.shown)),
            self.sending.eq(begins.read(m, self.shown) != ends.read(m, self.shown)),
            self.segments.unfinished.eq(~x.last_begins),
            self.segments.connection.eq(x.connection),
            self.segments.ends.eq(x.ends),
            self.segments.busy.eq(x.in_segment | x.saving),
            self.segments.saves.eq(x.saving | (x.in_segment & ~x.in_header & ~x.last_segment
                                      & (x.header_word < _EARLY // self.lanes))),
            self.segments.save_at.eq(x.header_word),
            self.segments.saved.eq(x.header_data),
            self.idle.eq(~(x.in_segment | x.saving | x.sources.o.valid | x.realigner.busy)),
        ]
        with m.If(x.ends_header):
            m.d.sync += x.header_word.eq(0)
        with m.If(self.segments.saves):
            m.d.sync += x.header_word.eq(x.header_word + 1)
        with m.If(x.ends & ~x.last_segment & ~x.void):
            m.d.sync += x.saving.eq(1)
        with m.If(x.saving):
            m.d.sync += x.saving.eq(x.header_word != max(1, _SAVED // self.lanes) - 1)
        forget(m, self.clear, self.refused, self.failed, x.ruined)

    def _number_many(self, m, x):
        """As :meth:`_number`. Numbers are 0 before the first message, and then 1, or 2 behind an RTR."""
        send_msn = Signal(32)
        read_msn = Signal(32)
        next_msn = Signal(32)
        sends, reads = (
            Cells(m, each, self.connections, x.connection, self.clear, next_msn) for each in (send_msn, read_msn)
        )
        sent = Signal(2, name="sent_rtrs")
        sent_rtrs = Cells(m, sent, self.connections, self.starts_of, self.clear)
        with m.If(self.starts):
            sent_rtrs.write(m, Cat(self.send_rtr, self.read_rtr))
        rtrs = []
        for name, behind_rtr in zip(("send", "read"), sent_rtrs.read(m, x.connection), strict=True):
            used = Signal(name=f"{name}s_used")
            cells = Cells(m, used, self.connections, x.connection, self.clear)
            rtrs.append((cells, Mux(used, 0, FIRST_MSN << behind_rtr)))
        (send_used, first_send), (read_used, first_read) = rtrs
        m.d.comb += [
            x.msn.eq(Mux(x.is_request, read_msn | first_read, send_msn | first_send)), next_msn.eq(x.msn + 1)
        ]
        with m.If(x.ends_header & x.last_segment & ~x.tagged):
            with m.If(x.is_request):
                reads.write(m)
                read_used.write(m, 1)
            with m.Else():
                sends.write(m)
                send_used.write(m, 1)

    def _number(self, m, x):
        """The MSNs of the next Send and of the next RDMA Read Request; an RTR has the first one of its queue."""
        if x.many:
            self._number_many(m, x)
            return
        send_msn = Signal(32)
        read_msn = Signal(32)
        next_msn = Signal(32)
        m.d.comb += [x.msn.eq(Mux(x.is_request, read_msn, send_msn)), next_msn.eq(x.msn + 1)]
        with m.If(~self.starts):
            m.d.sync += [send_msn.eq(FIRST_MSN + self.send_rtr), read_msn.eq(FIRST_MSN + self.read_rtr)]
        with m.Elif(x.ends_header & x.last_segment & ~x.tagged):
            with m.If(x.is_request):
                m.d.sync += read_msn.eq(next_msn)
            with m.Else():
                m.d.sync += send_msn.eq(next_msn)

    def _header(self, m, x):
        """The header of the segment, in the order of the wire (RFC 5041 §4, RFC 5040 §4.1, §4.4).

        What is left of a message is given back in the order of ``fields``; the first word has the Opcode. What does not
        change behind the header is given back while the octets of the segment are named.
        """
        control = Cat(
            Const(VERSION, 2), Const(0, 4), x.last_segment, x.tagged, x.opcode, Const(0, 2), Const(VERSION, 2)
        )
        queue = swap_octets(Mux(x.is_request, Const(Queue.READ, 32), Const(Queue.SEND, 32)))
        fields = [swap_octets(value) for value in (
            Const(0, 32), x.stag, x.to[32:], x.to[:32], x.msn, x.left, x.fragment_left, x.address,
        )]  # fmt: skip
        small, stag, to_high, to_low, msn, left, sink, address = range(len(fields))
        mo = to_low
        tagged = (small, stag, to_high, to_low)
        send = (small, small, small, msn, mo)
        invalidate = (small, stag, small, msn, mo)
        request = (small, small, small, msn, small, sink, small, address, left, stag, to_high, to_low)
        for lane in range(self.lanes):
            # The control field, the queue number and reserved fields are of few bits, which vary.
            few = Const(0, 32)
            for at, value in ((0, Cat(x.length, control)), (2, queue)):
                if at % self.lanes == lane:
                    few = Mux(x.header_word == at // self.lanes, value, few)
            chosen = Signal(range(len(fields)), name=f"header_field_{lane}")
            for kind, order in ((x.tagged, tagged), (x.is_request, request), (x.invalidates, invalidate), (1, send)):
                with m.If(kind) if kind is x.tagged else m.Elif(kind):
                    for n, field in enumerate(order[lane :: self.lanes]):
                        with m.If(x.header_word == n):
                            m.d.comb += chosen.eq(field)
            if x.many:
                with m.If(~x.in_header):
                    m.d.comb += chosen.eq(x.header_word * self.lanes + lane)
            word = x.header_data.word_select(lane, 32)
            m.d.comb += word.eq(_chosen([few, *fields[1:]], chosen))

    def _begin(self, m, x):
        """Begin a message, or the next segment of one."""
        given, fragment = self.message.payload, self.fragment.payload
        goes_on = x.goes_on
        begins = Signal()
        tagged = Signal()
        is_request = Signal()
        left = Signal(32)
        limit = Signal(16)
        fits = Signal()
        fitting = Signal(16)  # octets of the payload
        whole = Signal(16)  # octets of the ULPDU
        if x.many:
            goes_on = 0
        m.d.comb += [
            tagged.eq(Mux(goes_on, x.tagged, given.opcode.matches(*TAGGED))),
            is_request.eq(~goes_on & (given.opcode == Opcode.RDMA_READ_REQUEST)),
            left.eq(Mux(goes_on, x.left, given.octets)),
            limit.eq(self.mulpdu - Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS)),
            fits.eq(~left[16:].any() & (left[:16] <= limit)),
            fitting.eq(Mux(is_request, 0, Mux(fits, left, limit))),
            whole.eq(Mux(is_request, UNTAGGED_OCTETS + READ_REQUEST_OCTETS,
                         Mux(fits, left + Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS), self.mulpdu))),
        ]  # fmt: skip
        may_begin = x.may_begin
        m.d.comb += [
            may_begin.eq(~x.in_segment & self.runs & (goes_on | self.message.valid) & (~x.saving if x.many else 1)),
            begins.eq(may_begin & (~Mux(goes_on, self.segments.answering, given.response)
                                   | (self.segments.message_live if x.many else self.segments.live))),
        ]
        with m.If(may_begin & ~begins):
            m.d.sync += (self.refused.bit_select(self.segments.message_connection, 1) if x.many else self.refused).eq(1)
        m.d.comb += [
            x.begins.eq(begins),
            x.last_begins.eq(fits | is_request),
            x.takes.eq(begins if x.many else may_begin & ~goes_on),
            self.message.ready.eq(x.takes),
            self.asks.eq(x.takes & is_request),
        ]
        with m.If(begins):
            m.d.sync += [
                x.last_segment.eq(x.last_begins),
                x.payload.eq(fitting),
                x.length.eq(whole),
                x.header_word.eq(0),
                x.in_header.eq(1),
                x.in_segment.eq(1),
            ]
        with m.If(x.takes):
            m.d.sync += [
                x.goes_on.eq(1),
                x.opcode.eq(given.opcode),
                x.fabric.eq(given.fabric),
                x.stag.eq(given.stag),
                self.segments.answering.eq(given.response),
                *([x.connection.eq(self.segments.message_connection)] if x.many else []),
            ]
        self._load(m, x, tagged | is_request, fitting)
        m.d.comb += [self.asked.stag.eq(fragment.octets), self.asked.some.eq(given.octets != 0)]

    def _load(self, m, x, has_to, fitting):
        """Load the registers of many bits, each with one enable and one choice: a new value, or the octets left."""
        given, fragment = self.message.payload, self.fragment.payload
        with m.If(x.takes | (x.ends_header if x.many else x.ends & ~x.void)):
            m.d.sync += [
                x.to.eq(Mux(x.in_segment, x.to + x.payload, Mux(has_to | x.resumes, given.to, 0))),
                x.left.eq(Mux(x.in_segment, x.left - x.payload, given.octets)),
            ]
        with m.If(x.begins | x.moves_payload):
            m.d.sync += x.payload_left.eq(Mux(x.in_segment, x.payload_left - x.count, fitting))
        with m.If(x.takes | x.loads | x.moves_payload):
            loads = ~x.in_segment | x.loads
            m.d.sync += [
                x.address.eq(Mux(loads, fragment.address, x.address + x.count)),
                x.fragment_left.eq(Mux(loads, fragment.octets, x.fragment_left - x.count)),
            ]
        with m.If(x.takes | x.loads):
            m.d.sync += x.last_fragment.eq(fragment.last)

    def _segment(self, m, x):
        """Name the octets of the segment: those of the header, then those of the fragments."""
        source = x.sources.i.payload
        dead = Signal()  # the source must not be read any more
        offered = Signal()  # a read that memory has not taken, and that must not be withdrawn
        moves = Signal()
        start, last_header, ends = self._measure(m, x)
        m.d.comb += [
            dead.eq(~x.in_header & self.segments.answering & ~self.segments.live & ~offered),
            source.memory.eq(~x.in_header & ~dead),
            x.void.eq(dead),
            source.data.eq(x.header_data),
            source.start.eq(Mux(dead, _VOID, start)),
            source.some.eq(x.count),
            source.last.eq(ends),
            source.fabric.eq(x.fabric),
            *([source.connection.eq(x.connection)] if x.many else []),
            source.done.eq(x.finishes & ~self.segments.answering & ~x.is_request),
            self.read.payload.eq(x.address[len(start):]),
            x.moves_header.eq(moves & x.in_header),
            x.ends_header.eq(x.moves_header & last_header),
            x.moves_payload.eq(moves & ~x.in_header),
            x.ends.eq(moves & ends),
            x.finishes.eq(x.ends & x.last_segment),
            self.answers.eq(x.finishes & self.segments.answering & ~dead),
            self.fragment.ready.eq(x.takes | x.loads),
        ]  # fmt: skip
        with m.If(x.in_segment):
            with m.If(x.in_header):
                m.d.comb += [x.sources.i.valid.eq(1), moves.eq(x.sources.i.ready)]
            with m.Elif(~x.last_fragment & (x.fragment_left == 0)):
                m.d.comb += [x.loads.eq(self.fragment.valid), *([self.segments.wanted.eq(1)] if x.many else [])]
            with m.Else():
                m.d.comb += [
                    self.read.valid.eq(~dead & x.sources.i.ready),
                    x.sources.i.valid.eq(dead | self.read.ready),
                    moves.eq(x.sources.i.ready & (dead | self.read.ready)),
                ]
                with m.If(dead):
                    m.d.sync += (self.refused.bit_select(x.connection, 1) if x.many else self.refused).eq(1)
        m.d.sync += offered.eq(self.read.valid & ~self.read.ready)
        with m.If(x.moves_header):
            m.d.sync += x.header_word.eq(x.header_word + 1)
        with m.If(x.ends_header):
            m.d.sync += x.in_header.eq(0)
        with m.If(x.ends):
            m.d.sync += [x.in_segment.eq(0), x.goes_on.eq(0 if x.many else ~x.last_segment)]
        with m.If(x.ends if x.many else x.finishes):
            m.d.sync += self.segments.answering.eq(0)

    def _measure(self, m, x):
        """Count the octets that are named next, at most those of a word.

        Return the first one, whether the word is the last one of the header, and whether the segment ends with it.
        """
        octets = 4 * self.lanes
        start = Signal(range(octets))
        room = Signal(range(octets + 1))  # from there to the end of the word
        in_word = Signal(range(octets + 1))  # octets of the fragment in the word
        few = Signal()  # they are all of the payload that is left
        last_header = Signal()  # this word is the last one of the header
        header_end = Signal(range(octets + 1))  # in this word
        ends = Signal()  # the segment ends with these octets
        m.d.comb += [
            start.eq(Mux(x.in_header, Mux(x.header_word == 0, _PADDING, 0), x.address)),
            room.eq(octets - start),
            in_word.eq(Mux(x.last_fragment | _exceeds(x.fragment_left, room), room, x.fragment_left)),
            few.eq(~_exceeds(x.payload_left, in_word)),
            x.count.eq(Mux(x.in_header, header_end - start, Mux(few, x.payload_left, in_word))),
            ends.eq(Mux(x.in_header, last_header & (x.payload_left == 0), few)),
        ]  # fmt: skip
        for n, (kind, size) in enumerate((
            (x.tagged, TAGGED_OCTETS), (x.is_request, UNTAGGED_OCTETS + READ_REQUEST_OCTETS), (1, UNTAGGED_OCTETS),
        )):  # fmt: skip
            last_word, in_last = divmod(_PADDING + size - 1, octets)
            with m.Elif(kind) if n else m.If(kind):
                m.d.comb += [
                    last_header.eq(x.header_word == last_word),
                    header_end.eq(Mux(last_header, in_last + 1, octets)),
                ]
        return start, last_header, ends

    def _collect(self, m, x):
        """Put the octets of each source behind those before it."""
        source, piece, word = x.sources.o, x.realigner.i, x.realigner.o
        memory = source.payload.memory
        moves = Signal()
        fails = Signal()  # this word, or one before it
        spoilt = Signal()  # some octets of the ULPDU have no meaning; the words of the one before it have left
        octets = word.payload.octets
        if x.many:
            failed, ruined = (flags.bit_select(connection_of(source.payload), 1) for flags in (self.failed, x.ruined))
        else:
            failed, ruined = self.failed, spoilt
        m.d.comb += [
            fails.eq(failed | (moves & memory & self.fault)),
            piece.valid.eq(source.valid & (~memory | self.words.valid)),
            moves.eq(piece.valid & piece.ready),
            source.ready.eq(moves),
            self.words.ready.eq(moves & memory),
            piece.payload.data.eq(Mux(memory, self.words.payload, source.payload.data)),
            *(piece.payload[name].eq(source.payload[name]) for name in ("start", "last")),
            piece.payload.count.eq(Cat(source.payload.some, source.payload.some == 0)),
            piece.payload.first.eq(~memory & (source.payload.start == _PADDING)),
            piece.payload.at.eq(0),
            piece.payload.note.length.eq(source.payload.data[: 8 * _PADDING]),
            self.sent.eq(moves & source.payload.done & ~source.payload.fabric & ~fails),
            self.fabric_sent.eq(moves & source.payload.done & source.payload.fabric & ~fails),
            self.o.valid.eq(word.valid),
            word.ready.eq(self.o.ready),
            *(self.o.payload[name].eq(word.payload[name]) for name in ("data", "last")),
            self.o.payload.octets.eq(Mux(spoilt, ((octets - 1) ^ 1) + 1, octets)),
            self.o.payload.length.eq(word.payload.note.length),
            self.ulpdu.eq(self.o.valid & self.o.ready & self.o.payload.last),
        ]
        void = ~memory & (source.payload.start == _VOID)
        if not x.many:
            m.d.comb += self.sending.eq((x.goes_on & self.runs) | x.in_segment | source.valid | x.realigner.busy)
            m.d.sync += [self.failed.eq(fails), spoilt.eq(spoilt | fails | (moves & void))]
            return
        of = word.payload.note.connection
        m.d.comb += [
            spoilt.eq(x.ruined.bit_select(of, 1)),
            piece.payload.note.connection.eq(source.payload.connection),
            self.o.payload.connection.eq(of),
            self.ulpdu_of.eq(of),
            self.sent_of.eq(source.payload.connection),
        ]
        with m.If(moves):
            m.d.sync += [failed.eq(fails), ruined.eq(ruined | fails | void)]


def _exceeds(large: Value, small: Value) -> Value:
    """Whether a number exceeds one of few bits."""
    bits = len(small)
    return large[bits:].any() | (large[:bits] > small)


def _chosen(values: list[Value], number: Value) -> Value:
    """The value of this number, by a tree of multiplexers."""
    for bit in number:
        pairs = zip_longest(values[::2], values[1::2], fillvalue=values[-1])
        values = [low if low is high else Mux(bit, high, low) for low, high in pairs]
    return values[0]


class _Parts:
    """The blocks and the signals that the parts of an :class:`RdmaSender` share."""

    def __init__(self, sender: RdmaSender):
        lanes = sender.lanes
        self.many = sender.connections > 1
        self.sources = Fifo(_Source(lanes, sender.connections), MAX_OUTSTANDING)
        self.realigner = Realigner(lanes, _Note(sender.connections))
        if self.many:
            self.connection = Signal.like(sender.segments.message_connection)  # of the segment
            self.saving = Signal()  # the rest of its message is given back
            self.ruined = Signal(sender.connections)  # ULPDUs of the connection are given up
            self.resumes = sender.segments.resumes
        else:
            self.resumes = Const(0)

        # The message.
        self.goes_on = Signal()  # it has begun, and not ended
        self.opcode = Signal(4)
        self.fabric = Signal()
        self.stag = Signal(32, reset_less=True)
        self.to = Signal(64, reset_less=True)  # of the segment; of a Send, the low half is the MO
        self.msn = Signal(32)
        self.tagged = Signal()
        self.is_request = Signal()
        self.invalidates = Signal()
        self.finishes = Signal()  # its last octets are named in this cycle
        self.void = Signal()  # octets of no meaning, because its source has been revoked

        # Its segment.
        self.may_begin = Signal()
        self.begins = Signal()
        self.last_begins = Signal()  # it is the last one of its message
        self.takes = Signal()  # the message begins, too
        self.ends = Signal()
        self.in_segment = Signal()
        self.last_segment = Signal()
        self.length = Signal(16, reset_less=True)
        self.payload = Signal(16, reset_less=True)
        self.payload_left = Signal(16, reset_less=True)
        self.in_header = Signal()
        self.header_word = Signal(range(16))
        self.header_data = Signal(32 * lanes)

        self.count = Signal(range(4 * lanes + 1))  # octets that are named in this cycle
        self.moves_header = Signal()  # they are the header's
        self.ends_header = Signal()  # the header ends with them
        self.moves_payload = Signal()

        # Its fragment.
        self.loads = Signal()
        self.address = Signal(ADDRESS_BITS, reset_less=True)
        self.fragment_left = Signal(32, reset_less=True)  # of an RDMA Read: the STag of its sink
        self.last_fragment = Signal()
