"""Carries out the commands of the host."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, block_ram, connection_shape, only_many
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, Buffer, WorkWords
from open_rnic.rtl.rdma.regions import RIGHTS, RowWrite
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
    work : Out, :class:`.WorkWords`
        The words of WORK commands.

    Only with many connections, whose commands do not interfere:

    connection : In
        The connection of ``word``.
    shown : In
        The connection of ``buffers``.
    settled, any : Out
        Of the :class:`.RowQueue` of buffers.
    withdraws : Out, 1 bit
        A buffer of connection ``withdraws_of`` has been withdrawn.
    withdraws_of : Out
    clear : In, :class:`.Clear`
    """

    def __init__(self, rows: int, buffers: int, connections: int = 1):
        check_size("buffers", buffers, 2, 256)
        self.rows = rows
        self.buffer_depth = buffers
        self.connections = connections
        number = connection_shape(connections)
        many = {
            "connection": In(number), "shown": In(number), "settled": Out(1), "any": Out(connections),
            "withdraws": Out(1), "withdraws_of": Out(number), "clear": In(Clear(connections)),
        }  # fmt: skip
        super().__init__({
            **only_many(connections, many),
            "push": In(1), "word": In(32),
            "region": Out(RowWrite(rows * connections)), "revoke": Out(1), "free": In(1),
            "buffers": Out(stream.Signature(Buffer)), "ends": Out(1), "work": Out(WorkWords(connections)),
        })  # fmt: skip
        if connections == 1:
            self.connection = self.shown = Const(0, 0)
            self.clear = None

    def elaborate(self, platform):
        m = Module()
        kind = Signal(Command)
        command = Signal(Command)
        left = Signal(range(128))  # words of the command that are still to come
        first = Signal()
        last = Signal()
        kinds, lefts = self._cells(m, Value.cast(kind)), self._cells(m, left)
        m.d.comb += [
            first.eq(left == 0),
            last.eq(left == 1),
            command.eq(self.word[28:]),
            self.work.valid.eq(self.push & ((first & (command == Command.WORK)) | (~first & (kind == Command.WORK)))),
            self.ends.eq(self.push & last),
            self.work.last.eq(self.work.valid & last),
            self.work.word.eq(self.word),
        ]
        with m.If(self.push & ~first):
            lefts.write(m, left ^ Cat(~left[:n].any() for n in range(len(left))))
        with m.Elif(self.push):
            kinds.write(m, command)
            with m.Switch(command):
                with m.Case(Command.WORK):
                    lefts.write(m, 4 + 2 * self.word[8:14])
                with m.Case(Command.REGION):
                    lefts.write(m, len(RowWrite.NAMES))
                with m.Case(Command.BUFFER):
                    lefts.write(m, 2)
                with m.Case(Command.REVOKE, Command.WITHDRAW):
                    lefts.write(m, 1)
        self._post(m, kind, left, last)
        self._write(m, kind, command, left, first)
        return m

    def _cells(self, m, signal):
        """A number that is kept for the words of ``connection`` that follow."""
        return Cells(m, signal, self.connections, self.connection, self.clear)

    def _post(self, m, kind, left, last):
        """Post and withdraw buffers."""
        m.submodules.buffers = buffers = RowQueue(_Place, self.buffer_depth, self.connections)
        # A row is read in the cycle in which it is written only before it can be taken.
        depth = self.buffer_depth * self.connections
        m.submodules.withdrawn = withdrawn = Memory(shape=1, depth=depth, init=[], attrs=block_ram(self.connections))
        marks = withdrawn.write_port()
        # As the queue of buffers:
        marked = withdrawn.read_port(domain="comb") if self.connections == 1 else late_read(m, withdrawn)
        withdraws = Signal()  # the buffer with the number ``word``
        number = Signal(range(self.buffer_depth))
        m.d.comb += [
            buffers.fields.address.eq(self.push & (kind == Command.BUFFER) & (left == 2)),
            buffers.fields.octets.eq(self.push & (kind == Command.BUFFER) & last),
            buffers.add.eq(buffers.fields.octets),
            buffers.word.eq(self.word),
            withdraws.eq(self.push & (kind == Command.WITHDRAW) & last),
            marks.en.eq(buffers.add | withdraws),
            number.eq(Mux(withdraws, self.word, buffers.next)),
            marks.addr.eq(Cat(number, self.connection)),
            marks.data.eq(withdraws),
            marked.addr.eq(Cat(buffers.first, self.shown)),
            self.buffers.valid.eq(buffers.o.valid),
            buffers.o.ready.eq(self.buffers.ready),
            self.buffers.payload.address.eq(buffers.o.payload.address),
            self.buffers.payload.octets.eq(buffers.o.payload.octets),
            self.buffers.payload.withdrawn.eq(marked.data),
        ]
        if self.connections > 1:
            self._share(m, buffers, withdraws)

    def _share(self, m, buffers, withdraws):
        """Tell the queue of buffers, and other blocks, whose commands these are."""
        m.d.comb += [
            self.work.connection.eq(self.connection),
            buffers.connection.eq(self.connection),
            buffers.shown.eq(self.shown),
            self.settled.eq(buffers.settled),
            self.any.eq(buffers.any),
            Value.cast(buffers.clear).eq(self.clear),
        ]
        m.d.sync += [self.withdraws.eq(withdraws), self.withdraws_of.eq(self.connection)]

    def _write(self, m, kind, command, left, first):
        """Write words to the STag table."""
        writes = Signal(len(RowWrite.NAMES))
        m.d.comb += Value.cast(self.region.fields).eq(writes)
        self._keep_row(m, kind, first)
        with m.If(self.push):
            m.d.sync += [
                self.region.word.eq(self.word),
                self.revoke.eq((first & (command == Command.REGION)) | (~first & (kind == Command.REVOKE))),
                *(write.eq((kind == Command.REGION) & (left == len(writes) - n)) for n, write in enumerate(writes)),
            ]
        with m.Elif(self.free):
            m.d.sync += [self.revoke.eq(0), writes.eq(0)]

    def _keep_row(self, m, kind, first):
        """Keep the row and the rights of the first word for those that follow; of the only connection at the output."""
        region = self.region
        if self.connections == 1:
            rights, row = region.rights, region.row
        else:
            rights = Signal(RIGHTS)
            row = Signal(range(self.rows))
        all_rights, rows = self._cells(m, rights), self._cells(m, row)
        row_now = Signal(range(self.rows))
        with m.If(self.push):
            m.d.comb += row_now.eq(Mux(first, self.word[8:24], Mux(kind == Command.REVOKE, self.word, row)))
            m.d.sync += [region.row.eq(Cat(row_now, self.connection)), region.rights.eq(rights)]
            with m.If(first):
                all_rights.write(m, self.word)
                rows.write(m, row_now)
