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
        self._wide = lanes > AT_ONCE
        self._bits = (lanes - 1).bit_length()
        self._found = {name: shape for name, shape in Found(lanes).members.items() if name != "lane"}
        # Of wide beats, only what the steps need; the rest follows from the length of the FPDU that is chosen.
        self._kept = {name: shape for name, shape in self._found.items() if not self._wide or name == "length"}
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "o": Out(stream.Signature(Found(lanes))),
            "maximum": In(16),
            "spare": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        passes = Signal()  # the beat is no longer needed
        waiting = self._wait(m)
        valid, full, entries = self._read(m, waiting, passes)
        stopped = Signal()
        chosen = self._step(m, valid, full, entries, passes, stopped)
        facts = self._about(chosen.payload.length)
        m.d.comb += [
            self.o.valid.eq(chosen.valid & ~stopped),
            chosen.ready.eq(self.o.ready),
            self.o.payload.lane.eq(chosen.payload.lane),
            *(self.o.payload[name].eq(chosen.payload[name] if name in self._kept else facts[name])
              for name in self._found),
        ]  # fmt: skip
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += stopped.eq(self.o.payload.too_long)
        return m

    def _wait(self, m):
        """Queue, of each beat, its lanes as if each were the first lane of an FPDU. Return the output of the queue."""
        lanes, bits = self.lanes, self._bits
        lengths = data.StructLayout({
            "count": range(lanes + 1),
            "fields": data.ArrayLayout(16, lanes),  # ULPDU_Length, if an FPDU begins in the lane
            "stays": lanes,  # if so, the next FPDU begins in this beat
        })  # fmt: skip
        # The clock enables of a wide ReadyFifo are too many for ``passes``, which comes late.
        m.submodules.waiting = waiting = (Fifo if self._wide else ReadyFifo)(lengths, self.DEPTH)
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
        return waiting.o

    def _about(self, length):
        """The fields of :class:`.Found` that follow from ULPDU_Length."""
        width, bits = 4 * self.lanes, self._bits
        short = length[bits + 2:] == 0
        return {
            "length": length,
            "too_long": length > self.maximum,
            "final": (length + (2 + 3))[2:],
            # Without carry chains: shorter than a beat; ``single`` by at least 6 octets.
            "single": short & ~length[:bits + 2].matches(*range(max(0, width - 5), width)),
            "brief": short | (length == width),
        }

    def _read(self, m, waiting, passes):
        """Register for each lane, if it is the first one of an FPDU, where the next FPDU begins.

        Return whether a beat is present, whether it is complete, and the entries of its lanes.
        """
        lanes, bits = self.lanes, self._bits
        entry = data.StructLayout({
            "came": 1,  # the lane has arrived
            "more": 1,  # and the next FPDU begins in this beat
            "lane": range(lanes),  # in this lane
            "skips": signed(16 - bits),  # beats between this one and that of the next FPDU, less 1
            **self._kept,
        })
        # A beat is present: a copy for each 2 lanes of a wide beat, because a late clock enable cannot reach all of it.
        present = [Signal(name=f"present_{n}") for n in range(lanes // 2 if self._wide else 1)]
        full = Signal()
        entries = Signal(data.ArrayLayout(entry, lanes), reset_less=True)
        beat = waiting.payload
        m.d.comb += waiting.ready.eq(~present[0] | passes)
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
                *(read[n][name].eq(fact) for name, fact in self._about(length).items() if name in self._kept),
            ]
        with m.If(waiting.ready):
            m.d.sync += full.eq(beat.count == lanes)
        size = lanes // len(present)
        for at, there in enumerate(present):
            with m.If(~there | passes):
                m.d.sync += [
                    there.eq(waiting.valid), *(entries[n].eq(read[n]) for n in range(size * at, size * (at + 1))),
                ]  # fmt: skip
        return present[0], full, entries

    def _step(self, m, valid, full, entries, passes, stopped):
        """Step from one FPDU to the next. Return a stream of the entries that are chosen, each with its lane."""
        lanes, wide = self.lanes, self._wide
        lane = Signal(range(lanes))  # the lane in which the next FPDU begins
        skips = Signal(signed(16 - self._bits), init=-1)  # beats before that lane's beat, less 1; negative: this beat
        rests = Signal()  # no further FPDU begins in this beat, which is incomplete and will be repeated
        here = Signal(entries.shape().elem_shape)
        lane_bits = Signal(lanes, init=1)  # a bit for each lane, of which that one is set
        # What the next cycle needs first of ``here``. Of a wide beat, ``lane_bits`` choose it, as a sum of products.
        came = Signal()
        more = Signal()
        skipping = skips >= 0
        m.submodules.chosen = chosen = (Stage if wide else Through)(
            data.StructLayout({"lane": range(lanes), **self._kept})
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
            *(chosen.i.payload[name].eq(here[name]) for name in self._kept),
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
        return chosen.o
