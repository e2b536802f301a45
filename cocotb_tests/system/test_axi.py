"""The AXI ports, driven by cocotbext-axi, which is independent of this project."""

import itertools
import random
from functools import partial

import pytest
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.axi import AxiStreamFrame

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.mpa.axi import MpaAxi
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.mpa.axi import AxiMpaDatapath
from open_rnic.rtl.registers import BY_NAME, IDENTITY, MAP, Access, EventKind, Verdict


@bench(cycles=200_000)
async def registers_can_be_read_and_written(dut):
    axi = MpaAxi(dut)
    for channel in (axi.registers.read_if.r_channel, axi.registers.write_if.b_channel):
        channel.set_pause_generator(itertools.cycle(random.choices([0, 1], k=97)))
    assert await axi.get("IDENTITY") == IDENTITY
    for register in MAP:
        for field in register.fields:
            if field.access is Access.RW:
                value = random.getrandbits(field.width)
                await axi.set(register.name, **{field.name: value})
                assert field.get(await axi.get(register.name)) == value, (register.name, field.name)
    answer = await axi.registers.write(BY_NAME["CONFIG"].address, b"\0")
    assert answer.resp == 2, "a write of one octet must be rejected"


@bench(cycles=500_000)
async def fpdus_are_looped_back(dut):
    """The FPDUs of the transmit port are those of the software, and are sent to the receive port."""
    axi = MpaAxi(dut)
    if parameter("pauses"):
        for each in axi.all:
            each.set_pause_generator(itertools.cycle(random.choices([0, 1], k=997)))
    await axi.set("CONFIG", rdmap=0, markers_tx=1, markers_rx=1)
    await axi.set("CONTROL", tx_enable=1, rx_enable=1)
    software = FpduFramer(markers=True, crc=True)
    sizes = [*range(1, 8 * parameter("lanes") + 3), 500, 508, 512, 1442]
    random.shuffle(sizes)
    ulpdus = [random.randbytes(size) for size in sizes]
    stream = b""
    for ulpdu in ulpdus:
        await axi.ulpdu_in.send(AxiStreamFrame(ulpdu, tuser=len(ulpdu)))
    for ulpdu in ulpdus:
        fpdu = bytes((await axi.mpa_out.recv()).tdata)
        assert fpdu == software.frame(ulpdu)
        stream += fpdu
    while stream:
        size = random.randint(1, 700)
        await axi.mpa_in.send(stream[:size])
        stream = stream[size:]
    for ulpdu in ulpdus:
        frame = await axi.ulpdu_out.recv(compact=False)
        kept = bytes(octet for octet, keep in zip(frame.tdata, frame.tkeep, strict=True) if keep)
        assert kept == ulpdu
        assert frame.tuser[-1] == Verdict.GOOD
    kinds = set()
    while word := await axi.get("EVENT"):
        kinds.add(EventKind(BY_NAME["EVENT"]["kind"].get(word)))
    assert kinds == {EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN}
    await RisingEdge(dut.clk)
    assert not dut.irq.value


@bench(cycles=50_000)
async def any_beat_of_rx_mpa_may_be_short(dut):
    """Short beats occur without ``tlast``: octets whose ``tkeep`` is 0 are null octets of AXI4-Stream."""
    axi = MpaAxi(dut)
    await axi.set("CONFIG", rdmap=0)
    await axi.set("CONTROL", tx_enable=1, rx_enable=1)
    width = 4 * parameter("lanes")
    ulpdus = [random.randbytes(size) for size in range(4 * width)]
    stream = b"".join(map(FpduFramer(markers=False, crc=True).frame, ulpdus))
    data, keep = bytearray(), bytearray()
    while stream:
        kept = random.randint(1, width)
        data += stream[:kept].ljust(width, b"?")
        keep += bytes(n < min(kept, len(stream)) for n in range(width))
        stream = stream[kept:]
    await axi.mpa_in.send(AxiStreamFrame(data, tkeep=keep))
    for ulpdu in ulpdus:
        assert bytes((await axi.ulpdu_out.recv()).tdata) == ulpdu


@bench(cycles=50_000)
async def the_verdict_is_on_the_last_beat(dut):
    axi = MpaAxi(dut)
    await axi.set("CONFIG", rdmap=0)
    await axi.set("CONTROL", tx_enable=1, rx_enable=1)
    fpdu = FpduFramer(markers=False, crc=True).frame(bytes(100))
    for stream, verdict in ((fpdu, Verdict.GOOD), (bytes([*fpdu[:-1], fpdu[-1] ^ 1]), Verdict.CRC)):
        await axi.mpa_in.send(stream)
        assert (await axi.ulpdu_out.recv(compact=False)).tuser[-1] == verdict


@bench(cycles=20_000)
async def a_reset_discards_ulpdus_in_the_length_fifo(dut):
    axi = MpaAxi(dut)
    await axi.ulpdu_in.send(AxiStreamFrame(b"of the last connection"))
    await axi.ulpdu_in.wait()
    await ClockCycles(dut.clk, 50)
    await axi.set("CONTROL", reset=1)
    await axi.set("CONTROL", tx_enable=1)
    await axi.ulpdu_in.send(AxiStreamFrame(b"of this one"))
    fpdu = bytes((await axi.mpa_out.recv()).tdata)
    assert fpdu == FpduFramer(markers=False, crc=True).frame(b"of this one")


def design(lanes):
    """The data path; at 1 lane, with a FIFO that measures ULPDUs, so that ``tuser`` of what is sent has no effect."""
    return partial(AxiMpaDatapath, lanes, measure=2048 if lanes == 1 else 0)


def test_a_reset_discards_ulpdus_in_the_length_fifo():
    simulate(design(1), a_reset_discards_ulpdus_in_the_length_fifo)


@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
def test_registers_can_be_read_and_written(lanes):
    simulate(design(lanes), registers_can_be_read_and_written)


@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
@pytest.mark.parametrize("bench", [any_beat_of_rx_mpa_may_be_short, the_verdict_is_on_the_last_beat])
def test_beats(bench, lanes):
    simulate(design(lanes), bench, parameters={"lanes": lanes})


@pytest.mark.parametrize("pauses", [False, True])
@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
def test_fpdus_are_looped_back(lanes, pauses):
    parameters = {"lanes": lanes, "pauses": pauses}
    simulate(design(lanes), fpdus_are_looped_back, parameters=parameters)
