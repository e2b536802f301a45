"""The memory port on two ports of LiteDRAM's crossbar."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.lib.buses import LiteDram
from open_rnic.rtl.memory.native_memory import NativeMemory
from open_rnic.rtl.memory.ports import Split

__all__ = ["LiteDramMemory"]


class LiteDramMemory(wiring.Component):
    """A :class:`.NativeMemory` whose ports have LiteDRAM's names.

    Latency and throughput are those of :class:`.NativeMemory`.

    Parameters
    ----------
    lanes : width of a word of ``port`` in 32-bit lanes
    size : octets of the memory, a power of 2; addresses are taken modulo this number
    bits : width of a word of ``dram``

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory.
    fault : Out, 1 bit
        Is 0: SDRAM reports no error.
    dram : Out, :class:`.LiteDram`

    """

    def __init__(self, lanes: int, *, size: int, bits: int):
        self.memory = NativeMemory(Split(lanes, (8 * size // bits).bit_length() - 1, bits))
        dram = LiteDram(self.memory.split.address_bits, bits)
        super().__init__({"port": In(MemoryPort(lanes)), "fault": Out(1), "dram": Out(dram)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self.memory
        wiring.connect(m, wiring.flipped(self.port), memory.port)
        for native, plain in ((memory.writes, self.dram.writes), (memory.reads, self.dram.reads)):
            m.d.comb += [
                plain.cmd_valid.eq(native.command.valid),
                native.command.ready.eq(plain.cmd_ready),
                plain.cmd_we.eq(native.command.payload.write),
                plain.cmd_addr.eq(native.command.payload.address),
                native.takes.eq(plain.wdata_ready),
                plain.wdata_data.eq(native.write_data),
                plain.wdata_we.eq(-1),
                native.gives.eq(plain.rdata_valid),
                native.read_data.eq(plain.rdata_data),
            ]
        return m
