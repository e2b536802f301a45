# amaranth: UnusedElaboratable=no
"""The CRC-32C core, compared with published vectors and with Amaranth's CRC, which is independent of this project."""

import random

import cocotb
import pytest
from amaranth.lib.crc.catalog import CRC32_ISCSI
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source, at_width, bench, parameter, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.together import Together
from open_rnic.cocotb_tests.vectors import CRCS
from open_rnic.rtl.lib import gf2
from open_rnic.rtl.lib.crc32c import BASIS, STEP, WORD, Crc32c, residue
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender


def blocks(lanes):
    return Together(core=Crc32c(lanes), appender=crc_appender(lanes))


def reference(octets):
    """Return the octets of the CRC in the order in which they are sent."""
    return CRC32_ISCSI(8).compute(octets).to_bytes(4, "little")


def crc_of(z, missing):
    """Convert the output of the core to the octets of the CRC."""
    register = gf2.apply(gf2.power(WORD, -missing), gf2.apply(BASIS, z))
    return (register ^ 0xFFFF_FFFF).to_bytes(4, "little")


WHOLE = [each for each in CRCS if len(each.octets) % 4 == 0]  # as in MPA


@bench()
async def the_core_computes_known_crcs(dut):
    lanes = parameter("lanes")
    width, edge = 4 * lanes, RisingEdge(dut.clk)
    messages = [each.octets for each in WHOLE] + [random.randbytes(4 * n) for n in range(1, 3 * lanes + 3)]
    found = []

    async def watch():
        while True:
            await edge
            if dut.core__z_valid.value:
                missing = int(dut.core__missing.value) if lanes > 1 else 0
                found.append(crc_of(dut.core__z.value.to_unsigned(), missing))

    watching = cocotb.start_soon(watch())
    for message in messages:  # a beat in most cycles
        for at in range(0, len(message), width):
            chunk = message[at:at + width]
            dut.core__valid.value = 1
            dut.core__data.value = int.from_bytes(chunk + random.randbytes(width - len(chunk)), "little")
            dut.core__used.value = -(-len(chunk) // 4)
            dut.core__first.value = at == 0
            dut.core__last.value = at + width >= len(message)
            await edge
            if random.random() < 0.2:
                dut.core__valid.value = 0
                await edge
    dut.core__valid.value = 0
    for _ in range(Crc32c(lanes).latency + 1):
        await edge
    watching.cancel()
    assert [each.hex() for each in found] == [reference(each).hex() for each in messages]
    assert found[:len(WHOLE)] == [each.wire for each in WHOLE]


@bench()
async def the_appender_appends_known_crcs(dut):
    source, sink = Source(dut, "appender__i"), Sink(dut, "appender__o", stalls())
    for each in WHOLE:
        source.send(each.octets, abort=0, crc=1)
        assert (await sink.receive()).octets == each.octets + each.wire


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_crc32c(lanes):
    simulate(at_width(blocks, lanes), __name__, parameters={"lanes": lanes})


@pytest.mark.parametrize("each", CRCS, ids=lambda each: each.octets.hex()[:8])
def test_the_reference_computes_the_crcs_of_the_vectors(each):
    assert reference(each.octets) == each.wire


@pytest.mark.parametrize("missing", range(16))
def test_the_residue_is_the_register_after_a_packet_with_its_crc(missing):
    octets = random.randbytes(40)
    register = int.from_bytes(reference(octets + reference(octets)), "little") ^ 0xFFFF_FFFF
    assert gf2.apply(gf2.power(WORD, -missing), gf2.apply(BASIS, residue(missing))) == register


def test_a_lane_of_zeros_is_a_shift_with_feedback():
    assert STEP[:-1] == gf2.identity(32)[1:]


def test_a_singular_matrix_has_no_inverse():
    with pytest.raises(ValueError, match="singular"):
        gf2.inverse((1, 1))
