"""Finds the connection of a segment by its addresses and ports."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["Tuples"]


class Tuples(wiring.Component):
    """The addresses and ports of ``connections`` connections.

    ``ports`` has the port of this end in its upper half. A connection whose address is 0 and whose peer's port is 0
    listens; it is found if no other fits. Ports of 0 are those of no connection.

    Latency: ``connections`` + 1 cycles after ``look``.

    Members
    -------
    bind_address, bind_ports : In, 1 bit
        Write ``value`` for ``connection``.
    value : In, 32 bits
    connection : In
    look : In, 1 bit
        Look up ``address`` and ``ports``, which stay until ``done``.
    address, ports : In, 32 bits
    done : Out, 1 bit
        The result is valid. It is 0 again after a change, when the search begins anew, and after ``look``.
    hit : Out, 1 bit
    found : Out
        The connection.
    show, peer_of : In
        A connection.
    shown_address, shown_ports : Out, 32 bits
        The address and ports of ``show``.
    peer_address : Out, 32 bits
        The address of ``peer_of``.
    """

    def __init__(self, connections: int):
        self.connections = connections
        index = range(max(2, connections))
        super().__init__({
            "bind_address": In(1), "bind_ports": In(1), "value": In(32), "connection": In(index),
            "look": In(1), "address": In(32), "ports": In(32),
            "done": Out(1), "hit": Out(1), "found": Out(index),
            "show": In(index), "shown_address": Out(32), "shown_ports": Out(32),
            "peer_of": In(index), "peer_address": Out(32),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        at = Signal(range(self.connections + 1))
        values = {}
        for name, written, shown in (
            ("addresses", self.bind_address, self.shown_address), ("ports", self.bind_ports, self.shown_ports),
        ):  # fmt: skip
            m.submodules[name] = memory = Memory(shape=32, depth=max(2, self.connections), init=[])
            write = memory.write_port()
            read = memory.read_port(domain="comb")
            show = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(written), write.addr.eq(self.connection), write.data.eq(self.value),
                read.addr.eq(at), show.addr.eq(self.show), shown.eq(show.data),
            ]  # fmt: skip
            values[name] = read.data
            if name == "addresses":
                peer = memory.read_port(domain="comb")
                m.d.comb += [peer.addr.eq(self.peer_of), self.peer_address.eq(peer.data)]
        same_address = Signal()
        same_ports = Signal()
        same_port = Signal()  # of this end
        open_address = Signal()
        open_port = Signal()
        compared = Signal()  # the comparisons belong to connection ``before``
        before = Signal(range(self.connections + 1))
        exact = Signal()  # the hit is no listener
        m.d.sync += [
            same_address.eq(values["addresses"] == self.address),
            same_ports.eq(values["ports"][:16] == self.ports[:16]),
            same_port.eq((values["ports"][16:] == self.ports[16:]) & (self.ports[16:] != 0)),
            open_address.eq(values["addresses"] == 0),
            open_port.eq(values["ports"][:16] == 0),
            before.eq(at),
            compared.eq(~self.done & (at != self.connections)),
        ]
        with m.If(at != self.connections):
            m.d.sync += at.eq(at + 1)
        with m.If(compared & same_port & ~exact):
            with m.If(same_address & same_ports):
                m.d.sync += [self.hit.eq(1), self.found.eq(before), exact.eq(1)]
            with m.Elif(open_address & open_port):
                m.d.sync += [self.hit.eq(1), self.found.eq(before)]
        with m.If(compared & (before == self.connections - 1)):
            m.d.sync += self.done.eq(1)
        with m.If(self.look | self.bind_address | self.bind_ports):
            m.d.sync += [at.eq(0), self.done.eq(0), self.hit.eq(0), exact.eq(0), compared.eq(0)]
        return m
