"""Carries out the commands of the host."""

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.rdma.layouts import Buffer, Fragment, Work
from open_rnic.rtl.rdma.regions import RowWrite
from open_rnic.rtl.rdma.registers import Command
from open_rnic.rtl.rdma.row_queue import RowQueue

__all__ = ["CommandLoader"]


class CommandLoader(wiring.Component):
    """Takes the words of commands (:class:`.Command`): regions go to the STag table, buffers and work into queues.

    Throughput: a word per cycle; but the word behind one for the STag table, which may be busy, must come 2 cycles
    later or more.

    Members
    -------
    push : In, 1 bit
    word : In, 32 bits
        A word of a command.
    region : Out, :class:`.RowWrite`
    revoke : Out, 1 bit
    revoke_row : Out
    free : In, 1 bit
        Of :class:`.RegionTable`.
    buffers : Out, stream of :class:`.Buffer`
    works : Out, stream of :class:`.Work`
    fragments : Out, stream of :class:`.Fragment`
        The pieces of all messages, in their order.
    """

    def __init__(self, rows: int, buffers: int, work: int):
        for name, value in (("buffers", buffers), ("work", work)):
            if not 2 <= value <= 256 or value & (value - 1):
                raise ValueError(f"{name} must be a power of 2 from 2 to 256, not {value!r}")
        self.rows = rows
        self.buffer_depth = buffers
        self.work_depth = work
        super().__init__({
            "push": In(1), "word": In(32),
            "region": Out(RowWrite(rows)), "revoke": Out(1), "revoke_row": Out(range(rows)), "free": In(1),
            "buffers": Out(stream.Signature(Buffer)), "works": Out(stream.Signature(Work)),
            "fragments": Out(stream.Signature(Fragment)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.buffers = buffers = RowQueue(Buffer, self.buffer_depth)
        m.submodules.works = works = RowQueue(Work, self.work_depth)
        m.submodules.fragments = fragments = RowQueue(Fragment, self.work_depth)
        for queue, port in ((buffers, self.buffers), (works, self.works), (fragments, self.fragments)):
            m.d.comb += queue.word.eq(self.word)
            wiring.connect(m, queue.o, wiring.flipped(port))

        command = Signal(Command)
        number = Signal(range(6))  # of the word in the command; the words of a work's pieces are all 5
        pieces = Signal(range(self.work_depth + 1))  # that are still to come
        second = Signal()  # the next word is a piece's second
        ends = Signal()
        words = {
            Command.BUFFER: (buffers.address, buffers.octets),
            Command.WORK: (works.octets, works.stag, works.to_low, works.to_high),
        }
        with m.If(self.push & (number == 0)):
            m.d.sync += [command.eq(self.word[28:]), number.eq(1), pieces.eq(self.word[8:14]), second.eq(0)]
            m.d.sync += self.region.rights.eq(self.word[:4])
            m.d.comb += works.control.eq(self.word[28:] == Command.WORK)
        with m.Elif(self.push):
            m.d.sync += number.eq(number + 1)
            for kind, ports in words.items():
                for n, port in enumerate(ports, 1):
                    m.d.comb += port.eq((command == kind) & (number == n))
            with m.Switch(command):
                with m.Case(Command.BUFFER):
                    m.d.comb += [ends.eq(number == 2), buffers.add.eq(ends)]
                with m.Case(Command.WORK):
                    with m.If(number == 4):
                        m.d.comb += ends.eq(pieces == 0)
                    with m.If(number == 5):
                        m.d.sync += [number.eq(5), second.eq(~second), pieces.eq(pieces - second)]
                        m.d.comb += [
                            fragments.address.eq(~second),
                            fragments.octets.eq(second),
                            fragments.add.eq(second),
                            ends.eq(second & (pieces == 1)),
                        ]
                    m.d.comb += works.add.eq(ends)
                with m.Case(Command.REGION):
                    m.d.comb += ends.eq(number == 5)
                with m.Default():
                    m.d.comb += ends.eq(number == 1)
            with m.If(ends):
                m.d.sync += number.eq(0)
        self._regions(m, command, number)
        return m

    def _regions(self, m, command, number):
        """Hand the words for the STag table over, which may be busy for a cycle."""
        kinds = Signal(len(RowWrite.NAMES))
        with m.If(self.push & (number != 0)):
            m.d.sync += self.region.word.eq(self.word)
            with m.If(number == 1):
                m.d.sync += [self.region.row.eq(self.word), self.revoke_row.eq(self.word)]
            m.d.sync += [
                self.revoke.eq((command == Command.REVOKE) & (number == 1)),
                kinds.eq(((command == Command.REGION) << number)[1:]),
            ]
        with m.Elif(self.free):
            m.d.sync += [self.revoke.eq(0), kinds.eq(0)]
        m.d.comb += [getattr(self.region, name).eq(kinds[n]) for n, name in enumerate(RowWrite.NAMES)]
