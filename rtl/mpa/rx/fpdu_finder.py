"""Finds the beginnings of FPDUs by ULPDU_Length (RFC 5044 §6)."""

from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Found, StreamBeat
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import ReadyFifo, swap_octets

__all__ = ["FpduFinder"]

_OVERHEAD = 2 + 3 + 4  # octets: ULPDU_Length, the most of PAD, CRC


class FpduFinder(wiring.Component):
    """Finds the beginnings of FPDUs, without waiting for their ends.

    The block steps through the stream from one ULPDU_Length to the next. For each lane it computes in advance where an
    FPDU that begins there would end; a step only selects one of these results.

    After a ULPDU_Length over the maximum, no later FPDU can be found: the block discards its input.

    Latency: 2 cycles. Throughput: in each cycle one FPDU, or one beat in which no FPDU begins.

    Members
    -------
    i : In, stream of :class:`.StreamBeat`
        The stream without markers.
    o : Out, stream of :class:`.Found`
        The FPDUs, in their order.
    maximum : In, 16 bits
        The largest ULPDU_Length. It does not change once octets have arrived.
    spare : Out, 1 bit
        The block has room for two beats or more.
    """

    DEPTH = 16  # beats that wait; a beat of 16 lanes can hold 8 FPDUs

    def __init__(self, lanes: int):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "o": Out(stream.Signature(Found(lanes))),
            "maximum": In(16),
            "spare": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        bits = (lanes - 1).bit_length()

        lengths = data.StructLayout({"count": range(lanes + 1), "fields": data.ArrayLayout(16, lanes)})
        m.submodules.waiting = waiting = ReadyFifo(lengths, self.DEPTH)
        m.d.comb += [
            waiting.i.valid.eq(self.i.valid),
            self.i.ready.eq(waiting.i.ready),
            self.spare.eq(waiting.spare),
            waiting.i.payload.count.eq(self.i.payload.count),
            *(waiting.i.payload.fields[n].eq(self.i.payload.data.word_select(n, 32)[:16]) for n in range(lanes)),
        ]

        # First, read each lane as if it were the first lane of an FPDU.
        found = Found(lanes).members
        entry = data.StructLayout({
            "came": 1,  # the lane has arrived
            "stays": 1,  # the next FPDU begins in this beat
            "lane": range(lanes),  # in this lane
            "skips": signed(16 - bits),  # beats between this one and that of the next FPDU, less 1
            **{name: shape for name, shape in found.items() if name != "lane"},
        })
        valid = Signal()  # a beat is present
        full = Signal()  # the beat is complete
        entries = Signal(data.ArrayLayout(entry, lanes), reset_less=True)
        passes = Signal()  # the beat is no longer needed
        beat = waiting.o.payload
        m.d.comb += waiting.o.ready.eq(~valid | passes)
        read = Signal.like(entries)
        for n in range(lanes):
            length = Signal(16, name=f"length_{n}")
            beyond = Signal(signed(18), name=f"beyond_{n}")
            short = length[bits + 2:] == 0
            m.d.comb += [
                length.eq(swap_octets(beat.fields[n])),
                beyond.eq(length + (4 * n + _OVERHEAD - 8 * lanes)),  # in octets from two beats on
                read[n].came.eq(n < beat.count),
                read[n].stays.eq(length < max(0, 4 * (lanes - n) - _OVERHEAD)),
                read[n].lane.eq(beyond[2:2 + bits]),
                read[n].skips.eq(beyond[2 + bits:].as_signed()),
                read[n].length.eq(length),
                read[n].too_long.eq(length > self.maximum),
                read[n].final.eq((length + (2 + 3))[2:]),
                # Without carry chains: shorter than a beat; ``single`` by at least 6 octets.
                read[n].single.eq(short & ~length[:bits + 2].matches(*range(max(0, 4 * lanes - 5), 4 * lanes))),
                read[n].brief.eq(short | (length == 4 * lanes)),
            ]
        with m.If(waiting.o.ready):
            m.d.sync += [valid.eq(waiting.o.valid), full.eq(beat.count == lanes), entries.eq(read)]

        # Then step from one FPDU to the next.
        lane = Signal(range(lanes))  # the lane in which the next FPDU begins
        skips = Signal(signed(16 - bits), init=-1)  # beats before that lane's beat, less 1; negative: this beat
        rests = Signal()  # no further FPDU begins in this beat, which is incomplete and will be repeated
        stopped = Signal()
        here = Signal(entry)
        skipping = skips >= 0
        m.d.comb += [
            here.eq(entries[lane]),
            self.o.valid.eq(valid & here.came & ~(skipping | rests | stopped)),
            self.o.payload.lane.eq(lane),
            *(self.o.payload[name].eq(here[name]) for name in found if name != "lane"),
            passes.eq(skipping | rests | stopped | ~here.came | (self.o.ready & ~here.stays)),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                lane.eq(here.lane),
                skips.eq(here.skips),
                rests.eq(~here.stays & ~full),
                stopped.eq(here.too_long),
            ]
        with m.Elif(valid & full):
            with m.If(rests):
                m.d.sync += rests.eq(0)
            with m.Elif(skipping):
                m.d.sync += skips.eq(skips - 1)
        return m
