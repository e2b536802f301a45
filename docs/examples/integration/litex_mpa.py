"""The data path in a LiteX SoC: registers on its bus, an interrupt, and streams for a TCP engine and an application."""

from litex.gen import LiteXModule
from litex.soc.interconnect import axi, stream
from litex.soc.interconnect.csr_eventmanager import EventManager, EventSourceLevel
from migen import ClockSignal, Instance, ResetSignal


class MpaDatapath(LiteXModule):
    """``bus``: AXI4-Lite to the registers; ``*_ulpdu`` and ``*_mpa``: the streams, with ``keep`` beside ``data``."""

    def __init__(self, platform, lanes: int = 4):
        def layout(**user):
            return [("data", 32 * lanes), ("keep", 4 * lanes), *user.items()]

        self.bus = axi.AXILiteInterface(data_width=32, address_width=10)
        self.tx_ulpdu = stream.Endpoint(layout(length=16))
        self.tx_mpa = stream.Endpoint(layout())
        self.rx_mpa = stream.Endpoint(layout())
        self.rx_ulpdu = stream.Endpoint(layout(verdict=2))
        self.ev = EventManager()
        self.ev.event = EventSourceLevel()
        self.ev.finalize()
        ports = {"i_clk": ClockSignal("sys"), "i_rst": ResetSignal("sys"), "o_irq": self.ev.event.trigger}
        for name in ("tx_ulpdu", "rx_mpa"):
            ports |= self._stream(f"s_axis_{name[3:]}", getattr(self, name), "i", "o")
        for name in ("tx_mpa", "rx_ulpdu"):
            ports |= self._stream(f"m_axis_{name[3:]}", getattr(self, name), "o", "i")
        ports |= {"i_s_axis_ulpdu_tuser": self.tx_ulpdu.length, "o_m_axis_ulpdu_tuser": self.rx_ulpdu.verdict}
        bus = self.bus
        ports |= {
            "i_s_axil_awaddr": bus.aw.addr, "i_s_axil_awprot": 0,
            "i_s_axil_awvalid": bus.aw.valid, "o_s_axil_awready": bus.aw.ready,
            "i_s_axil_wdata": bus.w.data, "i_s_axil_wstrb": bus.w.strb,
            "i_s_axil_wvalid": bus.w.valid, "o_s_axil_wready": bus.w.ready,
            "o_s_axil_bresp": bus.b.resp, "o_s_axil_bvalid": bus.b.valid, "i_s_axil_bready": bus.b.ready,
            "i_s_axil_araddr": bus.ar.addr, "i_s_axil_arprot": 0,
            "i_s_axil_arvalid": bus.ar.valid, "o_s_axil_arready": bus.ar.ready,
            "o_s_axil_rdata": bus.r.data, "o_s_axil_rresp": bus.r.resp,
            "o_s_axil_rvalid": bus.r.valid, "i_s_axil_rready": bus.r.ready,
        }  # fmt: skip
        self.specials += Instance("mpa_datapath", **ports)
        platform.add_source("mpa_datapath.v")

    @staticmethod
    def _stream(prefix, endpoint, forth, back):
        return {
            f"{forth}_{prefix}_tdata": endpoint.data,
            f"{forth}_{prefix}_tkeep": endpoint.keep,
            f"{forth}_{prefix}_tlast": endpoint.last,
            f"{forth}_{prefix}_tvalid": endpoint.valid,
            f"{back}_{prefix}_tready": endpoint.ready,
        }
