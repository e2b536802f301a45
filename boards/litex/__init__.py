# amaranth: UnusedElaboratable=no
"""The whole RNIC as a module of LiteX, behind a PHY of LiteEth; needs the extra "litex"."""

import re
from pathlib import Path

from amaranth.hdl import Shape
from amaranth.hdl._ir import PortDirection
from amaranth.lib.wiring import Out
from liteeth.phy.model import LiteEthPHYModel
from litex.gen import LiteXModule
from litex.soc.interconnect import axi, stream, wishbone
from litex.soc.interconnect.csr import CSRField, CSRStatus, CSRStorage
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, If, Instance, ResetSignal, Signal

from open_rnic.host_driver.tools.static_address import StaticAddress
from open_rnic.host_driver.tools.verilog import module
from open_rnic.rtl.formats.memory_bus import MemoryBus
from open_rnic.rtl.lib.buses import LiteDram
from open_rnic.rtl.lib.ports import named_ports
from open_rnic.rtl.memory.litedram import start
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rdma.work_port import Work
from open_rnic.rtl.rnic.plain_rnic import MOST_MEMORY, REGISTER_BITS, PlainRnic

__all__ = ["RegisterAccess", "Rnic", "SdramStart", "add_rnic"]

_OCTET_CYCLES = {25_000_000: 2, 50_000_000: 4}  # MII and RMII, by the frequency of LiteEth's domain eth_tx
_WORK = [(name, Shape.cast(shape).width) for name, shape in Work.as_shape().members.items()]
_CYCLES_OF_AN_OCTET = 40 / 125  # of sys, at least: see Mac


class Rnic(LiteXModule):
    """The RNIC of ``rnic verilog --with rnic``: a host uses it over UDP, and its memory is the SoC's.

    The streams of the PHY stay in its clock domains ``eth_rx`` and ``eth_tx``: the RNIC's MAC crosses to ``sys``, and
    keeps the gap between frames and the octets of a frame together, so nothing of LiteEth's MAC is needed.

    Parameters
    ----------
    platform : LiteX's, which gets the Verilog as a source
    phy : a PHY of LiteEth with streams of 8 bits
    sys_clk_freq : Hz of ``sys``; at least those of 40 MHz at 1 Gb/s
    memory : octets that peers can reach, a power of 2
    base : their address at the bus, a multiple of ``memory``
    ports : two ports of LiteDRAM's crossbar, with words of the controller's width, in place of ``bus``
    folder : of the Verilog, which is written there
    address : the IPv4 address from power-up on
    connections, ring
        See ``rnic verilog --with rnic``.
    fabric : the logic beside its RDMA engine
    registers : whether the RNIC's registers are on the SoC's bus, too

    Attributes
    ----------
    bus : ``wishbone.Interface``, a master, for ``soc.bus.add_master``; with ``ports``, None
    samples : ``stream.Endpoint`` with ``data`` of 32 bits: samples for the :class:`.SampleWriter`, if there is one
    work : ``stream.Endpoint`` with the fields of :class:`.Work`, if there is a :class:`.WorkPort`
    work_done, work_failed, work_done_of, work_failed_of : its reports; see :class:`.WorkReports`
    registers : ``axi.AXILiteInterface``, a slave with 256 pages of 1 KiB, for :class:`.RegisterAccess`; or None. An
        access may wait for the RNIC's memory, so it must not keep a bus on which that memory is
    ev : an ``EventManager``, with ``registers``; its event ``host`` is the interrupt of the RNIC's host
    irq : 1 bit: something waits for that host
    hold : 1 bit: the RNIC is in reset
    tick : 1 bit: a pulse each millisecond
    active : 1 bit, for an LED
    fault : a CSR: the bus has answered with an error

    """

    def __init__(self, platform, phy, sys_clk_freq: float, *, memory: int, base: int = 0, ports=(),
                 folder: str | Path = "build/rnic", address: str = "10.0.0.2/24", name: str = "rnic",
                 connections: int = 1, ring: int = 1 << 14, fabric: Fabric = Fabric.SAMPLES,
                 registers: bool = False):  # fmt: skip
        octet_cycles = _OCTET_CYCLES.get(int(phy.tx_clk_freq), 1)
        least = phy.tx_clk_freq / octet_cycles * _CYCLES_OF_AN_OCTET
        if sys_clk_freq < least:
            raise ValueError(f"sys must have {least / 1e6:g} MHz or more for this PHY, not {sys_clk_freq / 1e6:g}")
        words = {"memory_bus": MemoryBus.WISHBONE}
        if ports:
            words = {"memory_bus": MemoryBus.LITEDRAM, "memory_bits": ports[0].data_width}
        rnic = PlainRnic(
            clock_hz=int(sys_clk_freq), connections=connections, ring=ring, memory=memory, fabric=fabric,
            registers=registers, octet_cycles=octet_cycles, station=StaticAddress.parse(address).station, **words,
        )  # fmt: skip
        if base % memory:
            raise ValueError(f"the base {base:#x} of the memory must be a multiple of its {memory} octets")
        self.memory = memory
        self.bus = None if ports else wishbone.Interface(data_width=32, address_width=32, addressing="word")
        self.samples = stream.Endpoint([("data", 32)]) if fabric is Fabric.SAMPLES else None
        self.work = stream.Endpoint(_WORK) if fabric is Fabric.WORK else None
        self.registers = axi.AXILiteInterface(data_width=32, address_width=32) if registers else None
        self.hold = Signal()
        self.tick = Signal()
        self.active = Signal()
        self.fault = CSRStatus(description="The bus has answered the RNIC with an error.")
        self.irq = Signal()
        if registers:
            self.ev = EventManager()
            self.ev.host = EventSourceLevel(description="Something waits for the host of the RNIC.")
            self.ev.finalize()
            self.comb += self.ev.host.trigger.eq(self.irq)

        source = Path(folder) / f"{name}.v"
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(module(rnic, name, {"with": "rnic", "connections": str(connections)}))
        platform.add_source(str(source))

        self.specials += Instance(
            name,
            i_clk=ClockSignal("sys"), i_rst=ResetSignal("sys") | self.hold, i_tick=self.tick,
            i_rx_clk=ClockSignal("eth_rx"), i_tx_clk=ClockSignal("eth_tx"),
            i_s_axis_rx_tdata=phy.source.data, i_s_axis_rx_tuser=phy.source.error, i_s_axis_rx_tlast=phy.source.last,
            i_s_axis_rx_tvalid=phy.source.valid, o_s_axis_rx_tready=phy.source.ready,
            o_m_axis_tx_tdata=phy.sink.data, o_m_axis_tx_tlast=phy.sink.last, o_m_axis_tx_tvalid=phy.sink.valid,
            i_m_axis_tx_tready=phy.sink.ready,
            i_mdio_i=1, i_uart_rx=1,
            o_memory_fault=self.fault.status, o_irq=self.irq, o_active=self.active,
            **(self._at_crossbar(ports) if ports else self._on_bus(base)),
            **(self._of_fabric(named_ports(rnic)) if self.samples or self.work else {}),
            **(self._registered(named_ports(rnic)) if registers else {}),
        )  # fmt: skip
        self.comb += phy.sink.last_be.eq(phy.sink.last)

    def _on_bus(self, base: int) -> dict[str, Signal]:
        """Return the pins of the RNIC's Wishbone. LiteX's bus has no bursts by default, so each word is a cycle."""
        place = Signal(30)
        self.comb += self.bus.adr.eq(base // 4 | place)
        pins = {"o_wb_adr": place}
        pins |= {f"o_wb_{name}": getattr(self.bus, name) for name in ("cyc", "stb", "we", "sel", "dat_w")}
        return pins | {f"i_wb_{name}": getattr(self.bus, name) for name in ("dat_r", "ack", "err")}

    def _at_crossbar(self, ports) -> dict[str, Signal]:
        """Return the pins of the RNIC's two ports of LiteDRAM."""
        pins = {}
        for side, port in zip(("writes", "reads"), ports, strict=True):
            place = Signal(max=8 * self.memory // port.data_width)
            self.comb += port.cmd.addr.eq(place)
            for name, member in LiteDram(len(place), port.data_width).members[side].signature.members.items():
                part, field = name.split("_")
                signal = place if name == "cmd_addr" else getattr(getattr(port, part), field)
                pins[f"{'o' if member.flow is Out else 'i'}_dram_{side}_{name}"] = signal
        return pins

    def _of_fabric(self, ports) -> dict[str, Signal]:
        """Return the pins of the RNIC's samples, or of its work."""
        name, side = ("samples", self.samples) if self.samples else ("work", self.work)
        pins = {
            f"i_s_axis_{name}_tdata": side.payload.raw_bits(),
            f"i_s_axis_{name}_tvalid": side.valid, f"o_s_axis_{name}_tready": side.ready,
        }  # fmt: skip
        for port, (value, _) in ports.items():
            if port.startswith("work_reports__"):
                pins[f"o_{port}"] = signal = Signal(len(value))
                setattr(self, port.replace("reports__", ""), signal)
        return pins

    def _registered(self, ports) -> dict[str, Signal]:
        """Return the pins of the RNIC's registers."""
        pins = {}
        for name, (value, direction) in ports.items():
            if found := re.fullmatch("s_axil_(aw|ar|w|b|r)(.+)", name):
                signal = getattr(getattr(self.registers, found[1]), found[2])
                pins[f"{'i' if direction is PortDirection.Input else 'o'}_{name}"] = signal[: len(value)]
        return pins

    def add_milliseconds(self, sys_clk_freq: float) -> None:
        """Drive ``tick``."""
        cycles = int(sys_clk_freq) // 1000
        left = Signal(max=cycles, reset=cycles - 1)
        self.comb += self.tick.eq(left == 0)
        self.sync += If(self.tick, left.eq(cycles - 1)).Else(left.eq(left - 1))


class RegisterAccess(LiteXModule):
    """CSRs for the registers of an RNIC, an access at a time. An access keeps no bus while it waits for the RNIC.

    A write of ``access`` begins one, of the register at ``address``: with ``write``, of the word in ``value``. It has
    ended when ``busy`` is 0; ``word`` is what it has read. While ``busy`` is 1, no access begins.
    """

    def __init__(self, registers: axi.AXILiteInterface):
        self.value = CSRStorage(32, description="The word to write.")
        self.access = CSRStorage(description="A write begins an access.", fields=[
            CSRField("address", size=REGISTER_BITS, description="The page in bits 17:10, and the address in it."),
            CSRField("write", size=1, offset=31),
        ])  # fmt: skip
        self.busy = CSRStatus(description="The access has not ended.")
        self.word = CSRStatus(32, description="The word that was read last.")
        begins, waits = Signal(), Signal()
        writes = self.access.fields.write
        self.comb += [
            begins.eq(self.access.re & ~waits), self.busy.status.eq(waits | self.access.re),
            registers.aw.addr.eq(self.access.fields.address), registers.ar.addr.eq(self.access.fields.address),
            registers.w.data.eq(self.value.storage), registers.w.strb.eq(0xF),
            registers.b.ready.eq(1), registers.r.ready.eq(1),
        ]  # fmt: skip
        for side, asks in (registers.aw, writes), (registers.w, writes), (registers.ar, ~writes):
            self.sync += If(begins, side.valid.eq(asks)).Elif(side.ready, side.valid.eq(0))
        self.sync += [
            If(begins, waits.eq(1)).Elif(registers.b.valid | registers.r.valid, waits.eq(0)),
            If(registers.r.valid, self.word.status.eq(registers.r.data)),
        ]


class SdramStart(LiteXModule):
    """Initialises an SDR SDRAM in place of a CPU's BIOS, through the ``ext_dfi`` of LiteDRAM's core, ``sdram``.

    Attributes
    ----------
    done : 1 bit

    """

    def __init__(self, sdram):
        settings = sdram.controller.settings
        if settings.phy.memtype != "SDR":
            raise ValueError(f"{settings.phy.memtype} needs a CPU to initialise it: --cpu-type vexriscv")
        steps = start(settings.phy, settings.timing)
        self.done = Signal()
        phases = sdram.dfii.ext_dfi.phases
        pause = 20_000  # cycles before the first command, at least as many as the SDRAM asks for
        left = Signal(max=pause + 1, reset=pause)
        place = Signal(max=len(steps) + 1)
        last = place == len(steps)
        self.comb += [sdram.dfii.ext_dfi_sel.eq(~self.done), *(each.cke.eq(2 ** len(each.cke) - 1) for each in phases)]
        for phase in phases:
            self.comb += [getattr(phase, f"{name}_n").eq(2 ** len(getattr(phase, f"{name}_n")) - 1)
                          for name in ("cs", "ras", "cas", "we")]  # fmt: skip
        first = phases[0]
        for n, step in enumerate(steps):
            self.comb += If(
                (place == n) & (left == 0),
                first.address.eq(step.address), first.bank.eq(step.bank),
                *(line.eq(0) for line, low in ((first.cs_n, step.cs), (first.ras_n, step.ras), (first.cas_n, step.cas),
                                               (first.we_n, step.we)) if low),
            )  # fmt: skip
        self.sync += [
            If(left != 0, left.eq(left - 1)).Elif(~last, left.eq(1000), place.eq(place + 1)).Else(self.done.eq(1))
        ]


def add_rnic(soc, phy, *, memory: int | None = None, **options) -> Rnic:
    """Add an :class:`Rnic` to a SoC, whose main memory becomes the memory that peers can reach.

    An SDRAM without an L2 cache is reached at LiteDRAM's crossbar. Any other memory is ``main_ram`` on the SoC's bus: a
    cache must see the RNIC's accesses, too. ``memory`` is the largest power of 2 of octets that fits by default. An SDR
    SDRAM of a SoC without a CPU is initialised, and the RNIC waits for that. The PHY's clocks get LiteX's constraints.
    With ``registers``, the SoC has a :class:`.RegisterAccess`, ``rnic_registers``, and a CPU the RNIC's interrupt.
    """
    if hasattr(soc, "sdram") and soc.cpu_type is None:
        soc.add_module(name="sdram_start", module=SdramStart(soc.sdram))
    if hasattr(soc, "sdram") and not hasattr(soc, "l2_cache"):
        ports = [soc.sdram.crossbar.get_port() for _ in range(2)]
        bits = ports[0].data_width
        if bits < 32:
            raise ValueError(f"the SDRAM's words of {bits} bits are too narrow without a CPU's cache: --cpu-type NAME")
        size, place = bits // 8 << ports[0].address_width, {"ports": ports}
    elif "main_ram" in soc.bus.regions:
        region = soc.bus.regions["main_ram"]
        size, place = region.size, {"base": region.origin}
    else:
        raise ValueError("the SoC has no main memory; block RAM makes one: --set integrated_main_ram_size=65536")
    if memory is None:
        memory = min(1 << (size.bit_length() - 1), MOST_MEMORY)
    elif memory > size:
        raise ValueError(f"the SoC's main memory has {size} octets, fewer than {memory}")
    rnic = Rnic(soc.platform, phy, soc.sys_clk_freq, memory=memory, **place, **options)
    soc.add_module(name="rnic", module=rnic)
    if rnic.bus is not None:
        soc.bus.add_master(name="rnic", master=rnic.bus)
    if rnic.registers is not None:
        soc.add_module(name="rnic_registers", module=RegisterAccess(rnic.registers))
        if soc.irq.enabled:
            soc.irq.add("rnic")
    if hasattr(soc, "sdram_start"):
        soc.comb += rnic.hold.eq(~soc.sdram_start.done)
    _constrain(soc, phy)
    return rnic


def _constrain(soc, phy) -> None:
    """Give the PHY's clocks the constraints that they would have with LiteX's MAC."""
    if isinstance(phy, LiteEthPHYModel) or getattr(phy, "model", False):
        return
    domains = getattr(phy, "crg", phy)
    rx, tx = domains.cd_eth_rx.clk, domains.cd_eth_tx.clk
    clocks = [(rx, phy.rx_clk_freq)] if tx is rx else [(rx, phy.rx_clk_freq), (tx, phy.tx_clk_freq)]
    for clock, frequency in clocks:
        soc.platform.add_period_constraint(clock, 1e9 / frequency)
    soc.platform.add_false_path_constraints(soc.crg.cd_sys.clk, *(clock for clock, _ in clocks))
