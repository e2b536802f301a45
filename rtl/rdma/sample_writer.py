"""Samples of the fabric become RDMA Writes into a ring in the peer's memory."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.rdma.memory import MemoryHub
from open_rnic.rtl.rdma.sample_registers import RECORD_OCTETS, SAMPLE_MAP, Doorbell
from open_rnic.rtl.rdma.sample_schedule import SampleSchedule, check_buffer
from open_rnic.rtl.rdma.work_port import WORDS, work_words
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["BUFFER", "RECORD", "SampleWriter"]

BUFFER = 0x8000_0000  # the address of the samples that wait, modulo the size of the buffer
RECORD = 0xC000_0000  # the address of the record of the doorbell


class SampleWriter(wiring.Component):
    """Writes samples to a ring in the peer's memory, rings a doorbell, and overwrites nothing that the peer needs.

    ::

        samples ▸ buffer ▸┐ words
        engine's port ◂▸ MemoryHub ◂▸ main memory
                     └ head written by the peer ▸ SampleSchedule ▸ work

    The samples wait in a block RAM that the engine reads from address 0x8000_0000 on; the record of a doorbell is at
    0xC000_0000. Samples lie in the ring in the order in which they were taken, bits 7:0 at the lowest TO.
    :class:`.SampleSchedule` states when they leave and when they are dropped, :data:`.SAMPLE_MAP` has the registers,
    and :class:`.Doorbell` the octets of a record. A head behind the head before it, or ahead of the octets that were
    announced, only sets STATUS.bad_head. A write of only some of the lower 4 octets of the head has no effect.

    Latency: the first word of a command is given at most 11 cycles after the last sample was taken. Throughput: a
    sample, a word of memory to the engine and a write to the main memory in every cycle, and a command in 12 cycles.

    Parameters
    ----------
    lanes : width of the memory in 32-bit lanes: 1, 2, 4, 8 or 16
    sample : octets of a sample, a power of 2, at most a word
    octets : size of the buffer, a power of 2, at least 4 samples and 2 words; for a sample in each cycle 4 RDMA Writes

    Members
    -------
    samples : In, stream of 8 * ``sample`` bits
    tick : In, 1 bit; a tick passes; see BELL_TICKS
    bus : In, :class:`.RegisterBus`; all accesses are acknowledged; other addresses read as 0
    reset : In, 1 bit; forgets all samples, and resets the registers; the engine must be reset, too, but words that it
        has asked for still come
    port, main : In, Out, :class:`.MemoryPort`; the engine's memory, and the main memory
    words : Out, stream of 32 bits; the words of WORK commands (:class:`.Command`), to ``fabric`` of the engine
    done : In, 1 bit; all octets of the oldest message have been read; at least 2 cycles after the last word

    """

    def __init__(self, lanes: int, *, sample: int = 4, octets: int = 4096):
        check_lanes(lanes)
        if sample > 4 * lanes:
            raise ValueError(f"a sample must have at most {4 * lanes} octets at {lanes} lanes, not {sample!r}")
        if octets < 8 * lanes:
            raise ValueError(f"the buffer must have at least {8 * lanes} octets at {lanes} lanes, not {octets!r}")
        check_buffer(sample, octets)
        self.schedule = SampleSchedule(sample, octets)
        self.lanes = lanes
        self.sample = sample
        self.octets = octets
        super().__init__({
            "samples": In(stream.Signature(8 * sample)),
            "tick": In(1),
            "bus": In(RegisterBus()),
            "reset": In(1),
            "port": In(MemoryPort(lanes)),
            "main": Out(MemoryPort(lanes)),
            "words": Out(stream.Signature(32)),
            "done": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterBank(SAMPLE_MAP)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        m.d.comb += registers.reset.eq(self.reset)
        m.submodules.hub = hub = MemoryHub(self.lanes)
        wiring.connect(m, wiring.flipped(self.port), hub.port)
        wiring.connect(m, hub.main, wiring.flipped(self.main))
        self._store(m, self.schedule, hub)
        # This resets everything except the register bank, which must complete the current access, and the words that
        # the engine has asked for.
        m.submodules.writer = ResetInserter(self.reset)(self._writer(registers))
        return m

    def _writer(self, registers):
        m = Module()
        m.submodules.schedule = schedule = self.schedule
        self._snoop(m, schedule, registers.HEAD_ADDRESS.value)
        self._work(m, schedule, registers)

        control, settings, status = registers.CONTROL, schedule.settings, schedule.status
        m.d.comb += [
            settings.enable.eq(control.enable),
            settings.drops.eq(control.drops),
            settings.rings.eq(control.doorbell != Doorbell.NONE),
            schedule.tick.eq(self.tick),
            settings.ring_octets.eq(registers.RING_OCTETS.value),
            settings.write_octets.eq(registers.WRITE_OCTETS.value),
            settings.bell_octets.eq(registers.BELL_OCTETS.value),
            settings.bell_ticks.eq(registers.BELL_TICKS.value),
            *registers.show("CAPABILITIES", sample=self.sample.bit_length() - 1, buffer=self.octets.bit_length() - 1),
            *registers.show("STATUS", gap=status.gap, blocked=status.blocked, pending=status.pending, busy=status.busy),
            Cat(registers.TAIL_LO.value, registers.TAIL_HI.value).eq(status.tail),
            registers.HEAD.value.eq(status.freed),
            Cat(registers.DROPPED_LO.value, registers.DROPPED_HI.value).eq(status.dropped),
        ]  # fmt: skip
        m.d.sync += registers.BELLS.value.eq(registers.BELLS.value + status.bell)
        with m.If(status.bad_head):
            m.d.sync += registers.STATUS.bad_head.eq(1)
        with m.Elif(registers.STATUS.clear_bad_head):
            m.d.sync += registers.STATUS.bad_head.eq(0)
        return m

    def _store(self, m, schedule, hub):
        """Samples enter the buffer; the engine reads its words, and those of the record."""
        size = 4 * self.lanes
        m.submodules.buffer = buffer = Memory(shape=8 * size, depth=self.octets // size, init=[])
        write = buffer.write_port(granularity=8 * self.sample)
        read = buffer.read_port()
        lsb = self.sample.bit_length() - 1
        msb = size.bit_length() - 1
        m.d.comb += [
            schedule.offered.eq(self.samples.valid),
            self.samples.ready.eq(schedule.ready),
            write.addr.eq(schedule.place[msb:]),
            write.data.eq(self.samples.payload.replicate(size // self.sample)),
            write.en.eq(Mux(schedule.stores, 1 << schedule.place[lsb:msb], 0)),
        ]
        of_record = Signal()
        record_word = Signal(8 * size)
        words = [schedule.record[at : at + 8 * size] for at in range(0, 8 * RECORD_OCTETS, 8 * size)]
        free = Signal(name="word_is_free")
        m.d.comb += [
            free.eq(hub.words.ready | ~hub.words.valid),
            hub.read.ready.eq(free),
            read.addr.eq(hub.read.payload),
            read.en.eq(free),
            hub.words.payload.eq(Mux(of_record, record_word, read.data)),
        ]
        with m.If(free):
            m.d.sync += [
                hub.words.valid.eq(hub.read.valid),
                of_record.eq(hub.read.payload[-2]),
                record_word.eq(Array(words)[hub.read.payload[: (len(words) - 1).bit_length()]]),
            ]

    def _snoop(self, m, schedule, address):
        """A write of the lower 4 octets of the head moves it."""
        beat = self.port.write.payload
        bits = self.lanes.bit_length() - 1
        lane = address[2 : 2 + bits]
        word = Signal.like(address[2 + bits :], name="head_word")
        moves = Signal(name="head_moves")
        m.d.comb += [
            word.eq(address[2 + bits :]),
            moves.eq(self.port.write.valid & self.port.write.ready & (beat.address == word)),
        ]
        m.d.sync += [
            schedule.head.eq(beat.data.word_select(lane, 32)),
            schedule.head_written.eq(moves & beat.mask.word_select(lane, 4).all()),
        ]

    def _work(self, m, schedule, registers):
        """The words of a command for a piece."""
        piece = schedule.o.payload
        opcode = Signal(4)
        to = Signal(64, name="piece_to")  # ``place`` has been constant for several cycles when the piece is given
        number = Signal(range(WORDS))  # of the word
        m.d.comb += opcode.eq(Opcode.RDMA_WRITE)
        with m.If(piece.bell & (registers.CONTROL.doorbell == Doorbell.SEND)):
            m.d.comb += opcode.eq(Opcode.SEND)
        with m.Elif(piece.bell & (registers.CONTROL.doorbell == Doorbell.SEND_SE)):
            m.d.comb += opcode.eq(Opcode.SEND_SE)
        octets = Mux(piece.bell, RECORD_OCTETS, piece.octets)
        words = work_words(
            opcode, octets,
            Mux(piece.bell, registers.BELL_STAG.value, registers.RING_STAG.value),
            Mux(piece.bell, Cat(registers.BELL_TO_LO.value, registers.BELL_TO_HI.value), to),
            Mux(piece.bell, RECORD, Const(BUFFER, 32) | piece.start[: self.octets.bit_length() - 1]),
        )  # fmt: skip
        m.d.sync += to.eq(Cat(registers.RING_TO_LO.value, registers.RING_TO_HI.value) + piece.place)
        m.d.comb += [
            self.words.valid.eq(schedule.o.valid),
            self.words.payload.eq(Array(words)[number]),
            schedule.o.ready.eq(self.words.ready & (number == WORDS - 1)),
            schedule.done.eq(self.done),
        ]
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += number.eq(following(number, WORDS))
