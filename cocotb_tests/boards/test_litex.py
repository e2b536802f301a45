"""The RNIC in a SoC of LiteX: its main memory is what a peer reaches, and what the SoC's bus reads."""

import asyncio
import os
import random
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
from amaranth.hdl import Fragment

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.harness.verilog_tops import SimulatedVerilog
from open_rnic.cocotb_tests.plugins.coroutines import run
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.system.test_many import connected
from open_rnic.cocotb_tests.system.test_whole import BOARD, RESPONDER, board_and_twin
from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access, DeviceBuffer
from open_rnic.host_driver.rdma.samples import Delivery, SampleReader, SampleWriter

ROOT = Path(__file__).parents[2]
WORDS = 64  # of a trace


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "litex-boards has no target 'nowhere'"),
        (["colorlight_5a_75b", "--set", "revision"], "--set takes NAME=VALUE, not 'revision'"),
        (
            ["colorlight_5a_75b", "--set", "csr_data_width=7"],
            "colorlight_5a_75b: its target in litex-boards fails with cpu_type=None, board=5a-75b, revision=7.0, "
            "sys_clk_freq=50000000.0, csr_data_width=7: SoCError",
        ),
    ],
)
def test_what_cannot_be_is_named_in_a_line(arguments, message, tmp_path):
    done = rnic(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"rnic: {message}")


@pytest.mark.parametrize(
    ("board", "given", "message"),
    [
        ("colorlight_5a75b", {}, "litex-boards has no target 'colorlight_5a75b'; there is colorlight_5a_75b"),
        ("ecpix", {}, "litex-boards has no target 'ecpix'; there is lambdaconcept_ecpix5"),
        ("20k", {}, "litex-boards has several targets '20k': sipeed_tang_nano_20k, sipeed_tang_primer_20k"),
        ("radiona_ulx3s", {}, "the target radiona_ulx3s has no Ethernet"),
        ("ecpix5", {}, "DDR3 needs a CPU to initialise it: --cpu-type vexriscv"),
        ("colorlight_5a_75b", {"colour": "red"}, "the target colorlight_5a_75b has no parameter 'colour'"),
        ("colorlight_5a_75b", {"self": "1"}, "the target colorlight_5a_75b has no parameter 'self'"),
        ("colorlight_5a_75b", {"sys_clk_freq": "abc"}, "sys_clk_freq is a number, not 'abc'"),
        ("colorlight_5a_75b", {"with_etherbone": "3"}, "with_etherbone is true or false, not '3'"),
        ("colorlight_5a_75b", {"with_etherbone": "true"},
         "colorlight_5a_75b: Etherbone and the RNIC cannot share a PHY: leave out with_etherbone"),
        ("colorlight_5a_75b", {"sys_clk_freq": "20e6"}, "sys must have 40 MHz or more for this PHY, not 20"),
        *(("colorlight_5a_75b", {name: text},
           f"colorlight_5a_75b: its target in litex-boards fails with .*, {name}=.*: .*Error")
          for name, text in (("eth_phy", "7"), ("sdram_rate", "5:1"), ("integrated_main_ram_size", "5"))),
        *(("colorlight_5a_75b", {"sys_clk_freq": text}, "its target in litex-boards fails with .*, sys_clk_freq=.*: ")
          for text in ("0", "nan", "inf", "1e12")),
        ("colorlight_5a_75x", {}, "colorlight_5a_75x: its target .*: TypeError: .*'board' and 'revision'"),
        ("qmtech_xc7a35t", {}, "qmtech_xc7a35t: its target .*: ConstraintError: Resource not found: eth_clocks"),
        ("terasic_deca", {}, "the SoC has no main memory; block RAM makes one: --set integrated_main_ram_size=65536"),
        ("terasic_de2_115", {}, "the SDRAM's words of 16 bits are too narrow without a CPU's cache"),
    ],
)  # fmt: skip
def test_a_target_that_cannot_have_an_rnic_says_why(board, given, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        soc_of(board, tmp_path, given=given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu_type": "vex"}, "LiteX has no CPU 'vex'"),
        ({"cpu_type": "zynq7000"}, "ecpix5: its target .* fails with cpu_type=zynq7000, .*: ConstraintError"),
        ({"cpu_type": "vexriscv", "memory": 0}, "memory must be a power of 2 from 128 to 1073741824, not 0"),
        ({"cpu_type": "vexriscv", "ring": 0}, "ring must be a power of 2 from 2048 to 65536, not 0"),
        ({"cpu_type": "vexriscv", "memory": 1 << 30}, "the SoC's main memory has 536870912 octets, fewer than 1073"),
    ],
)
def test_a_cpu_or_a_memory_that_the_soc_cannot_have_is_named(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        soc_of("ecpix5", tmp_path, **options)


def test_a_missing_package_is_named_with_the_way_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "litespi", None)
    for board in ("colorlight_i5", "colorlight_i9"):
        with pytest.raises(ImportError, match="needs the Python package litespi: run pip install litespi==2024"):
            soc_of(board, tmp_path)


@pytest.fixture
def no_verilog(monkeypatch):
    """The RNIC's Verilog takes seconds."""
    for name in "PlainRnic", "module":
        monkeypatch.setattr(f"open_rnic.boards.litex.{name}", lambda *_, **__: "")


@pytest.mark.usefixtures("no_verilog")
def test_a_text_becomes_what_the_parameter_is(tmp_path):
    soc = soc_of("colorlight_5a_75b", tmp_path, given={"revision": "8.0", "sys_clk_freq": "45e6", "l2_size": "0x1000"})
    assert soc.platform.revision == "8.0"
    assert soc.sys_clk_freq == 45_000_000


@pytest.mark.usefixtures("no_verilog")
@pytest.mark.parametrize(
    ("board", "revision", "frequency"),
    [("colorlight_5a_75b", "7.0", 50e6), ("5a_75e", "7.1", 50e6), ("mozart_ml1", "v0", 48e6)],
)
def test_a_target_has_its_own_revision_and_is_not_too_fast(board, revision, frequency, tmp_path):
    soc = soc_of(board, tmp_path)
    assert soc.platform.revision == revision
    assert soc.sys_clk_freq == frequency


@pytest.mark.usefixtures("no_verilog")
def test_the_clocks_of_the_phy_have_the_constraints_of_litexs_mac(tmp_path):
    soc = soc_of("colorlight_5a_75b", tmp_path)
    sys, rx, tx = soc.crg.cd_sys.clk, soc.ethphy.crg.cd_eth_rx.clk, soc.ethphy.crg.cd_eth_tx.clk
    asked = [(text, args["clk"]) for text, args in soc.platform.constraint_manager.platform_commands if args]
    assert [text.split()[-2] for text, clock in asked if clock is rx or clock is tx] == ["125.0", "125.0"]
    assert {frozenset(map(id, pair)) for pair in soc.platform.toolchain.false_paths} >= {
        frozenset(map(id, pair)) for pair in ((sys, rx), (sys, tx), (rx, tx))
    }


@pytest.mark.parametrize(("cpu_type", "interrupts"), [("vexriscv", {"rnic", "rnic_work"}), ("femtorv", set())])
def test_a_cpu_gets_a_work_queue_registers_and_the_interrupts_it_can_have(cpu_type, interrupts, tmp_path, monkeypatch):
    monkeypatch.setattr("open_rnic.boards.litex.module", lambda rnic, *_: Fragment.get(rnic, None) and "")
    soc = soc_of("ecpix5", tmp_path, cpu_type=cpu_type)
    assert {each for each in soc.irq.locs if "rnic" in each} == interrupts
    assert soc.rnic_work.room
    assert soc.rnic_registers.busy


def soc_of(board, folder, *, cpu_type=None, given=(), **options):
    from open_rnic.boards.litex.build import make

    return make(board, cpu_type=cpu_type, folder=folder, given=dict(given), rnic=options)


def test_a_tool_without_a_report_that_is_read_is_said(tmp_path, monkeypatch):
    tool = tmp_path / "bin" / "vivado"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    done = rnic("digilent_nexys4", "--build", "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("no report of nextpnr to read cells and clocks from")
    constraints = (tmp_path / "gateware" / "digilent_nexys4.xdc").read_text()
    assert "create_clock -name eth_rx_clk -period 20.0" in constraints


def test_the_files_of_a_board_without_a_cpu_have_its_sdram_as_the_memory(tmp_path):
    done = rnic("colorlight_5a_75b", "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "peers reach 4194304 octets of the main memory" in done.stdout.splitlines()
    text = (tmp_path / "gateware" / "colorlight_5a_75b.v").read_text()
    assert "rnic rnic(" in text
    module = (tmp_path / "gateware" / "rnic.v").read_text()
    assert "module rnic (" in module
    assert "dram_writes_cmd_addr" in module
    assert "samples" not in module
    assert not [part for part in ("liteethmac", "wishbone2native", "cache") if part in text.lower()]


@long("a C library is compiled, in a minute")
def test_the_bios_of_a_cpu_is_compiled_without_the_time(tmp_path):
    """It trains the DDR3 of an ECPIX-5; the compiler is one that Python's packages bring."""
    done = rnic("ecpix5", "--cpu-type", "vexriscv", "--out", ".", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "peers reach 536870912 octets of the main memory, from 0x40000000 on" in done.stdout.splitlines()
    bios = (tmp_path / "software" / "bios" / "bios.bin").read_bytes()
    assert b"Read leveling" in bios
    assert b"BIOS built on" not in bios
    assert "VexRiscv VexRiscv(" in (tmp_path / "gateware" / "lambdaconcept_ecpix5.v").read_text()
    assert "module VexRiscv (" in (tmp_path / "gateware" / "VexRiscv.v").read_text()


def rnic(*arguments, cwd):
    command = [*RNIC, "litex", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


class Csrs:
    """The bus to the CSRs of a module."""

    def __init__(self, module):
        from litex.soc.interconnect.csr_bus import CSRBank, Interface

        module.submodules.bank = bank = CSRBank(module.get_csrs(), bus=Interface(data_width=32))
        self.bus, self.places = bank.bus, {csr.name.removesuffix("0"): n for n, csr in enumerate(bank.simple_csrs)}

    def write(self, **words):
        for name, word in words.items():
            yield from self.bus.write(self.places[name], word)
        yield

    def read(self, name):
        yield self.bus.adr.eq(self.places[name])
        yield
        yield
        return (yield self.bus.dat_r)


def test_a_work_queue_holds_a_post_until_the_rnic_takes_it_and_counts_the_reports():
    from litex.soc.interconnect import stream
    from migen import Module, Signal, run_simulation

    from open_rnic.boards.litex.work_queue import WorkQueue

    fields = "address", "octets", "stag", "to", "opcode", "connection"
    rnic = Module()
    rnic.work = stream.Endpoint([(name, 64) for name in fields])
    rnic.work_done, rnic.work_failed = Signal(), Signal(5)
    queue = WorkQueue(rnic)
    csrs = Csrs(queue)
    found = []

    def program():
        for number in 10, 11:
            assert (yield from csrs.read("room"))
            yield from csrs.write(address=number, octets=number, stag=number, to1=number, to=9, post=3 | number << 8)
            for _ in range(10):
                assert not (yield from csrs.read("room"))
            yield rnic.work.ready.eq(1)
            yield
            assert (yield rnic.work.valid)
            found.append([])
            for name in fields:
                found[-1].append((yield getattr(rnic.work, name)))
            yield rnic.work.ready.eq(0)
            yield
        yield rnic.work_done.eq(1)
        yield
        yield rnic.work_done.eq(0)
        yield rnic.work_failed.eq(5)
        yield
        yield rnic.work_failed.eq(0)
        assert (yield from csrs.read("done")) == 1
        assert (yield from csrs.read("failed")) == 5
        assert (yield queue.ev.report.pending)

    run_simulation(queue, program())
    assert found == [[n, n, n, n << 32 | 9, 3, n] for n in (10, 11)]


def test_an_access_to_a_register_ends_when_the_rnic_answers():
    """It keeps the bus of the CSRs only for the access to these."""
    from litex.soc.interconnect import axi
    from migen import run_simulation

    from open_rnic.boards.litex import RegisterAccess

    registers = axi.AXILiteInterface()
    access = RegisterAccess(registers)
    csrs = Csrs(access)
    written = []

    def ends(**words):
        yield from csrs.write(**words)
        for _ in range(10):
            assert (yield from csrs.read("busy"))
        for _ in range(30):
            if not (yield from csrs.read("busy")):
                return
        raise AssertionError

    def program():
        yield from ends(value=0x1234, access=1 << 31 | 0x3FC0C)
        yield from ends(access=0x3FC10)
        assert (yield from csrs.read("word")) == 0x3FC10 * 3

    def rnic():
        for asked, answer in (registers.aw, registers.b), (registers.ar, registers.r):
            while not (yield asked.valid):
                yield
            for _ in range(20):
                yield
            address = yield asked.addr
            written.append((address, (yield registers.w.valid), (yield registers.w.data), (yield registers.w.strb)))
            yield asked.ready.eq(1)
            yield registers.w.ready.eq(1)
            yield
            yield asked.ready.eq(0)
            yield registers.w.ready.eq(0)
            for _ in range(20):
                yield
            yield registers.r.data.eq(address * 3)
            yield answer.valid.eq(1)
            yield
            yield answer.valid.eq(0)

    run_simulation(access, [program(), rnic()])
    assert written == [(0x3FC0C, 1, 0x1234, 0xF), (0x3FC10, 0, 0x1234, 0xF)]


def test_an_sdram_is_initialised_without_a_cpu():
    """In LiteDRAM's own sequence, each command for one cycle, at least 1,000 cycles apart; the controller is next."""
    from litedram.common import PhySettings
    from litedram.dfii import DFIInjector
    from litedram.init import cmds, get_sdram_phy_init_sequence
    from migen import run_simulation

    from open_rnic.boards.litex import SdramStart

    settings = PhySettings(
        phytype="GENSDRPHY", memtype="SDR", databits=32, dfi_databits=32, nphases=1, rdphase=0, wrphase=0, cl=2,
        read_latency=4, write_latency=0,
    )  # fmt: skip
    controller = SimpleNamespace(settings=SimpleNamespace(phy=settings, timing=None))
    sdram = SimpleNamespace(dfii=DFIInjector(11, 1, 1, 32), controller=controller)
    start = SdramStart(sdram)
    start.submodules += sdram.dfii
    pins = sdram.dfii.master.phases[0]
    found = []

    def watch():
        cycle = 0
        while not (yield start.done):
            assert (yield pins.cke)
            if not (yield pins.cs_n):
                lines = (yield pins.ras_n), (yield pins.cas_n), (yield pins.we_n)
                found.append((cycle, lines, (yield pins.address), (yield pins.bank)))
            cycle += 1
            yield

    run_simulation(start, watch())
    steps, _ = get_sdram_phy_init_sequence(settings, None)
    wanted = [step for step in steps if step[3] != cmds["CKE"]]
    assert [(lines, address, bank) for _, lines, address, bank in found] == [
        (tuple(int(f"_{name}" not in what) for name in ("RAS", "CAS", "WE")), address, bank)
        for _, address, bank, what, _ in wanted
    ]
    times = [time for time, *_ in found]
    assert times[0] > 20_000
    assert all(later - earlier >= 1000 for earlier, later in pairwise(times))


@long("the SoC is built in a minute, and simulated for minutes")
def test_a_peer_moves_1_mib_into_sdram_and_back(tmp_path):
    """The twin writes at LiteDRAM's crossbar, the SoC's bus has the same octets, and the twin reads them."""
    from open_rnic.cocotb_tests.harness.litex_soc import MAIN_RAM, SimulatedSoc, soc_verilog

    octets = bytearray(random.Random(1).randbytes(1 << 20))

    async def body():
        simulated = await SimulatedVerilog.open(SimulatedSoc(soc_verilog(0, tmp_path)), "soc")
        async with board_and_twin(name=simulated) as (board, twin), connected(board, twin) as (ours, theirs):
            buffer = DeviceBuffer(board.rnic.paths[0], len(octets))
            with ours.register(buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ) as place:
                await board.rnic.get("IDENTITY")  # behind the registration
                await theirs.write(octets, place.stag, place.to)
                octets[5:12] = b"in part"
                await theirs.write(octets[5:12], place.stag, place.to + 5)
                assert await theirs.read(4, place.stag, place.to) == octets[:4]  # behind the RDMA Writes
                words = await simulated.words(MAIN_RAM + buffer.address, len(octets) // 4)
                assert b"".join(word.to_bytes(4, "little") for word in words) == octets
                assert await theirs.read(len(octets), place.stag, place.to) == octets

    run(body())


@long("the SoC, and a compiler's first run, take a minute")
def test_a_program_of_the_cpu_answers_what_a_peer_writes_into_its_buffer(tmp_path):
    """The program is that of the docs; the peer is the twin, which reads the answer, and is given it, too."""
    from open_rnic.cocotb_tests.harness.litex_soc import SimulatedSoc, soc_verilog

    program = ROOT / "docs" / "examples" / "litex_buffer.c"
    text = b"a program reads what a peer has written".ljust(1000, b"!")

    async def body():
        soc = SimulatedSoc(soc_verilog(1 << 14, tmp_path, program=program))
        simulated = await SimulatedVerilog.open(soc, "soc")
        async with board_and_twin(name=simulated) as (board, twin), connected(board, twin) as (ours, theirs):
            buffer = DeviceBuffer(board.rnic.paths[0], 1024)
            assert buffer.address == 64  # as the program says
            with ours.register(buffer, Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ) as place:
                await board.rnic.get("IDENTITY")  # behind the registration
                answer = bytearray(1000)
                with theirs.register(answer, Access.REMOTE_WRITE) as sink:
                    for number, (stag, to) in (1, (0, 0)), (2, (sink.stag, sink.to)):
                        await theirs.write(text + struct.pack("<IQ", stag, to), place.stag, place.to)
                        await theirs.write(struct.pack("<I", number), place.stag, place.to + 1020)
                        async with asyncio.timeout(HANG):
                            while await theirs.read(4, place.stag, place.to + 1016) != struct.pack("<I", number):
                                await asyncio.sleep(0)
                        assert await theirs.read(1000, place.stag, place.to) == text.upper()
                        assert answer == (text.upper() if stag else bytes(1000))
                [link] = struct.unpack("<I", await theirs.read(4, place.stag, place.to + 1012))
                assert link & 1, "the CPU reads the RNIC's registers"

    run(body())


@long("the SoC is built in a minute")
def test_a_trace_of_the_soc_arrives_in_the_memory_of_a_peer(tmp_path):
    """A trace has a word of each cycle, from 4 cycles before the trigger on; another trace follows."""
    from open_rnic.cocotb_tests.harness.litex_soc import TRIGGER, SimulatedSoc, soc_verilog

    async def body():
        simulated = await SimulatedVerilog.open(SimulatedSoc(soc_verilog(1 << 14, tmp_path, capture=WORDS)), "soc")
        async with (
            board_and_twin(name=simulated) as (board, twin),
            await rdma.listen(str(BOARD.ip), 0, RESPONDER, device=board.tcp.open_device, tcp=board.tcp) as listener,
        ):
            connecting = asyncio.create_task(SampleReader.connect(*listener.address, octets=4096, tcp=twin))
            delivery = Delivery(drops=False, bell_octets=4 * WORDS)
            writing = await SampleWriter.accept(await listener.request(), delivery)
            async with writing as writer, await connecting as reader:
                await writer.start()
                blocks = aiter(reader)
                for _ in range(2):
                    await simulated.words(TRIGGER, 1)
                    words = struct.unpack(f"<{WORDS}I", (await anext(blocks)).octets)
                    times = [word >> 17 & 0x3FFF for word in words]
                    assert [(word - times[0]) % (1 << 14) for word in times] == list(range(WORDS))
                    assert [n for n, word in enumerate(words) if word >> 31] == [0]
                    asks = [n for n, word in enumerate(words) if word >> 16 & 1]
                    assert asks[0] == 4
                    assert {words[n] & 0xFFFF for n in asks} == {TRIGGER // 4 & 0xFFFF}

    run(body())
