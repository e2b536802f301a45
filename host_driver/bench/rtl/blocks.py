"""What is measured: one plain table. A component is made only when its function is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

__all__ = ["BLOCKS", "DATA_PATH", "REFERENCE", "Block"]


@dataclass(frozen=True)
class Block:
    """``make`` gives the component for a width in lanes. ``wide``: it moves a beat of that width in each cycle.

    ``haste``: what nextpnr is asked for, by what it is asked for of the whole data path. ``vast``: at 16 lanes it has
    more wires than nextpnr's default router ends with.
    """

    name: str
    make: Callable[[int], Any]
    wide: bool = True
    haste: float = 1.5
    vast: bool = False


def _rtl(module: str) -> Any:
    return import_module(f"open_rnic.rtl.{module}")


def _here() -> Any:
    return import_module("open_rnic.host_driver.bench.rtl.harness")


_TABLE = (
    Block("MpaDatapath", lambda lanes: _rtl("datapath").MpaDatapath(lanes), haste=1, vast=True),
    Block("TX+RX", lambda lanes: _here().BothDirections(lanes), haste=1, vast=True),
    Block("TX", lambda lanes: _rtl("transmit").TxDatapath(lanes), haste=1.1),
    Block("RX", lambda lanes: _rtl("receive").RxDatapath(lanes), haste=1.1),
    Block("TxModeSwitch", lambda lanes: _rtl("stream_mode").TxModeSwitch(lanes)),
    Block("Fence", lambda lanes: _rtl("fence").Fence(lanes)),
    Block("FpduFramer", lambda lanes: _rtl("framer").FpduFramer(lanes)),
    Block("MarkerInserter", lambda lanes: _rtl("markers").MarkerInserter(lanes)),
    Block("CrcAppender", lambda lanes: _rtl("crc").crc_appender(lanes)),
    Block("RxModeSwitch", lambda lanes: _rtl("stream_mode").RxModeSwitch(lanes)),
    Block("ChunkPacker", lambda lanes: _rtl("chunks").ChunkPacker(lanes)),
    Block("Delineator", lambda lanes: _rtl("delineator").Delineator(lanes)),
    Block("FpduFinder", lambda lanes: _rtl("finder").FpduFinder(lanes)),
    Block("FpduAligner", lambda lanes: _rtl("aligner").FpduAligner(lanes)),
    Block("FpduChecker", lambda lanes: _rtl("checker").FpduChecker(lanes)),
    Block("RtrDetector", lambda lanes: _rtl("rtr").RtrDetector(lanes)),
    Block("RegisterBank", lambda lanes: _rtl("register_bank").RegisterBank(), wide=False),
    Block("EventQueue", lambda lanes: _rtl("events").EventQueue(2, 16), wide=False),
    Block("CRC-32C", lambda lanes: _rtl("crc32c").Crc32c(lanes)),
    Block("amaranth.lib.crc", lambda lanes: _here().AmaranthCrc(lanes)),
)

BLOCKS = {block.name: block for block in _TABLE}
DATA_PATH = ("TX", "RX", "TX+RX")  # those whose cycles are counted
REFERENCE = "amaranth.lib.crc"  # which this project did not write
