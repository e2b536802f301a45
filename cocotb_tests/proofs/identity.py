"""The receive half recovers the ULPDUs that the transmit half has framed."""

from amaranth.asserts import AnyConst
from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.formats.layouts import CheckedUlpdu, Packet
from open_rnic.rtl.lib.stream import keep_octets
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender
from open_rnic.rtl.mpa.tx.framer import FpduFramer
from open_rnic.rtl.registers import MAX_ULPDU, Cause

_OCTETS = 5  # of the longest ULPDU: covers every PAD, and at 1 lane more than one beat
_CYCLES = 29  # enough for everything to arrive


class BackToBack(Component):
    """Framing, CRC field and the way back, without markers and with the CRC off, as in rtl/mpa/datapath.py."""

    def __init__(self, lanes):
        self.lanes = lanes
        super().__init__(
            {
                "i": In(stream.Signature(Packet(lanes, length=16, abort=1))),
                "o": Out(stream.Signature(CheckedUlpdu(lanes))),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        m.submodules.framer = framer = FpduFramer(lanes)
        m.submodules.appender = appender = crc_appender(lanes)
        m.submodules.receiver = receiver = FpduReceiver(lanes)
        for before, after in ((self.i, framer.i), (framer.o, appender.i)):
            m.d.comb += [
                after.valid.eq(before.valid),
                before.ready.eq(after.ready),
                *(
                    after.payload[name].eq(before.payload[name])
                    for name in after.payload.shape().members
                    if name in before.payload.shape().members
                ),
            ]
        connect(m, receiver.o, flipped(self.o))
        made, chunks = appender.o, receiver.i
        m.d.comb += [
            receiver.maximum.eq(MAX_ULPDU),
            # In the data path, RxModeSwitch sets the number of octets in every beat.
            chunks.valid.eq(made.valid),
            made.ready.eq(chunks.ready),
            *(chunks.payload[name].eq(made.payload[name]) for name in ("data", "last")),
            chunks.payload.octets.eq(Mux(made.payload.last, made.payload.octets, 4 * self.lanes)),
        ]
        return m


@proves(
    "receive recovers two ULPDUs of 0 to 5 octets from the output of the framer",
    BackToBack,
    Mutant(
        "the framer includes the octets of ULPDU_Length in it",
        FpduFramer,
        "swap_octets(padded.length)",
        "swap_octets((padded.length + 2)[:16])",
    ),
    Mutant(
        "the end of a ULPDU that spills into another beat is lost",
        FpduFramer,
        "counted.spills.eq(i.last & (octets > width - 2))",
        "counted.spills.eq(0)",
    ),
    name="identity",
    of="FpduFramer to FpduChecker, or to LaneReceiver",
    lanes=(1, 2),
    depth=_CYCLES,
    bounded=True,
)
def _(m, path):
    width = 4 * path.lanes
    i, o = path.i.payload, path.o.payload
    length = Array(AnyConst(range(_OCTETS + 1)) for _ in range(2))
    octets = Array(AnyConst(8 * 2 * width) for _ in range(2))
    m.given(*(each <= _OCTETS for each in length))

    def place(moves, last):
        """Return the number of the ULPDU, and the data, octets and last of its current beat."""
        ulpdu, beat = Signal(2), Signal(4)
        with m.If(moves):
            m.d.sync += [beat.eq(Mux(last, 0, beat + 1)), ulpdu.eq(ulpdu + last)]
        left = length[ulpdu[0]] - beat * width
        return ulpdu, octets[ulpdu[0]].word_select(beat, 8 * width), Mux(left > width, width, left), left <= width

    sent, data, count, last = place(path.i.valid & path.i.ready, i.last)
    m.d.comb += [
        path.i.valid.eq(~sent[1]),
        i.data.eq(data), i.octets.eq(count), i.last.eq(last), i.length.eq(length[sent[0]]), i.abort.eq(0),
        path.o.ready.eq(1),
    ]  # fmt: skip
    received, data, count, last = place(path.o.valid, o.last)
    with m.If(path.o.valid):
        m.always(~received[1], o.last == last, keep_octets(o.data ^ data, count) == 0)
        with m.If(last):
            m.always(o.octets == count, o.cause == Cause.NONE, o.value == length[received[0]])
    cycle = Signal(range(_CYCLES + 1))
    m.d.sync += cycle.eq(cycle + 1)
    m.always((cycle != _CYCLES - 1) | received[1])
