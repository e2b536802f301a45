"""The registers on AXI4-Lite."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.buses import AxiLite
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["AxiLiteBridge"]

_OKAY, _SLVERR = 0, 2


class AxiLiteBridge(wiring.Component):
    """A bridge from AXI4-Lite to a register bus.

    The bridge performs one access at a time. If a read and a write are pending, the write is first. The 2 least
    significant bits of an address are ignored. Addresses without a register read as zero. A write that does not set all
    bits of ``wstrb`` is answered with SLVERR and has no effect.

    Parameters
    ----------
    address_bits : width of the addresses of octets

    Members
    -------
    s_axil : In, :class:`.AxiLite`
        An AXI4-Lite subordinate.
    bus : Out, :class:`.RegisterBus`
        Accesses to the registers.

    """

    def __init__(self, address_bits: int):
        super().__init__({"s_axil": In(AxiLite(address_bits)), "bus": Out(RegisterBus(address_bits - 2))})

    def elaborate(self, platform):
        m = Module()
        axi, bus = self.s_axil, self.bus
        with m.FSM():
            with m.State("Idle"):
                with m.If(axi.awvalid & axi.wvalid):
                    m.d.comb += [axi.awready.eq(1), axi.wready.eq(1)]
                    m.d.sync += [
                        bus.address.eq(axi.awaddr[2:]),
                        bus.write_data.eq(axi.wdata),
                        bus.write.eq(1),
                    ]
                    with m.If(axi.wstrb.all()):
                        m.d.sync += [bus.request.eq(1), axi.bresp.eq(_OKAY)]
                        m.next = "Access"
                    with m.Else():
                        m.d.sync += axi.bresp.eq(_SLVERR)
                        m.next = "WriteResponse"
                with m.Elif(axi.arvalid):
                    m.d.comb += axi.arready.eq(1)
                    m.d.sync += [bus.address.eq(axi.araddr[2:]), bus.write.eq(0), bus.request.eq(1)]
                    m.next = "Access"
            with m.State("Access"):
                with m.If(bus.ack):
                    m.d.sync += [bus.request.eq(0), axi.rdata.eq(bus.read_data)]
                    with m.If(bus.write):
                        m.next = "WriteResponse"
                    with m.Else():
                        m.next = "ReadResponse"
            with m.State("WriteResponse"):
                m.d.comb += axi.bvalid.eq(1)
                with m.If(axi.bready):
                    m.next = "Idle"
            with m.State("ReadResponse"):
                m.d.comb += axi.rvalid.eq(1)
                with m.If(axi.rready):
                    m.next = "Idle"
        return m
