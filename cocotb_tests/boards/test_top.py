# amaranth: UnusedElaboratable=no
"""A board's whole RNIC at the pins of its PHY, which is that of cocotbext-eth; dpkt makes the frames."""

import random
from dataclasses import replace
from functools import partial

import cocotb
import dpkt
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.boards import find
from open_rnic.boards.top import whole_rnic
from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.mac.bench import SCALE, Rgmii, good, mac_bench, sent_well
from open_rnic.cocotb_tests.rtl.mac.mdio import MdioPhys, Phy
from open_rnic.cocotb_tests.rtl.mac.pinned import pinned
from open_rnic.cocotb_tests.rtl.net.bench import INTERFACE, MAC, OURS, PEER, PEER_MAC, REQUEST, arp, echo, udp
from open_rnic.host_driver.devices.serial.frames import Request, response, unframe
from open_rnic.rtl.host_link.protocol import LINK_PORT, Ask
from open_rnic.rtl.mac.registers import BY_NAME, IDENTITY, Speed
from open_rnic.rtl.rnic.registers import IDENTITY as RNIC
from open_rnic.rtl.rnic.registers import MAC_PAGE, RNIC_PAGE
from open_rnic.rtl.tcp.config import Station

BOARD = find("colorlight_i5")
MILLISECOND = 2500  # cycles: a twentieth, to save simulated ones
ETHERNET = replace(BOARD.ethernet, settings=replace(BOARD.ethernet.settings, reset=2, wait=2))
STATION = Station(int.from_bytes(MAC, "big"), int(OURS), int(INTERFACE.netmask))


class Wire:
    """The PHY of the board, whose link is down, and the host at the other end of the cable."""

    def __init__(self, dut):
        self.dut = dut
        dut.rx.value = 1
        self.rgmii = Rgmii(dut)
        self.rgmii.set_speed(Speed.MBIT_1000)
        self.phy = Phy({0: 1 << 12, 4: 0x01E0, 5: 0x01E0, 9: 0x0300})
        # Only one of the two PHYs at this MDIO has a cable. MDC is faster, too.
        self.mdio = MdioPhys(dut, {0: Phy({0: 1 << 12}), 1: self.phy}, SCALE * 0.2)
        self.sent = 0  # cycles in which something was transmitted
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._tick())

    async def _tick(self):
        while True:
            self.dut.tick.value = 0
            await ClockCycles(self.dut.clk, MILLISECOND - 1)
            self.dut.tick.value = 1
            await RisingEdge(self.dut.clk)

    async def _watch(self):
        while True:
            await RisingEdge(self.dut.tx_clk)
            self.sent += bool(self.dut.tx_ctl.value)

    async def pass_time(self, milliseconds):
        await ClockCycles(self.dut.clk, milliseconds * MILLISECOND)

    async def ask(self, frame):
        """Send a frame to the board, and return the next frame from it."""
        self.rgmii.source.send_nowait(good(frame.ljust(60, b"\0")))
        return dpkt.ethernet.Ethernet(sent_well(await self.rgmii.sink.recv(), preamble=7))


@mac_bench(20_000)
async def a_board_is_silent_until_its_link_is_up_then_answers(dut):
    wire = Wire(dut)
    await RisingEdge(dut.clk)
    assert dut.phy_reset.value
    assert dut.tx.value == 1
    await wire.pass_time(8)
    assert not dut.phy_reset.value
    assert {address for address, _ in wire.mdio.reads} == {0, 1}
    request = arp(REQUEST, PEER_MAC, PEER, OURS)
    for frame in (request, echo(), udp(random.randbytes(20), port=LINK_PORT)):
        wire.rgmii.source.send_nowait(good(frame.ljust(60, b"\0")))
    await wire.pass_time(2)
    assert not wire.sent

    wire.phy[10] = 0x0800
    wire.phy[1] = wire.phy.status = 0x24
    await wire.pass_time(6)
    assert not wire.sent
    reply = await wire.ask(request)
    assert (reply.dst, reply.arp.sha, reply.arp.spa) == (PEER_MAC, MAC, OURS.packed)
    assert (await wire.ask(echo(b"x" * 100))).ip.icmp.echo.data == b"x" * 100

    reads = Request(1024)
    addresses = [RNIC_PAGE << 10, MAC_PAGE << 10, MAC_PAGE << 10 | BY_NAME["LINK"].address]
    for address in addresses:
        reads.read(address)
    answer = await wire.ask(udp(reads.encode(0, 0x12345678, Ask.OPEN), port=LINK_PORT))
    values = response(unframe(answer.ip.udp.data[:-1])).values
    assert values[:2] == [RNIC, IDENTITY]
    link = {field.name: field.get(values[2]) for field in BY_NAME["LINK"].fields}
    assert (link["up"], link["running"], link["speed"]) == (1, 1, Speed.MBIT_1000)


def board_at(adapter):
    return whole_rnic(ETHERNET, adapter, 16, STATION)


def test_a_board_is_silent_until_its_link_is_up_then_answers():
    board = partial(pinned, "rgmii", board_at)
    simulate(
        board, a_board_is_silent_until_its_link_is_up_then_answers, parameters={"core": 20},
        seconds=400,
    )  # fmt: skip
