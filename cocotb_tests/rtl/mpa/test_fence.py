# amaranth: UnusedElaboratable=no
"""The fence alone: a sink that stalls does not change the ULPDUs that the fence makes itself."""

import random
from itertools import count

import pytest
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source, at_width, bench, parameter, simulate
from open_rnic.cocotb_tests.harness.streams import UNTIL_VALID
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.host_driver.mpa.rtr import read_response, rtr_ulpdu
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.rtr import Report
from open_rnic.rtl.mpa.settings import SendSettings
from open_rnic.rtl.mpa.tx.fence import Fence
from open_rnic.rtl.registers import Model, Role, Rtr


async def begin(dut, mpa=0, **settings):
    """Set these inputs, and all others to zero; return a source of ULPDUs, and a sink that stalls."""
    dut.mpa.value, dut.maximum.value = mpa, 1000
    dut.settings.value = SendSettings.const(settings).as_bits()
    dut.report.value = dut.sink.value = dut.failed.value = 0
    stalls = (random.choice([20, 20, 20, 20, UNTIL_VALID]) for _ in count())  # 20: no room is left for a beat behind
    source, sink = Source(dut, "i"), Sink(dut, "o", stalls)
    await RisingEdge(dut.clk)
    return source, sink


@bench()
async def a_read_response_has_the_sink_of_the_read_rtr(dut):
    source, sink = await begin(dut, role=Role.RESPONDER, model=Model.PEER_TO_PEER, rtr_send=parameter("rtr_send"))
    source.send(b"behind it", length=9)
    request = random.randbytes(12)
    dut.report.value = Report.const({"rtr": 1, "respond": 1}).as_bits()
    dut.sink.value = int.from_bytes(request, "little")
    await RisingEdge(dut.clk)
    dut.report.value = 0
    dut.sink.value = random.getrandbits(96)
    await ClockCycles(dut.clk, 50)
    assert sink.empty()
    dut.mpa.value = 1
    assert (await sink.receive()).octets == read_response(rtr_ulpdu(Rtr.READ)[:18] + request + bytes(16))
    assert (await sink.receive()).octets == b"behind it"


@bench()
async def an_rtr_leaves_before_the_first_ulpdu(dut):
    kind = parameter("rtr_send")
    source, sink = await begin(dut, mpa=1, role=Role.INITIATOR, model=Model.PEER_TO_PEER, rtr_send=kind)
    source.send(b"behind it", length=9)
    for expected in (rtr_ulpdu(Rtr(kind)), b"behind it"):
        octets, fields = await sink.receive()
        assert (octets, fields["length"], fields["abort"]) == (expected, len(expected), 0)


@pytest.mark.parametrize("rtr_send", [Rtr.SEND, Rtr.WRITE, Rtr.READ])
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_fence(lanes, rtr_send):
    simulate(at_width(Fence, lanes), __name__, parameters={"lanes": lanes, "rtr_send": rtr_send})
