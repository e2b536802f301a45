"""In the simulation of a network path: one end of random traffic of the twin with itself, shadowed by the RTL."""

from collections import deque
from ipaddress import IPv4Address

from cocotb.task import bridge, resume

from open_rnic.cocotb_tests.harness import parameter
from open_rnic.cocotb_tests.rtl.tcp.shadow import HERE, THERE, Shadow
from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.dut import Clock, start
from open_rnic.host_driver.devices.sim.ring_ends import Drain, Feed
from open_rnic.host_driver.net.frames import Arp, ArpOperation, Ethernet, EtherType, Ipv4
from open_rnic.host_driver.tcp.segment import PROTOCOL, Segment
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import PIECE, Command

CONNECTIONS, RING = 4, 8192
MAC, PEER_MAC = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
SLICE = 100  # cycles between two looks


class Path:
    """The path in the simulation, and one connection of it at a time, as :class:`.Programmed`.

    Nothing will happen any more after ``quiet`` cycles without a change.
    """

    def __init__(self, dut, quiet):
        self.quiet = quiet
        self.clock = Clock(dut, layout.path(CONNECTIONS))
        self.control = self.clock.control
        self.control.update(mac=int.from_bytes(MAC, "big"), address=int(HERE), prefix=0xFFFF_FF00)
        self.frames, self.to_send = Feed(self.clock, "rx_frames"), Feed(self.clock, "to_send")
        self.sent, self.received = Drain(self.clock, "tx_frames"), Drain(self.clock, "received")
        self.connection = -1
        self.segments = deque()
        self.octets = b""
        self.time = self.now = 0  # what the shadow takes for the time; the RTL counts on

    def begin(self, config, local_port, iss):
        """Use the next connection, as a Shadow expects it of Programmed."""
        self.connection = (self.connection + 1) % CONNECTIONS
        self.local_port, self.iss = local_port, iss
        return self

    async def settle(self):
        """Let the time come, and the RTL finish."""
        self.control["ticks"] = (self.control["ticks"] + max(0, self.now - self.time)) % (1 << 16)
        self.time = max(self.time, self.now)
        last, quiet = None, 0
        while quiet < self.quiet:
            await self.clock.step(SLICE)
            status = self.clock.status
            self.frames.move()
            self.to_send.move()
            for _, octets in self.sent.packets():
                self.take_frame(octets[2:])
            for _, octets in self.received.packets():
                self.take_octets(octets)
            quiet = quiet + SLICE if status == last and status["ticks"] == self.control["ticks"] else 0
            last = status

    def take_frame(self, octets):
        frame = Ethernet.decode(octets)
        if frame.ethertype == EtherType.IPV4:
            packet = Ipv4.decode(frame.payload)
            assert (frame.destination, frame.source, packet.source) == (PEER_MAC, MAC, HERE)
            Segment.decode(packet.payload, packet.source, packet.destination)  # checks the checksum
            self.segments.append((int(packet.destination), packet.payload))
        elif (arp := Arp.decode(frame.payload)).operation is ArpOperation.REQUEST and arp.target == THERE:
            self.give(EtherType.ARP, Arp(ArpOperation.REPLY, PEER_MAC, THERE, MAC, HERE).encode())

    def take_octets(self, octets):
        self.octets += octets

    def introduce(self):
        """Let the path learn the peer's MAC."""
        request = Arp(ArpOperation.REQUEST, PEER_MAC, THERE, bytes(6), HERE)
        self.give(EtherType.ARP, request.encode(), b"\xff" * 6)
        resume(self.settle)()

    def give(self, ethertype, payload, destination=MAC):
        frame = Ethernet(destination, PEER_MAC, ethertype, payload).encode().ljust(60, b"\0")
        self.frames.add_packet(bytes(2) + frame)

    # As Programmed

    def come(self, now):
        """Let the time come, before anything else happens."""
        self.now = now
        if now != self.time:
            resume(self.settle)()

    def command(self, command, address=0, remote_port=0, iss=None):
        self.come(self.now)
        self.control.update(
            kind=command, connection=self.connection, ports=self.local_port << 16 | remote_port, peer=address,
            iss=self.iss if iss is None else iss, turn=self.control["turn"] ^ 1,
        )  # fmt: skip
        resume(self.settle)()

    def receive(self, source, given, now):
        self.come(now)
        packet = Ipv4(IPv4Address(source), HERE, PROTOCOL, given.encode(IPv4Address(source), HERE))
        self.give(EtherType.IPV4, packet.encode())
        resume(self.settle)()

    def most_to_send(self, room):
        return max(0, room - 8)  # the ring's last words are left empty

    def send(self, octets, now):
        self.come(now)
        if octets:
            self.to_send.add_packet(octets, self.connection)
            resume(self.settle)()
        return len(octets)

    def pieces(self, rng, available):
        return [min(PIECE, available - at) for at in range(0, available, PIECE)]

    def take(self, pieces, now):
        self.come(now)
        self.octets = b""
        self.control["accept"] = 1 << self.connection
        resume(self.settle)()
        self.control["accept"] = 0
        resume(self.settle)()
        return self.octets

    def tick(self, now):
        self.come(now)


async def shadow_the_twin(dut):
    """Run the traffic."""
    await start(dut)
    path = Path(dut, parameter("quiet"))

    def play():
        path.introduce()
        steps, seed = 0, parameter("seed")
        while steps < parameter("steps"):
            shadow = Shadow(seed, path.begin, EngineConfig(send_ring=RING, receive_ring=RING), 536)
            path.time = path.now = shadow.now
            steps += shadow.run(parameter("steps") - steps)
            path.command(Command.ABORT)
            path.segments.clear()
            seed += 1000

    await bridge(play)()
