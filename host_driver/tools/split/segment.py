"""A segment of a data path: blocks in a row, with ports between them so that the host can do the other stages."""

# mypy: ignore-errors

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import AlignedBeat, CheckedUlpdu, StreamBeat
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.stream import Buffer, Fifo, Stage
from open_rnic.rtl.mpa.rx.delineator import Delineator
from open_rnic.rtl.mpa.rx.fpdu_checker import ROOM, FpduChecker
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.rx.markers import ChunkPacker
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.mpa.tx.framer import FpduFramer
from open_rnic.rtl.mpa.tx.markers import MarkerInserter

__all__ = ["Segment", "receive", "transmit"]


class Segment(wiring.Component):
    """Blocks in a row, of which those from number ``first`` to number ``last`` are active.

    Beats enter at the input port of block ``first`` and leave at the output port of block ``last``, through a
    :class:`Buffer` that adds 1 cycle of latency. Between these two, beats go from block to block. A beat at a port has
    the same fields as inside a data path, including the side information of the block before, so that no block depends
    on which blocks are next to it.

    Members
    -------
    first, last : In(range(len(blocks)))
        Numbers of the first and the last active block. Must not change while beats are in the segment.
    <name of each block> : Out(signature of the block)
        All ports of the block.
    """

    def __init__(self, **blocks):
        self.blocks = blocks
        super().__init__({
            "first": In(range(len(blocks))),
            "last": In(range(len(blocks))),
            **{name: Out(block.signature) for name, block in blocks.items()},
        })

    def elaborate(self, platform):  # noqa: D102
        m = Module()
        onward = None  # the stream from the block before to this block
        for number, (name, block) in enumerate(self.blocks.items()):
            m.submodules[name] = block
            port = getattr(self, name)
            expose(m, block, port, (each for each in block.signature.members if each not in ("i", "o")))
            begins, ends = self.first == number, self.last == number
            m.d.comb += [
                block.i.payload.eq(port.i.payload),
                block.i.valid.eq(port.i.valid & begins),
                port.i.ready.eq(block.i.ready & begins),
            ]
            if onward is not None:
                with m.If(~begins):
                    m.d.comb += [block.i.payload.eq(onward.payload), block.i.valid.eq(onward.valid)]
                m.d.comb += onward.ready.eq(block.i.ready)

            given = Buffer(block.o.payload.shape())
            m.submodules[f"{name}_given"] = given
            wiring.connect(m, given.o, wiring.flipped(port.o))
            onward = block.o.signature.create(path=[name, "onward"])
            m.d.comb += [
                *(to.payload.eq(block.o.payload) for to in (given.i, onward)),
                given.i.valid.eq(block.o.valid & ends),
                onward.valid.eq(block.o.valid & ~ends),
                block.o.ready.eq(Mux(ends, given.i.ready, onward.ready)),
            ]
        return m


class _Delineated(wiring.Component):
    """A :class:`.Delineator` with a queue that turns its output into a stream. Latency: 7 cycles."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(StreamBeat(lanes))),
            "o": Out(stream.Signature(AlignedBeat(lanes))),
            "maximum": In(16),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.delineator = delineator = Delineator(self.lanes)
        m.submodules.queue = queue = Fifo(AlignedBeat(self.lanes), 8, spare=ROOM)
        wiring.connect(m, wiring.flipped(self.i), delineator.i)
        wiring.connect(m, queue.o, wiring.flipped(self.o))
        m.d.comb += [
            delineator.maximum.eq(self.maximum),
            queue.i.valid.eq(delineator.o.valid),
            queue.i.payload.eq(delineator.o.payload),
        ]
        m.d.sync += delineator.o.room.eq(queue.spare)
        return m


class _Checked(wiring.Component):
    """A :class:`.FpduChecker` with a stream as its input, which is ready if the checker has room. Adds 2 cycles."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "i": In(stream.Signature(AlignedBeat(lanes))),
            "o": Out(stream.Signature(CheckedUlpdu(lanes))),
            "enable": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.checker = checker = FpduChecker(self.lanes)
        wiring.connect(m, checker.o, wiring.flipped(self.o))
        taken = Signal()
        beat = Signal.like(self.i.payload)
        m.d.comb += [checker.enable.eq(self.enable), self.i.ready.eq(checker.i.room)]
        m.d.sync += [
            taken.eq(self.i.valid & self.i.ready),
            beat.eq(self.i.payload),
            checker.i.valid.eq(taken),
            checker.i.payload.eq(beat),
        ]
        return m


def transmit(lanes: int) -> Segment:
    """Return the transmit blocks, from ULPDUs to FPDUs, as in :class:`.TxDatapath`."""
    inserter = MarkerInserter(lanes)
    return Segment(
        fence=Fence(lanes),
        framer=FpduFramer(lanes),
        inserter=inserter,
        marked=Stage(inserter.o.payload.shape()),
        appender=crc_appender(lanes),
    )


def receive(lanes: int) -> Segment:
    """Return the receive blocks, from the MPA stream to ULPDUs, as in :class:`.RxDatapath`.

    At 1 lane one block does all but the RTR. At other widths the latency is 3 cycles more than in the data path.
    """
    if lanes == 1:
        return Segment(receiver=FpduReceiver(1), detector=RtrDetector(1))
    return Segment(
        packer=ChunkPacker(lanes),
        delineator=_Delineated(lanes),
        checker=_Checked(lanes),
        detector=RtrDetector(lanes),
    )
