"""A SoC of LiteX with an RNIC and a main memory, as Verilog, and its surroundings in a simulation."""

import re
import subprocess
from pathlib import Path

import litex.soc
from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal, Signal
from litedram.modules import M12L16161A
from litedram.phy.model import SDRAMPHYModel
from liteeth.common import eth_phy_description
from litex.build.generic_platform import Pins, Subsignal
from litex.build.sim import SimPlatform
from litex.gen import LiteXModule
from litex.soc.integration.export import get_csr_header, get_mem_header, get_soc_header
from litex.soc.integration.soc_core import SoCCore
from litex.soc.interconnect import stream, wishbone
from migen import Cat as MigenCat
from migen import ClockDomain as MigenDomain
from migen import Signal as MigenSignal

from open_rnic.boards.litex import add_rnic
from open_rnic.boards.litex.capture import Capture
from open_rnic.boards.litex.tools import tools
from open_rnic.boards.litex.work_queue import add_work_queue
from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.octets import OctetTop
from open_rnic.rtl.rdma.fabric import Fabric

_STREAM = ("data", 8), ("error", 1), ("last", 1), ("valid", 1), ("ready", 1)
_BUS = ("adr", 30), ("dat_w", 32), ("dat_r", 32), ("sel", 4), ("cyc", 1), ("stb", 1), ("ack", 1), ("we", 1)
_IO = [
    ("sys_clk", 0, Pins(1)), ("sys_rst", 0, Pins(1)), ("tick", 0, Pins(1)), ("active", 0, Pins(1)),
    *((side, 0, *(Subsignal(name, Pins(bits)) for name, bits in _STREAM)) for side in ("rx", "tx")),
    ("probe", 0, *(Subsignal(name, Pins(bits)) for name, bits in _BUS)),
]  # fmt: skip
MAIN_RAM = 0x4000_0000
_ROM = 1 << 13
_LITEX = Path(litex.soc.__file__).parent
_INCLUDES = _LITEX / "software" / "include", _LITEX / "cores" / "cpu" / "vexriscv"
TRIGGER = MAIN_RAM + 0x40


class _Clocks(LiteXModule):
    def __init__(self, platform):
        self.cd_sys = MigenDomain()
        self.comb += [self.cd_sys.clk.eq(platform.request("sys_clk")), self.cd_sys.rst.eq(platform.request("sys_rst"))]


class _Phy(LiteXModule):
    """Streams at the SoC's pins, as a PHY of LiteEth has them."""

    tx_clk_freq = rx_clk_freq = 125e6
    model = True

    def __init__(self, platform):
        self.crg = LiteXModule()
        for name in ("cd_eth_rx", "cd_eth_tx"):
            domain = MigenDomain(name.removeprefix("cd_"))
            setattr(self.crg, name, domain)
            self.comb += [domain.clk.eq(platform.lookup_request("sys_clk")), domain.rst.eq(0)]
        self.source, self.sink = (stream.Endpoint(eth_phy_description(8)) for _ in range(2))
        rx, tx = platform.request("rx"), platform.request("tx")
        self.comb += [
            *(getattr(self.source, name).eq(getattr(rx, name)) for name in ("data", "error", "last", "valid")),
            rx.ready.eq(self.source.ready),
            *(getattr(tx, name).eq(getattr(self.sink, name)) for name in ("data", "last", "valid")),
            self.sink.ready.eq(tx.ready),
        ]


class Soc(SoCCore):
    """A master at its bus has pins. With ``cpu``, it has a VexRiscv, with a work queue, and a ROM for its program.

    Its main memory has ``octets`` of block RAM. If that is 0, it is an SDRAM of 4 MiB, in LiteDRAM's model: it is
    written in whole words only, as on boards whose DQM pins are tied to ground.

    A ``capture`` has the low 16 bits of the word's address at these pins, ``stb``, and a counter; it has ``capture``
    words, from 4 cycles before ``TRIGGER`` is read.
    """

    def __init__(self, octets: int, folder: Path, bus_standard: str = "wishbone", cpu: bool = False, capture: int = 0):
        platform = SimPlatform("SIM", _IO)
        self.crg = _Clocks(platform)
        super().__init__(
            platform, 62_500_000, cpu_type="vexriscv" if cpu else None, integrated_main_ram_size=octets, ident="",
            with_uart=False, with_timer=cpu, with_ctrl=False, bus_standard=bus_standard, integrated_rom_size=_ROM * cpu,
        )  # fmt: skip
        if not octets:
            chip = M12L16161A(self.sys_clk_freq, "1:1")
            self.sdrphy = SDRAMPHYModel(chip, data_width=32, clk_freq=self.sys_clk_freq, we_granularity=0)
            self.add_sdram(phy=self.sdrphy, module=chip, l2_cache_size=0)
        self.phy = _Phy(platform)
        fabric = Fabric.WORK if cpu else Fabric.SAMPLES
        rnic = add_rnic(self, self.phy, folder=folder, fabric=fabric, registers=True)
        if cpu:
            add_work_queue(self, rnic)
        self.comb += [rnic.tick.eq(platform.request("tick")), platform.request("active").eq(rnic.active)]
        pads = platform.request("probe")
        probe = wishbone.Interface(data_width=32, adr_width=30, addressing="word")
        asks = "adr", "dat_w", "sel", "cyc", "stb", "we"
        self.comb += [getattr(probe, name).eq(getattr(pads, name)) for name in asks]
        self.comb += [getattr(pads, name).eq(getattr(probe, name)) for name in ("dat_r", "ack")]
        self.bus.add_master(name="probe", master=probe)
        if capture:
            counter = MigenSignal(14)
            self.sync += counter.eq(counter + 1)
            trigger = probe.stb & (probe.adr == TRIGGER // 4)
            self.capture = Capture(MigenCat(probe.adr[:16], probe.stb, counter), trigger, length=capture, before=4)
            self.comb += self.capture.source.connect(rnic.samples)


def soc_verilog(octets: int, folder: Path, program: Path | None = None, **options: str) -> str:
    """Return the SoC's Verilog with that of its RNIC; the module is ``soc``. A ``program`` in C is in the CPU's ROM.

    Migen names signals after this function: a line that begins with ``verilog`` would end the text for Yosys.
    """
    soc = Soc(octets, folder, cpu=program is not None, **options)
    soc.finalize()
    if program:
        words = compiled(program, soc, folder)
        soc.init_rom("rom", [int.from_bytes(words[at : at + 4], "little") for at in range(0, len(words), 4)])
    output = soc.platform.get_verilog(soc, name="soc")

    def content(match):
        words = output.data_files[match[1]].split()
        return " ".join(f"{match[2]}[{n}] = 32'h{word};" for n, word in enumerate(words) if int(word, 16))

    text = re.sub(r'\$readmemh\("(\S+)", (\w+)\);', content, output.main_source)
    return "".join([text, *(Path(name).read_text() for name, *_ in soc.platform.sources)])


def compiled(source: Path, soc: SoCCore, folder: Path) -> bytes:
    """Return a program in C for the ROM of a SoC at address 0, compiled as the docs say."""
    headers = folder / "include" / "generated"
    headers.mkdir(parents=True)
    (headers / "csr.h").write_text(get_csr_header(soc.csr_regions, soc.constants))
    (headers / "mem.h").write_text(get_mem_header(soc.mem_regions))
    (headers / "soc.h").write_text(get_soc_header(soc.constants))
    includes = [f"-I{each}" for each in (headers.parent, *_INCLUDES)]
    names = [str(folder / f"program.{end}") for end in ("o", "elf", "bin")]
    gcc = "riscv-none-elf-gcc"
    with tools(folder / "tools", for_risc_v=True):
        for command in (
            [gcc, "-march=rv32im", "-mabi=ilp32", "-O2", "-ffreestanding", *includes, "-c", str(source),
             "-o", names[0]],
            [gcc, "-Wl,--defsym=origin=0", "-Wl,--defsym=stack=0x10002000", "-T", str(source.with_suffix(".ld")),
             "-o", names[1], names[0]],
            ["riscv-none-elf-objcopy", "-O", "binary", *names[1:]],
        ):  # fmt: skip
            subprocess.run(command, check=True, cwd=folder)
    return Path(names[2]).read_bytes()


class SimulatedSoc(OctetTop):
    """The SoC behind a cable. Register 0 is an address / 4, register 1 the word there, behind which the next one is."""

    def __init__(self, verilog):
        super().__init__(layout.SOC, ("design.v", verilog))

    def elaborate(self, platform):
        m = Module()
        s = self.streams(m)
        active, tick, address = Signal(), Signal(), Signal(30)
        ack, data, turn, word = Signal(), Signal(32), Signal(), Signal(32)
        control = self.control
        asks = Signal()
        m.d.comb += [asks.eq(control.turn != turn), self.status.turn.eq(turn), self.status.read_data.eq(word)]
        with m.If(asks & (control.address == 0)):
            m.d.sync += [address.eq(control.write_data), turn.eq(control.turn)]
        with m.Elif(asks & ack):
            m.d.sync += [address.eq(address + 1), turn.eq(control.turn), word.eq(data)]
        cycle = Signal()
        m.d.comb += cycle.eq(asks & (control.address == 1))
        m.submodules.soc = Instance(
            "soc", i_sys_clk=ClockSignal("sync"), i_sys_rst=ResetSignal("sync"), i_tick=tick, o_active=active,
            i_rx_data=s["rx_data"], i_rx_error=s["rx_error"], i_rx_last=s["rx_last"], i_rx_valid=s["rx_valid"],
            o_rx_ready=s["rx_ready"], o_tx_data=s["tx_data"], o_tx_last=s["tx_last"], o_tx_valid=s["tx_valid"],
            i_tx_ready=s["tx_ready"],
            i_probe_adr=address, i_probe_dat_w=0, o_probe_dat_r=data, i_probe_sel=15, i_probe_cyc=cycle,
            i_probe_stb=cycle, o_probe_ack=ack, i_probe_we=0,
        )  # fmt: skip
        self.finish(m, platform, 1, tick, active)
        return m
