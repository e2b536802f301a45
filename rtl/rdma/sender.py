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
from open_rnic.rtl.lib.rows import Cells, Clear, InFlight, connection_field, connection_shape, forget, only_many
from open_rnic.rtl.lib.stream import Fifo, swap_octets
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, Fragment, Message, Segments, Sink, word_bits
from open_rnic.rtl.rdma.msn import MsnCells
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
    ``fabric``, of logic beside the engine. ``connection`` is the ULPDU's.
    """

    def __init__(self, lanes: int, connections: int):
        octets = 4 * lanes
        super().__init__({
            "memory": 1, "data": 32 * lanes, "start": range(octets), "some": range(octets), "last": 1, "done": 1,
            "fabric": 1, **connection_field(connections),
        })  # fmt: skip


class _Note(data.StructLayout):
    """The length of a ULPDU, and its connection."""

    def __init__(self, connections: int):
        super().__init__({"length": 16, **connection_field(connections)})


class SenderSettings(data.Struct):
    """The settings of a connection.

    ``runs``: ULPDUs are begun. Before the first message, ``send_rtr`` or ``read_rtr`` says that an RTR of this end has
    the first MSN; ``starts``: these two are settled, and messages may come.
    """

    runs: 1
    mulpdu: 16
    send_rtr: 1
    read_rtr: 1
    starts: 1


class SenderStatus(wiring.Signature):
    """The state of a connection, as in the register STATUS.

    ``left``: octets of the message that have not been sent; ``failed``: memory could not read a word. With many
    connections, ``refused`` and ``failed`` have a bit for each.
    """

    def __init__(self, connections: int):
        super().__init__({"left": Out(32), "refused": Out(connections), "failed": Out(connections), "sending": Out(1)})


class SenderTurn(wiring.Signature):
    """The connections of ``sent``, ``ulpdu`` and ``starts``, and ``shown``, that of ``left`` and ``sending``.

    ``idle``: no ULPDU is in the block.
    """

    def __init__(self, connections: int):
        number = connection_shape(connections)
        super().__init__({
            "sent_of": Out(number), "ulpdu_of": Out(number), "starts_of": In(number), "shown": In(number),
            "idle": Out(1),
        })  # fmt: skip


class RdmaSender(wiring.Component):
    """Transmit of the RDMA engine.

    ::

        messages ▸ segments ▸ octets of headers, and words of memory ▸ Realigner ▸ ULPDUs

    Messages leave in segments of at most ``mulpdu`` octets: each is as long as fits, except the last. A Read Response
    whose source must not be read sets ``refused``, and no other segment begins; memory is not read, except for a word
    that it has been offered already. A segment that has begun, or one with a word that memory could not read, is given
    up: the ULPDU is an octet longer or shorter than its ``length``, in as many lanes, which invalidates its FPDU (see
    :class:`.Fence`). It does not count as sent, and all ULPDUs behind it are given up, too.

    Latency: 5 cycles and that of the memory, from a message to its first beat. Throughput: one beat per cycle, but a
    cycle more for each ULPDU, for each ULPDU whose octets lie in more words of memory than it has beats, and for each
    fragment.

    Members
    -------
    message : In, stream of :class:`.Message`
    fragment : In, stream of :class:`.Fragment`; the pieces of each message, in order; the first comes with the message
    segments : Out, :class:`.Segments`
    settings : In, :class:`SenderSettings`
    o : Out, stream of :class:`.TxUlpdu`
    read, words, fault : Out, stream of addresses; In, stream of words; In, 1 bit; see :class:`.MemoryPort`
    asks, asked : Out, 1 bit; Out, :class:`.Sink`; an RDMA Read Request with this sink is being sent. For one cycle
    answers : Out, 1 bit; the last octets of a Read Response have been read. For one cycle
    sent, fabric_sent : Out, 1 bit; as ``answers``, of a Send or RDMA Write of the host, or of logic beside the engine
    ulpdu : Out, 1 bit; a ULPDU has been sent, or given up
    status : Out, :class:`SenderStatus`

    With many connections, every message is taken for one segment; if another one follows, what is left of the message
    is given back, and comes again as a message. ``runs`` and ``mulpdu`` are those of ``segments.message_connection``,
    ``answers`` is of ``segments.connection``, ``starts`` is 1 for one cycle, and there are

    turn : Out, :class:`SenderTurn`
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.connections = connections
        many = {"turn": Out(SenderTurn(connections)), "clear": In(Clear(connections))}
        super().__init__({
            "message": In(stream.Signature(Message)), "fragment": In(stream.Signature(Fragment)),
            "segments": Out(Segments(lanes, connections)), "settings": In(SenderSettings),
            "o": Out(stream.Signature(TxUlpdu(lanes, connections))),
            "read": Out(stream.Signature(word_bits(lanes))), "words": In(stream.Signature(32 * lanes)), "fault": In(1),
            "asks": Out(1), "asked": Out(Sink), "answers": Out(1), "status": Out(SenderStatus(connections)),
            "sent": Out(1), "fabric_sent": Out(1), "ulpdu": Out(1), **only_many(connections, many),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        state = (_One if self.connections == 1 else _Many)(self)
        m.submodules.sources = state.sources
        m.submodules.realigner = state.realigner
        m.d.comb += [
            state.tagged.eq(state.opcode.matches(*TAGGED)),
            state.is_request.eq(state.opcode == Opcode.RDMA_READ_REQUEST),
            state.invalidates.eq(state.opcode.matches(*INVALIDATES)),
        ]
        state.count_messages(m)
        self._header(m, state)
        self._begin(m, state)
        self._segment(m, state)
        self._collect(m, state)
        state.complete(m)
        return m

    def _header(self, m, state):
        """The header of the segment, in the order of the wire (RFC 5041 §4, RFC 5040 §4.1, §4.4).

        What is left of a message is given back in the order of ``fields``; the first word has the Opcode. What does not
        change behind the header is given back while the octets of the segment are named.
        """
        control = Cat(
            Const(VERSION, 2), Const(0, 4), state.last_segment, state.tagged,
            state.opcode, Const(0, 2), Const(VERSION, 2),
        )  # fmt: skip
        queue = swap_octets(Mux(state.is_request, Const(Queue.READ, 32), Const(Queue.SEND, 32)))
        fields = [swap_octets(value) for value in (
            Const(0, 32), state.stag, state.to[32:], state.to[:32],
            state.msn, state.left, state.fragment_left, state.address,
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
            for at, value in ((0, Cat(state.length, control)), (2, queue)):
                if at % self.lanes == lane:
                    few = Mux(state.header_word == at // self.lanes, value, few)
            chosen = Signal(range(len(fields)), name=f"header_field_{lane}")
            for kind, order in (
                (state.tagged, tagged), (state.is_request, request), (state.invalidates, invalidate), (1, send),
            ):  # fmt: skip
                with m.If(kind) if kind is state.tagged else m.Elif(kind):
                    for n, field in enumerate(order[lane :: self.lanes]):
                        with m.If(state.header_word == n):
                            m.d.comb += chosen.eq(field)
            state.choose_saved(m, chosen, lane)
            word = state.header_data.word_select(lane, 32)
            m.d.comb += word.eq(_chosen([few, *fields[1:]], chosen))

    def _begin(self, m, state):
        """Begin a message, or the next segment of one."""
        given, fragment = self.message.payload, self.fragment.payload
        goes_on = state.continues
        begins = Signal()
        tagged = Signal()
        is_request = Signal()
        left = Signal(32)
        limit = Signal(16)
        fits = Signal()
        fitting = Signal(16)  # octets of the payload
        whole = Signal(16)  # octets of the ULPDU
        m.d.comb += [
            tagged.eq(Mux(goes_on, state.tagged, given.opcode.matches(*TAGGED))),
            is_request.eq(~goes_on & (given.opcode == Opcode.RDMA_READ_REQUEST)),
            left.eq(Mux(goes_on, state.left, given.octets)),
            limit.eq(self.settings.mulpdu - Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS)),
            fits.eq(~left[16:].any() & (left[:16] <= limit)),
            fitting.eq(Mux(is_request, 0, Mux(fits, left, limit))),
            whole.eq(Mux(is_request, UNTAGGED_OCTETS + READ_REQUEST_OCTETS,
                         Mux(fits, left + Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS), self.settings.mulpdu))),
        ]  # fmt: skip
        may_begin = state.may_begin
        m.d.comb += [
            may_begin.eq(~state.in_segment & self.settings.runs & (goes_on | self.message.valid) & ~state.saving),
            begins.eq(may_begin & (~Mux(goes_on, self.segments.answering, given.response)
                                   | state.message_live)),
        ]
        with m.If(may_begin & ~begins):
            m.d.sync += self.status.refused.bit_select(state.message_connection, 1).eq(1)
        m.d.comb += [
            state.begins.eq(begins),
            state.last_begins.eq(fits | is_request),
            state.takes.eq(state.takes_message),
            self.message.ready.eq(state.takes),
            self.asks.eq(state.takes & is_request),
        ]
        with m.If(begins):
            m.d.sync += [
                state.last_segment.eq(state.last_begins),
                state.payload.eq(fitting),
                state.length.eq(whole),
                state.header_word.eq(0),
                state.in_header.eq(1),
                state.in_segment.eq(1),
            ]
        with m.If(state.takes):
            m.d.sync += [
                state.goes_on.eq(1),
                state.opcode.eq(given.opcode),
                state.fabric.eq(given.fabric),
                state.stag.eq(given.stag),
                self.segments.answering.eq(given.response),
                state.connection.eq(state.message_connection),
            ]
        self._load(m, state, tagged | is_request, fitting)
        m.d.comb += [self.asked.stag.eq(fragment.octets), self.asked.some.eq(given.octets != 0)]

    def _load(self, m, state, has_to, fitting):
        """Load the registers of many bits, each with one enable and one choice: a new value, or the octets left."""
        given, fragment = self.message.payload, self.fragment.payload
        with m.If(state.takes | state.advances):
            m.d.sync += [
                state.to.eq(Mux(state.in_segment, state.to + state.payload, Mux(has_to | state.resumes, given.to, 0))),
                state.left.eq(Mux(state.in_segment, state.left - state.payload, given.octets)),
            ]
        with m.If(state.begins | state.moves_payload):
            m.d.sync += state.payload_left.eq(Mux(state.in_segment, state.payload_left - state.count, fitting))
        with m.If(state.takes | state.loads | state.moves_payload):
            loads = ~state.in_segment | state.loads
            m.d.sync += [
                state.address.eq(Mux(loads, fragment.address, state.address + state.count)),
                state.fragment_left.eq(Mux(loads, fragment.octets, state.fragment_left - state.count)),
            ]
        with m.If(state.takes | state.loads):
            m.d.sync += state.last_fragment.eq(fragment.last)

    def _segment(self, m, state):
        """Name the octets of the segment: those of the header, then those of the fragments."""
        source = state.sources.i.payload
        dead = Signal()  # the source must not be read any more
        offered = Signal()  # a read that memory has not taken, and that must not be withdrawn
        moves = Signal()
        start, last_header, ends = self._measure(m, state)
        m.d.comb += [
            dead.eq(~state.in_header & self.segments.answering & ~self.segments.live & ~offered),
            source.memory.eq(~state.in_header & ~dead),
            state.void.eq(dead),
            source.data.eq(state.header_data),
            source.start.eq(Mux(dead, _VOID, start)),
            source.some.eq(state.count),
            source.last.eq(ends),
            source.fabric.eq(state.fabric),
            source.connection.eq(state.connection),
            source.done.eq(state.finishes & ~self.segments.answering & ~state.is_request),
            self.read.payload.eq(state.address[len(start):]),
            state.moves_header.eq(moves & state.in_header),
            state.ends_header.eq(state.moves_header & last_header),
            state.moves_payload.eq(moves & ~state.in_header),
            state.ends.eq(moves & ends),
            state.finishes.eq(state.ends & state.last_segment),
            self.answers.eq(state.finishes & self.segments.answering & ~dead),
            self.fragment.ready.eq(state.takes | state.loads),
        ]  # fmt: skip
        with m.If(state.in_segment):
            with m.If(state.in_header):
                m.d.comb += [state.sources.i.valid.eq(1), moves.eq(state.sources.i.ready)]
            with m.Elif(~state.last_fragment & (state.fragment_left == 0)):
                m.d.comb += [state.loads.eq(self.fragment.valid), state.wants.eq(1)]
            with m.Else():
                m.d.comb += [
                    self.read.valid.eq(~dead & state.sources.i.ready),
                    state.sources.i.valid.eq(dead | self.read.ready),
                    moves.eq(state.sources.i.ready & (dead | self.read.ready)),
                ]
                with m.If(dead):
                    m.d.sync += self.status.refused.bit_select(state.connection, 1).eq(1)
        m.d.sync += offered.eq(self.read.valid & ~self.read.ready)
        with m.If(state.moves_header):
            m.d.sync += state.header_word.eq(state.header_word + 1)
        with m.If(state.ends_header):
            m.d.sync += state.in_header.eq(0)
        with m.If(state.ends):
            m.d.sync += [state.in_segment.eq(0), state.goes_on.eq(~state.last_segment)]
        with m.If(state.ends_answer):
            m.d.sync += self.segments.answering.eq(0)

    def _measure(self, m, state):
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
            start.eq(Mux(state.in_header, Mux(state.header_word == 0, _PADDING, 0), state.address)),
            room.eq(octets - start),
            in_word.eq(Mux(state.last_fragment | _exceeds(state.fragment_left, room), room, state.fragment_left)),
            few.eq(~_exceeds(state.payload_left, in_word)),
            state.count.eq(Mux(state.in_header, header_end - start, Mux(few, state.payload_left, in_word))),
            ends.eq(Mux(state.in_header, last_header & (state.payload_left == 0), few)),
        ]  # fmt: skip
        for n, (kind, size) in enumerate((
            (state.tagged, TAGGED_OCTETS), (state.is_request, UNTAGGED_OCTETS + READ_REQUEST_OCTETS),
            (1, UNTAGGED_OCTETS),
        )):  # fmt: skip
            last_word, in_last = divmod(_PADDING + size - 1, octets)
            with m.Elif(kind) if n else m.If(kind):
                m.d.comb += [
                    last_header.eq(state.header_word == last_word),
                    header_end.eq(Mux(last_header, in_last + 1, octets)),
                ]
        return start, last_header, ends

    def _collect(self, m, state):
        """Put the octets of each source behind those before it."""
        source, piece, word = state.sources.o, state.realigner.i, state.realigner.o
        memory = source.payload.memory
        moves = Signal()
        fails = Signal()  # this word, or one before it
        spoilt = Signal()  # some octets of the ULPDU have no meaning; the words of the one before it have left
        octets = word.payload.octets
        connection, leaves = source.payload.connection, word.payload.note.connection
        failed, ruined = self.status.failed.bit_select(connection, 1), state.ruined.bit_select(connection, 1)
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
            piece.payload.note.connection.eq(connection),
            self.sent.eq(moves & source.payload.done & ~source.payload.fabric & ~fails),
            self.fabric_sent.eq(moves & source.payload.done & source.payload.fabric & ~fails),
            self.o.valid.eq(word.valid),
            word.ready.eq(self.o.ready),
            *(self.o.payload[name].eq(word.payload[name]) for name in ("data", "last")),
            self.o.payload.octets.eq(Mux(spoilt, ((octets - 1) ^ 1) + 1, octets)),
            self.o.payload.length.eq(word.payload.note.length),
            self.o.payload.connection.eq(leaves),
            self.ulpdu.eq(self.o.valid & self.o.ready & self.o.payload.last),
        ]
        void = ~memory & (source.payload.start == _VOID)
        m.d.comb += spoilt.eq(state.ruined.bit_select(leaves, 1))
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


class _State:
    """The message and the segment that are sent, and the blocks that make ULPDUs of them."""

    def __init__(self, sender: RdmaSender):
        lanes = sender.lanes
        self.sender = sender
        self.sources = Fifo(_Source(lanes, sender.connections), MAX_OUTSTANDING)
        self.realigner = Realigner(lanes, _Note(sender.connections))
        self.ruined = Signal(sender.connections)  # ULPDUs of the connection are given up

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
        self.connection = Signal(connection_shape(sender.connections))
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
        self.wants = Signal()  # the segment needs the next one
        self.loads = Signal()
        self.address = Signal(ADDRESS_BITS, reset_less=True)
        self.fragment_left = Signal(32, reset_less=True)  # of an RDMA Read: the STag of its sink
        self.last_fragment = Signal()


class _One(_State):
    """The state of the only connection, whose message continues in registers from segment to segment.

    To give back its rest, as many connections must, would take cycles and a choice of words that one has no need of.
    """

    def __init__(self, sender: RdmaSender):
        super().__init__(sender)
        self.left = sender.status.left
        self.message_connection = self.saving = self.resumes = Const(0)
        self.continues = self.goes_on
        self.message_live = sender.segments.live
        self.takes_message = self.may_begin & ~self.goes_on
        self.advances = self.ends & ~self.void
        self.ends_answer = self.finishes

    def choose_saved(self, m, chosen, lane):
        pass

    def count_messages(self, m):
        """The MSNs of the next Send and of the next RDMA Read Request; an RTR has the first one of its queue."""
        sender = self.sender
        send_msn = Signal(32)
        read_msn = Signal(32)
        next_msn = Signal(32)
        m.d.comb += [self.msn.eq(Mux(self.is_request, read_msn, send_msn)), next_msn.eq(self.msn + 1)]
        with m.If(~sender.settings.starts):
            m.d.sync += [
                send_msn.eq(FIRST_MSN + sender.settings.send_rtr), read_msn.eq(FIRST_MSN + sender.settings.read_rtr),
            ]  # fmt: skip
        with m.Elif(self.ends_header & self.last_segment & ~self.tagged):
            with m.If(self.is_request):
                m.d.sync += read_msn.eq(next_msn)
            with m.Else():
                m.d.sync += send_msn.eq(next_msn)

    def complete(self, m):
        """Whether a message, or octets of one, are in the block."""
        sender = self.sender
        busy = self.in_segment | self.sources.o.valid | self.realigner.busy
        m.d.comb += sender.status.sending.eq((self.goes_on & sender.settings.runs) | busy)


class _Many(_State):
    """The state of many connections: the rest of a message is given back behind each segment, before another's."""

    def __init__(self, sender: RdmaSender):
        super().__init__(sender)
        segments = sender.segments
        self.left = Signal(32, name="rest")
        self.message_connection = segments.message_connection
        self.saving = Signal()  # the rest of its message is given back
        self.resumes = segments.resumes
        self.continues = Const(0)
        self.message_live = segments.message_live
        self.takes_message = self.begins
        self.advances = self.ends_header
        self.ends_answer = self.ends

    def choose_saved(self, m, chosen, lane):
        """Behind the header, choose the words that are given back."""
        with m.If(~self.in_header):
            m.d.comb += chosen.eq(self.header_word * self.sender.lanes + lane)

    def count_messages(self, m):
        sender = self.sender
        next_msn = Signal(32)
        msns = MsnCells(m, sender.connections, self.connection, sender.turn.starts_of, sender.clear, next_msn)
        m.d.comb += [self.msn.eq(Mux(self.is_request, msns.read, msns.send)), next_msn.eq(self.msn + 1)]
        with m.If(sender.settings.starts):
            msns.note_rtr(m, sender.settings.send_rtr, sender.settings.read_rtr)
        with m.If(self.ends_header & self.last_segment & ~self.tagged):
            with m.If(self.is_request):
                msns.use_read(m)
            with m.Else():
                msns.use_send(m)

    def complete(self, m):
        """Give back the rest of a message, and show what has been sent of it."""
        sender = self.sender
        last_left = Signal(32)  # of the last message, when its last segment was to begin
        cells = Cells(m, last_left, sender.connections, sender.segments.message_connection, sender.clear)
        with m.If(self.may_begin):
            cells.write(m, sender.message.payload.octets)
        begins_of = sender.segments.message_connection
        ulpdus = InFlight(m, "ulpdus", 5, sender.connections, begins_of, sender.turn.ulpdu_of, sender.clear)
        ulpdus.begun.count(m, self.begins)
        ulpdus.ended.count(m, sender.ulpdu)
        m.d.comb += [
            sender.status.left.eq(cells.read(m, sender.turn.shown)),
            sender.status.sending.eq(ulpdus.any(m, sender.turn.shown)),
            sender.turn.ulpdu_of.eq(sender.o.payload.connection),
            sender.turn.sent_of.eq(self.sources.o.payload.connection),
            sender.segments.wanted.eq(self.wants),
            sender.segments.unfinished.eq(~self.last_begins),
            sender.segments.connection.eq(self.connection),
            sender.segments.ends.eq(self.ends),
            sender.segments.busy.eq(self.in_segment | self.saving),
            sender.segments.saves.eq(self.saving | (self.in_segment & ~self.in_header & ~self.last_segment
                                      & (self.header_word < _EARLY // sender.lanes))),
            sender.segments.save_at.eq(self.header_word),
            sender.segments.saved.eq(self.header_data),
            sender.turn.idle.eq(~(self.in_segment | self.saving | self.sources.o.valid | self.realigner.busy)),
        ]
        with m.If(self.ends_header):
            m.d.sync += self.header_word.eq(0)
        with m.If(sender.segments.saves):
            m.d.sync += self.header_word.eq(self.header_word + 1)
        with m.If(self.ends & ~self.last_segment & ~self.void):
            m.d.sync += self.saving.eq(1)
        with m.If(self.saving):
            m.d.sync += self.saving.eq(self.header_word != max(1, _SAVED // sender.lanes) - 1)
        forget(m, sender.clear, sender.status.refused, sender.status.failed, self.ruined)
