"""The complete data path, compared with the software, which is written from RFC 5044."""

import functools
import itertools
import random

import pytest

from open_rnic.cocotb_tests.harness import bench, ice40, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import Datapath
from open_rnic.cocotb_tests.mpa import MpaSink, MpaSource
from open_rnic.cocotb_tests.plugins.lengths import shortened, widths
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import Verdict


def shuffled_sizes(lanes):
    """Return ULPDU lengths around the width of a beat, around the marker interval, and large ones."""
    sizes = [*range(2 * 4 * lanes + 5), *range(498, 516), 1442, random.randint(2000, 5000)]
    random.shuffle(sizes)
    return sizes


async def settings(path):
    """Yield all combinations of markers and CRC, each for a new connection at a random stream offset."""
    for markers, crc in itertools.product([False, True], repeat=2):
        await path.set("CONTROL", 1 << 2)
        offset = 4 * random.randrange(128)
        await path.start(offset, markers_tx=markers, markers_rx=markers, crc_tx=crc, crc_rx=crc)
        yield {"markers": markers, "crc": crc, "offset": offset}


@bench(cycles=10_000_000)
async def ulpdus_become_fpdus(dut):
    path = Datapath(dut, pauses(parameter("idle")), stalls(parameter("busy")))
    async for setting in settings(path):
        software, sink = FpduFramer(**setting), MpaSink(path.tx_mpa.receive, packets=True, **setting)
        ulpdus = [random.randbytes(size) for size in shuffled_sizes(parameter("lanes"))]
        for ulpdu in ulpdus:
            path.send_ulpdu(ulpdu)
        for ulpdu in ulpdus:
            assert (await sink.receive()).octets.hex() == software.frame(ulpdu).hex(), len(ulpdu)


@bench(cycles=10_000_000)
async def fpdus_become_ulpdus(dut):
    path = Datapath(dut, pauses(parameter("idle")), stalls(parameter("busy")))
    async for setting in settings(path):
        longest = random.choice([1, 7, 64, 300, 5000])
        source = MpaSource(path.rx_mpa.send, sizes=pauses(1, longest), **setting)
        ulpdus = [random.randbytes(size) for size in shuffled_sizes(parameter("lanes"))]
        for ulpdu in ulpdus:
            source.send(ulpdu)
        source.flush()
        for ulpdu in ulpdus:
            octets, fields = await path.rx_ulpdu.receive()
            assert octets.hex() == ulpdu.hex(), len(ulpdu)
            assert fields == {"length": len(octets), "verdict": Verdict.GOOD}


@pytest.mark.parametrize(("idle", "busy"), shortened("one end is slow", 2, [(0.3, 0.3), (0, 0), (0.5, 0), (0, 0.5)]))
@pytest.mark.parametrize("lanes", widths(*LANES))
@pytest.mark.parametrize("bench", [ulpdus_become_fpdus, fpdus_become_ulpdus])
def test_rtl_equals_software(bench, lanes, idle, busy):
    parameters = {"lanes": lanes, "idle": idle, "busy": busy}
    simulate(functools.partial(MpaDatapath, lanes), bench, parameters=parameters)


def test_rtl_of_an_ice40_equals_software():
    parameters = {"lanes": 2, "idle": 0.3, "busy": 0.3}
    simulate(functools.partial(ice40.datapath, 2), __name__, parameters=parameters)
