"""The program for segments that arrive (RFC 9293 §3.10.7)."""

from itertools import pairwise

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import QUEUED, Place
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import Bit, Reason, SegmentBit, State, port, row, segment, t

__all__ = ["write_receive", "write_since"]

FIN, SYN, RST, ACK = SegmentBit.FIN, SegmentBit.SYN, SegmentBit.RST, SegmentBit.ACK
RANGES = ((row.start0, row.end0), (row.start1, row.end1), (row.start2, row.end2), (row.start3, row.end3))
RST_CONTROL = 5 << 28 | RST << 16  # the fourth word of a header without options
RTO_AFTER_SYNS = 3000  # RFC 6298 §5.7
DEFAULT_MSS, SMALLEST_MSS = 536, 64  # RFC 9293 §3.7.1; smaller ones of a peer would multiply headers


def write_receive(p: Program, config: EngineConfig) -> None:
    """Write the entries ``segment`` and ``stray``."""
    _usual(p, config)
    _usual_acknowledgment(p, config)
    _segment(p)
    _acceptable(p, config)
    _unacceptable(p, config)
    _acknowledgment(p)
    _advance(p)
    _congestion(p)
    _measure(p, config)
    _queue_and_window(p)
    _payload(p, config)
    _place(p)
    _ranges(p)
    _syn_sent(p)
    _listen(p)
    _take_syn(p, config)
    _opened(p, config)
    _stray(p)
    _end(p)


def write_since(p: Program, time: Place) -> None:
    """Set ``t.x`` to the milliseconds since ``time``, or to the longest time that compares with others, 24.8 days."""
    p.sub(t.x, t.now, time)
    with p.If(p.lt(t.x, 0)):
        p.move(t.x, (1 << 31) - 1)


def _usual(p: Program, config: EngineConfig) -> None:
    """The usual segment: an acknowledgment, or data in order, of an open connection that recovers from nothing.

    It has the effects of the code from the label ``unusual`` on, where all other segments continue before anything has
    been changed. The entry ``output`` is only asked for if something may be sent; otherwise the timers are set here.
    The shortest ways fall through: a branch that is taken costs two cycles more.
    """
    p.label("segment")
    p.jump_if(p.ne(row.state, State.ESTABLISHED), "unusual")
    p.jump_if(p.any(row.flags, Bit.UNUSUAL), "unusual")
    p.jump_if(p.ne(segment.seq, row.next), "unusual")
    p.jump_if(p.lt(segment.seq, row.window_seq), "unusual")
    p.jump_if(p.any(segment.flags, FIN | SYN | RST), "unusual")
    p.jump_if(p.none(segment.flags, ACK), "unusual")
    p.move(row.heard_at, t.now)
    p.jump_if(p.ne(segment.ack, row.una), "usual_new")
    p.jump_if(p.ne(row.sent, row.una), "usual_old")
    p.jump_if(p.eq(segment.length, 0), "usual_window")

    p.label("usual_payload")  # nothing waits behind it, and all of it is in the window
    p.jump_if(p.ne(row.start0, row.end0), "unusual")
    p.add(t.x, segment.seq, segment.length)
    p.jump_if(p.lt(row.edge, t.x), "unusual")
    p.move(port.place, segment.seq)
    p.move(port.first, 0)
    p.move(port.take, segment.length)
    p.move(row.next, t.x)
    p.move(port.deliver, t.x)
    p.add(row.unacknowledged, row.unacknowledged, segment.length)
    p.jump_if(p.le(row.twice_mss, row.unacknowledged), "usual_acknowledgment")
    p.jump_if(p.none(row.flags, Bit.ACK), "usual_delay")
    p.label("usual_taken")
    p.jump_if(p.ne(segment.ack, row.una), "usual_advance")

    p.label("usual_window")
    p.move(row.window_seq, segment.seq)
    p.move(row.window_ack, segment.ack)
    p.move(row.window, segment.window)
    p.max(row.largest, row.largest, segment.window)
    p.jump_if(p.ne(row.end, row.sent), "usual_more")
    p.jump_if(p.ne(row.sent, row.una), "usual_in_flight")
    p.clear(row.flags, Bit.UNANSWERED | Bit.PERSIST | Bit.RETRANSMIT)
    p.wait()


def _usual_acknowledgment(p: Program, config: EngineConfig) -> None:
    """The usual segment, continued: octets in flight are acknowledged, or are not, and timers."""
    p.label("usual_new")
    p.jump_if(p.lt(segment.ack, row.una), "unusual")
    p.jump_if(p.lt(row.sent, segment.ack), "unusual")
    p.jump_if(p.eq(row.window, 0), "unusual")
    p.jump_if(p.ne(segment.length, 0), "usual_payload")
    p.label("usual_advance")  # as ``advance``
    p.sub(t.y, segment.ack, row.una)
    p.jump_if(p.le(row.timed_end, segment.ack), "usual_timed")
    p.label("usual_measured")
    p.move(row.una, segment.ack)
    p.move(port.release, segment.ack)
    p.move(row.duplicates, 0)
    p.clear(row.flags, Bit.RETRANSMIT)
    with p.If(p.lt(row.cwnd, row.threshold)):  # RFC 5681 §3.1, as ``open_window``
        p.min(t.x, row.twice_mss, t.y)
        p.add(row.cwnd, row.cwnd, t.x)
        p.jump("usual_window")
    p.call("open_window")
    p.jump("usual_window")

    p.label("usual_old")  # something is in flight, and nothing of it is acknowledged
    p.jump_if(p.eq(segment.length, 0), "unusual")  # perhaps a duplicate
    p.jump_if(p.eq(row.window, 0), "unusual")
    p.jump_if(p.eq(row.duplicates, 0), "usual_payload")
    p.jump("unusual")

    p.label("usual_acknowledgment")  # RFC 9293 §3.8.6.3
    p.set(row.flags, Bit.MUST_ACK)
    p.move(port.want, 0)
    p.jump("usual_taken")
    p.label("usual_delay")
    p.set(row.flags, Bit.ACK)
    p.add(row.ack_at, t.now, config.delayed_ack)
    p.jump("usual_taken")

    p.label("usual_in_flight")  # RFC 6298 §5.3
    p.jump_if(p.eq(row.window, 0), "usual_more")
    p.clear(row.flags, Bit.UNANSWERED | Bit.PERSIST)
    with p.If(p.none(row.flags, Bit.RETRANSMIT)):
        p.set(row.flags, Bit.RETRANSMIT)
        p.add(row.deadline, t.now, row.rto)
    p.wait()
    p.label("usual_more")
    p.clear(row.flags, Bit.UNANSWERED)
    p.jump("want")

    p.label("usual_timed")
    p.jump_if(p.none(row.flags, Bit.TIMED), "usual_measured")
    p.clear(row.flags, Bit.TIMED)
    p.sub(t.x, t.now, row.timed_at)
    p.call("measure")
    p.jump("usual_measured")


def _segment(p: Program) -> None:
    """RFC 9293 §3.10.7.4: the checks in their order."""
    p.label("unusual")
    p.jump_if(p.any(row.state, State.SYN_SENT), "syn_sent")
    p.jump_if(p.any(row.state, State.LISTEN), "listen")
    p.move(t.seq, segment.seq)
    p.move(t.flags, segment.flags)
    with p.If(p.any(row.state, State.SYN_RECEIVED), p.any(t.flags, SYN)):
        p.sub(t.x, row.next, 1)
        with p.If(p.eq(t.seq, t.x)):  # the peer's SYN again
            with p.If(p.none(t.flags, ACK | RST)):
                p.move(port.take, 0)
                p.jump("syn_due")
            p.move(t.seq, row.next)  # simultaneous open: it acknowledges our SYN
            p.clear(t.flags, SYN)
    p.and_(t.x, t.flags, FIN)
    p.add(t.length, segment.length, t.x)  # SEG.LEN, as far as it is known now
    with p.If(p.any(t.flags, SYN)):
        p.add(t.length, t.length, 1)
    # The table of four cases.
    with p.If(p.ne(t.seq, row.next)):
        with p.If(p.le(row.edge, row.next)):
            p.jump_if(p.ne(t.length, 0), "unacceptable")
            p.jump_if(p.any(t.flags, RST), "unacceptable")
            p.jump_if(p.ne(t.seq, row.discarded), "unacceptable")
            p.jump_if(p.lt(t.seq, row.next), "unacceptable")
            p.move(t.seq, row.next)  # the peer counts the octet with which it has probed the window
            p.jump("acceptable")
        with p.If(p.lt(t.seq, row.next)):
            p.jump_if(p.eq(t.length, 0), "unacceptable")
            p.add(t.x, t.seq, t.length)
            p.jump_if(p.le(t.x, row.next), "unacceptable")
            p.sub(t.x, t.x, 1)
            p.jump_if(p.le(row.edge, t.x), "unacceptable")
        with p.Else():
            p.jump_if(p.le(row.edge, t.seq), "unacceptable")
    with p.Else():
        with p.If(p.le(row.edge, row.next)):
            p.jump_if(p.ne(t.length, 0), "unacceptable")


def _acceptable(p: Program, config: EngineConfig) -> None:
    """RFC 9293 §3.10.7.4, continued: RST, SYN, ACK, and the challenge ACKs of RFC 5961."""
    p.label("acceptable")
    p.move(row.heard_at, t.now)
    with p.If(p.any(t.flags, RST | SYN)):
        p.move(port.take, 0)
        with p.If(p.none(t.flags, RST)):  # RFC 5961 §4
            p.jump("challenge")
        p.jump_if(p.ne(t.seq, row.next), "challenge")  # RFC 5961 §3.2
        p.move(t.x, Reason.RESET)
        with p.If(p.any(row.state, State.SYN_RECEIVED)):
            p.move(t.x, Reason.REFUSED)
        with p.If(p.any(row.state, State.CLOSING | State.LAST_ACK | State.TIME_WAIT)):  # both ends have closed
            p.move(t.x, Reason.CLOSED)
        p.jump("finish")
    p.jump_if(p.none(t.flags, ACK), "discard")
    with p.If(p.any(row.state, State.SYN_RECEIVED)):
        p.sub(t.x, segment.ack, 1)
        with p.If(p.ne(t.x, row.iss)):
            p.move(port.take, 0)
            p.move(t.seq, segment.ack)
            p.move(t.control, RST_CONTROL)
            p.jump("reset")
        p.call("opened")
    p.call("acknowledgment")
    p.jump_if(p.eq(t.x, 0), "payload")
    p.move(port.take, 0)
    p.label("challenge")  # RFC 5961 §7: few in a second
    write_since(p, row.challenge_at)
    with p.If(p.le(1000, t.x)):
        p.move(row.challenge_at, t.now)
        p.move(row.challenges, 0)
    with p.If(p.lt(row.challenges, config.challenges)):
        p.add(row.challenges, row.challenges, 1)
        p.set(row.flags, Bit.MUST_ACK)
    p.jump("want")
    p.label("discard")
    p.move(port.take, 0)
    p.label("want")
    p.move(port.want, 0)
    p.wait()


def _unacceptable(p: Program, config: EngineConfig) -> None:
    """A segment outside of the window is answered with an acknowledgment."""
    p.label("unacceptable")
    p.move(port.take, 0)
    with p.If(p.any(t.flags, RST)):
        p.wait()
    p.jump_if(p.any(t.flags, SYN), "challenge")
    with p.If(p.eq(t.length, 0)):  # the twin says why: host_driver.tcp.connection, _answer_bare
        write_since(p, row.challenge_at)
        p.jump_if(p.lt(t.x, config.between_answers), "want")
        p.move(row.challenge_at, t.now)
        p.move(row.challenges, 0)
        p.jump("challenge")
    p.set(row.flags, Bit.MUST_ACK)
    with p.If(p.any(row.state, State.TIME_WAIT), p.any(t.flags, FIN)):
        p.clear(row.flags, Bit.TIMERS)  # the time begins anew
    p.jump_if(p.ne(t.seq, row.next), "want")
    p.add(row.discarded, t.seq, t.length)  # the window is zero
    # "Special allowance": acknowledgments still count.
    p.jump_if(p.none(t.flags, ACK), "want")
    p.jump_if(p.none(row.state, State.SYNCHRONIZED), "want")
    p.call("acknowledgment")
    p.jump_if(p.eq(t.x, 0), "want")
    p.jump("challenge")


def _acknowledgment(p: Program) -> None:
    """Take the acknowledgment and the window; ``t.x`` is not 0 if the segment deserves a challenge ACK instead."""
    p.label("acknowledgment")
    p.move(t.ack, segment.ack)
    with p.If(p.ne(t.ack, row.sent)):
        p.jump_if(p.lt(row.sent, t.ack), "unsent")
        p.max(t.x, row.largest, 1)
        p.sub(t.x, row.una, t.x)
        p.jump_if(p.lt(t.ack, t.x), "unsent")  # RFC 5961 §5.2
    p.clear(row.flags, Bit.UNANSWERED)
    p.call("shut")
    p.move(t.old, t.blocked)
    p.sub(t.y, t.ack, row.una)  # the numbers that are acknowledged anew
    with p.If(p.lt(0, t.y)):
        p.call("advance")
    with p.If(p.eq(t.ack, row.una)):
        # RFC 9293 §3.10.7.4: an older segment does not change the window.
        p.move(t.x, 0)  # the window has changed
        p.jump_if(p.lt(t.seq, row.window_seq), "window_known")
        with p.If(p.eq(t.seq, row.window_seq)):
            p.jump_if(p.lt(t.ack, row.window_ack), "window_known")
        p.sub(t.x, segment.window, row.window)
        p.move(row.window_seq, t.seq)
        p.move(row.window_ack, t.ack)
        p.move(row.window, segment.window)
        p.max(row.largest, row.largest, row.window)
        p.label("window_known")
        with p.If(p.ne(row.sent, row.una), p.eq(t.old, 0)):
            p.call("duplicate")
    with p.If(p.ne(t.old, 0), p.ne(row.window, 0), p.ne(row.sent, row.una)):
        # The window is open again, and the peer has discarded the octet that probed it.
        p.clear(row.flags, Bit.FAST)
        p.set(row.flags, Bit.TIMEOUT)
        p.move(row.recovery, row.sent)
        p.move(row.resent, row.una)
    p.move(t.x, 0)
    p.ret()
    p.label("unsent")
    p.move(t.x, 1)
    p.ret()


def _advance(p: Program) -> None:
    """Octets are acknowledged."""
    with p.routine("advance"):  # New octets are acknowledged: ``t.y`` of them.
        with p.If(p.any(row.flags, Bit.TIMED), p.le(row.timed_end, t.ack)):
            p.clear(row.flags, Bit.TIMED)
            p.sub(t.x, t.now, row.timed_at)
            p.call("measure")
        p.move(row.una, t.ack)
        p.max(row.resent, row.resent, t.ack)
        p.min(port.release, row.una, row.end)
        with p.If(p.none(row.flags, Bit.FAST | Bit.TIMEOUT)):
            p.move(row.duplicates, 0)
            p.call("open_window")
        with p.Else():
            p.call("recover")
        p.clear(row.flags, Bit.RETRANSMIT)
        with p.If(p.lt(row.end, t.ack)):  # the FIN
            with p.If(p.any(row.state, State.FIN_WAIT_1)):
                p.move(row.state, State.FIN_WAIT_2)
                p.call("report")
            with p.If(p.any(row.state, State.CLOSING)):
                p.call("enter_time_wait")
            with p.If(p.any(row.state, State.LAST_ACK)):
                p.move(port.take, 0)
                p.move(t.x, Reason.CLOSED)
                p.jump("finish")

    deflation = window = t.x
    acknowledged = t.y  # octets
    with p.routine("recover"):  # ``acknowledged`` octets are acknowledged during recovery.
        with p.If(p.any(row.flags, Bit.FAST)):  # a partial acknowledgment (RFC 6582 §3.2 step 3)
            p.sub(deflation, acknowledged, row.mss)
            p.max(deflation, deflation, 0)
            p.sub(row.duplicates, row.duplicates, deflation)
            p.max(row.duplicates, row.duplicates, 0)
            p.move(row.resent, t.ack)
        with p.Else():
            p.move(row.duplicates, 0)
        with p.If(p.le(row.recovery, t.ack)):
            with p.If(p.any(row.flags, Bit.FAST)):
                p.sub(window, row.sent, row.una)
                p.max(window, window, row.mss)
                p.add(window, window, row.mss)
                p.min(row.cwnd, row.threshold, window)
            p.clear(row.flags, Bit.FAST | Bit.TIMEOUT)
            p.move(row.duplicates, 0)
            p.ret()
        with p.If(p.any(row.flags, Bit.TIMEOUT)):
            p.call("open_window")


def _congestion(p: Program) -> None:
    """The congestion window, and the detection of losses."""
    increase = t.x
    acknowledged = t.y  # octets
    with p.routine("open_window"):  # RFC 5681 §3.1, counted in octets (RFC 3465)
        with p.If(p.lt(row.cwnd, row.threshold)):
            p.min(increase, row.twice_mss, acknowledged)
            p.add(row.cwnd, row.cwnd, increase)
            p.ret()
        p.add(row.credit, row.credit, acknowledged)
        with p.If(p.le(row.cwnd, row.credit)):
            p.sub(row.credit, row.credit, row.cwnd)
            p.add(row.cwnd, row.cwnd, row.mss)

    window_change = flight = t.x
    # RFC 5681 §2: neither octets, nor a change of the window (``window_change``), nor anything new (``acknowledged``).
    with p.routine("duplicate"):
        p.jump_if(p.ne(window_change, 0), "detect_loss")
        p.jump_if(p.ne(acknowledged, 0), "detect_loss")
        p.jump_if(p.ne(segment.length, 0), "detect_loss")
        p.jump_if(p.any(segment.flags, SYN | FIN), "detect_loss")
        p.add(row.duplicates, row.duplicates, row.mss)
        p.label("detect_loss")
        with p.If(p.none(row.flags, Bit.FAST | Bit.TIMEOUT)):
            with p.If(p.lt(row.twice_mss, row.duplicates)):  # three
                p.set(row.flags, Bit.FAST)
                p.move(row.recovery, row.sent)
                p.move(row.resent, row.una)
                p.sub(flight, row.sent, row.una)
                p.min(flight, flight, row.cwnd)  # without the segments of limited transmit
                p.call("halve")
                p.move(row.cwnd, row.threshold)

    with p.routine("halve"):  # RFC 5681 §3.1, equation 4: half of ``flight``
        p.half(flight, flight)
        p.max(row.threshold, flight, row.twice_mss)
        p.move(row.credit, 0)


def _measure(p: Program, config: EngineConfig) -> None:
    """Round trips."""
    round_trip = error = rto = t.x
    part = t.z  # of SRTT or RTTVAR
    with p.routine("measure"):  # ``round_trip`` has been measured (RFC 6298 §2).
        with p.If(p.none(row.flags, Bit.MEASURED)):
            p.set(row.flags, Bit.MEASURED)
            p.add(round_trip, round_trip, round_trip)
            p.move(row.rttvar4, round_trip)
            p.add(round_trip, round_trip, round_trip)
            p.add(row.srtt8, round_trip, round_trip)
        with p.Else():
            p.half(part, row.srtt8)
            p.half(part, part)
            p.half(part, part)
            p.sub(error, round_trip, part)
            p.add(row.srtt8, row.srtt8, error)
            with p.If(p.lt(error, 0)):
                p.sub(error, 0, error)
            p.half(part, row.rttvar4)
            p.half(part, part)
            p.sub(error, error, part)
            p.add(row.rttvar4, row.rttvar4, error)
        p.half(rto, row.srtt8)
        p.half(rto, rto)
        p.half(rto, rto)
        p.max(part, row.rttvar4, 1)
        p.add(rto, rto, part)
        p.max(rto, rto, config.shortest_rto)
        p.min(row.rto, rto, config.longest_rto)


def _queue_and_window(p: Program) -> None:
    """The queue of packets that wait for acknowledgments, and a window that is shut."""
    with p.routine("forget_packets"):  # the first ones that have been acknowledged; few, so that it does not take long
        for _ in range(4):
            p.select(row.head)
            p.jump_if(p.lt(row.una, QUEUED), "forgotten")
            p.add(row.head, row.head, 1)
        p.label("forgotten")
        p.max(row.fresh, row.fresh, row.head)

    # Whether the window is zero, with nothing in flight but an octet that probes it (RFC 9293 §3.8.6.1). A peer may
    # shrink its window (§3.8.6): what is in flight then counts as lost after a timeout.
    with p.routine("shut"):
        p.move(t.blocked, 0)
        with p.If(p.eq(row.window, 0)):
            p.sub(t.x, row.sent, row.una)
            with p.If(p.any(row.flags, Bit.TIMEOUT)):
                p.move(t.x, 0)
            with p.If(p.lt(t.x, 2)):
                p.and_(t.x, row.flags, Bit.CLOSES)
                p.add(t.x, t.x, row.end)
                with p.If(p.lt(row.una, t.x)):
                    p.move(t.blocked, 1)


def _payload(p: Program, config: EngineConfig) -> None:
    """Take the payload and the FIN of a segment, which begins with ``t.seq``."""
    p.label("payload")
    with p.If(p.eq(segment.length, 0)):
        p.jump_if(p.none(segment.flags, FIN), "discard")
    with p.If(p.any(row.flags, Bit.FINISHED)):  # behind the peer's FIN there is nothing
        p.move(port.take, 0)
        p.jump("acknowledge_at_once")
    # RFC 5681 §4.2: an acknowledgment at once for octets out of order, and for those that fill a hole.
    p.move(t.behind, 0)
    p.jump_if(p.lt(row.next, t.seq), "out_of_order")
    with p.If(p.ne(row.start0, row.end0)):
        p.label("out_of_order")
        p.move(t.behind, 1)
    p.call("put")
    with p.If(p.any(row.flags, Bit.FINISHED)):
        with p.If(p.any(row.state, State.ESTABLISHED)):
            p.move(row.state, State.CLOSE_WAIT)
            p.jump("finished")
        with p.If(p.any(row.state, State.FIN_WAIT_1)):
            p.move(row.state, State.CLOSING)
            p.jump("finished")
        with p.If(p.any(row.state, State.FIN_WAIT_2)):
            p.call("enter_time_wait")
            p.jump("acknowledge_at_once")
        p.label("finished")
        p.call("report")
        p.jump("acknowledge_at_once")
    p.jump_if(p.ne(t.behind, 0), "acknowledge_at_once")
    p.jump_if(p.any(segment.flags, FIN), "acknowledge_at_once")
    p.jump_if(p.eq(row.unacknowledged, 0), "acknowledge_at_once")
    p.jump_if(p.le(row.twice_mss, row.unacknowledged), "acknowledge_at_once")  # RFC 9293 §3.8.6.3
    with p.If(p.none(row.flags, Bit.ACK)):
        p.set(row.flags, Bit.ACK)
        p.add(row.ack_at, t.now, config.delayed_ack)
    p.jump("want")
    p.label("acknowledge_at_once")
    p.set(row.flags, Bit.MUST_ACK)
    p.jump("want")


def _place(p: Program) -> None:
    """Place the octets of the segment in the ring, trimmed to the window, and take the FIN."""
    with p.routine("put"):
        p.add(t.x, t.seq, segment.length)
        with p.If(p.any(segment.flags, FIN), p.lt(t.x, row.edge)):
            p.set(row.flags, Bit.FIN_KEPT)
            p.move(row.fin, t.x)
        p.max(t.start, t.seq, row.next)
        p.min(t.until, t.x, row.edge)
        with p.If(p.lt(t.start, t.until)):
            with p.If(p.ne(t.start, row.next)):
                p.call("keep")
                p.jump_if(p.eq(t.z, len(RANGES)), "no_octets")
            p.move(port.place, t.seq)
            p.sub(port.first, t.start, t.seq)
            p.sub(port.take, t.until, t.seq)
            with p.If(p.eq(t.start, row.next)):
                p.call("join")
                p.move(port.deliver, row.next)
        with p.Else():
            p.label("no_octets")
            p.move(port.take, 0)
        with p.If(p.any(row.flags, Bit.FIN_KEPT), p.eq(row.next, row.fin)):
            p.clear(row.flags, Bit.FIN_KEPT)
            p.set(row.flags, Bit.FINISHED)
            p.move(port.finish, 0)
            p.add(row.next, row.next, 1)


def _ranges(p: Program) -> None:
    """The ranges that were received behind a hole: the latest first, as in SACK blocks (RFC 2018 §4).

    A range whose start and end are equal is none; these are the last ones.
    """
    first, behind_last, apart = t.x, t.y, t.z
    with p.routine("keep"):  # Keep ``t.start`` to ``t.until``; ``apart`` is then the number of ranges that lie apart.
        p.move(first, t.start)
        p.move(behind_last, t.until)
        p.move(apart, 0)
        for at, (start, end) in enumerate(RANGES):
            p.jump_if(p.eq(start, end), f"kept{at}")
            with p.If(p.le(t.start, end), p.le(start, t.until)):
                p.min(first, first, start)
                p.max(behind_last, behind_last, end)
                p.move(start, end)
                p.jump(f"kept{at}")
            p.add(apart, apart, 1)
            p.label(f"kept{at}")
        with p.If(p.ne(apart, len(RANGES))):
            p.call("close_up")
            for (start, end), (before, last) in zip(RANGES[:0:-1], RANGES[-2::-1], strict=True):
                p.move(start, before)
                p.move(end, last)
            p.move(row.start0, first)
            p.move(row.end0, behind_last)

    with p.routine("join"):  # Octets up to ``t.until`` have arrived: move RCV.NXT over kept ranges.
        with p.If(p.ne(row.start0, row.end0)):
            for start, end in RANGES:
                with p.If(p.le(start, t.until), p.lt(t.until, end)):
                    p.move(t.until, end)
            for start, end in RANGES:
                with p.If(p.le(end, t.until)):
                    p.move(start, end)
            p.call("close_up")
        p.sub(t.x, t.until, row.next)
        p.add(row.unacknowledged, row.unacknowledged, t.x)
        p.move(row.next, t.until)

    with p.routine("close_up"):  # Move the empty ranges to the end.
        p.move(t.count, len(RANGES) - 1)
        p.label("close_up_next")
        for (start, end), (later, last) in pairwise(RANGES):
            with p.If(p.eq(start, end)):
                p.move(start, later)
                p.move(end, last)
                p.move(later, last)
        p.sub(t.count, t.count, 1)
        p.jump_if(p.ne(t.count, 0), "close_up_next")


def _syn_sent(p: Program) -> None:
    """RFC 9293 §3.10.7.3."""
    p.label("syn_sent")
    with p.If(p.any(segment.flags, ACK)):
        p.sub(t.x, segment.ack, 1)
        with p.If(p.ne(t.x, row.iss)):
            p.move(port.take, 0)
            with p.If(p.none(segment.flags, RST)):
                p.move(t.seq, segment.ack)
                p.move(t.control, RST_CONTROL)
                p.jump("reset")
            p.wait()
    with p.If(p.any(segment.flags, RST)):
        p.move(port.take, 0)
        with p.If(p.any(segment.flags, ACK)):
            p.move(t.x, Reason.REFUSED)
            p.jump("finish")
        p.wait()
    p.jump_if(p.none(segment.flags, SYN), "discard")
    p.call("take_syn")
    with p.If(p.any(segment.flags, ACK)):
        p.move(t.seq, segment.seq)
        p.call("opened")
        p.set(row.flags, Bit.MUST_ACK)
        p.move(t.seq, row.next)
        p.jump("payload")
    p.move(row.state, State.SYN_RECEIVED)  # simultaneous open
    p.call("report")
    p.move(port.take, 0)
    p.jump("syn_due")


def _listen(p: Program) -> None:
    """RFC 9293 §3.10.7.2."""
    p.label("listen")
    p.jump_if(p.any(segment.flags, RST | ACK), "stray")
    p.jump_if(p.none(segment.flags, SYN), "discard")
    p.move(port.take, 0)
    p.move(row.address, segment.source)
    p.move(row.ports, segment.ports)
    p.move(port.bind_address, row.address)
    p.move(port.bind_ports, row.ports)
    p.move(row.state, State.SYN_RECEIVED)
    p.call("report")
    p.call("take_syn")
    p.label("syn_due")
    p.set(row.flags, Bit.SYN_DUE)
    p.jump("want")


def _take_syn(p: Program, config: EngineConfig) -> None:
    """Take the peer's initial sequence number and options."""
    with p.routine("take_syn"):
        with p.If(p.any(segment.flags, SegmentBit.SACK_PERMITTED)):
            p.set(row.flags, Bit.SACK)
        p.move(t.x, segment.mss)
        with p.If(p.eq(t.x, 0)):
            p.move(t.x, DEFAULT_MSS)
        p.max(t.x, t.x, SMALLEST_MSS)
        p.min(row.mss, t.x, config.mss)
        p.add(row.twice_mss, row.mss, row.mss)
        p.move(row.initial, row.twice_mss)
        for _ in range(config.initial_window // 2 - 1):
            p.add(row.initial, row.initial, row.twice_mss)
        p.move(row.cwnd, row.initial)
        p.add(row.next, segment.seq, 1)
        p.move(row.read, row.next)
        p.add(row.edge, row.next, min(config.receive_ring, 0xFFFF))
        p.move(port.begin_receive, row.next)


def _opened(p: Program, config: EngineConfig) -> None:
    """Both SYNs have been exchanged; ``t.seq`` is the segment's."""
    with p.routine("opened"):
        with p.If(p.any(row.flags, Bit.TIMED)):
            p.sub(t.x, t.now, row.timed_at)
            p.call("measure")
        with p.If(p.ne(row.tries, 0)):  # a SYN was lost
            p.move(row.rto, min(RTO_AFTER_SYNS, config.longest_rto))
        with p.If(p.lt(1, row.tries)):  # RFC 5681 §3.1, RFC 6928 §2
            p.move(row.cwnd, row.mss)
        p.clear(row.flags, Bit.TIMED | Bit.RETRANSMIT | Bit.UNANSWERED)
        p.move(row.window_seq, t.seq)
        p.move(row.window_ack, row.una)
        p.move(row.window, segment.window)
        p.move(row.largest, segment.window)
        p.move(row.state, State.ESTABLISHED)
        with p.If(p.any(row.flags, Bit.CLOSES)):
            p.move(row.state, State.FIN_WAIT_1)
        p.label("report")
        p.move(port.status, row.state)


def _stray(p: Program) -> None:
    """A segment without a connection is answered with a reset (RFC 9293 §3.10.7.1)."""
    p.label("stray")
    p.move(port.take, 0)
    with p.If(p.any(segment.flags, RST)):
        p.wait()
    with p.If(p.any(segment.flags, ACK)):
        p.move(t.seq, segment.ack)
        p.move(t.ack, 0)
        p.move(t.control, RST_CONTROL)
    with p.Else():
        p.move(t.seq, 0)
        p.add(t.ack, segment.seq, segment.length)
        p.and_(t.x, segment.flags, FIN)
        p.add(t.ack, t.ack, t.x)
        with p.If(p.any(segment.flags, SYN)):
            p.add(t.ack, t.ack, 1)
        p.move(t.control, RST_CONTROL | ACK << 16)
    p.jump("answer")
    p.label("reset")
    p.move(t.ack, 0)
    p.label("answer")  # to the sender of the segment
    p.move(port.destination, segment.source)
    p.move(port.length, 20)
    p.move(port.word, segment.ports)
    p.move(port.word, t.seq)
    p.move(port.word, t.ack)
    p.move(port.word, t.control)
    p.move(port.word, 0)
    p.move(port.payload, 0)
    p.wait()


def _end(p: Program) -> None:
    """Ends of connections."""
    with p.routine("enter_time_wait"):
        p.move(row.state, State.TIME_WAIT)
        p.clear(row.flags, Bit.TIMERS)
        p.move(port.status, row.state)
    p.label("finish")  # for the reason ``t.x``
    p.move(port.status, t.x)
    p.label("forget")  # also a connection of the time before a reset, which its row outlasts
    p.move(row.state, State.CLOSED)
    p.move(row.flags, 0)
    p.move(port.bind_address, 0)
    p.move(port.bind_ports, 0)
    p.wait()
