"""Receive: checks each ULPDU, and places its payload (RFC 5041 §5.3, §7; RFC 5040 §5, §7)."""

from enum import IntEnum

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu
from open_rnic.rtl.formats.opcodes import FIRST_MSN, INVALIDATES, READ_REQUEST_OCTETS, SENDS, Opcode, Queue
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Cells, Clear, connection_field, connection_shape, forget
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
    """The place of a ULPDU's payload, the message that it completes, and with many connections its connection."""

    def __init__(self, lanes: int, connections: int):
        super().__init__({"word": word_bits(lanes), "request": 1, "note": Note, **connection_field(connections)})


class RdmaReceiver(wiring.Component):
    """Receive of the RDMA engine.

    ::

        ulpdus ▸ HeaderReader ▸ (lookup in the RegionTable, 3 cycles) ▸ checks ▸ Realigner ▸ memory
                      ▾ host                                                          ▾ requests

    A ULPDU is checked as a whole before its first octet is placed; the checks and their order are those of
    ``docs/rdma-engine.md``. A ULPDU that fails is refused: none of its octets is placed, ``refused`` is set, ``header``
    has its header, and all later ULPDUs are discarded. A ULPDU whose region is revoked while it is being placed is
    refused from there on.

    A Send waits before the lookup for its buffer, so that lookups of transmit go on.

    Once memory could not write a word, ``failed`` is set, and no message completes any more: that of the word has none
    of its ``last`` words transferred yet, and all others follow.

    Latency: 8 cycles from a beat to the word. Throughput: one beat per cycle; a ULPDU takes a cycle more if its octets
    lie in more words than it has beats. ULPDUs are ordered, except those of RDMA Writes: such a ULPDU waits for the
    checks of the ordered one before.

    Members
    -------
    i : In, stream of :class:`.RxUlpdu`
    host : Out, stream of :class:`.RxUlpdu`
        See :class:`.HeaderReader`.
    write : Out, stream of :class:`.MemoryWrite`
    write_fault : In, 1 bit
        See :class:`.MemoryPort`. While the receiver is not enabled, it is that of a connection before.
    failed : Out, 1 bit
        Memory could not write a word.
    requests : Out, :class:`.RequestWords`
    note : Out, :class:`Note`
        This message is complete: its octets are in memory. For one cycle.
    lookup, answer, step
        Of :class:`.RegionTable`; ``step`` is 0 if memory stalls.
    invalidate : Out, 1 bit
        A Send that invalidates the region in row ``invalidate_row`` has been checked in the last cycle.
    invalidate_row : Out
    revokes, revoked_row : In
        Of :class:`.RegionTable`.
    buffer : In, stream of :class:`.Buffer`
        The posted buffers; one is taken when a Send's last segment has been checked, or in the cycle of ``skips``.
    sink : In, stream of :class:`.Sink`
        The RDMA Reads that wait for their responses, the oldest first.
    completed : Out, :class:`.Completed`
    completes : Out, 1 bit
        A Send's last segment has been checked. It is complete with the next ``note`` SEND.
    skips : Out, 1 bit
        The buffer was withdrawn. No Send is between its last segment's check and its ``note``.
    enable, waits, drops, shut, ird : In
        As in the registers CONTROL and LIMITS.
    stopped : In, 1 bit
        ULPDUs are discarded.
    outstanding : In, 8 bits
        RDMA Read Requests that have been checked, and are not answered.
    requested : Out, 1 bit
        An RDMA Read Request has been accepted.
    rtr : In, :class:`.Rtr`
        The RTR that has just been received, if it has an MSN.
    refused, passed, blocked, placing, send_begun, write_begun : Out, 1 bit
    send_msn, read_msn, mo, arrived : Out, 32 bits
        As in the registers STATUS, RX_SEND_MSN, RX_READ_MSN, RX_MO, and RX_ARRIVED.
    header : Out, :class:`.Header`
    ulpdu : Out, 1 bit
        A ULPDU has been processed.

    With many connections, ``failed``, ``refused`` and ``passed`` have a bit for each. The checks
    process one connection at a time, and turn to another one, in a cycle, while no header is between its lookup and its
    checks; the beats behind a header go on. The header of a refused ULPDU is stored in block RAM; all checks wait
    meanwhile. A Send for which no buffer is posted never stalls: it must not be
    given. ``rtr`` is of connection ``rtr_of``, and there are

    of : Out
        The connection of the beat at ``i``, of which ``enable`` and ``stopped`` are expected.
    active : Out
        The connection of the checks, of which all other settings, ``buffer`` and ``sink`` are expected; the outputs
        from ``send_msn`` to ``arrived`` are those of it.
    ulpdu_of : Out
        The connection of ``ulpdu``.
    note_of : Out
        The connection of ``note``.
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
        A ULPDU of connection ``of`` has been discarded, or passed to the host. For one cycle.
    shown : In
        The connection of ``placing``, and of
    shown_send_begun, shown_write_begun : Out, 1 bit
        The same as ``send_begun`` and ``write_begun``, which are those of the active connection.
    shown_word : In
        A word of the header of its refused ULPDU; behind those of the octets follows the length.
    shown_header : Out, 32 bits
        It, a cycle later.
    idle : Out, 1 bit
        No ULPDU is in the block.
    clear : In, :class:`.Clear`
    """

    def __init__(self, lanes: int, rows: int, reads: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.rows = rows * connections
        self.reads = reads
        self.connections = connections
        rows = self.rows
        each, of = connections, connection_shape(connections)
        many = {
            "of": Out(of), "active": Out(of), "returns": Out(each), "sends_coming": In(each),
            "note_of": Out(of), "settled": In(1), "withdraws": In(1), "withdraws_of": In(of),
            "visits": In(1), "visit": In(of), "visited": Out(1), "ulpdu_of": Out(of),
            "checked": Out(1), "dropped": Out(1), "shown": In(of), "shown_word": In(3), "shown_header": Out(32),
            "shown_send_begun": Out(1), "shown_write_begun": Out(1), "idle": Out(1), "rtr_of": In(of),
            "clear": In(Clear(connections)),
        }  # fmt: skip
        first_msn = FIRST_MSN if connections == 1 else 0
        flags = {"refused": Out(each), "passed": Out(each), "send_begun": Out(1), "write_begun": Out(1)}
        ulpdus = stream.Signature(RxUlpdu(lanes, connections))
        super().__init__({
            **(many if connections > 1 else {}), **flags,
            "i": In(ulpdus), "host": Out(ulpdus), "write": Out(stream.Signature(MemoryWrite(lanes))),
            "write_fault": In(1), "failed": Out(each),
            "requests": Out(RequestWords(lanes, reads, connections)), "note": Out(Note),
            "lookup": Out(Request(connections)), "answer": In(Answer(rows)), "step": Out(1),
            "invalidate": Out(1), "invalidate_row": Out(range(rows)),
            "buffer": In(stream.Signature(Buffer)), "sink": In(stream.Signature(Sink)),
            "completed": Out(Completed), "completes": Out(1), "skips": Out(1),
            "enable": In(1), "waits": In(1), "drops": In(1), "shut": In(1), "ird": In(8), "stopped": In(1),
            "outstanding": In(8), "requested": Out(1), "rtr": In(Rtr),
            "blocked": Out(1), "placing": Out(1),
            "send_msn": Out(32, init=first_msn), "read_msn": Out(32, init=first_msn), "mo": Out(32), "arrived": Out(32),
            "header": Out(Header()), "ulpdu": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        many = self.connections > 1
        m.submodules.reader = reader = HeaderReader(self.lanes, self.connections)
        m.submodules.realigner = realigner = Realigner(
            self.lanes, _Placed(self.lanes, self.connections), abandons=many
        )
        x = _Active(m, self)
        wiring.connect(m, wiring.flipped(self.i), reader.i)
        wiring.connect(m, reader.host, wiring.flipped(self.host))
        refuses = Signal()  # the ULPDU that is being checked, or placed, is refused
        withdrawn = Signal()  # the oldest buffer is, before a Send has begun
        u, behind, heading = self._look_up(m, x, reader, refuses, withdrawn)
        m.d.comb += [
            withdrawn.eq(self.buffer.valid & self.buffer.payload.withdrawn & ~self.send_begun),
            self.skips.eq(withdrawn & reader.idle & (~self.sends_coming.bit_select(self.active, 1) if many else 1)),
            reader.enable.eq(self.enable),
            reader.discard.eq(self.stopped if many else self.refused | self.stopped),
            reader.idle.eq(~behind & ~realigner.busy),
            self.passed.eq(reader.passed),
            self.step.eq(realigner.i.ready & ~(x.storing | x.cut) if many else realigner.i.ready),
            self.header.eq(u.header),
        ]
        self._check(m, x, u, refuses, realigner)
        self._place(m, x, realigner)
        if many:
            self._turn(m, x, reader, realigner, behind, heading, withdrawn)
            self._store(m, x, u.header, u.beat, refuses)
            m.d.comb += self.idle.eq(~(reader.inside | reader.o.valid | behind | realigner.busy | x.storing | x.cut)
                                     & (x.due == 0))
        else:
            # A ULPDU that is cut off may leave octets in the realigner, which never leave it.
            m.d.comb += self.placing.eq(behind | realigner.moving | (realigner.busy & ~self.refused))
        return m

    def _turn(self, m, x, reader, realigner, behind, heading, withdrawn):
        """Turn to another connection between ULPDUs: for one of it, to give back its buffers, or to show its state."""
        active, given = self.active, reader.o.payload.connection
        piece, word = realigner.i, realigner.o
        begun = Signal(3)  # runs of octets that are placed
        ended = Signal(3)
        begins = Cells(m, begun, self.connections, active, self.clear)
        ends = Cells(m, ended, self.connections, Mux(realigner.forgets, x.refused_of, self.note_of), self.clear)
        begins.count(m, piece.valid & piece.ready & piece.payload.first)
        ends.count(m, realigner.forgets | (word.valid & word.ready & word.payload.last))
        mine = Signal()  # this connection may have a buffer to give back
        due = Signal(self.connections)  # and these
        m.d.comb += [
            self.returns.eq(x.due),
            due.eq(x.due & ~self.sends_coming),
            mine.eq(due.bit_select(active, 1)),
            x.holds.eq((given != active) | (due != 0) | self.visits | x.storing | x.cut),
            self.visited.eq(self.visits & (self.visit == active) & ~behind & (due == 0)),
            self.placing.eq((behind & (active == self.shown))
                            | (begins.read(m, self.shown) != ends.read(m, self.shown))),
            realigner.forgets.eq(x.cut & ~realigner.moving),
            Value.cast(reader.clear).eq(self.clear),
            self.of.eq(reader.of),
            self.dropped.eq(reader.ends),
        ]
        done = Signal()
        inside = Signal()  # a ULPDU has begun, and has not ended
        with m.If(reader.o.valid & reader.o.ready):
            m.d.sync += inside.eq(~reader.o.payload.last)
        with m.If(~heading & ~inside & ~x.cut & ~x.storing):
            with m.If((due != 0) & ~behind):
                m.d.comb += done.eq(mine & self.settled & ~withdrawn)
                with m.If(~mine):
                    m.d.sync += active.eq(active + 1)
            with m.Elif((due == 0) & self.visits & ~behind):
                with m.If(self.visit != active):
                    m.d.sync += active.eq(self.visit)
            # A free place stays in front of the header: if the ULPDU before it is refused now, its header is stored.
            with m.Elif((due == 0) & ~self.visits & self.step
                        & reader.o.valid & reader.o.payload.header & (given != active)):
                m.d.sync += active.eq(given)
        m.d.sync += x.due.eq(
            (x.due & ~(done << active)) | (self.withdraws << self.withdraws_of)
            | ((self.buffer.valid & self.buffer.ready) << active)
        )  # fmt: skip
        with m.If(realigner.forgets):
            m.d.sync += x.cut.eq(0)
        forget(m, self.clear, self.refused, self.failed)
        m.d.comb += [
            self.shown_send_begun.eq(x.send_begun.read(m, self.shown)),
            self.shown_write_begun.eq(x.write_begun.read(m, self.shown)),
        ]

    def _store(self, m, x, header, beat, refuses):
        """Store the header of a refused ULPDU."""
        m.submodules.headers = memory = Memory(shape=32, depth=8 * self.connections, init=[])
        write, read = memory.write_port(), memory.read_port()
        number = Signal(range(8))
        words = Array([*(header.octets.word_select(n, 32) for n in range(HEADER_WORDS)), header.length])
        with m.If(refuses):
            m.d.sync += [x.storing.eq(1), x.refused_of.eq(beat.connection), number.eq(0)]
        with m.Elif(x.storing):
            m.d.sync += [number.eq(number + 1), x.storing.eq(number != HEADER_WORDS)]
        m.d.comb += [
            write.addr.eq(Cat(number, x.refused_of)), write.data.eq(words[number]), write.en.eq(x.storing),
            read.addr.eq(Cat(self.shown_word, self.shown)), self.shown_header.eq(read.data),
        ]  # fmt: skip

    def _look_up(self, m, x, reader, refuses, withdrawn):
        """Delay each beat until the result of the lookup is there; an ordered ULPDU waits for the one before.

        The header of a ULPDU that is refused stays.

        Return the ULPDU of the delayed beat, and whether any beat, or any header, is under way.
        """
        arriving, header = reader.o.payload, reader.header
        is_send = Signal()
        ordered = Signal()  # the checks use what the ordered ULPDU before may change
        m.d.comb += [
            is_send.eq(header.opcode.matches(*SENDS)),
            ordered.eq(arriving.header & (header.opcode != Opcode.RDMA_WRITE)),
        ]
        holds = Signal()
        under_way = Signal()  # an ordered ULPDU is between the lookup and its checks
        m.d.comb += [
            self.blocked.eq(reader.o.valid & arriving.header & is_send & ~self.buffer.valid & self.waits & ~self.drops
                            & ~under_way & ~self.refused if not x.many else 0),
            holds.eq((arriving.header & x.holds) | (ordered & (under_way | ~self.settled)) if x.many else
                     ordered & (self.blocked | under_way | (is_send & withdrawn))),
            reader.o.ready.eq(self.step & ~holds if x.many else (self.step & ~holds) | self.refused),
            *([self.lookup.connection.eq(self.active)] if x.many else []),
            self.lookup.valid.eq(reader.o.valid & arriving.header & ~holds),
            self.lookup.access.stag.eq(header.stag),
            self.lookup.access.to.eq(header.to),
            self.lookup.access.octets.eq(header.payload),
        ]  # fmt: skip

        beat, valid = arriving, reader.o.valid & ~holds & (1 if x.many else ~self.refused)
        headers, valids, headings, ordereds = [header], [], [], []
        for n in range(_LOOKUP):
            later = Signal(PayloadBeat(self.lanes, self.connections), name=f"beat_{n}", reset_less=True)
            later_valid = Signal(name=f"beat_valid_{n}")
            later_ordered = Signal(name=f"ordered_{n}")
            later_header = Signal(Header(), name=f"header_{n}", reset_less=True)
            with m.If(self.step):
                m.d.sync += [later.eq(beat), later_valid.eq(valid), later_ordered.eq(valid & ordered)]
                refused = x.storing if x.many else self.refused
                stays = refused | refuses if n == _LOOKUP - 1 else Const(0)
                with m.If(valid & beat.header & ~stays):
                    m.d.sync += later_header.eq(headers[-1])
            beat, valid, ordered = later, later_valid, later_ordered
            headers.append(later_header)
            valids.append(valid)
            headings.append(valid & later.header)
            ordereds.append(ordered)
        m.d.comb += under_way.eq(Cat(ordereds).any())
        ulpdu = _Ulpdu(beat, headers[-1], valid, self._check_order(m, x, headers[1]), self.answer.found.row)
        return ulpdu, Cat(valids).any(), Cat(headings).any()

    def _check_order(self, m, active, header):
        """Compare the header with the state that ordered ULPDUs change, in the last two of the lookup's cycles.

        The state does not change in them.
        """
        x = _Order()
        is_send = Signal()
        right_queue = Signal()
        right_msn = Signal()
        right_mo = Signal()
        right_sink = Signal()
        early_end = Signal.like(x.end)
        m.d.comb += is_send.eq(header.opcode.matches(*SENDS))
        with m.If(self.step):
            m.d.sync += [
                right_queue.eq(header.qn == Mux(is_send, Queue.SEND, Queue.READ)),
                right_msn.eq(header.msn == Mux(is_send, active.send_msn, active.read_msn)),
                right_mo.eq(header.mo == Mux(is_send, self.mo, 0)),
                right_sink.eq(self.sink.valid & (header.stag == self.sink.payload.stag)),
                early_end.eq(self.mo + header.payload),
                x.in_order.eq(right_queue & right_msn & right_mo),
                x.has_buffer.eq(self.buffer.valid),
                x.in_buffer.eq(early_end <= self.buffer.payload.octets),
                x.end.eq(early_end),
                x.address.eq(self.buffer.payload.address + self.mo),
                x.right_sink.eq(right_sink),
            ]
        return x

    def _check(self, m, x, u, refuses, realigner):
        """Accept or refuse the ULPDU with its first beat; all state that ULPDUs change is changed here."""
        self._judge(m, x, u)
        refused = self.refused.bit_select(u.beat.connection, 1) if x.many else self.refused
        m.d.comb += [u.now.eq(u.valid & u.beat.header & self.step & ~refused), u.accepts.eq(u.now & u.good)]
        self._pass(m, x, u, refused, refuses, realigner)
        with m.If(refuses):
            m.d.sync += refused.eq(1)
        m.d.comb += self.ulpdu.eq(u.valid & u.beat.last & self.step & ~refused & ~refuses)
        if x.many:
            m.d.comb += [self.checked.eq(u.valid & u.beat.header & self.step), self.ulpdu_of.eq(u.beat.connection)]
            with m.If(refuses & ~u.beat.header):
                m.d.sync += x.cut.eq(1)
        self._advance(m, x, u)

    def _judge(self, m, x, u):
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
            u.found_live.eq(found.live & ~(self.invalidate & (self.invalidate_row == found.row))),
        ]

        # RFC 5041 §7.1: queue, MSN, MO, and buffer of an untagged segment.
        may_invalidate = u.found_live & found.rights[MAY_INVALIDATE]
        good_send = Signal()
        good_request = Signal()
        m.d.comb += [
            good_send.eq(order.in_order & Mux(
                order.has_buffer, order.in_buffer & (~u.invalidates | may_invalidate), self.drops,
            )),
            # RFC 5040 §5.2.2: a request uses one of IRD buffers
            good_request.eq(order.in_order & (header.payload == READ_REQUEST_OCTETS) & header.last
                            & (self.outstanding < self.ird)),
        ]  # fmt: skip

        # RFC 5041 §7.1: the region of a tagged segment; a segment of no octets accesses none (§5.2).
        good_write = Signal()
        good_response = Signal()
        m.d.comb += [
            u.ends.eq(found.room == 0),
            good_write.eq(~u.some | (u.found_live & found.fits & found.rights[Right.REMOTE_WRITE.bit])),
            good_response.eq(
                self.sink.valid
                & (~header.last | Mux(u.some, u.ends, ~self.sink.payload.some | x.all_arrived.signal))
                & (~u.some | (u.found_live & found.fits & found.rights[Right.LOCAL_WRITE.bit]
                              & order.right_sink & (found.offset == self.arrived)))
            ),
            u.good.eq((u.is_send & good_send) | (u.is_request & good_request) | (u.is_write & good_write)
                      | (u.is_response & good_response)),
        ]  # fmt: skip

    def _pass(self, m, x, u, refused, refuses, realigner):
        """Pass the payload on to its place; the following beats of a ULPDU go where its first one goes."""
        beat, header, found, piece = u.beat, u.header, self.answer.found, realigner.i.payload
        places = Signal()
        places_on = Signal()
        live = Signal()
        placed = Signal(_Placed(self.lanes, self.connections))
        at = Signal(32)
        m.d.comb += [
            refuses.eq((u.now & ~u.good) | (u.valid & ~beat.header & self.step & ~refused & places_on & ~live)),
            places.eq(Mux(beat.header, u.good & ~(u.is_send & ~u.order.has_buffer) & ~(u.is_request & self.shut),
                          places_on & live)),
            at.eq(Mux(u.is_send, u.order.address,
                      Mux(u.is_request, x.request_row.signal * request_row_octets(self.lanes), found.address))),
            placed.word.eq(at[2 + (self.lanes.bit_length() - 1):]),
            placed.request.eq(u.is_request),
            *([placed.connection.eq(self.active)] if x.many else []),
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

    def _advance(self, m, x, u):
        """Change the state of the queues, and of the message, when a ULPDU is accepted."""
        header, order, accepts = u.header, u.order, u.accepts
        next_msn = Signal(32)
        m.d.comb += [
            next_msn.eq(header.msn + 1),
            self.buffer.ready.eq((accepts & u.is_send & header.last) | self.skips),
            self.sink.ready.eq(accepts & u.is_response & header.last),
            self.requested.eq(accepts & u.is_request & ~self.shut),
            self.completes.eq(accepts & u.is_send & header.last & order.has_buffer),
            self.completed.opcode.eq(Mux(self.skips, 0, header.opcode)),
            self.completed.octets.eq(order.end),
            self.completed.stag.eq(header.stag),
            self.invalidate_row.eq(u.row),
        ]
        if x.many:
            m.d.comb += x.next_msn.eq(next_msn)
        m.d.sync += self.invalidate.eq(self.completes & u.invalidates)
        with m.If(accepts):
            with m.If(u.is_send):
                x.mo.write(m, Mux(header.last, 0, order.end))
                x.send_begun.write(m, ~header.last)
                with m.If(header.last):
                    x.next_send(m, next_msn)
            with m.If(u.is_request):
                x.next_read(m, next_msn)
                with m.If(~self.shut):
                    x.request_row.write(m, x.request_row.signal + 1)
            with m.If(u.is_write):
                x.write_begun.write(m, ~header.last)
            with m.If(u.is_response):
                with m.If(u.some | header.last):
                    x.arrived.write(m, Mux(header.last, 0, self.answer.found.end))
                    x.all_arrived.write(m, u.ends & ~header.last)
        x.note_rtrs(m)

    def _place(self, m, x, realigner):
        """Write the words to memory, or to the memory for requests."""
        word = realigner.o.payload
        next_word = Signal(word_bits(self.lanes))
        number = Signal.like(next_word)
        target = word.note
        failed = self.failed.bit_select(target.connection, 1) if x.many else self.failed
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
            self.requests.place.eq(Cat(number[:place_bits], target.connection) if x.many else number),
            realigner.o.ready.eq(target.request | self.write.ready),
            moves.eq(realigner.o.valid & realigner.o.ready),
            self.note.eq(Mux(moves & word.last & ~failed, target.note, Const(Note.NONE, 2))),
            self.requests.arrived.eq(self.note == Note.REQUEST),
        ]
        if x.many:
            last_target = Signal.like(self.active)  # of the last word
            with m.If(realigner.o.valid):
                m.d.sync += last_target.eq(target.connection)
            fault_of = Mux(realigner.o.valid, target.connection, last_target)
            m.d.comb += [self.note_of.eq(target.connection), self.requests.connection.eq(target.connection)]
            m.d.sync += self.failed.eq(self.failed | (self.write_fault << fault_of))
        else:
            m.d.sync += self.failed.eq(self.failed | (self.write_fault & self.enable))
        with m.If(moves):
            m.d.sync += next_word.eq(number + 1)


class _Active:
    """The state of the connection whose ULPDUs are checked, and what many connections need to turn to another one."""

    def __init__(self, m: Module, receiver: RdmaReceiver):
        connections = receiver.connections
        self.many = connections > 1
        self._receiver = receiver
        request_row = Signal(range(receiver.reads), name="request_row")
        all_arrived = Signal()  # all octets of the Read Response, but not its last segment
        active = 0
        if self.many:
            active = receiver.active
            self.holds = Signal()  # no ULPDU's lookup begins
            self.due = Signal(connections)  # the connection may have buffers to give back
            self.storing = Signal()  # the header of a refused ULPDU is being stored
            self.refused_of = Signal.like(active)  # its connection
            self.cut = Signal()  # a ULPDU was cut off whose octets may be in the realigner
            # Numbers of 0 are those after a reset; a connection that has used a MSN has 1 in these.
            sends_used = Signal()
            reads_used = Signal()

        def cells(signal, value=None):
            return Cells(m, signal, connections, active, receiver.clear if self.many else None, value)

        self.mo, self.arrived, self.request_row = cells(receiver.mo), cells(receiver.arrived), cells(request_row)
        self.all_arrived, self.send_begun, self.write_begun = (
            cells(each) for each in (all_arrived, receiver.send_begun, receiver.write_begun)
        )
        self.send_msn, self.read_msn = receiver.send_msn, receiver.read_msn
        if self.many:
            sends, reads = (Signal(32, name=name) for name in ("next_send", "next_read"))
            self.next_msn = Signal(32)  # of the queue of the ULPDU that is accepted
            self._sends, self._reads = cells(sends, self.next_msn), cells(reads, self.next_msn)
            self._sends_used, self._reads_used = cells(sends_used), cells(reads_used)
            rtrs = Signal(2)  # the first Send, or the first RDMA Read Request, was a RTR
            self._rtrs = Cells(m, rtrs, connections, receiver.rtr_of, receiver.clear)
            by_rtr = self._rtrs.read(m, active)
            m.d.comb += [
                receiver.send_msn.eq(sends | Mux(sends_used, 0, FIRST_MSN << by_rtr[0])),
                receiver.read_msn.eq(reads | Mux(reads_used, 0, FIRST_MSN << by_rtr[1])),
            ]

    def next_send(self, m, msn):
        if self.many:
            self._sends.write(m)
            self._sends_used.write(m, 1)
        else:
            m.d.sync += self.send_msn.eq(msn)

    def next_read(self, m, msn):
        if self.many:
            self._reads.write(m)
            self._reads_used.write(m, 1)
        else:
            m.d.sync += self.read_msn.eq(msn)

    def note_rtrs(self, m):
        """A RTR is the first message of its queue."""
        rtr = self._receiver.rtr
        if self.many:
            with m.If((rtr == Rtr.SEND) | (rtr == Rtr.READ)):
                self._rtrs.write(m, Cat(rtr == Rtr.SEND, rtr == Rtr.READ))
            return
        for kind, msn in ((Rtr.SEND, self.send_msn), (Rtr.READ, self.read_msn)):
            with m.If(rtr == kind):
                m.d.sync += msn.eq(FIRST_MSN + 1)
