"""Chooses the next message to send among those of many connections, and loads it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, InFlight, connection_shape
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.rdma.layouts import Fragment, Message, RequestWords, Segments, WorkWords, request_row_words
from open_rnic.rtl.rdma.message_loader import WORK_WORDS
from open_rnic.rtl.rdma.regions import Access, Answer, Request
from open_rnic.rtl.rdma.registers import REQUEST_WORDS, Right

__all__ = ["SharedLoader"]

_SAVED = 8  # words of 32 bits


class ShownRequest(wiring.Signature):
    """The words of an RDMA Read Request, one after the other, for the host.

    Members
    -------
    reads : Out, 1 bit
        ``word`` is read.
    connection, number : Out
        The request of this number of the connection.
    steps : Out, 1 bit
        Go on to its next word.
    word : In, 32 bits
        A word of it, a cycle later.
    busy : In, 1 bit
        ``word`` cannot be read.
    """

    def __init__(self, reads: int, connections: int):
        super().__init__({
            "reads": Out(1), "connection": Out(connection_shape(connections)), "number": Out(range(reads)),
            "steps": Out(1), "word": In(32), "busy": In(1),
        })  # fmt: skip


class SharedLoader(wiring.Component):
    """Loads messages as :class:`.MessageLoader` does, for one segment of one connection after another.

    A connection is visited in its turn. It is left if it has nothing to send, or must not send now; otherwise one
    message of it is offered, and its turn ends when the message has been taken, and all of its pieces that the
    segment needs. What the sender gives back of a message is loaded again in a later turn.

    A message that has been loaded, and not been taken, is forgotten if the connection must not send any more.

    Latency: a cycle for each connection that has nothing to send, and then 10 cycles for a message from one piece of
    memory, 9 for the rest of a message (5 at 2 lanes, 3 at 4), and some 16 for a Read Response.

    Members
    -------
    words : In, :class:`.WorkWords`
    requests : In, :class:`.RequestWords`
    lookup, answer, step
        Of :class:`.RegionTable`.
    active : Out
        The connection that is visited, of which ``runs``, ``may_read`` and ``no_reads`` are expected.
    runs : In, 1 bit
        The connection may send.
    may_read, no_reads : In, 1 bit
        See :class:`.MessageLoader`.
    message : Out, stream of :class:`.Message`
    fragment : Out, stream of :class:`.Fragment`
        The first one comes with the message, the others when they are ``wanted``.
    segments : In, :class:`.Segments`
    shown : In, :class:`ShownRequest`
    idle : Out, 1 bit
        No message is being loaded, nor offered.
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, rows: int, work: int, reads: int, connections: int):
        check_lanes(lanes)
        check_size("work", work, 2, 256)
        check_size("reads", reads, 2, 128)
        self.lanes = lanes
        self.rows = rows
        self.work = work
        self.reads = reads
        self.connections = connections
        self.row_words = request_row_words(lanes)
        self.saved_words = max(1, _SAVED // lanes)
        number = connection_shape(connections)
        super().__init__({
            "words": In(WorkWords(connections)), "requests": In(RequestWords(lanes, reads, connections)),
            "lookup": Out(Request(connections)), "answer": In(Answer(rows * connections)), "step": In(1),
            "runs": In(1), "active": Out(number), "may_read": In(1), "no_reads": In(1),
            "message": Out(stream.Signature(Message)), "fragment": Out(stream.Signature(Fragment)),
            "segments": In(Segments(lanes, connections)),
            "shown": In(ShownRequest(reads, connections)), "idle": Out(1), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        parts = _Parts(self, m)
        parts.work.begun.count(m, self.words.last)
        parts.requests.begun.count(m, self.requests.arrived)
        self._memories(m, parts)
        self._check_source(m, parts)
        self._visit(m, parts)
        return m

    def _memories(self, m, parts):
        """Commands, RDMA Read Requests, and the rests of messages: a word of each is read in every cycle."""
        commands = Memory(shape=32, depth=WORK_WORDS * self.work * self.connections, init=[])
        wide = 32 * self.lanes
        requests = Memory(shape=wide, depth=self.row_words * self.reads * self.connections, init=[])
        rests = Memory(shape=wide, depth=self.saved_words * self.connections, init=[])
        m.submodules.work, m.submodules.requests, m.submodules.rests = commands, requests, rests
        tail = Signal.like(parts.head)
        tails = Cells(m, tail, self.connections, self.words.connection, self.clear)
        with m.If(self.words.valid):
            tails.write(m, tail + 1)
        shown_number = Signal(3)
        numbers = Cells(m, shown_number, self.connections, self.shown.connection, self.clear)
        with m.If(self.shown.steps):
            numbers.write(m, shown_number + 1)
        # Nothing is used that was read before the cycle behind its last write.
        write, read = commands.write_port(), late_read(m, commands)
        put, get = requests.write_port(), late_read(m, requests)
        save, load = rests.write_port(), late_read(m, rests)
        next_head = Signal.like(parts.head)
        lane_bits = (self.lanes - 1).bit_length()
        row_bits, saved_bits = ((each - 1).bit_length() for each in (self.row_words, self.saved_words))
        lane = Signal(lane_bits)  # of the word of a request
        shows = Signal()
        words, asked, segments = self.words, self.requests, self.segments
        m.d.comb += shows.eq(self.shown.reads & ~self.shown.busy)
        m.d.sync += lane.eq(Mux(shows, shown_number, parts.number))
        m.d.comb += [
            write.addr.eq(Cat(tail, words.connection)), write.data.eq(words.word), write.en.eq(words.valid),
            next_head.eq(parts.head + parts.advance),
            read.addr.eq(Cat(next_head, self.active)),
            put.addr.eq(asked.place), put.data.eq(asked.word), put.en.eq(asked.valid),
            get.addr.eq(Mux(
                shows,
                Cat(shown_number[lane_bits:][:row_bits], self.shown.number, self.shown.connection),
                Cat(parts.number[lane_bits:][:row_bits], parts.request, self.active),
            )),
            save.addr.eq(Cat(segments.save_at[:saved_bits], segments.connection)),
            save.data.eq(segments.saved), save.en.eq(segments.saves),
            load.addr.eq(Cat(parts.number[:saved_bits], self.active)),
            parts.command.eq(read.data),
            parts.asked.eq(swap_octets(get.data.word_select(lane, 32))),
            parts.rest.eq(load.data),
            self.shown.word.eq(parts.asked),
        ]  # fmt: skip
        m.d.sync += parts.head.eq(next_head)

    def _check_source(self, m, parts):
        """Whether the source of each connection's Read Response may be read (RFC 5040 §5.2.1, §7.2)."""
        found, bits = self.answer.found, (self.rows - 1).bit_length()
        row = Signal(range(self.rows), name="source_row")
        rows = Cells(m, row, self.connections, self.active, self.clear)
        readable = Signal(self.connections)
        empty = Signal()  # the response has no octets
        all_empty = Cells(m, empty, self.connections, self.active, self.clear)
        revoked_of, segments = self.answer.revoked_row[bits:], self.segments
        is_revoked = Signal()
        m.d.comb += [
            is_revoked.eq(self.answer.revokes & (rows.read(m, revoked_of) == self.answer.revoked_row[:bits])),
            segments.message_connection.eq(self.active),
            segments.message_live.eq(readable.bit_select(self.active, 1) | empty),
            segments.live.eq(readable.bit_select(segments.connection, 1) | all_empty.read(m, segments.connection)),
        ]
        with m.If(is_revoked):
            m.d.sync += readable.bit_select(revoked_of, 1).eq(0)
        with m.If(parts.looked_up):
            rows.write(m, found.row[:bits])
            may_read = found.live & found.fits & found.rights[Right.REMOTE_READ.bit]
            m.d.sync += readable.bit_select(self.active, 1).eq(
                may_read & ~(self.answer.revokes & (self.answer.revoked_row == found.row))
            )
            all_empty.write(m, self.message.payload.octets == 0)

    def _visit(self, m, parts):
        """Visit a connection after the other."""
        m.d.comb += [
            parts.may_post.eq(parts.has_work & ((parts.first.opcode != Opcode.RDMA_READ_REQUEST) | self.may_read)
                          & (~parts.first.fenced | self.no_reads)),
            parts.is_sending.eq(self.segments.busy & (self.segments.connection == self.active)),
            parts.may_answer.eq(parts.has_request & ~(parts.is_sending & self.segments.answering)),
            self.lookup.access.connection.eq(self.active),
            self.lookup.access.stag.eq(parts.source.stag),
            self.lookup.access.to.eq(parts.source.to),
            self.lookup.access.octets.eq(self.message.payload.octets),
        ]  # fmt: skip
        with m.If(self.fragment.ready):
            m.d.sync += self.fragment.valid.eq(0)
        with m.FSM():
            self._choose(m, parts)
            self._load_work(m, parts)
            self._load_rest(m, parts)
            self._load_request(m, parts)
            self._offer(m, parts)

    def _turn(self, m):
        """Go on to the next connection."""
        m.d.sync += self.active.eq(self.active + 1)
        m.next = "Load"

    def _begin_offer(self, m, *, resumes):
        m.d.sync += [self.message.valid.eq(1), self.segments.resumes.eq(resumes)]
        m.next = "Offer"

    def _choose(self, m, parts):
        """Choose what the connection sends: the rest of a message, work, or a Read Response."""
        message = self.message.payload
        with m.State("Load"):
            m.d.comb += self.idle.eq(1)
            m.d.sync += [
                parts.head.eq(parts.heads.signal), parts.pieces.eq(parts.rest_pieces),
                parts.number.eq(0), parts.is_first.eq(0),
            ]  # fmt: skip
            has_some = parts.has_work | parts.has_request | parts.goes_on
            with m.If(~self.runs | ~has_some | (parts.goes_on & parts.is_sending)):
                self._turn(m)
            with m.Elif(parts.goes_on):
                m.next = "Resume"
            with m.Else():
                m.next = "Read"
        with m.State("Read"):
            m.next = "Fetch"
        with m.State("Fetch"):
            m.d.comb += parts.advance.eq(1)
            m.d.sync += [parts.first.eq(parts.command), parts.pieces.eq(parts.command[8:14])]
            m.next = "Choose"
        with m.State("Choose"):
            with m.If(parts.may_answer & ~(parts.answered & parts.may_post)):
                with m.If(~self.shown.reads):
                    m.d.sync += [
                        message.opcode.eq(Opcode.RDMA_READ_RESPONSE), message.response.eq(1),
                        message.fabric.eq(0), parts.pieces.eq(0),
                    ]  # fmt: skip
                    m.next = "Request"
            with m.Elif(parts.may_post):
                m.d.comb += parts.advance.eq(1)
                m.d.sync += [
                    message.opcode.eq(parts.first.opcode), message.fabric.eq(parts.first.fabric),
                    message.response.eq(0), message.octets.eq(parts.command),
                    parts.work_row.eq(0), parts.is_first.eq(1),
                ]  # fmt: skip
                m.next = "Work"
            with m.Else():
                self._turn(m)

    def _load_work(self, m, parts):
        """Load the words of posted work, and of its pieces."""
        message, fragment = self.message.payload, self.fragment.payload
        with m.State("Work"):
            m.d.comb += parts.advance.eq(1)
            m.d.sync += parts.work_row.eq(parts.work_row + 1)
            for n, register in enumerate((message.stag, message.to[:32], message.to[32:])):
                _load(m, register, parts.command, parts.work_row == n)
            with m.If(parts.work_row == 2):
                m.next = "Address"
        with m.State("Address"):
            with m.If(parts.pieces == 0):
                self._begin_offer(m, resumes=0)
            with m.Else():
                m.d.comb += parts.advance.eq(1)
                m.d.sync += [
                    fragment.address.eq(parts.command), fragment.last.eq(parts.pieces == 1),
                    parts.pieces.eq(parts.pieces - 1),
                ]  # fmt: skip
                m.next = "Length"
        with m.State("Length"):
            m.d.comb += parts.advance.eq(1)
            m.d.sync += [fragment.octets.eq(parts.command), self.fragment.valid.eq(1), parts.is_first.eq(0)]
            m.next = "Pieces"
            with m.If(parts.is_first):
                self._begin_offer(m, resumes=0)

    def _load_rest(self, m, parts):
        """Load the rest of a message, in the order of :meth:`.RdmaSender._header`; word 4 is not used."""
        message, fragment = self.message.payload, self.fragment.payload
        with m.State("Resume"):
            m.d.sync += parts.number.eq(parts.number + 1)
            registers = None, message.stag, message.to[32:], message.to[:32], None, message.octets, \
                fragment.octets, fragment.address
            with m.If(parts.number == 1):
                m.d.sync += [
                    message.opcode.eq(parts.rest[24:28]),
                    message.response.eq(parts.rest[24:28] == Opcode.RDMA_READ_RESPONSE),
                    message.fabric.eq(parts.was_fabric),
                ]
            for n, register in enumerate(registers):
                word, lane = divmod(n, self.lanes)
                if register is not None:
                    _load(m, register, swap_octets(parts.rest.word_select(lane, 32)), parts.number == word + 1)
            with m.If(parts.number == self.saved_words):
                m.d.sync += [fragment.last.eq(parts.pieces == 0), self.fragment.valid.eq(1)]
                self._begin_offer(m, resumes=1)

    def _load_request(self, m, parts):
        """Load an RDMA Read Request, and look up its source."""
        message, fragment = self.message.payload, self.fragment.payload
        with m.State("Request"):
            m.d.comb += self.shown.busy.eq(1)
            m.d.sync += parts.number.eq(parts.number + 1)
            registers = (
                message.stag, message.to[32:], message.to[:32], message.octets,
                parts.source.stag, parts.source.to[32:], parts.source.to[:32],
            )  # fmt: skip
            for n, register in enumerate(registers, 1):
                _load(m, register, parts.asked, parts.number == n)
            with m.If(parts.number == REQUEST_WORDS):
                m.next = "Ask"
        with m.State("Ask"):
            m.d.comb += self.lookup.valid.eq(1)
            m.d.sync += parts.steps.eq(0)
            with m.If(self.lookup.granted):
                m.next = "Look"
        with m.State("Look"):
            m.d.sync += parts.steps.eq(parts.steps + self.step)
            with m.If(parts.steps == 2):
                m.d.comb += parts.looked_up.eq(1)
                m.d.sync += [
                    fragment.address.eq(self.answer.found.address), fragment.last.eq(1),
                    self.fragment.valid.eq(message.octets != 0),
                ]  # fmt: skip
                self._begin_offer(m, resumes=0)

    def _offer(self, m, parts):
        """Offer the message, and its pieces as the sender wants them."""
        message = self.message.payload
        with m.State("Offer"):
            with m.If(self.message.ready):
                m.d.sync += self.message.valid.eq(0)
                parts.all_goes_on.write(m, self.segments.unfinished)
                parts.save_pieces(m)
                with m.If(~self.segments.resumes):
                    parts.all_answered.write(m, message.response)
                    parts.all_fabric.write(m, message.fabric)
                    parts.requests.ended.count(m, message.response)
                    parts.work.ended.count(m, ~message.response)
                with m.If(~(message.response & ~self.segments.resumes)):
                    parts.heads.write(m, parts.head)
                with m.If(parts.pieces == 0):
                    self._turn(m)
                with m.Else():
                    m.next = "Pieces"
            with m.Elif(~self.runs):
                m.d.sync += [self.message.valid.eq(0), self.fragment.valid.eq(0)]
                self._turn(m)
        with m.State("Pieces"):
            with m.If(self.segments.ends):
                parts.save_pieces(m)
                # A message that is shorter than its pieces leaves some of them.
                parts.heads.write(m, Mux(parts.goes_on, parts.head, parts.head + Cat(0, parts.pieces)))
                m.d.sync += self.fragment.valid.eq(0)
                self._turn(m)
            with m.Elif((parts.pieces == 0) & (~self.fragment.valid | self.fragment.ready)):
                parts.save_pieces(m)
                parts.heads.write(m, parts.head)
                self._turn(m)
            with m.Elif(self.segments.wanted & ~self.fragment.valid):
                m.next = "Address"


def _load(m, register, word, when):
    """Load a register from a word, when it is there."""
    with m.If(when):
        m.d.sync += register.eq(word)


class _Parts:
    """The signals that the parts of a :class:`SharedLoader` share."""

    def __init__(self, loader: SharedLoader, m: Module):
        def cells(signal):
            return Cells(m, signal, loader.connections, loader.active, loader.clear)

        def waiting(name, most, words):
            of = words.connection
            return InFlight(m, name, range(2 * most), loader.connections, of, loader.active, loader.clear)

        self.work = waiting("work", loader.work, loader.words)
        self.requests = waiting("requests", loader.reads, loader.requests)
        self.request = self.requests.ended.signal[: len(loader.shown.number)]  # the number of the oldest one

        # Of the connection that is visited.
        self.rest_pieces = Signal(6)  # of its message that goes on
        stored_head = Signal(range(WORK_WORDS * loader.work))  # the first word in memory that is not taken
        self.heads = cells(stored_head)
        self.all_rest_pieces = cells(self.rest_pieces)
        self.has_work, self.has_request = (each.any(m, loader.active) for each in (self.work, self.requests))

        self.goes_on = Signal()  # a message has begun, and not ended
        self.answered = Signal()  # the last message was a Read Response
        self.was_fabric = Signal()  # it was one of logic beside the engine
        self.all_goes_on, self.all_answered, self.all_fabric = map(
            cells, (self.goes_on, self.answered, self.was_fabric)
        )
        self.may_post = Signal()
        self.may_answer = Signal()
        self.is_sending = Signal()  # the sender has not finished with this connection

        # Of the message that is loaded.
        self.first = Signal(data.StructLayout({"opcode": 4, "fenced": 1, "fabric": 1}))  # of a command's first word
        self.is_first = Signal()  # no piece has been loaded
        self.work_row = Signal(range(8))
        self.source = Signal(Access(), reset_less=True)
        self.steps = Signal(2)
        self.head = Signal.like(stored_head, name="head")
        self.advance = Signal()  # its word is taken
        self.pieces = Signal(6)  # that have not been loaded
        self.command = Signal(32)  # the word at ``head``
        self.number = Signal(4)  # of a word of the request, or of the rest of a message
        self.asked = Signal(32)  # the word before
        self.rest = Signal(32 * loader.lanes)
        self.looked_up = Signal()

    def save_pieces(self, m):
        self.all_rest_pieces.write(m, self.pieces)
