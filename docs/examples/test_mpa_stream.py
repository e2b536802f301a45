"""An MPA data path with AXI4-Stream ports, tested with MPA's source, sink and monitor on top of cocotbext-axi."""

import functools
import random

from cocotbext.axi import AxiStreamBus, AxiStreamFrame, AxiStreamMonitor

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.cocotb_tests.mpa import Fault, MpaMonitor, MpaSink, MpaSource
from open_rnic.cocotb_tests.mpa.axi import MpaAxi
from open_rnic.rtl.mpa.axi import AxiMpaDatapath


async def enable(dut):
    """Enable MPA at once, with markers and CRCs both ways and without the rules of RDMAP."""
    axi = MpaAxi(dut)
    await axi.set("CONFIG", rdmap=0, markers_tx=1, markers_rx=1)
    await axi.set("CONTROL", tx_enable=1, rx_enable=1)
    return axi


@bench(cycles=100_000)
async def what_is_sent_is_right(dut):
    axi = await enable(dut)
    sink = MpaSink(axi.mpa_out.recv, markers=True, packets=True)
    watched = AxiStreamMonitor(AxiStreamBus.from_prefix(dut, "m_axis_mpa"), dut.clk, dut.rst)
    monitor = MpaMonitor(watched.recv, markers=True)
    ulpdus = [random.randbytes(size) for size in (1, 2, 3, 500, 508, 1442)]
    for ulpdu in ulpdus:
        await axi.ulpdu_in.send(AxiStreamFrame(ulpdu, tuser=len(ulpdu)))
    for ulpdu in ulpdus:
        assert (await sink.receive()).ulpdu == ulpdu
        assert (await monitor.receive()).ulpdu == ulpdu
    assert monitor.fpdus == len(ulpdus)


@bench(cycles=100_000)
async def a_wrong_fpduptr_ends_receive(dut):
    axi = await enable(dut)
    source = MpaSource(axi.mpa_in.send_nowait, markers=True)
    source.send(b"first", cuts=[1, 7])  # chunks end within the leading marker and ULPDU_Length
    source.send(bytes(600), Fault.FPDUPTR)
    source.send(b"never seen")
    assert bytes((await axi.ulpdu_out.recv()).tdata) == b"first"
    bad = await axi.ulpdu_out.recv(compact=False)
    assert bad.tuser[-1] == 3  # the verdict
    assert axi.ulpdu_out.empty()


def test_axi_ports():
    simulate(functools.partial(AxiMpaDatapath, 4), __name__)
