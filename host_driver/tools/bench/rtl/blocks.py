"""The table of the blocks that ``rnic bench rtl`` measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from open_rnic.host_driver.tools.bench.rtl.harness import AmaranthCrc, BothDirections, mac_and_phy, port_and_phy
from open_rnic.rtl.lib.crc32c import Crc32c
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.mpa.events import EventQueue
from open_rnic.rtl.mpa.rx.datapath import RxDatapath
from open_rnic.rtl.mpa.rx.delineator import Delineator
from open_rnic.rtl.mpa.rx.fpdu_aligner import FpduAligner
from open_rnic.rtl.mpa.rx.fpdu_checker import FpduChecker
from open_rnic.rtl.mpa.rx.fpdu_finder import FpduFinder
from open_rnic.rtl.mpa.rx.fpdu_receiver import FpduReceiver
from open_rnic.rtl.mpa.rx.markers import ChunkPacker
from open_rnic.rtl.mpa.rx.mode_switch import RxModeSwitch
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.rx.store_and_forward import StoreAndForward
from open_rnic.rtl.mpa.shared_mpa import SharedMpa
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender
from open_rnic.rtl.mpa.tx.datapath import TxDatapath
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.mpa.tx.framer import FpduFramer
from open_rnic.rtl.mpa.tx.markers import MarkerInserter
from open_rnic.rtl.mpa.tx.mode_switch import TxModeSwitch
from open_rnic.rtl.net.net import Net
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.sample_writer import SampleWriter
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.rnic.shared_datapath import SharedDatapath
from open_rnic.rtl.tcp.engine import TcpEngine
from open_rnic.rtl.tcp.path import NetworkPath

__all__ = ["BLOCKS", "DATA_PATH", "REFERENCE", "Block"]


@dataclass(frozen=True)
class Block:
    """A block to measure.

    Parameters
    ----------
    name : name in tables and in ``--block``
    make : returns the component for a width in lanes
    wide : whether the block transfers a beat of that width in each cycle, and therefore has a rate
    haste : target frequency for nextpnr, relative to the target for the whole data path
    least : the narrowest data path that contains the block, in lanes
    delay : the delay of logic, in ps, below which synthesis saves area; 0: all logic is made as fast as possible

    """

    name: str
    make: Callable[[int], Any]
    wide: bool = True
    haste: float = 1.5
    least: int = 1
    delay: int = 0


_TABLE = (
    Block("MpaDatapath", MpaDatapath, haste=1),
    Block("TX+RX", BothDirections, haste=1),
    Block("TX", TxDatapath, haste=1.1),
    Block("RX", RxDatapath, haste=1.1),
    Block("TxModeSwitch", TxModeSwitch),
    Block("Fence", Fence),
    Block("FpduFramer", FpduFramer),
    Block("MarkerInserter", MarkerInserter),
    Block("CrcAppender", crc_appender),
    Block("RxModeSwitch", RxModeSwitch),
    Block("FpduReceiver", FpduReceiver),
    Block("ChunkPacker", ChunkPacker),
    Block("Delineator", Delineator, least=2),
    Block("FpduFinder", FpduFinder, least=2),
    Block("FpduAligner", FpduAligner, least=2),
    Block("FpduChecker", FpduChecker, least=2),
    Block("RtrDetector", RtrDetector),
    Block("StoreAndForward", lambda lanes: StoreAndForward(lanes, 4096)),
    Block("SharedMpa, 4", lambda lanes: SharedMpa(4, lanes), haste=0.8),
    Block("SharedMpa, 16", lambda lanes: SharedMpa(16, lanes), haste=0.8),
    Block("RegisterBank", lambda _: RegisterBank(), wide=False),
    Block("EventQueue", lambda _: EventQueue(2, 16), wide=False),
    Block("NetworkPath", lambda _: NetworkPath(4), wide=False, haste=0.5),
    Block("Net", lambda _: Net(), wide=False, haste=0.5),
    Block("TcpEngine", lambda _: TcpEngine(4), wide=False, haste=0.5),
    Block("Mac", lambda _: mac_and_phy(), wide=False, haste=0.8),
    Block("EthernetPort", lambda _: port_and_phy(), wide=False, haste=0.8),
    Block("RdmaDatapath", RdmaDatapath, haste=0.5, delay=12000),
    Block("RdmaEngine", RdmaEngine, haste=0.5, delay=12000),
    Block("RdmaEngine, 4", lambda lanes: RdmaEngine(lanes, connections=4), haste=0.5, delay=12000),
    Block("RdmaEngine, 16", lambda lanes: RdmaEngine(lanes, regions=64, connections=16), haste=0.5, delay=12000),
    Block("SharedDatapath, 4", lambda lanes: SharedDatapath(4, 4096, 4096, lanes), haste=0.5, delay=12000),
    Block("SharedDatapath, 16", lambda lanes: SharedDatapath(16, 4096, 4096, lanes), haste=0.5, delay=12000),
    Block("SampleWriter", SampleWriter, haste=0.5),
    Block("CRC-32C", Crc32c),
    Block("amaranth.lib.crc", AmaranthCrc),
)

BLOCKS = {block.name: block for block in _TABLE}
DATA_PATH = ("TX", "RX", "TX+RX")  # the blocks whose cycles are counted
REFERENCE = "amaranth.lib.crc"  # written by others, and shown for comparison
