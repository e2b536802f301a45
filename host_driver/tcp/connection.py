"""One TCP connection: the state machine that joins sender, receiver and timers (RFC 9293 §3.10)."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from ipaddress import IPv4Address
from typing import NamedTuple

from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.ranges import Range
from open_rnic.host_driver.tcp.receiver import Receiver
from open_rnic.host_driver.tcp.rtt import RttEstimator
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.host_driver.tcp.sender import Sender
from open_rnic.host_driver.tcp.sequence import MODULUS, on_the_wire, unwrap
from open_rnic.host_driver.tcp.states import CHANGES, Input, State

__all__ = ["Connection", "End", "Peer", "Timer"]

_DEFAULT_MSS = 536  # RFC 9293 §3.7.1
_RTO_AFTER_SYNS = 3000  # if a SYN was lost (RFC 6298 §5.7)
_RECENT_LASTS = 24 * 24 * 3600 * 1000  # in ms: an older TS.Recent is not compared (RFC 7323 §5.5)
_SMALLEST_MSS = 64  # smaller values of a peer would multiply headers
_TIMESTAMPS = 12  # octets of the timestamps option, padding included


class Peer(NamedTuple):
    """The other end of a connection, and the port at this end."""

    address: IPv4Address
    port: int
    local_port: int


class End(Enum):
    """How a connection ended."""

    CLOSED = "closed by both ends"
    ABORTED = "aborted at this end"
    RESET = "reset by peer"
    REFUSED = "refused by peer"
    TIMED_OUT = "timed out"


# How a reset ends a connection: in these states both ends have closed it (RFC 9293 §3.10.7.4).
_RESETS = {
    State.SYN_RECEIVED: End.REFUSED, State.CLOSING: End.CLOSED, State.LAST_ACK: End.CLOSED, State.TIME_WAIT: End.CLOSED,
}  # fmt: skip


class Timer(Enum):
    """The timers of a connection."""

    RETRANSMIT = auto()
    PERSIST = auto()
    ACK = auto()
    END = auto()
    KEEP_ALIVE = auto()


class Connection:
    """A connection between two ports, made by :class:`.Endpoint`.

    After each call, ``segments`` has the segments to send, in order. ``state`` is the state; ``end`` the reason if it
    is CLOSED. ``deadline`` is the time at which :meth:`tick` must be called next.
    """

    def __init__(self, config: TcpConfig, peer: Peer, iss: int, stamp: int, began: int) -> None:
        self.config = config
        self.peer = peer
        self.began = began  # when it was made
        self.state = State.SYN_SENT
        self.end: End | None = None
        self.segments: deque[Segment] = deque()
        self.sender = Sender(config)
        self.receiver = Receiver(config)
        self.timers: dict[Timer, int] = {}
        self.retransmissions = 0
        self.passive = False  # the peer has opened the connection
        self.announced = False  # the endpoint has reported that the connection is open
        self._rtt = RttEstimator(config.initial_rto, config.shortest_rto, config.longest_rto)
        self._iss = iss
        self._stamp = stamp  # added to the time in TSval (RFC 7323 §5.4: not to reveal the time since start)
        self._stamps = config.timestamps
        self._recent = 0  # TS.Recent
        self._recent_at = 0  # when it was received
        self._acked = 0  # Last.ACK.sent
        self._scale = self._scale_for(config.receive_ring) if config.scaling else None
        self._peer_scale = 0
        self._timed: tuple[int, int] | None = None  # the end of a segment that is timed, and when it was sent
        self._expired = 0  # when the retransmission timer expired last
        self._syns = 0  # SYNs sent
        self._tries = 0  # timeouts of SYNs
        self._unanswered: int | None = None  # since when octets are sent without an answer
        self._sent_at = 0
        self._challenges = (-1000, 0)  # since when challenge ACKs are counted, and their number
        self._must_ack = False
        self._sacks = False  # both ends permit SACK
        self._released = False  # the user takes no more octets
        self._keep_alive: KeepAlive | None = None
        self._heard_at = 0  # when the peer's last acceptable segment arrived
        self._probes = 0  # keep-alives since then
        self.sender.begin(iss + 1, _DEFAULT_MSS)

    @staticmethod
    def _scale_for(ring: int) -> int:
        return max(0, ring.bit_length() - 16)

    # The user

    def open(self, now: int) -> None:
        """Open actively."""
        self._send_syn(now)

    def accept(self, syn: Segment, now: int) -> None:
        """Open passively, with the peer's SYN."""
        self.passive = True
        self.state = State.SYN_RECEIVED
        self._take_syn(syn, now)
        self._send_syn(now)

    def send(self, octets: bytes, now: int) -> int:
        """Send octets, and return how many were taken. The octets of a call have segments of their own."""
        if self.sender.closing or self.state is State.CLOSED:
            raise ValueError("this end's half is closed")
        taken = self.sender.put(octets)
        self._transmit(now)
        return taken

    def take(self, most: int, now: int) -> bytes:
        """Return received octets, at most ``most``; the peer learns of the window if it opens much."""
        octets = self.receiver.take(most)
        if octets and self.state.synchronized and not self.finished and self.receiver.opens(self.sender.mss):
            self._must_ack = True
            self._transmit(now)
        return octets

    def close(self, now: int) -> None:
        """Close this end's half, behind everything sent."""
        if self.state is State.SYN_SENT:
            return self._finish(End.ABORTED)
        self.sender.closing = True
        self._change(Input.CLOSE)
        self._transmit(now)
        return None

    def release(self, now: int) -> None:
        """Close, and take no more octets: those that wait or arrive from now on cause a reset (RFC 2525 §2.17)."""
        self._released = True
        if self.receiver.available:
            self.abort()
        elif self.state is not State.CLOSED and not self.sender.closing:
            self.close(now)
        else:
            self._transmit(now)

    def keep_alive(self, times: KeepAlive, now: int) -> None:
        """Probe the peer from now on when it is silent."""
        if self.state.synchronized:
            self._keep_alive, self._heard_at, self._probes = times, now, 0
            self.timers[Timer.KEEP_ALIVE] = now + times.idle * 1000

    def abort(self) -> None:
        """End the connection with a reset (RFC 9293 §3.10.5)."""
        if self.state not in (State.SYN_SENT, State.CLOSED, State.CLOSING, State.LAST_ACK, State.TIME_WAIT):
            self._emit(Flag.RST | Flag.ACK, self._place)
        self._finish(End.ABORTED)

    @property
    def _place(self) -> int:
        """The number of a segment without octets: SND.NXT, or the end of a window that ends before it.

        A peer accepts no number beyond its window, such as that behind an octet that has probed a window of zero, and
        would not take the acknowledgment there (RFC 9293 §3.4: with a window of zero, an end still takes ACKs).
        """
        sender = self.sender
        if self.state is State.SYN_RECEIVED:  # the SYN is beside the window
            return sender.next
        return min(sender.next, sender.una + sender.window)

    @property
    def finished(self) -> bool:
        """Whether the peer has closed its half, and no octet will follow those that wait."""
        return self.receiver.finished

    def newer(self, syn: Segment) -> bool:
        """Whether a SYN is later than everything received: it may take the place of a connection in TIME-WAIT."""
        if self._stamps and syn.timestamps and unwrap(syn.timestamps[0], self._recent) > self._recent:
            return True
        return unwrap(syn.seq, self.receiver.next) > self.receiver.next

    @property
    def deadline(self) -> int | None:
        """The time of the next :meth:`tick`."""
        return min(self.timers.values(), default=None)

    # Time

    def tick(self, now: int) -> None:
        """Let the timers that are due expire."""
        for timer in Timer:
            if self.timers.get(timer, now + 1) > now:
                continue
            del self.timers[timer]
            match timer:
                case Timer.RETRANSMIT:
                    self._retransmit(now)
                case Timer.PERSIST:
                    self._probe(now)
                case Timer.ACK:
                    self._must_ack = True
                case Timer.END:
                    self._finish(End.CLOSED)
                case Timer.KEEP_ALIVE:
                    self._look_alive(now)
        self._transmit(now)

    def _retransmit(self, now: int) -> None:
        if self._silent(now):
            return self._finish(End.TIMED_OUT)
        self._rtt.back_off()
        self._timed, self._expired = None, now  # Karn's rule
        if not self.state.synchronized:
            self._tries += 1
            if self._tries == self.config.syn_tries:
                return self._finish(End.TIMED_OUT)
            self._send_syn(now)
        else:
            self.sender.time_out()
        return None

    def _probe(self, now: int) -> None:
        if self._silent(now):
            return self._finish(End.TIMED_OUT)
        if self.sender.blocked:
            self._rtt.back_off()
            self._send_range(self.sender.probe(), now)
        return None

    def _look_alive(self, now: int) -> None:
        """Probe a peer that has been silent, or give it up (RFC 9293 §3.8.4); while octets wait, others do that."""
        times, sender = self._keep_alive, self.sender
        assert times is not None
        due = self._heard_at + times.idle * 1000
        watched = self.state in (State.ESTABLISHED, State.CLOSE_WAIT, State.FIN_WAIT_2)
        if not watched or sender.in_flight or sender.next < sender.end:
            self._probes = 0
            self.timers[Timer.KEEP_ALIVE] = now + times.idle * 1000
        elif now < due:
            self.timers[Timer.KEEP_ALIVE] = due
        elif self._probes == times.probes:
            self._finish(End.TIMED_OUT)
        else:
            self._probes += 1
            self.timers[Timer.KEEP_ALIVE] = now + times.interval * 1000
            self._emit(Flag.ACK, sender.next - 1, now=now)  # a number that the peer has acknowledged: it answers

    def _silent(self, now: int) -> bool:
        """Whether the peer has not answered for too long (RFC 9293 §3.8.3)."""
        return self._unanswered is not None and now - self._unanswered >= self.config.give_up

    # Segments in (RFC 9293 §3.10.7)

    def receive(self, segment: Segment, now: int) -> None:
        """Take a segment of this connection."""
        if self.state is State.SYN_SENT:
            self._receive_in_syn_sent(segment, now)
        elif self.state is not State.CLOSED:
            self._receive(segment, now)
        self._transmit(now)

    def _receive_in_syn_sent(self, segment: Segment, now: int) -> None:
        """RFC 9293 §3.10.7.3."""
        acknowledged = bool(segment.flags & Flag.ACK)
        if acknowledged and segment.ack != on_the_wire(self._iss + 1):
            if not segment.flags & Flag.RST:
                self._emit(Flag.RST, segment.ack)
            return
        if segment.flags & Flag.RST:
            if acknowledged:
                self._finish(End.REFUSED)
            return
        if not segment.flags & Flag.SYN:
            return
        self._take_syn(segment, now)
        if acknowledged:
            self._opened(segment, now)
            self._must_ack = True
            self._take_payload(segment, self.receiver.next, now)
        else:
            self._change(Input.SYN)
            self._send_syn(now)

    def _receive(self, segment: Segment, now: int) -> None:
        receiver, flags = self.receiver, segment.flags
        seq = unwrap(segment.seq, receiver.next)
        repeated_syn = self.state is State.SYN_RECEIVED and flags & Flag.SYN and seq == receiver.next - 1
        if repeated_syn and not flags & (Flag.ACK | Flag.RST):
            return self._send_syn(now)  # the peer has not received our SYN
        if repeated_syn:  # simultaneous open: the peer's SYN again, with the acknowledgment of ours
            seq, flags = receiver.next, flags & ~Flag.SYN
        if self._stamps and not segment.timestamps and not flags & Flag.RST:  # RFC 7323 §3.2
            return None
        length = len(segment.payload) + bool(flags & Flag.SYN) + bool(flags & Flag.FIN)
        if self._is_old(segment, now) and not flags & Flag.RST:  # PAWS (RFC 7323 §5.3, R1)
            if not length:
                return self._answer_bare(now)
            self._must_ack = True
            return None
        if receiver.shut and receiver.next < seq == receiver.discarded and not length and not flags & Flag.RST:
            seq = receiver.next  # the peer counts the octet with which it has probed the window
        if not receiver.acceptable(seq, length):
            return self._receive_unacceptable(segment, flags, seq, length, now)
        self._heard_at, self._probes = now, 0
        if flags & Flag.RST:  # RFC 5961 §3.2
            if seq == receiver.next:
                return self._finish(_RESETS.get(self.state, End.RESET))
            return self._challenge(now)
        if flags & Flag.SYN:  # RFC 5961 §4
            return self._challenge(now)
        if not flags & Flag.ACK:
            return None
        if self.state is State.SYN_RECEIVED:
            if segment.ack != on_the_wire(self._iss + 1):
                return self._emit(Flag.RST, segment.ack)
            self._opened(segment, now)
        self._note_stamp(segment, seq, now)
        if self._acknowledge(segment, seq, now):
            self._take_payload(segment, seq, now)
        return None

    def _receive_unacceptable(self, segment: Segment, flags: Flag, seq: int, length: int, now: int) -> None:
        """A segment outside of the window is answered with an acknowledgment (RFC 9293 §3.10.7.4)."""
        if flags & Flag.RST:
            return None
        if flags & Flag.SYN:
            return self._challenge(now)
        if not length:
            return self._answer_bare(now)
        self._must_ack = True
        if self.state is State.TIME_WAIT and flags & Flag.FIN:
            self.timers.clear()  # the time begins anew
        if seq == self.receiver.next:  # the window is zero
            self.receiver.discarded = seq + length
            # "Special allowance": acknowledgments still count.
            if flags & Flag.ACK and self.state.synchronized:
                self._acknowledge(segment, seq, now)
        return None

    def _acknowledge(self, segment: Segment, seq: int, now: int) -> bool:
        """Take the acknowledgment, SACK blocks and window; return whether the rest of the segment counts."""
        sender = self.sender
        ack = unwrap(segment.ack, sender.una)
        if not sender.una - max(sender.largest_window, 1) <= ack <= sender.next:  # RFC 5961 §5.2
            self._challenge(now)
            return False
        self._unanswered = None
        was_shut = sender.shut
        advances = ack > sender.una
        if advances:
            self._measure(segment, ack, now)
            sender.acknowledge(ack)
            self.timers.pop(Timer.RETRANSMIT, None)
            if ack == sender.end + 1:
                self._change(Input.FIN_ACKNOWLEDGED)
        outstanding = sender.in_flight > 0 and ack == sender.una
        sacked = sender.sacks and sender.learn(
            [(unwrap(start, sender.una), unwrap(end, sender.una)) for start, end in segment.sack]
        )
        changed = ack == sender.una and sender.update_window(seq, ack, self._window(segment))
        bare = not segment.payload and not segment.flags & (Flag.SYN | Flag.FIN)
        if outstanding and not was_shut:
            # RFC 5681 §2: neither octets, nor a window update, nor anything new; RFC 6675 §2: with SACK, new blocks.
            if sacked if sender.sacks else (bare and not changed and not advances):
                sender.duplicate()
            sender.detect_loss()
        if was_shut and sender.window and sender.in_flight:
            sender.reopened()
        return True

    def _take_payload(self, segment: Segment, seq: int, now: int) -> None:
        """Take the payload, which begins with ``seq``, and the FIN."""
        receiver = self.receiver
        fin = bool(segment.flags & Flag.FIN)
        if not segment.payload and not fin:
            return None
        if receiver.finished:  # behind the peer's FIN there is nothing
            self._must_ack = True
            return None
        in_order = seq <= receiver.next and not len(receiver.kept)
        receiver.put(seq, segment.payload, fin)
        if self._released and receiver.available:
            return self.abort()
        if receiver.finished:
            self._change(Input.FIN)
        # RFC 5681 §4.2: at once for octets out of order and for those that fill a hole.
        if not in_order or fin or receiver.finished or receiver.due_at_once(self.sender.mss) or not receiver.owes:
            self._must_ack = True
        else:
            self.timers.setdefault(Timer.ACK, now + self.config.delayed_ack)
        return None

    # Opening

    def _take_syn(self, syn: Segment, now: int) -> None:
        """Take the peer's initial sequence number and options."""
        config, sender = self.config, self.sender
        if syn.scale is None or self._scale is None:
            self._scale, self._peer_scale = None, 0
        else:
            self._peer_scale = syn.scale
        self._stamps = config.timestamps and syn.timestamps is not None
        if syn.timestamps:
            self._recent, self._recent_at = syn.timestamps[0], now
        self._sacks = config.sack and syn.sack_permitted
        sender.sacks = self._sacks and config.sack_sending
        mss = min(max(syn.mss or _DEFAULT_MSS, _SMALLEST_MSS), config.mss)
        sender.begin(self._iss + 1, mss - (_TIMESTAMPS if self._stamps else 0))
        self.receiver.begin(unwrap(syn.seq, MODULUS) + 1, self._scale or 0)

    def _opened(self, segment: Segment, now: int) -> None:
        """Both SYNs have been exchanged."""
        sender = self.sender
        if self._timed and self._syns == 1:
            self._rtt.measure(now - self._timed[1])
        if self._tries:
            self._rtt.restart(_RTO_AFTER_SYNS)
        if self._tries > 1:
            sender.congestion.narrow()
        self._timed = None
        self.timers.pop(Timer.RETRANSMIT, None)
        self._unanswered = None
        sender.una = max(sender.una, self._iss + 1)
        sender.update_window(unwrap(segment.seq, self.receiver.next), sender.una, self._window(segment))
        self._change(Input.SYN_ACKNOWLEDGED)
        if sender.closing:
            self._change(Input.CLOSE)

    def _window(self, segment: Segment) -> int:
        """The window of a segment; that of a SYN is not scaled (RFC 7323 §2.2)."""
        return segment.window if segment.flags & Flag.SYN else segment.window << self._peer_scale

    # Segments out

    def _send_syn(self, now: int) -> None:
        self._syns += 1
        answers = self.state is State.SYN_RECEIVED
        self._acked = self.receiver.next
        self._timed = (self._iss + 1, now) if self._syns == 1 else None
        self.segments.append(
            Segment(
                self.peer.local_port,
                self.peer.port,
                on_the_wire(self._iss),
                on_the_wire(self.receiver.next) if answers else 0,
                Flag.SYN | Flag.ACK if answers else Flag.SYN,
                self.receiver.first_window,
                mss=self.config.mss,
                scale=self._scale,
                sack_permitted=self._sacks if answers else self.config.sack,
                timestamps=self._stamp_option(now),
            )
        )
        self._unanswered = now if self._unanswered is None else self._unanswered
        self.timers[Timer.RETRANSMIT] = now + self._rtt.rto

    def _transmit(self, now: int) -> None:
        """Send all segments that may leave now, then an acknowledgment if one is due."""
        if self.state.synchronized and self.state is not State.TIME_WAIT:
            sender = self.sender
            if not sender.in_flight and now - self._sent_at > self._rtt.rto:
                sender.congestion.idle()
            while segment := sender.next_segment():
                self._send_range(segment, now)
            self._set_timers(now)
        if self._must_ack and (self.state.synchronized or self.state is State.SYN_RECEIVED):
            self._emit(Flag.ACK, self._place, now=now)
        self._must_ack = False
        if self.state is State.TIME_WAIT:
            self.timers.setdefault(Timer.END, now + self.config.time_wait)
        elif self.state is State.FIN_WAIT_2 and self._released:
            self.timers.setdefault(Timer.END, now + self.config.fin_wait_2)

    def _set_timers(self, now: int) -> None:
        """RFC 6298 §5: the retransmission timer runs while something is in flight."""
        sender = self.sender
        if sender.blocked:
            self.timers.pop(Timer.RETRANSMIT, None)
            self.timers.setdefault(Timer.PERSIST, now + self._rtt.rto)
            return
        self.timers.pop(Timer.PERSIST, None)
        if sender.in_flight:
            self.timers.setdefault(Timer.RETRANSMIT, now + self._rtt.rto)
        else:
            self.timers.pop(Timer.RETRANSMIT, None)

    def _send_range(self, segment: tuple[int, int], now: int) -> None:
        sender = self.sender
        octets, fin = sender.octets(segment)
        start, end = segment
        again = start < sender.next
        self.retransmissions += again
        if again:
            self._timed = None
        elif self._timed is None:
            self._timed = (end, now)
        if self._unanswered is None:
            self._unanswered = now
        self._sent_at = now
        flags = Flag.ACK | (Flag.FIN if fin else Flag(0)) | (Flag.PSH if octets else Flag(0))
        sender.sent(segment)
        self._emit(flags, start, octets, now=now)

    def _emit(self, flags: Flag, seq: int, payload: bytes = b"", *, now: int | None = None) -> None:
        """Append a segment; those with ACK acknowledge everything, and carry SACK blocks if there is a hole."""
        receiver, acks = self.receiver, bool(flags & Flag.ACK)
        stamps = self._stamp_option(now) if now is not None and self.state is not State.SYN_SENT else None
        window = 0
        sack: tuple[Range, ...] = ()
        if acks:
            window = receiver.window(self.sender.mss)
            if self._sacks and not flags & Flag.RST:
                room = 3 if stamps else 4
                if payload:  # the segment must not be longer than MSS
                    room = min(room, (self.sender.mss - len(payload) - 4) // 8)
                sack = receiver.sack_blocks(max(room, 0))
            receiver.acknowledged()
            self._acked = receiver.next
            self._must_ack = bool(payload) and len(sack) < len(receiver.kept)  # then another segment carries the rest
            self.timers.pop(Timer.ACK, None)
        self.segments.append(
            Segment(
                self.peer.local_port,
                self.peer.port,
                on_the_wire(seq),
                on_the_wire(receiver.next) if acks else 0,
                flags,
                window,
                payload,
                sack=tuple((on_the_wire(start), on_the_wire(end)) for start, end in sack),
                timestamps=stamps,
            )
        )

    def _challenge(self, now: int) -> None:
        """Send a challenge ACK, of which there are few in a second (RFC 5961 §7)."""
        since, count = self._challenges
        if now - since >= 1000:
            since, count = now, 0
        if count < self.config.challenges:
            count += 1
            self._must_ack = True
        self._challenges = since, count

    def _answer_bare(self, now: int) -> None:
        """Answer an ACK without octets, but not as soon as two ends would that answer each other's answers for ever.

        Linux leaves as long between two such answers (tcp_invalid_ratelimit). Keep-alives are farther apart.
        """
        since, _ = self._challenges
        if now - since >= self.config.between_answers:
            self._challenges = now, 0
            self._challenge(now)

    # Timestamps (RFC 7323)

    def _stamp_option(self, now: int | None) -> tuple[int, int] | None:
        return (on_the_wire(now + self._stamp), self._recent) if self._stamps and now is not None else None

    def _is_old(self, segment: Segment, now: int) -> bool:
        if not (self._stamps and segment.timestamps) or now - self._recent_at > _RECENT_LASTS:
            return False
        return unwrap(segment.timestamps[0], self._recent) < self._recent

    def _note_stamp(self, segment: Segment, seq: int, now: int) -> None:
        """RFC 7323 §4.3: the timestamp of the segment at the left edge of the window, which is not old, is echoed."""
        if self._stamps and segment.timestamps and seq <= self._acked:
            self._recent, self._recent_at = segment.timestamps[0], now

    def _measure(self, segment: Segment, ack: int, now: int) -> None:
        if self._stamps and segment.timestamps:
            sent = unwrap(segment.timestamps[1], now + self._stamp) - self._stamp
            if self._expired <= sent <= now:  # an echo from before the timeout would measure the timeout
                self._rtt.measure(now - sent)
        elif self._timed and ack >= self._timed[0]:
            self._rtt.measure(now - self._timed[1])
        if self._timed and ack >= self._timed[0]:
            self._timed = None

    # States

    def _change(self, given: Input) -> None:
        self.state = CHANGES.get((self.state, given), self.state)
        if self.state is State.TIME_WAIT:
            self.timers.clear()
        elif self.state is State.CLOSED:
            self._finish(End.CLOSED)

    def _finish(self, end: End) -> None:
        self.end = self.end or end
        self.state = State.CLOSED
        self.timers.clear()
