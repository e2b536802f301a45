"""Frames cross from one clock to another as a whole, whatever the ratio of the clocks (rtl/mac).

Both domains have the clock of the proof, and each of them an enable that may have any value in any cycle: so the edges
of the two clocks come in any order. A change of a bit that is sampled while it changes is seen early or late, which is
as if the edge had come a little later or earlier.
"""

from itertools import pairwise

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import DomainRenamer, EnableInserter, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.mac.arrivals import Arrivals
from open_rnic.rtl.mac.clock_exchange import Exchange
from open_rnic.rtl.mac.delivery import deliver
from open_rnic.rtl.mac.frame_fifo import FrameFifo
from open_rnic.rtl.net.layouts import Frame

_WORDS = 4
_BITS = 3  # of its pointers
_LONGEST, _EARLY = 3, 2  # words of a frame that leaves early


class TwoClocks(wiring.Component):
    """A block with the domains ``write`` and ``read``, whose clocks have edges while ``writes`` and ``reads`` are 1."""

    def __init__(self, block):
        self.inside = block
        super().__init__({"writes": In(1), "reads": In(1), **dict(block.signature.members)})

    def elaborate(self, platform):
        m = Module()
        enabled = EnableInserter({"write": self.writes, "read": self.reads})(self.inside)
        m.submodules.inside = DomainRenamer({"write": "sync", "read": "sync"})(enabled)
        for name, member in self.inside.signature.members.items():
            outside, inside = getattr(self, name), getattr(self.inside, name)
            if member.is_signature:
                wiring.connect(m, inside, wiring.flipped(outside))
            else:
                m.d.comb += inside.eq(outside) if member.flow is In else outside.eq(inside)
        return m


@proves(
    "a pointer that one side takes from the other has been the same at the last two edges of its clock, too",
    lambda: TwoClocks(Exchange(2)),
    Mutant(
        "the token is seen in the cycle in which it comes",
        Exchange,
        "(read_turn != write_turn_seen)",
        "(read_turn != write_turn)",
    ),
    Mutant(
        "a side copies its pointer without the token",
        Exchange,
        "with m.If(write_turn == read_turn_seen):",
        "m.d.write += write_copy.eq(self.written)\n        with m.If(write_turn == read_turn_seen):",
    ),
    of="Exchange, 2 bits",
)
def stable(m, crossing):
    exchange = crossing["inside"]
    turns = [
        exchange["write_turn"], exchange["to_read"]["stage0"], exchange["to_read"]["stage1"],
        exchange["read_turn"], exchange["to_write"]["stage0"], exchange["to_write"]["stage1"],
    ]  # fmt: skip
    # The token is at one place: of these bits, in the order in which it passes them, at most one differs from the next.
    m.states(sum(one ^ other for one, other in pairwise(turns)) < 2)
    for edge, copy, seen, (turn, passed, came) in (
        (crossing.reads, exchange["write_copy"], crossing.written_seen, turns[:3]),
        (crossing.writes, exchange["read_copy"], crossing.read_seen, turns[3:]),
    ):
        last = Signal(2)
        last_but_one = Signal(2)
        with m.If(edge):
            m.d.sync += [last.eq(copy), last_but_one.eq(last)]
        m.states((turn != passed) | (last == copy), (turn != passed) | (passed != came) | (last_but_one == copy))
        taken = seen != m.last(seen)
        m.always(~taken | (seen == m.last(copy)))
        m.always(~taken | ((seen == m.last(last)) & (seen == m.last(last_but_one))))


def _followed(m, crossing):
    """State for any word of any frame that it leaves the queue unchanged, behind all words committed before it."""
    i, o, fifo = crossing.i, crossing.o, crossing["inside"]
    longest = crossing.inside.longest
    exchange = fifo["exchange"]
    m.given(i.payload.data < 4, i.payload.octets == 0)
    enters = crossing.writes & i.valid & i.ready
    leaves = crossing.reads & o.valid & o.ready
    ends = i.valid & i.ready & i.payload.last
    m.always(~crossing.committed | (ends & ~crossing.bad))
    m.always((crossing.committed + crossing.dropped) == (ends & ~crossing.bad))
    commits = crossing.writes & crossing.committed

    place = Signal(range(2 * _WORDS))  # words of the frame that is being written
    chosen = Signal(range(_WORDS))  # any one of them
    word = Signal(36)
    m.d.comb += chosen.eq(AnyConst(range(_WORDS)))
    with m.If(enters):
        m.d.sync += place.eq(Mux(i.payload.last, 0, Mux(place.all(), place, place + 1)))
        with m.If(place == chosen):
            m.d.sync += word.eq(i.payload)
    level = Signal(range(2 * _WORDS))  # words of committed frames that have not left
    watched = Signal()
    ahead = Signal(range(2 * _WORDS))
    left = Signal(36)
    m.d.sync += level.eq(level + Mux(commits, place + 1, 0) - leaves)
    with m.If(watched & leaves):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += watched.eq(0)
            m.always(Value.cast(o.payload) == left)
    with m.If(commits & (chosen <= place) & ~watched & AnySeq(1)):
        m.d.sync += [watched.eq(1), ahead.eq(level - leaves + chosen), left.eq(Mux(place == chosen, i.payload, word))]
    m.always(~o.valid | (level != 0))
    m.always(~crossing.committed | (place < (_WORDS if longest is None else longest)))

    # Reachable states: the pointers, in the order in which they follow one another.
    seen, head, tail, begin, limit = exchange["read_seen"], fifo["head"], fifo["tail"], fifo["begin"], fifo["limit"]
    pointers = [seen, exchange["read_copy"], head, exchange["written_seen"], exchange["write_copy"], begin, tail, limit]
    distances = [(pointer - seen)[:_BITS] for pointer in pointers] + [_WORDS]
    m.states(*(one <= other for one, other in pairwise(distances)))
    full, lost, fetched = fifo["full"], fifo["lost"], fifo["fetched"]
    m.states(fifo["before_limit"] == (limit - 1)[:_BITS], (tail != limit) | full)
    length = (tail - begin)[:_BITS]
    m.states(lost | (place == length))
    if longest is not None:
        m.states(lost | (fifo["stored"] == length), fifo["stored"] <= longest)
    out = (head - fetched - o.valid)[:_BITS]
    m.states(level == (begin - out)[:_BITS])
    # Where the words are that have been followed.
    m.states(lost | (place <= chosen) | (fifo.stored(m, "memory", begin + chosen) == word))
    m.states(~watched | (ahead < level))
    stored = fifo.stored(m, "memory", out + ahead)
    memory_output = fifo["read__data"]
    held = Signal(36)
    m.d.comb += held.eq(stored)
    with m.If(o.valid & (ahead == 0)):
        m.d.comb += held.eq(o.payload)
    with m.Elif(fetched & (ahead == o.valid)):
        m.d.comb += held.eq(memory_output)
    m.states(~watched | (held == left))


for _name, _text, _longest, _mutants in (
    (
        "dropped",
        "frames without room are discarded",
        None,
        (
            ("a frame is shown before its end", "exchange.written.eq(begin)", "exchange.written.eq(tail)"),
            ("a bad frame is committed", "~lost & ~misfits & ~self.bad", "~lost & ~misfits"),
            ("the rest of a frame is committed without its beginning", "lost.eq(lost | misfits)", "lost.eq(0)"),
            ("a word is written without room", "taken & ~lost & ~full", "taken & ~lost"),
            ("the queue is full a cycle too late", "(writes & (tail == before_limit))", "0"),
        ),
    ),
    (
        "stalled",
        "longest 3, frames wait for room",
        3,
        (
            ("a longer frame is cut off", "(stored == self.longest)", "(stored == self.longest + 9)"),
            ("a word is taken without room", "self.i.ready.eq(~full | lost | misfits)", "self.i.ready.eq(1)"),
        ),
    ),
):
    proves(
        "each word of a committed frame leaves exactly once, unchanged and in order, and no other word does",
        lambda longest=_longest: TwoClocks(FrameFifo(_WORDS, longest=longest)),
        *(Mutant(what, FrameFifo, old, new) for what, old, new in _mutants),
        name=_name,
        of=f"FrameFifo, 4 words, {_text}",
    )(_followed)


@proves(
    "each word of a frame leaves exactly once, unchanged and in order, also if the frame is longer than the queue; one "
    "that is too long ends early",
    lambda: TwoClocks(FrameFifo(2, longest=_LONGEST, early=_EARLY)),
    Mutant("a word is shown before it is stored", FrameFifo, "exchange.written.eq(tail)", "exchange.written.eq(after)"),
    Mutant("the place behind a frame that is cut off is forgotten", FrameFifo, "begin.eq(tail)", "begin.eq(begin)"),
    Mutant("a frame that is too long has no end", FrameFifo, "write.data.last.eq(1), ", ""),
    Mutant("the end of a frame is forgotten", FrameFifo, "begin.eq(after)", "begin.eq(begin)"),
    Mutant("a word is taken without room", FrameFifo, "self.i.ready.eq(~full | lost | misfits)", "self.i.ready.eq(1)"),
    of=f"FrameFifo, 2 words, longest {_LONGEST}, early {_EARLY}",
    reach=32,
)
def early(m, crossing):
    i, o, fifo = crossing.i, crossing.o, crossing["inside"]
    exchange = fifo["exchange"]
    m.given(i.payload.data < 4, i.payload.octets == 0, ~crossing.bad)
    enters = crossing.writes & i.valid & i.ready
    leaves = crossing.reads & o.valid & o.ready
    place = Signal(range(_LONGEST + 1))  # words of the frame
    keeps = Signal()  # a frame of one word is discarded
    given = Signal(Packet(1))
    m.d.comb += [keeps.eq(enters & (place < _LONGEST) & ((place != 0) | ~i.payload.last)), given.eq(i.payload)]
    with m.If((place == _LONGEST - 1) & ~i.payload.last):
        m.d.comb += [given.last.eq(1), given.octets.eq(4)]
    with m.If(enters):
        m.d.sync += place.eq(Mux(i.payload.last, 0, Mux(place == _LONGEST, place, place + 1)))
    level = Signal(range(5))  # words that have not left
    watched = Signal()  # any one of them is
    ahead = Signal(range(5))
    left = Signal(36)
    m.d.sync += level.eq(level + keeps - leaves)
    with m.If(watched & leaves):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += watched.eq(0)
            m.always(Value.cast(o.payload) == left)
    with m.If(keeps & ~watched & AnySeq(1)):
        m.d.sync += [watched.eq(1), ahead.eq(level - leaves), left.eq(given)]
    m.always(~o.valid | (level != 0))

    # Reachable states.
    seen, head, tail, begin, limit = exchange["read_seen"], fifo["head"], fifo["tail"], fifo["begin"], fifo["limit"]
    pointers = [seen, exchange["read_copy"], head, exchange["written_seen"], exchange["write_copy"], tail, limit]
    distances = [(pointer - seen)[:2] for pointer in pointers] + [2]
    m.states(*(one <= other for one, other in pairwise(distances)))
    full, lost, fetched = fifo["full"], fifo["lost"], fifo["fetched"]
    m.states(fifo["before_limit"] == (limit - 1)[:2], (tail != limit) | full)
    m.states(place <= _LONGEST, fifo["stored"] == place, ~lost | ((begin == tail) & (place == _LONGEST)))
    m.states((place >= _EARLY) | ((tail - begin)[:2] == place))
    begun = (begin - seen)[:2]
    m.states((place >= _EARLY) | ((distances[4] <= begun) & (begun <= distances[5])))
    out = (head - fetched - o.valid)[:2]
    m.states(level == (tail - head)[:2] + fetched + o.valid, ~watched | (ahead < level))
    held = Signal(36)
    m.d.comb += held.eq(fifo.stored(m, "memory", out + ahead))
    with m.If(o.valid & (ahead == 0)):
        m.d.comb += held.eq(o.payload)
    with m.Elif(fetched & (ahead == o.valid)):
        m.d.comb += held.eq(fifo["read__data"])
    m.states(~watched | (held == left))


@proves(
    "each word of a frame leaves exactly once, unchanged and in order; but if there is no room for one of them, the "
    "frame leaves not at all, or ends with a bad beat",
    lambda: TwoClocks(Arrivals(_WORDS)),
    Mutant("a word is shown too early", Arrivals, "exchange.written.eq(tail)", "exchange.written.eq(tail + 1)"),
    Mutant("a frame begins in the last place", Arrivals, "[:bits] > 2", "[:bits] > 1"),
    Mutant("a frame without room for a word ends well", Arrivals, "write.data.bad.eq(1)", "write.data.bad.eq(0)"),
    Mutant("the rest of a frame passes as another one", Arrivals, "(lost | cut | ~stores)", "(lost | ~stores)"),
    Mutant("a bad frame ends well", Arrivals, "write.data.bad.eq(self.bad)", "write.data.bad.eq(0)"),
    of="Arrivals, 4 words",
    reach=26,
)
def arrivals(m, crossing):
    i, o, queue = crossing.i, crossing.o, crossing["inside"]
    exchange = queue["exchange"]
    m.given(i.payload.data < 4, i.payload.octets == 0, ~crossing.frozen)
    enters = crossing.writes & i.valid
    leaves = crossing.reads & o.valid & o.ready
    stores = Signal()  # whether there is room is the block's to judge
    given = Signal(Frame())
    begun = Signal()  # a word of the frame has come
    kept = Signal()  # all of them have been stored, and no end
    m.d.comb += [
        stores.eq(crossing.writes & queue["stores"]),
        given.eq(i.payload.as_value()),
    ]
    with m.If(i.payload.last):
        m.d.comb += given.bad.eq(crossing.bad)
    with m.If(queue["cut"]):
        m.d.comb += [given.last.eq(1), given.bad.eq(1)]
    with m.If(enters):
        m.d.sync += [begun.eq(~i.payload.last), kept.eq(~i.payload.last & queue["stores"] & ~queue["cut"])]
    m.always(~stores | (enters & (kept | ~begun)))
    m.always(~(enters & kept & begun) | stores)  # a frame that leaves has an end
    ends = enters & i.payload.last & ~crossing.bad
    m.always((crossing.writes & crossing.committed) == (ends & stores))
    m.always((crossing.writes & crossing.dropped) == (ends & ~stores))

    level = Signal(range(2 * _WORDS))  # words that have not left
    watched = Signal()  # any one of them is
    ahead = Signal(range(2 * _WORDS))
    left = Signal(Frame())
    m.d.sync += level.eq(level + stores - leaves)
    with m.If(watched & leaves):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += watched.eq(0)
            m.always(Value.cast(o.payload) == left.as_value())
    with m.If(stores & ~watched & AnySeq(1)):
        m.d.sync += [watched.eq(1), ahead.eq(level - leaves), left.eq(given)]
    m.always(~o.valid | (level != 0))

    # Reachable states.
    seen, head, tail = exchange["read_seen"], queue["head"], queue["tail"]
    pointers = [seen, exchange["read_copy"], head, exchange["written_seen"], exchange["write_copy"], tail]
    distances = [(pointer - seen)[:_BITS] for pointer in pointers] + [_WORDS]
    m.states(*(one <= other for one, other in pairwise(distances)))
    room = Signal(_BITS)
    m.d.comb += room.eq(_WORDS - distances[-2])
    fetched, words_valid = queue["fetched"], queue["words__valid"]
    m.states(~queue["roomy"] | (room > 1), ~queue["inside"] | (room > 0))
    m.states(queue["inside"] == (begun & kept), queue["lost"] == (begun & ~kept), begun | ~kept)
    m.states(level == (tail - head)[:_BITS] + fetched + words_valid, ~watched | (ahead < level))
    out = (head - fetched - words_valid)[:_BITS]
    held = Signal(Frame())
    m.d.comb += held.eq(queue.stored(m, "memory", out + ahead))
    with m.If(words_valid & (ahead == 0)):
        m.d.comb += held.eq(queue["register"])
    with m.Elif(fetched & (ahead == words_valid)):
        m.d.comb += held.eq(queue["read__data"])
    m.states(~watched | (held.as_value() == left.as_value()))


for _name, _block, _mutant in (
    ("held", FrameFifo, Mutant("a beat leaves after one cycle", deliver, "o.ready | ~o.valid", "1")),
    ("waits", Arrivals, Mutant("an end of its own leaves after one cycle", Arrivals, "& empty & begun", "& ~begun")),
):

    @proves(
        "a beat is held until it is transferred",
        lambda block=_block: TwoClocks(block(_WORDS)),
        _mutant,
        name=_name,
        of=_block.__name__,
    )
    def held(m, crossing):
        o = crossing.o
        m.given(~m.last(crossing.frozen & o.valid) | crossing.frozen)
        stalled = m.last(o.valid & ~(crossing.reads & o.ready))
        m.always(~stalled | (o.valid & (Value.cast(o.payload) == m.last(o.payload))))
