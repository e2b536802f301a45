"""A source, a sink and a monitor of MPA streams for any cocotb testbench (RFC 5044 §4).

They process FPDUs, and leave the signals to a driver that transfers octets: this project's packet streams
(:mod:`open_rnic.cocotb_tests.harness`) or cocotbext-axi's AXI4-Stream. docs/cocotb.md has an example of each.
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
