"""Streams keep valid and payload until taken, if their inputs do (the transfer rules of rtl/stream.py)."""

from amaranth.hdl import Const, Signal

from cocotb_tests.proofs.harness import Mutant, proves
from cocotb_tests.proofs.rules import buffer_states, keeps
from rtl.aligner import FpduAligner
from rtl.checker import FpduChecker
from rtl.chunks import ChunkPacker
from rtl.crc import CrcAppender
from rtl.delineator import Delineator
from rtl.events import EventQueue
from rtl.fence import Fence
from rtl.finder import FpduFinder
from rtl.framer import FpduFramer
from rtl.markers import MarkerInserter
from rtl.rtr import RtrGenerator
from rtl.store import StoreAndForward
from rtl.stream import Buffer, Fifo, Packet, Stage
from rtl.stream_mode import RxModeSwitch, TxModeSwitch


def _keeps(given, fixed, states):
    def check(m, block):
        m.given(given(m, block))
        m.fixed(*(getattr(block, name) for name in fixed))
        m.states(states(block))
        keeps(m, block)

    return check


def _tx_states(switch):
    weighs = switch.within("Compare") | switch.within("Weigh")
    return (~(weighs & switch["there"]) & ~switch.within("Pass")) | switch.i.valid


def _aligned(m, checker):
    """FPDUs as FpduAligner gives them: the ULPDU first, to its end, then what else there is."""
    i, ended = checker.i.payload, Signal()
    with m.If(checker.i.valid & checker.i.ready):
        m.d.sync += ended.eq(~i.last & (ended | i.ends))
    return (i.gives != ended) & (i.gives | ~i.ends) & (~i.last | ended | i.ends)


def _block(
    make, of, file, old, new, *, given=lambda m, block: Const(1), fixed=(), states=lambda block: Const(1), **options
):
    """A block keeps its beats.

    ``given``: what its inputs keep to besides. ``fixed``: inputs that do not change. ``states``: those that the block
    can be in, where that matters.
    """
    proves(
        "a beat stays as it is until it is taken",
        make,
        Mutant("it does not", f"rtl.{file}", old, new),
        name=of,
        of=of,
        **options,
    )(_keeps(given, fixed, states))


_block(
    lambda lanes: Buffer(Packet(lanes)),
    "Buffer",
    "stream",
    "with m.If(~both & (takes == n)):",
    "with m.If(takes == n):",
    states=buffer_states,
)
_block(
    lambda lanes: Stage(Packet(lanes)),
    "Stage",
    "stream",
    "self.i.ready.eq(self.o.ready | ~self.o.valid)",
    "self.i.ready.eq(1)",
)
_block(
    lambda lanes: Fifo(Packet(lanes), 3),
    "Fifo",
    "stream",
    "with m.If(~self.o.valid | self.o.ready):",
    "with m.If(~self.o.valid | enters):",
)
_block(
    TxModeSwitch,
    "TxModeSwitch",
    "stream_mode",
    "with m.If(self.i.ready):\n                        m.d.sync += inside",
    "with m.If(1):\n                        m.d.sync += inside",
    states=_tx_states,
)
_block(
    RxModeSwitch,
    "RxModeSwitch",
    "stream_mode",
    "with m.If(self.stream.ready):\n",
    "with m.If(1):\n",
    states=lambda switch: ~switch.within("Pass") | switch["present"],
)
_block(RtrGenerator, "RtrGenerator", "rtr", "with m.Elif(self.o.ready):", "with m.Else():")
_block(
    Fence,
    "Fence",
    "fence",
    "wiring.connect(m, decided.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(decided.o.valid & ~state.failed), self.o.payload.eq(decided.o.payload), "
    "decided.o.ready.eq(self.o.ready)]; state = Signal(self.State)",
    states=lambda fence: buffer_states(fence["decided"]),
)
_block(
    FpduFramer,
    "FpduFramer",
    "framer",
    "with m.If(self.o.ready):\n                m.d.sync += [spilled",
    "with m.If(1):\n                m.d.sync += [spilled",
)
_block(
    MarkerInserter,
    "MarkerInserter",
    "markers",
    "with m.If(o.valid & o.ready):",
    "with m.If(o.valid):",
    states=lambda inserter: buffer_states(inserter["turned"]),
)
_block(CrcAppender, "CrcAppender", "crc", "with m.If(self.o.valid & self.o.ready):", "with m.If(self.o.valid):")
_block(ChunkPacker, "ChunkPacker", "chunks", "with m.If(room):", "with m.If(room | full):")
_block(FpduFinder, "FpduFinder", "finder", "(self.o.ready & ~here.stays)", "~here.stays")
_block(
    FpduAligner,
    "FpduAligner",
    "aligner",
    "with m.If(~self.o.valid | self.o.ready):",
    "with m.If(~self.o.valid | self.o.ready | valid):",
)
_block(
    Delineator,
    "Delineator",
    "aligner",
    "with m.If(~self.o.valid | self.o.ready):",
    "with m.If(~self.o.valid | self.o.ready | valid):",
)
_block(
    FpduChecker,
    "FpduChecker",
    "checker",
    "notes.o.ready.eq(crcs.o.valid & crcs.o.ready)",
    "notes.o.ready.eq(crcs.o.valid)",
    fixed=("enable",),
    given=_aligned,
    bounded=True,
    depth=14,
)
_block(
    lambda lanes: StoreAndForward(lanes, 128),
    "StoreAndForward",
    "store",
    "read.en.eq((fetched != kept) & (self.o.ready | ~self.o.valid))",
    "read.en.eq(fetched != kept)",
)
_block(
    lambda lanes: EventQueue(2, 3), "EventQueue", "events", "fifo.r_en.eq(self.o.ready)", "fifo.r_en.eq(1)", lanes=(1,)
)
