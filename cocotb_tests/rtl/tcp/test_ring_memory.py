# amaranth: UnusedElaboratable=no
"""The rings of TCP in memories behind AXI4, whose model is that of cocotbext-axi; and where rings may lie."""

import functools
import itertools
import logging
import random

import cocotb
import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.cocotb_tests.rtl.tcp.test_rate import SIDES, Both, expose, outside
from open_rnic.host_driver.devices.sim.cocotbext_axi import AxiBus, AxiRam
from open_rnic.rtl.lib.buses import Axi4
from open_rnic.rtl.rdma.axi_memory import AxiMemory
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS
from open_rnic.rtl.rnic.linked_rnic import LinkedRnic
from open_rnic.rtl.rnic.separate_rnic import SeparateRnic
from open_rnic.rtl.tcp.config import EngineConfig, RingMemory
from open_rnic.rtl.tcp.engine import TcpEngine
from open_rnic.rtl.tcp.path import NetworkPath
from open_rnic.rtl.tcp.ring_memory import KINDS

CONNECTIONS, RING = 4, 8192
SIZE = 2 * CONNECTIONS * RING
PLACES = {"receive": CONNECTIONS * RING, "send": 0}
BUSES = [f"{side}_{kind}" for side in SIDES for kind in KINDS]


class AxiPair(wiring.Component):
    """Two network paths, ``a`` and ``b``, of which the test is the wires. Each kind of rings has an AXI4 manager."""

    def __init__(self):
        config = EngineConfig(send_ring=RING, receive_ring=RING, memory=RingMemory(**PLACES))
        self.paths = {side: NetworkPath(CONNECTIONS, config) for side in SIDES}
        super().__init__({
            **{f"{bus}_axi": wiring.Out(Axi4(1, ADDRESS_BITS)) for bus in BUSES},
            **{side: wiring.Out(outside(path)) for side, path in self.paths.items()},
        })

    def elaborate(self, platform):
        m = Module()
        for side, path in self.paths.items():
            m.submodules[side] = path
            expose(m, path, getattr(self, side))
            for kind in KINDS:
                m.submodules[f"{side}_{kind}"] = memory = AxiMemory(1)
                wiring.connect(m, getattr(path, f"{kind}_memory"), memory.port)
                wiring.connect(m, memory.m_axi, wiring.flipped(getattr(self, f"{side}_{kind}_axi")))
        return m


@bench(cycles=400_000)
async def octets_pass_both_ways(dut):
    rams = {bus: AxiRam(AxiBus.from_prefix(dut, f"{bus}_axi"), dut.clk, dut.rst, size=SIZE) for bus in BUSES}
    for ram in rams.values():
        write, read = ram.write_if, ram.read_if
        write.log.setLevel(logging.WARNING)  # not a line for each word
        read.log.setLevel(logging.WARNING)
        for each in (write.aw_channel, write.w_channel, write.b_channel, read.ar_channel, read.r_channel):
            each.set_pause_generator(itertools.cycle(random.choices([0, 0, 1], k=997)))
    both = Both(dut, 40, a=[7].__contains__, b=[9].__contains__)
    await both.open()
    packets = {side: [random.randbytes(random.randint(1, 2000)) for _ in range(12)] for side in SIDES}
    waiting = []
    for side, other in (SIDES, SIDES[::-1]):
        for packet in packets[side]:
            both.sources[side].send(packet, connection=0)
        waiting.append(cocotb.start_soon(both.receive(other, b"".join(packets[side]))))
    for each in waiting:
        await each
    for side, other in (SIDES, SIDES[::-1]):
        assert sum(length for _, length in both.segments(side)) > len(b"".join(packets[side]))  # one was sent again
        for bus, of in ((f"{side}_send", side), (f"{other}_receive", side)):
            kind = bus.rpartition("_")[2]
            octets = rams[bus].read(PLACES[kind], CONNECTIONS * RING)
            assert b"".join(packets[of])[-1000:] in octets[:RING] + octets[:RING]


def test_rings_on_axi():
    simulate(functools.partial(AxiPair), __name__)


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (RingMemory(receive=RING), "receive must be a multiple of 0x8000, the size of its rings, not 0x2000"),
        (RingMemory(send=1 << 32), "send must be a multiple of 0x8000, the size of its rings, not 0x100000000"),
        (RingMemory(ahead=12), "ahead must be a power of 2 from 8 to 64, not 12"),
        (RingMemory(writes=4), "writes must be a power of 2 from 8 to 64, not 4"),
    ],
)
def test_unsuitable_places_of_rings_are_rejected(memory, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        TcpEngine(CONNECTIONS, EngineConfig(memory=memory))


def test_an_rnic_without_ports_for_the_memory_of_its_rings_is_rejected():
    config = EngineConfig(memory=RingMemory())
    with pytest.raises(ValueError, match="a SeparateRnic has the rings of TCP in block RAM"):
        SeparateRnic(2, config)
    with pytest.raises(ValueError, match="for more than one connection"):
        LinkedRnic(1, config, memory=4096, period=8)
