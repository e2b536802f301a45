"""Receive: checks each ULPDU, and places its payload (RFC 5041 §5.3, §7; RFC 5040 §5, §7)."""

from enum import IntEnum

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu
from open_rnic.rtl.formats.opcodes import FIRST_MSN, INVALIDATES, READ_REQUEST_OCTETS, SENDS, Opcode, Queue
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, InFlight, connection_field, connection_shape, forget, only_many
from open_rnic.rtl.rdma.header_reader import Header, HeaderReader, PayloadBeat
from open_rnic.rtl.rdma.layouts import (
    ADDRESS_BITS,
    Buffer,
    Completed,
    MemoryWrite,
    RequestWords,
    Sink,
    request_row_octets,
    request_row_words,
    word_bits,
)
from open_rnic.rtl.rdma.msn import MsnCells
from open_rnic.rtl.rdma.realigner import Realigner
from open_rnic.rtl.rdma.regions import MAY_INVALIDATE, Answer, Request, still_live
from open_rnic.rtl.rdma.registers import HEADER_WORDS, Right
from open_rnic.rtl.registers import Rtr

__all__ = ["Note", "RdmaReceiver"]

_LOOKUP = 3  # cycles of a lookup in the RegionTable


class Note(IntEnum):
    """The message that is complete when a ULPDU's last octet has been placed."""

    NONE = 0
    SEND = 1
    READ = 2  # a Read Response
    REQUEST = 3  # an RDMA Read Request


class _Order:
    """The results of the checks of an ordered ULPDU, any but that of an RDMA Write."""

    def __init__(self):
        self.in_order = Signal()  # queue, MSN and MO of an untagged segment
        self.has_buffer = Signal()
        self.in_buffer = Signal()  # the segment fits into it
        self.address = Signal(ADDRESS_BITS, reset_less=True)  # of the segment in it
        self.end = Signal(33, reset_less=True)  # of the segment in its message
        self.right_sink = Signal()  # of a Read Response


class _Ulpdu:
    """The ULPDU that is checked: its beat behind the lookup, and the results of the checks with its first beat."""

    def __init__(self, beat, header, valid, order: _Order, row):
        self.beat = beat
        self.header = header
        self.valid = valid
        self.order = order
        self.is_send = Signal()
        self.is_request = Signal()
        self.is_write = Signal()
        self.is_response = Signal()
        self.invalidates = Signal()
        self.some = Signal()  # it has octets to place
        self.found_live = Signal()
        self.ends = Signal()  # the region ends with the octets
        self.good = Signal()
        self.now = Signal()  # it is checked in this cycle
        self.accepts = Signal()
        self.row = Signal.like(row, name="row")  # of its region


class _Placed(data.StructLayout):
    """The place of a ULPDU's payload, the message that it completes, and its connection."""

    def __init__(self, lanes: int, connections: int):
        super().__init__({"word": word_bits(lanes), "request": 1, "note": Note, **connection_field(connections)})


class ReceiverSettings(data.Struct):
    """The settings of a connection: registers CONTROL and LIMITS, and the state of other blocks.

    ``stopped``: ULPDUs are discarded; ``outstanding``: RDMA Read Requests that have been checked, and are not answered.
    """

    enable: 1
    waits: 1
    drops: 1
    shut: 1
    stopped: 1
    ird: 8
    outstanding: 8


class ReceiverStatus(wiring.Signature):
    """The state of a connection, as in the registers STATUS, RX_SEND_MSN, RX_READ_MSN, RX_MO, and RX_ARRIVED.

    ``failed``: memory could not write a word; ``header``: of the refused ULPDU; ``requested``: an RDMA Read Request has
    been accepted; ``ulpdu``: a ULPDU has been processed. With many connections, ``failed``, ``refused`` and ``passed``
    have a bit for each.
    """

    def __init__(self, connections: int):
        first_msn = FIRST_MSN if connections == 1 else 0
        flags = "blocked", "placing", "send_begun", "write_begun", "requested", "ulpdu"
        super().__init__({
            **{name: Out(connections) for name in ("refused", "passed", "failed")},
            **{name: Out(1) for name in flags},
            "send_msn": Out(32, init=first_msn), "read_msn": Out(32, init=first_msn), "mo": Out(32), "arrived": Out(32),
            "header": Out(Header()),
        })  # fmt: skip


class Completion(wiring.Signature):
    """Sends, and buffers that are withdrawn.

    Members
    -------
    send : Out, :class:`.Completed`
    enters : Out, 1 bit
        A Send's last segment has been checked. It is complete with the next ``note`` SEND.
    skips : Out, 1 bit
        The buffer was withdrawn. No Send is between its last segment's check and its ``note``.
    """

    def __init__(self):
        super().__init__({"send": Out(Completed), "enters": Out(1), "skips": Out(1)})


class ReceiverTurn(wiring.Signature):
    """The connections for which the blocks work.

    Members
    -------
    connection : Out
        The connection of the beat at ``i``, of which ``enable`` and ``stopped`` are expected.
    active : Out
        The connection of the checks, of which all other settings, ``buffer`` and ``sink`` are expected; the numbers of
        ``status`` are those of it.
    ulpdu_of, note_of, rtr_of : Out, Out, In
        The connection of ``ulpdu``, ``note``, and ``rtr``.
    settled : In, 1 bit
        ``buffer`` and ``sink`` are those of the active connection.
    withdraws, withdraws_of : In
        Of :class:`.CommandLoader`.
    returns : Out, 1 bit for each connection
        Its next buffer may be withdrawn, and is then given back soon. No Send may be given meanwhile.
    sends_coming : In, 1 bit for each connection
        A Send was given before, and has not been checked: it may still use the buffer.
    visits, visit : In
        Make ``visit`` the active connection, and check no other ULPDU meanwhile.
    visited : Out, 1 bit
        It is.
    checked : Out, 1 bit
        A ULPDU of the active connection has been checked. For one cycle.
    dropped : Out, 1 bit
        A ULPDU of ``connection`` has been discarded, or passed to the host. For one cycle.
    idle : Out, 1 bit
        No ULPDU is in the block.
    """

    def __init__(self, connections: int):
        number = connection_shape(connections)
        super().__init__({
            "connection": Out(number), "active": Out(number), "ulpdu_of": Out(number), "note_of": Out(number),
            "rtr_of": In(number),
            "settled": In(1), "withdraws": In(1), "withdraws_of": In(number), "returns": Out(connections),
            "sends_coming": In(connections), "visits": In(1), "visit": In(number), "visited": Out(1),
            "checked": Out(1), "dropped": Out(1), "idle": Out(1),
        })  # fmt: skip


class Shown(wiring.Signature):
    """The state of ``connection``, which is that of ``placing``, too.

    ``header`` is, a cycle later, word ``word`` of the header of its refused ULPDU; behind those of the octets follows
    the length.
    """

    def __init__(self, connections: int):
        super().__init__({
            "connection": In(connection_shape(connections)), "word": In(3), "header": Out(32),
            "send_begun": Out(1), "write_begun": Out(1),
        })  # fmt: skip


class RdmaReceiver(wiring.Component):
    """Receive of the RDMA engine.

    ::

        ulpdus ▸ HeaderReader ▸ (lookup in the RegionTable, 3 cycles) ▸ checks ▸ Realigner ▸ memory
                      ▾ host                                                          ▾ requests

    A ULPDU is checked as a whole before its first octet is placed. ``docs/rdma-engine.md`` has the checks, and what
    becomes of a ULPDU that is refused, of Sends without a buffer, and of words that memory cannot write.

    Latency: 8 cycles from a beat to the word. Throughput: one beat per cycle; a ULPDU takes a cycle more if its octets
    lie in more words than it has beats. ULPDUs are ordered, except those of RDMA Writes: such a ULPDU waits for the
    checks of the ordered one before.

    Members
    -------
    i : In, stream of :class:`.RxUlpdu`
    host : Out, stream of :class:`.RxUlpdu`; see :class:`.HeaderReader`
    write : Out, stream of :class:`.MemoryWrite`
    write_fault : In, 1 bit; see :class:`.MemoryPort`. Without effect while the receiver is not enabled
    requests : Out, :class:`.RequestWords`
    note : Out, :class:`Note`; this message is complete: its octets are in memory. For one cycle
    lookup, answer, step : of :class:`.RegionTable`; ``step`` is 0 if memory stalls
    invalidate : Out, ``valid`` and ``row``; a Send that invalidates the region in this row was checked a cycle ago
    buffer : In, stream of :class:`.Buffer`; one is taken when a Send's last segment has been checked, or with ``skips``
    sink : In, stream of :class:`.Sink`; the RDMA Reads that wait for their responses, the oldest first
    completion : Out, :class:`Completion`
    settings : In, :class:`ReceiverSettings`
    rtr : In, :class:`.Rtr`; the RTR that has just been received, if it has an MSN
    status : Out, :class:`ReceiverStatus`

    Only with many connections: the checks are of one connection at a time, and turn to another one in a cycle in which
    no header is between its lookup and its checks; beats behind a header go on. All checks wait while the header of a
    refused ULPDU is stored in block RAM. A Send without a buffer does not wait: it must not be given.

    turn : Out, :class:`ReceiverTurn`
    shown : Out, :class:`Shown`
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, rows: int, reads: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.rows = rows * connections
        self.reads = reads
        self.connections = connections
        many = {
            "turn": Out(ReceiverTurn(connections)), "shown": Out(Shown(connections)), "clear": In(Clear(connections)),
        }  # fmt: skip
        ulpdus = stream.Signature(RxUlpdu(lanes, connections))
        super().__init__({
            "i": In(ulpdus), "host": Out(ulpdus), "write": Out(stream.Signature(MemoryWrite(lanes))),
            "write_fault": In(1), "requests": Out(RequestWords(lanes, reads, connections)), "note": Out(Note),
            "lookup": Out(Request(connections)), "answer": In(Answer(self.rows)), "step": Out(1),
            "invalidate": Out(wiring.Signature({"valid": Out(1), "row": Out(range(self.rows))})),
            "buffer": In(stream.Signature(Buffer)), "sink": In(stream.Signature(Sink)), "completion": Out(Completion()),
            "settings": In(ReceiverSettings), "rtr": In(Rtr), "status": Out(ReceiverStatus(connections)),
            **only_many(connections, many),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = HeaderReader(self.lanes, self.connections)
        m.submodules.realigner = realigner = Realigner(
            self.lanes, _Placed(self.lanes, self.connections), abandons=self.connections > 1
        )
        state = (_One if self.connections == 1 else _Many)(m, self)
        wiring.connect(m, wiring.flipped(self.i), reader.i)
        wiring.connect(m, reader.host, wiring.flipped(self.host))
        refuses = Signal()  # the ULPDU that is being checked, or placed, is refused
        withdrawn = Signal()  # the oldest buffer is, before a Send has begun
        u, behind, heading = self._look_up(m, state, reader, refuses, withdrawn)
        m.d.comb += [
            withdrawn.eq(self.buffer.valid & self.buffer.payload.withdrawn & ~self.status.send_begun),
            self.completion.skips.eq(withdrawn & reader.idle & ~state.send_comes),
            reader.enable.eq(self.settings.enable),
            reader.discard.eq(state.is_refused | self.settings.stopped),
            reader.idle.eq(~behind & ~realigner.busy),
            self.status.passed.eq(reader.passed),
            self.step.eq(realigner.i.ready & ~(state.storing | state.cut)),
            self.status.header.eq(u.header),
        ]
        self._check(m, state, u, refuses, realigner)
        self._place(m, state, realigner)
        state.complete(m, u, refuses, reader, realigner, behind, heading, withdrawn)
        return m

    def _look_up(self, m, state, reader, refuses, withdrawn):
        """Delay each beat until the result of the lookup is there; an ordered ULPDU waits for the one before.

        The header of a ULPDU that is refused stays.

        Return the ULPDU of the delayed beat, and whether any beat, or any header, is under way.
        """
        arriving, header, settings = reader.o.payload, reader.header, self.settings
        is_send = Signal()
        ordered = Signal()  # the checks use what the ordered ULPDU before may change
        m.d.comb += [
            is_send.eq(header.opcode.matches(*SENDS)),
            ordered.eq(arriving.header & (header.opcode != Opcode.RDMA_WRITE)),
        ]
        holds = Signal()
        under_way = Signal()  # an ordered ULPDU is between the lookup and its checks
        m.d.comb += [
            self.status.blocked.eq(reader.o.valid & arriving.header & is_send & ~self.buffer.valid & settings.waits
                                   & ~settings.drops & ~under_way & ~state.is_refused),
            holds.eq((arriving.header & state.holds)
                     | (ordered & (self.status.blocked | under_way | state.unsettled(is_send & withdrawn)))),
            reader.o.ready.eq((self.step & ~holds) | state.is_refused),
            self.lookup.valid.eq(reader.o.valid & arriving.header & ~holds),
            self.lookup.access.stag.eq(header.stag),
            self.lookup.access.to.eq(header.to),
            self.lookup.access.octets.eq(header.payload),
            self.lookup.access.connection.eq(state.active),
        ]  # fmt: skip

        beat, valid = arriving, reader.o.valid & ~holds & ~state.is_refused
        headers, valids, headings, ordereds = [header], [], [], []
        for n in range(_LOOKUP):
            later = Signal(PayloadBeat(self.lanes, self.connections), name=f"beat_{n}", reset_less=True)
            later_valid = Signal(name=f"beat_valid_{n}")
            later_ordered = Signal(name=f"ordered_{n}")
            later_header = Signal(Header(), name=f"header_{n}", reset_less=True)
            with m.If(self.step):
                m.d.sync += [later.eq(beat), later_valid.eq(valid), later_ordered.eq(valid & ordered)]
                stays = state.storing | state.is_refused | refuses if n == _LOOKUP - 1 else Const(0)
                with m.If(valid & beat.header & ~stays):
                    m.d.sync += later_header.eq(headers[-1])
            beat, valid, ordered = later, later_valid, later_ordered
            headers.append(later_header)
            valids.append(valid)
            headings.append(valid & later.header)
            ordereds.append(ordered)
        m.d.comb += under_way.eq(Cat(ordereds).any())
        ulpdu = _Ulpdu(beat, headers[-1], valid, self._check_order(m, state, headers[1]), self.answer.found.row)
        return ulpdu, Cat(valids).any(), Cat(headings).any()

    def _check_order(self, m, state, header):
        """Compare the header with the state that ordered ULPDUs change, in the last two of the lookup's cycles.

        The state does not change in them.
        """
        order = _Order()
        is_send = Signal()
        right_queue = Signal()
        right_msn = Signal()
        right_mo = Signal()
        right_sink = Signal()
        early_end = Signal.like(order.end)
        m.d.comb += is_send.eq(header.opcode.matches(*SENDS))
        with m.If(self.step):
            m.d.sync += [
                right_queue.eq(header.qn == Mux(is_send, Queue.SEND, Queue.READ)),
                right_msn.eq(header.msn == Mux(is_send, state.send_msn, state.read_msn)),
                right_mo.eq(header.mo == Mux(is_send, self.status.mo, 0)),
                right_sink.eq(self.sink.valid & (header.stag == self.sink.payload.stag)),
                early_end.eq(self.status.mo + header.payload),
                order.in_order.eq(right_queue & right_msn & right_mo),
                order.has_buffer.eq(self.buffer.valid),
                order.in_buffer.eq(early_end <= self.buffer.payload.octets),
                order.end.eq(early_end),
                order.address.eq(self.buffer.payload.address + self.status.mo),
                order.right_sink.eq(right_sink),
            ]
        return order

    def _check(self, m, state, u, refuses, realigner):
        """Accept or refuse the ULPDU with its first beat; all state that ULPDUs change is changed here."""
        self._judge(m, state, u)
        refused = self.status.refused.bit_select(u.beat.connection, 1)
        m.d.comb += [u.now.eq(u.valid & u.beat.header & self.step & ~refused), u.accepts.eq(u.now & u.good)]
        self._pass(m, state, u, refused, refuses, realigner)
        with m.If(refuses):
            m.d.sync += refused.eq(1)
        m.d.comb += self.status.ulpdu.eq(u.valid & u.beat.last & self.step & ~refused & ~refuses)
        self._advance(m, state, u)

    def _judge(self, m, state, u):
        """Check the header of the ULPDU against its queue, or its region."""
        header, order, opcode, found = u.header, u.order, u.header.opcode, self.answer.found
        m.d.comb += [
            u.is_send.eq(opcode.matches(*SENDS)),
            u.is_request.eq(opcode == Opcode.RDMA_READ_REQUEST),
            u.is_write.eq(opcode == Opcode.RDMA_WRITE),
            u.is_response.eq(opcode == Opcode.RDMA_READ_RESPONSE),
            u.invalidates.eq(opcode.matches(*INVALIDATES)),
            u.some.eq(header.payload != 0),
            # A Send may have invalidated the region in the last cycle, while the lookup found it.
            u.found_live.eq(found.live & ~(self.invalidate.valid & (self.invalidate.row == found.row))),
        ]

        # RFC 5041 §7.1: queue, MSN, MO, and buffer of an untagged segment.
        may_invalidate = u.found_live & found.rights[MAY_INVALIDATE]
        good_send = Signal()
        good_request = Signal()
        m.d.comb += [
            good_send.eq(order.in_order & Mux(
                order.has_buffer, order.in_buffer & (~u.invalidates | may_invalidate), self.settings.drops,
            )),
            # RFC 5040 §5.2.2: a request uses one of IRD buffers
            good_request.eq(order.in_order & (header.payload == READ_REQUEST_OCTETS) & header.last
                            & (self.settings.outstanding < self.settings.ird)),
        ]  # fmt: skip

        # RFC 5041 §7.1: the region of a tagged segment; a segment of no octets accesses none (§5.2).
        good_write = Signal()
        good_response = Signal()
        m.d.comb += [
            u.ends.eq(found.room == 0),
            good_write.eq(~u.some | (u.found_live & found.fits & found.rights[Right.REMOTE_WRITE.bit])),
            good_response.eq(
                self.sink.valid
                & (~header.last | Mux(u.some, u.ends, ~self.sink.payload.some | state.all_arrived.signal))
                & (~u.some | (u.found_live & found.fits & found.rights[Right.LOCAL_WRITE.bit]
                              & order.right_sink & (found.offset == self.status.arrived)))
            ),
            u.good.eq((u.is_send & good_send) | (u.is_request & good_request) | (u.is_write & good_write)
                      | (u.is_response & good_response)),
        ]  # fmt: skip

    def _pass(self, m, state, u, refused, refuses, realigner):
        """Pass the payload on to its place; the following beats of a ULPDU go where its first one goes."""
        beat, header, found, piece = u.beat, u.header, self.answer.found, realigner.i.payload
        places = Signal()
        places_on = Signal()
        live = Signal()
        placed = Signal(_Placed(self.lanes, self.connections))
        at = Signal(32)
        m.d.comb += [
            refuses.eq((u.now & ~u.good) | (u.valid & ~beat.header & self.step & ~refused & places_on & ~live)),
            places.eq(Mux(
                beat.header, u.good & ~(u.is_send & ~u.order.has_buffer) & ~(u.is_request & self.settings.shut),
                places_on & live,
            )),
            at.eq(Mux(u.is_send, u.order.address,
                      Mux(u.is_request, state.request_row.signal * request_row_octets(self.lanes), found.address))),
            placed.word.eq(at[2 + (self.lanes.bit_length() - 1):]),
            placed.request.eq(u.is_request),
            placed.connection.eq(state.active),
            realigner.i.valid.eq(
                u.valid & places & ~refused
                & ((beat.count != 0) | (beat.header & (placed.note != Note.NONE)))
            ),
            *(piece[name].eq(beat[name]) for name in ("data", "start", "count", "last")),
            piece.first.eq(beat.header),
            piece.at.eq(at),
            piece.note.eq(placed),
        ]  # fmt: skip
        with m.If(header.last):
            with m.If(u.is_send):
                m.d.comb += placed.note.eq(Note.SEND)
            with m.Elif(u.is_request):
                m.d.comb += placed.note.eq(Note.REQUEST)
            with m.Elif(u.is_response):
                m.d.comb += placed.note.eq(Note.READ)
        with m.If(u.now):
            m.d.sync += [
                places_on.eq(places),
                u.row.eq(found.row),
                live.eq(still_live(~header.tagged | u.found_live, found.row, self.answer) | ~header.tagged),
            ]
        with m.Elif(self.answer.revokes & (self.answer.revoked_row == u.row) & header.tagged):
            m.d.sync += live.eq(0)

    def _advance(self, m, state, u):
        """Change the state of the queues, and of the message, when a ULPDU is accepted."""
        header, order, accepts = u.header, u.order, u.accepts
        m.d.comb += [
            state.next_msn.eq(header.msn + 1),
            self.buffer.ready.eq((accepts & u.is_send & header.last) | self.completion.skips),
            self.sink.ready.eq(accepts & u.is_response & header.last),
            self.status.requested.eq(accepts & u.is_request & ~self.settings.shut),
            self.completion.enters.eq(accepts & u.is_send & header.last & order.has_buffer),
            self.completion.send.opcode.eq(Mux(self.completion.skips, 0, header.opcode)),
            self.completion.send.octets.eq(order.end),
            self.completion.send.stag.eq(header.stag),
            self.invalidate.row.eq(u.row),
        ]
        m.d.sync += self.invalidate.valid.eq(self.completion.enters & u.invalidates)
        with m.If(accepts):
            with m.If(u.is_send):
                state.mo.write(m, Mux(header.last, 0, order.end))
                state.send_begun.write(m, ~header.last)
                with m.If(header.last):
                    state.use_send(m)
            with m.If(u.is_request):
                state.use_read(m)
                with m.If(~self.settings.shut):
                    state.request_row.write(m, state.request_row.signal + 1)
            with m.If(u.is_write):
                state.write_begun.write(m, ~header.last)
            with m.If(u.is_response):
                with m.If(u.some | header.last):
                    state.arrived.write(m, Mux(header.last, 0, self.answer.found.end))
                    state.all_arrived.write(m, u.ends & ~header.last)
        state.note_rtrs(m)

    def _place(self, m, state, realigner):
        """Write the words to memory, or to the memory for requests."""
        word = realigner.o.payload
        next_word = Signal(word_bits(self.lanes))
        number = Signal.like(next_word)
        target = word.note
        failed = self.status.failed.bit_select(target.connection, 1)
        place_bits = (request_row_words(self.lanes) * self.reads - 1).bit_length()  # of a connection
        moves = Signal()
        m.d.comb += [
            number.eq(Mux(word.first, target.word, next_word)),
            self.write.valid.eq(realigner.o.valid & ~target.request),
            self.write.payload.address.eq(number),
            self.write.payload.data.eq(word.data),
            self.write.payload.mask.eq(word.mask),
            self.write.payload.last.eq(word.last),
            self.requests.valid.eq(realigner.o.valid & target.request),
            self.requests.word.eq(word.data),
            self.requests.place.eq(Cat(number[:place_bits], target.connection)),
            realigner.o.ready.eq(target.request | self.write.ready),
            moves.eq(realigner.o.valid & realigner.o.ready),
            self.note.eq(Mux(moves & word.last & ~failed, target.note, Const(Note.NONE, 2))),
            self.requests.arrived.eq(self.note == Note.REQUEST),
        ]
        state.note_fault(m, realigner.o)
        with m.If(moves):
            m.d.sync += next_word.eq(number + 1)


class _State:
    """The state of the connection whose ULPDUs are checked: ``at``, of ``connections``."""

    def __init__(self, m: Module, receiver: RdmaReceiver, at=0, clear=None):
        self.receiver = receiver
        self.next_msn = Signal(32)  # of the queue of the ULPDU that is accepted
        request_row = Signal(range(receiver.reads), name="request_row")
        all_arrived = Signal()  # all octets of the Read Response, but not its last segment
        status = receiver.status
        self.mo, self.arrived, self.request_row, self.all_arrived, self.send_begun, self.write_begun = (
            Cells(m, each, receiver.connections, at, clear)
            for each in (status.mo, status.arrived, request_row, all_arrived, status.send_begun, status.write_begun)
        )
        self.send_msn, self.read_msn = status.send_msn, status.read_msn


class _One(_State):
    """The state of the only connection.

    Its MSNs have registers, which begin with the first one: :class:`.MsnCells` would be the larger circuit.
    """

    def __init__(self, m: Module, receiver: RdmaReceiver):
        super().__init__(m, receiver)
        self.is_refused = receiver.status.refused
        self.active = self.holds = self.send_comes = self.storing = self.cut = Const(0)

    def unsettled(self, withdrawn):
        return withdrawn

    def use_send(self, m):
        m.d.sync += self.send_msn.eq(self.next_msn)

    def use_read(self, m):
        m.d.sync += self.read_msn.eq(self.next_msn)

    def note_rtrs(self, m):
        for kind, msn in ((Rtr.SEND, self.send_msn), (Rtr.READ, self.read_msn)):
            with m.If(self.receiver.rtr == kind):
                m.d.sync += msn.eq(FIRST_MSN + 1)

    def note_fault(self, m, _words):
        failed = self.receiver.status.failed
        m.d.sync += failed.eq(failed | (self.receiver.write_fault & self.receiver.settings.enable))

    def complete(self, m, _u, _refuses, _reader, realigner, behind, _heading, _withdrawn):
        # A ULPDU that is cut off may leave octets in the realigner, which never leave it.
        status = self.receiver.status
        m.d.comb += status.placing.eq(behind | realigner.moving | (realigner.busy & ~status.refused))


class _Many(_State):
    """The state of the active connection, and what many connections need to turn to another one."""

    def __init__(self, m: Module, receiver: RdmaReceiver):
        connections, turn = receiver.connections, receiver.turn
        self.active = active = turn.active
        clear = receiver.clear
        super().__init__(m, receiver, active, clear)
        self.is_refused = Const(0)  # its ULPDUs do not come
        self.holds = Signal()  # no ULPDU's lookup begins
        self.send_comes = turn.sends_coming.bit_select(active, 1)
        self.due = Signal(connections)  # the connection may have buffers to give back
        self.storing = Signal()  # the header of a refused ULPDU is being stored
        self.refused_of = Signal.like(active)  # its connection
        self.cut = Signal()  # a ULPDU was cut off whose octets may be in the realigner
        msns = MsnCells(m, connections, active, turn.rtr_of, clear, self.next_msn)
        self.use_send, self.use_read, self._note_rtr = msns.use_send, msns.use_read, msns.note_rtr
        m.d.comb += [self.send_msn.eq(msns.send), self.read_msn.eq(msns.read)]

    def unsettled(self, _withdrawn):
        return ~self.receiver.turn.settled

    def note_rtrs(self, m):
        """A RTR is the first message of its queue."""
        rtr = self.receiver.rtr
        with m.If((rtr == Rtr.SEND) | (rtr == Rtr.READ)):
            self._note_rtr(m, rtr == Rtr.SEND, rtr == Rtr.READ)

    def note_fault(self, m, words):
        """A fault is of the last word."""
        r, connection = self.receiver, words.payload.note.connection
        last_target = Signal.like(connection)
        with m.If(words.valid):
            m.d.sync += last_target.eq(connection)
        fault_of = Mux(words.valid, connection, last_target)
        m.d.comb += [r.turn.note_of.eq(connection), r.requests.connection.eq(connection)]
        m.d.sync += r.status.failed.eq(r.status.failed | (r.write_fault << fault_of))

    def complete(self, m, u, refuses, reader, realigner, behind, heading, withdrawn):
        """Turn to other connections, and keep the headers of refused ULPDUs."""
        r = self.receiver
        busy = reader.inside | reader.o.valid | behind | realigner.busy | self.storing | self.cut
        m.d.comb += [
            r.turn.checked.eq(u.valid & u.beat.header & r.step),
            r.turn.ulpdu_of.eq(u.beat.connection),
            r.turn.idle.eq(~busy & (self.due == 0)),
        ]
        with m.If(refuses & ~u.beat.header):
            m.d.sync += self.cut.eq(1)
        self._turn(m, reader, realigner, behind, heading, withdrawn)
        self._store(m, u.header, u.beat, refuses)

    def _turn(self, m, reader, realigner, behind, heading, withdrawn):
        """Turn to another connection between ULPDUs: for one of it, to give back its buffers, or to show its state."""
        r = self.receiver
        active, given = r.turn.active, reader.o.payload.connection
        piece, word = realigner.i, realigner.o
        ends_of = Mux(realigner.forgets, self.refused_of, r.turn.note_of)
        runs = InFlight(m, "runs", 3, r.connections, active, ends_of, r.clear)  # of octets that are placed
        runs.begun.count(m, piece.valid & piece.ready & piece.payload.first)
        runs.ended.count(m, realigner.forgets | (word.valid & word.ready & word.payload.last))
        active_is_due = Signal()  # the active connection may have a buffer to give back
        due = Signal(r.connections)  # and these
        m.d.comb += [
            r.turn.returns.eq(self.due),
            due.eq(self.due & ~r.turn.sends_coming),
            active_is_due.eq(due.bit_select(active, 1)),
            self.holds.eq((given != active) | (due != 0) | r.turn.visits | self.storing | self.cut),
            r.turn.visited.eq(r.turn.visits & (r.turn.visit == active) & ~behind & (due == 0)),
            r.status.placing.eq((behind & (active == r.shown.connection)) | runs.any(m, r.shown.connection)),
            realigner.forgets.eq(self.cut & ~realigner.moving),
            Value.cast(reader.clear).eq(r.clear),
            r.turn.connection.eq(reader.connection),
            r.turn.dropped.eq(reader.ends),
        ]
        done = Signal()
        inside = Signal()  # a ULPDU has begun, and has not ended
        with m.If(reader.o.valid & reader.o.ready):
            m.d.sync += inside.eq(~reader.o.payload.last)
        with m.If(~heading & ~inside & ~self.cut & ~self.storing):
            with m.If((due != 0) & ~behind):
                m.d.comb += done.eq(active_is_due & r.turn.settled & ~withdrawn)
                with m.If(~active_is_due):
                    m.d.sync += active.eq(active + 1)
            with m.Elif((due == 0) & r.turn.visits & ~behind):
                with m.If(r.turn.visit != active):
                    m.d.sync += active.eq(r.turn.visit)
            # A free place stays in front of the header: if the ULPDU before it is refused now, its header is stored.
            with m.Elif((due == 0) & ~r.turn.visits & r.step
                        & reader.o.valid & reader.o.payload.header & (given != active)):
                m.d.sync += active.eq(given)
        m.d.sync += self.due.eq(
            (self.due & ~(done << active)) | (r.turn.withdraws << r.turn.withdraws_of)
            | ((r.buffer.valid & r.buffer.ready) << active)
        )  # fmt: skip
        with m.If(realigner.forgets):
            m.d.sync += self.cut.eq(0)
        forget(m, r.clear, r.status.refused, r.status.failed)
        m.d.comb += [
            r.shown.send_begun.eq(self.send_begun.read(m, r.shown.connection)),
            r.shown.write_begun.eq(self.write_begun.read(m, r.shown.connection)),
        ]

    def _store(self, m, header, beat, refuses):
        """Store the header of a refused ULPDU."""
        r = self.receiver
        m.submodules.headers = memory = Memory(shape=32, depth=8 * r.connections, init=[])
        write, read = memory.write_port(), late_read(m, memory)  # of a header that has been stored
        number = Signal(range(8))
        words = Array([*(header.octets.word_select(n, 32) for n in range(HEADER_WORDS)), header.length])
        with m.If(refuses):
            m.d.sync += [self.storing.eq(1), self.refused_of.eq(beat.connection), number.eq(0)]
        with m.Elif(self.storing):
            m.d.sync += [number.eq(number + 1), self.storing.eq(number != HEADER_WORDS)]
        m.d.comb += [
            write.addr.eq(Cat(number, self.refused_of)), write.data.eq(words[number]), write.en.eq(self.storing),
            read.addr.eq(Cat(r.shown.word, r.shown.connection)), r.shown.header.eq(read.data),
        ]  # fmt: skip
