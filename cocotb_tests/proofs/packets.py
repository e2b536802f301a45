"""Receive never holds up the MAC, and a packet that has been committed to a queue leaves it (rtl/net)."""

from amaranth.asserts import AnyConst, AnySeq
from amaranth.hdl import Mux, Signal, Value

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.net.net import Net
from open_rnic.rtl.net.packet_fifo import PacketFifo
from open_rnic.rtl.net.packet_slots import PacketSlots
from open_rnic.rtl.net.receiver import Receiver

_WORDS = 4


@proves(
    "receive takes a beat in every cycle, even if the TCP engine and the user of UDP take none",
    lambda: Net(udp_ports=(7,)),
    Mutant(
        "it takes a beat in every second cycle",
        Receiver,
        "self.frames.ready.eq(1)",
        "self.frames.ready.eq(~valid)",
    ),
    Mutant(
        "it waits for the TCP engine",
        Net,
        "self.counts.eq(receiver.counts),",
        "self.counts.eq(receiver.counts), self.rx_frames.ready.eq(self.tcp_rx.ready),",
    ),
    of="Net",
    reach=4,
)
def ready(m, net):
    m.always(net.rx_frames.ready)  # whatever ``tcp_rx.ready`` and ``udp_rx.ready`` are


def _whole(m, queue):
    """State for any word of any packet that it leaves the queue unchanged, behind all words committed before it."""
    i, o = queue.i, queue.o
    leaves = o.valid & o.ready
    m.given(i.low == i.high, ~(i.commit & i.low), i.word.data < 4, i.word.octets == 0)
    # What has been written at each place, and the word at one of them.
    written = Signal(_WORDS)
    last = Signal(_WORDS)
    place = Signal(range(_WORDS))
    word = Signal(36)
    m.d.comb += place.eq(AnyConst(range(_WORDS)))
    with m.If(i.low & i.fits):
        m.d.sync += [written.bit_select(i.place, 1).eq(1), last.bit_select(i.place, 1).eq(i.word.last)]
        with m.If(i.place == place):
            m.d.sync += word.eq(i.word)
    with m.If(i.commit):
        m.d.sync += written.eq(0)
    # All words of a packet have been written, and its last word has ``last``.
    for count in range(_WORDS):
        packet = written[:count].all() & (last[:count] == 1 << count >> 1)
        m.given(~(i.commit & (i.place == count)) | (packet & (count != 0)))
    level = Signal(range(64))
    watched = Signal()
    ahead = Signal(range(64))
    left = Signal(36)
    m.d.sync += level.eq(level + Mux(i.commit, i.place, 0) - leaves)
    with m.If(watched & leaves):
        m.d.sync += ahead.eq(ahead - 1)
        with m.If(ahead == 0):
            m.d.sync += watched.eq(0)
            m.always(Value.cast(o.payload) == left)
    with m.If(i.commit & (place < i.place) & ~watched & AnySeq(1)):
        m.d.sync += [watched.eq(1), ahead.eq(level - leaves + place), left.eq(word)]
    m.always(~o.valid | (level != 0))


for _make, _of, _text, _mutants in (
    (
        lambda: PacketFifo(_WORDS),
        PacketFifo,
        "4 words",
        (("a word is written without room", "self.i.fits.eq(~ahead[-1])", "self.i.fits.eq(1)"),),
    ),
    (
        lambda: PacketSlots(2, _WORDS),
        PacketSlots,
        "2 of 4 words",
        (
            ("a word is written without room", "self.i.fits.eq(~full.bit_select(written, 1))", "self.i.fits.eq(1)"),
            ("a word behind the packet leaves", "full.bit_select(fetched, 1) & ~ends", "full.bit_select(fetched, 1)"),
        ),
    ),
):
    proves(
        "each word of a committed packet leaves exactly once, unchanged and in order, and no other word does",
        _make,
        *(Mutant(what, _of, old, new) for what, old, new in _mutants),
        name=_of.__name__,
        of=f"{_of.__name__}, {_text}",
        bounded=True,
        depth=10,
        reach=10,
    )(_whole)
