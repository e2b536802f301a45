"""The whole data path against the software, which is written from RFC 5044."""

import random

import pytest

from cocotb_tests.datapath import Datapath
from cocotb_tests.harness import Rate, bench, never, parameter, pauses, simulate
from cocotb_tests.vectors import FPDUS
from host_driver.fpdu import FpduFramer
from rtl.datapath import MpaDatapath
from rtl.registers import Verdict
from rtl.stream import LANES


def cut(octets, longest):
    """``octets`` in chunks of 1 to ``longest``."""
    at = 0
    while at < len(octets):
        size = random.randint(1, longest)
        yield octets[at:at + size]
        at += size


def sizes(lanes):
    """Around the beat width, around the distance of markers, and large."""
    return [*range(2 * 4 * lanes + 5), *range(498, 516), 1442, random.randint(2000, 5000)]


@bench(cycles=400_000)
async def ulpdus_become_fpdus(dut):
    lanes, markers, crc = parameter("lanes"), parameter("markers"), parameter("crc")
    path = Datapath(dut, pauses(parameter("idle")), pauses(parameter("busy")))
    offset = 4 * random.randrange(128)
    await path.start(offset, markers_tx=markers, crc_tx=crc)
    software = FpduFramer(markers=markers, crc=crc, offset=offset)
    ulpdus = [random.randbytes(size) for size in random.sample(sizes(lanes), k=len(sizes(lanes)))]
    for ulpdu in ulpdus:
        path.send_ulpdu(ulpdu)
    for ulpdu in ulpdus:
        assert (await path.tx_mpa.receive()).octets.hex() == software.frame(ulpdu).hex(), len(ulpdu)


@bench(cycles=1_000_000)
async def fpdus_become_ulpdus(dut):
    lanes, markers, crc = parameter("lanes"), parameter("markers"), parameter("crc")
    path = Datapath(dut, pauses(parameter("idle")), pauses(parameter("busy")))
    offset = 4 * random.randrange(128)
    await path.start(offset, markers_rx=markers, crc_rx=crc)
    software = FpduFramer(markers=markers, crc=crc, offset=offset)
    ulpdus = [random.randbytes(size) for size in random.sample(sizes(lanes), k=len(sizes(lanes)))]
    stream = b"".join(map(software.frame, ulpdus))
    for chunk in cut(stream, random.choice([1, 7, 64, 300, 5000])):
        path.rx_mpa.send(chunk)
    for ulpdu in ulpdus:
        octets, fields = await path.rx_ulpdu.receive()
        assert octets.hex() == ulpdu.hex(), len(ulpdu)
        assert fields["verdict"] == Verdict.GOOD


PAUSES = [(0, 0), (0.3, 0), (0, 0.3), (0.5, 0.5)]


@pytest.mark.parametrize(("idle", "busy"), PAUSES)
@pytest.mark.parametrize("crc", [False, True])
@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", ["ulpdus_become_fpdus", "fpdus_become_ulpdus"])
def test_rtl_equals_software(name, lanes, markers, crc, idle, busy):
    simulate(MpaDatapath(lanes), __name__, name=name,
             parameters={"lanes": lanes, "markers": markers, "crc": crc, "idle": idle, "busy": busy})
