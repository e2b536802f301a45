"""What synthesis makes of a design, in simulation: blocks of memory, and a board's whole RNIC."""

import asyncio
import random

import pytest
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.system.test_verilog_rnic import memory_is_written_and_read
from open_rnic.cocotb_tests.system.test_whole import BOARD, board_and_twin
from open_rnic.host_driver.devices.names import parse
from open_rnic.host_driver.devices.sim.netlist import synthesized
from open_rnic.host_driver.net.frames import IcmpEcho, Protocol

WIDTHS = {1: 1, 2: 1, 4: 1, 9: 1, 18: 2, 36: 4}  # bits of a word of block RAM, and the parts that are written alone
FORM = r"a board is BOARD\[:N\]\[:sdram\|:netlist\] with N 1, 2, 4, 8, 16, 32 or 64, not"
NAMES = [f"{kind}_{width}" for kind in ("checked", "free") for width in WIDTHS]
PORTS = {"place": In(9), "source": In(9), "given": In(36), "writes": In(4)}


class Memories(wiring.Component):
    """Memories of all widths that a block RAM has, 512 words each. ``free``: a word is not read while it is written."""

    def __init__(self):
        super().__init__(PORTS | {name: Out(int(name.partition("_")[2])) for name in NAMES})

    def elaborate(self, platform):
        m = Module()
        for name in NAMES:
            width = int(name.partition("_")[2])
            attributes = {"ram_style": "block", **({"no_rw_check": 1} if name.startswith("free") else {})}
            init = [n % 2 for n in range(512)]
            m.submodules[name] = words = Memory(shape=width, depth=512, init=init, attrs=attributes)
            write, read = words.write_port(granularity=width // WIDTHS[width]), words.read_port(domain="comb")
            m.d.comb += [
                write.addr.eq(self.place), read.addr.eq(self.source), write.data.eq(self.given),
                write.en.eq(self.writes),
            ]  # fmt: skip
            m.d.sync += getattr(self, name).eq(read.data)
        return m


class Beside(wiring.Component):
    """The memories, and their netlist."""

    def __init__(self):
        super().__init__(PORTS | {
            f"{kind}_{name}": Out(int(name.partition("_")[2])) for kind in ("rtl", "netlist") for name in NAMES
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.memories = memories = Memories()
        platform.add_file("netlist.il", synthesized(Memories()))
        inputs = {name: getattr(self, name) for name in PORTS}
        m.submodules.netlist = Instance(
            "rnic", i_clk=ClockSignal(), i_rst=ResetSignal(), **{f"i_{name}": each for name, each in inputs.items()},
            **{f"o_{name}": getattr(self, f"netlist_{name}") for name in NAMES},
        )  # fmt: skip
        m.d.comb += [
            *(getattr(memories, name).eq(each) for name, each in inputs.items()),
            *(getattr(self, f"rtl_{name}").eq(getattr(memories, name)) for name in NAMES),
        ]
        return m


@bench()
async def a_netlist_reads_what_the_rtl_reads_but_for_bits_that_are_written_meanwhile(dut):
    edge, inverted = RisingEdge(dut.clk), dict.fromkeys(NAMES, 0)
    for cycle in range(3000):
        place, source = (random.choice([random.randrange(8), random.randrange(512)]) for _ in range(2))
        writes = random.choice([0, random.getrandbits(4)])
        dut.place.value, dut.source.value = place, source
        dut.writes.value, dut.given.value = writes, random.getrandbits(36)
        await edge
        for name in NAMES if cycle > 1 else ():
            rtl, netlist = (int(getattr(dut, f"{kind}_{name}").value) for kind in ("rtl", "netlist"))
            assert rtl ^ netlist == inverted[name], (cycle, name)
        for width, parts in WIDTHS.items():
            part = (1 << width // parts) - 1
            written = sum(part << n * width // parts for n in range(parts) if writes >> n & 1)
            inverted[f"free_{width}"] = written if place == source else 0


@long("a synthesis and a simulation of its own")
def test_memories():
    simulate(Beside(), __name__)


async def answer_to_a_ping(twin):
    """Ping the board, whose MAC is not known before."""
    answers = asyncio.Queue()
    twin.host.handlers[Protocol.ICMP] = lambda packet, _: answers.put_nowait(packet.payload)
    request = IcmpEcho(reply=False, identifier=1, sequence=2, payload=bytes(range(100)))
    twin.host.send(Protocol.ICMP, BOARD.ip, request.encode(), twin.now / 1000)
    twin.flush()
    async with asyncio.timeout(HANG):
        return IcmpEcho.decode(await answers.get())


@long("a synthesis and a build of minutes")
async def test_the_netlist_of_a_board_answers_arp_and_ping_and_connects_and_its_memory_is_written_and_read():
    async with board_and_twin(name="colorlight_5a75b:netlist") as (board, twin):
        assert await answer_to_a_ping(twin) == IcmpEcho(True, 1, 2, bytes(range(100)))
        await memory_is_written_and_read(board, twin)
        counters = await board.rnic.counters()
        assert not any(count for name, count in counters.items() if name not in ("RX_FRAMES", "TX_FRAMES"))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arty_a7:netlist", "the netlist of arty_a7 cannot be simulated: its FPGA is no ECP5"),
        ("colorlight_5a75b:sdram:netlist", f"{FORM} 'colorlight_5a75b:sdram:netlist'"),
        ("colorlight_5a75b:3:netlist", f"{FORM} 'colorlight_5a75b:3:netlist'"),
    ],
)
def test_a_netlist_that_cannot_be_simulated_is_refused(name, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        parse(f"udp:sim:{name}")
