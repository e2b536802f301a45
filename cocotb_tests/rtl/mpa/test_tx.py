# amaranth: UnusedElaboratable=no
"""The blocks of transmit, each alone."""

import functools
import random

import pytest
from crc32c import crc32c

from open_rnic.cocotb_tests.harness import Sink, Source, at_width, bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import filler
from open_rnic.cocotb_tests.harness.ice40 import Ice40
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.rtl.together import Chain, Together
from open_rnic.host_driver.mpa.fpdu import FpduFramer as Software
from open_rnic.rtl.lib.stream import Buffer
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender
from open_rnic.rtl.mpa.tx.framer import FpduFramer
from open_rnic.rtl.mpa.tx.markers import MarkerInserter


def blocks(lanes, ice40=False):
    # The inserter does nothing while ``o.ready`` is 0, so a sink whose ``ready`` waits for ``valid`` needs a buffer.
    inserter = MarkerInserter(lanes)
    together = Together(
        framer=FpduFramer(lanes),
        inserter=Chain(inserter, Buffer(inserter.o.payload.shape())),
        appender=crc_appender(lanes),
    )
    return Ice40(together) if ice40 else together


def around(dut, name, chance=0.3):
    return Source(dut, f"{name}__i", pauses(chance)), Sink(dut, f"{name}__o", stalls(chance))


def sizes(width):
    return random.sample(range(4 * width + 6), 4 * width + 6)


def unmarked(ulpdu):
    """Return ULPDU_Length, ULPDU and PAD."""
    return Software(markers=False, crc=False).frame(ulpdu)[:-4]


@bench()
async def the_framer_adds_ulpdu_length_and_pad(dut):
    source, sink = around(dut, "framer")
    ulpdus = [random.randbytes(each) for each in [*sizes(4 * parameter("lanes")), 1500]]
    for nth, each in enumerate(ulpdus):
        source.send(each, length=len(each), abort=nth % 3 == 0, markers=nth % 2, crc=nth % 5 == 0)
    for nth, each in enumerate(ulpdus):
        fields = {"abort": nth % 3 == 0, "markers": nth % 2, "crc": nth % 5 == 0}
        assert await sink.receive() == (unmarked(each), fields)


@bench()
async def the_inserter_inserts_markers(dut):
    source, sink = around(dut, "inserter")
    start = random.randrange(128)
    dut.inserter__start.value = start
    software = Software(markers=True, crc=True, offset=4 * start)
    for nth, size in enumerate([*sizes(4 * parameter("lanes")), *range(490, 520), 3000]):
        ulpdu = random.randbytes(size)
        fields = {"abort": nth % 2, "crc": nth % 3 == 0}
        source.send(unmarked(ulpdu), markers=1, **fields)
        assert await sink.receive() == (software.frame(ulpdu)[:-4], fields), (size, software.offset)


@bench()
async def a_marker_is_inserted_between_pad_and_crc(dut):
    source, sink = around(dut, "inserter")
    dut.inserter__start.value = 0
    software = Software(markers=True, crc=True)
    for size in [*range(20), 487]:
        for ulpdu in (filler(software.offset, 512 - (2 + size + 3) // 4 * 4), random.randbytes(size)):
            source.send(unmarked(ulpdu), abort=0, markers=1, crc=1)
            found = (await sink.receive()).octets
            assert found == software.frame(ulpdu)[:-4]
        assert found[-4:] == (len(found) - 4).to_bytes(4, "big")


@bench()
async def the_inserter_can_be_disabled(dut):
    source, sink = around(dut, "inserter")
    dut.inserter__start.value = 0
    source.send(bytes(800), abort=0, markers=0, crc=1)
    assert (await sink.receive()).octets == bytes(800)


@bench()
async def the_appender_appends_the_crc_its_complement_or_zero_and_cuts_an_aborted_fpdu_without_crc(dut):
    source, sink = around(dut, "appender")
    for enable in (1, 0):
        for size in random.sample(range(4, 4 * 70, 4), 50):
            octets, abort = random.randbytes(size), random.randrange(2)
            source.send(octets, abort=abort, crc=enable)
            crc = crc32c(octets) ^ (0xFFFF_FFFF * abort)
            fpdu = octets + (crc * enable).to_bytes(4, "little")
            found = (await sink.receive()).octets
            if abort and not enable:  # the receiver waits for the rest
                assert found[: size - 4] == octets[:-4]
                assert len(found) == size
            else:
                assert found == fpdu


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_tx_blocks(lanes):
    simulate(at_width(blocks, lanes, (1, 4, 16)), __name__, parameters={"lanes": lanes})


@long("the whole data path of an iCE40 is in the short run")
def test_tx_blocks_of_an_ice40():
    simulate(functools.partial(blocks, 2, ice40=True), __name__, parameters={"lanes": 2})
