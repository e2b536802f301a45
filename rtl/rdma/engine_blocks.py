"""The blocks of an RDMA engine, and what joins them whatever the number of connections."""

from amaranth.hdl import Module, Mux
from amaranth.lib import wiring

from open_rnic.rtl.rdma.command_loader import CommandLoader
from open_rnic.rtl.rdma.completion_queue import CompletionQueue
from open_rnic.rtl.rdma.message_loader import MessageLoader
from open_rnic.rtl.rdma.read_counter import ReadCounter
from open_rnic.rtl.rdma.receiver import Note, RdmaReceiver
from open_rnic.rtl.rdma.regions import RegionTable
from open_rnic.rtl.rdma.sender import RdmaSender
from open_rnic.rtl.rdma.shared_loader import SharedLoader
from open_rnic.rtl.rdma.ulpdu_switch import UlpduSwitch
from open_rnic.rtl.registers import Rtr

__all__ = ["EngineBlocks"]


class EngineBlocks:
    """The blocks of an engine of one connection, or of many."""

    def __init__(self, engine):
        lanes, regions, reads, connections = engine.lanes, engine.regions, engine.reads, engine.connections
        self.commands = CommandLoader(regions, engine.buffers, connections)
        self.table = RegionTable(regions, connections)
        self.receiver = RdmaReceiver(lanes, regions, reads, connections)
        self.completions = CompletionQueue(engine.buffers, connections)
        if connections > 1:
            work = 2 * engine.work if engine.has_fabric else engine.work
            self.loader = SharedLoader(lanes, regions, work, reads, connections)
        else:
            self.loader = MessageLoader(lanes, regions, 2 * engine.work, reads)
        self.sender = RdmaSender(lanes, connections)
        self.switch = UlpduSwitch(lanes, connections)
        self.reads = ReadCounter(reads, connections)

    def place(self, m: Module, engine, words) -> None:
        """Add the blocks to the module, and join them and the engine's ports; ``words`` come from memory."""
        m.submodules.commands, m.submodules.table, m.submodules.receiver = self.commands, self.table, self.receiver
        m.submodules.completions, m.submodules.loader = self.completions, self.loader
        m.submodules.sender, m.submodules.switch, m.submodules.reads = self.sender, self.switch, self.reads
        self._stream(m, engine, words)
        self._look_up(m)
        self._post(m, engine)
        self._count_reads(m, engine)

    def _stream(self, m, engine, words):
        """Connect the streams of octets."""
        connect, flipped = wiring.connect, wiring.flipped
        receiver, sender, switch, memory = self.receiver, self.sender, self.switch, engine.memory
        connect(m, flipped(engine.rx_ulpdu), receiver.i)
        connect(m, receiver.host, flipped(engine.host_rx))
        connect(m, sender.o, switch.engine)
        connect(m, flipped(engine.host_tx), switch.host)
        connect(m, switch.o, flipped(engine.tx_ulpdu))
        connect(m, receiver.write, flipped(memory.write))
        connect(m, sender.read, flipped(memory.read))
        connect(m, words, sender.words)
        m.d.comb += [sender.fault.eq(memory.fault), receiver.write_fault.eq(memory.write_fault)]

    def _look_up(self, m):
        """Connect the STag table to the commands that write it, and to the blocks that look regions up."""
        commands, table, receiver, loader = self.commands, self.table, self.receiver, self.loader
        wiring.connect(m, commands.region, table.write)
        wiring.connect(m, receiver.lookup, table.receive)
        wiring.connect(m, loader.lookup, table.transmit)
        wiring.connect(m, table.answer, receiver.answer, loader.answer)
        m.d.comb += [
            commands.free.eq(table.free),
            table.revoke.eq(commands.revoke),
            table.step.eq(receiver.step),
            table.invalidate.eq(receiver.invalidate.valid),
            table.invalidate_row.eq(receiver.invalidate.row),
            loader.step.eq(receiver.step),
        ]

    def _post(self, m, engine):
        """Give the posted buffers to receive, and the messages to transmit; count the Sends that are complete."""
        commands, receiver, loader, sender = self.commands, self.receiver, self.loader, self.sender
        wiring.connect(m, commands.buffers, receiver.buffer)
        wiring.connect(m, commands.work, loader.words)
        wiring.connect(m, loader.message, sender.message)
        wiring.connect(m, loader.fragment, sender.fragment)
        wiring.connect(m, sender.segments, loader.segments)
        m.d.comb += [
            *([engine.fabric_done.eq(sender.fabric_sent)] if engine.has_fabric else []),
            sender.settings.send_rtr.eq(engine.rtr.sends == Rtr.SEND),
            sender.settings.read_rtr.eq(engine.rtr.sends == Rtr.READ),
            receiver.rtr.eq(engine.rtr.received),
            self.completions.i.eq(receiver.completion.send),
            self.completions.enters.eq(receiver.completion.enters | receiver.completion.skips),
            self.completions.complete.eq((receiver.note == Note.SEND) | receiver.completion.skips),
        ]

    def _count_reads(self, m, engine):
        """Count the RDMA Reads of both ends."""
        receiver, loader, sender, reads = self.receiver, self.loader, self.sender, self.reads
        wiring.connect(m, reads.sinks, receiver.sink)
        wiring.connect(m, receiver.requests, loader.requests)
        m.d.comb += [
            loader.no_reads.eq(reads.none),
            reads.asks.eq(sender.asks),
            reads.asked.eq(sender.asked),
            reads.answered.eq(receiver.note == Note.READ),
            reads.requested.eq(receiver.status.requested),
            reads.answers.eq(sender.answers),
            reads.read_rtr.eq(engine.rtr.sends == Rtr.READ),
            reads.rtr_answered.eq(engine.rtr.answered),
            receiver.settings.outstanding.eq(reads.requests),
        ]

    def show(self, m: Module, engine, registers, taken, begun, reads, **flags) -> None:
        """Show the host the Send ``taken`` last, the messages ``begun``, the ``reads``, and the ``flags`` of STATUS."""
        placed, sent = self.receiver.status, self.sender.status
        completions, received = self.completions, registers.RECEIVED
        m.d.comb += [
            *registers.show("CAPABILITIES", **engine.capabilities),
            received.valid.eq(completions.o.valid),
            received.opcode.eq(Mux(completions.o.valid, completions.o.payload.opcode, 0)),
            completions.o.ready.eq(received.pop),
            registers.RECEIVED_OCTETS.value.eq(taken.octets),
            registers.RECEIVED_STAG.value.eq(taken.stag),
            *registers.show(
                "STATUS", **flags, placing=placed.placing, send_begun=begun.send_begun, write_begun=begun.write_begun,
                sending=sent.sending, reads=reads.outstanding, requests=reads.requests,
            ),
            registers.RX_SEND_MSN.value.eq(placed.send_msn),
            registers.RX_READ_MSN.value.eq(placed.read_msn),
            registers.RX_MO.value.eq(placed.mo),
            registers.RX_ARRIVED.value.eq(placed.arrived),
            registers.SOURCE_LEFT.value.eq(sent.left),
        ]
