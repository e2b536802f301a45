"""The program for the user of a connection: commands of the host, octets queued and taken at the streams."""

from open_rnic.rtl.sequencer.assembler import Program
from open_rnic.rtl.sequencer.isa import QUEUE, QUEUED
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.microcode_receive import RANGES
from open_rnic.rtl.tcp.microcode_send import PLAIN, write_place
from open_rnic.rtl.tcp.words import Bit, Command, Reason, SegmentBit, State, port, row, t

__all__ = ["write_user"]

CLEARED = (
    "flags", "unacknowledged", "discarded", "window", "largest", "window_seq", "window_ack", "credit", "duplicates",
    "srtt8", "rttvar4", "sent_at", "unanswered", "challenges", "syns", "tries", "head", "fresh", "tail",
)  # fmt: skip


def write_user(p: Program, config: EngineConfig) -> None:
    """Write the entries ``command``, ``queued`` and ``taken``."""
    p.label("command")
    for command in Command:
        p.jump_if(p.eq(t.argument0, command), command.name.lower())
    p.wait()
    _open(p, config)
    _close(p)
    _keep_alive(p)
    _queued(p)
    _taken(p, config)


def _open(p: Program, config: EngineConfig) -> None:
    """Open a connection: ``t.argument1`` are its ports, ``t.argument2`` the peer's address, ``t.argument3`` the ISS."""
    p.label("listen_at")
    p.call("clear_row")
    p.move(row.state, State.LISTEN)
    p.jump("bind")
    p.label("open")
    p.call("clear_row")
    p.move(row.state, State.SYN_SENT)
    p.set(row.flags, Bit.SYN_DUE)
    p.label("bind")
    p.move(row.ports, t.argument1)
    p.move(row.address, t.argument2)
    p.move(port.bind_address, row.address)
    p.move(port.bind_ports, row.ports)
    p.move(port.status, row.state)
    p.jump("want")
    with p.routine("clear_row"):
        for name in CLEARED:
            p.move(getattr(row, name), 0)
        for start, end in RANGES:
            p.move(start, 0)
            p.move(end, 0)
        p.move(row.next, 0)
        p.move(row.edge, 0)
        p.move(row.threshold, 1 << 30)
        p.sub(row.challenge_at, t.now, 1000)
        p.move(row.rto, config.initial_rto)
        p.move(row.iss, t.argument3)
        p.add(row.una, row.iss, 1)
        for word in (row.sent, row.end, row.recovery, row.resent):
            p.move(word, row.una)
        p.move(port.begin_send, row.una)


def _close(p: Program) -> None:
    """Close this end's half, behind everything sent; or abort (RFC 9293 §3.10.4, §3.10.5), perhaps only in LISTEN."""
    p.label("close")
    p.jump_if(p.any(row.state, State.LISTEN | State.SYN_SENT), "aborted")
    p.jump_if(p.eq(row.state, State.CLOSED), "idle")
    p.set(row.flags, Bit.CLOSES)
    with p.If(p.any(row.state, State.ESTABLISHED)):
        p.move(row.state, State.FIN_WAIT_1)
    with p.If(p.any(row.state, State.CLOSE_WAIT)):
        p.move(row.state, State.LAST_ACK)
    p.move(port.status, row.state)
    p.jump("want")
    p.label("unlisten")  # or in another of the states ``t.argument2``
    p.jump_if(p.any(row.state, State.LISTEN), "aborted")
    p.jump_if(p.any(row.state, t.argument2), "aborted")
    p.jump_if(p.eq(row.state, State.CLOSED), "aborted")
    p.call("report")  # a SYN was faster
    p.wait()
    p.label("abort")
    p.jump_if(p.eq(row.state, State.CLOSED), "idle")
    silent = State.LISTEN | State.SYN_SENT | State.CLOSING | State.LAST_ACK | State.TIME_WAIT
    with p.If(p.none(row.state, silent)):
        write_place(p)
        p.move(t.length, 0)
        p.move(t.control, PLAIN | SegmentBit.RST << 16)
        p.clear(row.flags, Bit.SACK)
        p.call("emit")
    p.label("aborted")
    p.move(t.x, Reason.ABORTED)
    p.jump("finish")


def _keep_alive(p: Program) -> None:
    """Probe a silent peer from now on (RFC 9293 §3.8.4).

    ``t.argument2`` is how long it is silent before the first probe, ``t.argument3`` the time between two, both in
    ticks; the lower half of ``t.argument1`` is how many stay unanswered. A first time of 0 ends it.
    """
    p.label("keep_alive")
    p.clear(row.flags, Bit.KEEP_ALIVE)
    p.jump_if(p.none(row.state, State.SYNCHRONIZED), "idle")
    p.and_(row.most_probes, t.argument1, 0xFFFF)
    p.move(row.idle, t.argument2)
    p.move(row.interval, t.argument3)
    p.move(row.heard_at, t.now)
    p.move(row.probed_at, t.now)
    p.jump_if(p.eq(row.idle, 0), "idle")
    p.set(row.flags, Bit.KEEP_ALIVE)
    p.add(row.alive_at, t.now, row.idle)
    p.wait()


def _queued(p: Program) -> None:
    """The user has put a packet of ``t.argument0`` octets in the ring: no segment holds octets of two packets.

    No octets stand for the end of this half.

    If the queue is full, the packet becomes part of the last one.
    """
    p.label("queued")
    p.jump_if(p.none(row.state, State.ESTABLISHED | State.CLOSE_WAIT), "idle")
    p.jump_if(p.eq(t.argument0, 0), "close")
    p.call("enqueue")
    p.jump("want")
    with p.routine("enqueue"):
        p.add(row.end, row.end, t.argument0)
        p.sub(t.x, row.tail, row.head)
        with p.If(p.eq(t.x, QUEUE)):
            p.call("forget_packets")
        p.sub(t.x, row.tail, row.head)
        with p.If(p.eq(t.x, QUEUE)):
            p.sub(row.tail, row.tail, 1)
            p.min(row.fresh, row.fresh, row.tail)
        p.select(row.tail)
        p.move(QUEUED, row.end)
        p.add(row.tail, row.tail, 1)


def _taken(p: Program, config: EngineConfig) -> None:
    """The user has taken ``t.argument0`` octets; the peer learns of it if the window opens much."""
    ring = config.receive_ring
    p.label("taken")
    p.add(row.read, row.read, t.argument0)
    p.jump_if(p.none(row.state, State.SYNCHRONIZED), "idle")
    p.jump_if(p.any(row.flags, Bit.FINISHED), "idle")  # nothing follows
    p.add(t.x, row.read, ring)
    p.sub(t.x, t.x, row.edge)  # the growth
    p.min(t.y, row.twice_mss, ring // 2)
    p.jump_if(p.lt(t.x, t.y), "idle")
    p.sub(t.x, row.edge, row.next)
    p.jump_if(p.lt(ring // 2, t.x), "idle")
    p.set(row.flags, Bit.MUST_ACK)
    p.jump("want")
