# amaranth: UnusedElaboratable=no
"""The MAC at the pins of PHYs: RGMII and MII against cocotbext-eth, RMII against a model of the tests."""

import itertools
import random
from functools import partial

import cocotb
import pytest
from cocotb.triggers import RisingEdge, Timer
from cocotb.utils import get_sim_time
from cocotbext.eth import MiiSink, MiiSource

from open_rnic.cocotb_tests.harness import parameter, simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.mac.bench import PERIODS, SCALE, Core, Rgmii, frames_pass_both_ways, good, mac_bench
from open_rnic.cocotb_tests.rtl.mac.pinned import pinned_mac
from open_rnic.cocotb_tests.rtl.mac.rmii import RmiiSink, RmiiSource
from open_rnic.host_driver.devices.sim.signals import start_clock
from open_rnic.rtl.mac.assembler import OctetAssembler
from open_rnic.rtl.mac.pins import pin
from open_rnic.rtl.mac.registers import Speed
from open_rnic.rtl.mac.rgmii import RgmiiDelays


async def bad_frames_are_discarded(core, phy, send):
    """One with RX_ER in any of its octets, one with a wrong bit, one that is too short; then a good one."""
    before = core.counts.copy()
    frames = [good(random.randbytes(60)) for _ in range(4)]
    frames[0].error = [0] * len(frames[0].data)
    frames[0].error[random.randrange(8, len(frames[0].data))] = 1
    frames[1].data[random.randrange(8, len(frames[1].data))] ^= 1 << random.randrange(8)
    del frames[2].data[random.randrange(8, 8 + 63) :]
    for frame in frames:
        send(frame)
    assert await core.receive() == bytes(frames[3].get_payload())
    await core.wait()
    expected = {"rx_error": 1, "rx_fcs": 1, "rx_runt": 1, "rx_frames": 1}
    assert +(core.counts - before) == expected


async def watch(clock, edges):
    """Note the times of the edges of a clock."""
    while True:
        await clock.value_change
        edges.append(get_sim_time("step"))


@mac_bench(10_000)
async def rgmii_works_at_all_speeds(dut):
    core, phy = Core(dut), Rgmii(dut)
    for speed in (Speed.MBIT_1000, Speed.MBIT_100, Speed.MBIT_10, Speed.MBIT_1000):
        phy.set_speed(speed, offset=random.choice([-4, 0, 4]))
        await core.begin()
        sizes = {Speed.MBIT_1000: [60, 61, 62, 63, 64, 65, 1514, 100], Speed.MBIT_100: [60, 61, 62, 63, 300]}
        await frames_pass_both_ways(core, phy, sizes.get(speed, [60, 61]))
        edges = []
        watching = cocotb.start_soon(watch(dut.tx_clk, edges))
        if speed != Speed.MBIT_10:
            await bad_frames_are_discarded(core, phy, phy.source.send_nowait)
        else:
            await Timer(5000 * SCALE, "step")
        watching.cancel()
        times = {after - before for before, after in itertools.pairwise(edges)}
        assert times == {PERIODS[speed] * SCALE // 2}, "TXC has another period"
        await core.end()
    assert core.counts["rx_no_room"] == core.counts["tx_dropped"] == 0


@mac_bench()
async def the_status_between_frames_is_seen(dut):
    core, phy = Core(dut), Rgmii(dut)
    phy.set_speed(Speed.MBIT_1000)
    await core.begin()
    for up, speed, full_duplex in ((1, Speed.MBIT_1000, 1), (0, Speed.MBIT_100, 0), (1, Speed.MBIT_10, 1)):
        await phy.report(up, speed, full_duplex)
        await core.wait()
        status = up | speed << 1 | full_duplex << 3
        assert dut.status.value.to_unsigned() == status
        for _ in range(200):  # during a frame, it stays
            await dut.rx_clk.value_change
            dut.rx_ctl.value, dut.rx_data.value = 1, random.randrange(16)
            assert dut.status.value.to_unsigned() == status
        dut.rx_ctl.value = 0


class Mii:
    """A PHY with MII."""

    def __init__(self, dut, speed):
        self.dut = dut
        for clock in (dut.rx_clk, dut.tx_clk):
            start_clock(clock, PERIODS[speed] * SCALE + 2 * random.randrange(5))
        self.source = MiiSource(dut.rx_data, dut.rx_er, dut.rx_dv, dut.rx_clk)
        self.source.ifg = 24
        self.sink = MiiSink(dut.tx_data, None, dut.tx_en, dut.tx_clk)

    async def send_nibbles(self, nibbles):
        """Send any number of nibbles."""
        for valid, nibble in [(1, each) for each in nibbles] + [(0, 0)] * 24:
            self.dut.rx_dv.value, self.dut.rx_data.value = valid, nibble
            await RisingEdge(self.dut.rx_clk)


@mac_bench(10_000)
async def mii_works(dut):
    speed = Speed(parameter("speed"))
    core, phy = Core(dut), Mii(dut, speed)
    await core.begin()
    await frames_pass_both_ways(core, phy, [60, 61, 62, 63, 64, 65, 1514, 100] if speed else [60, 61])
    await bad_frames_are_discarded(core, phy, phy.source.send_nowait)
    for skipped in range(16):  # a part of the preamble is missing, and there is a nibble too many at the end
        frame = good(random.randbytes(60))
        nibbles = [part for octet in frame.data for part in (octet & 15, octet >> 4)]
        await phy.send_nibbles(nibbles[min(skipped, 14) :] + [5] * (skipped % 2))
        assert await core.receive() == bytes(frame.get_payload())


class Rmii:
    """A PHY with RMII; both of its clocks are the reference clock."""

    def __init__(self, dut, speed):
        dut.speed.value = int(speed)
        slower = 1 if speed else 10
        self.source = RmiiSource(dut, slower)
        self.source.send_nowait = self.source.send
        self.sink = RmiiSink(dut, slower)


@mac_bench(10_000)
async def rmii_works(dut):
    speed = Speed(parameter("speed"))
    core, phy = Core(dut), Rmii(dut, speed)
    await core.begin()
    await core.wait()  # receive has seen a gap
    await frames_pass_both_ways(core, phy, [60, 61, 62, 63, 64, 65, 1514, 100] if speed else [60, 61])
    await bad_frames_are_discarded(core, phy, phy.source.send)
    for _ in range(20 if speed else 2):
        frame = random.randbytes(random.randrange(60, 70))
        phy.source.send(good(frame), gap=random.choice([1, 12]))
        assert await core.receive() == frame
    before = core.counts["rx_frames"]
    phy.source.send(good(b""), false_carrier=True)
    frame = random.randbytes(100)
    phy.source.send(good(frame))
    assert await core.receive() == frame
    await core.wait()
    assert core.counts["rx_frames"] == before + 1


def test_rgmii_works_at_all_speeds():
    simulate(partial(pinned_mac, "rgmii"), rgmii_works_at_all_speeds, parameters={"core": 16})


def test_the_status_between_frames_is_seen():
    simulate(partial(pinned_mac, "rgmii"), the_status_between_frames_is_seen, parameters={"core": 16})


@pytest.mark.parametrize("speed", [Speed.MBIT_10, Speed.MBIT_100], ids=lambda speed: speed.name)
@pytest.mark.parametrize(("kind", "bench"), shortened("no board has it", 1, [("mii", mii_works), ("rmii", rmii_works)]))
def test_other_phys_work(kind, bench, speed):
    clocks = {"core": 16, "rx": 20, "tx": 20}
    simulate(partial(pinned_mac, kind), bench, parameters={**clocks, "speed": int(speed)})


def test_wrong_parameters_are_rejected():
    with pytest.raises(ValueError, match="a delay is a multiple of 25 ps up to 3175 ps, not 2010"):
        RgmiiDelays(tx_clock=2010)
    with pytest.raises(ValueError, match="bits must be 2 or 4, not 8"):
        OctetAssembler(8)
    with pytest.raises(ValueError, match="the pins have no rx_clk"):
        pin(None, "rx_clk")
