"""Two whole RNICs, MAC and block RAM included, joined at the octets of GMII: rates and latencies at 1 Gb/s.

Cycles are those of GMII, 8 ns each; the core has half of their frequency. The link to the host is left out: the test
accesses the registers itself.
"""

import random
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

import cocotb
import dpkt
import pytest
from amaranth.hdl import Cat, Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.datapath import word_of
from open_rnic.cocotb_tests.harness import parameter, simulate
from open_rnic.cocotb_tests.rtl.mac.bench import mac_bench
from open_rnic.cocotb_tests.uninitialised import dirty
from open_rnic.host_driver.ddp import TAGGED_OCTETS, Opcode
from open_rnic.host_driver.rdma.engine import commands
from open_rnic.rtl.bus import RegisterBus
from open_rnic.rtl.mac.mac import EARLY, Mac
from open_rnic.rtl.rdma.memory_registers import BY_NAME as MEMORY
from open_rnic.rtl.rdma.registers import BY_NAME as RDMA
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers import BY_NAME as MPA
from open_rnic.rtl.rnic import PAGE_BITS, Rnic
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
MICROSECONDS = 5000
NS = 8  # of a cycle


class Joined(wiring.Component):
    """Two RNICs of one connection and their MACs. The outputs are the octets at GMII, and the counts of the MACs."""

    def __init__(self, ring=16384):
        config = EngineConfig(send_ring=ring, receive_ring=ring)
        self.rnics = {side: Rnic(1, config, memory=OCTETS, station=STATIONS[side]) for side in SIDES}
        self.macs = {side: Mac(early=EARLY) for side in SIDES}
        members = {"bus": In(RegisterBus(PAGE_BITS + 2)), "tick": In(1), "valid": Out(1), "data": Out(8),
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
        self._dut, self._side = dut, side
        self._bus("request").value = 0
        self._port("tick").value = 0
        self.frames = []  # transmitted: the cycles of the first octet of preamble and behind the last, and the frame
        self.cycle = self.discards = 0
        cocotb.start_soon(self._watch())

    def _port(self, name):
        return getattr(self._dut, f"{self._side}_{name}")

    def _bus(self, name):
        return self._port(f"bus__{name}")

    async def _watch(self):
        valid, data, discards = self._port("valid"), self._port("data"), self._port("discards")
        edge = RisingEdge(self._dut.mac_tx_clk)
        began, octets = 0, bytearray()
        while True:
            await edge
            self.cycle += 1
            self.discards += bool(discards.value.to_unsigned())
            if valid.value:
                began = began if octets else self.cycle
                octets.append(data.value.to_unsigned())
            elif octets:
                self.frames.append((began, self.cycle, bytes(octets[PREAMBLE:])))
                octets.clear()

    async def tick(self, every=62_500):
        """Drive the milliseconds, each of this many cycles of the core."""
        while True:
            await ClockCycles(self._dut.clk, every - 1)
            self._port("tick").value = 1
            await RisingEdge(self._dut.clk)
            self._port("tick").value = 0

    async def access(self, page, register, word=None):
        self._bus("address").value = page << PAGE_BITS | register.address >> 2
        self._bus("write").value = word is not None
        self._bus("write_data").value = word or 0
        self._bus("request").value = 1
        edge = RisingEdge(self._dut.clk)
        await edge
        while not self._bus("ack").value:
            await edge
        value = self._bus("read_data").value.to_unsigned()
        self._bus("request").value = 0
        await edge
        return value

    async def command(self, kind, **fields):
        """Give a command to TCP, for connection 0."""
        for name, value in fields.items():
            await self.access(0, PATH[f"COMMAND_{name.upper()}"], value)
        await self.access(0, PATH["COMMAND"], PATH["COMMAND"]["kind"].put(kind) | PATH["COMMAND"]["go"].put(1))

    async def established(self):
        status = PATH["STATUS"]["status"]
        return status.get(await self.access(0, PATH["STATUS"])) == State.ESTABLISHED

    async def enter_mpa(self):
        """Let octets pass, and enter MPA mode with CRCs; the engine serves its whole memory."""
        await self.access(0, PATH["ACCEPT"], 1)
        while not await self.engine("ready"):
            pass
        limits = RDMA["RDMA_LIMITS"]
        mulpdu = limits["mulpdu"].put(TAGGED_OCTETS + SEGMENT)
        await self.access(1, limits, mulpdu | limits["ird"].put(4) | limits["ord"].put(4))
        control = RDMA["RDMA_CONTROL"]
        await self.access(1, control, control["enable"].put(1) | control["waits"].put(1))
        await self.post(commands.region(STAG, 0, OCTETS, 0, RIGHTS))
        await self.access(1, MPA["CONFIG"], word_of("CONFIG", rdmap=0))
        await self.access(1, MPA["CONTROL"], word_of("CONTROL", tx_enable=1, rx_enable=1))

    async def engine(self, field, register="STATUS"):
        return RDMA[f"RDMA_{register}"][field].get(await self.access(1, RDMA[f"RDMA_{register}"]))

    async def post(self, words):
        for word in words:
            await self.access(1, RDMA["RDMA_COMMAND"], word)

    async def write(self, octets, count):
        """Post RDMA Writes of so many octets."""
        for _ in range(count):
            await self.post(commands.work(Opcode.RDMA_WRITE, octets, STAG, 0, [(0, octets)]))

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
    """Open a connection between the two ends, and enter MPA mode."""
    ends = [End(dut, side) for side in SIDES]
    one, other = ends
    await ClockCycles(dut.clk, 100)
    await other.command(Command.LISTEN_AT, ports=8000 << 16, address=0, iss=random.getrandbits(32))
    await one.command(Command.OPEN, ports=7000 << 16 | 8000, address=ADDRESSES["b"], iss=random.getrandbits(32))
    hurries = [cocotb.start_soon(end.tick(40)) for end in ends]  # for the SYN that waits for ARP
    while not all([await end.established() for end in ends]):
        pass
    for each in hurries:
        each.cancel()
    for end in ends:
        cocotb.start_soon(end.tick())
        await end.enter_mpa()
    return ends


def tcp_octets(frames):
    """The octets of TCP in frames, by sequence number, and how often each number was sent."""
    sent = Counter()
    for _, _, octets in frames:
        segment = dpkt.ethernet.Ethernet(octets[:-FCS]).data
        if isinstance(segment, dpkt.ip.IP) and segment.len > IP + TCP:
            sent[segment.tcp.seq] += 1
    return sent


@mac_bench(MICROSECONDS)
async def writes_leave_back_to_back(dut):
    """RDMA Writes of ``octets`` octets leave ``sides``."""
    one, other = ends = await connected(dut)
    message = random.randbytes(400)
    await one.put(message)
    octets, count = 10 * SEGMENT, 12
    senders = [end for end, side in zip(ends, SIDES, strict=True) if side in parameter("sides")]
    for end in ends:
        end.frames.clear()
    writing = [cocotb.start_soon(end.write(octets, count)) for end in senders]
    for each in writing:
        await each
    for end in senders:
        while await end.engine("sent", "DONE") < count:
            await ClockCycles(dut.clk, 500)
    await ClockCycles(dut.clk, 20_000)
    if len(senders) == 1:
        assert await other.get(0, len(message)) == message
    for end in senders:
        full = end.full()
        assert len(full) == octets // SEGMENT * count
        skipped = 20
        took = (full[-1] - full[skipped]) / (len(full) - 1 - skipped)
        ways = "one way" if len(senders) == 1 else "both ways at once"
        report(f"  RDMA Writes {ways}: a frame in {took:.1f} cycles, {100 * FRAME / took:.2f} % of the rate")
        assert FRAME / took >= parameter("least")
        assert set(tcp_octets(end.frames).values()) == {1}  # nothing was sent again
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
    await one.write(len(message), 3)
    await one.post(commands.work(Opcode.RDMA_READ_REQUEST, len(message), STAG, 0, [(SINK_AT, SINK)]))
    while not await one.engine("reads", "DONE"):
        await ClockCycles(dut.clk, 100)
    await ClockCycles(dut.clk, 3000)
    for end in ends:
        for _, _, octets in end.frames:
            report(octets.hex())


CLOCKS = {"core": 16, "rx": 8, "tx": 8}
READS = {13.4: 3000, 16: 3500, 20: 4300}  # ns from a request to its response, by those of a cycle of the core


@pytest.mark.parametrize("sides", ["a", "ab"])
def test_rdma_writes_fill_the_wire(sides, tmp_path):
    write(sides, tmp_path, least=0.98)


def write(sides, folder, least, ring=16384, core=16):
    parameters = {"core": core, "rx": 8, "tx": 8, "sides": sides, "least": least, "outcome": str(folder / "figures")}
    simulate(partial(Joined, ring), f"{__package__}.test_wire_rate", name="writes.*", parameters=parameters)


@pytest.mark.parametrize(("core", "most"), READS.items())
def test_an_rdma_read_is_answered_in_time(core, most, tmp_path):
    parameters = {"core": core, "rx": 8, "tx": 8, "most": most, "outcome": str(tmp_path / "figures")}
    simulate(partial(Joined), f"{__package__}.test_wire_rate", name="a_read.*", parameters=parameters)


def test_frames_do_not_depend_on_memory_that_nobody_has_written(tmp_path):
    frames = []
    for name, made in ("clean", partial(Joined)), ("dirty", partial(dirty, Joined, 1)):
        outcome = tmp_path / name
        parameters = {**CLOCKS, "outcome": str(outcome)}
        simulate(made, f"{__package__}.test_wire_rate", name="frames.*", parameters=parameters, seed=1)
        frames.append(outcome.read_text().splitlines())
    assert len(frames[0]) > 5
    assert frames[0] == frames[1]


def main():
    """Print the figures: ``python -m open_rnic.cocotb_tests.system.test_wire_rate``."""
    with tempfile.TemporaryDirectory() as folder:
        for ring, core in (16384, 16), (16384, 20), (8192, 16):
            with (Path(folder) / "figures").open("a") as file:
                file.write(f"rings of {ring} octets, core at {1000 / core} MHz:\n")
            for sides in ("a", "ab"):
                write(sides, Path(folder), 0, ring, core)
        for core, most in READS.items():
            test_an_rdma_read_is_answered_in_time(core, most, Path(folder))
        print(f"a full frame with {SEGMENT} octets of an RDMA Write: {FRAME} octets on the wire")
        print((Path(folder) / "figures").read_text(), end="")


if __name__ == "__main__":
    main()
