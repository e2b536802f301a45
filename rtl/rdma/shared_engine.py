"""The RDMA engine of many connections: the blocks of the engine, joined."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring

from open_rnic.rtl.lib.rows import Cells, forget
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.rdma.command_switch import CommandSwitch
from open_rnic.rtl.rdma.engine_blocks import EngineBlocks
from open_rnic.rtl.rdma.receiver import Note
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, RDMA_MAP
from open_rnic.rtl.registers.bank import RegisterBank

__all__ = ["OUTSIDE", "SharedEngine"]

OUTSIDE = ("CONTROL", "LIMITS")  # registers that are not kept by the register bank
_MULPDU = BY_NAME["RDMA_LIMITS"]["mulpdu"].reset


class SharedEngine(EngineBlocks):
    """What a :class:`.RdmaEngine` of many connections is made of.

    Numbers, and the flags that the host writes, are in LUT RAM (:class:`.Cells`), or in the block RAM of queues; other
    flags are in flip-flops, a bit for each connection.
    """

    def __init__(self, engine):
        super().__init__(engine)
        self._engine = engine
        self._connections = engine.connections
        self.registers = RegisterBank(RDMA_MAP, outside=OUTSIDE)

    def module(self):
        """Return the engine's module."""
        m = Module()
        m.submodules.registers = self.registers
        self.place(m, self._engine, wiring.flipped(self._engine.memory.words))
        parts = _Parts(self._engine)
        self._clear(m, parts)
        self._access(m, parts)
        self._command(m, parts)
        self._set(m, parts)
        self._join(m, parts)
        self._show(m, parts)
        return m

    def _clear(self, m, parts):
        """Clear a connection when the engine has come to rest."""
        engine = self._engine
        m.d.comb += [
            *(Value.cast(block.clear).eq(parts.clear) for block in (
                self.commands, self.table, self.receiver, self.completions, self.loader, self.sender, self.reads,
            )),
            parts.quiet.eq(engine.resets & self.receiver.turn.idle & self.loader.idle & self.sender.turn.idle
                       & ~engine.tx_ulpdu.valid & parts.all_commands_given),
            engine.idle.eq(parts.quiet & ~parts.accessing),
        ]  # fmt: skip

    def _access(self, m, parts):
        """Accesses of the host, of which some wait until the block can show what they read."""
        bus, inner, receiver, loader = self._engine.bus, self.registers.bus, self.receiver, self.loader
        address = bus.address[:8]

        def reads(*names):
            return address.matches(*(BY_NAME[f"RDMA_{name}"].address >> 2 & 0xFF for name in names))

        begins = Signal()
        m.d.comb += [
            parts.page.eq(Mux(bus.request, bus.address[8:], parts.turn)),
            receiver.turn.visit.eq(parts.page),
            receiver.turn.visits.eq(bus.request & reads("RX_SEND_MSN", "RX_READ_MSN", "RX_MO", "RX_ARRIVED")),
            loader.shown.reads.eq(bus.request & reads("SOURCE")),
            self.completions.last.eq(reads("RECEIVED_OCTETS", "RECEIVED_STAG")),
            receiver.shown.word.eq(Mux(reads("REFUSED_LENGTH"), HEADER_WORDS,
                                       address - (BY_NAME["RDMA_REFUSED_0"].address >> 2 & 0xFF))),
            begins.eq(~parts.clear.now & ~parts.quiet & (~receiver.turn.visits | receiver.turn.visited)
                      & (~loader.shown.reads | ~loader.shown.busy)),
            inner.request.eq(bus.request & (begins | parts.accessing)),
            inner.write.eq(bus.write),
            inner.address.eq(address),
            inner.write_data.eq(bus.write_data),
            bus.ack.eq(inner.ack),
            bus.read_data.eq(inner.read_data),
        ]  # fmt: skip
        m.d.sync += parts.accessing.eq(inner.request & ~inner.ack)
        with m.If(~bus.request):
            m.d.sync += parts.turn.eq(parts.turn + 1)

    def _command(self, m, parts):
        """Give the loaders the commands of the host, and of the fabric."""
        engine, commands, command = self._engine, self.commands, self.registers.COMMAND
        if not engine.has_fabric:
            m.d.comb += [
                commands.push.eq(command.push),
                commands.word.eq(command.value),
                commands.connection.eq(parts.page),
                parts.all_commands_given.eq(1),
            ]
            return
        m.submodules.command_switch = switch = CommandSwitch(self._connections)
        wiring.connect(m, wiring.flipped(engine.fabric), switch.fabric)
        m.d.comb += [
            switch.push.eq(command.push),
            switch.word.eq(command.value),
            switch.connection.eq(parts.page),
            switch.fabric_connection.eq(engine.fabric_connection),
            engine.fabric_done_of.eq(self.sender.turn.sent_of),
            switch.holds.eq(engine.resets),
            switch.ends.eq(commands.ends),
            Value.cast(switch.clear).eq(parts.clear),
            commands.push.eq(switch.gives),
            commands.word.eq(switch.given),
            commands.connection.eq(switch.given_connection),
            parts.all_commands_given.eq(switch.idle),
        ]

    def _set(self, m, parts):
        """The registers that the host writes."""
        engine, receiver, sender, loader = self._engine, self.receiver, self.sender, self.loader
        sends, processed = engine.sends, engine.processed
        control, limits = self.registers.CONTROL, self.registers.LIMITS
        shape = data.StructLayout({field.name: 1 for field in BY_NAME["RDMA_CONTROL"].fields})
        flags = Signal(shape)  # in the order of the register
        all_flags = Cells(m, Value.cast(flags), self._connections, parts.page, parts.clear)
        with m.If(control.written):
            all_flags.write(m, control.word[: shape.size])

        def flags_of(connection):
            return data.View(shape, all_flags.read(m, connection))

        def is_blocked(flags, connection):
            """Whether no Send of the connection may be given."""
            any_buffer = self.commands.any.bit_select(connection, 1) & ~receiver.turn.returns.bit_select(connection, 1)
            return flags.enable & flags.waits & ~flags.drops & ~parts.refused.bit_select(connection, 1) & ~any_buffer

        m.d.comb += self.registers.show("CONTROL", **{name: flags[name] for name in shape.members})
        checked, sending = flags_of(receiver.turn.active), flags_of(loader.active)
        cells = {}
        for field in BY_NAME["RDMA_LIMITS"].fields:
            number = Signal(field.width, name=field.name)
            cells[field.name] = Cells(m, number, self._connections, parts.page, parts.clear)
            with m.If(limits.written):
                cells[field.name].write(m, limits.word[field.lsb : field.lsb + field.width] ^ field.reset)
            m.d.comb += self.registers.show("LIMITS", **{field.name: number ^ field.reset})
        starts = Signal()
        m.d.comb += [
            *([engine.fabric_enabled.eq(flags_of(engine.fabric_connection).enable)] if engine.has_fabric else []),
            starts.eq(control.written & control.word[0] & ~flags.enable),
            engine.rtr.sends_of.eq(parts.page),
            sender.settings.starts.eq(starts),
            sender.turn.starts_of.eq(parts.page),
            self.reads.starts.eq(starts),
            self.reads.turn.starts.eq(parts.page),
            sender.settings.mulpdu.eq(cells["mulpdu"].read(m, loader.active) ^ _MULPDU),
            receiver.settings.ird.eq(cells["ird"].read(m, receiver.turn.active)),
            loader.may_read.eq(self.reads.outstanding < cells["ord"].read(m, loader.active)),
            receiver.settings.enable.eq(flags_of(receiver.turn.connection).enable),
            receiver.settings.stopped.eq(parts.refused.bit_select(receiver.turn.connection, 1)),
            receiver.settings.drops.eq(checked.drops),
            receiver.settings.shut.eq(checked.shut),
            parts.memory_failed.eq(receiver.status.failed | sender.status.failed),
            parts.refused.eq(receiver.status.refused | receiver.status.passed
                             | sender.status.refused | parts.memory_failed),
            engine.transmit_gate.connection.eq(loader.active),
            loader.runs.eq(sending.enable & ~sending.stop & ~parts.refused.bit_select(loader.active, 1)
                           & engine.transmit_gate.room & engine.transmit_gate.opens & ~engine.resets),
            sender.settings.runs.eq(loader.runs),
            sends.blocked.eq(is_blocked(flags_of(sends.connection), sends.connection)),
            parts.blocked.eq(is_blocked(flags, parts.page) & sends.waiting.bit_select(parts.page, 1)),
            sends.returns.eq(receiver.turn.returns),
            processed.checked.eq(receiver.turn.checked),
            processed.checked_of.eq(receiver.turn.active),
            processed.dropped.eq(receiver.turn.dropped),
            processed.dropped_of.eq(receiver.turn.connection),
            receiver.turn.sends_coming.eq(sends.coming),
        ]  # fmt: skip

    def _join(self, m, parts):
        """Show the blocks which connection the others work for."""
        engine, reads, completions, commands = self._engine, self.reads, self.completions, self.commands
        receiver, sender, loader = self.receiver, self.sender, self.loader
        m.d.comb += [
            commands.shown.eq(receiver.turn.active),
            receiver.turn.settled.eq(commands.settled & reads.settled),
            receiver.turn.withdraws.eq(commands.withdraws),
            receiver.turn.withdraws_of.eq(commands.withdraws_of),
            receiver.turn.rtr_of.eq(engine.rtr.connection),
            reads.turn.loader.eq(loader.active),
            reads.turn.sender.eq(sender.segments.connection),
            reads.turn.receiver.eq(receiver.turn.active),
            reads.turn.placed.eq(receiver.turn.note_of),
            reads.turn.rtr.eq(engine.rtr.connection),
            loader.shown.number.eq(reads.shown.oldest),
            completions.enters_of.eq(receiver.turn.active),
            completions.completes_of.eq(Mux(receiver.completion.skips, receiver.turn.active, receiver.turn.note_of)),
        ]

    def _show(self, m, parts):
        """The registers that the host reads, and the interrupts."""
        engine, registers, completions = self._engine, self.registers, self.completions
        receiver, sender, reads, page = self.receiver, self.sender, self.reads, parts.page
        placed = receiver.status
        passed = placed.passed.bit_select(page, 1)
        flags = {
            "ready": self.table.ready.bit_select(page, 1), "refused": placed.refused.bit_select(page, 1) | passed,
            "source_refused": sender.status.refused.bit_select(page, 1), "passed": passed, "blocked": parts.blocked,
            "memory_failed": parts.memory_failed.bit_select(page, 1),
        }  # fmt: skip
        self._notice(m, parts, Cat(flags.values()))
        self._count(m, parts)
        self.show(m, engine, registers, completions.taken, receiver.shown, reads.shown, **flags)
        m.d.comb += [
            *(shown.eq(page) for shown in (
                completions.shown, receiver.shown.connection, sender.turn.shown, reads.shown.connection,
            )),
            self.loader.shown.connection.eq(page),
            registers.REFUSED_LENGTH.value.eq(receiver.shown.header),
            *(registers.show(f"REFUSED_{n}", value=swap_octets(receiver.shown.header)) for n in range(HEADER_WORDS)),
            registers.SOURCE.value.eq(self.loader.shown.word),
            self.loader.shown.steps.eq(registers.SOURCE.pop),
            engine.irq.eq(completions.any | parts.done_changed | parts.status_changed),
        ]  # fmt: skip

    def _notice(self, m, parts, flags):
        """Look at one connection after the other for flags that have changed, between accesses."""
        bus, status = self._engine.bus, self.registers.STATUS
        seen = Signal(len(flags))
        all_seen = Cells(m, seen, self._connections, parts.page, parts.clear)
        changed = Signal()
        with m.If(~parts.clear.now & (~bus.request | status.pop)):
            all_seen.write(m, flags)
            m.d.comb += changed.eq(~bus.request & (seen != flags))
        m.d.sync += parts.status_changed.eq(
            (parts.status_changed & ~(status.pop << parts.page)) | (changed << parts.page)
        )
        forget(m, parts.clear, parts.status_changed)

    def _count(self, m, parts):
        """Count ULPDUs, and the work that is done."""
        receiver, sender, done, ulpdus = self.receiver, self.sender, self.registers.DONE, self.registers.ULPDUS
        done_read = receiver.note == Note.READ
        for name, happens, of, field in (
            ("sent_messages", sender.sent, sender.turn.sent_of, done.sent),
            ("done_reads", done_read, receiver.turn.note_of, done.reads),
            ("received_ulpdus", receiver.status.ulpdu, receiver.turn.ulpdu_of, ulpdus.received),
            ("sent_ulpdus", sender.ulpdu, sender.turn.ulpdu_of, ulpdus.sent),
        ):
            number = Signal(16, name=name)
            cells = Cells(m, number, self._connections, of, parts.clear)
            with m.If(happens):
                cells.write(m, number + 1)
            m.d.comb += field.eq(cells.read(m, parts.page))
        m.d.sync += parts.done_changed.eq(
            (parts.done_changed & ~(done.pop << parts.page))
            | (sender.sent << sender.turn.sent_of) | (done_read << receiver.turn.note_of)
        )
        forget(m, parts.clear, parts.done_changed)


class _Parts:
    """The signals that the parts of a :class:`SharedEngine` share."""

    def __init__(self, engine):
        connections = engine.connections
        self.page = Signal(range(connections))  # the connection that the host accesses
        self.accessing = Signal()
        self.clear = engine.clear
        self.quiet = Signal()  # no connection's octets are in the engine, before a reset of one
        self.all_commands_given = Signal()  # to the loaders
        self.turn = Signal(range(connections))  # the connection that is looked at when the host accesses none
        self.blocked = Signal()  # a Send of connection ``page`` waits for a buffer

        # A bit for each connection.
        self.memory_failed = Signal(connections)
        self.refused = Signal(connections)  # nothing more is received, and the engine sends nothing
        self.done_changed = Signal(connections)
        self.status_changed = Signal(connections)
