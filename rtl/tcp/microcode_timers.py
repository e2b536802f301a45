"""The program for timers, at each tick."""

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode_receive import write_since
from open_rnic.rtl.tcp.microcode_send import PLAIN
from open_rnic.rtl.tcp.words import Bit, Reason, State, row, t

__all__ = ["write_timers"]


def write_timers(p: Program, config: EngineConfig) -> None:
    """Write the entry ``tick``: let the timers expire that are due."""
    p.label("tick")
    p.jump_if(p.none(row.flags, Bit.TIMERS), "idle")
    p.move(t.count, 0)  # something has expired
    with p.If(p.any(row.flags, Bit.RETRANSMIT | Bit.PERSIST), p.le(row.deadline, t.now)):
        p.move(t.count, 1)
        with p.If(p.any(row.flags, Bit.UNANSWERED)):
            p.sub(t.x, t.now, row.unanswered)
            with p.If(p.le(config.give_up, t.x)):  # RFC 9293 §3.8.3
                p.label("give_up")
                p.move(t.x, Reason.TIMED_OUT)
                p.jump("finish")
        p.add(row.rto, row.rto, row.rto)  # RFC 6298 §5.5
        p.min(row.rto, row.rto, config.longest_rto)
        p.jump_if(p.any(row.flags, Bit.PERSIST), "probe")
        p.clear(row.flags, Bit.RETRANSMIT | Bit.TIMED)
        with p.If(p.none(row.state, State.SYNCHRONIZED)):
            p.add(row.tries, row.tries, 1)
            p.jump_if(p.eq(row.tries, config.syn_tries), "give_up")
            p.jump("syn_due")
        # Everything outstanding counts as lost (RFC 6298 §5.4, RFC 5681 §3.1).
        p.sub(t.x, row.sent, row.una)
        p.call("halve")
        p.clear(row.flags, Bit.FAST)
        p.set(row.flags, Bit.TIMEOUT)
        p.move(row.cwnd, row.mss)
        p.move(row.credit, 0)
        p.move(row.recovery, row.sent)
        p.move(row.resent, row.una)
        p.move(row.duplicates, 0)
    p.label("timer_ack")
    with p.If(p.any(row.flags, Bit.ACK), p.le(row.ack_at, t.now)):
        p.clear(row.flags, Bit.ACK)
        p.set(row.flags, Bit.MUST_ACK)
        p.move(t.count, 1)
    with p.If(p.any(row.flags, Bit.END), p.le(row.end_at, t.now)):
        p.move(t.x, Reason.CLOSED)
        p.jump("finish")
    with p.If(p.any(row.flags, Bit.KEEP_ALIVE), p.le(row.alive_at, t.now)):
        _look_alive(p)
    p.label("timers_done")
    p.jump_if(p.ne(t.count, 0), "want")
    p.label("idle")
    p.wait()
    _probe(p)


def _probe(p: Program) -> None:
    """Probe a window that is shut (RFC 9293 §3.8.6.1), or fill a window that is small but open.

    A segment that has just arrived may leave nothing to send, or a window that ends before SND.NXT.
    """
    p.label("probe")
    p.clear(row.flags, Bit.PERSIST)
    p.call("shut")
    with p.If(p.ne(t.blocked, 0)):
        p.move(t.start, row.una)
        p.add(t.until, row.una, 1)
        p.jump("send_range")
    p.jump_if(p.ne(row.sent, row.una), "want")
    p.move(t.start, row.sent)
    p.add(t.until, row.una, row.window)
    p.move(t.x, row.fresh)
    p.call("whole")
    p.jump_if(p.eq(t.start, t.until), "want")
    p.jump("send_range")


def _look_alive(p: Program) -> None:
    """Probe a peer that has been silent, or give it up (RFC 9293 §3.8.4); while octets wait, others do that."""
    p.add(row.alive_at, t.now, row.idle)
    p.jump_if(p.none(row.state, State.ESTABLISHED | State.CLOSE_WAIT | State.FIN_WAIT_2), "not_probed")
    p.jump_if(p.ne(row.sent, row.una), "not_probed")
    p.jump_if(p.lt(row.sent, row.end), "not_probed")
    write_since(p, row.heard_at)
    with p.If(p.lt(t.x, row.idle)):
        p.add(row.alive_at, row.heard_at, row.idle)
        p.label("not_probed")
        p.move(row.probes, 0)  # a probe is never older than the last look, so the times of both can be compared
        p.jump("timers_done")
    with p.If(p.le(row.probed_at, row.heard_at)):  # the last probe was answered
        p.move(row.probes, 0)
    p.jump_if(p.eq(row.probes, row.most_probes), "give_up")
    p.add(row.probes, row.probes, 1)
    p.move(row.probed_at, t.now)
    p.add(row.alive_at, t.now, row.interval)
    p.sub(t.seq, row.sent, 1)  # a number that the peer has acknowledged, which it answers
    p.move(t.length, 0)
    p.move(t.control, PLAIN)
    p.call("emit")
