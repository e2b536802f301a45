"""Test vectors from sources other than this project, sent and received by the RTL."""

import functools

import pytest

from open_rnic.cocotb_tests.harness import bench, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import Datapath
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import Verdict


@bench()
async def vectors_are_sent_and_received(dut):
    path = Datapath(dut, pauses(0.2), stalls(0.2))
    for vector in FPDUS:
        await path.set_fields("CONTROL", reset=1)
        await path.start(vector.stream_offset % 512, markers_tx=vector.markers, markers_rx=vector.markers)
        path.send_ulpdu(vector.ulpdu)
        assert (await path.tx_mpa.receive()).octets.hex() == vector.wire.hex(), vector
        path.rx_mpa.send(vector.wire)
        octets, fields = await path.rx_ulpdu.receive()
        assert (octets.hex(), fields["verdict"]) == (vector.ulpdu.hex(), Verdict.GOOD), vector
        assert await path.get("ERROR") == 0
    assert len(FPDUS) >= 7


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_vectors(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, collects=True)
