# amaranth: UnusedElaboratable=no
"""An Ethernet port with RGMII: its registers, and frames while the link comes, goes and changes its speed."""

import random

import cocotb
import pytest
from cocotb.triggers import RisingEdge, Timer

from open_rnic.cocotb_tests.harness import Part, simulate
from open_rnic.cocotb_tests.rtl.mac.bench import (
    SCALE,
    Core,
    Registers,
    Rgmii,
    frames_pass_both_ways,
    good,
    mac_bench,
    sent_well,
)
from open_rnic.cocotb_tests.rtl.mac.mdio import MdioPhys, Phy
from open_rnic.cocotb_tests.rtl.mac.pinned import pinned_port
from open_rnic.rtl.mac.mii import MiiAdapter
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.port import EthernetPort
from open_rnic.rtl.mac.registers import IDENTITY, LinkSource, Speed

SETTINGS = PhySettings(address=1, writes=((0x1C, 0x8C00),), reset=1, wait=1)
TICK = 200  # us, in these simulations


class Port:
    """A port, the core's side, and the PHY, whose link is down."""

    def __init__(self, dut):
        self.dut = dut
        self.registers = Registers(dut)
        self.core = Core(dut)
        self.rgmii = Rgmii(dut)
        self.rgmii.set_speed(Speed.MBIT_1000)
        self.phy = Phy({0: 1 << 12, 1: 0, 4: 0x01E0, 5: 0x01E0, 9: 0x0300})
        self.mdio = MdioPhys(dut, {1: self.phy}, SCALE)
        cocotb.start_soon(self._tick())

    async def _tick(self):
        self.dut.tick.value = 0
        while True:
            await Timer(TICK * 1000 * SCALE, "step")
            await RisingEdge(self.dut.clk)
            self.dut.tick.value = 1
            await RisingEdge(self.dut.clk)
            self.dut.tick.value = 0

    def connect(self, speed):
        """Let the link come up with this speed."""
        self.rgmii.set_speed(speed)
        self.phy[5] = 0x01E0 if speed != Speed.MBIT_10 else 0x0060
        self.phy[10] = 0x0800 if speed == Speed.MBIT_1000 else 0
        self.phy[1] = self.phy.status = 0x24

    async def until(self, pause=20, **fields):
        """Wait until LINK, which is read after each pause of so many cycles, has these fields."""
        while (link := await self.registers.read("LINK")) | fields != link:
            await self.core.wait(pause)
        return link


@mac_bench(20_000)
async def frames_pass_while_the_link_is_up(dut):
    port = Port(dut)
    core, registers = port.core, port.registers
    assert (await registers.read("IDENTITY"))["value"] == IDENTITY
    assert await registers.read("CAPABILITIES") == {"rx_queue": 11, "tx_queue": 11, "phy": 1, "in_band": 1}
    assert (await registers.read("CONTROL"))["source"] == LinkSource.MDIO
    assert dut.phy_reset.value
    await port.until(phy_answers=1)
    assert port.mdio.writes == [(1, 0x1C, 0x8C00)]
    core.send(random.randbytes(100))
    await core.source.drained()
    passed = 0
    for speed in (Speed.MBIT_1000, Speed.MBIT_100, Speed.MBIT_1000):
        port.connect(speed)
        link = await port.until(running=1, speed=speed, changed=1)
        assert link == {"up": 1, "speed": speed, "full_duplex": 1, "running": 1, "phy_answers": 1, "changed": 1}
        assert dut.irq.value
        await registers.write("LINK", changed=1)
        assert not (await registers.read("LINK"))["changed"]
        assert not dut.irq.value
        await frames_pass_both_ways(core, port.rgmii, [60, 61, 300])
        passed += 3
        if speed == Speed.MBIT_100:
            continue  # the next speed is known without a loss of the link
        port.phy.lose_link(for_good=True)
        await port.until(running=0, up=0, changed=1)
        await registers.write("LINK", changed=1)
    await registers.counted(rx_frames=passed, tx_frames=passed, tx_dropped=1)
    port.connect(Speed.MBIT_1000)
    await port.until(running=1)
    await registers.write("CONTROL", enable=0)
    await port.until(running=0, up=1)
    await registers.write("CONTROL", enable=1)
    await port.until(running=1)
    await frames_pass_both_ways(core, port.rgmii, [100])


@mac_bench(20_000)
async def the_state_of_the_link_has_other_sources(dut):
    port = Port(dut)
    registers = port.registers
    assert (await registers.read("CONTROL"))["source"] == LinkSource.IN_BAND
    for speed in (Speed.MBIT_1000, Speed.MBIT_100):
        port.rgmii.set_speed(speed)
        await port.rgmii.report(1, speed, 1)
        await port.until(running=1, up=1, speed=speed)
        assert await registers.read("IN_BAND") == {"up": 1, "speed": speed, "full_duplex": 1}
        await port.rgmii.report(0, speed, 1)
        await port.until(running=0, up=0)
    await registers.write("CONTROL", enable=1, source=LinkSource.FIXED, speed=Speed.MBIT_100)
    await port.until(running=1, up=1, speed=Speed.MBIT_100)
    await frames_pass_both_ways(port.core, port.rgmii, [60, 100])
    await registers.write("CONTROL", enable=1, source=LinkSource.MDIO)
    await port.until(running=0, up=0)


@mac_bench(20_000)
async def the_host_reaches_the_phy(dut):
    port = Port(dut)
    registers = port.registers
    await port.until(phy_answers=1)

    async def access(**fields):
        await registers.write("PHY_ACCESS", go=1, **fields)
        while (await registers.read("PHY_ACCESS"))["pending"]:
            pass
        return await registers.read("PHY_RESULT")

    await access(phy=1, register=20, data=0x1234, write=1)
    assert port.phy[20] == 0x1234
    assert await access(phy=1, register=20) == {"data": 0x1234, "answered": 1}
    assert (await access(phy=2, register=20))["answered"] == 0
    port.mdio.writes.clear()
    port.connect(Speed.MBIT_1000)
    await port.until(running=1)
    await registers.write("CONTROL", enable=1, restart_phy=1)
    await port.until(phy_answers=0, running=0)
    await port.until(phy_answers=1)
    assert port.mdio.writes == [(1, 0x1C, 0x8C00)]
    await port.until(running=1)
    await frames_pass_both_ways(port.core, port.rgmii, [60])


@mac_bench(40_000)
async def the_mode_of_the_link_is_followed(dut):
    """10 and 100 Mb/s, a peer of half duplex, and a cable that is pulled while frames pass and comes back."""
    port = Port(dut)
    await port.until(phy_answers=1)
    passed = 0
    for speed in (Speed.MBIT_10, Speed.MBIT_100, Speed.MBIT_1000):
        port.connect(speed)
        await port.until(pause=1, running=1, up=1, speed=speed, full_duplex=1)  # never in the cycles before it stops
        await frames_pass_both_ways(port.core, port.rgmii, [60, 64])
        passed += 2
    port.rgmii.set_speed(Speed.MBIT_100)
    port.phy[5], port.phy[10] = 0x00A0, 0  # the peer has half duplex alone
    await port.until(running=1, up=1, speed=Speed.MBIT_100, full_duplex=0)
    await frames_pass_both_ways(port.core, port.rgmii, [60])  # the MAC neither sees nor makes collisions
    passed += 1
    for _ in range(3):
        port.connect(Speed.MBIT_1000)
        await port.until(running=1, up=1, speed=Speed.MBIT_1000)
        for _ in range(20):
            port.rgmii.source.send_nowait(good(random.randbytes(300)))
            port.core.send(random.randbytes(300))
        await port.core.wait(random.randrange(200, 2000))
        port.phy.lose_link(for_good=True)
        await port.until(running=0, up=0)
        await port.rgmii.source.wait()
        await port.core.source.drained()
        await port.core.wait(200)
        port.core.sink.restart()
        while not port.rgmii.sink.empty():
            port.rgmii.sink.recv_nowait()
    port.connect(Speed.MBIT_1000)
    await port.until(running=1, up=1)
    await frames_pass_both_ways(port.core, port.rgmii, [60, 300])


@mac_bench(20_000)
async def a_status_in_band_that_lies_does_no_harm_beside_mdio(dut):
    port = Port(dut)
    port.connect(Speed.MBIT_1000)
    for up, speed in ((0, Speed.MBIT_1000), (1, Speed.MBIT_10), (1, Speed.MBIT_100)):
        await port.rgmii.report(up, speed, 0)
        link = await port.until(running=1)
        assert (link["up"], link["speed"], link["full_duplex"]) == (1, Speed.MBIT_1000, 1)
        await port.core.wait(100)
        assert await port.registers.read("IN_BAND") == {"up": up, "speed": speed, "full_duplex": 0}
        await frames_pass_both_ways(port.core, port.rgmii, [60])


@mac_bench(20_000)
async def low_power_idle_of_the_other_end_is_no_frame_no_error_and_no_state(dut):
    """A PHY that agrees on EEE by itself reports it between frames."""
    port = Port(dut)
    port.connect(Speed.MBIT_1000)
    await port.until(running=1)
    for passed in range(3):
        await port.rgmii.report(1, Speed.MBIT_1000, 1)
        await port.core.wait(100)
        idle = cocotb.start_soon(port.rgmii.idle_at_low_power(1000))
        await port.core.wait(200)
        assert await port.registers.read("IN_BAND") == {"up": 1, "speed": Speed.MBIT_1000, "full_duplex": 1}
        await idle
        await port.registers.counted(rx_frames=passed, tx_frames=passed)
        await frames_pass_both_ways(port.core, port.rgmii, [60])


@mac_bench(20_000)
async def a_status_in_band_that_lies_costs_frames_until_it_is_right(dut):
    port = Port(dut)
    port.rgmii.set_speed(Speed.MBIT_1000)
    await port.rgmii.report(1, Speed.MBIT_100, 1)
    await port.until(running=1, up=1, speed=Speed.MBIT_100)
    for _ in range(5):
        port.rgmii.source.send_nowait(good(random.randbytes(100)))
    await port.rgmii.source.wait()
    await port.core.wait(500)
    assert port.core.sink.empty()
    await port.rgmii.report(1, Speed.MBIT_1000, 1)
    await port.until(running=1, up=1, speed=Speed.MBIT_1000)
    frame = random.randbytes(300)  # behind one from the PHY, the model of the PHY reports that the link is down
    port.core.send(frame)
    assert sent_well(await port.rgmii.sink.recv(), preamble=7) == frame


@mac_bench(20_000)
async def a_reset_of_the_core_cuts_frames_and_harms_none_behind(dut):
    """The domains of the PHY's clocks are not reset with it: each is by the MAC, before frames pass again."""
    port = Port(dut)
    for _ in range(5):
        port.connect(Speed.MBIT_1000)
        await port.until(running=1, speed=Speed.MBIT_1000)
        for _ in range(20):
            port.rgmii.source.send_nowait(good(random.randbytes(300)))
            port.core.send(random.randbytes(300))
        await port.core.wait(random.randrange(200, 2000))
        dut.rst.value = 1
        await port.core.wait(random.randrange(1, 20))
        dut.rst.value = 0
        await RisingEdge(dut.clk)
        port.mdio.reset()  # by the pin
        assert dut.phy_reset.value
        port.core.sink.restart()
        await port.rgmii.source.wait()
        await port.core.source.drained()
        await port.until(running=1)
        await port.core.wait(500)
        while not port.rgmii.sink.empty():
            port.rgmii.sink.recv_nowait()
        while not port.core.sink.empty():
            assert len((await port.core.sink.receive()).octets) == 2 + 300
        await frames_pass_both_ways(port.core, port.rgmii, [60, 61, 300])


SOURCES = (LinkSource.MDIO, LinkSource.IN_BAND)


def port(source):
    return pinned_port("rgmii", 62_500_000, SETTINGS, source=source)


def run(test, source=LinkSource.MDIO):
    simulate(Part(port, source, SOURCES), test, parameters={"core": 16})


@pytest.mark.parametrize("test", [
    frames_pass_while_the_link_is_up, the_host_reaches_the_phy, the_mode_of_the_link_is_followed,
    a_status_in_band_that_lies_does_no_harm_beside_mdio,
    low_power_idle_of_the_other_end_is_no_frame_no_error_and_no_state,
    a_reset_of_the_core_cuts_frames_and_harms_none_behind,
])  # fmt: skip
def test_port(test):
    run(test)


@pytest.mark.parametrize("test", [
    the_state_of_the_link_has_other_sources, a_status_in_band_that_lies_costs_frames_until_it_is_right,
])  # fmt: skip
def test_the_link_has_other_sources(test):
    run(test, LinkSource.IN_BAND)


def test_a_source_that_the_interface_does_not_have_is_rejected():
    with pytest.raises(ValueError, match="MiiAdapter has no status in band: source must not be IN_BAND"):
        EthernetPort(MiiAdapter(None), 62_500_000, SETTINGS, source=LinkSource.IN_BAND)
