"""The RDMA engine: DDP and RDMAP between a data path and memory."""

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Clear, connection_shape
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.mpa.rtr import Rtrs
from open_rnic.rtl.rdma.command_switch import CommandSwitch
from open_rnic.rtl.rdma.engine_blocks import EngineBlocks
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.rdma.receiver import Note
from open_rnic.rtl.rdma.regions import MAX_REGIONS
from open_rnic.rtl.rdma.registers import HEADER_WORDS, RDMA_MAP
from open_rnic.rtl.rdma.sender import MAX_OUTSTANDING
from open_rnic.rtl.rdma.shared_engine import SharedEngine
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import paged_bus

__all__ = ["Processed", "RdmaEngine", "SendGate", "TransmitGate"]


class TransmitGate(wiring.Signature):
    """Whether a connection may send.

    Members
    -------
    connection : Out
    room : In, 1 bit
        There is room for a ULPDU of MULPDU octets of it, besides all that has been transferred at ``tx_ulpdu`` and 20
        words.
    opens : In, 1 bit
        Its fence is open.
    """

    def __init__(self, connections: int):
        super().__init__({"connection": Out(connection_shape(connections)), "room": In(1), "opens": In(1)})


class SendGate(wiring.Signature):
    """Whether received Sends may be given to the engine.

    Members
    -------
    connection : In
    blocked : Out, 1 bit
        No Send of ``connection`` may be given at ``rx_ulpdu``: no buffer is posted for it.
    returns : Out, 1 bit for each connection
        A reason for ``blocked``, other than the host's commands and flags, that may end by itself.
    coming : In, 1 bit for each connection
        A Send has been given, and is reported neither as checked nor as dropped so far.
    waiting : In, 1 bit for each connection
        A Send is not given because of ``blocked``; for STATUS.
    """

    def __init__(self, connections: int):
        super().__init__({
            "connection": In(connection_shape(connections)), "blocked": Out(1),
            **{name: flow(connections) for name, flow in {"returns": Out, "coming": In, "waiting": In}.items()},
        })  # fmt: skip


class Processed(wiring.Signature):
    """What has become of a ULPDU that was given at ``rx_ulpdu``.

    A Send may be given when each ULPDU of its connection that was given before has been reported.

    Members
    -------
    checked, dropped : Out, 1 bit
        It has been checked; or it has been discarded, or passed to the host. For one cycle.
    checked_of, dropped_of : Out
        Its connection.
    """

    def __init__(self, connections: int):
        number = connection_shape(connections)
        super().__init__({
            "checked": Out(1), "checked_of": Out(number), "dropped": Out(1), "dropped_of": Out(number),
        })  # fmt: skip


class RdmaEngine(wiring.Component):
    """DDP and RDMAP of one connection, or of many (RFC 5041, RFC 5040).

    ``docs/rdma-engine.md`` shows its blocks, and says what it does with ULPDUs, messages and errors.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    regions, buffers : of a connection: rows of its STag table, a power of 2 from 2 to 65,536; buffers for Sends that
        can be posted, from 2 to 256
    work : messages, and pieces of messages, that its host can post, a power of 2 from 1 to 128; the fabric as many
    reads : its largest IRD and ORD, a power of 2 from 2 to 128
    fabric : with the ports for logic beside the engine
    connections : number of connections, a power of 2 from 1 to 64

    Members
    -------
    rx_ulpdu : In, stream of :class:`.RxUlpdu`; good ULPDUs, and bad ones that are Terminates
    tx_ulpdu : Out, stream of :class:`.TxUlpdu`; to the data path
    host_tx : In, stream of :class:`.TxUlpdu`; each ULPDU goes between two of the engine's
    host_rx : Out, stream of :class:`.RxUlpdu`; with many connections, the host takes each beat at once
    memory : Out, :class:`.MemoryPort`
    fabric, fabric_connection : In, stream of 32 bits, and the number of its connection, which changes between commands;
        words of WORK commands, from logic beside the engine
    fabric_enabled : Out, 1 bit; the host has enabled the engine, for connection ``fabric_connection``
    fabric_done, fabric_done_of : Out, 1 bit, and the number of a connection; all octets of its oldest message of the
        fabric have been read from memory. For one cycle
    bus : In, :class:`.RegisterBus`; :data:`.RDMA_MAP`. With many connections, the connection's number is above 8 bits
    irq : Out, 1 bit for each connection; a Send has been received, posted work is done, or STATUS has changed
    rtr : In, :class:`.Rtrs`; ``sends`` is settled before the engine is enabled
    reset : In, 1 bit; the reset of the connection. Only with one

    Only with many connections, which send a segment each in turn, and receive independently of each other:

    transmit_gate : Out, :class:`TransmitGate`
    sends : Out, :class:`SendGate`
    processed : Out, :class:`Processed`
    resets : In, 1 bit; a connection is about to be reset: no message begins, and no ULPDU is given
    idle : Out, 1 bit; nothing of any connection is in the engine while ``resets`` is 1
    clear : In, :class:`.Clear`; only with ``resets`` and ``idle``. After power-up, all connections are cleared

    """

    def __init__(self, lanes: int = 1, *, regions: int = 256, buffers: int = 16, work: int = 16, reads: int = 16,
                 fabric: bool = False, connections: int = 1):  # fmt: skip
        check_lanes(lanes)
        check_size("connections", connections, 1, 64)
        check_size("regions", regions, 2, MAX_REGIONS)
        check_size("buffers", buffers, 2, 256)
        check_size("work", work, 1, 128)
        check_size("reads", reads, 2, 128)
        self.lanes = lanes
        self.regions = regions
        self.buffers = buffers
        self.work = work
        self.reads = reads
        self.has_fabric = fabric
        self.connections = connections
        each, number = connections, connection_shape(connections)
        rx, tx = stream.Signature(RxUlpdu(lanes, connections)), stream.Signature(TxUlpdu(lanes, connections))
        many = {
            "transmit_gate": Out(TransmitGate(connections)), "sends": Out(SendGate(connections)),
            "processed": Out(Processed(connections)),
            "resets": In(1), "idle": Out(1), "clear": In(Clear(connections)),
        }  # fmt: skip
        of_fabric = {
            "fabric": In(stream.Signature(32)), "fabric_connection": In(number), "fabric_enabled": Out(1),
            "fabric_done": Out(1), "fabric_done_of": Out(number),
        }  # fmt: skip
        super().__init__({
            "rx_ulpdu": In(rx), "tx_ulpdu": Out(tx), "host_tx": In(tx), "host_rx": Out(rx),
            **(many if connections > 1 else {"reset": In(1)}),
            "memory": Out(MemoryPort(lanes)),
            **(of_fabric if fabric else {}),
            "bus": In(paged_bus(connections)), "irq": Out(each),
            "rtr": In(Rtrs(connections)),
        })  # fmt: skip

    @property
    def capabilities(self) -> dict[str, int]:
        """The fields of register CAPABILITIES: logarithms of the sizes."""
        sizes = {"regions": self.regions, "buffers": self.buffers, "work": self.work, "reads": self.reads}
        return {name: size.bit_length() - 1 for name, size in sizes.items()}

    def elaborate(self, platform):
        if self.connections > 1:
            return SharedEngine(self).module()
        m = Module()
        m.submodules.registers = registers = RegisterBank(RDMA_MAP)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        m.d.comb += registers.reset.eq(self.reset)
        words = stream.Signature(32 * self.lanes).create()
        settled = Signal()
        m.submodules.connection = ResetInserter(self.reset)(self._connection(registers, words, settled))
        self._discard(m, words, settled)
        return m

    def _discard(self, m, words, settled):
        """Pass the words of memory on, except those that were asked for before a reset.

        The connection asks for none until these have come, however often it is reset in the meantime.
        """
        read, given = self.memory.read, self.memory.words
        outstanding = Signal(range(2 * MAX_OUTSTANDING))
        late = Signal()  # those that are outstanding were asked for before a reset
        m.d.comb += [
            words.payload.eq(given.payload),
            words.valid.eq(given.valid & ~late),
            given.ready.eq(words.ready | late),
            settled.eq(~late),
        ]
        count_up_down(m, outstanding, read.valid & read.ready, given.valid & given.ready)
        m.d.sync += late.eq(self.reset | (late & (outstanding != 0)))

    def _connection(self, registers, words, settled):
        m = Module()
        blocks = EngineBlocks(self)
        blocks.place(m, self, words)
        control, receiver, sender = registers.CONTROL, blocks.receiver.status, blocks.sender.status
        refused = Signal()  # a ULPDU, a source or a word: nothing more is received, and the engine sends nothing
        runs = Signal()
        memory_failed = Signal()
        m.d.comb += [
            memory_failed.eq(receiver.failed | sender.failed),
            refused.eq(receiver.refused | receiver.passed | sender.refused | memory_failed),
            runs.eq(control.enable & ~control.stop & ~refused & settled),
        ]
        self._command(m, registers, blocks.commands)
        self._set(m, blocks, registers, runs, refused)
        self._show(m, blocks, registers, memory_failed)
        return m

    def _set(self, m, blocks, registers, runs, refused):
        """Apply the settings of the host, and of the connection's startup."""
        control, reads = registers.CONTROL, blocks.reads
        receiver, loader, sender = blocks.receiver, blocks.loader, blocks.sender
        m.d.comb += [
            receiver.settings.enable.eq(control.enable),
            receiver.settings.waits.eq(control.waits),
            receiver.settings.drops.eq(control.drops),
            receiver.settings.shut.eq(control.shut),
            receiver.settings.stopped.eq(refused),
            loader.runs.eq(runs),
            sender.settings.runs.eq(runs),
            sender.settings.starts.eq(control.enable),
            sender.settings.mulpdu.eq(registers.LIMITS.mulpdu),
            reads.starts.eq(control.enable),
            reads.loads.eq(loader.asks),
            loader.may_read.eq(reads.outstanding < registers.LIMITS.ord),
            receiver.settings.ird.eq(registers.LIMITS.ird),
        ]

    def _command(self, m, registers, loader):
        """Give the loader the commands of the host, and of the fabric."""
        push, word = registers.COMMAND.push, registers.COMMAND.value
        if not self.has_fabric:
            m.d.comb += [loader.push.eq(push), loader.word.eq(word)]
            return
        m.submodules.command_switch = commands = CommandSwitch()
        wiring.connect(m, wiring.flipped(self.fabric), commands.fabric)
        m.d.comb += [
            self.fabric_enabled.eq(registers.CONTROL.enable),
            commands.push.eq(push),
            commands.word.eq(word),
            commands.ends.eq(loader.ends),
            loader.push.eq(commands.gives),
            loader.word.eq(commands.given),
        ]

    def _show(self, m, blocks, registers, memory_failed):
        """The registers that the host reads, and the interrupt."""
        receiver, sender, completions = blocks.receiver, blocks.sender, blocks.completions
        placed = receiver.status
        done, status = registers.DONE, registers.STATUS
        taken = Signal.like(completions.o.payload)
        done_changed = Signal()
        status_changed = Signal()
        ready = blocks.table.ready
        flags = Cat(ready, placed.refused, sender.status.refused, placed.passed, placed.blocked, memory_failed)
        flags_before = Signal.like(flags)
        blocks.show(
            m, self, registers, taken, placed, blocks.reads,
            ready=ready, refused=placed.refused | placed.passed, source_refused=sender.status.refused,
            passed=placed.passed, blocked=placed.blocked, memory_failed=memory_failed,
        )  # fmt: skip
        m.d.comb += [
            registers.REFUSED_LENGTH.value.eq(placed.header.length),
            *(registers.show(f"REFUSED_{n}", value=swap_octets(placed.header.octets.word_select(n, 32)))
              for n in range(HEADER_WORDS)),
            blocks.loader.show.eq(registers.SOURCE.pop),
            registers.SOURCE.value.eq(blocks.loader.shown),
            self.irq.eq(completions.o.valid | done_changed | status_changed),
        ]  # fmt: skip
        with m.If(registers.RECEIVED.pop):
            m.d.sync += taken.eq(completions.o.payload)
        done_now = sender.sent | (receiver.note == Note.READ)
        m.d.sync += [
            done.sent.eq(done.sent + sender.sent),
            done.reads.eq(done.reads + (receiver.note == Note.READ)),
            done_changed.eq(done_now | (done_changed & ~done.pop)),
            flags_before.eq(flags),
            status_changed.eq((flags != flags_before) | (status_changed & ~status.pop)),
            registers.ULPDUS.received.eq(registers.ULPDUS.received + placed.ulpdu),
            registers.ULPDUS.sent.eq(registers.ULPDUS.sent + sender.ulpdu),
        ]

