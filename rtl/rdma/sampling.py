"""Samples of the fabric beside an RDMA engine, and the data path of one connection with both."""

from amaranth.hdl import Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.rows import Clear, connection_shape
from open_rnic.rtl.mpa.datapath import mpa_streams
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.layouts import MemoryPort
from open_rnic.rtl.rdma.sample_registers import BY_NAME as SAMPLE_REGISTERS
from open_rnic.rtl.rdma.sample_registers import TAKEN
from open_rnic.rtl.rdma.sample_writer import SampleWriter
from open_rnic.rtl.rdma.signal_generator import SignalGenerator
from open_rnic.rtl.rdma.signal_registers import BY_NAME as SIGNAL_REGISTERS
from open_rnic.rtl.registers.bus import RegisterBus, connect_pages, paged_bus

__all__ = ["SAMPLE_PAGE", "Sampler", "SamplingDatapath", "is_of_samples"]

SAMPLE_PAGE = 0x300  # the address of the sample writer's registers


def is_of_samples(address):
    """Whether the address of a register in the page of a connection is one of the :class:`Sampler`."""
    return address[6:8] == SAMPLE_PAGE >> 8


class Sampler(wiring.Component):
    """A :class:`.SampleWriter` that one of the connections has, with its registers in the page of each.

    With ``generates``, a :class:`.SignalGenerator` gives the samples.

    A connection takes the sample writer when the host writes a register of it, and has it until it is reset. For the
    others, writes have no effect, and all but the registers that are constant read as 0, except for STATUS.taken.

    Parameters
    ----------
    lanes : width of memory in 32-bit lanes
    sample, octets : of :class:`.SampleWriter`
    connections : number of connections

    Members
    -------
    port, main, words, done, tick
        See :class:`.SampleWriter`.
    connection : Out, the number of a connection
        The one that has the sample writer, or had it last.
    samples : In, stream of 8 * ``sample`` bits
        The samples; absent with ``generates``.
    active : Out, 1 bit
        A sample is taken.
    bus : In, :class:`.RegisterBus`
        The number of the connection is above the 8 bits of the address of a register.
    clear : In, :class:`.Clear`
        The connection is reset; so is the sample writer, if the connection has it.

    """

    def __init__(self, lanes: int, *, sample: int = 4, octets: int = 4096, generates: bool = False,
                 connections: int = 1):  # fmt: skip
        self.connections = connections
        self.writer = SampleWriter(lanes, sample=sample, octets=octets)
        self.generator = SignalGenerator(sample) if generates else None
        members = self.writer.signature.members
        super().__init__({
            **{name: members[name] for name in ("port", "main", "words", "done", "tick")},
            **({} if generates else {"samples": members["samples"]}),
            "connection": Out(connection_shape(connections)), "active": Out(1),
            "bus": In(paged_bus(connections)), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.writer = writer = self.writer
        expose(m, writer, self, ("port", "main", "words", "done", "tick"))
        reset = Signal()
        m.d.comb += [
            reset.eq(self.clear.now & (self.clear.connection == self.connection)),
            writer.reset.eq(reset),
            self.active.eq(writer.samples.valid & writer.samples.ready),
        ]
        if self.generator:
            m.submodules.generator = generator = self.generator
            wiring.connect(m, generator.o, writer.samples)
            m.d.comb += generator.reset.eq(reset)
        else:
            expose(m, writer, self, ["samples"])
        self._access(m, reset)
        return m

    def _access(self, m, reset):
        """Give each access to its block, if the connection has the sample writer or nobody has."""
        bus = self.bus
        page = Signal.like(self.connection)
        taken = Signal()
        allowed = Signal()
        m.d.comb += [page.eq(bus.address[8:]), allowed.eq(~taken | (page == self.connection))]
        with m.If(reset):
            m.d.sync += taken.eq(0)
        with m.Elif(bus.request & bus.write & allowed):
            m.d.sync += [taken.eq(1), self.connection.eq(page)]

        inner = RegisterBus().create()
        m.d.comb += [
            inner.request.eq(bus.request),
            inner.write.eq(bus.write & allowed),
            inner.address.eq(bus.address),
            inner.write_data.eq(bus.write_data),
            bus.ack.eq(inner.ack),
        ]
        of_signal = inner.address[5] if self.generator else Const(0)
        pages = [(self.writer.bus, ~of_signal)]
        if self.generator:
            pages.append((self.generator.bus, of_signal))
        connect_pages(m, inner, pages)

        def is_any(registers, *names):
            return inner.address.matches(*(registers[name].address >> 2 & 0xFF for name in names))

        constant = is_any(SAMPLE_REGISTERS, "SAMPLE_IDENTITY", "SAMPLE_VERSION", "SAMPLE_CAPABILITIES") | is_any(
            SIGNAL_REGISTERS, "SIGNAL_IDENTITY", "SIGNAL_VERSION"
        )
        status = is_any(SAMPLE_REGISTERS, "SAMPLE_STATUS") | is_any(SIGNAL_REGISTERS, "SIGNAL_STATUS")
        m.d.comb += bus.read_data.eq(Mux(allowed | constant, inner.read_data, status << TAKEN))


class SamplingDatapath(wiring.Component):
    """MPA, RDMA and samples of one connection: an :class:`.RdmaDatapath` and a :class:`Sampler`.

    Parameters
    ----------
    lanes : width of the streams and of memory in 32-bit lanes
    sample, sample_buffer : octets of a sample, and of the memory in which samples wait; see :class:`.SampleWriter`
    generates : see :class:`Sampler`
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
        self.sampler = Sampler(lanes, sample=sample, octets=sample_buffer, generates=generates)
        super().__init__({
            **mpa_streams(lanes),
            "memory": Out(MemoryPort(lanes)),
            **({} if generates else {"samples": In(stream.Signature(8 * sample))}), "tick": In(1),
            "bus": In(RegisterBus()), "irq": Out(2), "reset": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = self.path
        m.submodules.sampler = sampler = self.sampler
        connect = wiring.connect
        expose(m, path, self, (*mpa_streams(self.lanes), "irq", "reset"))
        expose(m, sampler, self, ("samples", "tick"))
        connect(m, path.memory, sampler.port)
        connect(m, sampler.main, wiring.flipped(self.memory))
        connect(m, sampler.words, path.fabric)
        m.d.comb += [sampler.done.eq(path.fabric_done), sampler.clear.now.eq(path.reset)]
        of_samples = is_of_samples(self.bus.address)
        connect_pages(m, self.bus, ((path.bus, ~of_samples), (sampler.bus, of_samples)))
        return m
