"""The data path with RDMA and samples, with AXI ports, for use in other designs."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.buses import Axi4, AxiStream
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.mpa.axi import connect_datapath, datapath_ports
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS
from open_rnic.rtl.rdma.sampling import SamplingDatapath

__all__ = ["AxiRdmaDatapath"]


class AxiRdmaDatapath(wiring.Component):
    """:class:`.SamplingDatapath` with AXI4, AXI4-Stream and AXI4-Lite ports, ``clk``, and a synchronous ``rst``.

    The streams of octets are those of :class:`.AxiMpaDatapath`.

    Parameters
    ----------
    lanes, measure
        See :class:`.AxiMpaDatapath`.
    options
        See :class:`.SamplingDatapath`.

    Members
    -------
    s_axis_ulpdu, m_axis_mpa, s_axis_mpa, m_axis_ulpdu, s_axil
        See :class:`.AxiMpaDatapath`.
    s_axis_samples : In, :class:`.AxiStream` without ``tkeep`` and ``tlast``
        From the fabric: a sample in each beat.
    m_axi : Out, :class:`.Axi4`
        The memory; see :class:`.AxiMemory`.
    sample_tick : In, 1 bit
        A tick passes; see the register BELL_TICKS of the sample writer.
    memory_fault : Out, 1 bit
        The memory has reported an error since the last reset by CONTROL.
    irq : Out, 1 bit
        At least one event is pending.
    rdma_irq : Out, 1 bit
        The interrupt of :class:`.RdmaEngine`.

    """

    def __init__(self, lanes: int = 4, *, measure: int = 0, **options: int):
        ports = datapath_ports(lanes, measure)
        self.lanes = lanes
        self.measure = measure
        self.datapath = SamplingDatapath(lanes, **options)
        super().__init__({
            **ports,
            "s_axis_samples": In(AxiStream(len(self.datapath.samples.payload), keep=False, last=False)),
            "m_axi": Out(Axi4(lanes, ADDRESS_BITS)),
            "sample_tick": In(1),
            "memory_fault": Out(1),
            "irq": Out(1),
            "rdma_irq": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.datapath = path = self.datapath
        m.submodules.memory = memory = AxiMemory(self.lanes)
        wiring.connect(m, path.memory, memory.port)
        expose(m, memory, self, ["m_axi"])
        m.d.comb += [
            self.irq.eq(path.irq[0]),
            self.rdma_irq.eq(path.irq[1]),
            path.tick.eq(self.sample_tick),
            path.samples.payload.eq(self.s_axis_samples.tdata),
            path.samples.valid.eq(self.s_axis_samples.tvalid),
            self.s_axis_samples.tready.eq(path.samples.ready),
        ]
        faulty = Signal()
        m.d.comb += self.memory_fault.eq(faulty)
        m.d.sync += faulty.eq((faulty | memory.fault) & ~path.reset)
        connect_datapath(m, self, path, self.measure)
        return m
