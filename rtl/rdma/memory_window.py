"""The host's access to the memory behind the RDMA engine."""

from amaranth.hdl import Cat, Module, Mux, Signal, unsigned
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS, MemoryPort
from open_rnic.rtl.rdma.memory_registers import BY_NAME, MEMORY_MAP
from open_rnic.rtl.rdma.sender import MAX_OUTSTANDING
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import paged_bus

__all__ = ["MemoryWindow"]

_READ = BY_NAME["MEMORY_READ"].address >> 2


class MemoryWindow(wiring.Component):
    """Lets the host read and write a memory through registers (:data:`.MEMORY_MAP`), beside the engine.

    The host's write comes before all reads of the engine that have not been offered to the memory. For the host's read,
    the window first waits for the words that the engine has asked for, while the engine asks for no others. An error of
    the host's write counts as one of the engine's.

    Latency: combinational for the engine. Throughput: a write and a read in every cycle, except those that accesses of
    the host take.

    Parameters
    ----------
    lanes : width of a word of the memory in 32-bit lanes; the host accesses 32 bits at a time
    octets : size of the memory, for the register OCTETS
    connections : pages of the registers, with an address each; the number of the page is above the 8 bits of the
        address of a register

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory, to the engine.
    main : Out, :class:`.MemoryPort`
        The side of the engine, to the memory.
    bus : In, :class:`.RegisterBus`

    """

    def __init__(self, lanes: int, octets: int, connections: int = 1):
        check_lanes(lanes)
        self.lanes = lanes
        self.octets = octets
        self.connections = connections
        super().__init__({
            "port": In(MemoryPort(lanes)), "main": Out(MemoryPort(lanes)), "bus": In(paged_bus(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        access = _Access()
        self._register(m, access)
        self._write(m, access)
        self._read(m, access)
        return m

    def _register(self, m, access):
        """Take the host's accesses. A read of READ is held until the word is there."""
        m.submodules.registers = access.registers
        registers, bus = access.registers, self.bus
        lane_address = unsigned(ADDRESS_BITS - 2)
        m.submodules.addresses = addresses = Memory(shape=lane_address, depth=max(2, self.connections), init=[])
        put, get = addresses.write_port(), addresses.read_port(domain="comb")
        page = Signal(connection_shape(self.connections))  # of the access, also while its word is on its way
        latest = Signal.like(page)
        is_read = Signal()
        m.d.comb += [
            page.eq(Mux(access.writes, latest, bus.address[8:])),
            get.addr.eq(page),
            access.address.eq(get.data),
            put.addr.eq(page),
            put.data.eq(Mux(registers.ADDRESS.push, registers.ADDRESS.value[2:], access.address + 1)),
            put.en.eq(registers.ADDRESS.push | access.advances),
            is_read.eq(~bus.write & (bus.address[:8] == _READ)),
            registers.bus.request.eq(bus.request & ~access.writes & (access.has | ~is_read)),
            registers.bus.address.eq(bus.address[:8]),
            registers.bus.write.eq(bus.write),
            registers.bus.write_data.eq(bus.write_data),
            bus.ack.eq(registers.bus.ack),
            bus.read_data.eq(registers.bus.read_data),
            registers.OCTETS.value.eq(self.octets),
            registers.READ.value.eq(access.word),
        ]
        m.d.sync += latest.eq(page)
        with m.If(registers.WRITE.push):
            m.d.sync += [access.writes.eq(1), access.written.eq(registers.WRITE.value)]
        with m.If(bus.request & is_read & ~access.has & ~access.writes):
            m.d.sync += access.reads.eq(1)
        # The memory's ``ready``, which comes late, may depend on the address: it is in a register.
        with m.If(~(access.writes | access.reads)):
            m.d.sync += access.place.eq(access.address)
        with m.If(bus.ack & is_read):
            m.d.comb += access.advances.eq(1)
            m.d.sync += access.has.eq(0)

    def _write(self, m, access):
        """Write to the memory. A beat of the engine that has been offered is transferred first."""
        port, main = self.port, self.main
        lane_bits = self.lanes.bit_length() - 1
        offered = Signal()
        lane = access.place[:lane_bits]
        m.d.sync += offered.eq(port.write.valid & ~port.write.ready & ~(access.writes & ~offered))
        with m.If(access.writes & ~offered):
            m.d.comb += [
                main.write.valid.eq(1),
                main.write.payload.address.eq(access.place >> lane_bits),
                main.write.payload.data.eq(access.written.replicate(self.lanes)),
                main.write.payload.mask.eq(
                    Cat(access.registers.MASK.value & (lane == n).replicate(4) for n in range(self.lanes))
                ),
                main.write.payload.last.eq(1),
            ]  # fmt: skip
            with m.If(main.write.ready):
                m.d.comb += access.advances.eq(1)
                m.d.sync += access.writes.eq(0)
        with m.Else():
            m.d.comb += [
                main.write.valid.eq(port.write.valid),
                main.write.payload.eq(port.write.payload),
                port.write.ready.eq(main.write.ready),
            ]

    def _read(self, m, access):
        """Read from the memory: likewise, and no word of the engine may be due when the host's is asked for."""
        port, main = self.port, self.main
        lane_bits = self.lanes.bit_length() - 1
        due = Signal(range(2 * MAX_OUTSTANDING))  # words of the engine
        asks = Signal()  # an address of the engine has been offered
        m.d.comb += [
            port.words.payload.eq(main.words.payload),
            port.fault.eq(main.fault),
            port.write_fault.eq(main.write_fault),
        ]
        m.d.sync += [
            due.eq(due + (port.read.valid & port.read.ready) - (port.words.valid & port.words.ready)),
            asks.eq(port.read.valid & ~port.read.ready & (asks | ~(access.writes | access.reads))),
        ]
        with m.If((access.reads | access.writes) & ~asks):
            m.d.comb += [
                main.read.valid.eq(access.reads & ~access.asked & (due == 0)),
                main.read.payload.eq(access.place >> lane_bits),
            ]
            with m.If(main.read.valid & main.read.ready):
                m.d.sync += access.asked.eq(1)
        with m.Else():
            m.d.comb += [
                main.read.valid.eq(port.read.valid),
                main.read.payload.eq(port.read.payload),
                port.read.ready.eq(main.read.ready),
            ]
        with m.If(access.asked):
            m.d.comb += main.words.ready.eq(1)
            with m.If(main.words.valid):
                word = main.words.payload.word_select(access.place[:lane_bits], 32)
                m.d.sync += [access.reads.eq(0), access.asked.eq(0), access.has.eq(1), access.word.eq(word)]
        with m.Else():
            m.d.comb += [port.words.valid.eq(main.words.valid), main.words.ready.eq(port.words.ready)]


class _Access:
    """The host's access."""

    def __init__(self):
        self.registers = RegisterBank(MEMORY_MAP)
        self.address = Signal(unsigned(ADDRESS_BITS - 2))
        self.advances = Signal()
        self.written = Signal(32)
        self.word = Signal(32)
        self.place = Signal.like(self.address)  # of either
        self.writes = Signal()  # ``written`` is on its way to the memory
        self.reads = Signal()  # the bus waits for ``word``
        self.asked = Signal()  # the memory has been asked for it
        self.has = Signal()  # it is there, and no longer waited for
