"""The program for segments that leave: which, and when."""

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import QUEUED
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode_receive import RANGES, write_since
from open_rnic.rtl.tcp.words import Bit, SegmentBit, State, port, row, t

__all__ = ["write_place", "write_send"]

WORD = 1 << 28  # a word of options, in the data offset of a header's fourth word
FIN, SYN, PSH, ACK = (bit << 16 for bit in (SegmentBit.FIN, SegmentBit.SYN, SegmentBit.PSH, SegmentBit.ACK))
PLAIN = 5 * WORD | ACK
MSS, SACK_PERMITTED, SACK = 0x0204_0000, 0x0101_0402, 0x0101_0500  # options, with NOPs in front


def write_send(p: Program, config: EngineConfig) -> None:
    """Write the entries ``output``, ``coming`` and ``depart``.

    ``output`` sends one segment, and asks for the entry again as long as more may follow.
    """
    p.label("output")
    p.jump_if(p.any(row.flags, Bit.SYN_DUE), "send_syn")
    p.jump_if(p.eq(row.state, State.TIME_WAIT), "acknowledge")
    p.jump_if(p.none(row.state, State.SYNCHRONIZED), "acknowledge")
    _restart(p)
    p.call("next_segment")
    p.jump_if(p.ne(t.start, t.until), "send_range")
    _set_timers(p)
    p.label("acknowledge")
    with p.If(p.any(row.flags, Bit.MUST_ACK)):
        write_place(p)
        p.move(t.length, 0)
        p.move(t.control, PLAIN)
        p.call("emit")
    with p.If(p.eq(row.state, State.TIME_WAIT), p.none(row.flags, Bit.END)):
        p.set(row.flags, Bit.END)
        p.add(row.end_at, t.now, config.time_wait)
    p.wait()
    _send_range(p)
    _next_segment(p)
    _whole(p)
    _emit(p, config)
    _send_syn(p, config)
    _cut_through(p, config)


def write_place(p: Program) -> None:
    """Set ``t.seq`` to the number of a segment without octets: SND.NXT, or the end of a window that ends before it.

    A peer accepts no number beyond its window, such as that behind an octet that has probed a window of zero, and
    would not take the acknowledgment there (RFC 9293 §3.4: with a window of zero, an end still takes ACKs).
    """
    p.move(t.seq, row.sent)
    p.add(t.x, row.una, row.window)
    with p.If(p.lt(t.x, row.sent), p.none(row.state, State.SYN_RECEIVED)):  # the SYN is beside the window
        p.move(t.seq, t.x)


def _restart(p: Program) -> None:
    """RFC 5681 §4.1: after the connection was idle for longer than the RTO, the window is the initial one."""
    with p.If(p.eq(row.sent, row.una)):
        write_since(p, row.sent_at)
        with p.If(p.lt(row.rto, t.x)):
            p.min(row.cwnd, row.cwnd, row.initial)


def _time(p: Program) -> None:
    """New octets up to ``t.until`` are sent."""
    with p.If(p.none(row.flags, Bit.TIMED)):
        p.set(row.flags, Bit.TIMED)
        p.move(row.timed_end, t.until)
        p.move(row.timed_at, t.now)


def _note_sent(p: Program) -> None:
    """Octets are sent, for the first time or again."""
    with p.If(p.none(row.flags, Bit.UNANSWERED)):
        p.set(row.flags, Bit.UNANSWERED)
        p.move(row.unanswered, t.now)
    p.move(row.sent_at, t.now)


def _start_timer(p: Program) -> None:
    """RFC 6298 §5.1."""
    p.clear(row.flags, Bit.PERSIST)
    with p.If(p.none(row.flags, Bit.RETRANSMIT)):
        p.set(row.flags, Bit.RETRANSMIT)
        p.add(row.deadline, t.now, row.rto)


def _window(p: Program, config: EngineConfig) -> None:
    """Add the window to ``t.control``, and set ``t.right`` to its right edge.

    The edge moves by a full segment or half the ring, or not at all (RFC 9293 §3.8.6.2.2).
    """
    ring = config.receive_ring
    p.add(t.x, row.read, ring)
    p.sub(t.y, t.x, row.edge)
    p.min(t.z, row.mss, ring // 2)
    with p.If(p.lt(t.y, t.z)):
        p.move(t.x, row.edge)
    p.sub(t.x, t.x, row.next)
    p.max(t.x, t.x, 0)
    p.min(t.x, t.x, 0xFFFF)
    p.add(t.control, t.control, t.x)
    p.add(t.x, t.x, row.next)
    p.max(t.right, row.edge, t.x)


def _cut_through(p: Program, config: EngineConfig) -> None:
    """Permit a packet to leave at once, while it is stored; and send it, when it has been.

    It may leave if ``output`` would send it now, as a whole and without options. No other event may lie in between:
    ``depart`` uses the words of ``coming``.
    """
    p.label("coming")
    p.jump_if(p.ne(row.state, State.ESTABLISHED), "idle")
    p.jump_if(p.any(row.flags, Bit.UNUSUAL), "idle")
    p.jump_if(p.ne(row.sent, row.end), "idle")
    p.jump_if(p.ne(row.start0, row.end0), "idle")
    p.move(t.control, PLAIN | PSH)
    p.label("coming_window")
    _window(p, config)
    p.min(t.x, row.window, row.cwnd)
    p.add(t.x, t.x, row.una)
    p.sub(t.x, t.x, row.sent)
    p.max(t.x, t.x, 0)
    p.min(port.permit, t.x, row.mss)
    p.wait()

    p.label("depart")  # a packet of ``t.argument0`` octets
    p.move(port.word, row.ports)
    p.move(port.word, row.sent)
    p.move(port.word, row.next)
    p.move(port.word, t.control)
    p.move(port.word, 0)
    p.move(port.payload, 0)  # it is in the frame
    p.move(row.edge, t.right)
    p.move(row.unacknowledged, 0)
    p.clear(row.flags, Bit.MUST_ACK | Bit.ACK)
    _restart(p)
    p.call("enqueue")
    p.move(t.until, row.end)
    _time(p)
    _note_sent(p)
    p.move(row.sent, row.end)
    _start_timer(p)
    p.wait()


def _set_timers(p: Program) -> None:
    """RFC 6298 §5: the retransmission timer runs while something is in flight; the persist timer if all is blocked."""
    p.call("shut")
    p.jump_if(p.ne(t.blocked, 0), "blocked")
    p.jump_if(p.ne(row.sent, row.una), "in_flight")
    p.and_(t.x, row.flags, Bit.CLOSES)
    p.add(t.x, t.x, row.end)
    with p.If(p.lt(row.sent, t.x)):
        p.label("blocked")
        p.clear(row.flags, Bit.RETRANSMIT)
        with p.If(p.none(row.flags, Bit.PERSIST)):
            p.set(row.flags, Bit.PERSIST)
            p.add(row.deadline, t.now, row.rto)
        p.jump("acknowledge")
    p.clear(row.flags, Bit.PERSIST | Bit.RETRANSMIT)
    p.jump("acknowledge")
    p.label("in_flight")
    _start_timer(p)


def _send_range(p: Program) -> None:
    """Send ``t.start`` to ``t.until``, for the first time or again."""
    p.label("send_range")
    p.move(t.control, PLAIN)
    with p.If(p.lt(t.start, row.sent)):
        p.clear(row.flags, Bit.TIMED)  # Karn's rule
        p.max(row.resent, row.resent, t.until)
    with p.Else():
        _time(p)
    _note_sent(p)
    p.max(row.sent, row.sent, t.until)
    p.move(t.seq, t.start)
    p.sub(t.length, t.until, t.start)
    with p.If(p.lt(row.end, t.until)):
        p.add(t.control, t.control, FIN)
        p.sub(t.length, t.length, 1)
    with p.If(p.ne(t.length, 0)):
        p.add(t.control, t.control, PSH)
    p.call("emit")
    # If everything has been sent, set the timer here, as ``output`` would the next time.
    p.jump_if(p.ne(row.sent, row.end), "want")
    p.jump_if(p.any(row.flags, Bit.UNUSUAL | Bit.MUST_ACK), "want")
    p.jump_if(p.eq(row.window, 0), "want")
    _start_timer(p)
    p.wait()


def _next_segment(p: Program) -> None:
    """Set ``t.start`` and ``t.until`` to the next segment; they are equal if nothing may be sent now."""
    with p.routine("next_segment"):
        p.sub(t.pipe, row.sent, row.una)
        p.jump_if(p.any(row.flags, Bit.FAST), "next_fast")
        p.jump_if(p.any(row.flags, Bit.TIMEOUT), "next_timeout")
        p.min(t.allowed, row.twice_mss, row.duplicates)  # limited transmit (RFC 3042)
        p.add(t.allowed, t.allowed, row.cwnd)
        p.jump("next_new")

        p.label("next_fast")
        p.sub(t.pipe, t.pipe, row.duplicates)
        p.max(t.pipe, t.pipe, 0)
        p.move(t.allowed, row.cwnd)
        p.jump_if(p.ne(row.resent, row.una), "next_new")
        # One segment for the third duplicate and for each partial acknowledgment, which waits for nothing (RFC 5681
        # §3.2 step 3, RFC 6582 §3.2 step 3).
        p.move(t.start, row.una)
        p.move(t.until, row.sent)
        p.move(t.x, row.head)
        p.call("whole")
        p.ret()

        p.label("next_timeout")
        with p.If(p.lt(row.una, row.recovery)):
            p.sub(t.pipe, row.sent, row.recovery)
            p.add(t.pipe, t.pipe, row.resent)
            p.sub(t.pipe, t.pipe, row.una)
        p.move(t.allowed, row.cwnd)
        p.max(t.start, row.una, row.resent)
        p.min(t.until, row.sent, row.recovery)
        p.jump_if(p.le(t.until, t.start), "next_new")
        p.move(t.x, row.head)
        p.call("whole")
        p.jump("next_fits")

        _next_new(p)

        p.label("next_fits")
        p.jump_if(p.eq(t.pipe, 0), "next_found")
        p.sub(t.z, t.until, t.start)
        p.min(t.z, t.z, row.mss)
        p.sub(t.allowed, t.allowed, t.pipe)
        p.jump_if(p.le(t.z, t.allowed), "next_found")
        p.label("next_none")
        p.move(t.until, t.start)
        p.label("next_found")


def _next_new(p: Program) -> None:
    """New octets, unless the silly window avoidance holds them back (RFC 9293 §3.8.6.2.1)."""
    octets, packet_end = t.z, t.y
    p.label("next_new")
    p.and_(t.until, row.flags, Bit.CLOSES)
    p.add(t.until, t.until, row.end)
    p.add(t.x, row.una, row.window)
    p.min(t.until, t.until, t.x)
    p.move(t.start, row.sent)
    p.jump_if(p.le(t.until, t.start), "next_none")
    p.move(t.x, row.fresh)
    p.call("whole")
    p.move(row.fresh, t.x)
    p.sub(octets, t.until, t.start)
    p.jump_if(p.le(row.mss, octets), "next_fits")
    p.jump_if(p.eq(t.until, packet_end), "next_fits")
    p.add(octets, octets, octets)
    p.jump_if(p.lt(octets, row.largest), "next_none")


def _whole(p: Program) -> None:
    """A segment ends with its packet."""
    place, segment_end = t.x, t.z
    following = packet_end = t.y
    # The part of ``t.start`` to ``t.until`` that fits in one segment: of one packet, at most MSS. ``place`` is where to
    # begin in the queue of packets; then it is the packet's place, and ``packet_end`` its end.
    with p.routine("whole"):
        p.label("whole_next")
        with p.If(p.ne(place, row.tail)):
            p.select(place)
            with p.If(p.le(QUEUED, t.start)):
                p.add(place, place, 1)
                p.jump("whole_next")
            p.add(following, place, 1)
            p.jump_if(p.eq(following, row.tail), "whole_last")
            p.move(packet_end, QUEUED)
        with p.Else():
            p.label("whole_last")  # A FIN leaves with the last packet.
            p.and_(packet_end, row.flags, Bit.CLOSES)
            p.add(packet_end, packet_end, row.end)
        p.min(t.until, t.until, packet_end)
        p.add(segment_end, t.start, row.mss)
        p.min(segment_end, segment_end, t.until)
        with p.If(p.eq(segment_end, row.end), p.lt(segment_end, t.until)):
            p.add(segment_end, segment_end, 1)  # the FIN is no octet of data
        p.move(t.until, segment_end)


def _emit(p: Program, config: EngineConfig) -> None:
    """Send a segment with the fourth word ``t.control``, from ``t.seq``, with ``t.length`` octets of payload."""
    with p.routine("emit"):
        _window(p, config)
        p.move(row.edge, t.right)
        p.add(t.z, t.length, 20)
        p.move(t.room, 0)
        p.move(row.unacknowledged, 0)
        p.clear(row.flags, Bit.MUST_ACK | Bit.ACK)
        with p.If(p.ne(row.start0, row.end0)):
            p.call("choose_blocks")
        p.move(port.destination, row.address)
        p.move(port.length, t.z)
        p.move(port.word, row.ports)
        p.move(port.word, t.seq)
        p.move(port.word, row.next)
        p.move(port.word, t.control)
        p.move(port.word, 0)
        with p.If(p.ne(t.room, 0)):
            p.move(port.word, t.y)
            for at, (start, end) in enumerate(RANGES):
                p.move(port.word, start)
                p.move(port.word, end)
                if at + 1 < len(RANGES):
                    p.jump_if(p.eq(t.room, at + 1), "emit_payload")
            p.label("emit_payload")
        p.move(port.payload_from, t.seq)
        p.move(port.payload, t.length)

    # SACK blocks for as many kept ranges as there is room for: ``t.room``, with ``t.y`` as the option's first word.
    with p.routine("choose_blocks"):
        p.move(t.count, 0)
        for at, (start, end) in enumerate(RANGES):
            with p.If(p.ne(start, end)):
                p.move(t.count, at + 1)
        with p.If(p.any(row.flags, Bit.SACK)):
            p.move(t.room, t.count)
            with p.If(p.ne(t.length, 0)):  # the segment must not be longer than MSS
                p.sub(t.x, row.mss, t.length)
                p.sub(t.x, t.x, 4)
                p.max(t.x, t.x, 0)
                for _ in range(3):
                    p.half(t.x, t.x)
                p.min(t.room, t.room, t.x)
        with p.If(p.ne(t.length, 0), p.lt(t.room, t.count)):
            p.set(row.flags, Bit.MUST_ACK)  # another segment carries the rest
        with p.If(p.ne(t.room, 0)):
            p.add(t.control, t.control, WORD)
            p.add(t.z, t.z, 4)
            p.move(t.y, SACK + 2)
            p.move(t.x, t.room)
            p.label("next_block")
            p.add(t.control, t.control, 2 * WORD)
            p.add(t.z, t.z, 8)
            p.add(t.y, t.y, 8)
            p.sub(t.x, t.x, 1)
            p.jump_if(p.ne(t.x, 0), "next_block")


def _send_syn(p: Program, config: EngineConfig) -> None:
    """Send a SYN, with ACK in SYN-RECEIVED."""
    p.label("send_syn")
    p.clear(row.flags, Bit.SYN_DUE | Bit.TIMED)
    p.add(row.syns, row.syns, 1)
    with p.If(p.eq(row.syns, 1)):
        p.set(row.flags, Bit.TIMED)
        p.add(row.timed_end, row.iss, 1)
        p.move(row.timed_at, t.now)
    with p.If(p.none(row.flags, Bit.UNANSWERED)):
        p.set(row.flags, Bit.UNANSWERED)
        p.move(row.unanswered, t.now)
    p.set(row.flags, Bit.RETRANSMIT)
    p.add(row.deadline, t.now, row.rto)
    window = min(config.receive_ring, 0xFFFF)
    p.move(t.control, 7 * WORD | SYN | window)
    p.move(t.ack, 0)
    p.move(t.z, 28)
    with p.If(p.any(row.state, State.SYN_RECEIVED)):
        p.move(t.ack, row.next)
        p.add(t.control, t.control, ACK)
        with p.If(p.none(row.flags, Bit.SACK)):
            p.sub(t.control, t.control, WORD)
            p.move(t.z, 24)
    p.move(port.destination, row.address)
    p.move(port.length, t.z)
    p.move(port.word, row.ports)
    p.move(port.word, row.iss)
    p.move(port.word, t.ack)
    p.move(port.word, t.control)
    p.move(port.word, 0)
    with p.If(p.eq(t.z, 28)):
        p.move(port.word, 0x0101_0204)  # NOP, NOP, MSS, SACK permitted
        p.move(port.word, config.mss << 16 | 0x0402)
        p.move(port.payload, 0)
        p.wait()
    p.move(port.word, MSS | config.mss)
    p.move(port.payload, 0)
    p.wait()
