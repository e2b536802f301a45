# amaranth: UnusedElaboratable=no
"""RtrDetector alone: FPDUs without gaps, and a Read RTR that leaves while an FPDU arrives."""

import itertools
import random

import pytest
from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source, at_width, bench, parameter, simulate
from open_rnic.cocotb_tests.rtl.together import Chain, Together
from open_rnic.host_driver.mpa.rtr import read_response, rtr_ulpdu
from open_rnic.rtl.formats.layouts import CheckedUlpdu
from open_rnic.rtl.mpa.rx.rtr_detector import RtrDetector
from open_rnic.rtl.mpa.settings import RtrSettings
from open_rnic.rtl.registers import Cause, Model, Role, Rtr

RESPONSE = read_response(rtr_ulpdu(Rtr.READ))


class OctetsOnEachBeat(wiring.Component):
    """Clears ``none`` on all beats of an FPDU except the last, as the blocks before the detector do."""

    def __init__(self, lanes):
        shape = CheckedUlpdu(lanes)
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform):
        m = Module()
        wiring.connect(m, wiring.flipped(self.i), wiring.flipped(self.o))
        with m.If(~self.i.payload.last):
            m.d.comb += self.o.payload.none.eq(0)
        return m


def detector(lanes):
    return Together(rx=Chain(OctetsOnEachBeat(lanes), RtrDetector(lanes)))


async def begin(dut, idle=None, **settings):
    dut.rx__settings.value = RtrSettings.const(settings).as_bits()
    dut.rx__asked.value = dut.rx__start.value = 0
    source, sink = Source(dut, "rx__i", idle), Sink(dut, "rx__o")
    await RisingEdge(dut.clk)

    def send(ulpdu):
        size = (len(ulpdu) + 9) // 4
        source.send(ulpdu, length=len(ulpdu), cause=Cause.NONE, value=len(ulpdu), size=size, markers=0, none=0)

    return send, sink


@bench()
async def ulpdus_follow_an_rtr_without_a_gap(dut):
    send, sink = await begin(dut, role=Role.RESPONDER, model=Model.PEER_TO_PEER, rtr_accept=7)
    ulpdus = [random.randbytes(random.randint(1, 50)) for _ in range(20)]
    for each in (rtr_ulpdu(Rtr.WRITE), *ulpdus):
        send(each)
    for each in ulpdus:
        assert (await sink.receive()).octets == each


@bench()
async def a_read_rtr_may_leave_while_an_fpdu_arrives(dut):
    beat = 4 * parameter("lanes")
    ulpdus = [random.randbytes(10 * beat)]
    if parameter("lanes") == 1:  # behind its first beat, this FPDU looks like a Read Response, and is as long
        ulpdus.append((bytes(beat) + RESPONSE)[:len(RESPONSE)])
    for gap, first in itertools.product((0, 1, 4), ulpdus):
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        send, sink = await begin(dut, itertools.repeat(gap), role=Role.INITIATOR, model=Model.PEER_TO_PEER)
        for each in (first, RESPONSE, b"next"):
            send(each)
        await RisingEdge(dut.clk)
        while not (dut.rx__i__valid.value and dut.rx__i__ready.value):
            await RisingEdge(dut.clk)
        dut.rx__asked.value = 1
        assert (await sink.receive()).octets == first
        assert (await sink.receive()).octets == b"next"


@pytest.mark.parametrize("bench", [ulpdus_follow_an_rtr_without_a_gap, a_read_rtr_may_leave_while_an_fpdu_arrives])
@pytest.mark.parametrize("lanes", [1, 4])
def test_rtr_detector(lanes, bench):
    simulate(at_width(detector, lanes, (1, 4)), bench, parameters={"lanes": lanes})
