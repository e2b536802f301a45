"""Chooses the next message to send, and loads it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.lanes import check_lanes
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
    write, ends : In, 1 bit
        ``word`` belongs to a WORK command; it is the last one of the command.
    word : In, 32 bits
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
        message, fragment, found = self.message.payload, self.fragment.payload, self.answer.found
        advance = Signal(2)  # rows of work that are taken
        number = Signal(range(REQUEST_WORDS + 1))  # of a word of the request
        takes_work = Signal()
        takes_request = Signal()
        work = self._work(m, advance)
        request_word = self._requests(m, takes_request, number)

        first_word, address_word, octets_word = work[0], work[-1], work[0]
        fields = None, message.octets, message.stag, message.to[:32], message.to[32:]  # in the order of the command
        row_of_octets, row_of_address = 1 // self.width, len(fields) // self.width

        # What can begin. At 1 lane, the first word waits in registers, because memory gives it late in a cycle.
        first = Signal(data.StructLayout({"opcode": 4, "fenced": 1, "fabric": 1}))
        has_first = Signal()
        fetches = Signal()  # the first word goes into the registers
        chooses = Signal()  # no message is being loaded
        begins = Signal()  # posted work is loaded
        is_read = Signal()
        posted = Signal(range(self.work + 1))  # messages of which nothing has been loaded
        asked = Signal(range(self.reads + 1))  # RDMA Read Requests that have not been loaded
        free = Signal()  # the last message has been taken
        may_post = Signal()
        may_answer = Signal()
        last_answered = Signal()  # the last message was a Read Response
        m.d.comb += [
            free.eq((~self.message.valid | self.message.ready) & (~self.fragment.valid | self.fragment.ready)),
            is_read.eq(first.opcode == Opcode.RDMA_READ_REQUEST),
            may_post.eq(has_first & (~is_read | self.may_read) & (~first.fenced | self.no_reads)),
            may_answer.eq((asked != 0) & ~self.segments.answering & ~(self.message.valid & message.response)),
        ]
        if self.width == 1:
            m.d.comb += [fetches.eq(~has_first & (posted != 0)), takes_work.eq(fetches & chooses)]
            m.d.sync += has_first.eq((has_first | takes_work) & ~begins)
            with m.If(takes_work):
                m.d.sync += first.eq(first_word)
        else:
            m.d.comb += [has_first.eq(posted != 0), takes_work.eq(begins), first.eq(first_word)]
        count_up_down(m, posted, self.words.last, takes_work)
        count_up_down(m, asked, self.requests.arrived, takes_request)

        is_request = Signal()
        words = [Signal(32, name=f"word_{n}") for n in range(self.width)]  # for the message's fields
        m.d.comb += [word.eq(Mux(is_request, request_word, of_work)) for word, of_work in zip(words, work, strict=True)]
        work_row = Signal(range(row_of_address + 1))

        def load(n):
            """Take the fields in row ``n`` of a command."""
            at = n * self.width
            pairs = zip(fields[at : at + self.width], words, strict=False)
            m.d.sync += [field.eq(word) for field, word in pairs if field is not None]

        pieces = Signal(6)  # that have not been loaded
        with m.If(takes_work):
            m.d.sync += pieces.eq(first_word[8:14])
        is_first = Signal()  # the piece is the message's first
        source = Signal(Access, reset_less=True)
        steps = Signal(2)
        looked_up = Signal()
        row = Signal(range(self.rows))
        m.d.comb += [
            self.lookup.access.stag.eq(source.stag),
            self.lookup.access.to.eq(source.to),
            self.lookup.access.octets.eq(message.octets),
            self.shown.eq(request_word),
        ]
        readable = Signal()
        empty = Signal()  # it has no octets
        m.d.comb += self.segments.live.eq(readable | empty)
        may_read = found.live & found.fits & found.rights[Right.REMOTE_READ.bit]
        m.d.sync += readable.eq(still_live(
            Mux(looked_up, may_read, readable), Mux(looked_up, found.row, row), self.answer
        ))  # fmt: skip
        with m.If(self.message.ready):
            m.d.sync += self.message.valid.eq(0)
        with m.If(self.fragment.ready):
            m.d.sync += self.fragment.valid.eq(0)
        with m.If(self.show):
            m.d.sync += number.eq(number + 1)
        with m.FSM():
            with m.State("Choose"):
                m.d.comb += chooses.eq(1)
                with m.If(fetches):
                    m.d.comb += advance.eq(1)
                with m.Elif(self.runs & free & may_answer & ~(last_answered & may_post)):
                    m.d.comb += takes_request.eq(1)
                    m.d.sync += [
                        message.opcode.eq(Opcode.RDMA_READ_RESPONSE), message.response.eq(1), message.fabric.eq(0),
                        last_answered.eq(1), number.eq(0),
                    ]  # fmt: skip
                    m.next = "Request"
                with m.Elif(self.runs & free & may_post):
                    m.d.comb += [begins.eq(1), self.asks.eq(is_read), advance.eq(1)]
                    m.d.sync += [
                        message.opcode.eq(first.opcode), message.response.eq(0), message.fabric.eq(first.fabric),
                        last_answered.eq(0), work_row.eq(row_of_octets + 1), is_first.eq(1),
                    ]  # fmt: skip
                    load(row_of_octets)
                    m.next = "Work"

            with m.State("Work"):
                m.d.comb += advance.eq(1)
                m.d.sync += work_row.eq(work_row + 1)
                for n in range(row_of_octets + 1, row_of_address):
                    with m.If(work_row == n):
                        load(n)
                with m.If(work_row == row_of_address - 1):
                    m.next = "Address"
            with m.State("Address"):
                with m.If(is_first):
                    load(row_of_address)
                with m.If(pieces == 0):
                    m.d.comb += advance.eq(len(fields) % self.width)
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

            with m.State("Request"):
                m.d.comb += is_request.eq(1)
                m.d.sync += number.eq(number + 1)
                registers = [
                    *((fields[at], words[at % self.width]) for at in (2, 4, 3, 1)),  # STag, TO, and octets
                    *((register, request_word) for register in (source.stag, source.to[32:], source.to[:32])),
                ]
                for n, (register, word) in enumerate(registers, 1):
                    with m.If(number == n):
                        m.d.sync += register.eq(word)
                with m.If(number == REQUEST_WORDS):
                    m.d.sync += number.eq(0)
                    m.next = "Ask"
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
                        row.eq(found.row), empty.eq(message.octets == 0),
                        fragment.address.eq(found.address), fragment.last.eq(1),
                        self.message.valid.eq(1), self.fragment.valid.eq(message.octets != 0),
                    ]  # fmt: skip
                    m.next = "Choose"
        return m

    def _work(self, m, advance):
        """The words of WORK commands: return those in the oldest row that has not been taken."""
        # A row that is written while it is read is read again before its command ends.
        shape = data.ArrayLayout(32, self.width)
        memory = Memory(shape=shape, depth=WORK_WORDS * self.work // self.width, init=[], attrs={"no_rw_check": 1})
        m.submodules.work = memory
        write, read = memory.write_port(granularity=1), memory.read_port()
        head = Signal.like(read.addr)
        place = Signal(range(self.width))  # of the next word in its row
        m.d.comb += [
            *(word.eq(self.words.word) for word in write.data),
            write.en.eq(Mux(self.words.valid, 1 << place, 0)),
            read.addr.eq(head + advance),
        ]
        m.d.sync += head.eq(read.addr)
        with m.If(self.words.valid):
            fills = self.words.last | (place == self.width - 1)
            m.d.sync += [place.eq(Mux(fills, 0, place + 1)), write.addr.eq(write.addr + fills)]
        return list(read.data)

    def _requests(self, m, takes, number):
        """The RDMA Read Requests: return word ``number``, a cycle later, of the one that was taken last."""
        depth = self.reads * self.row_words
        memory = Memory(shape=32 * self.lanes, depth=depth, init=[], attrs={"no_rw_check": 1})
        m.submodules.requests = memory
        write, read = memory.write_port(), memory.read_port()
        request = Signal(range(self.reads), init=self.reads - 1)
        lane_bits = (self.lanes - 1).bit_length()
        lane = Signal(lane_bits)
        m.d.sync += [request.eq(request + takes), lane.eq(number)]
        m.d.comb += [
            write.addr.eq(self.requests.place),
            write.data.eq(self.requests.word),
            write.en.eq(self.requests.valid),
            read.addr.eq(Cat(number[lane_bits:][: (self.row_words - 1).bit_length()], request)),
        ]
        return swap_octets(read.data.word_select(lane, 32))
