"""The AXI models of cocotbext-axi 0.1.28, without warnings: it calls functions that cocotb 2 has deprecated."""

import warnings

from cocotbext.axi import (
    AxiBus,
    AxiLiteBus,
    AxiLiteMaster,
    AxiRam,
    AxiResp,
    AxiStreamBus,
    AxiStreamFrame,
    AxiStreamSink,
    AxiStreamSource,
)

__all__ = [
    "AxiBus", "AxiLiteBus", "AxiLiteMaster", "AxiRam", "AxiResp", "AxiStreamBus", "AxiStreamFrame", "AxiStreamSink",
    "AxiStreamSource",
]  # fmt: skip

warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"cocotbext\.axi\.")
