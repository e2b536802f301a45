"""Receive: checks each ULPDU, and places its payload (RFC 5041 §5.3, §7; RFC 5040 §5, §7)."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import RxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.opcodes import FIRST_MSN, INVALIDATES, READ_REQUEST_OCTETS, SENDS, Opcode, Queue
from open_rnic.rtl.rdma.header_reader import Header, HeaderReader, PayloadBeat
from open_rnic.rtl.rdma.layouts import (
    ADDRESS_BITS,
    Buffer,
    Completed,
    MemoryWrite,
    Sink,
    request_row_octets,
    word_bits,
)
from open_rnic.rtl.rdma.realigner import Realigner
from open_rnic.rtl.rdma.regions import MAY_INVALIDATE, Found, Request, still_live
from open_rnic.rtl.rdma.registers import Right
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


class _Placed(data.StructLayout):
    """The place of a ULPDU's payload, and the message that it completes."""

    def __init__(self, lanes: int):
        super().__init__({"word": word_bits(lanes), "request": 1, "note": Note})


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
    request : Out, 1 bit
        ``request_word``, with the number ``request_at``, is to be written to the memory for RDMA Read Requests.
    request_word : Out, 32 * ``lanes`` bits
    request_at : Out
    note : Out, :class:`Note`
        This message is complete: its octets are in memory. For one cycle.
    lookup, found, step
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
    """

    def __init__(self, lanes: int, rows: int, reads: int):
        check_lanes(lanes)
        self.lanes = lanes
        self.rows = rows
        self.reads = reads
        ulpdus = stream.Signature(RxUlpdu(lanes))
        super().__init__({
            "i": In(ulpdus), "host": Out(ulpdus), "write": Out(stream.Signature(MemoryWrite(lanes))),
            "write_fault": In(1), "failed": Out(1),
            "request": Out(1), "request_word": Out(32 * lanes), "request_at": Out(range(self.request_words)),
            "note": Out(Note),
            "lookup": Out(Request()), "found": In(Found(rows)), "step": Out(1),
            "invalidate": Out(1), "invalidate_row": Out(range(rows)), "revokes": In(1), "revoked_row": In(range(rows)),
            "buffer": In(stream.Signature(Buffer)), "sink": In(stream.Signature(Sink)),
            "completed": Out(Completed), "completes": Out(1), "skips": Out(1),
            "enable": In(1), "waits": In(1), "drops": In(1), "shut": In(1), "ird": In(8), "stopped": In(1),
            "outstanding": In(8), "requested": Out(1), "rtr": In(Rtr),
            **{name: Out(1) for name in ("refused", "passed", "blocked", "placing", "send_begun", "write_begun")},
            "send_msn": Out(32, init=FIRST_MSN), "read_msn": Out(32, init=FIRST_MSN), "mo": Out(32), "arrived": Out(32),
            "header": Out(Header()), "ulpdu": Out(1),
        })  # fmt: skip

    @property
    def request_words(self) -> int:
        """Words of the memory for RDMA Read Requests."""
        return self.reads * request_row_octets(self.lanes) // (4 * self.lanes)

    def elaborate(self, platform):
        m = Module()
        m.submodules.reader = reader = HeaderReader(self.lanes)
        m.submodules.realigner = realigner = Realigner(self.lanes, _Placed(self.lanes))
        wiring.connect(m, wiring.flipped(self.i), reader.i)
        wiring.connect(m, reader.host, wiring.flipped(self.host))
        refuses = Signal()  # the ULPDU that is being checked, or placed, is refused
        withdrawn = Signal()  # the oldest buffer is, before a Send has begun
        beat, header, beat_valid, behind, order = self._look_up(m, reader, refuses, withdrawn)
        m.d.comb += [
            withdrawn.eq(self.buffer.valid & self.buffer.payload.withdrawn & ~self.send_begun),
            self.skips.eq(withdrawn & reader.idle),
            reader.enable.eq(self.enable),
            reader.discard.eq(self.refused | self.stopped),
            reader.idle.eq(~behind & ~realigner.busy),
            self.passed.eq(reader.passed),
            self.step.eq(realigner.i.ready),
            self.header.eq(header),
            # A ULPDU that is cut off may leave octets in the realigner, which never leave it.
            self.placing.eq(behind | realigner.moving | (realigner.busy & ~self.refused)),
        ]
        self._check(m, beat, header, beat_valid, order, refuses, realigner)
        self._place(m, realigner)
        return m

    def _look_up(self, m, reader, refuses, withdrawn):
        """Delay each beat until the result of the lookup is there; an ordered ULPDU waits for the one before.

        The header of a ULPDU that is refused stays.

        Return the delayed beat and its header, whether it is valid, and whether any beat is under way; and the results
        of the checks in the meantime.
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
                            & ~under_way & ~self.refused),
            holds.eq(ordered & (self.blocked | under_way | (is_send & withdrawn))),
            reader.o.ready.eq((self.step & ~holds) | self.refused),
            self.lookup.valid.eq(reader.o.valid & arriving.header & ~holds),
            self.lookup.access.stag.eq(header.stag),
            self.lookup.access.to.eq(header.to),
            self.lookup.access.octets.eq(header.payload),
        ]  # fmt: skip

        beat, valid = arriving, reader.o.valid & ~holds & ~self.refused
        headers, valids, ordereds = [header], [], []
        for n in range(_LOOKUP):
            later = Signal(PayloadBeat(self.lanes), name=f"beat_{n}", reset_less=True)
            later_valid = Signal(name=f"beat_valid_{n}")
            later_ordered = Signal(name=f"ordered_{n}")
            later_header = Signal(Header(), name=f"header_{n}", reset_less=True)
            with m.If(self.step):
                m.d.sync += [later.eq(beat), later_valid.eq(valid), later_ordered.eq(valid & ordered)]
                stays = self.refused | refuses if n == _LOOKUP - 1 else Const(0)
                with m.If(valid & beat.header & ~stays):
                    m.d.sync += later_header.eq(headers[-1])
            beat, valid, ordered = later, later_valid, later_ordered
            headers.append(later_header)
            valids.append(valid)
            ordereds.append(ordered)
        m.d.comb += under_way.eq(Cat(ordereds).any())
        return beat, headers[-1], valid, Cat(valids).any(), self._check_order(m, headers[1])

    def _check_order(self, m, header):
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
                right_msn.eq(header.msn == Mux(is_send, self.send_msn, self.read_msn)),
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

    def _check(self, m, beat, header, valid, order, refuses, realigner):
        """Accept or refuse the ULPDU with its first beat; all state that ULPDUs change is changed here."""
        opcode, found = header.opcode, self.found
        is_send = Signal()
        is_request = Signal()
        is_write = Signal()
        is_response = Signal()
        invalidates = Signal()
        m.d.comb += [
            is_send.eq(opcode.matches(*SENDS)),
            is_request.eq(opcode == Opcode.RDMA_READ_REQUEST),
            is_write.eq(opcode == Opcode.RDMA_WRITE),
            is_response.eq(opcode == Opcode.RDMA_READ_RESPONSE),
            invalidates.eq(opcode.matches(*INVALIDATES)),
        ]
        some = Signal()  # the ULPDU has octets to place
        m.d.comb += some.eq(header.payload != 0)

        # A Send may have invalidated the region in the last cycle, while the lookup found it.
        row = Signal.like(found.row)
        found_live = Signal()
        m.d.comb += found_live.eq(found.live & ~(self.invalidate & (self.invalidate_row == found.row)))

        # RFC 5041 §7.1: queue, MSN, MO, and buffer of an untagged segment.
        may_invalidate = found_live & found.rights[MAY_INVALIDATE]
        good_send = Signal()
        good_request = Signal()
        m.d.comb += [
            good_send.eq(order.in_order & Mux(
                order.has_buffer, order.in_buffer & (~invalidates | may_invalidate), self.drops,
            )),
            # RFC 5040 §5.2.2: a request uses one of IRD buffers
            good_request.eq(order.in_order & (header.payload == READ_REQUEST_OCTETS) & header.last
                            & (self.outstanding < self.ird)),
        ]  # fmt: skip

        # RFC 5041 §7.1: the region of a tagged segment; a segment of no octets accesses none (§5.2).
        ends = Signal()  # the region ends with the octets
        all_arrived = Signal()  # all octets of the Read Response, but not its last segment
        good_write = Signal()
        good_response = Signal()
        m.d.comb += [
            ends.eq(found.room == 0),
            good_write.eq(~some | (found_live & found.fits & found.rights[Right.REMOTE_WRITE.bit])),
            good_response.eq(
                self.sink.valid
                & (~header.last | Mux(some, ends, ~self.sink.payload.some | all_arrived))
                & (~some | (found_live & found.fits & found.rights[Right.LOCAL_WRITE.bit]
                            & order.right_sink & (found.offset == self.arrived)))
            ),
        ]  # fmt: skip
        good = Signal()
        m.d.comb += good.eq(
            (is_send & good_send) | (is_request & good_request) | (is_write & good_write)
            | (is_response & good_response)
        )  # fmt: skip

        # The following beats of a ULPDU go where its first one goes.
        tagged = header.tagged
        places = Signal()
        places_on = Signal()
        live = Signal()
        now = Signal()  # the ULPDU is checked in this cycle
        accepts = Signal()
        placed = Signal(_Placed(self.lanes))
        at = Signal(32)
        request_row = Signal(range(self.reads))
        m.d.comb += [
            now.eq(valid & beat.header & self.step & ~self.refused),
            accepts.eq(now & good),
            refuses.eq((now & ~good) | (valid & ~beat.header & self.step & ~self.refused & places_on & ~live)),
            places.eq(Mux(beat.header, good & ~(is_send & ~order.has_buffer) & ~(is_request & self.shut),
                          places_on & live)),
            at.eq(Mux(is_send, order.address,
                      Mux(is_request, request_row * request_row_octets(self.lanes), found.address))),
            placed.word.eq(at[2 + (self.lanes.bit_length() - 1):]),
            placed.request.eq(is_request),
        ]  # fmt: skip
        with m.If(header.last):
            with m.If(is_send):
                m.d.comb += placed.note.eq(Note.SEND)
            with m.Elif(is_request):
                m.d.comb += placed.note.eq(Note.REQUEST)
            with m.Elif(is_response):
                m.d.comb += placed.note.eq(Note.READ)
        piece = realigner.i.payload
        m.d.comb += [
            realigner.i.valid.eq(
                valid & places & ~self.refused
                & ((beat.count != 0) | (beat.header & (placed.note != Note.NONE)))
            ),
            piece.data.eq(beat.data),
            piece.start.eq(beat.start),
            piece.count.eq(beat.count),
            piece.first.eq(beat.header),
            piece.last.eq(beat.last),
            piece.at.eq(at),
            piece.note.eq(placed),
        ]  # fmt: skip
        with m.If(now):
            m.d.sync += [
                places_on.eq(places),
                row.eq(found.row),
                live.eq(still_live(~tagged | found_live, found.row, self) | ~tagged),
            ]
        with m.Elif(self.revokes & (self.revoked_row == row) & header.tagged):
            m.d.sync += live.eq(0)
        with m.If(refuses):
            m.d.sync += self.refused.eq(1)
        m.d.comb += self.ulpdu.eq(valid & beat.last & self.step & ~self.refused & ~refuses)

        # The state.
        next_msn = Signal(32)
        m.d.comb += [
            next_msn.eq(header.msn + 1),
            self.buffer.ready.eq((accepts & is_send & header.last) | self.skips),
            self.sink.ready.eq(accepts & is_response & header.last),
            self.requested.eq(accepts & is_request & ~self.shut),
            self.completes.eq(accepts & is_send & header.last & order.has_buffer),
            self.completed.opcode.eq(Mux(self.skips, 0, opcode)),
            self.completed.octets.eq(order.end),
            self.completed.stag.eq(header.stag),
            self.invalidate_row.eq(row),
        ]
        m.d.sync += self.invalidate.eq(self.completes & invalidates)
        with m.If(accepts):
            with m.If(is_send):
                m.d.sync += [self.mo.eq(Mux(header.last, 0, order.end)), self.send_begun.eq(~header.last)]
                with m.If(header.last):
                    m.d.sync += self.send_msn.eq(next_msn)
            with m.If(is_request):
                m.d.sync += self.read_msn.eq(next_msn)
                with m.If(~self.shut):
                    m.d.sync += request_row.eq(request_row + 1)
            with m.If(is_write):
                m.d.sync += self.write_begun.eq(~header.last)
            with m.If(is_response):
                with m.If(some | header.last):
                    m.d.sync += [
                        self.arrived.eq(Mux(header.last, 0, found.end)),
                        all_arrived.eq(ends & ~header.last),
                    ]
        # A RTR is the first message of its queue.
        with m.If(self.rtr == Rtr.SEND):
            m.d.sync += self.send_msn.eq(FIRST_MSN + 1)
        with m.If(self.rtr == Rtr.READ):
            m.d.sync += self.read_msn.eq(FIRST_MSN + 1)

    def _place(self, m, realigner):
        """Write the words to memory, or to the memory for requests."""
        word = realigner.o.payload
        next_word = Signal(word_bits(self.lanes))
        number = Signal.like(next_word)
        target = word.note
        moves = Signal()
        m.d.comb += [
            number.eq(Mux(word.first, target.word, next_word)),
            self.write.valid.eq(realigner.o.valid & ~target.request),
            self.write.payload.address.eq(number),
            self.write.payload.data.eq(word.data),
            self.write.payload.mask.eq(word.mask),
            self.write.payload.last.eq(word.last),
            self.request.eq(realigner.o.valid & target.request),
            self.request_word.eq(word.data),
            self.request_at.eq(number),
            realigner.o.ready.eq(target.request | self.write.ready),
            moves.eq(realigner.o.valid & realigner.o.ready),
            self.note.eq(Mux(moves & word.last & ~self.failed, target.note, Const(Note.NONE, 2))),
        ]
        m.d.sync += self.failed.eq(self.failed | (self.write_fault & self.enable))
        with m.If(moves):
            m.d.sync += next_word.eq(number + 1)
