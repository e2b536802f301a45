"""Streams hold valid and payload until the transfer, if their inputs do (the transfer rules of rtl/lib/stream.py)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import stream
from amaranth.lib.wiring import Component, In, Out, connect, flipped

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import (
    answers_to_bursts,
    buffer_states,
    fifo_level,
    fifo_states,
    keeps,
    kept,
    late_fifo_states,
    ready_buffer_states,
    ready_fifo_states,
    run_gatherer_states,
    write_gatherer_states,
)
from open_rnic.rtl.formats.layouts import Packet, RxUlpdu, room_latency
from open_rnic.rtl.lib.conveyor import Conveyor
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.stream import Buffer, EarlyStage, Fifo, LateFifo, ReadyBuffer, ReadyFifo, Stage
from open_rnic.rtl.memory.native_memory import NativeMemory
from open_rnic.rtl.memory.ports import Split
from open_rnic.rtl.memory.wide_reads import WideReads
from open_rnic.rtl.memory.wide_writes import WideWrites
from open_rnic.rtl.mpa.counter_sums import CounterSums
from open_rnic.rtl.mpa.events import EventQueue
from open_rnic.rtl.mpa.length import LengthFifo
from open_rnic.rtl.mpa.rx.delineator import Delineator
from open_rnic.rtl.mpa.rx.fpdu_aligner import FpduAligner
from open_rnic.rtl.mpa.rx.fpdu_checker import FpduChecker
from open_rnic.rtl.mpa.rx.fpdu_finder import FpduFinder
from open_rnic.rtl.mpa.rx.fpdu_lane_receiver import LaneReceiver
from open_rnic.rtl.mpa.rx.markers import ChunkPacker
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward
from open_rnic.rtl.mpa.rx.train_aligner import TrainAligner
from open_rnic.rtl.mpa.shared_streams import SharedStreams
from open_rnic.rtl.mpa.stream_mode import in_turn
from open_rnic.rtl.mpa.stream_window import StreamWindow
from open_rnic.rtl.mpa.tx.crc_appender import CrcAppender
from open_rnic.rtl.mpa.tx.crc_lane_appender import LaneAppender
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.mpa.tx.framer import FpduFramer
from open_rnic.rtl.mpa.tx.markers import MarkerInserter
from open_rnic.rtl.mpa.tx.mode_switch import TxModeSwitch
from open_rnic.rtl.mpa.tx.rtr_generator import RtrGenerator
from open_rnic.rtl.net.delivery import DatagramDelivery, SegmentDelivery
from open_rnic.rtl.net.packet_fifo import PacketFifo
from open_rnic.rtl.net.packet_memory import OutputRegister
from open_rnic.rtl.net.packet_slots import PacketSlots
from open_rnic.rtl.net.receiver import Receiver
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.bursts import RunGatherer, WriteGatherer, page_bits
from open_rnic.rtl.rdma.completion_queue import CompletionQueue
from open_rnic.rtl.rdma.header_reader import HeaderReader
from open_rnic.rtl.rdma.layouts import Buffer as PostedBuffer
from open_rnic.rtl.rdma.memory import BlockMemory, MemoryHub
from open_rnic.rtl.rdma.memory_window import MemoryWindow
from open_rnic.rtl.rdma.realigner import Realigner
from open_rnic.rtl.rdma.row_queue import RowQueue
from open_rnic.rtl.rdma.sample_schedule import SampleSchedule
from open_rnic.rtl.rdma.sample_writer import SampleWriter
from open_rnic.rtl.rdma.signal_generator import SignalGenerator
from open_rnic.rtl.rdma.ulpdu_switch import UlpduSwitch
from open_rnic.rtl.rdma.wishbone_memory import INCREMENTING, WishboneMemory
from open_rnic.rtl.rdma.work_port import WorkPort
from open_rnic.rtl.registers import DirectionState
from open_rnic.rtl.tcp.ring import AheadReader
from open_rnic.rtl.tcp.ring_memory import WriteQueue


def _keeps(given, fixed, states):
    def check(m, block):
        m.given(given(m, block))
        m.fixed(*(getattr(block, name) for name in fixed))
        m.states(states(block))
        keeps(m, block)

    return check


def _tx_states(switch):
    within, i = switch.within, switch.i
    weighs = (within("Compare") | within("Weigh")) & switch["there"]
    knows = weighs | within("Pass") | (within("Look") & switch["came"])
    return ~knows | (i.valid & (switch["empty"] == (i.payload.last & (i.payload.octets == 0))))


def _rx_states(switch):
    present, sent, begun = (switch[name] for name in ("present_0", "sent", "begun"))
    within = switch.within
    return (~within("Pass") | present) & (~sent | within("Measure")) & (~begun | within("Mpa"))


def _block(
    make,
    fault_in,
    what,
    old,
    new,
    *,
    given=lambda m, block: Const(1),
    fixed=(),
    states=lambda block: Const(1),
    **options,
):
    """State that a block holds its beats.

    ``what`` describes the mutant, which has ``new`` instead of ``old`` in the class ``fault_in``. ``given`` is a
    further assumption about the inputs. ``fixed`` names inputs that do not change. ``states`` restricts the states, if
    needed.
    """
    proves(
        "a beat is held until it is transferred",
        make,
        Mutant(what, fault_in, old, new),
        name=fault_in.__name__,
        of=fault_in.__name__,
        **options,
    )(_keeps(given, fixed, states))


_block(
    lambda lanes: ReadyBuffer(Packet(lanes)),
    ReadyBuffer,
    "the register is filled while it is full",
    "free.eq(~self.o.valid | self.o.ready)",
    "free.eq(1)",
    states=ready_buffer_states,
)
_block(
    lambda lanes: Buffer(Packet(lanes)),
    Buffer,
    "a beat overwrites another one",
    "with m.If(~both & (takes == n)):",
    "with m.If(takes == n):",
    states=buffer_states,
)
_block(
    lambda lanes: Stage(Packet(lanes)),
    Stage,
    "a beat overwrites another one",
    "self.i.ready.eq(self.o.ready & ~stays)",
    "self.i.ready.eq(1)",
)
_block(
    lambda lanes: EarlyStage(Packet(lanes), twice="last"),
    EarlyStage,
    "a beat overwrites another one",
    "ready.eq(self.soon & ~stays_next)",
    "ready.eq(~stays_next)",
    given=lambda m, stage: stage.o.ready == m.last(stage.soon),
    states=lambda stage: stage.o.ready | ~stage["ready"],
)
_block(
    lambda lanes: Conveyor(Packet(lanes), Packet(lanes), twice="last", steps=2),
    Conveyor,
    "a beat from the steps withdraws an output beat",
    "wiring.connect(m, queue.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(queue.o.valid & ~self.given.valid), self.o.payload.eq(queue.o.payload), "
    "queue.o.ready.eq(self.o.ready)]",
    given=lambda m, conveyor: conveyor.begun.ready,
    states=lambda conveyor: fifo_states(conveyor["queue"]),
)
_block(
    lambda lanes: Fifo(Packet(lanes), 4),
    Fifo,
    "a beat leaves after one cycle",
    "leaves.eq(self.o.valid & self.o.ready)",
    "leaves.eq(self.o.valid)",
    states=fifo_states,
)
_block(
    lambda lanes: ReadyFifo(Packet(lanes), 4),
    ReadyFifo,
    "the register is filled while it is full",
    "free.eq(~self.o.valid | self.o.ready)",
    "free.eq(1)",
    states=ready_fifo_states,
)
_block(
    lambda lanes: LateFifo(Packet(lanes), 4),
    LateFifo,
    "a beat leaves after one cycle",
    "head + (self.o.valid & self.o.ready)",
    "head + self.o.valid",
    states=late_fifo_states,
)
_block(
    TxModeSwitch,
    TxModeSwitch,
    "the block continues before the transfer",
    "with m.If(self.i.ready):",
    "with m.If(1):",
    states=_tx_states,
)
_block(
    RxModeSwitch,
    RxModeSwitch,
    "the block continues before the transfer",
    "with m.If(self.stream.ready):",
    "with m.If(1):",
    states=_rx_states,
)
_block(RtrGenerator, RtrGenerator, "a beat leaves after one cycle", "with m.Elif(self.o.ready):", "with m.Else():")
_block(
    Fence,
    Fence,
    "an error of receive withdraws a beat",
    "wiring.connect(m, decided.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(decided.o.valid & ~self.failed), self.o.payload.eq(decided.o.payload), "
    "decided.o.ready.eq(self.o.ready)]",
    states=lambda fence: ready_buffer_states(fence["decided"]),
)
_block(
    FpduFramer,
    FpduFramer,
    "an input beat withdraws an output beat",
    "wiring.connect(m, given.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(given.o.valid & ~self.i.valid), self.o.payload.eq(given.o.payload), "
    "given.o.ready.eq(self.o.ready)]",
    states=lambda framer: buffer_states(framer["given"]),
)
_block(
    MarkerInserter,
    MarkerInserter,
    "the block continues before the transfer",
    "with m.If(o.valid & o.ready):",
    "with m.If(o.valid):",
    lanes=(2, 1),
)
_block(
    CrcAppender,
    CrcAppender,
    "the block continues before the transfer",
    "with m.If(given.i.valid & given.i.ready):",
    "with m.If(given.i.valid):",
    states=lambda appender: ready_fifo_states(appender["beats"]) & fifo_states(appender["crcs"]),
)
_block(
    lambda lanes: LaneAppender(),
    LaneAppender,
    "an input beat withdraws an output beat",
    "wiring.connect(m, given.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(given.o.valid & ~self.i.valid), self.o.payload.eq(given.o.payload), "
    "given.o.ready.eq(self.o.ready)]",
    states=lambda appender: buffer_states(appender["given"]),
    lanes=(1,),
)
_block(
    ChunkPacker,
    ChunkPacker,
    "a beat leaves after one cycle",
    "with m.If(self.o.ready): m.d.sync += [ self.o.valid.eq",
    "with m.If(1):\n            m.d.sync += [\n                self.o.valid.eq",
)
_block(
    FpduFinder,
    FpduFinder,
    "the block continues before the FPDU is transferred",
    "(goes_on & ~more)",
    "~more",
)


def _room(m, port):
    """Whether room was reported at ``port`` not longer ago than a beat may take."""
    rooms = [m.last(port.room)]
    while len(rooms) < room_latency(len(port.payload.data) // 32):
        rooms.append(m.last(rooms[-1]))
    return Cat(rooms).any()


@proves(
    "a beat is output only 1 to 2 cycles after room was reported; above 4 lanes, 1 to 4",
    Delineator,
    Mutant("beats are output without room", FpduAligner, "(whole | enough) & self.o.room", "whole | enough"),
    name="room_is_kept_to",
    lanes=(1, 2, 8),
    depth=4,
)
def _(m, delineator):
    m.always(~delineator.o.valid | _room(m, delineator.o))


@proves(
    "a beat of a train is output only 1 to 2 cycles after room was reported; above 4 lanes, 1 to 4",
    lambda lanes: TrainAligner(lanes, 2),
    Mutant("beats are output without room", TrainAligner, "self.o.valid.eq(moves & sends)", "self.o.valid.eq(sends)"),
    name="room_of_trains_is_kept_to",
    of="TrainAligner, 2 connections",
    lanes=(2, 8),
)
def _(m, aligner):
    m.always(~aligner.o.valid | _room(m, aligner.o))


@proves(
    "there is room for beats that arrive 1 to 2 cycles after room was reported; above 4 lanes, 1 to 4",
    FpduChecker,
    Mutant("the reserve is one beat too small", FpduChecker, "spare=ROOM", "spare=ROOM - 1"),
    name="room_is_there",
    lanes=(1, 2, 8),
    depth=7,
)
def _(m, checker):
    m.given(~checker.i.valid | _room(m, checker.i))
    ulpdus = checker["ulpdus"]
    wide = checker.lanes > AT_ONCE  # all parts of a wide queue do the same
    m.states(fifo_states(ulpdus["part_0"] if wide else ulpdus))
    m.always(~ulpdus.i.valid | ulpdus.i.ready)


_block(
    FpduChecker,
    FpduChecker,
    "an input beat withdraws an output beat",
    "wiring.connect(m, given.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(given.o.valid & ~self.i.valid), self.o.payload.eq(given.o.payload), "
    "given.o.ready.eq(self.o.ready)]",
    states=lambda checker: ready_buffer_states(checker["given"]),
)
_block(
    lambda lanes: LaneReceiver(),
    LaneReceiver,
    "an input beat withdraws an output beat",
    "wiring.connect(m, given.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(given.o.valid & ~given.i.valid), self.o.payload.eq(given.o.payload), "
    "given.o.ready.eq(self.o.ready)]",
    states=lambda receiver: ready_buffer_states(receiver["given"]),
    lanes=(1,),
)
_block(
    lambda lanes: StoreAndForward(lanes, 128),
    StoreAndForward,
    "the memory is read before the transfer",
    "read.en.eq((fetched != kept) & (self.o.ready | ~self.o.valid))",
    "read.en.eq(fetched != kept)",
)
_block(
    lambda: CounterSums(3, rx=True, fields={"octets": 3}),
    CounterSums,
    "a sum is replaced before its transfer",
    "takes.eq(~self.o.valid | self.o.ready)",
    "takes.eq(1)",
)
_block(
    lambda lanes: LengthFifo(lanes, 128),
    LengthFifo,
    "a length leaves before the beat is transferred",
    "lengths.o.ready.eq(beats.r_rdy & self.o.ready & self.o.payload.last)",
    "lengths.o.ready.eq(beats.r_rdy & self.o.payload.last)",
    states=lambda queue: fifo_states(queue["lengths"]),
)
_block(
    lambda: EventQueue(2, 3),
    EventQueue,
    "an event leaves before it is read",
    "fifo.r_en.eq(self.o.ready)",
    "fifo.r_en.eq(1)",
)


_block(
    lambda lanes: OutputRegister(),
    OutputRegister,
    "the register is filled while it is full",
    "self.i.ready.eq(self.o.ready | ~self.o.valid)",
    "self.i.ready.eq(1)",
    lanes=(1,),
)
_block(
    lambda lanes: PacketFifo(8),
    PacketFifo,
    "a packet that is committed withdraws a word",
    "wiring.connect(m, output.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(output.o.valid & ~self.i.commit), self.o.payload.eq(output.o.payload), "
    "output.o.ready.eq(self.o.ready)]",
    lanes=(1,),
)
_block(
    lambda lanes: PacketSlots(2, 8),
    PacketSlots,
    "a packet that is committed withdraws a word",
    "wiring.connect(m, output.o, wiring.flipped(self.o))",
    "m.d.comb += [self.o.valid.eq(output.o.valid & ~self.i.commit), self.o.payload.eq(output.o.payload), "
    "output.o.ready.eq(self.o.ready)]",
    lanes=(1,),
)
_block(
    lambda lanes: SegmentDelivery(),
    SegmentDelivery,
    "the block continues before the transfer",
    "with m.If(self.i.valid & self.o.ready & i.last):",
    "with m.If(self.i.valid & i.last):",
    lanes=(1,),
)
_block(
    lambda lanes: DatagramDelivery(),
    DatagramDelivery,
    "the block continues before the transfer",
    "with m.If(self.o.ready): m.next",
    "with m.If(1):\n                    m.next",
    states=lambda delivery: ~delivery.within("Empty") | (delivery.i.valid & delivery.i.payload.last),
    lanes=(1,),
)
_block(
    lambda lanes: Receiver(tcp_words=1024, udp_words=512, icmp_words=512, udp_ports=(7,)),
    Receiver,
    "a packet that has not been taken is overwritten",
    "with m.If(self._keeps_arp & self._is_arp & ~self.arp.valid):",
    "with m.If(self._is_arp):",
    lanes=(1,),
)
_block(
    lambda lanes: BlockMemory(lanes, 16 * lanes),
    BlockMemory,
    "a word is overwritten before its transfer",
    "read.en.eq(port.read.ready)",
    "read.en.eq(1)",
)
_block(
    MemoryHub,
    MemoryHub,
    "a word of the other side overtakes",
    "gives.eq(asked ^ Mux(asked, counts[0], counts[1]).any())",
    "gives.eq(asked)",
    given=lambda m, hub: (~hub.main.words.valid | hub["count_0"].any()) & (~hub.words.valid | hub["count_1"].any()),
)


def _host_waits(m, window):
    """The host holds an access until ``ack``, and the memory gives only words that were asked for."""
    bus = window.bus
    access = Cat(bus.write, bus.address, bus.write_data)
    holds = ~m.last(bus.request & ~bus.ack) | (bus.request & (access == m.last(access)))
    return holds & (~window.main.words.valid | window["asked"] | window["due"].any())


def _window_states(window):
    """A word for the host is read, or there, only while the host waits for it; none of the engine is due meanwhile.

    The registers carry out at most one access, for a read of READ only when the word is there.
    """
    asked, has, reads, writes = (window[name] for name in ("asked", "has", "reads", "writes"))
    is_read = window["is_read"]
    registers, request = window["registers"], window.bus.request
    steps = Cat(registers["second"], registers["third"], registers.bus.ack)
    return (
        (~(reads | has) | (request & is_read & ~writes))
        & ~(has & reads)
        & ~(asked & (~reads | window["due"].any() | window["asks"]))
        & ((steps == 0) | (request & (has | ~is_read) & ((steps & (steps - 1)[:3]) == 0)))
    )


_block(
    lambda lanes: StreamWindow(),
    StreamWindow,
    "a word that the host writes withdraws one",
    "self.tx_ulpdu.valid.eq(fifo.r_rdy)",
    "self.tx_ulpdu.valid.eq(fifo.r_rdy & ~fifo.w_en)",
    given=lambda m, window: ~window.reset,
    lanes=(1,),
)
_block(
    lambda lanes: SharedStreams(2, lanes),
    SharedStreams,
    "the block continues before the transfer",
    "taken.eq(Mux(x.is_mpa, self.tx_ulpdu.ready, self.packets.ready) | x.stopped | ~completes)",
    "taken.eq(1)",
    given=lambda m, streams: ~streams.clear.now,
    states=lambda streams: ~streams.event.valid | streams.within("Report"),
    lanes=(1, 2),
)
_block(
    lambda lanes: MemoryWindow(lanes, 1024),
    MemoryWindow,
    "a write of the host overtakes the engine's",
    "with m.If(access.writes & ~offered):",
    "with m.If(access.writes):",
    given=_host_waits,
    states=_window_states,
)
_block(
    lambda: WriteQueue(4, 0, 8),
    WriteQueue,
    "a word leaves before its transfer",
    "queue.o.ready.eq(self.write.ready)",
    "queue.o.ready.eq(1)",
    states=lambda queue: fifo_states(queue["queue"]),
)
_block(
    lambda: AheadReader(8, 1, ahead=2),
    AheadReader,
    "a word takes the place of one that has not left",
    "steps.eq(there.o.valid & (~beat.valid | moves))",
    "steps.eq(there.o.valid)",
    states=lambda reader: fifo_states(reader["due"]) & fifo_states(reader["there"]),
)
_block(
    lambda: SampleSchedule(1, 8),
    SampleSchedule,
    "the block continues before the transfer",
    "with m.If(self.o.ready):",
    "with m.If(1):",
)


def _writer_is_left_alone(m, writer):
    """The host accesses no register, nothing is reset, and the main memory gives only words that were asked for."""
    asked = writer["hub"]["count_0"].any()
    return ~writer.bus.request & ~writer.reset & (~writer.main.words.valid | asked)


def _writer_states(writer):
    """The TO of an RDMA Write is that of its place in the ring; a word of the buffer that waits was asked for."""
    hub, registers, piece = writer["hub"], writer["registers"], writer["writer"]["schedule"].o
    ring = Cat(registers.RING_TO_LO.value, registers.RING_TO_HI.value)
    right = writer["writer"]["piece_to"] == (ring + piece.payload.place)[:64]
    return (~piece.valid | right) & (hub["count_1"] == hub.words.valid) & ~registers["second"]


_block(
    lambda lanes: SampleWriter(lanes, sample=4, octets=16 * lanes),
    SampleWriter,
    "the buffer is read before the transfer",
    "free.eq(hub.words.ready | ~hub.words.valid)",
    "free.eq(1)",
    given=_writer_is_left_alone,
    states=_writer_states,
)

_block(
    lambda: WorkPort(2),
    WorkPort,
    "the next word takes the place of one that waits",
    "with m.If(words.valid & words.ready)",
    "with m.If(words.valid)",
    given=lambda m, port: ~port.clear.now,
    states=lambda port: port.within("Idle") | port.work.valid,
)

_block(
    lambda: SignalGenerator(2),
    SignalGenerator,
    "the next sample takes the place of one that waits",
    "steps.eq(runs & gives & (cycles == 0))",
    "steps.eq(runs & (cycles == 0))",
    given=lambda m, generator: ~generator.reset,
)

_R = "rdata", "rresp", "rlast", "rid"


def _held(m, bus, channel, fields):
    """Return whether a transfer of an AXI4 channel that waited in the previous cycle is still offered, unchanged."""
    valid, ready = (getattr(bus.m_axi, f"{channel}{name}") for name in ("valid", "ready"))
    payload = Cat(getattr(bus.m_axi, name) for name in fields)
    return ~m.last(valid & ~ready) | (valid & (payload == m.last(payload)))


_block(
    lambda lanes: RunGatherer(lanes, 4),
    RunGatherer,
    "a run overwrites another one",
    "free.eq(~self.o.valid | self.o.ready)",
    "free.eq(1)",
)
_block(
    lambda lanes: WriteGatherer(lanes, 2),
    WriteGatherer,
    "the next run begins before the words of the last one have left",
    "run.ready.eq(names & empties)",
    "run.ready.eq(names)",
    given=lambda m, gatherer: kept(m, gatherer.write),
    states=write_gatherer_states,
)
_block(
    lambda lanes: AxiMemory(lanes, burst=2, outstanding=2),
    AxiMemory,
    "a read withdraws a word",
    "words.valid.eq(axi.rvalid)",
    "words.valid.eq(axi.rvalid & ~self.port.read.valid)",
    given=lambda m, memory: _held(m, memory, "r", _R),
)


_block(
    lambda lanes: WishboneMemory(lanes, burst=2),
    WishboneMemory,
    "the next word withdraws a word",
    "port.words.valid.eq(answers.o.valid)",
    "port.words.valid.eq(answers.o.valid & ~answers.i.valid)",
    states=lambda memory: buffer_states(memory["answers"]),
)


def _split(lanes):
    """Two words of a memory port in one of SDRAM."""
    return Split(lanes, 3, 64 * lanes)


def _writes_states(writes):
    """The write with ``last`` waits while it is in the word that is held."""
    return ~writes["sent"] | (writes.write.valid & writes.write.payload.last)


def _reads_states(reads):
    """The wide words that have come are among those that were asked for, and for all of these there is room."""
    on_way, wide = reads["on_way"], reads["wide"]
    return fifo_states(reads["tags"]) & fifo_states(wide) & (fifo_level(wide) <= on_way) & (on_way <= reads.depth)


def _asked_for(m, reads):
    """The memory gives only words that were asked for."""
    return ~reads.gives | (fifo_level(reads["wide"]) < reads["on_way"])


def _native_states(memory):
    """The rest of a word is asked for only while the word lacks it, and waits in the queue."""
    queue, taken, reader, gatherer = (memory[name] for name in ("queue", "taken", "reader", "gatherer"))
    return (
        (fifo_states(queue) & fifo_states(taken) & _reads_states(reader))
        & (~gatherer["sent"] | gatherer.waits)
        & (~memory["asked"] | (queue.o.valid & ~memory["is_whole"]))
    )


_block(
    lambda lanes: WideWrites(_split(lanes)),
    WideWrites,
    "a part is added to a word that waits",
    "(follows & ~self.o.valid)",
    "follows",
    states=_writes_states,
)
_block(
    lambda lanes: WideReads(_split(lanes), 4),
    WideReads,
    "a wide word leaves before its part is transferred",
    "takes.eq(tags.o.ready & tags.o.payload.is_new)",
    "takes.eq(tags.o.valid & tags.o.payload.is_new)",
    given=_asked_for,
    states=_reads_states,
)
_block(
    lambda lanes: NativeMemory(_split(lanes), depth=4),
    NativeMemory,
    "a word that is taken withdraws a command",
    "queue.o.valid & drains & Mux(",
    "queue.o.valid & drains & ~native.takes & Mux(",
    given=lambda m, memory: _asked_for(m, memory["reader"]) & (~memory.writes.gives | memory["asked"]),
    states=_native_states,
)


def _same_cycle(m, memory):
    """Whether the bus still has the cycle of a word that was not ended in the previous cycle."""
    data = Mux(memory.wb.we, memory.wb.dat_w, 0)
    payload = Cat(memory.wb.we, memory.wb.adr, memory.wb.sel, memory.wb.cti, data)
    waited = m.last(memory.wb.stb & ~memory.wb.ack & ~memory.wb.err)
    return ~waited | (memory.wb.stb & (payload == m.last(payload)))


@proves(
    "a cycle of Wishbone stays until it is acknowledged; a burst goes on with the next word up to its last cycle, and "
    "crosses no multiple of 4 KiB",
    lambda lanes: WishboneMemory(lanes, burst=2),
    Mutant("a burst of reads is left for writes", WishboneMemory, "with m.If(~busy):",
           "with m.If(~busy | writes.runs.valid):"),
    Mutant("the words of a burst have one address", WishboneMemory, "(run.address[:low] + beat)[:low]",
           "run.address[:low]"),
    Mutant("the last cycle is not marked", WishboneMemory, "Mux(last, END, INCREMENTING)", "INCREMENTING"),
    Mutant("a burst goes on in the next 4 KiB", RunGatherer, "| (next_in_page == 0)", ""),
    name="wishbone",
    of="WishboneMemory",
)  # fmt: skip
def _(m, memory):
    low = page_bits(memory.lanes)
    goes_on = m.last(memory.wb.stb & (memory.wb.ack | memory.wb.err) & (memory.wb.cti == INCREMENTING))
    place = Cat(memory.wb.adr, memory.wb.we)
    inside = Signal()  # a burst
    with m.If(memory.wb.stb & (memory.wb.ack | memory.wb.err)):
        m.d.sync += inside.eq(memory.wb.cti == INCREMENTING)
    m.always(_same_cycle(m, memory), ~memory.wb.stb | memory.wb.cyc)
    m.always(~inside | memory.wb.cyc, ~goes_on | (place == m.last(place) + 1))
    m.always(~goes_on | (memory.wb.adr[:low] != 0))
    busy, writing, beat = memory["busy"], memory["writing"], memory["beat"]
    writes, reads = memory["writes"], memory["reads"]
    write, read = writes["gatherer"].o, reads.o
    run = Mux(writing, write.payload.more, read.payload.more)
    m.states(write_gatherer_states(writes), run_gatherer_states(reads), buffer_states(memory["answers"]))
    m.states(~busy | Mux(writing, write.valid, read.valid), Mux(busy, beat <= run, beat == 0), inside == (beat != 0))
    m.states(~writes["named"] & ~writes["emptied"], writes["number"] == Mux(busy & writing, beat, 0))


@proves(
    "a transfer is held on each channel of AXI4 until it is accepted, even if the engine withdraws a beat in a reset",
    lambda lanes: AxiMemory(lanes, burst=2, outstanding=2),
    Mutant("a read begins before the last one was accepted", RunGatherer, "free.eq(~self.o.valid | self.o.ready)",
           "free.eq(1)"),
    Mutant("an address is withdrawn with its beat", WriteGatherer, "self.runs.valid.eq(run.valid & ~named)",
           "self.runs.valid.eq(run.valid & ~named & write.valid)"),
    Mutant("data change while only the address is accepted", WriteGatherer, "run.ready.eq(names & empties)",
           "run.ready.eq(names)"),
    Mutant("a burst is withdrawn that has begun", AxiMemory, "count + writes.leaves -",
           "count + (runs.valid & runs.ready) -"),
    name="axi",
    of="AxiMemory",
)  # fmt: skip
def _(m, memory):
    answers_to_bursts(m, memory)
    m.always(
        _held(m, memory, "aw", ("awaddr", "awlen")),
        _held(m, memory, "ar", ("araddr", "arlen")),
        _held(m, memory, "w", ("wdata", "wstrb", "wlast")),
    )


class _InTurn(Component):
    """The end of a direction: packets of the MPA blocks, behind stream-mode packets that ``switch`` sends past them."""

    def __init__(self, switch, packet):
        self.switch = switch
        super().__init__(
            {
                "i": In(stream.Signature(switch.i.payload.shape())),
                "packets": In(stream.Signature(packet)),
                "o": Out(stream.Signature(packet)),
                "mpa": Out(stream.Signature(switch.mpa.payload.shape())),
                "octets": In(32),
                "enable": In(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.switch = switch = self.switch
        connect(m, flipped(self.i), switch.i)
        connect(m, switch.mpa, flipped(self.mpa))
        in_turn(m, switch, self.packets, self.o)
        m.d.comb += [switch.octets.eq(self.octets), switch.enable.eq(self.enable)]
        return m


def _ends(m, path):
    """The MPA blocks output nothing before MPA mode has lasted a cycle."""
    switch, in_mpa = path["switch"], path.switch.state == DirectionState.MPA
    m.given(~path.packets.valid | m.last(in_mpa))
    m.states(_tx_states(switch) if isinstance(path.switch, TxModeSwitch) else _rx_states(switch))
    keeps(m, path)
    was_in_mpa = m.ever(in_mpa)
    m.always(~was_in_mpa | (in_mpa & ~path.switch.stream.valid))


for _switch, _packet, _mutant in (
    (
        TxModeSwitch,
        Packet,
        Mutant(
            "a ULPDU is also treated as a stream-mode packet",
            TxModeSwitch,
            "self.mpa.valid.eq(self.i.valid)",
            "self.mpa.valid.eq(self.i.valid), self.stream.valid.eq(self.i.valid)",
        ),
    ),
    (
        RxModeSwitch,
        RxUlpdu,
        Mutant(
            "packets are treated as stream-mode packets until the transfer",
            in_turn,
            "switch.state == DirectionState.MPA",
            "packets.valid",
        ),
    ),
):
    proves(
        "a beat is held until it is transferred, and in MPA mode nothing bypasses the MPA blocks",
        lambda lanes, switch=_switch, packet=_packet: _InTurn(switch(lanes), packet(lanes)),
        _mutant,
        name=f"{_switch.__name__}.in_turn",
        of=f"{_switch.__name__}, in_turn",
    )(_ends)
_block(
    UlpduSwitch,
    UlpduSwitch,
    "a ULPDU of the host interrupts one of the engine",
    "with m.If(ends | ~(offered | self.o.valid)):",
    "with m.If(ends | ~offered):",
)
_block(
    lambda lanes: Realigner(lanes, 4),
    Realigner,
    "a word overwrites another one",
    "step.eq(~self.o.valid | self.o.ready)",
    "step.eq(1)",
)


def _whole_length(m, reader):
    """A ULPDU that is a single beat has as many octets as the beat."""
    inside = Signal()
    with m.If(reader.i.valid & reader.i.ready):
        m.d.sync += inside.eq(~reader.i.payload.last)
    return ~(reader.i.valid & ~inside & reader.i.payload.last) | (reader.i.payload.length == reader.i.payload.octets)


def _header_reader_states(reader):
    """A ULPDU that the host has been offered stays the host's."""
    return (~reader["offered"] | (reader.i.valid & ~reader["inside"])) & ~(
        reader["chosen_passes"] & reader["chosen_discards"]
    )


_block(
    HeaderReader,
    HeaderReader,
    "a ULPDU is discarded that the host has been offered",
    "~offered & self.enable & (self.discard | has_passed)",
    "self.enable & (self.discard | self.passed)",
    given=_whole_length,
    states=_header_reader_states,
)


@proves(
    "a beat is held until it is transferred",
    lambda: RowQueue(PostedBuffer, 4),
    Mutant("a row leaves after one cycle", RowQueue, "head, self.o.valid & self.o.ready", "head, self.o.valid"),
    Mutant("a field is written to the oldest row", RowQueue, "write.addr.eq(tail)", "write.addr.eq(head)"),
    name="RowQueue",
    of="RowQueue",
)
def _(m, queue):
    level = Signal(range(queue.depth + 1))
    written = Value.cast(queue.fields).any()
    m.given(~(written | queue.add) | (level != queue.depth))
    m.d.sync += level.eq(level + queue.add - (queue.o.valid & queue.o.ready))
    m.states((queue["tail"] - queue["head"])[: len(queue["head"])] == level, level <= queue.depth)
    keeps(m, queue)


@proves(
    "a beat is held until it is transferred",
    lambda: CompletionQueue(4),
    Mutant("an entry leaves in a cycle", CompletionQueue, "head, self.o.valid & self.o.ready", "head, self.o.valid"),
    name="CompletionQueue",
    of="CompletionQueue",
)
def _(m, queue):
    visible, hidden = Signal(range(queue.depth + 1)), Signal(range(queue.depth + 1))
    leaves = queue.o.valid & queue.o.ready
    m.given(~queue.enters | (visible + hidden != queue.depth), ~queue.complete | (hidden != 0))
    m.d.sync += [visible.eq(visible + queue.complete - leaves), hidden.eq(hidden + queue.enters - queue.complete)]
    head, middle, tail = queue["head"], queue["visible"], queue["tail"]
    m.states((middle - head)[: len(head)] == visible, (tail - middle)[: len(head)] == hidden)
    m.states(visible + hidden <= queue.depth)
    keeps(m, queue)
