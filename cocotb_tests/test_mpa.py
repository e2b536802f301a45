"""The source, sink and monitor of MPA streams: FPDUs are correct, and every fault is found at its place."""

import random

import pytest

from open_rnic.cocotb_tests.harness import Monitor, Sink, Source, bench, never, parameter, pauses, simulate
from open_rnic.cocotb_tests.harness.packet_fifo import packet_fifo
from open_rnic.cocotb_tests.mpa import Checker, Fault, MpaError, MpaMonitor, MpaSink, MpaSource, layout, spoilt
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.registers import Cause

CAUSES = {Fault.CRC: Cause.CRC, Fault.FPDUPTR: Cause.FPDUPTR, Fault.LENGTH: Cause.RX_LENGTH}


@pytest.mark.parametrize("vector", FPDUS, ids=str)
def test_vectors_are_decoded(vector):
    [fpdu] = Checker(markers=vector.markers, crc=True, offset=vector.stream_offset).feed(vector.wire)
    assert (fpdu.ulpdu, fpdu.octets, fpdu.problems) == (vector.ulpdu, vector.wire, ())


@pytest.mark.parametrize("markers", [False, True])
def test_fields_are_contiguous_at_every_stream_offset(markers):
    for offset in range(0, 1024, 4):
        framer = FpduFramer(markers=markers, crc=True, offset=offset)
        for length in (0, 1, 2, 3, 499, 500, 501, 502, 503, 504, 1500):
            start = framer.offset
            fpdu = framer.frame(bytes(length))
            fields = layout(start, length, markers=markers)
            assert [each.start for each in fields] == [start, *(each.end for each in fields[:-1])]
            assert fields[-1].end == start + len(fpdu)


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_is_found_by_the_checker_and_by_the_software(fault):
    for start in range(0, 512, 4):
        framer = FpduFramer(markers=True, crc=True, offset=start)
        stream = framer.frame(b"good")
        offset, ulpdu = framer.offset, random.randbytes(random.choice([600, 601, 603]))
        value = 2000 if fault is Fault.LENGTH else None
        stream += spoilt(framer.frame(ulpdu), offset, fault, markers=True, value=value)
        checker = Checker(markers=True, crc=True, offset=start, max_ulpdu=1999)
        good, bad = checker.feed(stream)
        assert not good.problems
        [problem] = bad.problems
        assert problem.fault is fault
        assert offset <= problem.offset < offset + len(bad.octets)
        assert checker.ended is (fault in (Fault.CRC, Fault.LENGTH))
        software = FpduDelineator(markers=True, crc=True, offset=start, max_ulpdu=1999)
        software.feed(stream)
        assert len(software.take()) == (1 if fault in CAUSES else 2)
        assert (software.error and software.error.cause) == CAUSES.get(fault)


def test_a_fault_in_a_missing_field_is_rejected():
    with pytest.raises(ValueError, match="stream offset 4 has no marker"):
        spoilt(FpduFramer(markers=True, crc=True, offset=4).frame(b""), 4, Fault.FPDUPTR, markers=True)
    with pytest.raises(ValueError, match="has no pad"):
        spoilt(FpduFramer(markers=False, crc=True).frame(bytes(2)), 0, Fault.PAD, markers=False)
    with pytest.raises(ValueError, match="cannot be cut at 13"):
        MpaSource(lambda _: None, markers=False).send(b"1234", cuts=[13])
    with pytest.raises(ValueError, match="stream offset 3"):
        Checker(markers=True, crc=True, offset=3)


def test_chunks_have_the_requested_sizes():
    chunks = []
    source = MpaSource(chunks.append, markers=True, sizes=iter([3, 5, 100, 1, 50]))
    octets = source.send(bytes(20)) + source.send(bytes(90))
    assert list(map(len, chunks)) == [3, 5, 100, 1]
    source.flush()
    assert b"".join(chunks) == octets


def test_cuts_are_reported_where_they_were_made():
    chunks = []
    source = MpaSource(chunks.append, markers=True)
    source.send(bytes(9), cuts=[2, 5, 6], ends=False)
    source.send(b"")
    checker = Checker(markers=True, crc=True)
    fpdus = [fpdu for chunk in chunks for fpdu in checker.feed(chunk)]
    assert [fpdu.cuts for fpdu in fpdus] == [(0, 2, 5, 6), ()]


@bench(cycles=20_000)
async def good_fpdus_pass_and_are_monitored(dut):
    markers = parameter("markers")
    source = MpaSource(Source(dut, "i", pauses(0.2)).send, markers=markers, offset=508, sizes=pauses(1, 700))
    seen = MpaMonitor(Monitor(dut, "i").receive, markers=markers, offset=508)
    sink = MpaSink(Sink(dut, "o", pauses(0.2)).receive, markers=markers, offset=508)
    ulpdus = [random.randbytes(random.randrange(900)) for _ in range(20)]
    for ulpdu in ulpdus:
        source.send(ulpdu)
    source.flush()
    for ulpdu in ulpdus:
        assert (await sink.receive()).ulpdu == ulpdu
    assert seen.fpdus == len(ulpdus)


@bench(cycles=20_000)
async def a_fault_is_reported_with_its_stream_offset(dut):
    source = MpaSource(Source(dut, "i", never()).send, markers=True)
    sink = MpaSink(Sink(dut, "o").receive, markers=True, tolerate=[Fault.RESERVED16])
    source.send(bytes(20))
    source.send(bytes(600), Fault.RESERVED16)
    source.send(bytes(600), Fault.FPDUPTR, value=8)
    for _ in range(2):
        await sink.receive()
    with pytest.raises(MpaError, match=r"does not point to ULPDU_Length: 8, not 380 at stream offset 1026, in .* 644"):
        await sink.receive()


@bench(cycles=20_000, expect_error=MpaError)
async def a_monitor_ends_a_test_that_does_not_call_it(dut):
    MpaMonitor(Monitor(dut, "i").receive, markers=False)
    source, sink = MpaSource(Source(dut, "i").send, markers=False), Sink(dut, "o")
    source.send(bytes(20), Fault.CRC)
    while True:
        await sink.receive()


@pytest.mark.parametrize("markers", [False, True])
@pytest.mark.parametrize("lanes", widths(*LANES))
def test_a_good_stream(lanes, markers):
    simulate(packet_fifo(lanes), good_fpdus_pass_and_are_monitored, parameters={"markers": markers})


@pytest.mark.parametrize(
    "bench", [a_fault_is_reported_with_its_stream_offset, a_monitor_ends_a_test_that_does_not_call_it]
)
def test_a_bad_stream(bench):
    simulate(packet_fifo(4), bench)
