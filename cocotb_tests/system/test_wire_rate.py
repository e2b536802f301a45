"""Two whole RNICs, MAC and block RAM included, joined at the octets of GMII: rates and latencies at 1 Gb/s.

Cycles are those of GMII, 8 ns each; the core has half of their frequency. The link to the host is left out: the test
accesses the registers itself.
"""

import os
import random
import tempfile
from collections import Counter
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import cocotb
import dpkt
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.harness import Within, parameter, simulate
from open_rnic.cocotb_tests.harness.datapath import word_of
from open_rnic.cocotb_tests.harness.uninitialised import dirty
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.rtl.mac.bench import mac_bench
from open_rnic.host_driver.ddp import TAGGED_OCTETS, Opcode
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.devices.sim.sdram_model import SdramModel
from open_rnic.host_driver.devices.sim.signals import drive, level
from open_rnic.host_driver.rdma.engine import commands
from open_rnic.rtl.mac.mac import EARLY, Mac
from open_rnic.rtl.memory.chips import M12L16161A, MT41K256M16, Kind
from open_rnic.rtl.memory.sdram import Sdram
from open_rnic.rtl.rdma.memory_registers import BY_NAME as MEMORY
from open_rnic.rtl.rdma.registers import BY_NAME as RDMA
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers import BY_NAME as MPA
from open_rnic.rtl.rnic.registers import PAGE_BITS
from open_rnic.rtl.rnic.separate_rnic import SeparateRnic
from open_rnic.rtl.rnic.shared_rnic import SharedRnic
from open_rnic.rtl.tcp.config import EngineConfig, Station
from open_rnic.rtl.tcp.registers import BY_NAME as PATH
from open_rnic.rtl.tcp.words import Command, State

SIDES = "a", "b"
MACS = {side: int.from_bytes(bytes((2, 0, 10, 9, 0, number)), "big") for number, side in enumerate(SIDES, 1)}
ADDRESSES = {side: int.from_bytes(bytes((10, 9, 0, number)), "big") for number, side in enumerate(SIDES, 1)}
STATIONS = {side: Station(MACS[side], ADDRESSES[side], 0xFFFF_FF00) for side in SIDES}
OCTETS = 1 << 14  # of memory
STAG, SINK = 0x1234_5678, 0x8765_4321
SINK_AT = 1024
RIGHTS = Right.LOCAL_WRITE | Right.REMOTE_WRITE | Right.REMOTE_READ
PREAMBLE, ETHERNET, IP, TCP, ULPDU_LENGTH, CRC, FCS, GAP = 8, 14, 20, 20, 2, 4, 4, 12
SEGMENT = 1440  # octets of an RDMA Write in a full frame: the most for which its FPDU, in whole words, fits into 1,460
FRAME = PREAMBLE + ETHERNET + IP + TCP + ULPDU_LENGTH + TAGGED_OCTETS + SEGMENT + CRC + FCS + GAP
MICROSECONDS = 10_000
NS = 8  # of a cycle
BOARD_HZ = {Kind.SDR: 50_000_000, Kind.DDR3: 75_000_000}  # by the SDRAM of a board
OUTSTANDING = 16  # messages that an engine takes at once


class Joined(wiring.Component):
    """Two RNICs and their MACs. The outputs are the octets at GMII, and the counts of the MACs.

    As on a board, one data path serves several connections. With a chip of SDRAM, that is their memory.
    """

    def __init__(self, ring=16384, connections=1, chip=None):
        self.chip = chip
        config = EngineConfig(send_ring=ring, receive_ring=ring)
        rnic = SeparateRnic if connections == 1 else SharedRnic
        self.rnics = {
            side: rnic(connections, config, memory=OCTETS, outside=chip is not None, station=STATIONS[side])
            for side in SIDES
        }
        self.macs = {side: Mac(early=EARLY) for side in SIDES}
        members = {"bus": self.rnics["a"].signature.members["bus"], "tick": In(1), "valid": Out(1), "data": Out(8),
                   "discards": Out(12)}  # fmt: skip
        super().__init__({f"{side}_{name}": member for side in SIDES for name, member in members.items()})

    def elaborate(self, platform):
        m = Module()
        for side, other in (SIDES, SIDES[::-1]):
            m.submodules[f"rnic_{side}"] = rnic = self.rnics[side]
            m.submodules[f"mac_{side}"] = mac = self.macs[side]
            wiring.connect(m, mac.rx_frames, rnic.rx_frames)
            wiring.connect(m, rnic.tx_frames, mac.tx_frames)
            wiring.connect(m, wiring.flipped(getattr(self, f"{side}_bus")), rnic.bus)
            if self.chip is not None:
                m.submodules[f"sdram_{side}"] = sdram = Sdram(1, self.chip, BOARD_HZ[self.chip.kind])
                m.submodules[f"chip_{side}"] = chip = SdramModel(self.chip, BOARD_HZ[self.chip.kind])
                wiring.connect(m, rnic.memory if hasattr(rnic, "waits") else rnic.memory[0], sdram.port)
                wiring.connect(m, sdram.dfi, chip.dfi)
            receives, sends, counts = self.macs[other].rx_octets, mac.tx_octets, mac.counts
            m.d.comb += [
                rnic.tick.eq(getattr(self, f"{side}_tick")),
                mac.enable.eq(1),
                sends.strobe.eq(1),
                receives.strobe.eq(1),
                receives.valid.eq(sends.valid),
                receives.data.eq(sends.data),
                getattr(self, f"{side}_valid").eq(sends.valid),
                getattr(self, f"{side}_data").eq(sends.data),
                getattr(self, f"{side}_discards").eq(Cat(
                    counts.rx_no_room, counts.rx_error, counts.rx_oversize, counts.rx_runt, counts.rx_fcs,
                    counts.tx_dropped,
                )),
            ]  # fmt: skip
        return m


class End:
    """One of the RNICs: its registers, and what its MAC transmits."""

    def __init__(self, dut, side):
        self._ports = Within(dut, f"{side}_")
        drive(self._ports.bus__request, 0)
        drive(self._ports.tick, 0)
        self.frames = []  # transmitted: the cycles of the first octet of preamble and behind the last, and the frame
        self.cycle = self.discards = 0
        cocotb.start_soon(self._watch())

    async def _watch(self):
        valid, data, discards = self._ports.valid, self._ports.data, self._ports.discards
        edge = RisingEdge(self._ports.mac_tx_clk)
        began, octets = 0, bytearray()
        while True:
            await edge
            self.cycle += 1
            self.discards += bool(level(discards))
            if level(valid):
                began = began if octets else self.cycle
                octets.append(level(data))
            elif octets:
                self.frames.append((began, self.cycle, bytes(octets[PREAMBLE:])))
                octets.clear()

    async def tick(self, every=62_500):
        """Drive the milliseconds, each of this many cycles of the core."""
        while True:
            await ClockCycles(self._ports.clk, every - 1)
            drive(self._ports.tick, 1)
            try:
                await RisingEdge(self._ports.clk)
            finally:
                drive(self._ports.tick, 0)

    async def access(self, page, register, word=None):
        value = await access_register(self._ports, page << PAGE_BITS | register.address >> 2, word)
        await RisingEdge(self._ports.clk)
        return value

    async def command(self, kind, connection, **fields):
        """Give a command to TCP, for a connection."""
        for name, value in fields.items():
            await self.access(0, PATH[f"COMMAND_{name.upper()}"], value)
        command = {"kind": kind, "connection": connection, "go": 1}
        await self.access(0, PATH["COMMAND"], sum(PATH["COMMAND"][name].put(value) for name, value in command.items()))
        while PATH["COMMAND"]["pending"].get(await self.access(0, PATH["COMMAND"])):
            pass

    async def established(self, connection):
        await self.access(0, PATH["CONNECTION"], connection)
        status = PATH["STATUS"]["status"]
        return status.get(await self.access(0, PATH["STATUS"])) == State.ESTABLISHED

    async def enter_mpa(self, connection):
        """Let octets pass, and enter MPA mode with CRCs; the engine serves its whole memory."""
        page = 1 + connection
        await self.access(0, PATH["ACCEPT"], (2 << connection) - 1)
        while not await self.engine("ready", connection=connection):
            pass
        limits = RDMA["RDMA_LIMITS"]
        mulpdu = limits["mulpdu"].put(TAGGED_OCTETS + SEGMENT)
        await self.access(page, limits, mulpdu | limits["ird"].put(4) | limits["ord"].put(4))
        control = RDMA["RDMA_CONTROL"]
        await self.access(page, control, control["enable"].put(1) | control["waits"].put(1))
        await self.post(commands.region(STAG, 0, OCTETS, 0, RIGHTS), connection)
        await self.access(page, MPA["CONFIG"], word_of("CONFIG", rdmap=0))
        await self.access(page, MPA["CONTROL"], word_of("CONTROL", tx_enable=1, rx_enable=1))

    async def engine(self, field, register="STATUS", connection=0):
        return RDMA[f"RDMA_{register}"][field].get(await self.access(1 + connection, RDMA[f"RDMA_{register}"]))

    async def post(self, words, connection=0):
        for word in words:
            await self.access(1 + connection, RDMA["RDMA_COMMAND"], word)

    async def begin(self, octets, count, connections=1, opcodes=(Opcode.RDMA_WRITE,)):
        """Post RDMA Writes or RDMA Reads of so many octets, on each of these connections in turn."""
        for _, connection, opcode in product(range(count), range(connections), opcodes):
            piece = (0, SINK) if opcode == Opcode.RDMA_READ_REQUEST else (0, octets)
            await self.post(commands.work(opcode, octets, STAG, 0, [piece]), connection)

    async def put(self, octets):
        """Write the memory from its beginning on."""
        await self.access(1, MEMORY["MEMORY_ADDRESS"], 0)
        for at in range(0, len(octets), 4):
            await self.access(1, MEMORY["MEMORY_WRITE"], int.from_bytes(octets[at : at + 4], "little"))

    async def get(self, address, octets):
        """Read the memory."""
        await self.access(1, MEMORY["MEMORY_ADDRESS"], address)
        words = [await self.access(1, MEMORY["MEMORY_READ"]) for _ in range(0, octets, 4)]
        return b"".join(word.to_bytes(4, "little") for word in words)

    def full(self):
        """The transmitted frames of full size: in which cycle each began."""
        return [began for began, _, octets in self.frames if len(octets) == FRAME - PREAMBLE - GAP]


def report(line):
    """Note a figure for :func:`main`."""
    with Path(parameter("outcome")).open("a") as file:
        file.write(line + "\n")


async def connected(dut):
    """Open the connections between the two ends, and enter MPA mode."""
    ends = [End(dut, side) for side in SIDES]
    one, other = ends
    await ClockCycles(dut.clk, 100)
    connections = range(parameter("connections"))
    hurries = [cocotb.start_soon(end.tick(40)) for end in ends]  # for the SYN that waits for ARP
    for n in connections:
        ours, theirs = 7000 + n, 8000 + n
        await other.command(Command.LISTEN_AT, n, ports=theirs << 16, address=0, iss=random.getrandbits(32))
        address, iss = ADDRESSES["b"], random.getrandbits(32)
        await one.command(Command.OPEN, n, ports=ours << 16 | theirs, address=address, iss=iss)
    while not all([await end.established(n) for end in ends for n in connections]):
        pass
    for each in hurries:
        each.cancel()
    for end in ends:
        cocotb.start_soon(end.tick())
        for n in connections:
            await end.enter_mpa(n)
    return ends


def tcp_octets(frames):
    """How often each segment with octets was sent, by its port and sequence number."""
    sent = Counter()
    for _, _, octets in frames:
        segment = dpkt.ethernet.Ethernet(octets[:-FCS]).data
        if isinstance(segment, dpkt.ip.IP) and segment.len > IP + TCP:
            sent[segment.tcp.sport, segment.tcp.seq] += 1
    return sent


@mac_bench(MICROSECONDS)
async def octets_leave_back_to_back(dut):
    """RDMA Writes or Read Responses leave ``sides``, on all of the connections at once.

    With both ``opcodes``, one side writes and reads at once, so RDMA Writes leave it, and Read Responses the other one.
    """
    one, other = ends = await connected(dut)
    message = random.randbytes(400)
    await one.put(message)
    octets, connections, kinds = 10 * SEGMENT, parameter("connections"), parameter("kinds")
    count = -(-(12 if len(kinds) == 1 else OUTSTANDING // 2) // connections)
    senders = [end for end, side in zip(ends, SIDES, strict=True) if side in parameter("sides")]
    beginners = [one] if len(kinds) > 1 else senders
    if kinds == ["reads"]:
        beginners = [end for end, peer in zip(ends, ends[::-1], strict=True) if peer in senders]
    for end, n in product(beginners, range(connections)):
        await end.post(commands.region(SINK, 0, octets, 0, Right.LOCAL_WRITE), n)  # the last octet of a read ends it
    for end in ends:
        end.frames.clear()
    opcodes = [OPCODES[kind] for kind in kinds]
    for each in [cocotb.start_soon(end.begin(octets, count, connections, opcodes)) for end in beginners]:
        await each
    for end, kind in product(beginners, kinds):
        done = {"writes": "sent", "reads": "reads"}[kind]
        while sum([await end.engine(done, "DONE", n) for n in range(connections)]) < count * connections:
            await ClockCycles(dut.clk, 500)
    await ClockCycles(dut.clk, 20_000)
    if len(senders) == 1:
        assert await other.get(0, len(message)) == message
    for end in senders:
        full = end.full()
        assert len(full) == octets // SEGMENT * count * connections
        skipped = 20
        took = (full[-1] - full[skipped]) / (len(full) - 1 - skipped)
        ways = "one way" if len(senders) == 1 else "both ways at once"
        of = "1 connection" if connections == 1 else f"{connections} connections"
        rdma = " and ".join(f"RDMA {kind.title()}" for kind in kinds)
        report(f"  {rdma} of {of}, {ways}: a frame in {took:.1f} cycles, {100 * FRAME / took:.2f} % of the rate")
        assert FRAME / took >= parameter("least")
        assert set(tcp_octets(end.frames).values()) == {1}  # nothing was sent again
    assert [end.discards for end in ends] == [0, 0]


@mac_bench(MICROSECONDS)
async def small_writes_leave_without_a_pause(dut):
    """RDMA Writes both ways, as many as can be posted, on all of the connections: every event of TCP has its turn."""
    ends = await connected(dut)
    octets, connections = parameter("octets"), parameter("connections")
    count = 256 // connections
    for end in ends:
        end.frames.clear()

    async def write(end):
        for posted in range(0, count, OUTSTANDING // 2):
            for n in range(connections):
                while posted - await end.engine("sent", "DONE", n) > OUTSTANDING // 2:
                    pass
            await end.begin(octets, OUTSTANDING // 2, connections)

    for each in [cocotb.start_soon(write(end)) for end in ends]:
        await each
    for end in ends:
        pause = max(after - before for (before, *_), (after, *_) in pairwise(end.frames))
        report(f"  RDMA Writes of {octets} octets: {len(end.frames)} frames, the longest pause {pause} cycles")
        assert pause < parameter("longest")
    assert [end.discards for end in ends] == [0, 0]


@mac_bench(MICROSECONDS)
async def a_read_is_answered_soon(dut):
    """The time at the pins of the responder, from the last octet of the request to the first one of the response."""
    one, other = await connected(dut)
    message = random.randbytes(64)
    await other.put(message)
    await one.post(commands.region(SINK, SINK_AT, len(message), SINK_AT, Right.LOCAL_WRITE))
    times = []
    for _ in range(5):
        one.frames.clear()
        other.frames.clear()
        done = await one.engine("reads", "DONE")
        await one.post(commands.work(Opcode.RDMA_READ_REQUEST, len(message), STAG, 0, [(SINK_AT, SINK)]))
        while await one.engine("reads", "DONE") == done:
            await ClockCycles(dut.clk, 100)
        await ClockCycles(dut.clk, 3000)
        [ended] = [ended for _, ended, octets in one.frames if octets[54 + 3] & 0xF == Opcode.RDMA_READ_REQUEST]
        [began] = [began for began, _, octets in other.frames if octets[54 + 3] & 0xF == Opcode.RDMA_READ_RESPONSE]
        times.append((began - ended) * NS)
    assert await one.get(SINK_AT, len(message)) == message
    mhz = 1000 / parameter("core")
    report(f"RDMA Read of {len(message)} octets, core at {mhz:.1f} MHz: {min(times)} to {max(times)} ns")
    assert max(times) < parameter("most")


@mac_bench(MICROSECONDS)
async def frames_are_noted(dut):
    """A connection, RDMA Writes and an RDMA Read of memory that has been written; ``report`` has all frames."""
    ends = await connected(dut)
    one = ends[0]
    message = random.randbytes(512)
    for end in ends:
        await end.put(message)
    await one.post(commands.region(SINK, SINK_AT, len(message), SINK_AT, Right.LOCAL_WRITE))
    await one.begin(len(message), 3)
    await one.post(commands.work(Opcode.RDMA_READ_REQUEST, len(message), STAG, 0, [(SINK_AT, SINK)]))
    while not await one.engine("reads", "DONE"):
        await ClockCycles(dut.clk, 100)
    await ClockCycles(dut.clk, 3000)
    for end in ends:
        for _, _, octets in end.frames:
            report(octets.hex())


PAUSE = 1500  # cycles of the wire between the beginnings of two frames while there is work: 12 µs
READS = {13.4: 3000, 16: 3500, 20: 4300}  # ns from a request to its response, by those of a cycle of the core


PARTS = "a build of two RNICs; test_rate.py of RDMA and of TCP hold each part to its rate"
OPCODES = {"writes": Opcode.RDMA_WRITE, "reads": Opcode.RDMA_READ_REQUEST}
FILLED = [("ab", 4, 0.95), ("ab", 1, 0.97), ("a", 1, 0.98)]
FILLED_BY = [
    *((each, ["writes"]) for each in FILLED),
    # RDMA Reads of 4 connections use less of the wire with SDR SDRAM.
    *((each, ["reads"]) for each in (("ab", 4, 0.9), *FILLED[1:])),
    (("ab", 1, 0.97), [*OPCODES]),
]


@long(PARTS)
@pytest.mark.parametrize(("sides", "connections", "least"), FILLED)
def test_rdma_writes_fill_the_wire(sides, connections, least, tmp_path):
    """One way, and both ways at once, where some ACKs take a frame of their own."""
    fill(sides, tmp_path, least, 16384 // connections, 16 if connections == 1 else 20, connections)


@long("minutes; test_sdram.py holds the memory to its rate")
@pytest.mark.parametrize(("chip", "core"), [(M12L16161A, 20), (MT41K256M16.simulated, 13.4)], ids=str)
@pytest.mark.parametrize(("filled", "kinds"), FILLED_BY)
def test_rdma_from_sdram_to_sdram_fills_the_wire(filled, kinds, chip, core, tmp_path):
    """At the clock of boards, with the SDRAM of a 5A-75B, and of an ECPIX-5."""
    sides, connections, least = filled
    fill(sides, tmp_path, least, 16384 // connections, core, connections, chip, kinds)


def fill(sides, folder, least, ring=16384, core=16, connections=1, chip=None, kinds=("writes",)):
    parameters = {"sides": sides, "least": least, "kinds": list(kinds)}
    run(octets_leave_back_to_back, folder, ring, core, connections, parameters, chip=chip)


def run(bench, folder, ring=16384, core=16, connections=1, parameters=None, *, chip=None, is_dirty=False, seed=None):
    clocks = {"core": core, "rx": 8, "tx": 8}
    given = {**clocks, "connections": connections, "outcome": str(folder / "figures"), **(parameters or {})}
    made = partial(Joined, ring, connections, *([chip] if chip else []))
    made = partial(dirty, made, 1) if is_dirty else made
    simulate(made, bench, parameters=given, seed=seed)


@long(PARTS)
@pytest.mark.parametrize("octets", [8, 64])
@pytest.mark.parametrize("connections", [4, 1])
def test_small_writes_leave_without_a_pause(connections, octets, tmp_path):
    parameters = {"octets": octets, "longest": PAUSE}
    run(small_writes_leave_without_a_pause, tmp_path, 16384 // connections, 16, connections, parameters)


ANSWERED = [(4, 20, 4600), *((1, core, most) for core, most in READS.items())]


@long(PARTS)
@pytest.mark.parametrize(("connections", "core", "most"), ANSWERED)
def test_an_rdma_read_is_answered_in_time(connections, core, most, tmp_path):
    run(a_read_is_answered_soon, tmp_path, 16384 // connections, core, connections, {"most": most})


@long("a build of its own for two runs; connections that follow each other find used memories in the short run, too")
@pytest.mark.parametrize("connections", [4, 1])
def test_frames_do_not_depend_on_memory_that_nobody_has_written(connections, tmp_path):
    frames = []
    for is_dirty in (False, True):
        folder = tmp_path / str(is_dirty)
        folder.mkdir()
        run(frames_are_noted, folder, 16384 // connections, connections=connections, is_dirty=is_dirty, seed=1)
        frames.append((folder / "figures").read_text().splitlines())
    assert len(frames[0]) > 5
    assert frames[0] == frames[1]


CASES = (16384, 16, 1), (16384, 20, 1), (8192, 16, 1), (4096, 20, 1), (4096, 20, 4), (4096, 20, 16)


def main():
    """Print the figures: ``python -m open_rnic.cocotb_tests.system.test_wire_rate``."""
    os.environ.setdefault("COCOTB_RANDOM_SEED", "1")
    with tempfile.TemporaryDirectory() as folder:
        for ring, core, connections in CASES:
            with (Path(folder) / "figures").open("a") as file:
                file.write(f"rings of {ring} octets, core at {1000 / core} MHz:\n")
            for sides in ("a", "ab"):
                fill(sides, Path(folder), 0, ring, core, connections)
        with (Path(folder) / "figures").open("a") as file:
            file.write("rings of 16384 octets, core at 50.0 MHz:\n")
        for kinds in (["reads"], [*OPCODES]):
            fill("ab", Path(folder), 0, core=20, kinds=kinds)
        for core, most in READS.items():
            test_an_rdma_read_is_answered_in_time(1, core, most, Path(folder))
        print(f"a full frame with {SEGMENT} octets of an RDMA Write: {FRAME} octets on the wire")
        print((Path(folder) / "figures").read_text(), end="")


if __name__ == "__main__":
    main()
