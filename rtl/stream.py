"""The packet streams that all blocks speak.

A packet is carried in beats of ``lanes`` 32-bit lanes. The transfer rules, once for the whole project:

* Octet 0 of a packet is in bits 7:0 of ``data`` of its first beat, octet 1 in bits 15:8, and so on; lane
  ``n`` is bits ``32n+31:32n``. So a 16- or 32-bit field in network order is octet-swapped in a lane:
  :func:`swap_octets` is the way in and out.
* Every beat but the last is full. On the last one, ``last`` is 1 and ``octets`` says how many octets
  are valid, counted from octet 0; on other beats ``octets`` means nothing. Octets that are not valid may
  have any value.
* ``octets`` is 0 only in the single beat of a packet of no octets.
* A beat moves in each cycle in which ``valid`` and ``ready`` are both 1. Once ``valid`` is 1, it and the
  payload, but for octets that are not valid, stay as they are until the beat has moved. At the ports of the
  data path those octets stay, too. ``ready`` may depend on ``valid``.

Inside MPA every boundary falls between lanes (RFC 5044 §4.1, §4.3), so there ``octets`` is a multiple of 4.
"""

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .registers import LANES, Verdict

__all__ = [
    "LANES",
    "Buffer",
    "Fifo",
    "Packet",
    "RxUlpdu",
    "Stage",
    "Through",
    "TxUlpdu",
    "buffered",
    "check_lanes",
    "keep_octets",
    "packet",
    "swap_octets",
]


def check_lanes(lanes: int) -> None:
    """Raise ValueError when ``lanes`` is not a width of the data path."""
    if lanes not in LANES:
        raise ValueError(f"lanes must be one of {', '.join(map(str, LANES))}, not {lanes!r}")


class Packet(data.StructLayout):
    """One beat of a packet, with ``extra`` fields behind the common ones.

    ``data``: the octets. ``octets``: how many are valid on the last beat. ``last``: the packet ends here.
    """

    def __init__(self, lanes: int, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({"data": 32 * lanes, "octets": range(4 * lanes + 1), "last": 1, **extra})


class TxUlpdu(Packet):
    """A ULPDU on its way out; ``length`` is its length in octets, valid on the first beat."""

    def __init__(self, lanes: int):
        super().__init__(lanes, length=16)


class RxUlpdu(Packet):
    """A ULPDU that was received; ``verdict`` (:class:`rtl.registers.Verdict`) is valid on the last beat."""

    def __init__(self, lanes: int):
        super().__init__(lanes, verdict=Verdict)


def packet(lanes: int, **extra) -> stream.Signature:
    """The stream signature of :class:`Packet`."""
    return stream.Signature(Packet(lanes, **extra))


def swap_octets(value: ValueLike) -> Value:
    """``value`` with its octets in opposite order: between network order in a lane and an integer."""
    value = Value.cast(value)
    return Cat(value.word_select(i, 8) for i in reversed(range(len(value) // 8)))


def keep_octets(value: Value, octets: Value) -> Value:
    """``value`` with all but its first ``octets`` octets cleared."""
    return Cat(Mux(i < octets, value.word_select(i, 8), 0) for i in range(len(value) // 8))




class Buffer(wiring.Component):
    """Cuts every path between its two sides: the beat, and ``ready`` on its way back.

    Latency 1 cycle, one beat a cycle, room for 2 beats.

    Members
    -------
    i, o : streams of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        slots = [Signal(Value.cast(self.i.payload).shape(), name=f"slot_{n}", reset_less=True) for n in range(2)]
        gives, takes = Signal(), Signal()  # which slot
        some, both = Signal(), Signal()  # slots are in use
        m.d.comb += [
            self.i.ready.eq(~both),
            self.o.valid.eq(some),
            Value.cast(self.o.payload).eq(Mux(gives, *reversed(slots))),
        ]
        for n, slot in enumerate(slots):
            with m.If(~both & (takes == n)):
                m.d.sync += slot.eq(self.i.payload)
        comes = self.i.valid & ~both
        leaves = some & self.o.ready
        with m.If(comes):
            m.d.sync += takes.eq(~takes)
        with m.If(leaves):
            m.d.sync += gives.eq(~gives)
        with m.If(comes & ~leaves):
            m.d.sync += [some.eq(1), both.eq(some)]
        with m.Elif(leaves & ~comes):
            m.d.sync += [some.eq(both), both.eq(0)]
        return m


class Stage(wiring.Component):
    """Cuts the paths of the beat between its two sides, but not that of ``ready``: a :class:`Buffer` of half the size.

    Latency 1 cycle, one beat a cycle.

    Members
    -------
    i, o : streams of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        held = Signal(Value.cast(self.i.payload).shape(), reset_less=True)
        m.d.comb += [self.i.ready.eq(self.o.ready | ~self.o.valid), Value.cast(self.o.payload).eq(held)]
        with m.If(self.i.ready):
            m.d.sync += [self.o.valid.eq(self.i.valid), held.eq(self.i.payload)]
        return m


class Through(wiring.Component):
    """In the place of a :class:`Stage`, nothing.

    Members
    -------
    i, o : streams of ``shape``
    """

    def __init__(self, shape):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        return m


class Fifo(wiring.Component):
    """A queue of ``depth`` beats in memory, the next one of them in a register too.

    Latency 1 cycle, one beat a cycle; no path from one side to the other.

    Members
    -------
    i, o : streams of ``shape``
    """

    def __init__(self, shape, depth: int):
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self.depth = depth

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = Memory(shape=Value.cast(self.i.payload).shape(), depth=self.depth, init=[])
        write = memory.write_port()
        read = memory.read_port(transparent_for=(write,))
        level = Signal(range(self.depth + 1))
        several, full = Signal(), Signal()  # the level is over 1; ``depth``
        head, tail = Signal(range(self.depth)), Signal(range(self.depth))  # ``head``: behind the beat in the register
        held = Signal.like(Value.cast(self.o.payload), reset_less=True)
        enters, leaves, takes = Signal(), Signal(), Signal()  # ``takes``: the register a beat, from memory or directly

        def after(at):
            return Mux(at == self.depth - 1, 0, at + 1)

        m.d.comb += [
            self.i.ready.eq(~full),
            enters.eq(self.i.valid & ~full),
            leaves.eq(self.o.valid & self.o.ready),
            takes.eq(Mux(self.o.valid, self.o.ready & (several | enters), enters)),
            write.en.eq(enters),
            write.addr.eq(tail),
            write.data.eq(self.i.payload),
            read.addr.eq(Mux(takes, after(head), head)),
            Value.cast(self.o.payload).eq(held),
        ]
        m.d.sync += head.eq(read.addr)
        with m.If(enters):
            m.d.sync += tail.eq(after(tail))
        with m.If(~self.o.valid | self.o.ready):
            m.d.sync += held.eq(Mux(several, read.data, self.i.payload))
        with m.If(enters & ~leaves):
            m.d.sync += [
                level.eq(level + 1),
                self.o.valid.eq(1),
                several.eq(self.o.valid),
                full.eq(level == self.depth - 1),
            ]
        with m.Elif(leaves & ~enters):
            m.d.sync += [level.eq(level - 1), self.o.valid.eq(several), several.eq(level > 2), full.eq(0)]
        return m


def buffered(m: Module, name: str, source) -> stream.Interface:
    """The output stream ``source`` behind a :class:`Buffer`, which becomes submodule ``name``."""
    m.submodules[name] = buffer = Buffer(source.payload.shape())
    wiring.connect(m, source, buffer.i)
    return buffer.o

