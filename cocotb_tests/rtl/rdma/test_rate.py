# amaranth: UnusedElaboratable=no
"""Cycles: RDMA Writes in both directions, and from an RDMA Read Request to its Read Response.

Memory answers in the cycle behind a read, and nothing else stalls.
"""

import functools

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Probe, bench, parameter, simulate
from open_rnic.cocotb_tests.rtl.rdma.bench import Engine, OnDatapath, engine, request
from open_rnic.host_driver.ddp import TAGGED_OCTETS, Opcode, ReadRequest, Tagged
from open_rnic.rtl.rdma.datapath import RdmaDatapath

STAG, AT = 0x1234_5678, 0x4000
ULPDUS = 24
WARM = 4  # ULPDUs before cycles are counted
FRAMING = {"engine": 0, "datapath": 6}  # octets of ULPDU_Length and CRC
QUIET = 600  # cycles: more than an FPDU takes
LOADING = 7  # cycles to load a message of one piece
# Cycles from the last beat of an RDMA Read Request to the first of its Read Response.
LATENCY = {"engine": 26, "datapath": 56}


class Watch:
    """Watches a stream: the cycles of first beats when they were offered, and of last ones, and cycles of stalls."""

    def __init__(self, dut, prefix):
        self._probe = Probe(dut, prefix)
        self._ready = getattr(dut, f"{prefix}__ready")
        self._edge = RisingEdge(dut.clk)
        self.beats = self._probe.beats
        self.cycle = self.stalled = 0
        self.begins: list[int] = []
        self.ends: list[int] = []
        cocotb.start_soon(self._run())

    async def _run(self):
        while True:
            await self._edge
            self.cycle += 1
            if self._probe.offered():
                if len(self.begins) == len(self.ends):
                    self.begins.append(self.cycle)
                self.stalled += not self._ready.value
            if (beat := self._probe.moved()) and beat.last:
                self.ends.append(self.cycle)

    @property
    def period(self):
        """Cycles of a ULPDU."""
        return (self.ends[-1] - self.ends[WARM]) / (len(self.ends) - 1 - WARM)


def connect(dut):
    """Return the driver, and the streams of received and of sent octets."""
    end = OnDatapath(dut) if hasattr(dut, "rx_mpa__valid") else Engine(dut)
    return end, Watch(dut, end.STREAMS[0]), Watch(dut, end.STREAMS[1])


def in_words(width):
    """Octets of RDMA Writes, in whole words: from one word up."""
    return [width, 2 * width, 3 * width, 5 * width, 1408]


@cocotb.parametrize(number=range(5))
@bench()
async def rdma_writes_are_received_at_full_rate(dut, number):
    payload = in_words(4 * parameter("lanes"))[number]
    end, received, _ = connect(dut)
    await end.start()
    await end.region(STAG, AT, ULPDUS * payload)

    def write(n):
        return Tagged(Opcode.RDMA_WRITE, STAG, n * payload, True, bytes(payload)).encode()

    end.receive(*map(write, range(ULPDUS)))
    await end.settle(QUIET)
    assert await end.field("received") == len(received.ends) == ULPDUS
    assert received.stalled == 0
    assert received.period == received.beats(len(write(0)) + FRAMING[parameter("name")])


@cocotb.parametrize(number=range(5))
@bench()
async def rdma_writes_are_sent_at_full_rate(dut, number):
    """Except for a cycle for each ULPDU; messages of a few beats take as long as it takes to load them."""
    payload = in_words(4 * parameter("lanes"))[number]
    end, _, sent = connect(dut)
    await end.start(mulpdu=1500, stop=1)
    for n in range(ULPDUS):
        await end.work(Opcode.RDMA_WRITE, (AT + n * payload, payload), stag=STAG, to=n * payload)
    await end.control()
    await end.settle(QUIET)
    assert len(sent.ends) == ULPDUS
    expect_period(sent, TAGGED_OCTETS + payload, least=LOADING)


@bench()
async def segments_are_sent_at_full_rate(dut):
    """As above, of one long RDMA Write, in segments of 64 octets."""
    end, _, sent = connect(dut)
    await end.start(mulpdu=TAGGED_OCTETS + 64)
    await end.work(Opcode.RDMA_WRITE, (AT, 64 * ULPDUS), stag=STAG)
    await end.settle(QUIET)
    assert len(sent.ends) == ULPDUS
    expect_period(sent, TAGGED_OCTETS + 64)


def expect_period(sent, octets, least=0.0):
    """Assert that ULPDUs of this length were sent, each in a cycle more than it has beats; or its FPDU has."""
    beats = sent.beats(octets + FRAMING[parameter("name")])
    assert sent.period <= max(beats + 1, least)


@bench()
async def a_read_response_follows_its_request(dut):
    end, received, sent = connect(dut)
    await end.start()
    await end.region(STAG, AT, 1000)
    for msn in range(1, 4):
        end.receive(request(msn, ReadRequest(1, 2, 100, STAG, 7)))
        await end.settle()
    latencies = [begin - end for begin, end in zip(sent.begins, received.ends, strict=True)]
    assert max(latencies) <= LATENCY[parameter("name")]


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", FRAMING)
def test_rate(lanes, name):
    made = engine(lanes, work=32) if name == "engine" else functools.partial(RdmaDatapath, lanes, work=32)
    simulate(made, __name__, parameters={"lanes": lanes, "name": name})
