"""The engines of RDMA and TCP beside the MPA blocks of :mod:`.segment`, with the ports that a simulation needs."""

# mypy: ignore-errors

from amaranth.hdl import Module, ResetSignal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu, packet
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.registers.bus import RegisterBus
from open_rnic.rtl.tcp.engine import CommandLayout
from open_rnic.rtl.tcp.path import NetworkPath

__all__ = ["STORE", "Placement", "Transport"]

STORE = 4096  # octets: ULPDUs that wait for their verdict, as in :class:`.RdmaDatapath`


class Placement(wiring.Component):
    """A :class:`.RdmaEngine` that gets good ULPDUs only, as in :class:`.RdmaDatapath`.

    Members
    -------
    rx_ulpdu : In, stream of :class:`.RxUlpdu`
    tx_ulpdu : Out, stream of :class:`.TxUlpdu`
    memory : Out, :class:`.MemoryPort`
    bus : In, :class:`.RegisterBus`
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "rx_ulpdu": In(stream.Signature(RxUlpdu(lanes))),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(lanes))),
            "memory": Out(MemoryPort(lanes)),
            "bus": In(RegisterBus()),
        })

    def elaborate(self, platform):  # noqa: D102
        m = Module()
        m.submodules.store = store = StoreAndForward(self.lanes, STORE)
        m.submodules.engine = engine = RdmaEngine(self.lanes)
        connect(m, flipped(self.rx_ulpdu), store.i)
        connect(m, store.o, engine.rx_ulpdu)
        connect(m, engine.tx_ulpdu, flipped(self.tx_ulpdu))
        connect(m, engine.memory, flipped(self.memory))
        connect(m, flipped(self.bus), engine.bus)
        m.d.comb += [engine.host_rx.ready.eq(1), engine.reset.eq(ResetSignal())]
        return m


class Transport(wiring.Component):
    """Two network paths, joined by wires that carry a beat in each cycle: octets pass from ``a`` to ``b``.

    ``lanes`` is 1. With ``replays``, frames come to ``b`` from the port ``frames`` in the place of those of ``a``.

    Members
    -------
    tick : In, 1 bit
        Of both paths.
    replays : In, 1 bit
    frames : In, stream of :class:`.Packet`
        Always ready.
    a_command, b_command : In, stream of :class:`.CommandLayout`
    a_status, b_status : Out, 16 bits
        The state of their connection.
    to_send : In, stream of :class:`.Packet`
        Of ``a``.
    received : Out, stream of :class:`.Packet`
        Of ``b``.
    sent : Out, stream of :class:`.Packet`
        The frames of ``a``; ``ready`` is ignored.
    """

    def __init__(self, lanes: int = 1):
        if lanes != 1:
            raise ValueError(f"TCP in RTL has 1 lane, not {lanes!r}")
        super().__init__({
            "tick": In(1),
            "replays": In(1),
            "frames": In(packet(1)),
            **{f"{side}_command": In(stream.Signature(CommandLayout(1))) for side in "ab"},
            **{f"{side}_status": Out(16) for side in "ab"},
            "to_send": In(packet(1)),
            "received": Out(packet(1)),
            "sent": Out(packet(1)),
        })

    def elaborate(self, platform):  # noqa: D102
        m = Module()
        paths = {side: NetworkPath(1) for side in "ab"}
        for number, (side, path) in enumerate(paths.items()):
            m.submodules[side] = path
            connect(m, flipped(getattr(self, f"{side}_command")), path.command)
            m.d.comb += [
                path.tick.eq(self.tick),
                path.mac.eq(0x02_00_00_00_00_00 | number),
                path.address.eq(0x0A_00_00_01 + number),
                path.prefix.eq(0xFFFF_FF00),
                path.accept.eq(1),
                getattr(self, f"{side}_status").eq(path.view.status),
            ]
        a, b = paths.values()
        wire = packet(1).create()
        m.d.comb += [
            *_joined(self.to_send, a.to_send),
            *_joined(b.received, self.received),
            *_joined(b.tx_frames, a.rx_frames),
            *_joined(wire, b.rx_frames),
            self.sent.valid.eq(a.tx_frames.valid),
            self.sent.payload.eq(a.tx_frames.payload),
            a.tx_frames.ready.eq(1),
            self.frames.ready.eq(1),
        ]
        with m.If(self.replays):
            m.d.comb += [wire.valid.eq(self.frames.valid), wire.payload.eq(self.frames.payload)]
        with m.Else():
            m.d.comb += [wire.valid.eq(a.tx_frames.valid), wire.payload.eq(a.tx_frames.payload)]
        return m


def _joined(source, sink):
    """Connect two streams of packets, whose payloads may have further fields."""
    yield from (sink.valid.eq(source.valid), source.ready.eq(sink.ready))
    yield from (getattr(sink.payload, name).eq(getattr(source.payload, name)) for name in ("data", "octets", "last"))
