"""Messages that logic beside the engine posts, and the words of their commands."""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.opcodes import Opcode
from open_rnic.rtl.lib.rows import Clear, InFlight, connection_shape
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS
from open_rnic.rtl.rdma.registers import Command

__all__ = ["WORDS", "Work", "WorkPort", "WorkReports", "work_words"]

_EMPTY, WORDS = 5, 7  # words of the command of a message without octets, and with some
_ONE = Const(1, 1)
_OPCODES = Opcode.RDMA_WRITE, Opcode.SEND, Opcode.SEND_INVALIDATE, Opcode.SEND_SE, Opcode.SEND_SE_INVALIDATE


def work_words(opcode, octets, stag, to, address, pieces=_ONE) -> tuple[Value, ...]:
    """Return the words of a WORK command (:data:`.FORMATS`) of the fabric; 5 are enough without ``pieces``."""
    first = Cat(opcode, Const(0, 1), Const(1, 1), Const(0, 2), pieces, Const(0, 19), Const(Command.WORK, 4))
    return first, octets, stag, to[:32], to[32:], address, octets


class Work(data.Struct):
    """A Send or an RDMA Write to post.

    Members
    -------
    address, octets : of its octets in the engine's memory
    stag, to : those of its header; a Send has no TO, and a STag only with Invalidate
    opcode : :class:`.Opcode`
    connection : the number of its connection
    """

    address: ADDRESS_BITS
    octets: 32
    stag: 32
    to: 64
    opcode: 8
    connection: 8


class WorkReports(wiring.Signature):
    """What has become of work.

    Members
    -------
    done : Out, 1 bit
        All octets of the oldest work of connection ``done_of`` have been read from memory. For one cycle.
    done_of : Out
    failed : Out, range(``most`` + 1)
        So many of connection ``failed_of`` have been discarded: all that were not done at its reset; or one that must
        not be posted. For one cycle.
    failed_of : Out
    """

    def __init__(self, most: int, connections: int):
        number = Out(connection_shape(connections))
        super().__init__({
            "done": Out(1), "done_of": number, "failed": Out(range(most + 1)), "failed_of": number,
        })  # fmt: skip


class WorkPort(wiring.Component):
    """Posts work of the design around an engine, and reports each as done or failed.

    Work is discarded while the host has not enabled the engine of its connection, and if its opcode is another than
    that of an RDMA Write or a Send, or there is no such connection. The port stalls while ``most`` of its connection
    are not done, and nothing else depends on a peer: a connection that the host resets gives up all that it has.

    Latency: 3 cycles to the first word. Throughput: a message in 2 cycles, and 2 for each of its 7 words.

    Parameters
    ----------
    most : work of a connection that the engine has room for
    connections : number of connections

    Members
    -------
    work : In, stream of :class:`Work`
    work_reports : Out, :class:`WorkReports`
    words, connection : Out, stream of 32 bits, and the connection of its words: ``fabric`` of the engine
    enabled, done, done_of : In; ``fabric_enabled``, ``fabric_done`` and ``fabric_done_of`` of the engine
    clear : In, :class:`.Clear`; a connection is reset. The engine has a command whole, or forgets that it has begun

    """

    def __init__(self, most: int, connections: int = 1):
        check_size("work", most, 1, 128)
        self.most = most
        self.connections = connections
        number = connection_shape(connections)
        super().__init__({
            "work": In(stream.Signature(Work)), "work_reports": Out(WorkReports(most, connections)),
            "words": Out(stream.Signature(32)), "connection": Out(number),
            "enabled": In(1), "done": In(1), "done_of": In(number),
            "clear": In(Clear(connections)),
        })  # fmt: skip

    def serve(self, m: Module, engine, clear) -> None:
        """Connect the port to an engine, or to the data path with the engine of one connection."""
        wiring.connect(m, self.words, engine.fabric)
        m.d.comb += [
            engine.fabric_connection.eq(self.connection),
            self.enabled.eq(engine.fabric_enabled),
            self.done.eq(engine.fabric_done),
            self.done_of.eq(engine.fabric_done_of),
            Value.cast(self.clear).eq(clear),
        ]

    def elaborate(self, platform):
        m = Module()
        work, reports, words = self.work.payload, self.work_reports, self.words
        posted = InFlight(
            m, "posted", range(2 * self.most), self.connections, self.connection, self.done_of, self.clear
        )
        waits = Signal.like(reports.failed)  # how much work of ``connection`` is not done
        number = Signal(range(WORDS))  # of the word
        last = Signal()
        good = Signal()
        discards = Signal()
        posts = Signal()
        m.d.comb += [
            words.payload.eq(Array(work_words(
                work.opcode[:4], work.octets, work.stag, work.to, work.address, pieces=work.octets.any(),
            ))[number]),
            last.eq(number == Mux(work.octets.any(), WORDS, _EMPTY) - 1),
            good.eq(self.enabled & work.opcode.matches(*_OPCODES) & (work.connection < self.connections)),
            waits.eq(posted.number(m, self.connection)),
            posts.eq(words.valid & words.ready & last),
            self.work.ready.eq(posts | discards),
            reports.done.eq(self.done & ~self.clear.now),
            reports.done_of.eq(self.done_of),
            reports.failed.eq(Mux(self.clear.now, posted.number(m, self.clear.connection), discards)),
            reports.failed_of.eq(Mux(self.clear.now, self.clear.connection, self.connection)),
        ]  # fmt: skip
        posted.begun.count(m, posts)
        posted.ended.count(m, reports.done)
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [self.connection.eq(work.connection), number.eq(0)]
                with m.If(self.work.valid):
                    m.next = "Check"
            with m.State("Check"):  # in which the flags and counts of ``connection`` are read
                with m.If(self.clear.now):
                    m.next = "Idle"
                with m.Elif(~good & (waits == 0)):
                    m.d.comb += discards.eq(1)
                    m.next = "Idle"
                with m.Elif(good & (waits != self.most)):
                    m.next = "Words"
            with m.State("Words"):
                m.d.comb += words.valid.eq(~self.clear.now)
                with m.If(words.valid & words.ready):
                    m.d.sync += number.eq(number + 1)
                with m.If(posts | self.clear.now):
                    m.next = "Idle"
        return m
