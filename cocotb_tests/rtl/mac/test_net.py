"""A MAC and a network interface, joined by two connects: pings at line rate over GMII, made and checked by dpkt."""

import random
from functools import partial

import dpkt
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.cocotb_tests.harness import simulate
from open_rnic.cocotb_tests.rtl.mac.bench import Phy, good, mac_bench, sent_well
from open_rnic.cocotb_tests.rtl.net.bench import INTERFACE, MAC, OURS, PEER, PEER_MAC, REQUEST, arp, echo
from open_rnic.rtl.mac.layouts import RxOctets, TxOctets
from open_rnic.rtl.mac.mac import Mac
from open_rnic.rtl.net.net import Net


class MacAndNet(wiring.Component):
    """A :class:`.Mac` that runs, and a :class:`.Net`, which has the frames of a :class:`.NetworkPath`."""

    rx_octets: In(RxOctets())
    tx_octets: Out(TxOctets())

    def elaborate(self, platform):
        m = Module()
        m.submodules.mac = mac = Mac()
        m.submodules.net = net = Net()
        wiring.connect(m, wiring.flipped(self.rx_octets), mac.rx_octets)
        wiring.connect(m, mac.tx_octets, wiring.flipped(self.tx_octets))
        wiring.connect(m, mac.rx_frames, net.rx_frames)
        wiring.connect(m, net.tx_frames, mac.tx_frames)
        m.d.comb += [
            mac.enable.eq(1),
            net.mac.eq(int.from_bytes(MAC, "big")),
            net.address.eq(int(OURS)),
            net.prefix.eq(int(INTERFACE.netmask)),
        ]
        return m


@mac_bench()
async def pings_are_answered(dut):
    phy = Phy(dut)
    dut.rx_octets__valid.value = 0
    for _ in range(3):  # the first one may come before the MAC runs
        phy.source.send_nowait(good(arp(REQUEST, PEER_MAC, PEER, OURS).ljust(60, b"\0")))
    reply = dpkt.ethernet.Ethernet(sent_well(await phy.sink.recv()))
    assert (reply.dst, reply.src, reply.arp.spa) == (PEER_MAC, MAC, OURS.packed)
    for _ in range(20):
        payload = random.randbytes(random.choice([0, 1, 17, 18, 19, 56, 1000, 1472]))
        phy.source.send_nowait(good(echo(payload).ljust(60, b"\0")))
        while True:
            frame = dpkt.ethernet.Ethernet(sent_well(await phy.sink.recv()))
            if frame.type == dpkt.ethernet.ETH_TYPE_IP:
                break
        packet = frame.ip
        assert (frame.dst, packet.src, packet.dst) == (PEER_MAC, OURS.packed, PEER.packed)
        assert packet.icmp.type == dpkt.icmp.ICMP_ECHOREPLY
        assert packet.icmp.echo.data == payload
        fresh = dpkt.icmp.ICMP(type=0, data=dpkt.icmp.ICMP.Echo(id=1, seq=2, data=payload))
        assert bytes(fresh) == bytes(packet.icmp)  # with its checksum


def test_pings_are_answered():
    simulate(partial(MacAndNet), pings_are_answered, parameters={"core": 16, "rx_offset": 100})
