"""The pins of an SDRAM, with a chip that drives its words as shortly as it may, and otherwise random octets."""

import functools
import itertools
import random

import cocotb
from amaranth.hdl import ClockDomain, ClockSignal, Fragment, Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge, Timer

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.memory.test_sdram import Memory
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with, start_clock
from open_rnic.rtl.formats.memory_port import MemoryPort
from open_rnic.rtl.memory.chips import M12L64322A as CHIP
from open_rnic.rtl.memory.sdr_phy import SdrPhy
from open_rnic.rtl.memory.sdram import Sdram

HZ = 50_000_000
NS = 10  # steps of a nanosecond
CYCLE = 10 * NS  # of the SDRAM
# From a rising edge inside of the FPGA, on the way out and in: the pins' delays, and the chip's access time and hold.
ACCESS, HOLD = 10 * NS, 7 * NS
MODE = 0x21  # CAS latency 2, bursts of 2
NOTHING = 0b111
ACTIVATE, READ, WRITE, PRECHARGE, REFRESH, SET_MODE = 0b011, 0b101, 0b100, 0b010, 0b001, 0b000  # RAS#, CAS#, WE#
FIRST = 8  # cycles in which pins have what their registers contain after configuration
BUSY = {REFRESH: 6, SET_MODE: 2}  # cycles of the SDRAM from a command to the next one: tRFC, tMRD


class Pins:
    """Pins of a simulation, by the names of the resource's parts, and the platform of their buffers.

    The registers for both edges take as long as those of an ECP5 (FPGA-TN-02035): outputs two cycles more than a
    register.
    """

    def __init__(self):
        for name, bits in (("a", 11), ("ba", 2), ("clk", 1)):
            setattr(self, name, io.SimulationPort("o", bits, name=name))
        for name in ("ras", "cas", "we"):
            setattr(self, name, io.SimulationPort("o", 1, invert=True, name=name))
        self.dq = io.SimulationPort("io", CHIP.bits, name="dq")

    def add_file(self, name, text):
        raise AssertionError("the pins need no Verilog")

    def get_io_buffer(self, buffer):
        m = Module()
        port, inverted = buffer.port, sum(1 << n for n, each in enumerate(buffer.port.invert) if each)
        clock = buffer.o_domain
        steps = [buffer.o.as_value() ^ (inverted | inverted << len(port))]
        enables = [buffer.oe]
        for stage in range(3):
            steps.append(Signal(2 * len(port), name=f"step_{stage}"))
            enables.append(Signal(name=f"enable_{stage}"))
            m.d[clock] += [steps[-1].eq(steps[-2]), enables[-1].eq(enables[-2])]
        m.d.comb += [
            port.o.eq(Mux(ClockSignal(clock), steps[-1][: len(port)], steps[-1][len(port) :])),
            port.oe.eq(enables[-1].replicate(len(port))),
        ]
        if buffer.direction is io.Direction.Bidir:
            m.domains += ClockDomain("falling", clk_edge="neg", local=True, reset_less=True)
            m.d.comb += ClockSignal("falling").eq(ClockSignal(clock))
            rise, fall = (Signal(len(port), name=name) for name in ("rise", "fall"))
            m.d.falling += fall.eq(port.i)
            m.d[clock] += [rise.eq(port.i), buffer.i[0].eq(rise), buffer.i[1].eq(fall)]
        return m


class Pinned(wiring.Component):
    """An SDRAM's controller and its pins."""

    def __init__(self):
        super().__init__({
            "port": In(MemoryPort(1)), "sdram_clk": In(1), "ready": Out(1),
            "pin_a": Out(11), "pin_ba": Out(2), "pin_command": Out(3), "pin_clk": Out(1),
            "pin_dq": Out(32), "pin_drives": Out(1), "pin_given": In(32),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        pins = Pins()
        m.domains += ClockDomain("sdram", reset_less=True)
        m.d.comb += ClockSignal("sdram").eq(self.sdram_clk)
        m.submodules.sdram = sdram = Sdram(1, CHIP, HZ)
        phy = SdrPhy(CHIP, pins)
        m.submodules.phy = Fragment.get(phy, pins)
        wiring.connect(m, wiring.flipped(self.port), sdram.port)
        wiring.connect(m, sdram.dfi, phy.dfi)
        m.d.comb += [
            self.ready.eq(sdram.ready), self.pin_a.eq(pins.a.o), self.pin_ba.eq(pins.ba.o),
            self.pin_command.eq(pins.ras.o << 2 | pins.cas.o << 1 | pins.we.o), self.pin_clk.eq(pins.clk.o),
            self.pin_dq.eq(pins.dq.o), self.pin_drives.eq(pins.dq.oe[0]), pins.dq.i.eq(self.pin_given),
        ]  # fmt: skip
        return m


class ChipModel:
    """An SDRAM, as far as the controller uses it; CS and CKE are always active, DQM never."""

    def __init__(self, dut):
        self.dut = dut
        self.words, self.rows = {}, {}
        self.mode, self.refreshes = None, 0
        self.busy = 0  # until this cycle
        cocotb.start_soon(self._run())

    async def _run(self):
        dut = self.dut
        edge = RisingEdge(dut.pin_clk)
        written = []  # places of words that come with the next edges
        for number in itertools.count():
            await edge
            command, bank, address = level(dut.pin_command), level(dut.pin_ba), level(dut.pin_a)
            if written:
                assert command not in (READ, WRITE)
                self.words[written.pop()] = level(dut.pin_dq)
                assert level(dut.pin_drives)
            if command == NOTHING or number < FIRST:
                continue
            assert number >= self.busy
            self.busy = number + BUSY.get(command, 1)
            match command:
                case c if c == ACTIVATE:
                    assert bank not in self.rows, "the bank has a row already"
                    self.rows[bank] = address, number
                case c if c in (READ, WRITE):
                    row, opened = self.rows[bank]
                    assert number - opened >= 2, "tRCD"
                    assert self.mode == MODE
                    places = [(bank, row, (address & 0xFF) ^ n) for n in range(2)]
                    if command == WRITE:
                        assert level(dut.pin_drives)
                        self.words[places[0]] = level(dut.pin_dq)
                        written = [places[1]]
                    else:
                        assert not level(dut.pin_drives)
                        for later, place in enumerate(places, 1):
                            cocotb.start_soon(self._give(later * CYCLE, place))
                    if address & 0x400:
                        self.rows.pop(bank)  # auto-precharge
                case c if c == PRECHARGE:
                    for each in [*self.rows] if address & 0x400 else [bank]:
                        self.rows.pop(each, None)
                case c if c == REFRESH:
                    assert not self.rows
                    self.refreshes += 1
                case c if c == SET_MODE:
                    self.mode = address

    async def _give(self, later, place):
        await Timer(later + ACCESS, "step")
        drive(self.dut.pin_given, self.words.get(place, 0))
        await Timer(CYCLE + HOLD - ACCESS, "step")
        drive(self.dut.pin_given, random.getrandbits(32))


@cocotb.test()
async def a_chip_is_written_and_read(dut):
    dut.rst.value = 0
    start_clock(dut.clk, 2 * CYCLE)
    await Timer(CYCLE // 2, "step")  # both clocks rise together
    start_clock(dut.sdram_clk, CYCLE)
    chip = ChipModel(dut)
    memory = Memory(dut, 1)
    await rises_with(RisingEdge(dut.clk), dut.ready)
    for _ in range(20):
        at = random.randrange(CHIP.octets - 4096)
        await memory.write(at, random.randbytes(random.randrange(1, 2000)))
        await memory.read(range(at // 4, at // 4 + 200))
        await memory.taken()
    assert chip.refreshes > 5


def test_a_chip_is_written_and_read():
    simulate(functools.partial(Pinned), a_chip_is_written_and_read)
