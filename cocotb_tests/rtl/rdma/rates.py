"""Cycles of RDMA Writes and Read Responses in the RDMA engine, alone and with MPA.

Memory answers in the cycle behind a read, and nothing stalls but the engine.

    python -m open_rnic.cocotb_tests.rtl.rdma.rates [LANES...]
"""

import argparse
import functools
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cocotb
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Probe, at_width, bench, parameter, simulate
from open_rnic.cocotb_tests.rtl.rdma.bench import SIZES, Engine, OnDatapath, request
from open_rnic.host_driver.ddp import TAGGED_OCTETS, Opcode, ReadRequest, Tagged
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.engine import RdmaEngine

WIDTHS = (1, 2, 4)
STAG, AT = 0x1234_5678, 0x4000
ULPDUS = 24
WARM = 4  # ULPDUs before cycles are counted
FRAMING = {"engine": 0, "datapath": 6}  # octets of ULPDU_Length and CRC
QUIET = 600  # cycles: more than an FPDU takes
SEGMENT = 64  # octets
ASIDE = 3  # the address of the first octet in its word, in the tests that are not aligned


class Rate(NamedTuple):
    """Cycles for each RDMA Write, and beats of its ULPDU or FPDU."""

    octets: int
    aside: int
    beats: int
    received: float
    sent: float


class Rates(NamedTuple):
    """The results at one width.

    ``segments`` are those of a long RDMA Write. ``response`` is the number of cycles from the last beat of an RDMA Read
    Request to the first of its Read Response, at most.
    """

    writes: list[Rate]
    segments: Rate
    response: int


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

    def period(self, count):
        """The cycles of a ULPDU, of the last ``count``."""
        assert len(self.ends) >= count
        return (self.ends[-1] - self.ends[WARM - count]) / (count - WARM - 1)


def beats_of(lanes: int, octets: int, name: str) -> int:
    """Beats of a ULPDU, or of its FPDU with ULPDU_Length, PAD and CRC."""
    octets += FRAMING[name]
    return -(-octets // (4 * lanes))


def lengths(lanes: int) -> list[int]:
    """Octets of RDMA Writes, in whole words."""
    return [*(4 * lanes * words for words in (1, 2, 3, 4, 5)), 1408]


@bench(cycles=1_000_000)
async def measure(dut):
    """Measure everything, and write it to a file."""
    name, lanes = parameter("name"), parameter("lanes")
    end = OnDatapath(dut) if name == "datapath" else Engine(dut)
    received, sent = (Watch(dut, each) for each in end.STREAMS[:2])
    await end.start(mulpdu=1500)
    writes = []
    for octets in lengths(lanes):
        for aside in (0, ASIDE):
            first = AT + aside
            await end.region(STAG, first, ULPDUS * octets)
            stalls = received.stalled
            end.receive(
                *(Tagged(Opcode.RDMA_WRITE, STAG, n * octets, True, bytes(octets)).encode() for n in range(ULPDUS))
            )
            await end.settle(QUIET)
            took = received.period(ULPDUS)
            assert aside or received.stalled == stalls
            await end.control(stop=1)
            for n in range(ULPDUS):
                await end.work(Opcode.RDMA_WRITE, (first + n * octets, octets), stag=STAG, to=n * octets)
            await end.control()
            await end.settle(QUIET)
            beats = beats_of(lanes, TAGGED_OCTETS + octets, name)
            writes.append(Rate(octets, aside, beats, took, sent.period(ULPDUS)))
    await end.limits(TAGGED_OCTETS + SEGMENT, 4, 4)
    await end.work(Opcode.RDMA_WRITE, (AT, SEGMENT * ULPDUS), stag=STAG)
    await end.settle(QUIET)
    beats = beats_of(lanes, TAGGED_OCTETS + SEGMENT, name)
    segments = Rate(SEGMENT, 0, beats, 0, sent.period(ULPDUS))
    await end.limits(1500, 4, 4)
    await end.region(STAG, AT, 1000)
    latencies = []
    for msn in range(1, 9):
        end.receive(request(msn, ReadRequest(1, 2, 100, STAG, 7)))
        await end.settle()
        latencies.append(sent.begins[-1] - received.ends[-1])
    Path(parameter("outcome")).write_text(json.dumps([writes, segments, max(latencies)]))


@functools.cache
def rates(name: str, lanes: int) -> Rates:
    """Return the rates of the "engine" alone, or of the "datapath", at this width."""
    make = {"engine": RdmaEngine, "datapath": RdmaDatapath}[name]
    made = at_width(functools.partial(make, **SIZES | {"work": 32}), lanes, WIDTHS)
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder) / "rates.json"
        parameters = {"name": name, "lanes": lanes, "outcome": str(outcome)}
        simulate(made, measure, parameters=parameters)
        writes, segments, response = json.loads(outcome.read_text())
    return Rates([Rate(*each) for each in writes], Rate(*segments), response)


def table(widths: Sequence[int]) -> str:
    """Return the tables of docs/rdma-engine.md."""
    lines = ["| lanes | octets | beats of the FPDU | received | sent | received, at octet 3 | sent, from octet 3 |",
             "| --: | --: | --: | --: | --: | --: | --: |"]  # fmt: skip
    found = {lanes: rates("datapath", lanes) for lanes in widths}
    for lanes, each in found.items():
        for aligned, other in zip(each.writes[::2], each.writes[1::2], strict=True):
            cycles = (f"{value:.4g}" for value in (aligned.received, aligned.sent, other.received, other.sent))
            lines.append(f"| {lanes} | {aligned.octets} | {aligned.beats} | {' | '.join(cycles)} |")
    lines += ["", "| lanes | Read Response, the engine alone | with MPA |", "| --: | --: | --: |"]
    lines += [f"| {lanes} | {rates('engine', lanes).response} | {each.response} |" for lanes, each in found.items()]
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="rates", description=__doc__.partition("\n")[0])
    parser.add_argument("lanes", nargs="*", type=int, help=f"widths (default: {' '.join(map(str, WIDTHS))})")
    print(table(parser.parse_args().lanes or WIDTHS))


if __name__ == "__main__":
    main()
