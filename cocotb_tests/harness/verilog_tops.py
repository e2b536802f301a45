"""The surroundings of designs in Verilog that have an Ethernet port as streams of octets, in place of a board.

The simulation is that of a whole RNIC (``host_driver.devices.sim.whole``): a cable and milliseconds.
"""

import asyncio

from amaranth.hdl import Instance, Module, Mux, Signal
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.build import build
from open_rnic.host_driver.devices.sim.octets import OctetTop
from open_rnic.host_driver.devices.sim.wire import WORD, Kind, frame
from open_rnic.host_driver.devices.udp.board import SimulatedBoard
from open_rnic.rtl.lib.buses import Axi4, Wishbone
from open_rnic.rtl.lib.ports import named_ports
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS


class AxiRam(wiring.Component):
    """A memory on AXI4: a burst of each direction at a time, a beat in each cycle, and every fourth a pause."""

    def __init__(self, octets):
        self.octets = octets
        super().__init__({"m_axi": In(Axi4(1, ADDRESS_BITS))})

    def elaborate(self, platform):
        m = Module()
        axi = self.m_axi
        m.submodules.memory = memory = Memory(shape=32, depth=self.octets // 4, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port(domain="comb")
        time, left = Signal(2), Signal(9)
        m.d.sync += time.eq(time + 1)
        place, source = Signal(30), Signal(30)
        m.d.comb += [
            write.addr.eq(place), write.data.eq(axi.wdata), read.addr.eq(source), axi.rdata.eq(read.data),
        ]  # fmt: skip
        with m.FSM(name="writes"):
            with m.State("Address"):
                m.d.comb += axi.awready.eq(1)
                m.d.sync += place.eq(axi.awaddr >> 2)
                with m.If(axi.awvalid):
                    m.next = "Data"
            with m.State("Data"):
                m.d.comb += axi.wready.eq(time != 0)
                with m.If(axi.wvalid & axi.wready):
                    m.d.comb += write.en.eq(axi.wstrb)
                    m.d.sync += place.eq(place + 1)
                    with m.If(axi.wlast):
                        m.next = "Response"
            with m.State("Response"):
                m.d.comb += axi.bvalid.eq(1)
                with m.If(axi.bready):
                    m.next = "Address"
        with m.FSM(name="reads"):
            with m.State("Address"):
                m.d.comb += axi.arready.eq(1)
                m.d.sync += [source.eq(axi.araddr >> 2), left.eq(axi.arlen)]
                with m.If(axi.arvalid):
                    m.next = "Data"
            with m.State("Data"):
                pause = Signal()  # not while a beat is offered
                m.d.sync += pause.eq((time == 0) & (~axi.rvalid | axi.rready))
                m.d.comb += [axi.rvalid.eq(~pause), axi.rlast.eq(left == 0)]
                with m.If(axi.rvalid & axi.rready):
                    m.d.sync += [source.eq(source + 1), left.eq(left - 1)]
                    with m.If(left == 0):
                        m.next = "Address"
        return m


class WishboneRam(wiring.Component):
    """A memory on Wishbone, which acknowledges a word in each cycle but every fourth."""

    def __init__(self, octets):
        self.octets = octets
        super().__init__({"wb": In(Wishbone(1, ADDRESS_BITS - 2))})

    def elaborate(self, platform):
        m = Module()
        wb = self.wb
        m.submodules.memory = memory = Memory(shape=32, depth=self.octets // 4, init=[])
        write, read = memory.write_port(granularity=8), memory.read_port(domain="comb")
        time = Signal(2)
        m.d.sync += time.eq(time + 1)
        m.d.comb += [
            wb.ack.eq(wb.cyc & wb.stb & (time != 0)),
            write.en.eq(Mux(wb.ack & wb.we, wb.sel, 0)),
            write.addr.eq(wb.adr), write.data.eq(wb.dat_w),
            read.addr.eq(wb.adr), wb.dat_r.eq(read.data),
        ]  # fmt: skip
        return m


class VerilogRnic(OctetTop):
    """The module ``rnic`` of ``rnic verilog --with rnic`` with a memory, ``ram``."""

    def __init__(self, verilog, connections, ram):
        self._connections, self._ram = connections, ram
        super().__init__(layout.WHOLE, ("design.v", verilog))

    def elaborate(self, platform):
        m = Module()
        s = self.streams(m)
        m.submodules.ram = ram = self._ram
        active, tick = Signal(), Signal()
        ports = {}
        for name, (value, direction) in named_ports(ram).items():
            ports[f"{'o' if direction is PortDirection.Input else 'i'}_{name}"] = value
        m.submodules.rnic = Instance("rnic", **self.rnic(active, tick, s), **ports)
        self.finish(m, platform, self._connections, tick, active)
        return m


class SimulatedVerilog(SimulatedBoard):
    """A design in Verilog in place of a board; with the layout "soc", a word of its bus is behind two registers."""

    @classmethod
    async def open(cls, top, kind="whole"):
        board = cls()
        board._simulation = await asyncio.to_thread(build, top)
        board._values = asyncio.Queue()
        await board._begin(kind)
        return board

    async def _prepare(self, *top):
        return self._simulation

    def _take(self, kind, note, octets):
        if kind == Kind.VALUE:
            self._values.put_nowait(WORD.unpack(octets)[0])

    async def words(self, address, count):
        """Read words over the bus of a SoC."""
        self._write(frame(Kind.SET, 0, WORD.pack(address // 4)))
        await self._values.get()
        for _ in range(count):
            self._write(frame(Kind.GET, 1))
        return [await self._values.get() for _ in range(count)]
