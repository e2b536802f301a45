"""Carries out the commands of the host."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, Buffer
from open_rnic.rtl.rdma.regions import RowWrite
from open_rnic.rtl.rdma.registers import Command
from open_rnic.rtl.rdma.row_queue import RowQueue

__all__ = ["CommandLoader"]


class _Place(data.Struct):
    address: ADDRESS_BITS
    octets: 32


class CommandLoader(wiring.Component):
    """Takes the words of commands (:class:`.Command`): regions go to the STag table, buffers and work into queues.

    Throughput: a word per cycle; but the STag table may be busy in the cycle after a word for it, so the word behind it
    must come 2 cycles later or more.

    Members
    -------
    push : In, 1 bit
    word : In, 32 bits
        A word of a command.
    region : Out, :class:`.RowWrite`
    revoke : Out, 1 bit
        The region in row ``region.row`` is revoked.
    free : In, 1 bit
        Of :class:`.RegionTable`.
    buffers : Out, stream of :class:`.Buffer`
        Its ``withdrawn`` may become 1 while it is offered.
    ends : Out, 1 bit
        ``word`` is the last one of a command.
    work : Out, 1 bit
        ``word`` belongs to a WORK command.
    work_ends : Out, 1 bit
        It is the last one.
    """

    def __init__(self, rows: int, buffers: int):
        check_size("buffers", buffers, 2, 256)
        self.rows = rows
        self.buffer_depth = buffers
        super().__init__({
            "push": In(1), "word": In(32),
            "region": Out(RowWrite(rows)), "revoke": Out(1), "free": In(1),
            "buffers": Out(stream.Signature(Buffer)), "ends": Out(1), "work": Out(1), "work_ends": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.buffers = buffers = RowQueue(_Place, self.buffer_depth)
        m.submodules.withdrawn = withdrawn = Memory(shape=1, depth=self.buffer_depth, init=[])
        marks, marked = withdrawn.write_port(), withdrawn.read_port(domain="comb")

        kind = Signal(Command)
        command = Signal(Command)
        left = Signal(range(128))  # words of the command that are still to come
        first = Signal()
        last = Signal()
        withdraws = Signal()  # the buffer with the number ``word``
        m.d.comb += [
            first.eq(left == 0),
            last.eq(left == 1),
            command.eq(self.word[28:]),
            self.work.eq(self.push & ((first & (command == Command.WORK)) | (~first & (kind == Command.WORK)))),
            self.ends.eq(self.push & last),
            self.work_ends.eq(self.work & last),
            buffers.address.eq(self.push & (kind == Command.BUFFER) & (left == 2)),
            buffers.octets.eq(self.push & (kind == Command.BUFFER) & last),
            buffers.add.eq(buffers.octets),
            buffers.word.eq(self.word),
            withdraws.eq(self.push & (kind == Command.WITHDRAW) & last),
            marks.en.eq(buffers.add | withdraws),
            marks.addr.eq(Mux(withdraws, self.word, buffers.next)),
            marks.data.eq(withdraws),
            marked.addr.eq(buffers.first),
            self.buffers.valid.eq(buffers.o.valid),
            buffers.o.ready.eq(self.buffers.ready),
            self.buffers.payload.address.eq(buffers.o.payload.address),
            self.buffers.payload.octets.eq(buffers.o.payload.octets),
            self.buffers.payload.withdrawn.eq(marked.data),
        ]
        with m.If(self.push & ~first):
            count_up_down(m, left, up=0, down=1)
        with m.Elif(self.push):
            m.d.sync += kind.eq(command)
            with m.Switch(command):
                with m.Case(Command.WORK):
                    m.d.sync += left.eq(4 + 2 * self.word[8:14])
                with m.Case(Command.REGION):
                    m.d.sync += left.eq(len(RowWrite.NAMES))
                with m.Case(Command.BUFFER):
                    m.d.sync += left.eq(2)
                with m.Case(Command.REVOKE, Command.WITHDRAW):
                    m.d.sync += left.eq(1)

        # Words for the STag table.
        writes = Signal(len(RowWrite.NAMES))
        m.d.comb += [getattr(self.region, name).eq(writes[n]) for n, name in enumerate(RowWrite.NAMES)]
        with m.If(self.push):
            m.d.sync += [
                self.region.word.eq(self.word),
                self.revoke.eq((first & (command == Command.REGION)) | (~first & (kind == Command.REVOKE))),
                *(write.eq((kind == Command.REGION) & (left == len(writes) - n)) for n, write in enumerate(writes)),
            ]
            with m.If(first):
                m.d.sync += [self.region.rights.eq(self.word), self.region.row.eq(self.word[8:24])]
            with m.Elif(kind == Command.REVOKE):
                m.d.sync += self.region.row.eq(self.word)
        with m.Elif(self.free):
            m.d.sync += [self.revoke.eq(0), writes.eq(0)]
        return m
