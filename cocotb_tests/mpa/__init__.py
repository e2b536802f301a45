"""An MPA stream in anyone's cocotb testbench: a source, a sink and a monitor (RFC 5044 §4).

They know FPDUs, and leave the signals to a driver of octets: this project's packet streams
(:mod:`open_rnic.cocotb_tests.harness`) or cocotbext-axi's AXI4-Stream. docs/cocotb.md shows both.
"""

from open_rnic.cocotb_tests.mpa.endpoints import MpaMonitor, MpaSink, MpaSource
from open_rnic.cocotb_tests.mpa.fpdu import Checker, Fault, Fpdu, MpaError, Problem, layout, spoilt

__all__ = [
    "Checker",
    "Fault",
    "Fpdu",
    "MpaError",
    "MpaMonitor",
    "MpaSink",
    "MpaSource",
    "Problem",
    "layout",
    "spoilt",
]
