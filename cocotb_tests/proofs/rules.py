"""The transfer rules of rtl/lib/stream.py, and the reachable states of its queues."""

from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import In

from open_rnic.rtl.formats.layouts import CHECKED
from open_rnic.rtl.lib.stream import keep_octets

_AT_THE_END = {*CHECKED, "verdict"}

__all__ = [
    "answers_to_bursts",
    "beats",
    "buffer_states",
    "fifo_level",
    "fifo_states",
    "keeps",
    "kept",
    "late_fifo_states",
    "ready_buffer_states",
    "ready_fifo_states",
    "run_gatherer_states",
    "write_gatherer_states",
]


def beats(buffer) -> list[tuple[Value, data.View]]:
    """Return the two places of a ReadyBuffer, in the order in which beats leave: whether each is used, and its beat."""
    second = data.View(buffer.o.payload.shape(), buffer["second"])
    return [(buffer.o.valid, buffer.o.payload), (buffer["both"], second)]


def buffer_states(buffer) -> Value:
    """Whether a Buffer is in a reachable state."""
    some, both = buffer["some"], buffer["both"]
    return (some | ~both) & ((buffer["gives"] ^ buffer["takes"]) == (some & ~both))


def ready_buffer_states(buffer) -> Value:
    """Whether a ReadyBuffer is in a reachable state."""
    return buffer.o.valid | ~buffer["both"]


def fifo_level(fifo) -> Value:
    """The number of beats in a Fifo."""
    head, tail = fifo["head"], fifo["tail"]
    return Mux(fifo["full"], fifo.depth, (tail - head)[: len(head)])


def fifo_states(fifo) -> Value:
    """Whether a Fifo is in a reachable state."""
    same = fifo["head"] == fifo["tail"]
    return (fifo.o.valid == (fifo["full"] | ~same)) & (same | ~fifo["full"])


def late_fifo_states(fifo) -> Value:
    """Whether a LateFifo is in a reachable state."""
    level = (fifo["tail"] - fifo["head"])[: len(fifo["head"])]
    return (level <= fifo.depth) & (~fifo.o.valid | (level != 0))


def ready_fifo_states(fifo) -> Value:
    """Whether a ReadyFifo is in a reachable state."""
    waiting = (fifo["tail"] - fifo["head"])[: len(fifo["head"])]
    return (
        (fifo["several"] == (waiting != 0))
        & (fifo["full"] == (waiting == fifo.depth - 1))
        & (fifo.o.valid | ~fifo["several"])
    )


def run_gatherer_states(gatherer) -> Value:
    """Whether a RunGatherer is in a reachable state."""
    run, next_in_page = data.View(gatherer.o.payload.shape(), gatherer["run"]), gatherer["next_in_page"]
    size = len(next_in_page)

    def within_a_page(run):
        return run.address[:size] + run.more < 1 << size

    return (~gatherer.open | (within_a_page(run) & ((run.address + run.more + 1)[:size] == next_in_page))) & (
        ~gatherer.o.valid | within_a_page(gatherer.o.payload)
    )


def write_gatherer_states(writes) -> Value:
    """Whether a WriteGatherer is in a reachable state: its queue has the words of its runs."""
    gatherer, queue = writes["gatherer"], writes["queue"]
    run, number, named, emptied = gatherer.o, writes["number"], writes["named"], writes["emptied"]
    gathered = data.View(run.payload.shape(), gatherer["run"])
    left = Mux(run.valid & ~emptied, run.payload.more + 1 - number, 0)
    return (
        run_gatherer_states(gatherer)
        & fifo_states(queue)
        & (fifo_level(queue) == left + Mux(gatherer.open, gathered.more + 1, 0))
        & Mux(run.valid & ~emptied, number <= run.payload.more, number == 0)
        & ((run.valid & ~(named & emptied)) | ~(named | emptied))
    )


def answers_to_bursts(m, memory) -> Value:
    """Let an AXI4 bus answer each burst of writes once; return how many have begun that it has not answered."""
    answers = memory.m_axi.bvalid
    named = Signal(memory.outstanding + 1)  # whose address it has taken
    ended = Signal(memory.outstanding + 1)  # whose last beat it has taken
    names = memory.m_axi.awvalid & memory.m_axi.awready
    ends = memory.m_axi.wvalid & memory.m_axi.wready & memory.m_axi.wlast
    m.given(~answers | ((named + names != 0) & (ended + ends != 0)))
    m.d.sync += [named.eq(named + names - answers), ended.eq(ended + ends - answers)]
    writes, count = memory["writes"], memory["writes_outstanding"]
    m.states(write_gatherer_states(writes))
    m.states(named == count + writes["named"], ended == count + writes["emptied"])
    # A burst begins only if its response can be counted.
    m.states(~count.all() | ~(writes["named"] | writes["emptied"] | (writes["number"] != 0)))
    return Mux(named > ended, named, ended)


def _meaning(payload):
    """Return the fields of a stalled beat that must not change: not unused octets, nor a verdict on an earlier beat."""
    fields = getattr(payload.shape(), "members", {})
    if not {"data", "octets", "last"} <= fields.keys() or len(payload.data) % 32:
        return [Value.cast(payload)]
    return [
        Mux(payload.last, keep_octets(payload.data, payload.octets), payload.data),
        *(Mux(payload.last | (name not in _AT_THE_END), payload[name], 0) for name in fields if name != "data"),
    ]


def kept(m, stream):
    """Return whether a beat that was stalled in the previous cycle is still offered, unchanged."""
    waited = m.last(stream.valid & ~stream.ready)
    return ~waited | (stream.valid & Cat(now == m.last(now) for now in _meaning(stream.payload)).all())


def keeps(m, block):
    """Prove that the outputs of ``block`` hold their beats until the transfer, if its inputs do.

    The streams may lie in interfaces, such as a memory port.
    """
    for name, member in block.signature.members.items():
        part = getattr(block, name)
        if hasattr(part, "ready"):
            (m.given if member.flow == In else m.always)(kept(m, part))
        elif member.is_signature:
            keeps(m, part)
