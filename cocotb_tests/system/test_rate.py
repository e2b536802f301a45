"""Full rate and latency: cycles used, counted on the streams, against cycles needed."""

import functools
import itertools
import json
import os
import random
from pathlib import Path

import pytest
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from cocotb_tests.datapath import Datapath
from cocotb_tests.harness import PERIOD, Rate, bench, parameter, simulate
from host_driver.fpdu import FpduFramer
from rtl.datapath import MpaDatapath
from rtl.registers import Verdict
from rtl.stream import LANES

WARM = 60  # beats before it counts: all queues have the level then that they keep
COUNTED = 400
TOLERANCE = 4  # cycles, however long a test is
LATENCY = 18, 25  # cycles, transmit and receive


def now():
    """The cycle."""
    return round(get_sim_time("ns") / PERIOD)


def write_report(name, numbers):
    """Keep what was measured, where the environment's RATE_REPORT says."""
    if folder := os.environ.get("RATE_REPORT"):
        (Path(folder) / f"{name}-{parameter('lanes')}.json").write_text(json.dumps(numbers))


def workloads(width):
    """Lengths of ULPDUs, by name: first those to warm up, then those that count."""
    lengths = {str(each): [each] for each in (0, 1, 2, width - 1, width, width + 1, 64, 1430, 1442, 8882)}
    mixed = [random.choice([0, 1, 2, width, 64, 536, 1442]) for _ in range(16)]
    for name, pattern in {**lengths, "mixed": mixed}.items():
        fpdu = sum(-(-(each + 8) // width) for each in pattern)  # beats, or little less
        yield name, pattern * (1 + WARM // fpdu), pattern * (1 + COUNTED // fpdu)


def needed(fpdus, width):
    """Cycles for these FPDUs: a full beat in each, or the end of one FPDU."""
    return sum(-(-len(each) // width) for each in fpdus)


async def transmit(path, rate, ulpdus, fpdus, first):
    """Cycles from the first beat of FPDU ``first`` to the last beat of the last, both included."""
    for each in ulpdus:
        path.send_ulpdu(each)
    for nth, each in enumerate(fpdus):
        if nth == first:
            rate.restart()
        assert (await path.tx_mpa.receive()).octets == each
    return rate.used


async def receive(path, ulpdus, chunks, first):
    """Cycles from when the last beat of the ULPDU before ``first`` leaves to when that of the last ULPDU does.

    An FPDU is done with then. What has been taken out of it may move that by up to ``TOLERANCE`` cycles.
    """
    for each in chunks:
        path.rx_mpa.send(each)
    for nth, each in enumerate(ulpdus):
        octets, fields = await path.rx_ulpdu.receive()
        assert (octets, fields["verdict"]) == (each, Verdict.GOOD)
        if nth == first - 1:
            start = now()
    return now() - start


@bench(cycles=2_000_000)
async def a_beat_moves_in_each_cycle(dut):
    path = Datapath(dut)
    rate = Rate(dut, "tx_mpa")
    width = path.tx_mpa.octets_per_beat
    report, slow = {}, {}
    for markers, crc in itertools.product([0, 1], repeat=2):
        for name, warm, counted in workloads(width):
            if not crc and name != "mixed":
                continue
            await path.renew()
            offset = 4 * random.randrange(128)
            await path.start(offset, markers_tx=markers, markers_rx=markers, crc_tx=crc, crc_rx=crc)
            framer = FpduFramer(markers=bool(markers), crc=bool(crc), offset=offset)
            first = len(warm)
            ulpdus = [random.randbytes(each) for each in warm + counted + warm + counted]
            fpdus = [framer.frame(each) for each in ulpdus]
            half = first + len(counted)
            beats = needed(fpdus[first:half], width)
            sent = await transmit(path, rate, ulpdus[:half], fpdus[:half], first)
            stream = await receive(path, ulpdus[:half], [b"".join(fpdus[:half])], first)
            aligned = await receive(path, ulpdus[half:], fpdus[half:], first)
            aligned -= needed(fpdus[half + first:], width) - beats
            case = f"{name}, markers {markers}, CRC {crc}"
            report[case] = [beats, sent, stream, aligned]
            if sent != beats or not max(abs(stream - beats), abs(aligned - beats)) <= TOLERANCE:
                slow[case] = report[case]
    write_report("rate", report)
    assert not slow, f"[needed, transmit, receive, receive of aligned chunks]: {slow}"


@bench()
async def latency(dut):
    """Cycles from the first beat offered to the device until it offers one, for ULPDUs of one beat and of many."""
    path = Datapath(dut)
    width = path.tx_mpa.octets_per_beat
    edge = RisingEdge(dut.clk)

    async def measure(source, sink, send):
        send()
        while not getattr(dut, f"{source}__valid").value:
            await edge
        start = now()
        while not getattr(dut, f"{sink}__valid").value:
            await edge
        return now() - start

    report = {}
    for markers in (0, 1):
        for length in (1, 20 * width):
            await path.renew()
            await path.start(4, markers_tx=markers, markers_rx=markers)
            ulpdu = bytes(length)
            fpdu = FpduFramer(markers=bool(markers), crc=True, offset=4).frame(ulpdu)
            tx = await measure("tx_ulpdu", "tx_mpa", lambda ulpdu=ulpdu: path.send_ulpdu(ulpdu))
            await path.tx_mpa.receive()
            rx = await measure("rx_mpa", "rx_ulpdu", lambda fpdu=fpdu: path.rx_mpa.send(fpdu))
            await path.rx_ulpdu.receive()
            report[f"{length} octets, markers {markers}"] = [tx, rx]
            assert tx <= LATENCY[0], tx
            assert rx <= LATENCY[1], rx
    write_report("latency", report)


@pytest.mark.parametrize("lanes", LANES)
def test_full_rate(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, parameters={"lanes": lanes})
