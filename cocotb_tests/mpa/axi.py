"""The AXI ports of the module that ``rnic verilog`` writes, driven by cocotbext-axi, with its registers by name."""

from typing import Any

from open_rnic.host_driver.devices.sim.cocotbext_axi import (
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamSink,
    AxiStreamSource,
)
from open_rnic.rtl.registers import BY_NAME

__all__ = ["MpaAxi"]


class MpaAxi:
    """Drivers for all ports of ``mpa_datapath``, whose prefixes in ``dut`` are those of docs/verilog.md.

    Attributes
    ----------
    ulpdu_in, mpa_in : ``AxiStreamSource``
        A ULPDU is sent as ``AxiStreamFrame(ulpdu, tuser=len(ulpdu))``.
    ulpdu_out, mpa_out : ``AxiStreamSink``
        ``tuser`` of the last octet of a ULPDU is its verdict.
    registers : ``AxiLiteMaster``

    """

    def __init__(self, dut: Any):
        def port(kind: Any, prefix: str) -> Any:
            return kind(AxiStreamBus.from_prefix(dut, prefix), dut.clk, dut.rst)

        self.registers = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        self.ulpdu_in, self.mpa_in = port(AxiStreamSource, "s_axis_ulpdu"), port(AxiStreamSource, "s_axis_mpa")
        self.ulpdu_out, self.mpa_out = port(AxiStreamSink, "m_axis_ulpdu"), port(AxiStreamSink, "m_axis_mpa")
        self.all = self.ulpdu_in, self.mpa_in, self.ulpdu_out, self.mpa_out

    async def get(self, name: str) -> int:
        """Read the register with this name; raises KeyError for an unknown one."""
        word: int = await self.registers.read_dword(BY_NAME[name].address)
        return word

    async def set(self, name: str, **fields: int) -> None:
        """Write these fields of the register with this name, and the values at reset into its others."""
        register = BY_NAME[name]
        word = register.reset
        for field, value in fields.items():
            word = word & ~register[field].mask | register[field].put(value)
        await self.registers.write_dword(register.address, word)
