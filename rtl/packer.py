"""Closes the gaps that are left between lanes when some are put in or taken out."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from .stream import Packet, check_lanes

__all__ = ["LanePacker", "Ragged", "rotate_lanes"]


def rotate_lanes(m: Module, value: Value, by: Value, *, lane: int = 32) -> Value:
    """``value`` with lane ``n`` moved to lane ``n + by``, round the end; the number of lanes is a power of 2."""
    # A signal for each step: of a nested expression each use would be a rotator of its own.
    for i in range((len(value) // lane).bit_length() - 1):
        before, value = value, Signal(len(value), name=f"turned_{lane << i}")
        step = lane << i
        m.d.comb += value.eq(Mux(by[i], Cat(before[-step:], before[:-step]), before))
    return value


class Ragged(data.StructLayout):
    """A beat of any number of lanes: ``count`` of them from lane 0 on, at most one more than the stream's width."""

    def __init__(self, lanes: int, **extra):
        super().__init__({"data": 32 * (lanes + 1), "count": range(lanes + 2), "last": 1, **extra})


class LanePacker(wiring.Component):
    """Packs beats of any number of lanes into full ones.

    With ``looks_ahead`` a full beat is kept until it is known whether it is the last one, so a last beat of no lanes
    does no harm; without, all beats must have some. One beat a cycle goes out as long as enough lanes come in.

    Members
    -------
    i : :class:`Ragged` beats; with ``looks_ahead`` a packet of no lanes is one too
    o : packets; ``extra`` is that of the packet's last beat
    """

    def __init__(self, lanes: int, *, looks_ahead: bool, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        self.looks_ahead = looks_ahead
        self.extra = extra
        super().__init__({
            "i": In(stream.Signature(Ragged(lanes, **extra))),
            "o": Out(stream.Signature(Packet(lanes, **extra))),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        i, o = self.i.payload, self.o.payload

        kept = [Signal(32, name=f"kept_{n}", reset_less=True) for n in range(lanes)]
        count = Signal(range(lanes + 1))
        ended = Signal()  # what is kept ends a packet
        extra = {name: Signal(shape, name=name, reset_less=True) for name, shape in self.extra.items()}

        # Lanes from the input join those kept. What does not fit has gone round the end, into the next beat.
        before = Mux(ended, 0, count)
        shift = before[:(lanes - 1).bit_length()]
        turned = rotate_lanes(m, i.data[:32 * lanes], shift)
        total = Signal(range(2 * lanes + 2))
        m.d.comb += total.eq(before + i.count)

        joined = [Signal(32, name=f"joined_{n}") for n in range(lanes)]
        m.d.comb += [
            word.eq(Mux(n < before, kept[n], turned.word_select(n, 32))) for n, word in enumerate(joined)
        ]
        takes = Signal()  # a beat of the input is used
        gives = Signal()  # a beat of the output is offered
        overfull = Signal()  # more than the kept lanes can take, even after a beat has left
        whole = Signal()  # all there is makes a beat
        m.d.comb += [
            overfull.eq(total > 2 * lanes),
            whole.eq(0 if self.looks_ahead else ~ended & ((total == lanes) | (i.last & (total < lanes)))),
            gives.eq(ended | (self.i.valid & (whole | (total > lanes)))),
            self.o.valid.eq(gives),
            # What has ended leaves as it is. The packet behind moves up, unless it fills a beat at once.
            takes.eq(self.i.valid & Mux(ended, (total <= lanes) & self.o.ready,
                                        Mux(gives, self.o.ready & ~overfull, 1))),
            self.i.ready.eq(takes),
            o.data.eq(Cat(Mux(ended, kept[n], joined[n]) for n in range(lanes))),
            o.octets.eq(Cat(Const(0, 2), Mux(whole, total, count))),
            o.last.eq(ended | (whole & i.last)),
            *(o[name].eq(Mux(whole, i[name], signal)) for name, signal in extra.items()),
        ]

        with m.If(takes):
            m.d.sync += [ended.eq(i.last & ~whole), *(signal.eq(i[name]) for name, signal in extra.items())]
            with m.If(gives & ~ended):
                m.d.sync += count.eq(Mux(whole, 0, total - lanes))
                for n in range(lanes):
                    m.d.sync += kept[n].eq(Mux(n == before, i.data[-32:], turned.word_select(n, 32)))
            with m.Else():
                m.d.sync += count.eq(total)
                for n in range(lanes):
                    m.d.sync += kept[n].eq(joined[n])
        with m.Elif(gives & self.o.ready):
            m.d.sync += [count.eq(0), ended.eq(0)]
        return m
