"""A network interface of the RTL in a simulation, and frames for it; dpkt makes the frames, not this project."""

import random
from ipaddress import IPv4Address, IPv4Interface
from itertools import repeat

import cocotb
import dpkt
from cocotb.triggers import ClockCycles, FallingEdge, First, RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source
from open_rnic.host_driver.devices.sim.signals import level
from open_rnic.host_driver.net.checksum import checksum, pseudo_header
from open_rnic.host_driver.net.frames import FrameError
from open_rnic.host_driver.net.host import Host

MAC, PEER_MAC, OTHER_MAC = (bytes((2, 0, 0, 0, 0, last)) for last in (1, 2, 3))
BROADCAST_MAC = b"\xff" * 6
INTERFACE = IPv4Interface("10.9.0.1/24")
OURS, PEER, OTHER, GATEWAY, FAR = map(IPv4Address, ("10.9.0.1", "10.9.0.2", "10.9.0.3", "10.9.0.254", "192.0.2.1"))
NONE, BROADCAST, LIMITED = map(IPv4Address, ("0.0.0.0", "10.9.0.255", "255.255.255.255"))
PORT = 7
FASTER = 64  # times, to save simulated cycles
REQUEST, REPLY = dpkt.arp.ARP_OP_REQUEST, dpkt.arp.ARP_OP_REPLY
TCP, UDP, ICMP = dpkt.ip.IP_PROTO_TCP, dpkt.ip.IP_PROTO_UDP, dpkt.ip.IP_PROTO_ICMP
LEAST_OCTETS = 60
COUNTS = ("no_room", "checksum", "ignored")


def ethernet(data, kind, destination=MAC, source=PEER_MAC):
    """Return a frame."""
    # Not of dpkt, which takes random octets for a packet of their EtherType, and fails at some.
    return destination + source + kind.to_bytes(2, "big") + bytes(data)


def arp(operation, sender_mac, sender, target, target_mac=bytes(6), destination=BROADCAST_MAC):
    """Return a frame with an ARP packet."""
    fields = {"sha": sender_mac, "spa": sender.packed, "tha": target_mac, "tpa": target.packed}
    return ethernet(dpkt.arp.ARP(op=operation, **fields), 0x0806, destination, sender_mac)


def ipv4(data, protocol, source=PEER, destination=OURS, to=MAC, options=b"", **fields):
    """Return a frame with an IPv4 packet."""
    packet = dpkt.ip.IP(
        src=source.packed, dst=destination.packed, p=protocol, data=data, opts=options, hl=5 + len(options) // 4,
        len=20 + len(options) + len(bytes(data)), **fields,
    )  # fmt: skip
    return ethernet(packet, 0x0800, to)


def tcp(payload=b"payload", tcp_options=b"", **addresses):
    """Return a frame with a TCP segment."""
    segment = dpkt.tcp.TCP(
        sport=random.getrandbits(16), dport=random.getrandbits(16), seq=random.getrandbits(32), data=payload,
        opts=tcp_options, off=5 + len(tcp_options) // 4, flags=random.getrandbits(8),
    )  # fmt: skip
    return ipv4(segment, TCP, **addresses)


def udp(payload=b"payload", port=PORT, source_port=5000, **addresses):
    """Return a frame with a UDP datagram."""
    return ipv4(dpkt.udp.UDP(sport=source_port, dport=port, ulen=8 + len(payload), data=payload), UDP, **addresses)


def echo(payload=b"payload", kind=dpkt.icmp.ICMP_ECHO, **addresses):
    """Return a frame with an ICMP echo message."""
    message = dpkt.icmp.ICMP(type=kind, data=dpkt.icmp.ICMP.Echo(id=1, seq=2, data=payload))
    return ipv4(message, ICMP, **addresses)


class Twin:
    """The host in Python, and everything that it delivers."""

    def __init__(self, gateway=None):
        self.host = Host(MAC, INTERFACE, gateway)
        self.segments = []
        self.datagrams = []
        self.host.handlers[TCP] = self._segment
        self.host.udp[PORT] = lambda source, port, payload, now: self.datagrams.append((source, port, payload))

    def _segment(self, packet, now):
        octets = packet.payload
        if checksum(pseudo_header(packet.source, packet.destination, TCP, len(octets)), octets):
            raise FrameError("the checksum of a TCP segment is wrong")
        if len(octets) < 20 or not 20 <= 4 * (octets[12] >> 4) <= len(octets):
            raise FrameError("the data offset of a TCP segment is wrong")
        self.segments.append((packet.source, octets))

    def receive(self, frame, now=0.0):
        """Take a frame; return the frames that are sent for it, padded."""
        self.host.receive(frame, now)
        frames = [each.ljust(LEAST_OCTETS, b"\0") for each in self.host.frames]
        self.host.frames.clear()
        return frames


class Interface:
    """The ports of a ``Net``. ``idle`` and the stalls are those of ``Source`` and ``Sink``."""

    def __init__(self, dut, idle=None, gateway=NONE, **backpressure):
        self.dut = dut
        dut.mac.value = int.from_bytes(MAC, "big")
        dut.address.value = int(OURS)
        dut.prefix.value = int(INTERFACE.netmask)
        dut.gateway.value = int(gateway)
        dut.tick.value = 0
        for name in ("begin", "valid", "cancel", "finish"):
            getattr(dut, f"cut_through__{name}").value = 0
        self.frames = Source(dut, "rx_frames", idle)
        self.tcp_tx, self.udp_tx = Source(dut, "tcp_tx"), Source(dut, "udp_tx")
        self.sinks = {
            name: Sink(dut, name, backpressure.get(name, repeat(0))) for name in ("tx_frames", "tcp_rx", "udp_rx")
        }
        self.counts = dict.fromkeys(COUNTS, 0)
        self.conflicts = 0
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._stay_ready())

    async def _watch(self):
        dut = self.dut
        edge = RisingEdge(dut.clk)
        events = First(dut.counts.value_change, RisingEdge(dut.conflict))
        while True:
            await edge
            counts, conflict = level(dut.counts), level(dut.conflict)
            assert counts.bit_count() <= 1
            if counts:
                self.counts[COUNTS[counts.bit_length() - 1]] += 1
            self.conflicts += conflict
            if not (counts or conflict):
                await events

    async def _stay_ready(self):
        """The interface takes a beat of a frame in each cycle."""
        ready, edge = self.dut.rx_frames__ready, RisingEdge(self.dut.clk)
        while True:
            await edge
            assert level(ready)
            await FallingEdge(ready)

    def give(self, *frames, bad=0):
        """Send frames to the interface."""
        for frame in frames:
            self.frames.send(random.randbytes(2) + frame, bad=bad)

    async def taken(self, cycles=60):
        """Wait until all frames have arrived and been processed."""
        await self.frames.drained()
        await self.wait(cycles)

    async def wait(self, cycles):
        """Wait for a number of cycles."""
        if cycles:
            await ClockCycles(self.dut.clk, cycles)

    async def pass_time(self, milliseconds):
        """Let time pass: a tick in every cycle, each for FASTER milliseconds."""
        self.dut.tick.value = 1
        await self.wait(milliseconds // FASTER)
        self.dut.tick.value = 0

    async def sent(self):
        """Wait for a frame from the interface."""
        octets = (await self.sinks["tx_frames"].receive()).octets
        assert octets[:2] == b"\0\0"
        return octets[2:]

    async def segment(self):
        """Wait for a segment; return its source and octets."""
        octets, fields = await self.sinks["tcp_rx"].receive()
        assert fields["length"] == len(octets)
        return IPv4Address(fields["source"]), octets

    async def datagram(self):
        """Wait for a datagram; return its source, source port and payload."""
        octets, fields = await self.sinks["udp_rx"].receive()
        assert (fields["length"], fields["destination_port"]) == (len(octets), PORT)
        return IPv4Address(fields["source"]), fields["source_port"], octets

    def send_segment(self, octets, destination=PEER):
        """Give the interface a segment to send; its checksum must be 0."""
        self.tcp_tx.send(octets, destination=int(destination), length=len(octets))

    async def store(self, payload, destination=PEER, idle=0.2):
        """Put a packet into a frame, beat by beat, before its headers."""
        dut = self.dut
        while not dut.cut_through__accepts.value:
            await RisingEdge(dut.clk)
        dut.cut_through__destination.value, dut.cut_through__begin.value = int(destination), 1
        await RisingEdge(dut.clk)
        dut.cut_through__begin.value = 0
        await self.wait(2)
        for at in range(0, len(payload), 4):
            while random.random() < idle:
                await RisingEdge(dut.clk)
            octets = payload[at : at + 4]
            beat = int.from_bytes(octets + random.randbytes(4 - len(octets)), "little")
            dut.cut_through__beat.value = beat | len(octets) << 32 | (at + 4 >= len(payload)) << 35
            dut.cut_through__valid.value = 1
            await RisingEdge(dut.clk)
            dut.cut_through__valid.value = 0

    async def stored(self):
        """Wait until the sender has looked up the next hop; return whether the packet may be sent."""
        await self.wait(30)
        return bool(self.dut.cut_through__collected.value)

    async def finish(self, octets):
        """Send the segment whose payload has been stored."""
        self.dut.cut_through__length.value, self.dut.cut_through__finish.value = len(octets), 1
        await RisingEdge(self.dut.clk)
        self.dut.cut_through__finish.value = 0
        await self.wait(random.randrange(20))
        self.tcp_tx.send(octets[:20], destination=0, length=0)

    async def cancel(self):
        """The packet is not to be sent."""
        self.dut.cut_through__cancel.value = 1
        await RisingEdge(self.dut.clk)
        self.dut.cut_through__cancel.value = 0

    def send_datagram(self, payload, destination=PEER, port=5000):
        """Give the interface the payload of a datagram to send from PORT."""
        fields = {"destination": int(destination), "source_port": PORT, "destination_port": port}
        self.udp_tx.send(payload, length=len(payload), **fields)

    def silent(self):
        """Whether nothing has been delivered that was not taken."""
        return all(sink.empty() for sink in self.sinks.values())

    async def introduce(self, twin=None, address=PEER, mac=PEER_MAC):
        """Let a neighbour ask for the interface's address, and check the reply."""
        question = arp(REQUEST, mac, address, OURS)
        replies = (twin or Twin()).receive(question)
        self.give(question)
        assert [await self.sent()] == replies
