"""A network path in simulation: TCP in RTL, with rings in memory for its frames and octets."""

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.rings import Simulated
from open_rnic.host_driver.devices.sim.slow_memory import slow_memories
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.tcp.config import EngineConfig, RingMemory
from open_rnic.rtl.tcp.path import NetworkPath


def tick_cycles(connections: int) -> int:
    """Return the number of cycles from one tick to the next, at least: time for the timers of all connections."""
    return 8 * max(4, connections)


class Ticks(wiring.Component):  # type: ignore[misc]
    """Ticks at a distance that the RTL of so many connections can follow.

    A tick for each millisecond of real time may be too much for it: the timers of the last connections, and segments to
    send, would then wait for those of the first ones for ever. Its time goes more slowly instead.

    Members
    -------
    due : the number of ticks by now, modulo 2**16
    done : the number of ticks so far
    tick : a pulse
    """

    def __init__(self, connections: int):
        self._cycles = tick_cycles(connections)
        super().__init__({"due": In(16), "done": Out(16), "tick": Out(1)})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        pause = Signal(range(self._cycles))
        m.d.comb += self.tick.eq((self.done != self.due) & (pause == 0))
        with m.If(self.tick):
            m.d.sync += [self.done.eq(self.done + 1), pause.eq(self._cycles - 1)]
        with m.Elif(pause != 0):
            m.d.sync += pause.eq(pause - 1)
        return m


def ticks(m: Module, top: Simulated, connections: int, tick: Signal, domain: str = "sync") -> None:
    """Connect the ``tick`` of RTL in a clock domain."""
    m.submodules.ticks = ticks = DomainRenamer(domain)(Ticks(connections))
    m.d.comb += [ticks.due.eq(top.control.ticks), top.status.ticks.eq(ticks.done), tick.eq(ticks.tick)]


class SimulatedPath(Simulated):
    """A ``rtl.tcp.path.NetworkPath``, and slow memories for its rings if it has none."""

    def __init__(self, path: NetworkPath, latency: int = 0, seed: int = 0):
        self._path = path
        self._slow = latency, seed
        super().__init__(layout.path(path.engine.connections))

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        control, status, connections = self.control, self.status, self._path.engine.connections
        m.submodules.path = path = self._path
        for name, slow in slow_memories(path, *self._slow).items():
            m.submodules[name] = slow
            wiring.connect(m, getattr(path, name), slow.port)
        for name in ("rx_frames", "to_send"):
            self.ring_in(m, name, getattr(path, name), control.flush)
        for name in ("tx_frames", "received"):
            self.ring_out(m, name, getattr(path, name), control.flush)
        m.d.comb += [
            getattr(path, name).eq(control[name]) for name in ("mac", "address", "prefix", "gateway", "accept")
        ]

        turn = Signal()
        command = path.command
        m.d.comb += [command.valid.eq(control.turn != turn), status.turn.eq(turn)]
        m.d.comb += [command.payload[name].eq(control[name]) for name in ("kind", "connection", "ports", "iss")]
        m.d.comb += command.payload.address.eq(control.peer)
        with m.If(command.valid & command.ready):
            m.d.sync += turn.eq(control.turn)
        ticks(m, self, connections, path.tick)

        show = Signal(connection_shape(connections))
        m.d.comb += path.view.show.eq(show)
        m.d.sync += show.eq(show + 1)
        for at in range(connections):
            with m.If(show == at):
                m.d.sync += [
                    status[f"{name}_{at}"].eq(getattr(path.view, name)) for name in ("status", "peer", "ports")
                ]
        return m


def make(
    connections: str, send_ring: str, receive_ring: str, latency: str = "", seed: str = "0"
) -> SimulatedPath:
    """Return a path for so many connections, with rings of so many octets, with ``latency`` in slow memories."""
    outside = RingMemory() if latency else None
    config = EngineConfig(send_ring=int(send_ring), receive_ring=int(receive_ring), memory=outside)
    return SimulatedPath(NetworkPath(int(connections), config), int(latency or 0), int(seed))
