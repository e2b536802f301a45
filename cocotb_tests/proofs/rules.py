"""What rtl/lib/stream.py says of streams, and the states of its queues."""

from amaranth.hdl import Cat, Mux, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

from open_rnic.rtl.layouts import CHECKED
from open_rnic.rtl.lib.stream import keep_octets

_AT_THE_END = {*CHECKED, "verdict"}

__all__ = [
    "beats",
    "buffer_states",
    "fifo_level",
    "fifo_states",
    "keeps",
    "kept",
    "ready_buffer_states",
    "ready_fifo_states",
]


def beats(buffer) -> list[tuple[Value, data.View]]:
    """The 2 places of a ReadyBuffer, the one that leaves first before the other: if it has a beat, and that."""
    second = data.View(buffer.o.payload.shape(), buffer["second"])
    return [(buffer.o.valid, buffer.o.payload), (buffer["both"], second)]


def buffer_states(buffer) -> Value:
    """The states that a Buffer can be in."""
    some, both = buffer["some"], buffer["both"]
    return (some | ~both) & ((buffer["gives"] ^ buffer["takes"]) == (some & ~both))


def ready_buffer_states(buffer) -> Value:
    """The states that a ReadyBuffer can be in."""
    return buffer.o.valid | ~buffer["both"]


def fifo_level(fifo) -> Value:
    """How many beats are in a Fifo."""
    head, tail = fifo["head"], fifo["tail"]
    return Mux(fifo["full"], fifo.depth, (tail - head)[: len(head)])


def fifo_states(fifo) -> Value:
    """The states that a Fifo can be in."""
    same = fifo["head"] == fifo["tail"]
    return (fifo.o.valid == (fifo["full"] | ~same)) & (same | ~fifo["full"])


def ready_fifo_states(fifo) -> Value:
    """The states that a ReadyFifo can be in."""
    waiting = (fifo["tail"] - fifo["head"])[: len(fifo["head"])]
    return (
        (fifo["several"] == (waiting != 0))
        & (fifo["full"] == (waiting == fifo.depth - 1))
        & (fifo.o.valid | ~fifo["several"])
    )


def _meaning(payload):
    """The payload without what has no meaning, and may change: octets that are not valid, a verdict before the end."""
    fields = getattr(payload.shape(), "members", {})
    if not {"data", "octets", "last"} <= fields.keys() or len(payload.data) % 32:
        return [Value.cast(payload)]
    return [
        Mux(payload.last, keep_octets(payload.data, payload.octets), payload.data),
        *(Mux(payload.last | (name not in _AT_THE_END), payload[name], 0) for name in fields if name != "data"),
    ]


def kept(m, stream):
    """What waited in the cycle before is still there."""
    waited = m.last(stream.valid & ~stream.ready)
    return ~waited | (stream.valid & Cat(now == m.last(now) for now in _meaning(stream.payload)).all())


def keeps(m, block):
    """What the outputs of ``block`` show stays until it is taken, if what the inputs show does."""
    for name, member in block.signature.members.items():
        if hasattr(getattr(block, name), "ready"):
            (m.given if member.flow == In else m.always)(kept(m, getattr(block, name)))
