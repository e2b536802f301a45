"""SDRAM behind a memory port, with LiteDRAM's controller."""

from amaranth.hdl import ClockSignal, Instance, Module, Mux, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.lib.ports import expose, ports_of
from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.litedram_memory import LiteDramMemory
from open_rnic.rtl.memory.ports import dfi_of
from open_rnic.rtl.memory.start import SdramStart

__all__ = ["Sdram", "dfi_pins"]


def dfi_pins(dfi, *, delays: bool = False) -> dict[str, Value]:
    """Return the pins of an instance whose side of DFI this is, with those of the delays or without."""
    return {
        f"{'o' if member.flow is Out else 'i'}_dfi_{'_'.join(path)}": value
        for path, member, value in dfi.signature.flatten(dfi) if delays or path[0] != "delays"
    }  # fmt: skip


def _native_pins(m: Module, name: str, port, ready: Value) -> dict[str, Value]:
    """Return the pins of a native port of the controller, which takes and loses commands before it is ``ready``."""
    takes = Signal(name=f"{name}_ready")
    m.d.comb += port.cmd_ready.eq(takes & ready)
    pins = {f"{'i' if member.flow is Out else 'o'}_{name}_{path[0]}": value
            for path, member, value in port.signature.flatten(port)}  # fmt: skip
    return pins | {f"i_{name}_cmd_valid": port.cmd_valid & ready, f"o_{name}_cmd_ready": takes}


class Sdram(wiring.Component):
    """An SDRAM behind a :class:`.MemoryPort`.

    ::

        port ◂▸ LiteDramMemory ◂▸ LiteDRAM's controller ◂▸ dfi
                                             SdramStart ◂▸

    After reset, :class:`.SdramStart` has the SDRAM; accesses wait until it is ready. It contains what it did before, or
    random octets.

    The platform must have ``add_file``, as Amaranth's platforms have, for the controller in Verilog.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    chip : the SDRAM
    clock_hz : frequency of the clock, which is half of the SDRAM's

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory; see :class:`.LiteDramMemory`.
    dfi : Out, :class:`.Dfi`
    ready, failed
        See :class:`.SdramStart`.

    """

    def __init__(self, lanes: int, chip: Chip, clock_hz: int):
        self.chip, self.clock_hz = chip, clock_hz
        self.memory = LiteDramMemory(lanes, size=chip.octets, bits=chip.word)
        super().__init__({
            "port": In(MemoryPort(lanes)), "dfi": Out(dfi_of(chip)), "ready": Out(1), "failed": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self.memory
        m.submodules.start = start = SdramStart(self.chip, self.clock_hz)
        wiring.connect(m, wiring.flipped(self.port), memory.port)
        expose(m, start, self, ("ready", "failed"))
        controlled = dfi_of(self.chip).create()
        name = f"litedram_{self.chip.name.lower()}"
        platform.add_file(f"{name}.v", litedram.controller(self.chip, self.clock_hz, name))
        m.submodules.controller = Instance(
            name, i_sys_clk=ClockSignal(), i_sys_rst=ResetSignal(allow_reset_less=True) | ~self.ready,
            **_native_pins(m, "writes", memory.dram.writes, self.ready),
            **_native_pins(m, "reads", memory.dram.reads, self.ready), **dfi_pins(controlled),
        )  # fmt: skip
        controls, starts = ports_of(controlled), ports_of(start.dfi)
        for path, member, value in self.dfi.signature.flatten(self.dfi):
            if member.flow is Out:
                m.d.comb += value.eq(Mux(self.ready, controls[path], starts[path]))
            else:
                m.d.comb += [controls[path].eq(value), starts[path].eq(value)]
        return m
