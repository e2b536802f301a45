"""The data path of one connection with an RDMA engine and a sample writer."""

from enum import Enum

from amaranth.hdl import Const, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mpa.datapath import mpa_streams
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.rdma.sample_writer import SampleWriter
from open_rnic.rtl.rdma.signal_generator import SignalGenerator
from open_rnic.rtl.registers.bus import RegisterBus, connect_pages

__all__ = ["SAMPLE_PAGE", "SIGNAL_PAGE", "Samples", "SamplingDatapath"]

SAMPLE_PAGE = 0x300  # the address of the sample writer's registers
SIGNAL_PAGE = 0x380  # the address of the signal generator's registers


class Samples(Enum):
    """The source of samples of 4 octets."""

    GENERATOR = "generator"  # a :class:`.SignalGenerator`
    PORT = "port"  # the design around


class SamplingDatapath(wiring.Component):
    """MPA, RDMA and samples of one connection: an :class:`.RdmaDatapath` and a :class:`.SampleWriter`.

    With ``generates``, a :class:`.SignalGenerator` in the place of the port ``samples`` gives the samples.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    sample, sample_buffer : octets of a sample, and of the memory in which samples wait; see :class:`.SampleWriter`
    options
        See :class:`.RdmaDatapath`.

    Members
    -------
    tx_ulpdu, rx_ulpdu, tx_mpa, rx_mpa, irq, reset
        See :class:`.RdmaDatapath`.
    memory : Out, :class:`.MemoryPort`
        The main memory, at addresses below 0x8000_0000.
    samples : In, stream of 8 * ``sample`` bits
        The samples; absent with ``generates``.
    tick : In, 1 bit
        See :class:`.SampleWriter`.
    bus : In, :class:`.RegisterBus`
        The registers of all of these, in one page.

    """

    def __init__(self, lanes: int = 1, *, sample: int = 4, sample_buffer: int = 4096, generates: bool = False,
                 **options: int):  # fmt: skip
        self.lanes = lanes
        self.path = RdmaDatapath(lanes, fabric=True, **options)
        self.writer = SampleWriter(lanes, sample=sample, octets=sample_buffer)
        self.generator = SignalGenerator(sample) if generates else None
        super().__init__({
            **mpa_streams(lanes),
            "memory": Out(MemoryPort(lanes)),
            **({} if generates else {"samples": In(stream.Signature(8 * sample))}), "tick": In(1),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.writer = writer = self.writer
        connect, flipped = wiring.connect, wiring.flipped
        for name in mpa_streams(self.lanes):
            connect(m, flipped(getattr(self, name)), getattr(path, name))
        connect(m, path.memory, writer.port)
        connect(m, writer.main, flipped(self.memory))
        connect(m, writer.work, path.fabric)
        m.d.comb += [
            writer.done.eq(path.fabric_done),
            writer.tick.eq(self.tick),
            writer.reset.eq(path.reset),
            self.reset.eq(path.reset),
            self.irq.eq(path.irq),
        ]
        of_samples = self.bus.address[6:] == SAMPLE_PAGE >> 8
        of_signal = self.bus.address[5:] == SIGNAL_PAGE >> 7 if self.generator else Const(0)
        pages = [(path.bus, ~of_samples), (writer.bus, of_samples & ~of_signal)]
        if self.generator:
            m.submodules.generator = generator = self.generator
            connect(m, generator.o, writer.samples)
            m.d.comb += generator.reset.eq(path.reset)
            pages.append((generator.bus, of_signal))
        else:
            connect(m, flipped(self.samples), writer.samples)
        connect_pages(m, self.bus, pages)
        return m
