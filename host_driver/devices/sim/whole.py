"""A whole RNIC in simulation: the shipped design behind its MAC, and the octets of GMII in rings in memory.

The clock of the simulation is that of GMII. The core has half of it, as boards have at 1 Gb/s.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, ClockDomain, ClockSignal, DomainRenamer, Module, Mux, ResetSignal, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim.layout import STATION, WHOLE
from open_rnic.host_driver.devices.sim.network_path import ticks
from open_rnic.host_driver.devices.sim.rings import Simulated
from open_rnic.host_driver.devices.sim.sdram_model import SdramModel
from open_rnic.host_driver.devices.sim.slow_memory import slow_memories
from open_rnic.host_driver.net.host import local_mac
from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.mac.layouts import LinkState, RxOctets, TxOctets
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.registers import LinkSource, Speed
from open_rnic.rtl.memory.chips import CHIPS, Chip
from open_rnic.rtl.memory.sdram import Sdram
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rnic.whole_rnic import WholeRnic
from open_rnic.rtl.tcp.config import RingMemory, Station

_GAP = 12  # octets between two frames (IEEE 802.3 §4A.4.2)
_GMII_HZ = 125_000_000
_UART = 21  # clock cycles of the core in a bit of the UART, which nothing is connected to
LATENCY = 20  # cycles of the core from a read of a memory outside to its word, at least
_QUIET = 1 << 10  # cycles of GMII without anything to see, after which nothing more is expected to happen


class GmiiCable(wiring.Component):  # type: ignore[misc]
    """An adapter of :class:`.EthernetPort` without pins, whose octets are packets of words.

    It works in the clock domain ``gmii``. If the next word of a frame is late, no time passes at GMII.

    Members
    -------
    rx, tx, status : of an adapter
    up : whether the cable is in
    i : frames to receive, with preamble and FCS; ``length`` of the first word: the octet with RX_ER, from 1 on
    o : transmitted frames
    moves : there are octets at GMII
    """

    def __init__(self) -> None:
        super().__init__({
            "rx": Out(RxOctets()),
            "tx": In(TxOctets()),
            "status": Out(LinkState()),
            "up": In(1),
            "i": In(packet(1, length=16)),
            "o": Out(packet(1)),
            "moves": Out(1),
        })

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.d.comb += [
            self.status.up.eq(self.up),
            self.status.speed.eq(Speed.MBIT_1000),
            self.status.full_duplex.eq(1),
            self.moves.eq(self.i.valid | self.rx.valid | self.tx.valid),
        ]

        # Receive.
        word = Signal(32)
        left = Signal(range(5))
        last = Signal()
        gap = Signal(range(_GAP + 1), init=_GAP)
        place = Signal(16)  # of the octet in the frame, from 1 on
        errs = Signal(16)
        takes = Signal()
        begins = Signal()
        m.d.comb += [
            begins.eq((left == 0) & (gap == _GAP)),
            takes.eq(begins | ((left == 1) & ~last)),
            self.i.ready.eq(takes),
            self.rx.strobe.eq(~((left == 1) & ~last & ~self.i.valid)),
            self.rx.valid.eq(left != 0),
            self.rx.data.eq(word[:8]),
            self.rx.error.eq(place == errs),
        ]
        with m.If(takes & self.i.valid):
            m.d.gmii += [
                word.eq(self.i.payload.data),
                left.eq(Mux(self.i.payload.last, self.i.payload.octets, 4)),
                last.eq(self.i.payload.last),
                place.eq(Mux(begins, 1, place + 1)),
            ]
            with m.If(begins):
                m.d.gmii += [errs.eq(self.i.payload.length), gap.eq(0)]
        with m.Elif(self.rx.strobe & (left != 0)):
            m.d.gmii += [word.eq(word >> 8), left.eq(left - 1), place.eq(place + 1)]
        with m.Elif((left == 0) & (gap != _GAP)):
            m.d.gmii += gap.eq(gap + 1)

        # Transmit. A word is kept until it is known whether it is the last one.
        collected = Signal(32)
        count = Signal(range(5))
        m.d.comb += [
            self.tx.strobe.eq(self.o.ready),
            self.o.payload.data.eq(collected),
            self.o.payload.octets.eq(count),
            self.o.payload.last.eq(~self.tx.valid),
            self.o.valid.eq(Mux(self.tx.valid, count == 4, count != 0)),
        ]
        with m.If(self.tx.strobe):
            with m.If(~self.tx.valid):
                m.d.gmii += [collected.eq(0), count.eq(0)]
            with m.Elif(count == 4):
                m.d.gmii += [collected.eq(self.tx.data), count.eq(1)]
            with m.Else():
                m.d.gmii += [collected.eq(collected | (self.tx.data << (8 * count)[:5])), count.eq(count + 1)]
        return m


class SimulatedWhole(Simulated):
    """The RNIC that boards contain, with a cable, whose ends are rings.

    ``options`` are those of :class:`.WholeRnic`. With ``rings``, the rings of TCP lie in slow memories; with ``sdram``,
    the memory of the RDMA engine is that SDRAM.
    """

    def __init__(self, sdram: Chip | None = None, **options: Any):
        self._sdram = sdram
        self._options = options
        super().__init__(WHOLE)

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        # The clocks: ``sync`` is GMII's.
        half = Signal(reset_less=True)
        m.d.sync += half.eq(~half)
        for name in ("gmii", "mac_rx", "mac_tx"):
            m.domains += ClockDomain(name, reset_less=name != "gmii")
            m.d.comb += ClockSignal(name).eq(ClockSignal("sync"))
        m.domains += ClockDomain("core")
        m.d.comb += [
            ClockSignal("core").eq(half),
            ResetSignal("gmii").eq(ResetSignal("sync")),
            ResetSignal("core").eq(ResetSignal("sync")),
        ]

        in_core = DomainRenamer("core")
        cable = GmiiCable()
        whole = WholeRnic(
            cable, _GMII_HZ // 2, PhySettings(), source=LinkSource.IN_BAND, outside=self._sdram is not None,
            **self._options,
        )  # fmt: skip
        m.submodules.rnic = rnic = in_core(whole)
        starts = Signal()
        if self._sdram is not None:
            m.submodules.sdram = sdram = in_core(Sdram(1, self._sdram, _GMII_HZ // 2))
            m.submodules.sdram_model = model = in_core(SdramModel(self._sdram, _GMII_HZ // 2))
            wiring.connect(m, rnic.memory, sdram.port)
            m.d.comb += rnic.memory_failed.eq(sdram.failed)
            wiring.connect(m, sdram.dfi, model.dfi)
            m.d.comb += starts.eq(~sdram.ready & ~sdram.failed)
        for name, memory in slow_memories(whole.core.rnic.path, LATENCY, seed=1).items():
            m.submodules[name] = slow = in_core(memory)
            wiring.connect(m, getattr(rnic, name), slow.port)
        ticks(m, self, whole.core.rnic.connections, rnic.tick, "core")
        m.d.comb += [rnic.rx.eq(1), rnic.mdio_i.eq(1), cable.up.eq(self.control.up)]
        self.ring_in(m, "rx_frames", cable.i)
        self.ring_out(m, "tx_frames", cable.o)

        frames = whole.port.rx_frames.valid | whole.port.tx_frames.valid
        samples = Cat(each.active for each in whole.core.rnic.samplers).any()
        self.active(m, cable.moves | rnic.active | frames | samples | starts, _QUIET)
        return m


def make(connections: str, ring: str, memory: str, *options: str) -> SimulatedWhole:
    """Return an RNIC: its connections, the octets of their rings each way and of their memory.

    Options are ``samples``, those of a generator, ``outside``: rings in a memory outside of the FPGA, and the name of
    a chip of SDRAM, which is the memory then.
    """
    chips = [chip.simulated for chip in CHIPS if chip.name in options]
    return SimulatedWhole(
        connections=int(connections), ring=int(ring), memory=int(memory), period=_UART,
        fabric=Fabric.GENERATOR if "samples" in options else Fabric.NONE,
        station=Station.of(local_mac(STATION.ip), STATION),
        rings=RingMemory() if "outside" in options else None, sdram=chips[0] if chips else None,
    )  # fmt: skip
