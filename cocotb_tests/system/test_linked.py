# amaranth: UnusedElaboratable=no
"""The data path with its link, driven by the host's end of the link, octet by octet and in simulated time."""

import functools
import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.devices.serial.driver import Driver
from open_rnic.host_driver.devices.serial.exchange import Exchange
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.host_link.top import LinkedDatapath
from open_rnic.rtl.registers import BY_NAME, IDENTITY, MAP, Access, EventKind, Verdict

CYCLE = 20e-6  # seconds per cycle for the driver, which therefore repeats a request after some thousand cycles


class Line:
    """A driver and its line to the device."""

    def __init__(self, dut):
        self.dut = dut
        self.driver = Driver(Exchange(1, CYCLE))
        self.driver.curious = True
        self.cycle = 0
        cocotb.start_soon(self._run())

    async def _run(self):
        dut, edge, out, came = self.dut, RisingEdge(self.dut.clk), bytearray(), bytearray()
        while True:
            now = self.cycle * CYCLE
            self.driver.tick(now)
            out += self.driver.to_send(now)
            dut.i__valid.value = bool(out)
            dut.i__payload.value = out.pop(0) if out else random.getrandbits(8)
            dut.o__ready.value = ready = random.random() < 0.8
            await edge
            self.cycle += 1
            assert dut.i__ready.value, "a serial line cannot be stalled"
            if ready and dut.o__valid.value:
                came.append(int(dut.o__payload.value))
                if came[-1] == 0:
                    self.driver.receive(bytes(came), self.cycle * CYCLE)
                    came.clear()

    async def until(self, condition):
        while not condition():
            await RisingEdge(self.dut.clk)

    async def _value(self, key):
        await self.until(lambda: any(each.access == key for each in self.driver.values))
        [found] = [each.value for each in self.driver.values if each.access == key]
        self.driver.values.clear()
        return found

    async def get(self, name):
        return await self._value(self.driver.read(name))

    async def set(self, name, word=None, **fields):
        register = BY_NAME[name]
        word = register.reset if word is None else word
        for field, value in fields.items():
            word = word & ~register[field].mask | register[field].put(value)
        await self._value(self.driver.write(name, word))

    async def take(self, queue):
        await self.until(lambda: queue)
        return queue.popleft()


@bench(cycles=300_000)
async def registers_can_be_read_and_written(dut):
    line = Line(dut)
    assert await line.get("IDENTITY") == IDENTITY
    for register in MAP:
        writable = [field for field in register.fields if field.access is Access.RW]
        if writable:
            values = {field.name: random.getrandbits(field.width) for field in writable}
            await line.set(register.name, **values)
            word = await line.get(register.name)
            assert {field.name: field.get(word) for field in writable} == values


@bench(cycles=600_000)
async def ulpdus_are_looped_back(dut):
    line = Line(dut)
    driver = line.driver
    await line.set("CONFIG", rdmap=0)
    await line.set("CONTROL", tx_enable=1, rx_enable=1)
    kinds = {(await line.take(driver.events)).kind for _ in range(3)}
    assert kinds == {EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN}
    width = 4 * parameter("lanes")
    software = FpduFramer(markers=False, crc=True)
    for sizes in (range(2 * width + 2), [1, 0, 0, 300, 700, 63, 64, 65, 254, 255, 256]):
        ulpdus = [random.randbytes(size) for size in sizes]
        for each in ulpdus:
            driver.tx_ulpdu.add(each)
        for each in ulpdus:
            fpdu = await line.take(driver.mpa)
            assert fpdu == software.frame(each)
            for at in range(0, len(fpdu), 100):
                driver.rx_mpa.add(fpdu[at : at + 100])
        for each in ulpdus:
            await line.until(lambda: driver.ulpdus)
            assert driver.take_ulpdu() == (each, Verdict.GOOD)
    assert not driver.ulpdus
    assert not driver.mpa


@bench(cycles=400_000)
async def a_stalled_stream_does_not_block_other_operations(dut):
    line = Line(dut)
    driver = line.driver
    await line.set("RX_STREAM_OCTETS", 0xFFFF_FFFF)
    octets = random.randbytes(1500)
    driver.tx_ulpdu.add(octets)  # TX_STREAM_OCTETS is 0: the device accepts only one beat
    for n in range(5):
        await line.set("TX_MAX_ULPDU", n)
        assert await line.get("TX_MAX_ULPDU") == n
        driver.rx_mpa.add(bytes([n]) * 100)
        found = b""
        while len(found) < 100:
            octet, verdict = await line.take(driver.ulpdus)
            found += octet
            assert verdict is Verdict.STREAM
        assert found == bytes([n]) * 100
    await line.set("TX_STREAM_OCTETS", 1500)
    assert await line.take(driver.mpa) == octets
    driver.tx_ulpdu.add(b"too early")
    await line.set("CONTROL", reset=1)  # discards the packet
    await line.set("TX_STREAM_OCTETS", 5)
    driver.tx_ulpdu.add(b"fresh")
    assert await line.take(driver.mpa) == b"fresh"


@pytest.mark.parametrize("lanes", shortened("a width is no matter of the link", 1, [4, 1]))
def test_linked(lanes):
    simulate(functools.partial(LinkedDatapath, lanes, size=512), __name__, parameters={"lanes": lanes})
