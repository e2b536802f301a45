"""The registers of a network path in gateware."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.net.layouts import Counts
from open_rnic.rtl.registers import of_connections, with_resets, words_of
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus
from open_rnic.rtl.tcp.config import EngineConfig, Station
from open_rnic.rtl.tcp.engine import CommandLayout, ConnectionView
from open_rnic.rtl.tcp.registers import PATH_MAP

__all__ = ["PathControl"]


class PathControl(wiring.Component):
    """The registers of :data:`.PATH_MAP`, for a :class:`.NetworkPath` and its data paths.

    ``station`` has the addresses at power-on.

    Members
    -------
    bus : In, :class:`.RegisterBus`
    irq : Out, 1 bit
        CHANGED is not 0.
    mac, address, prefix, gateway, command, view : Out
    changed : In
        The members of :class:`.NetworkPath`.
    counts : In, :class:`.Counts`
    conflict : In, 1 bit
        Frames that are counted.
    accept : Out, 1 bit for each connection
        Octets of the connection are wanted.
    packets : In, 32 bits
    octets : In, 32 bits
    finished : In, 1 bit
        The packets that the shown connection has sent, the octets that it has received, and whether these are all.
    ends : In, 1 bit for each connection
        Pulses when the last octet has been taken.
    """

    def __init__(self, connections: int, config: EngineConfig, station: Station | None = None):
        self.station = station or Station()
        self.connections = connections
        self.config = config
        super().__init__({
            "bus": In(RegisterBus()), "irq": Out(1),
            "mac": Out(48), "address": Out(32), "prefix": Out(32), "gateway": Out(32), "accept": Out(connections),
            "command": Out(stream.Signature(CommandLayout(connections))), "view": Out(ConnectionView(connections)),
            "changed": In(connections),
            "counts": In(Counts()), "conflict": In(1),
            "packets": In(32), "octets": In(32), "finished": In(1), "ends": In(connections),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        resets = {name: {"value": word} for name, word in self.station.registers.items()}
        m.submodules.bank = bank = RegisterBank(of_connections(with_resets(PATH_MAP, resets), self.connections))
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        changed = Signal(self.connections)
        changes = words_of("CHANGED", self.connections)
        command = self.command.payload
        m.d.comb += [
            *bank.show("CAPABILITIES", connections=self.connections, send_ring=self.config.send_ring.bit_length() - 1,
                       receive_ring=self.config.receive_ring.bit_length() - 1),
            self.mac.eq(Cat(bank.MAC_LO.value, bank.MAC_HI.value)),
            self.address.eq(bank.ADDRESS.value),
            self.prefix.eq(bank.PREFIX.value),
            self.gateway.eq(bank.GATEWAY.value),
            self.accept.eq(bank.words(words_of("ACCEPT", self.connections))),
            command.kind.eq(bank.COMMAND.kind),
            command.connection.eq(bank.COMMAND.connection),
            command.ports.eq(Cat(bank.COMMAND_PORTS.peer, bank.COMMAND_PORTS.local)),
            command.address.eq(bank.COMMAND_ADDRESS.value),
            command.iss.eq(bank.COMMAND_ISS.value),
            bank.COMMAND.pending.eq(self.command.valid),
            bank.words(changes).eq(changed),
            self.irq.eq(changed.any()),
            self.view.show.eq(bank.CONNECTION.value),
            bank.STATUS.status.eq(self.view.status),
            bank.STATUS.finished.eq(self.finished),
            bank.PEER.value.eq(self.view.peer),
            Cat(bank.PORTS.peer, bank.PORTS.local).eq(self.view.ports),
            bank.PACKETS.value.eq(self.packets),
            bank.OCTETS.value.eq(self.octets),
        ]
        m.d.sync += changed.eq((changed & ~bank.words(changes, "clear_value")) | self.changed | self.ends)
        for register, counted in (
            (bank.RX_NO_ROOM, self.counts.no_room), (bank.RX_CHECKSUM, self.counts.checksum),
            (bank.RX_IGNORED, self.counts.ignored), (bank.CONFLICTS, self.conflict),
        ):  # fmt: skip
            m.d.sync += register.value.eq(register.value + counted)
        with m.If(bank.COMMAND.go):
            m.d.sync += self.command.valid.eq(1)
        with m.Elif(self.command.ready):
            m.d.sync += self.command.valid.eq(0)
        return m

    def attach(self, m: Module, path) -> None:
        """Connect the registers to ``path``, a :class:`.NetworkPath`."""
        wiring.connect(m, self.command, path.command)
        wiring.connect(m, self.view, path.view)
        m.d.comb += [
            path.mac.eq(self.mac),
            path.address.eq(self.address),
            path.prefix.eq(self.prefix),
            path.gateway.eq(self.gateway),
            self.changed.eq(path.changed),
            self.counts.eq(path.counts),
            self.conflict.eq(path.conflict),
        ]
