"""A network path: Ethernet frames at one side, octets of TCP connections at the other."""

from collections.abc import Iterable

from amaranth.hdl import Module, ShapeLike
from amaranth.lib import wiring
from amaranth.lib.wiring import connect

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.net.net import Net
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.engine import TcpEngine

__all__ = ["NetworkPath"]


class NetworkPath(wiring.Component):
    """A :class:`.Net` and a :class:`.TcpEngine`.

    ``rx_frames`` ▸ Net ▸ segments ▸ TcpEngine ▸ ``received``; ``to_send`` ▸ TcpEngine ▸ segments ▸ Net ▸ ``tx_frames``.

    Members
    -------
    tick : In, 1 bit
        A pulse each millisecond.
    all others
        The members of the two that face outwards.
    """

    def __init__(self, connections: int = 4, config: EngineConfig | None = None, *, udp_ports: Iterable[int] = (),
                 tag: ShapeLike | None = None):  # fmt: skip
        self.net = Net(udp_ports=udp_ports)
        self.engine = TcpEngine(connections, config, tag=tag)
        inner = {"tcp_rx", "tcp_tx", "tcp_soon", "segments_in", "segments_out", "soon", "cut_through", "tick"}
        self._outer = {
            part: [name for name in part.signature.members if name not in inner] for part in (self.net, self.engine)
        }
        super().__init__({
            "tick": wiring.In(1),
            **{name: part.signature.members[name] for part, names in self._outer.items() for name in names},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.net = net = self.net
        m.submodules.engine = engine = self.engine
        connect(m, net.tcp_rx, engine.segments_in)
        connect(m, engine.segments_out, net.tcp_tx)
        connect(m, engine.cut_through, net.cut_through)
        m.d.comb += [net.tick.eq(self.tick), engine.tick.eq(self.tick), engine.soon.eq(net.tcp_soon)]
        for part, names in self._outer.items():
            expose(m, part, self, names)
        return m
