"""SDRAM behind a memory port, with LiteDRAM's controller."""

from amaranth.hdl import Array, ClockSignal, Const, Instance, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.memory import litedram
from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.native_memory import NativeMemory
from open_rnic.rtl.memory.ports import Split, dfi_of

__all__ = ["Sdram", "dfi_pins"]

_SETTLES = 8  # cycles after each step of the initialisation, as LiteDRAM's software takes some, too
_PHASES = 2  # words of the SDRAM in a word of the controller


def dfi_pins(dfi) -> dict[str, Signal]:
    """Return the pins of an instance whose side of DFI this is."""
    return {
        f"{'o' if member.flow is Out else 'i'}_dfi_{'_'.join(path)}": value
        for path, member, value in dfi.signature.flatten(dfi)
    }


def _native_pins(name: str, port) -> dict[str, Value]:
    """Return the pins of a native port of the controller."""
    return {
        f"i_{name}_cmd_valid": port.command.valid,
        f"o_{name}_cmd_ready": port.command.ready,
        f"i_{name}_cmd_we": port.command.payload.write,
        f"i_{name}_cmd_addr": port.command.payload.address,
        f"o_{name}_wdata_ready": port.takes,
        f"i_{name}_wdata_data": port.write_data,
        f"i_{name}_wdata_we": Const(-1, len(port.write_data) // 8),
        f"o_{name}_rdata_valid": port.gives,
        f"o_{name}_rdata_data": port.read_data,
    }


class Sdram(wiring.Component):
    """An SDRAM behind a :class:`.MemoryPort`.

    ::

        port ◂▸ NativeMemory ◂▸ LiteDRAM's controller ▸ initialisation ▸ dfi

    After reset, the SDRAM is initialised, which takes half a millisecond at 50 MHz; accesses wait until then. It
    contains what it did before, or random octets.

    The platform must have ``add_file``, as Amaranth's platforms have, for the controller in Verilog.

    Parameters
    ----------
    lanes : width of a word in 32-bit lanes
    chip : the SDRAM
    clock_hz : frequency of the clock, which is half of the SDRAM's

    Members
    -------
    port : In, :class:`.MemoryPort`
        The side of the memory; see :class:`.NativeMemory`.
    dfi : Out, :class:`.Dfi`
    ready : Out, 1 bit
        The SDRAM is initialised.

    """

    def __init__(self, lanes: int, chip: Chip, clock_hz: int):
        self.chip, self.clock_hz = chip, clock_hz
        bits = _PHASES * chip.bits
        self.memory = NativeMemory(Split(lanes, (8 * chip.octets // bits).bit_length() - 1, bits))
        super().__init__({"port": In(MemoryPort(lanes)), "dfi": Out(dfi_of(chip)), "ready": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self.memory
        wiring.connect(m, wiring.flipped(self.port), memory.port)
        dfi = dfi_of(self.chip).create()
        name = f"litedram_{self.chip.name.lower()}"
        platform.add_file(f"{name}.v", litedram.controller(self.chip, self.clock_hz, name))
        m.submodules.controller = Instance(
            name, i_sys_clk=ClockSignal(), i_sys_rst=ResetSignal(allow_reset_less=True) | ~self.ready,
            **_native_pins("writes", memory.writes), **_native_pins("reads", memory.reads),
            **dfi_pins(dfi),
        )  # fmt: skip
        wiring.connect(m, dfi, wiring.flipped(self.dfi))
        self._initialise(m)
        return m

    def _initialise(self, m):
        """Take the steps that LiteDRAM names, before the controller has the SDRAM."""
        steps = litedram.steps(self.chip, self.clock_hz)
        number = Signal(range(len(steps) + 1))
        left = Signal(range(max(step.wait for step in steps) + _SETTLES + 1))
        first = Signal(init=1)  # cycle of the step
        phase = self.dfi.p0

        def field(name):
            return Array(int(vars(step)[name]) for step in steps)[number]

        with m.If(~self.ready):
            m.d.comb += [
                phase.address.eq(field("address")),
                phase.bank.eq(field("bank")),
                phase.cs_n.eq(~(first & field("cs"))),
                phase.ras_n.eq(~(first & field("ras"))),  # where CS is tied to ground, too
                phase.cas_n.eq(~(first & field("cas"))),
                phase.we_n.eq(~(first & field("we"))),
            ]
            with m.If(first):
                m.d.sync += [first.eq(0), left.eq(field("wait") + _SETTLES)]
            with m.Elif(left == 0):
                m.d.sync += [first.eq(1), number.eq(number + 1), self.ready.eq(number == len(steps) - 1)]
            with m.Else():
                m.d.sync += left.eq(left - 1)
        # CKE is 1 from the first step on.
        begun = Signal()
        m.d.sync += begun.eq(1)
        m.d.comb += [self.dfi.p0.cke.eq(begun), self.dfi.p1.cke.eq(begun)]
