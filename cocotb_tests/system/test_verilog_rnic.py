"""``rnic verilog --with rnic``: its ports, and the module in Verilator, with a memory on AXI4, behind a cable."""

import re
import subprocess
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.harness.verilog_tops import AxiRam, SimulatedVerilog, VerilogRnic, WishboneRam
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.cocotb_tests.system.test_many import connected
from open_rnic.cocotb_tests.system.test_verilog import LINT, VARIABLES, interface, written
from open_rnic.cocotb_tests.system.test_whole import BOARD, board_and_twin, ping
from open_rnic.host_driver.rdma import Access
from open_rnic.rtl.formats.memory_bus import MemoryBus

MEMORY = 1 << 16
PAGE = Path(__file__).parents[2] / "docs" / "verilog.md"
CONNECTIONS = shortened("one connection has other blocks", 1, [1, 4])
RAMS = {MemoryBus.AXI4: AxiRam, MemoryBus.WISHBONE: WishboneRam}
BUSES = shortened("one bus at a time is linted", 1, list(MemoryBus))


def rnic(connections, bus=MemoryBus.AXI4, **others):
    options = {"with": "rnic", "connections": connections, "memory": MEMORY, "memory-bus": bus, **others}
    return written(*(word for option, value in options.items() for word in (f"--{option}", str(value))))


async def memory_is_written_and_read(board, twin):
    """A peer connects, writes the board's memory from the sixth octet on, and reads all of it."""
    async with connected(board, twin) as (ours, theirs):
        octets = bytes(range(256)) * 24
        sink = bytearray(len(octets))
        with ours.register(sink, Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ) as place:
            await board.rnic.get("IDENTITY")  # behind the registration
            await theirs.write(octets[5:], place.stag, place.to + 5)
            assert await theirs.read(len(octets), place.stag, place.to) == bytes(5) + octets[5:]


@pytest.mark.parametrize("connections", CONNECTIONS)
def test_the_file_has_its_origin_and_its_ports(connections):
    text = rnic(connections)
    [made_by] = re.findall(r"^//   rnic (.*)$", text, re.MULTILINE)
    assert made_by.split() == [
        "verilog", "--with", "rnic", "--connections", str(connections), "--ring", "16384", "--memory", str(MEMORY),
        "--memory-bus", "axi4", "--memory-bits", "32", "--register-bus", "none", "--fabric", "samples",
        "--clock", "50000000", "--baud", "1000000", "--octet-cycles", "1", "--address", "10.0.0.2/24", "--name", "rnic",
    ]  # fmt: skip
    assert "\\$" not in text  # Amaranth's name for a signal without a name
    ports = interface(text, "rnic")
    assert [name for _, _, name in ports[:5]] == ["clk", "rst", "tick", "rx_clk", "tx_clk"]
    for port in (
        ("input", "7", "s_axis_rx_tdata"), ("output", "7", "m_axis_tx_tdata"), ("input", "31", "s_axis_samples_tdata"),
        ("output", "31", "m_axi_awaddr"), ("output", "", "irq"),
    ):  # fmt: skip
        assert port in ports
    section = PAGE.read_text().partition("\n## The whole RNIC\n")[2].partition("\n###")[0]
    rows = "".join(re.findall(r"^\|(.+?)\|", section, re.MULTILINE))
    [head] = re.findall(r"^module rnic \((.*?)^\);", text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"(\w+)(?: = \S+?)?,?$", head, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", rows)) == {name for name in names if not name.startswith("m_axi_")}


@pytest.mark.parametrize("bus", BUSES)
@pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(LINT, id="verilator"),
        pytest.param(["iverilog", "-g2005", "-Wall", "-o", "rnic"], id="icarus", marks=needs("iverilog")),
    ],
)
def test_the_file_compiles_without_a_warning(compiler, bus, tmp_path):
    (tmp_path / "rnic.v").write_text(rnic(1, bus, **{"register-bus": "axi4-lite", "fabric": "work"}))
    command = [*compiler, "rnic.v"]
    done = subprocess.run(command, cwd=tmp_path, env=VARIABLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--with", "rnic", "--lanes", "2"], "--lanes 2 is not for --with rnic"),
        (["--with", "rnic", "--memory", "9"], "memory must be a power of 2 from 128 to 1073741824, not 9"),
        (["--with", "rnic", "--memory", "0"], "memory must be a power of 2 from 128 to 1073741824, not 0"),
        (["--with", "rnic", "--memory-bus", "none", "--memory", "0x200000"],
         "memory must be a power of 2 from 128 to 1048576, not 2097152"),
        (["--with", "rnic", "--memory-bus", "litedram", "--memory-bits", "0"],
         "memory_bits must be a power of 2 from 32 to 512, not 0"),
        (["--with", "rnic", "--memory-bus", "litedram", "--memory-bits", "1048576", "--memory", "1024"],
         "memory_bits must be a power of 2 from 32 to 512, not 1048576"),
        *((["--with", "rnic", "--ring", ring], f"ring must be a power of 2 from 2048 to 65536, not {ring}")
          for ring in ("-5", "0", "1", "100", "1024", "131072")),
        (["--memory-bus", "wishbone"], "--memory-bus wishbone is for --with rnic"),
        (["--with", "rnic", "--memory-bits", "64"], "words of 64 bits are for a memory at LiteDRAM, not on axi4"),
        (["--with", "rnic", "--clock", "50"], "clock must be 1000000 to 1000000000 Hz, not 50"),
        *((["--with", "rnic", "--octet-cycles", number], f"octet_cycles must be 1 to 1000, not {number}")
          for number in ("0", "1001")),
        (["--fabric", "work"], "--fabric work is for --with rnic"),
        (["--with", "rdma", "--register-bus", "axi4-lite"], "--register-bus axi4-lite is for --with rnic"),
        (["--connections", "4"], "--connections 4 is for --with rnic"),
    ],
)
def test_options_are_checked(options, message):
    command = [*RNIC, "verilog", *options, "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"rnic: {message}\n")


@long("builds of their own; test_fusesoc.py runs the Verilog, test_axi_memory.py and test_wishbone_memory.py its buses")
@pytest.mark.parametrize("bus", RAMS)
@pytest.mark.parametrize("connections", [1, 4])
async def test_a_peer_connects_pings_and_writes_into_the_memory(connections, bus):
    top = VerilogRnic(rnic(connections, bus), connections, RAMS[bus](MEMORY))
    simulated = await SimulatedVerilog.open(top)
    async with board_and_twin(name=simulated) as (board, twin):
        assert len(board.rnic.paths) == connections
        engine = board.tcp.open_device
        await ping(board.tcp, str(BOARD.ip), twin, passive=engine)
        await memory_is_written_and_read(board, twin)
        counters = await board.rnic.counters()
        assert counters["RX_FRAMES"]
        assert not any(count for name, count in counters.items() if name not in ("RX_FRAMES", "TX_FRAMES"))
