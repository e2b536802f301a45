"""The logic around a block that is placed and routed by itself, and components to compare with."""

from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, ResetSignal, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISCSI
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.layouts import LinkState, RxOctets, TxOctets
from open_rnic.rtl.mac.mac import EARLY, Mac
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.port import EthernetPort
from open_rnic.rtl.mac.registers import Speed
from open_rnic.rtl.mpa import datapath

__all__ = ["DUT", "AmaranthCrc", "BothDirections", "Registered", "mac_and_phy", "port_and_phy"]

DUT = "dut"  # the block's name inside Registered
_FOLDED = 4  # inputs of a lookup table


class Registered(wiring.Component):  # type: ignore[misc]
    """A block behind four pins, ``clk``, ``rst``, ``si`` and ``so``, with registers at all its ports.

    A shift register drives all inputs of the block. The outputs are registered, and then reduced to one bit by XOR, one
    level of lookup tables per cycle. Since each output affects this bit, no logic is optimized away.

    If ``reset`` is set, the block's reset is registered, too. Otherwise, the block uses the FPGA's global reset, which
    takes no wires, and ``rst`` is unused.

    Members
    -------
    si : In(1)
        Input of the shift register.
    so : Out(1)
        XOR of all outputs.
    """

    def __init__(self, block: Any, *, reset: bool = True):
        super().__init__({"si": In(1), "so": Out(1)})
        self.block = block
        self._reset = reset

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        block = self.block
        m.domains += ClockDomain(DUT, reset_less=not self._reset)
        m.d.comb += ClockSignal(DUT).eq(ClockSignal())
        if self._reset:
            reset = Signal(reset_less=True)
            m.d.sync += reset.eq(ResetSignal())
            m.d.comb += ResetSignal(DUT).eq(reset)
        m.submodules[DUT] = DomainRenamer(DUT)(block)
        inputs: list[Value] = []
        outputs: list[Value] = []
        for _, member, port in block.signature.flatten(block):
            (inputs if member.flow is wiring.In else outputs).append(Value.cast(port))
        shifted = Signal(len(Cat(inputs)), reset_less=True)
        m.d.sync += shifted.eq(Cat(self.si, shifted))
        at = 0
        for port in inputs:
            m.d.comb += port.eq(shifted[at : at + len(port)])
            at += len(port)
        folded = Signal(len(Cat(outputs)), reset_less=True, name="registered")
        m.d.sync += folded.eq(Cat(outputs))
        while len(folded) > 1:
            groups = [folded[at : at + _FOLDED] for at in range(0, len(folded), _FOLDED)]
            folded = Signal(len(groups), reset_less=True, name="folded")
            m.d.sync += folded.eq(Cat(group.xor() for group in groups))
        m.d.comb += self.so.eq(folded)
        return m


class BothDirections(wiring.Component):  # type: ignore[misc]
    """Transmit and receive, coupled as in a data path, but without its registers, counters and events.

    Members
    -------
    tx, rx : Out(signature of the direction)
        The ports of each direction, except those that connect the two.
    """

    def __init__(self, lanes: int):
        self._halves = {"tx": datapath.TxDatapath(lanes), "rx": datapath.RxDatapath(lanes)}
        super().__init__({
            half: Out(wiring.Signature({
                name: member for name, member in component.signature.members.items() if name not in datapath.BETWEEN
            }))
            for half, component in self._halves.items()
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.tx, m.submodules.rx = tx, rx = self._halves.values()
        datapath.couple(m, tx, rx)
        for half, component in self._halves.items():
            inside = {path: port for path, _, port in component.signature.flatten(component)}
            outside = getattr(self, half)
            for path, member, port in outside.signature.flatten(outside):
                driven, value = (inside[path], port) if member.flow is wiring.In else (port, inside[path])
                m.d.comb += Value.cast(driven).eq(Value.cast(value))
        return m


class AmaranthCrc(wiring.Component):  # type: ignore[misc]
    """The CRC-32C of ``amaranth.lib.crc``, which accepts only complete words of the data path's width."""

    def __init__(self, lanes: int):
        super().__init__({"i": In(stream.Signature(32 * lanes, always_ready=True)), "start": In(1), "crc": Out(32)})
        self.lanes = lanes

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.crc = crc = CRC32_ISCSI(data_width=32 * self.lanes).create()
        m.d.comb += [
            crc.data.eq(self.i.payload),
            crc.valid.eq(self.i.valid),
            crc.start.eq(self.start),
            self.crc.eq(crc.crc),
        ]
        return m


class _Phy(wiring.Component):  # type: ignore[misc]
    """In place of an adapter to a PHY: registers for octets, in their clock domains.

    Members
    -------
    rx, tx, speed, status
        As those of :class:`.RgmiiAdapter`.
    received, sent, in_band : In(RxOctets()), Out(TxOctets()), In(LinkState())
        The other side.
    """

    def __init__(self) -> None:
        super().__init__({
            "rx": Out(RxOctets()), "tx": In(TxOctets()), "speed": In(Speed), "status": Out(LinkState()),
            "received": In(RxOctets()), "sent": Out(TxOctets()), "in_band": In(LinkState()),
        })  # fmt: skip

    def elaborate(self, platform: object) -> Module:
        m = Module()
        for name in ("strobe", "valid", "error", "data"):
            m.d.mac_rx += getattr(self.rx, name).eq(getattr(self.received, name))
        m.d.mac_tx += [
            self.tx.strobe.eq(self.sent.strobe), self.sent.valid.eq(self.tx.valid), self.sent.data.eq(self.tx.data)
        ]  # fmt: skip
        m.d.sync += self.status.eq(self.in_band)
        return m


class _AtPhy(wiring.Component):  # type: ignore[misc]
    """``block`` with the octets of ``phy`` as ports. ``join``: ``block`` does not contain ``phy``."""

    def __init__(self, block: Any, phy: _Phy, *, join: bool):
        self._block, self._phy, self._join = block, phy, join
        self._sides = {"received": phy, "sent": phy, "in_band": phy}
        if not join:
            self._sides |= dict.fromkeys(block.signature.members, block)
        else:
            self._sides |= {name: block for name in block.signature.members if "octets" not in name}
        super().__init__({name: part.signature.members[name] for name, part in self._sides.items()})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.block = self._block
        if self._join:
            m.submodules.phy = self._phy
            wiring.connect(m, self._phy.rx, self._block.rx_octets)
            wiring.connect(m, self._block.tx_octets, self._phy.tx)
        for name, part in self._sides.items():
            inside = {path: port for path, _, port in part.signature.flatten(part) if path[0] == name}
            for path, member, port in self.signature.flatten(self):
                if path[0] == name:
                    driven, value = (inside[path], port) if member.flow is wiring.In else (port, inside[path])
                    m.d.comb += Value.cast(driven).eq(Value.cast(value))
        return m


def mac_and_phy() -> wiring.Component:
    """A :class:`.Mac` whose octets pass registers in their clock domains."""
    return _AtPhy(Mac(), _Phy(), join=True)


def port_and_phy() -> wiring.Component:
    """An :class:`.EthernetPort`, as boards have it, whose octets pass registers in their clock domains."""
    phy = _Phy()
    return _AtPhy(EthernetPort(phy, 62_500_000, PhySettings(), early=EARLY), phy, join=False)
