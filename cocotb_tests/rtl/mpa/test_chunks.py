# amaranth: UnusedElaboratable=no
"""ChunkPacker alone: the times at which incomplete beats are sent."""


import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Source, at_width, bench, parameter, simulate
from open_rnic.rtl.mpa.rx.markers import ChunkPacker


@bench()
async def each_new_lane_is_sent_once_even_if_empty_chunks_follow(dut):
    dut.markers.value = dut.start.value = 0
    dut.o__ready.value = 1
    source = Source(dut, "i")
    for _ in range(3 * parameter("lanes")):
        source.send(bytes(4))
        for _ in range(30):
            source.send(b"")
        beats = 0
        for _ in range(40):
            await RisingEdge(dut.clk)
            beats += int(dut.o__valid.value)
        assert beats == 1
        assert int(dut.i__valid.value) == 0


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_chunks(lanes):
    simulate(at_width(ChunkPacker, lanes, (1, 4, 16)), __name__, parameters={"lanes": lanes})
