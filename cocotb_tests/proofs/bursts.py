"""Bursts carry the words that were asked for, and no others (rtl/rdma/bursts.py; AXI4, A3.4.1)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Cat, Mux, Signal, Value
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import answers_to_bursts, fifo_level, run_gatherer_states
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.bursts import PAGE, RunGatherer, WriteGatherer, page_bits

_BURST = 4


def _memory(lanes):
    return AxiMemory(lanes, burst=_BURST, outstanding=2)


def _run(gatherer):
    """The run that is being gathered."""
    return data.View(gatherer.o.payload.shape(), gatherer["run"])


def _octets(lanes):
    """Bits of the number of an octet in a word."""
    return (4 * lanes).bit_length() - 1


@proves(
    "no burst crosses a multiple of 4 KiB",
    _memory,
    Mutant("a run goes on in the next 4 KiB", RunGatherer,
           "whole.eq((run.more == self.burst - 1) | (next_in_page == 0))", "whole.eq(run.more == self.burst - 1)"),
    Mutant("the borders are 8 KiB apart", page_bits, "PAGE //", "2 * PAGE //"),
    name="pages",
    of="AxiMemory",
    lanes=(1, 2, 16),
    reach=14,
)  # fmt: skip
def _(m, memory):
    for name in ("aw", "ar"):
        valid, address, more = (getattr(memory.m_axi, f"{name}{each}") for each in ("valid", "addr", "len"))
        m.always(~valid | (address[:12] + ((more + 1) << _octets(memory.lanes)) <= PAGE))
    m.states(run_gatherer_states(memory["reads"]), run_gatherer_states(memory["writes"]["gatherer"]))


class _Order:
    """Words that enter in order, and leave several at once: any one of them is watched."""

    def __init__(self, m, enters, leaves, words, payload, room):
        payload = Value.cast(payload)
        self.level = Signal(range(room + 1))  # words that have entered, and not left
        self.watched, self.before, self.word = Signal(), Signal(range(room + 1)), Signal(len(payload))
        self.left = Mux(leaves, words, 0)
        self.first = self.watched & (self.before < words)  # the word that is watched is one of those that leave next
        m.d.sync += self.level.eq(self.level + enters - self.left)
        with m.If(self.watched):
            m.d.sync += self.before.eq(self.before - self.left)
            with m.If(leaves & self.first):
                m.d.sync += self.watched.eq(0)
        with m.Elif(enters & AnySeq(1)):
            m.d.sync += [self.watched.eq(1), self.before.eq(self.level - self.left), self.word.eq(payload)]
        m.states(~self.watched | (self.before < self.level))


def _addresses_leave_once(m, order, gatherer, named, valid, address, words):
    """State that bursts with these addresses have the words of ``order``, and where the gatherer has them.

    ``named``: the run at its output has left as an address.
    """
    run, given = _run(gatherer), gatherer.o.payload
    bits = len(order.word)

    def at(start, number):
        return (start + number)[:bits] == order.word

    m.always(~valid | (words <= order.level))
    m.always(~(valid & order.first) | at(address, order.before))
    in_output = Mux(gatherer.o.valid & ~named, given.more + 1, 0)
    m.states(
        run_gatherer_states(gatherer),
        order.level == in_output + Mux(gatherer.open, run.more + 1, 0),
        ~(order.watched & (order.before < in_output)) | at(given.address, order.before),
        ~(order.watched & (order.before >= in_output)) | at(run.address, order.before - in_output),
    )


@proves(
    "the beats of bursts of reads are the words that were asked for, once and in order; none is read besides",
    _memory,
    Mutant("a word that does not follow joins the run", RunGatherer, "(self.i.payload == Cat(next_in_page, "
           "run.address[low:]))", "(self.i.payload[:low] == next_in_page)"),
    Mutant("a run has a word too many", RunGatherer, "self.burst - 1) |", "self.burst) |"),
    Mutant("the run begins with its last word", RunGatherer, "with m.If(~follows):", "with m.If(1):"),
    Mutant("a word is taken while the run before waits", RunGatherer, "~self.open | follows | free", "1"),
    Mutant("the word that ends a run is lost", RunGatherer, "takes | (self.open & ~leaves)",
           "(takes | self.open) & ~leaves"),
    Mutant("a beat is read behind the run", AxiMemory, "axi.arlen.eq(reads.o.payload.more)",
           "axi.arlen.eq(reads.o.payload.more + 1)"),
    Mutant("a run is read twice", RunGatherer, "leaves | (self.o.valid & ~self.o.ready)", "leaves | self.o.valid"),
    name="reads",
    of="AxiMemory",
    lanes=(1, 4),
)  # fmt: skip
def _(m, memory):
    read, valid = memory.port.read, memory.m_axi.arvalid
    words = memory.m_axi.arlen + 1
    order = _Order(m, read.valid & read.ready, valid & memory.m_axi.arready, words, read.payload, 2 * _BURST)
    address = memory.m_axi.araddr[_octets(memory.lanes) :]
    _addresses_leave_once(m, order, memory["reads"], 0, valid, address, words)


@proves(
    "the beats of bursts of writes are the words that were given with octets to write, once, in order and unchanged, "
    "and wlast is that of the burst; nothing is written besides",
    _memory,
    Mutant("a word without octets is written", WriteGatherer, "write.valid & beat.mask.any() & ~entered",
           "write.valid & ~entered"),
    Mutant("the last word is written twice", WriteGatherer, "beat.mask.any() & ~entered)", "beat.mask.any())"),
    Mutant("a word enters the queue and no run", WriteGatherer, "queue.i.valid.eq(offered & gatherer.i.ready)",
           "queue.i.valid.eq(offered)"),
    Mutant("a burst ends with its first word", WriteGatherer, "last.eq(number == run.payload.more)",
           "last.eq(number == 0)"),
    Mutant("the octets of a word are all written", WriteGatherer, "self.words.payload.mask.eq(queue.o.payload.mask)",
           "self.words.payload.mask.eq(-1)"),
    Mutant("a run is named twice", WriteGatherer, "named.eq(names & ~run.ready)", "named.eq(0)"),
    Mutant("the words of a run leave twice", WriteGatherer, "emptied.eq(empties & ~run.ready)", "emptied.eq(0)"),
    name="writes",
    of="AxiMemory",
    lanes=(1, 4),
)  # fmt: skip
def _(m, memory):
    answers_to_bursts(m, memory)
    write, beat = memory.port.write, memory.port.write.payload
    writes = memory["writes"]
    gatherer, queue = writes["gatherer"], writes["queue"]

    # A word with octets is taken once: in the cycle of its transfer or, with ``last``, before that.
    enters = queue.i.valid & queue.i.ready
    taken = Signal()
    m.d.sync += taken.eq((taken | enters) & write.valid & ~write.ready)
    m.given(~m.last(write.valid & ~write.ready) | ~write.valid | (Value.cast(beat) == m.last(beat)))
    m.always(~enters | (write.valid & beat.mask.any() & ~taken))
    m.always(~(write.valid & write.ready) | ((enters | taken) == beat.mask.any()))
    m.states(taken == writes["entered"], ~taken | (m.last(beat.last) & m.last(beat.mask.any())))

    # Its address is one of those of a burst.
    named, length = memory.m_axi.awvalid & memory.m_axi.awready, memory.m_axi.awlen
    addresses = _Order(m, enters, named, length + 1, beat.address, 3 * _BURST)
    address = memory.m_axi.awaddr[_octets(memory.lanes) :]
    _addresses_leave_once(m, addresses, gatherer, writes["named"], memory.m_axi.awvalid, address, length + 1)

    # Its octets and its mask leave on another channel; so do those of each burst, before those of the next one.
    moves, last = memory.m_axi.wvalid & memory.m_axi.wready, memory.m_axi.wlast
    words = _Order(m, enters, moves, 1, Cat(beat.data, beat.mask), 2 * _BURST)
    m.always(~memory.m_axi.wvalid | (words.level != 0))
    m.always(~(memory.m_axi.wvalid & words.first) | (Cat(memory.m_axi.wdata, memory.m_axi.wstrb) == words.word))
    m.states(words.level == fifo_level(queue))
    stored = queue.stored(m, "memory", queue["head"] + words.before)
    m.states(~words.watched | (stored == words.word))

    begun, ended, its_length = Signal(), Signal(), Signal(8)  # a burst whose address, or whose last beat, has left
    number = Signal(range(_BURST))  # of a beat in its burst
    leaves = (begun | named) & (ended | (moves & last))
    m.d.sync += [begun.eq((begun | named) & ~leaves), ended.eq((ended | (moves & last)) & ~leaves)]
    with m.If(named):
        m.d.sync += its_length.eq(length)
    with m.If(moves):
        m.d.sync += number.eq(Mux(last, 0, number + 1))
    m.always(~memory.m_axi.wvalid | ((begun | memory.m_axi.awvalid) & ~ended))
    m.always(~memory.m_axi.wvalid | (last == (number == Mux(begun, its_length, length))))
    m.states(begun == writes["named"], ended == writes["emptied"], number == writes["number"])
    m.states(~begun | (its_length == gatherer.o.payload.more))


@proves(
    "a write with `last` is transferred when the bus has answered all bursts of writes before it, and its own; never "
    "are more of them unanswered than can be counted; an error of one is reported with the answer",
    _memory,
    Mutant("the run that is being gathered is forgotten", WriteGatherer, "~gatherer.open & ~gatherer.o.valid &",
           "~gatherer.o.valid &"),
    Mutant("the run that leaves is forgotten", WriteGatherer, "~gatherer.open & ~gatherer.o.valid &",
           "~gatherer.open &"),
    Mutant("the last write does not wait for its own run", WriteGatherer, "(entered | ~beat.mask.any()) & done",
           "(offered | ~beat.mask.any()) & done"),
    Mutant("a burst that leaves as one is answered is not counted", AxiMemory, "count + writes.leaves -",
           "count + (writes.leaves & ~axi.bvalid) -"),
    Mutant("the count overflows", AxiMemory, "begins.eq(~count.all())", "begins.eq(1)"),
    Mutant("a write is reported as done when it is sent", AxiMemory, "settled.eq(count == 0)", "settled.eq(1)"),
    Mutant("one kind of error is not reported", AxiMemory, "(axi.bresp != 0)", "axi.bresp[0]"),
    name="responses",
    of="AxiMemory",
    lanes=(1, 4),
)  # fmt: skip
def _(m, memory):
    unanswered = answers_to_bursts(m, memory)
    write, beat = memory.port.write, memory.port.write.payload
    queue = memory["writes"]["queue"]
    enters, moves = queue.i.valid & queue.i.ready, memory.m_axi.wvalid & memory.m_axi.wready
    level = Signal(range(2 * _BURST + 1))  # words that have been taken, and not sent
    m.d.sync += level.eq(level + enters - moves)
    m.states(level == fifo_level(queue))
    ends = write.valid & write.ready & beat.last
    m.always(~ends | ((level == 0) & (unanswered == 0) & ~enters))
    m.always(unanswered < 1 << memory.outstanding)
    m.always(memory.port.write_fault == (memory.m_axi.bvalid & (memory.m_axi.bresp != 0)), memory.m_axi.bready)
