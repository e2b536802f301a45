"""Chooses the next message to send, and loads it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.rdma.layouts import Fragment, Message, RequestWords, Segments, WorkWords, request_row_words
from open_rnic.rtl.rdma.regions import Access, Answer, Request, still_live
from open_rnic.rtl.rdma.registers import REQUEST_WORDS, Right

__all__ = ["MessageLoader"]

WORK_WORDS = 8  # words of memory for each message, of one piece, that can be posted


class MessageLoader(wiring.Component):
    """Loads messages: those of WORK commands, and the Read Responses to the peer's RDMA Read Requests.

    They take turns if both can begin. An RDMA Read waits while ``ord`` of them are outstanding, a fenced message while
    any is (RFC 5040 §5.5 rules 12 and 13); the work behind it waits, too. The next message is loaded while one is sent.

    The source of a Read Response is looked up once (RFC 5040 §5.2.1, §7.2).

    The words of a WORK command are taken in rows: of one word at 1 lane, of two at other widths.

    Latency: 6 cycles, or 3 at 2 lanes or more, for a message from one piece of memory, and some 13 for a Read Response.
    Throughput: a message from one piece in as many cycles, and 2 cycles more for each other piece.

    Members
    -------
    words : In, :class:`.WorkWords`
    requests : In, :class:`.RequestWords`
    lookup, answer, step
        Of :class:`.RegionTable`.
    may_read : In, 1 bit
        Fewer than ORD RDMA Reads are outstanding.
    no_reads : In, 1 bit
        None is.
    runs : In, 1 bit
        Messages are loaded.
    asks : Out, 1 bit
        An RDMA Read is loaded.
    message : Out, stream of :class:`.Message`
        Its first fragment is offered at the same time.
    fragment : Out, stream of :class:`.Fragment`
    segments : In, :class:`.Segments`
        While a Read Response is being sent, no other one is loaded.
    show : In, 1 bit
        While messages do not run, go on to the next word of the RDMA Read Request.
    shown : Out, 32 bits
        A word of the RDMA Read Request that was loaded last.
    """

    def __init__(self, lanes: int, rows: int, work: int, reads: int):
        check_lanes(lanes)
        check_size("work", work, 2, 256)
        check_size("reads", reads, 2, 128)
        self.lanes = lanes
        self.rows = rows
        self.work = work
        self.reads = reads
        self.width = min(lanes, 2)  # words in a row of work
        self.row_words = request_row_words(lanes)
        super().__init__({
            "words": In(WorkWords()), "requests": In(RequestWords(lanes, reads)), "asks": Out(1),
            "lookup": Out(Request()), "answer": In(Answer(rows)), "step": In(1),
            "may_read": In(1), "no_reads": In(1), "runs": In(1),
            "message": Out(stream.Signature(Message)), "fragment": Out(stream.Signature(Fragment)),
            "segments": In(Segments(lanes)), "show": In(1), "shown": Out(32),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        message = self.message.payload
        self._fields = None, message.octets, message.stag, message.to[:32], message.to[32:]  # in a command's order
        self._advance = Signal(2, name="advance")  # rows of work that are taken
        self._chooses = Signal(name="chooses")  # no message is being loaded
        self._begins = Signal(name="begins")  # posted work is loaded
        self._is_first = Signal(name="is_first")  # the piece is the message's first
        self._takes_work = Signal(name="takes_work")
        self._takes_request = Signal(name="takes_request")
        self._number = Signal(range(REQUEST_WORDS + 1), name="number")  # of a word of the request
        self._work_row = Signal(range(len(self._fields) // self.width + 1), name="work_row")
        is_request = Signal()
        work = self._work(m)
        request_word = self._requests(m)
        # Words for the fields.
        self._row = [Signal(32, name=f"word_{n}") for n in range(self.width)]
        m.d.comb += [row.eq(Mux(is_request, request_word, word)) for row, word in zip(self._row, work, strict=True)]
        m.d.comb += self.shown.eq(request_word)
        with m.If(self.message.ready):
            m.d.sync += self.message.valid.eq(0)
        with m.If(self.fragment.ready):
            m.d.sync += self.fragment.valid.eq(0)
        with m.If(self.show):
            m.d.sync += self._number.eq(self._number + 1)
        source = Signal(Access(), reset_less=True)
        looked_up = self._check_source(m, source)
        first, fetches, answers, posts = self._weigh(m, work[0])
        pieces = Signal(6)  # that have not been loaded
        with m.If(self._takes_work):
            m.d.sync += pieces.eq(work[0][8:14])
        with m.FSM() as fsm:
            m.d.comb += [self._chooses.eq(fsm.ongoing("Choose")), is_request.eq(fsm.ongoing("Request"))]
            self._choose(m, first, fetches, answers, posts)
            self._load_message(m)
            self._load_fragments(m, work, pieces)
            self._load_request(m, source, request_word)
            self._look_up(m, looked_up)
        return m

    def _weigh(self, m, first_word):
        """Return the first word of posted work, whether it is fetched, and whether a request or posted work may begin.

        At 1 lane, the first word waits in registers, because memory gives it late in a cycle.
        """
        first = Signal(data.StructLayout({"opcode": 4, "fenced": 1, "fabric": 1}))
        has_first = Signal()
        fetches = Signal()  # the first word goes into the registers
        posted = Signal(range(self.work + 1))  # messages of which nothing has been loaded
        asked = Signal(range(self.reads + 1))  # RDMA Read Requests that have not been loaded
        free = Signal()  # the last message has been taken
        may_post = Signal()
        may_answer = Signal()
        last_answered = Signal()  # the last message was a Read Response
        is_read = first.opcode == Opcode.RDMA_READ_REQUEST
        responds = self.segments.answering | (self.message.valid & self.message.payload.response)
        m.d.comb += [
            free.eq((~self.message.valid | self.message.ready) & (~self.fragment.valid | self.fragment.ready)),
            may_post.eq(has_first & (~is_read | self.may_read) & (~first.fenced | self.no_reads)),
            may_answer.eq((asked != 0) & ~responds),
            self.asks.eq(self._begins & is_read),
        ]
        if self.width == 1:
            m.d.comb += [fetches.eq(~has_first & (posted != 0)), self._takes_work.eq(fetches & self._chooses)]
            m.d.sync += has_first.eq((has_first | self._takes_work) & ~self._begins)
            with m.If(self._takes_work):
                m.d.sync += first.eq(first_word)
        else:
            m.d.comb += [has_first.eq(posted != 0), self._takes_work.eq(self._begins), first.eq(first_word)]
        count_up_down(m, posted, self.words.last, self._takes_work)
        count_up_down(m, asked, self.requests.arrived, self._takes_request)
        with m.If(self._takes_request | self._begins):
            m.d.sync += last_answered.eq(self._takes_request)
        return first, fetches, self.runs & free & may_answer & ~(last_answered & may_post), self.runs & free & may_post

    def _choose(self, m, first, fetches, answers, posts):
        """Begin a Read Response, or posted work."""
        message = self.message.payload
        with m.State("Choose"):
            with m.If(fetches):
                m.d.comb += self._advance.eq(1)
            with m.Elif(answers):
                m.d.comb += self._takes_request.eq(1)
                m.d.sync += [
                    message.opcode.eq(Opcode.RDMA_READ_RESPONSE), message.response.eq(1), message.fabric.eq(0),
                    self._number.eq(0),
                ]  # fmt: skip
                m.next = "Request"
            with m.Elif(posts):
                m.d.comb += [self._begins.eq(1), self._advance.eq(1)]
                m.d.sync += [
                    message.opcode.eq(first.opcode), message.response.eq(0), message.fabric.eq(first.fabric),
                    self._work_row.eq(1 // self.width + 1), self._is_first.eq(1),
                ]  # fmt: skip
                self._load(m, 1 // self.width)
                m.next = "Work"

    def _load(self, m, n):
        """Take the fields in row ``n`` of a command."""
        pairs = zip(self._fields[n * self.width :], self._row, strict=False)
        m.d.sync += [field.eq(word) for field, word in pairs if field is not None]

    def _load_message(self, m):
        """Take the rows of a command between that of the octets and that of the first address."""
        row_of_octets, row_of_address = 1 // self.width, len(self._fields) // self.width
        work_row = self._work_row
        with m.State("Work"):
            m.d.comb += self._advance.eq(1)
            m.d.sync += work_row.eq(work_row + 1)
            for n in range(row_of_octets + 1, row_of_address):
                with m.If(work_row == n):
                    self._load(m, n)
            with m.If(work_row == row_of_address - 1):
                m.next = "Address"

    def _load_fragments(self, m, work, pieces):
        """Take the pieces of memory of a command, and offer the message with the first one."""
        message, fragment, advance = self.message.payload, self.fragment.payload, self._advance
        address_word, octets_word, is_first = work[-1], work[0], self._is_first
        with m.State("Address"):
            with m.If(is_first):
                self._load(m, len(self._fields) // self.width)
            with m.If(pieces == 0):
                m.d.comb += advance.eq(len(self._fields) % self.width)
                m.d.sync += self.message.valid.eq(1)
                m.next = "Choose"
            with m.Elif(~self.fragment.valid | self.fragment.ready):
                m.d.sync += [fragment.address.eq(address_word), fragment.last.eq(pieces == 1)]
                count_up_down(m, pieces, up=0, down=1)
                with m.If((pieces == 1) & (message.opcode != Opcode.RDMA_READ_REQUEST)):
                    m.d.comb += advance.eq(2)
                    m.d.sync += [self.fragment.valid.eq(1), self.message.valid.eq(is_first)]
                    m.next = "Choose"
                with m.Else():
                    m.d.comb += advance.eq(1)
                    m.next = "Length"
        with m.State("Length"):
            m.d.sync += [fragment.octets.eq(octets_word), self.fragment.valid.eq(1), is_first.eq(0)]
            with m.If(is_first):
                m.d.sync += self.message.valid.eq(1)
            with m.If(pieces == 0):
                m.d.comb += advance.eq(1)
                m.next = "Choose"
            with m.Else():
                m.d.comb += advance.eq(self.width == 1)  # the next address is in this row otherwise
                m.next = "Address"

    def _load_request(self, m, source, request_word):
        """Take the fields of an RDMA Read Request, and its source."""
        number = self._number
        with m.State("Request"):
            m.d.sync += number.eq(number + 1)
            registers = [
                *((self._fields[at], self._row[at % self.width]) for at in (2, 4, 3, 1)),  # STag, TO, and octets
                *((register, request_word) for register in (source.stag, source.to[32:], source.to[:32])),
            ]
            for n, (register, word) in enumerate(registers, 1):
                with m.If(number == n):
                    m.d.sync += register.eq(word)
            with m.If(number == REQUEST_WORDS):
                m.d.sync += number.eq(0)
                m.next = "Ask"

    def _check_source(self, m, source):
        """Keep whether the source of a Read Response may be read; return a signal for the cycle of its answer."""
        message, found = self.message.payload, self.answer.found
        looked_up = Signal()
        row = Signal(range(self.rows))
        readable = Signal()
        empty = Signal()  # it has no octets
        with m.If(looked_up):
            m.d.sync += [row.eq(found.row), empty.eq(message.octets == 0)]
        may_read = found.live & found.fits & found.rights[Right.REMOTE_READ.bit]
        m.d.comb += [
            self.lookup.access.stag.eq(source.stag),
            self.lookup.access.to.eq(source.to),
            self.lookup.access.octets.eq(message.octets),
            self.segments.live.eq(readable | empty),
        ]
        m.d.sync += readable.eq(still_live(
            Mux(looked_up, may_read, readable), Mux(looked_up, found.row, row), self.answer
        ))  # fmt: skip
        return looked_up

    def _look_up(self, m, looked_up):
        """Look the source up, and offer the Read Response."""
        message, fragment, found = self.message.payload, self.fragment.payload, self.answer.found
        steps = Signal(2)
        with m.State("Ask"):
            m.d.comb += self.lookup.valid.eq(1)
            m.d.sync += steps.eq(0)
            with m.If(self.lookup.granted):
                m.next = "Look"
        with m.State("Look"):
            m.d.sync += steps.eq(steps + self.step)
            with m.If(steps == 2):
                m.d.comb += looked_up.eq(1)
                m.d.sync += [
                    fragment.address.eq(found.address), fragment.last.eq(1),
                    self.message.valid.eq(1), self.fragment.valid.eq(message.octets != 0),
                ]  # fmt: skip
                m.next = "Choose"

    def _work(self, m):
        """The words of WORK commands: return those in the oldest row that has not been taken."""
        # A row that is written while it is read is read again before its command ends.
        shape = data.ArrayLayout(32, self.width)
        memory = Memory(shape=shape, depth=WORK_WORDS * self.work // self.width, init=[])
        m.submodules.work = memory
        write, read = memory.write_port(granularity=1), late_read(m, memory)
        head = Signal.like(read.addr)
        place = Signal(range(self.width))  # of the next word in its row
        m.d.comb += [
            *(word.eq(self.words.word) for word in write.data),
            write.en.eq(Mux(self.words.valid, 1 << place, 0)),
            read.addr.eq(head + self._advance),
        ]
        m.d.sync += head.eq(read.addr)
        with m.If(self.words.valid):
            fills = self.words.last | (place == self.width - 1)
            m.d.sync += [place.eq(Mux(fills, 0, place + 1)), write.addr.eq(write.addr + fills)]
        return list(read.data)

    def _requests(self, m):
        """The RDMA Read Requests: return a word, a cycle later, of the one that was taken last."""
        number = self._number
        depth = self.reads * self.row_words
        memory = Memory(shape=32 * self.lanes, depth=depth, init=[])
        m.submodules.requests = memory
        write, read = memory.write_port(), late_read(m, memory)  # of a request that has arrived
        request = Signal(range(self.reads), init=self.reads - 1)
        lane_bits = (self.lanes - 1).bit_length()
        lane = Signal(lane_bits)
        m.d.sync += [request.eq(request + self._takes_request), lane.eq(number)]
        m.d.comb += [
            write.addr.eq(self.requests.place),
            write.data.eq(self.requests.word),
            write.en.eq(self.requests.valid),
            read.addr.eq(Cat(number[lane_bits:][: (self.row_words - 1).bit_length()], request)),
        ]
        return swap_octets(read.data.word_select(lane, 32))
