# amaranth: UnusedElaboratable=no
"""The blocks of transmit, each alone."""

import functools
import random

import pytest
from cocotb.triggers import RisingEdge
from crc32c import crc32c

from cocotb_tests.blocks.together import Together
from cocotb_tests.harness import Sink, Source, bench, parameter, pauses, simulate
from host_driver.fpdu import FpduFramer as Software
from rtl.crc import CrcAppender
from rtl.framer import FpduFramer
from rtl.markers import MarkerInserter
from rtl.packer import LanePacker, Ragged


def blocks(lanes):
    return Together(
        framer=FpduFramer(lanes),
        inserter=MarkerInserter(lanes),
        appender=CrcAppender(lanes),
        packer=LanePacker(lanes, looks_ahead=False, note=4),
        ahead=LanePacker(lanes, looks_ahead=True, note=4),
    )


def around(dut, name, chance=0.3):
    return Source(dut, f"{name}__i", pauses(chance)), Sink(dut, f"{name}__o", pauses(chance))


def sizes(width):
    return random.sample(range(4 * width + 6), 4 * width + 6)


def unmarked(ulpdu):
    """ULPDU_Length, ULPDU and PAD."""
    return Software(markers=False, crc=False).frame(ulpdu)[:-4]


@bench()
async def the_framer_adds_ulpdu_length_and_pad(dut):
    source, sink = around(dut, "framer")
    ulpdus = [random.randbytes(each) for each in [*sizes(4 * parameter("lanes")), 1500]]
    for nth, each in enumerate(ulpdus):
        source.send(each, length=len(each), abort=nth % 3 == 0)
    for nth, each in enumerate(ulpdus):
        assert await sink.receive() == (unmarked(each), {"abort": nth % 3 == 0})


@bench()
async def the_inserter_adds_markers_to_all_but_the_crc(dut):
    source, sink = around(dut, "inserter")
    start = random.randrange(128)
    dut.inserter__enable.value, dut.inserter__start.value = 1, start
    software = Software(markers=True, crc=True, offset=4 * start)
    for nth, size in enumerate([*sizes(4 * parameter("lanes")), *range(490, 520), 3000]):
        ulpdu = random.randbytes(size)
        source.send(unmarked(ulpdu), abort=nth % 2)
        assert await sink.receive() == (software.frame(ulpdu)[:-4], {"abort": nth % 2}), (size, software.offset)


@bench()
async def the_inserter_can_be_off(dut):
    source, sink = around(dut, "inserter")
    dut.inserter__enable.value, dut.inserter__start.value = 0, 0
    source.send(bytes(800), abort=0)
    assert (await sink.receive()).octets == bytes(800)


@bench()
async def the_appender_adds_the_crc_its_complement_or_zero(dut):
    source, sink = around(dut, "appender")
    for enable in (1, 0):
        dut.appender__enable.value = enable
        for size in random.sample(range(4, 4 * 70, 4), 50):
            octets, abort = random.randbytes(size), random.randrange(2)
            source.send(octets, abort=abort)
            crc = crc32c(octets) ^ (0xFFFF_FFFF * abort)
            assert (await sink.receive()).octets == octets + (crc * enable).to_bytes(4, "little")


@bench()
async def the_packers_close_gaps(dut):
    lanes, edge = parameter("lanes"), RisingEdge(dut.clk)
    layout = Ragged(lanes, note=4)
    for name, least in (("packer", 1), ("ahead", 0)):
        sink, idle = Sink(dut, f"{name}__o", pauses(0.3)), pauses(0.3)
        payload, valid, ready = (getattr(dut, f"{name}__i__{port}") for port in ("payload", "valid", "ready"))
        packets = []
        for nth in range(60):
            middle = [lanes + (random.random() < 0.1) for _ in range(random.randrange(6))]
            beats = [random.randbytes(4 * count) for count in (*middle, random.randint(least if middle else 1, lanes))]
            packets.append((b"".join(beats), {"note": nth % 16}))
            for octets in beats:
                is_last = octets is beats[-1]
                word = int.from_bytes(octets, "little") | len(octets) // 4 << layout["count"].offset
                note = nth % 16 if is_last else random.randrange(16)
                payload.value = word | is_last << layout["last"].offset | note << layout["note"].offset
                valid.value = 1
                await edge
                while not ready.value:
                    await edge
                valid.value = 0
                for _ in range(next(idle)):
                    await edge
        for each in packets:
            assert await sink.receive() == each


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_tx_blocks(lanes):
    simulate(functools.partial(blocks, lanes), __name__, parameters={"lanes": lanes})
