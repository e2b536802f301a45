"""Finds the connection of a segment by its addresses and ports."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.rows import connection_shape

__all__ = ["Tuples"]

GROUP = 16  # connections that are compared one after the other


class Tuples(wiring.Component):
    """The addresses and ports of ``connections`` connections.

    ``ports`` has the port of this end in its upper half. A connection whose address is 0 and whose peer's port is 0
    listens; it is found if no other fits. Ports of 0 are those of no connection.

    Latency: ``connections`` + 1 cycles after ``look``, but 17 at most: groups of 16 are searched at the same time.

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
        index = connection_shape(connections)
        super().__init__({
            "bind_address": In(1), "bind_ports": In(1), "value": In(32), "connection": In(index),
            "look": In(1), "address": In(32), "ports": In(32),
            "done": Out(1), "hit": Out(1), "found": Out(index),
            "show": In(index), "shown_address": Out(32), "shown_ports": Out(32),
            "peer_of": In(index), "peer_address": Out(32),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        rows = min(self.connections, GROUP)
        groups = self.connections // rows
        bits = (rows - 1).bit_length()
        at = Signal(range(rows + 1))  # of a group
        values = {}
        for name, written, shown in (
            ("addresses", self.bind_address, self.shown_address), ("ports", self.bind_ports, self.shown_ports),
        ):  # fmt: skip
            row = data.ArrayLayout(32, groups)
            m.submodules[name] = memory = Memory(shape=row, depth=max(2, rows), init=[])
            write = memory.write_port(granularity=1)
            read = memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(written << self.connection[bits:]), write.addr.eq(self.connection[:bits]),
                write.data.as_value().eq(self.value.replicate(groups)), read.addr.eq(at),
            ]  # fmt: skip
            values[name] = read.data
            self._show(m, memory, self.show, bits, shown)
            if name == "addresses":
                self._show(m, memory, self.peer_of, bits, self.peer_address)
        compared = Signal()  # the comparisons belong to row ``before``
        before = Signal(range(rows + 1))
        exact = Signal()  # the hit is no listener
        finds = Signal(groups)  # in which group
        listens = Signal(groups)  # in which group, for a listener
        for n in range(groups):
            same_address, same_ports, same_port, open_address, open_port = (
                Signal(name=f"{name}_{n}") for name in
                ("same_address", "same_ports", "same_port", "open_address", "open_port")  # same_port: of this end
            )  # fmt: skip
            address, ports = values["addresses"][n], values["ports"][n]
            m.d.sync += [
                same_address.eq(address == self.address),
                same_ports.eq(ports[:16] == self.ports[:16]),
                same_port.eq((ports[16:] == self.ports[16:]) & (self.ports[16:] != 0)),
                open_address.eq(address == 0),
                open_port.eq(ports[:16] == 0),
            ]
            m.d.comb += [
                finds[n].eq(same_port & same_address & same_ports),
                listens[n].eq(same_port & open_address & open_port),
            ]
        m.d.sync += [before.eq(at), compared.eq(~self.done & (at != rows))]
        with m.If(at != rows):
            m.d.sync += at.eq(at + 1)
        with m.If(compared & ~exact & (finds.any() | listens.any())):
            m.d.sync += [self.hit.eq(1), exact.eq(finds.any())]
            for n in range(groups):
                with m.If(Mux(finds.any(), finds[n], listens[n])):
                    m.d.sync += self.found.eq(Cat(before[:bits], Const(n, len(self.found) - bits)))
        with m.If(compared & (before == rows - 1)):
            m.d.sync += self.done.eq(1)
        with m.If(self.look | self.bind_address | self.bind_ports):
            m.d.sync += [at.eq(0), self.done.eq(0), self.hit.eq(0), exact.eq(0), compared.eq(0)]
        return m

    def _show(self, m, memory, connection, bits, shown):
        """Show the word of a connection."""
        read = memory.read_port(domain="comb")
        m.d.comb += [read.addr.eq(connection[:bits]), shown.eq(read.data[connection[bits:]])]
