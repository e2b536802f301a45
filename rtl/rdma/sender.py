"""Transmit: messages become ULPDUs (RFC 5041 §5.2), and RDMA Reads of the peer are answered."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo, swap_octets
from open_rnic.rtl.opcodes import READ_REQUEST_OCTETS, TAGGED_OCTETS, UNTAGGED_OCTETS, Opcode, Queue
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, FabricWork, Fragment, Sink, Work, word_bits
from open_rnic.rtl.rdma.realigner import Realigner
from open_rnic.rtl.rdma.receiver import FIRST_MSN, request_row_octets
from open_rnic.rtl.rdma.regions import Found, Request, still_live
from open_rnic.rtl.rdma.registers import REQUEST_WORDS, Right
from open_rnic.rtl.registers import Rtr

__all__ = ["RdmaSender"]

_DEPTH = 16  # words that may be read ahead
_VERSION = 1  # RFC 5041 §4.1, RFC 5040 §4.1
_INVALIDATES = (Opcode.SEND_INVALIDATE, Opcode.SEND_SE_INVALIDATE)


class _Source(data.StructLayout):
    """Octets of a ULPDU: a word of a header, or the place of octets in a word of memory."""

    def __init__(self, lanes: int):
        octets = 4 * lanes
        super().__init__({
            "memory": 1, "data": 32 * lanes, "start": range(octets), "count": range(octets + 1), "first": 1, "last": 1,
            "length": 16, "done": 1, "fabric": 1,
        })  # fmt: skip


class RdmaSender(wiring.Component):
    """Transmit of the RDMA engine.

    ::

        work, RDMA Read Requests ▸ messages ▸ segments ▸ header words and reads of memory ▸ Realigner ▸ ulpdus

    Messages leave one after the other, in segments of at most ``mulpdu`` octets. Read Responses, posted work and the
    work of the fabric take turns. An RDMA Read waits while ``ord`` of them are outstanding, and a fenced message while
    any is (RFC 5040 §5.5 rules 12 and 13): all posted work behind it waits, too.

    A Read Response's source is looked up once; a region that is revoked is not read any more: the segment that has
    begun ends with octets of no meaning, and ``source_refused`` is set (RFC 5040 §5.2.1, §7.2).

    Latency: 7 cycles and that of the memory, from the work to the first beat. Throughput: one beat per cycle; a cycle
    more for each ULPDU.

    Members
    -------
    work : In, stream of :class:`.Work`
    fragments : In, stream of :class:`.Fragment`
    fabric : In, stream of :class:`.FabricWork`
    fabric_done : Out, 1 bit
        All octets of a message of the fabric have been read from memory. For one cycle.
    o : Out, stream of :class:`.TxUlpdu`
    read : Out, stream of a word's address
    words : In, stream of 32 * ``lanes`` bits
        See :class:`.MemoryPort`.
    request, request_word, request_at : In
        Of :class:`.RdmaReceiver`: a word for the memory of RDMA Read Requests.
    arrived : In, 1 bit
        An RDMA Read Request is complete.
    requested : In, 1 bit
        An RDMA Read Request will be complete.
    outstanding : Out, 8 bits
        RDMA Read Requests, without those whose Read Response's last segment is being sent.
    lookup, found, step, revokes, revoked_row
        Of :class:`.RegionTable`.
    sinks : Out, stream of :class:`.Sink`
        The RDMA Reads that wait for their responses.
    answered : In, 1 bit
        A Read Response is complete.
    enable, stop : In, 1 bit
        As in the register CONTROL. With ``stop``, no other ULPDU is begun.
    mulpdu, ord : In
        As in the register LIMITS.
    send_rtr : In, 1 bit
        This end sends a Send RTR: it has the first MSN. Settled before ``enable``.
    read_rtr : In, 1 bit
        This end sends a Read RTR: the same.
    rtr_answered : In, 1 bit
        Its Read Response has arrived.
    rtr : In, :class:`.Rtr`
        Of :class:`.RdmaReceiver`.
    sending, source_refused : Out, 1 bit
    reads : Out, 8 bits
        As in the register STATUS.
    sent : Out, 1 bit
        All octets of a posted Send or RDMA Write have been read from memory. For one cycle.
    answering_msn : Out, 32 bits
    answering : Out, 7 * 32 bits
    answered_octets : Out, 32 bits
        As in the registers TX_READ_MSN, SOURCE_0 to SOURCE_6, and SOURCE_SENT.
    ulpdu : Out, 1 bit
        A ULPDU has been sent.
    """

    def __init__(self, lanes: int, rows: int, reads: int):
        check_lanes(lanes)
        if not 2 <= reads <= 128 or reads & (reads - 1):
            raise ValueError(f"reads must be a power of 2 from 2 to 128, not {reads!r}")
        self.lanes = lanes
        self.rows = rows
        self.reads_depth = reads
        self.row_words = request_row_octets(lanes) // (4 * lanes)
        super().__init__({
            "work": In(stream.Signature(Work)), "fragments": In(stream.Signature(Fragment)),
            "fabric": In(stream.Signature(FabricWork())), "fabric_done": Out(1),
            "o": Out(stream.Signature(TxUlpdu(lanes))),
            "read": Out(stream.Signature(word_bits(lanes))), "words": In(stream.Signature(32 * lanes)),
            "request": In(1), "request_word": In(32 * lanes), "request_at": In(range(reads * self.row_words)),
            "arrived": In(1), "requested": In(1), "outstanding": Out(8),
            "lookup": Out(Request()), "found": In(Found(rows)), "step": In(1),
            "revokes": In(1), "revoked_row": In(range(rows)),
            "sinks": Out(stream.Signature(Sink)), "answered": In(1),
            "enable": In(1), "stop": In(1), "mulpdu": In(16), "ord": In(8),
            "send_rtr": In(1), "read_rtr": In(1), "rtr_answered": In(1), "rtr": In(Rtr),
            "sending": Out(1), "source_refused": Out(1), "reads": Out(8), "sent": Out(1),
            "answering_msn": Out(32, init=FIRST_MSN), "answering": Out(32 * REQUEST_WORDS), "answered_octets": Out(32),
            "ulpdu": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self)
        m.submodules.sources = x.sources
        m.submodules.realigner = x.realigner
        self._count(m, x)
        self._choose(m, x)
        self._header(m, x)
        self._requests(m, x)
        with m.FSM():
            self._begin(m, x)
            self._load(m, x)
            self._segment(m, x)
        self._collect(m, x)
        return m

    def _count(self, m, x):
        """Count messages: MSNs, and the RDMA Reads of both ends that are outstanding."""
        own_reads = Signal(8)
        rtr_open = Signal()  # the Read RTR has not been answered
        complete = Signal(8)  # RDMA Read Requests that can be answered
        m.d.comb += [
            self.reads.eq(own_reads + rtr_open),
            x.may_read.eq(self.reads < self.ord),
            x.no_reads.eq(own_reads == 0),
            x.may_answer.eq(complete != 0),
        ]
        m.d.sync += [
            own_reads.eq(own_reads + x.asks - self.answered),
            self.outstanding.eq(self.outstanding + self.requested - x.answers),
            complete.eq(complete + self.arrived - x.answers),
            x.send_msn.eq(x.send_msn + x.sends),
            x.read_msn.eq(x.read_msn + x.asks),
            self.answering_msn.eq(self.answering_msn + x.answers),
        ]
        with m.If(~self.enable):  # an RTR has the first MSN of its queue
            m.d.sync += [
                rtr_open.eq(self.read_rtr),
                x.send_msn.eq(FIRST_MSN + self.send_rtr),
                x.read_msn.eq(FIRST_MSN + self.read_rtr),
            ]
        with m.If(self.rtr == Rtr.READ):
            m.d.sync += self.answering_msn.eq(FIRST_MSN + 1)
        with m.If(self.rtr_answered):
            m.d.sync += rtr_open.eq(0)
        m.submodules.sinks = sinks = Fifo(Sink, self.reads_depth)
        wiring.connect(m, sinks.o, wiring.flipped(self.sinks))
        m.d.comb += [
            sinks.i.valid.eq(x.asks),
            sinks.i.payload.stag.eq(self.fragments.payload.octets),
            sinks.i.payload.address.eq(self.fragments.payload.address),
            sinks.i.payload.octets.eq(x.left),
        ]

    def _choose(self, m, x):
        """The source of the next message: Read Responses, posted work, and the fabric take turns."""
        work = self.work.payload
        may_post = Signal()
        m.d.comb += [
            x.posted_opcode.eq(work.control),
            x.posts_read.eq(x.posted_opcode == Opcode.RDMA_READ_REQUEST),
            may_post.eq(self.work.valid & (~x.posts_read | x.may_read) & (~work.control[4] | x.no_reads)),
            x.runs.eq(self.enable & ~self.stop & ~self.source_refused),
            x.takes_request.eq(x.may_answer & ~(x.last_answered & (may_post | self.fabric.valid))),
            x.takes_work.eq(~x.takes_request & may_post & ~(x.last_posted & self.fabric.valid)),
            x.takes_fabric.eq(~x.takes_request & ~x.takes_work & self.fabric.valid),
        ]

    def _header(self, m, x):
        """The header of the segment, in the order of the wire (RFC 5041 §4, RFC 5040 §4.1, §4.4)."""
        message, fragment, work = x.message, self.fragments.payload, self.work.payload
        queue = Mux(message.opcode == Opcode.RDMA_READ_REQUEST, Const(Queue.READ, 32), Const(Queue.SEND, 32))
        request = (
            fragment.octets, Cat(fragment.address, Const(0, 32)), x.left, work.stag, Cat(work.to_low, work.to_high),
        )  # fmt: skip
        tagged = (message.to + x.sent_octets)[:64]
        untagged = (queue, message.to[:32], x.sent_octets, *request)
        control = Cat(
            Const(_VERSION, 2), Const(0, 4), x.last_segment, message.tagged,
            message.opcode, Const(0, 2), Const(_VERSION, 2),
        )  # fmt: skip
        behind = Cat(swap_octets(each) for each in untagged)
        m.d.comb += x.header.eq(Cat(
            control, swap_octets(message.stag), Mux(message.tagged, swap_octets(tagged), behind[:64]), behind[64:]
        ))  # fmt: skip

    def _requests(self, m, x):
        """The RDMA Read Requests that wait for their turn."""
        m.submodules.requests = memory = Memory(
            shape=32 * self.lanes, depth=self.reads_depth * self.row_words, init=[]
        )
        write, read = memory.write_port(), memory.read_port()
        oldest = Signal(range(self.reads_depth))
        m.d.sync += oldest.eq(oldest + x.answers)
        m.d.comb += [
            write.addr.eq(self.request_at),
            write.data.eq(self.request_word),
            write.en.eq(self.request),
            read.addr.eq(Cat(x.row_word[: (self.row_words - 1).bit_length()], oldest)),
            x.request_word.eq(read.data),
            self.answering.eq(Cat(x.request_fields)),
            self.answered_octets.eq(x.sent_octets),
            self.lookup.access.stag.eq(x.source_stag),
            self.lookup.access.to.eq(x.source_to),
            self.lookup.access.octets.eq(x.left),
        ]
        found = self.found
        m.d.sync += x.live.eq(Mux(x.looked_up, still_live(found.live, found.row, self),
                                  still_live(x.live, x.row, self)))  # fmt: skip

    def _begin(self, m, x):
        """Begin a message, or the next segment of one."""
        message, work, fabric = x.message, self.work.payload, self.fabric.payload
        begins = Signal()  # a segment
        is_request = Signal()  # it is an RDMA Read Request
        tagged = Signal()
        left = Signal(32)  # octets of the message from the segment on
        limit = Signal(16)
        fits = Signal()
        payload = Signal(16)
        header = Signal(range(UNTAGGED_OCTETS + READ_REQUEST_OCTETS + 1))
        m.d.comb += [
            limit.eq(self.mulpdu - Mux(tagged, TAGGED_OCTETS, UNTAGGED_OCTETS)),
            fits.eq(left <= limit),
            payload.eq(Mux(is_request, 0, Mux(fits, left, limit))),
            header.eq(Mux(tagged, TAGGED_OCTETS,
                          Mux(is_request, UNTAGGED_OCTETS + READ_REQUEST_OCTETS, UNTAGGED_OCTETS))),
        ]  # fmt: skip
        with m.State("Begin"):
            with m.If(~x.runs):
                pass
            with m.Elif(x.goes_on):
                m.d.comb += [left.eq(x.left), tagged.eq(message.tagged)]
                with m.If(message.response & ~x.live & (x.left != 0)):
                    m.d.sync += self.source_refused.eq(1)
                with m.Else():
                    m.d.comb += begins.eq(1)
            with m.Elif(x.takes_request):
                m.d.sync += [x.last_answered.eq(1), x.row_word.eq(0)]
                m.next = "Load"
            with m.Elif(x.takes_work):
                m.d.comb += [
                    begins.eq(1),
                    is_request.eq(x.posts_read),
                    tagged.eq(x.posted_opcode == Opcode.RDMA_WRITE),
                    left.eq(work.octets),
                ]
                m.d.sync += [
                    x.last_answered.eq(0), x.last_posted.eq(1),
                    message.opcode.eq(x.posted_opcode), message.fabric.eq(0),
                    message.stag.eq(Mux(tagged | x.posted_opcode.matches(*_INVALIDATES), work.stag, 0)),
                    message.to.eq(Mux(tagged, Cat(work.to_low, work.to_high),
                                      Mux(x.posts_read, x.read_msn, x.send_msn))),
                    x.fragment_left.eq(0),
                ]  # fmt: skip
            with m.Elif(x.takes_fabric):
                m.d.comb += [
                    begins.eq(1),
                    tagged.eq(fabric.opcode == Opcode.RDMA_WRITE),
                    left.eq(fabric.octets),
                    self.fabric.ready.eq(1),
                ]
                m.d.sync += [
                    x.last_answered.eq(0), x.last_posted.eq(0),
                    message.opcode.eq(fabric.opcode), message.fabric.eq(1),
                    message.stag.eq(Mux(tagged, fabric.stag, 0)),
                    message.to.eq(Mux(tagged, fabric.to, x.send_msn)),
                    x.address.eq(fabric.address), x.fragment_left.eq(fabric.octets),
                ]  # fmt: skip
            with m.If(begins):
                m.d.sync += [
                    message.tagged.eq(tagged),
                    x.last_segment.eq(fits | is_request),
                    x.left.eq(left),
                    x.payload.eq(payload),
                    x.payload_left.eq(payload),
                    x.header_left.eq(header),
                    x.header_word.eq(0),
                    x.length.eq(header + payload),
                    x.goes_on.eq(1),
                ]
                with m.If(~x.goes_on):
                    m.d.sync += [message.response.eq(0), x.sent_octets.eq(0)]
                m.next = "Segment"

    def _load(self, m, x):
        """Load an RDMA Read Request, and look its source up (RFC 5040 §5.2.1, §7.2)."""
        message, found = x.message, self.found
        with m.State("Load"):
            m.d.sync += [
                x.row_word.eq(x.row_word + 1),
                message.opcode.eq(Opcode.RDMA_READ_RESPONSE), message.tagged.eq(1), message.response.eq(1),
                message.fabric.eq(0), x.sent_octets.eq(0),
            ]  # fmt: skip
            for n, field in enumerate(x.request_fields):
                with m.If(x.row_word == n // self.lanes + 1):
                    m.d.sync += field.eq(swap_octets(x.request_word.word_select(n % self.lanes, 32)))
            with m.If(x.row_word == self.row_words):
                m.next = "Request"
        steps = Signal(2)
        with m.State("Request"):
            m.d.comb += self.lookup.valid.eq(1)
            m.d.sync += steps.eq(0)
            with m.If(self.lookup.granted):
                m.next = "Look"
        with m.State("Look"):
            m.d.sync += steps.eq(steps + self.step)
            with m.If(steps == 2):
                m.d.comb += x.looked_up.eq(1)
                m.d.sync += [x.address.eq(found.address), x.fragment_left.eq(x.left), x.row.eq(found.row)]
                with m.If((x.left == 0) | (found.live & found.fits & found.rights[Right.REMOTE_READ.bit_length() - 1])):
                    m.d.sync += x.goes_on.eq(1)
                with m.Else():
                    m.d.sync += self.source_refused.eq(1)
                m.next = "Begin"

    def _segment(self, m, x):
        """Give the header and the pieces of the payload to the queue of sources, and read the words of the payload."""
        octets = 4 * self.lanes
        message, source = x.message, x.sources.i.payload
        in_header = Signal()
        start = Signal(range(octets))
        room = Signal(range(octets + 1))  # from there to the end of the word
        in_word = Signal(range(octets + 1))  # octets of the fragment in the word
        count = Signal(range(octets + 1))
        dead = Signal()  # the source must not be read any more
        ends = Signal()  # the segment
        moves = Signal()
        lasts = Signal()
        m.d.comb += [
            in_header.eq(x.header_left != 0),
            start.eq(Mux(in_header, 0, x.address)),
            room.eq(octets - x.address[: len(start)]),
            in_word.eq(Mux(x.fragment_left < room, x.fragment_left, room)),
            count.eq(Mux(in_header, Mux(x.header_left < octets, x.header_left, octets),
                         Mux(x.payload_left < in_word, x.payload_left, in_word))),
            dead.eq(message.response & ~x.live),
            lasts.eq(Mux(in_header, (x.header_left <= octets) & (x.payload_left == 0), x.payload_left <= in_word)),
            source.data.eq(Array(
                x.header[32 * self.lanes * n:][: 32 * self.lanes] for n in range(-(-len(x.header) // (32 * self.lanes)))
            )[x.header_word]),
            source.memory.eq(~in_header & ~dead),
            source.start.eq(start),
            source.count.eq(count),
            source.first.eq(x.header_word == 0),
            source.last.eq(lasts),
            source.length.eq(x.length),
            source.fabric.eq(message.fabric),
            source.done.eq(lasts & x.last_segment & ~message.response & (message.opcode != Opcode.RDMA_READ_REQUEST)),
            self.read.payload.eq(x.address[len(start):]),
        ]  # fmt: skip
        reload = Signal()  # the next fragment of a posted message
        own = ~message.response & ~message.fabric & (message.opcode != Opcode.RDMA_READ_REQUEST)
        with m.State("Segment"):
            with m.If(in_header):
                m.d.comb += [x.sources.i.valid.eq(1), moves.eq(x.sources.i.ready)]
                m.d.comb += reload.eq(own & (x.fragment_left == 0) & (x.left != 0))
            with m.Elif(x.fragment_left == 0):
                m.d.comb += reload.eq(1)
            with m.Else():
                m.d.comb += [
                    self.read.valid.eq(~dead & x.sources.i.ready),
                    x.sources.i.valid.eq(dead | self.read.ready),
                    moves.eq(x.sources.i.ready & (dead | self.read.ready)),
                    reload.eq(own & moves & (count == x.fragment_left) & ~(lasts & x.last_segment)),
                ]
                with m.If(dead):
                    m.d.sync += self.source_refused.eq(1)
            with m.If(moves):
                with m.If(in_header):
                    m.d.sync += [x.header_left.eq(x.header_left - count), x.header_word.eq(x.header_word + 1)]
                with m.Else():
                    m.d.sync += [
                        x.payload_left.eq(x.payload_left - count),
                        x.fragment_left.eq(x.fragment_left - count),
                        x.address.eq(x.address + count),
                    ]
                with m.If(lasts):
                    m.d.comb += ends.eq(1)
                    m.d.sync += [
                        x.left.eq(x.left - x.payload), x.sent_octets.eq(x.sent_octets + x.payload),
                        x.goes_on.eq(~x.last_segment),
                    ]  # fmt: skip
                    m.next = "Begin"
            with m.If(reload):
                m.d.sync += [
                    x.address.eq(self.fragments.payload.address), x.fragment_left.eq(self.fragments.payload.octets),
                ]  # fmt: skip
        finishes = Signal()  # the message
        is_request = message.opcode == Opcode.RDMA_READ_REQUEST
        m.d.comb += [
            finishes.eq(ends & x.last_segment),
            x.answers.eq(finishes & message.response),
            x.asks.eq(finishes & is_request),
            x.sends.eq(finishes & ~message.tagged & ~is_request),
            self.work.ready.eq(finishes & ~message.response & ~message.fabric),
            self.fragments.ready.eq(reload | x.asks),
        ]

    def _collect(self, m, x):
        """Align the octets of each source behind those before it."""
        source, piece = x.sources.o, x.realigner.i
        memory = source.payload.memory
        available = Signal()
        moves = Signal()
        word = x.realigner.o
        m.d.comb += [
            available.eq(source.valid & (~memory | self.words.valid)),
            moves.eq(available & piece.ready),
            piece.valid.eq(available),
            source.ready.eq(moves),
            self.words.ready.eq(moves & memory),
            piece.payload.data.eq(Mux(memory, self.words.payload, source.payload.data)),
            *(piece.payload[name].eq(source.payload[name]) for name in ("start", "count", "first", "last")),
            piece.payload.at.eq(0),
            piece.payload.note.eq(source.payload.length),
            self.sent.eq(moves & source.payload.done & ~source.payload.fabric),
            self.fabric_done.eq(moves & source.payload.done & source.payload.fabric),
            self.o.valid.eq(word.valid),
            word.ready.eq(self.o.ready),
            *(self.o.payload[name].eq(word.payload[name]) for name in ("data", "octets", "last")),
            self.o.payload.length.eq(word.payload.note),
            self.ulpdu.eq(self.o.valid & self.o.ready & self.o.payload.last),
            self.sending.eq(x.goes_on | source.valid | x.realigner.busy),
        ]


class _Message(data.Struct):
    """The message that is being sent; ``to`` is the MSN of an untagged one."""

    opcode: 4
    tagged: 1
    response: 1
    fabric: 1
    stag: 32
    to: 64


class _Parts:
    """The blocks and the signals that the parts of an :class:`RdmaSender` share."""

    def __init__(self, sender: RdmaSender):
        lanes = sender.lanes
        self.sources = Fifo(_Source(lanes), _DEPTH)
        self.realigner = Realigner(lanes, 16)

        # The choice of the next message.
        self.runs = Signal()
        self.may_answer = Signal()
        self.may_read = Signal()
        self.no_reads = Signal()
        self.posted_opcode = Signal(4)
        self.posts_read = Signal()
        self.takes_request = Signal()
        self.takes_work = Signal()
        self.takes_fabric = Signal()
        self.last_answered = Signal()  # the last message was a Read Response
        self.last_posted = Signal()  # the last other message was posted

        # The message, and its segment.
        self.message = Signal(_Message)
        self.goes_on = Signal()  # the message has begun, and not ended
        self.left = Signal(32)  # octets of the message from this segment on
        self.sent_octets = Signal(32)  # octets of the message before this segment
        self.last_segment = Signal()
        self.payload = Signal(16)
        self.payload_left = Signal(16)
        self.header = Signal(8 * (UNTAGGED_OCTETS + READ_REQUEST_OCTETS))
        self.header_left = Signal(range(UNTAGGED_OCTETS + READ_REQUEST_OCTETS + 1))
        self.header_word = Signal(range(16))
        self.length = Signal(16)
        self.address = Signal(ADDRESS_BITS)
        self.fragment_left = Signal(32)
        self.send_msn = Signal(32)
        self.read_msn = Signal(32)

        # The RDMA Read Request that is being answered.
        self.row_word = Signal(range(sender.row_words + 2))
        self.request_word = Signal(32 * lanes)
        self.source_stag = Signal(32)
        self.source_to = Signal(64)
        self.row = Signal(range(sender.rows))
        self.live = Signal()  # its source may be read
        self.looked_up = Signal()
        self.request_fields = [
            self.message.stag, self.message.to[32:], self.message.to[:32], self.left,
            self.source_stag, self.source_to[32:], self.source_to[:32],
        ]  # fmt: skip

        # The end of a message.
        self.answers = Signal()
        self.asks = Signal()  # an RDMA Read Request
        self.sends = Signal()  # a Send
