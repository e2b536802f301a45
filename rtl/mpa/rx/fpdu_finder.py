"""Finds the beginnings of FPDUs by ULPDU_Length (RFC 5044 §6)."""

from amaranth.hdl import Cat, Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Found, StreamBeat
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.stream import Fifo, ReadyFifo, Stage, Through, swap_octets

__all__ = ["FpduFinder"]

_OVERHEAD = 2 + 3 + 4  # octets: ULPDU_Length, the most of PAD, CRC


class FpduFinder(wiring.Component):
    """Finds the beginnings of FPDUs, without waiting for their ends.

    The block steps through the stream from one ULPDU_Length to the next. For each lane it computes in advance where an
    FPDU that begins there would end; a step only selects one of these results.

    After a ULPDU_Length over the maximum, no later FPDU can be found: the block discards its input.

    Latency: 2 cycles, 3 cycles above 4 lanes. Throughput: in each cycle one FPDU, or one beat in which no FPDU begins.
    Above 4 lanes, an incomplete beat of the stream takes a cycle more, and so does each FPDU that begins in it.

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
        wide = lanes > AT_ONCE

        lengths = data.StructLayout({
            "count": range(lanes + 1),
            "fields": data.ArrayLayout(16, lanes),  # ULPDU_Length, if an FPDU begins in the lane
            "stays": lanes,  # if so, the next FPDU begins in this beat
        })  # fmt: skip
        # The clock enables of a wide ReadyFifo are too many for ``passes``, which comes late.
        m.submodules.waiting = waiting = (Fifo if wide else ReadyFifo)(lengths, self.DEPTH)
        m.d.comb += [
            waiting.i.valid.eq(self.i.valid),
            self.i.ready.eq(waiting.i.ready),
            self.spare.eq(waiting.spare),
            waiting.i.payload.count.eq(self.i.payload.count),
        ]
        for n in range(lanes):
            length = Signal(16, name=f"length_{n}")
            short = length[:bits + 2].matches(*range(4 * (lanes - n) - _OVERHEAD))
            m.d.comb += [
                length.eq(swap_octets(self.i.payload.data.word_select(n, 32)[:16])),
                waiting.i.payload.fields[n].eq(length),
                waiting.i.payload.stays[n].eq((length[bits + 2:] == 0) & short),
            ]

        # First, read each lane as if it were the first lane of an FPDU.
        # Of wide beats, only what the steps need; the rest follows from the length of the FPDU that is chosen.
        found = {name: shape for name, shape in Found(lanes).members.items() if name != "lane"}
        kept = {name: shape for name, shape in found.items() if not wide or name == "length"}
        entry = data.StructLayout({
            "came": 1,  # the lane has arrived
            "more": 1,  # and the next FPDU begins in this beat
            "lane": range(lanes),  # in this lane
            "skips": signed(16 - bits),  # beats between this one and that of the next FPDU, less 1
            **kept,
        })

        def about(length):
            short = length[bits + 2:] == 0
            return {
                "length": length,
                "too_long": length > self.maximum,
                "final": (length + (2 + 3))[2:],
                # Without carry chains: shorter than a beat; ``single`` by at least 6 octets.
                "single": short & ~length[:bits + 2].matches(*range(max(0, 4 * lanes - 5), 4 * lanes)),
                "brief": short | (length == 4 * lanes),
            }

        # A beat is present: a copy for each 2 lanes of a wide beat, because a late clock enable cannot reach all of it.
        present = [Signal(name=f"present_{n}") for n in range(lanes // 2 if wide else 1)]
        valid = present[0]
        full = Signal()  # the beat is complete
        entries = Signal(data.ArrayLayout(entry, lanes), reset_less=True)
        passes = Signal()  # the beat is no longer needed
        beat = waiting.o.payload
        m.d.comb += waiting.o.ready.eq(~valid | passes)
        read = Signal.like(entries)
        for n in range(lanes):
            length = beat.fields[n]
            beyond = Signal(signed(18), name=f"beyond_{n}")
            m.d.comb += [
                beyond.eq(length + (4 * n + _OVERHEAD - 8 * lanes)),  # in octets from two beats on
                read[n].came.eq(n < beat.count),
                read[n].more.eq(read[n].came & beat.stays[n]),
                read[n].lane.eq(beyond[2:2 + bits]),
                read[n].skips.eq(beyond[2 + bits:].as_signed()),
                *(read[n][name].eq(fact) for name, fact in about(length).items() if name in kept),
            ]
        with m.If(waiting.o.ready):
            m.d.sync += full.eq(beat.count == lanes)
        size = lanes // len(present)
        for at, there in enumerate(present):
            with m.If(~there | passes):
                m.d.sync += [
                    there.eq(waiting.o.valid), *(entries[n].eq(read[n]) for n in range(size * at, size * (at + 1))),
                ]  # fmt: skip

        # Then step from one FPDU to the next.
        lane = Signal(range(lanes))  # the lane in which the next FPDU begins
        skips = Signal(signed(16 - bits), init=-1)  # beats before that lane's beat, less 1; negative: this beat
        rests = Signal()  # no further FPDU begins in this beat, which is incomplete and will be repeated
        stopped = Signal()
        here = Signal(entry)
        lane_bits = Signal(lanes, init=1)  # a bit for each lane, of which that one is set
        # What the next cycle needs first of ``here``. Of a wide beat, ``lane_bits`` choose it, as a sum of products.
        came = Signal()
        more = Signal()
        skipping = skips >= 0
        m.submodules.chosen = chosen = (Stage if wide else Through)(
            data.StructLayout({"lane": range(lanes), **kept})
        )
        steps = Signal()
        if wide:
            # In a complete beat all lanes have arrived. In an incomplete one, the lane is looked at for a cycle.
            settled = Signal()  # neither the beat nor the lane has just changed
            reached = Signal()
            m.d.sync += [
                settled.eq(valid & ~passes & ~steps),
                reached.eq((Cat(one.came for one in entries) & lane_bits).any()),
            ]
            has_come = full | (settled & reached)
            goes_on = chosen.i.ready & (full | settled)
        else:
            has_come = here.came
            goes_on = chosen.i.ready
        m.d.comb += [
            here.eq(entries[lane]),
            came.eq(has_come),
            more.eq((Cat(one.more for one in entries) & lane_bits).any() if wide else here.more),
            chosen.i.valid.eq(valid & came & ~(skipping | rests | stopped)),
            chosen.i.payload.lane.eq(lane),
            *(chosen.i.payload[name].eq(here[name]) for name in kept),
            passes.eq(skipping | rests | stopped | (goes_on & ~more)),
            steps.eq(chosen.i.valid & chosen.i.ready),
        ]
        with m.If(steps):
            m.d.sync += [
                lane.eq(here.lane),
                lane_bits.eq(Cat(here.lane == n for n in range(lanes))),
                skips.eq(here.skips),
                rests.eq(~here.more & ~full),
            ]
        with m.Elif(valid & full):
            with m.If(rests):
                m.d.sync += rests.eq(0)
            with m.Elif(skipping):
                m.d.sync += skips.eq(skips - 1)

        one = chosen.o.payload
        facts = about(one.length)
        m.d.comb += [
            self.o.valid.eq(chosen.o.valid & ~stopped),
            chosen.o.ready.eq(self.o.ready),
            self.o.payload.lane.eq(one.lane),
            *(self.o.payload[name].eq(one[name] if name in kept else facts[name]) for name in found),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += stopped.eq(self.o.payload.too_long)
        return m
