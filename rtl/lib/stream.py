"""Packet streams, and the buffers and queues for them.

A packet is transferred in beats of ``lanes`` 32-bit lanes. These rules hold for every packet stream of the project:

* Octet 0 of a packet is in bits 7:0 of ``data`` of its first beat, octet 1 in bits 15:8, and so on; lane ``n`` is bits
  ``32n+31:32n``. A 16- or 32-bit field in network order is therefore octet-swapped in a lane; :func:`swap_octets`
  converts it in both directions.
* Every beat except the last is full. On the last beat, ``last`` is 1 and ``octets`` is the number of valid octets,
  counted from octet 0; on other beats ``octets`` has no meaning. Octets that are not valid may have any value.
* ``octets`` is 0 only in the single beat of a packet of no octets.
* A beat is transferred in each cycle in which ``valid`` and ``ready`` are both 1. Once ``valid`` is 1, it and the
  payload, except octets that are not valid, do not change until the beat has been transferred. At the ports of the data
  path those octets do not change either. ``ready`` may depend on ``valid``, so ``valid`` must not depend on ``ready``.

A block stalls while its ``o.ready`` is 0. Where its docstring states that it stalls as a whole, ``o.ready`` must not
depend on ``o.valid``.
"""

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.late_read import late_read

__all__ = [
    "PART",
    "Buffer",
    "EarlyStage",
    "Fifo",
    "LateFifo",
    "Queue",
    "ReadyBuffer",
    "ReadyFifo",
    "Stage",
    "Through",
    "keep_octets",
    "swap_octets",
]


def swap_octets(value: ValueLike) -> Value:
    """``value`` with its octets in reverse order: converts between network order in a lane and an integer."""
    value = Value.cast(value)
    return Cat(value.word_select(i, 8) for i in reversed(range(len(value) // 8)))


def check_depth(depth: int) -> None:
    """Raise ValueError if ``depth`` is not a depth of a queue: a power of 2, at least 2."""
    if depth < 2 or depth & (depth - 1):
        raise ValueError(f"depth must be a power of 2, at least 2, not {depth!r}")


def stored_beats(
    m: Module, platform, payload, depth: int, free: ValueLike, tail: Value, next_head: Value, head: Value
) -> Value:
    """The memory of a queue: writes ``payload`` to ``tail`` if that is ``free``, and returns the entry at ``head``.

    Until a beat enters, the place at ``tail`` is written again and again: its write enable does not wait for ``valid``.
    The entry is read in the same cycle. On an FPGA whose memory has no asynchronous read port, it is read one cycle
    ahead, at ``next_head``.
    """
    from amaranth.vendor import LatticeICE40Platform

    m.submodules.memory = memory = Memory(shape=Value.cast(payload).shape(), depth=depth, init=[])
    write = memory.write_port()
    m.d.comb += [write.en.eq(free), write.addr.eq(tail), write.data.eq(payload)]
    if isinstance(platform, LatticeICE40Platform):
        read = memory.read_port(transparent_for=(write,))
        m.d.comb += read.addr.eq(next_head)
    else:
        read = memory.read_port(domain="comb")
        m.d.comb += read.addr.eq(head)
    return read.data


def keep_octets(value: Value, octets: Value) -> Value:
    """``value`` with all octets after the first ``octets`` cleared."""
    return Cat(Mux(i < octets, value.word_select(i, 8), 0) for i in range(len(value) // 8))


PART = 144  # bits: a beat of 4 lanes and what is about it


class Queue(wiring.Component):
    """A queue whose wide beats are in several queues side by side, each of which has some of their bits.

    All of them do the same. So a signal that chooses among beats has about :data:`PART` bits to reach, however wide a
    beat is.
    """

    def elaborate(self, platform):
        m = Module()
        entering, leaving = Value.cast(self.i.payload), Value.cast(self.o.payload)
        count = max(1, round(len(entering) / PART))
        if count == 1:
            self._build(m, platform)
            return m
        bits = -(-len(entering) // count)
        parts = [self._like(len(entering[at:at + bits])) for at in range(0, len(entering), bits)]
        for n, part in enumerate(parts):
            m.submodules[f"part_{n}"] = part
            m.d.comb += [
                part.i.valid.eq(self.i.valid),
                part.i.payload.eq(entering[bits * n:bits * (n + 1)]),
                leaving[bits * n:bits * (n + 1)].eq(part.o.payload),
                part.o.ready.eq(self.o.ready),
            ]
        first = parts[0]
        m.d.comb += [self.i.ready.eq(first.i.ready), self.o.valid.eq(first.o.valid)]
        if hasattr(self, "spare"):
            m.d.comb += self.spare.eq(first.spare)
        return m

    def _like(self, bits: int):
        """Such a queue of ``bits`` bits."""
        raise NotImplementedError


class Buffer(Queue):
    """Registers a stream in both directions: no combinational path leads from one side to the other.

    Latency: 1 cycle. Throughput: one beat per cycle. Depth: 2 beats.

    Members
    -------
    i : In, stream of ``shape``
    o : Out, stream of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def _like(self, bits):
        return Buffer(bits)

    def _build(self, m, platform):
        slots = [Signal(Value.cast(self.i.payload).shape(), name=f"slot_{n}", reset_less=True) for n in range(2)]
        gives = Signal()  # number of the slot that is read
        takes = Signal()  # number of the slot that is written
        some = Signal()  # a slot is in use
        both = Signal()  # both slots are in use
        m.d.comb += [
            self.i.ready.eq(~both),
            self.o.valid.eq(some),
            Value.cast(self.o.payload).eq(Mux(gives, *reversed(slots))),
        ]
        for n, slot in enumerate(slots):
            with m.If(~both & (takes == n)):
                m.d.sync += slot.eq(self.i.payload)
        # Sums of products instead of cases: ``ready``, which is late, passes one table and drives no clock enable.
        m.d.sync += [
            some.eq(self.i.valid | both | (some & ~self.o.ready)),
            both.eq(some & ~self.o.ready & (self.i.valid | both)),
            takes.eq(takes ^ (self.i.valid & ~both)),
            gives.eq(gives ^ (some & self.o.ready)),
        ]


class ReadyBuffer(Buffer):
    """A :class:`Buffer` whose output comes from a register. ``o.ready`` must be early in the cycle."""

    def _like(self, bits):
        return ReadyBuffer(bits)

    def _build(self, m, platform):
        shape = Value.cast(self.i.payload).shape()
        first = Signal(shape, reset_less=True)
        second = Signal(shape, reset_less=True)
        both = Signal()
        free = Signal()
        m.d.comb += [
            free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(~both),
            Value.cast(self.o.payload).eq(first),
        ]
        with m.If(free):
            m.d.sync += first.eq(Mux(both, second, self.i.payload))
        with m.If(~both):
            m.d.sync += second.eq(self.i.payload)
        # As in :class:`Buffer`.
        m.d.sync += [
            self.o.valid.eq(self.i.valid | both | (self.o.valid & ~self.o.ready)),
            both.eq(~free & (self.i.valid | both)),
        ]


class Stage(wiring.Component):
    """A register for a beat. It stalls while ``o.ready`` is 0, even if it is empty.

    ``o.ready`` must therefore not depend on ``o.valid``. The path of ``ready`` is combinational.

    Latency: 1 cycle. Throughput: one beat per cycle; a beat whose field ``twice`` is 1 is transferred twice.

    Parameters
    ----------
    shape : shape of the payload
    twice : name of a 1-bit field of the payload; empty for none

    Members
    -------
    i : In, stream of ``shape``
    o : Out, stream of ``shape``
    again : Out, 1 bit
        The beat at ``o`` is transferred for the second time. Only with ``twice``.

    """

    def __init__(self, shape, *, twice: str = ""):
        again = {"again": Out(1)} if twice else {}
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), **again})
        self.twice = twice

    def elaborate(self, platform):
        m = Module()
        held = Signal(Value.cast(self.i.payload).shape(), reset_less=True)
        stays = Signal()  # the beat is transferred once more
        m.d.comb += [self.i.ready.eq(self.o.ready & ~stays), Value.cast(self.o.payload).eq(held)]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.payload)]
        if self.twice:
            with m.If(self.o.ready):
                m.d.sync += [self.again.eq(stays), stays.eq(self.i.valid & self.i.payload[self.twice] & ~stays)]
        return m


class EarlyStage(wiring.Component):
    """A :class:`Stage` whose ``i.ready`` comes from a register, because ``o.ready`` is known a cycle ahead.

    Parameters
    ----------
    shape, twice : see :class:`Stage`

    Members
    -------
    i, o, again : see :class:`Stage`
    soon : In, 1 bit
        ``o.ready`` of the next cycle.

    """

    def __init__(self, shape, *, twice: str):
        super().__init__({
            "i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape)), "again": Out(1), "soon": In(1),
        })  # fmt: skip
        self.twice = twice

    def elaborate(self, platform):
        m = Module()
        held = Signal(Value.cast(self.i.payload).shape(), reset_less=True)
        ready = Signal()
        stays = Signal()  # the beat is transferred once more
        stays_next = Signal()
        m.d.comb += [self.i.ready.eq(ready), Value.cast(self.o.payload).eq(held)]
        with m.If(ready):
            m.d.comb += stays_next.eq(self.i.valid & self.i.payload[self.twice])
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.payload)]
        with m.Else():
            m.d.comb += stays_next.eq(stays & ~self.o.ready)
        with m.If(self.o.ready):
            m.d.sync += self.again.eq(stays)
        m.d.sync += [stays.eq(stays_next), ready.eq(self.soon & ~stays_next)]
        return m


class Through(wiring.Component):
    """A drop-in replacement for :class:`Stage` without the register.

    Latency: combinational.

    Members
    -------
    i : In, stream of ``shape``
    o : Out, stream of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


class Fifo(Queue):
    """A queue in memory.

    Latency: 1 cycle. Throughput: one beat per cycle. No combinational path leads from one side to the other. The output
    comes straight from the memory; see :class:`ReadyFifo` for a registered output.

    Parameters
    ----------
    shape : shape of the payload
    depth : beats, a power of 2, at least 2
    spare : beats of room that the port ``spare`` reports

    Members
    -------
    i : In, stream of ``shape``
    o : Out, stream of ``shape``
    spare : Out, 1 bit
        The queue has room for ``spare`` beats or more.

    """

    def __init__(self, shape, depth: int, *, spare: int = 2):
        check_depth(depth)
        super().__init__({
            "i": In(stream.Signature(shape)),
            "o": Out(stream.Signature(shape)),
            "spare": Out(1),
        })
        self.depth = depth
        self.few = range(spare)  # numbers of free places for which the port ``spare`` is 0

    def _like(self, bits):
        return Fifo(bits, self.depth, spare=len(self.few))

    def _build(self, m, platform):
        head = Signal(range(self.depth))
        tail = Signal(range(self.depth))
        after_head = Signal.like(head)
        after_tail = Signal.like(tail)
        full = Signal()
        enters = Signal()
        leaves = Signal()
        m.d.comb += [
            self.i.ready.eq(~full),
            self.spare.eq(~full & ~(head - tail)[: len(head)].matches(*self.few[1:])),
            enters.eq(self.i.valid & ~full),
            leaves.eq(self.o.valid & self.o.ready),
            after_head.eq(head + 1),
            after_tail.eq(tail + 1),
        ]
        next_head = Mux(leaves, after_head, head)
        stored = stored_beats(m, platform, self.i.payload, self.depth, ~full, tail, next_head, head)
        m.d.comb += Value.cast(self.o.payload).eq(stored)
        with m.If(enters):
            m.d.sync += tail.eq(after_tail)
        with m.If(leaves):
            m.d.sync += head.eq(after_head)
        # As in :class:`Buffer`.
        m.d.sync += [
            self.o.valid.eq(enters | (self.o.valid & ~(leaves & (after_head == tail)))),
            full.eq(~leaves & (full | (enters & (after_tail == head)))),
        ]


class LateFifo(Fifo):
    """A :class:`Fifo` that reads no beat in the cycle in which it is written, so that it can be in block RAM.

    Latency: 2 cycles. ``attrs`` are attributes of the memory, which is one however wide a beat is.
    """

    def __init__(self, shape, depth: int, *, spare: int = 2, attrs: Mapping[str, str | int] | None = None):
        super().__init__(shape, depth, spare=spare)
        self.attrs = attrs

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(
            shape=Value.cast(self.i.payload).shape(), depth=self.depth, init=[], attrs=self.attrs
        )
        write, read = memory.write_port(), late_read(m, memory)
        head = Signal(range(2 * self.depth))
        tail = Signal.like(head)
        next_head = Signal.like(head)
        level = Signal.like(head)
        enters = Signal()
        m.d.comb += [
            level.eq(tail - head),
            self.i.ready.eq(level != self.depth),
            self.spare.eq(level <= self.depth - len(self.few)),
            enters.eq(self.i.valid & self.i.ready),
            next_head.eq(head + (self.o.valid & self.o.ready)),
            write.en.eq(enters), write.addr.eq(tail), write.data.eq(self.i.payload),
            read.addr.eq(next_head), Value.cast(self.o.payload).eq(read.data),
        ]  # fmt: skip
        m.d.sync += [head.eq(next_head), tail.eq(tail + enters), self.o.valid.eq(next_head != tail)]
        return m


class ReadyFifo(Fifo):
    """A :class:`Fifo` whose output comes from a register."""

    def _like(self, bits):
        return ReadyFifo(bits, self.depth, spare=len(self.few))

    def _build(self, m, platform):
        # The beat in the register was written to memory, too: ``head`` is the place behind it. So ``tail`` is free.
        head = Signal(range(self.depth))
        tail = Signal(range(self.depth))
        after_head = Signal.like(head)
        after_tail = Signal.like(tail)
        almost = Signal()  # there is room for one beat
        held = Signal(Value.cast(self.i.payload).shape(), reset_less=True)
        several = Signal()  # the memory has beats besides the one in the register
        full = Signal()
        enters = Signal()
        free = Signal()
        takes = Signal()
        next_head = Mux(takes, after_head, head)
        stored = stored_beats(m, platform, self.i.payload, self.depth, 1, tail, next_head, head)
        m.d.comb += [
            self.i.ready.eq(~full),
            almost.eq((after_tail + 1)[: len(head)] == head),
            self.spare.eq(~(head - tail - 1)[: len(head)].matches(*self.few)),
            Value.cast(self.o.payload).eq(held),
            after_head.eq(head + 1),
            after_tail.eq(tail + 1),
            enters.eq(self.i.valid & ~full),
            free.eq(~self.o.valid | self.o.ready),
            takes.eq(free & (several | enters)),
        ]
        with m.If(enters):
            m.d.sync += tail.eq(after_tail)
        with m.If(takes):
            m.d.sync += head.eq(after_head)
        with m.If(free):
            m.d.sync += held.eq(Mux(several, stored, self.i.payload))
        # As in :class:`Buffer`.
        m.d.sync += [
            self.o.valid.eq(several | enters | (self.o.valid & ~self.o.ready)),
            several.eq((several & (enters | ~free | (after_head != tail))) | (enters & ~free)),
            full.eq(~free & (full | (enters & almost))),
        ]
