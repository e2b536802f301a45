"""Random two-way traffic of the twin with itself, in which the program shadows one end, event by event."""

import heapq
import random
from dataclasses import replace
from ipaddress import IPv4Address

from open_rnic.cocotb_tests.rtl.tcp.programmed import Programmed
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.net.checksum import checksum, pseudo_header
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import Flag, Segment
from open_rnic.host_driver.tcp.states import State
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.words import Command

HERE, THERE = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2")
PORT, PEER_PORT = 7000, 8000


def twin_config(config: EngineConfig) -> TcpConfig:
    """The twin's parameters that make it the equal of the program."""
    return TcpConfig(
        mss=config.mss, send_ring=config.send_ring, receive_ring=config.receive_ring, packets=32, ranges=4,
        sack_sending=False, timestamps=False, scaling=False, delayed_ack=config.delayed_ack,
        initial_rto=config.initial_rto, shortest_rto=config.shortest_rto, longest_rto=config.longest_rto,
        give_up=config.give_up, syn_tries=config.syn_tries, time_wait=config.time_wait,
        initial_window=config.initial_window, challenges=config.challenges,
    )  # fmt: skip


class Shadow:
    """A connection of two twins. All that happens to one end happens to the program, too; their segments are compared.

    ``steps`` counts the events of that end.
    """

    def __init__(self, seed: int, shadow=Programmed, config: EngineConfig | None = None, smallest_mss: int = 64):
        self.rng = rng = random.Random(seed)
        ring = rng.choice([2048, 4096, 8192, 16384])
        self.config = config or EngineConfig(
            mss=rng.choice([100, 536, 1460]), send_ring=ring, receive_ring=rng.choice([2048, ring]),
            give_up=rng.choice([20_000, 900_000]),
        )  # fmt: skip
        iss, peer_iss = rng.choice([0, 0xFFFF_F000, 0x7FFF_F000, rng.getrandbits(32)]), rng.getrandbits(32)
        twin = twin_config(self.config)
        peer = replace(
            twin, sack_sending=rng.random() < 0.5, sack=rng.random() < 0.8, timestamps=rng.random() < 0.3,
            scaling=rng.random() < 0.3, ranges=rng.choice([1, 4, 30]), receive_ring=rng.choice([1, 500, 4096, 1 << 18]),
            mss=rng.choice([smallest_mss, 536, 1460]),
        )  # fmt: skip
        self.twin = Endpoint(HERE, twin, iss=lambda *_: iss)
        self.peer = Endpoint(THERE, peer, iss=lambda *_: peer_iss)
        self.shadow = shadow(self.config, PORT, iss)
        self.now = rng.randrange(10_000)
        self.shadow.now = self.now
        self.loss, self.doubling, self.lateness, self.mutation = (
            rng.choice([0, 0, 0.01, 0.05, 0.2]), rng.choice([0, 0.02]), rng.choice([0, 0.05]), rng.choice([0, 0, 0.02])
        )  # fmt: skip
        self.delay = rng.choice([1, 10, 100])
        self.flying: list = []
        self.order = 0
        self.steps = 0
        self.early = b""  # the peer's first octets, if its SYNs may have some
        self.mine = self.other = None

    def run(self, most: int) -> int:
        """Open, transfer, close; return the number of events."""
        rng = self.rng
        passive = rng.random() < 0.5
        if passive:
            self.twin.listen(PORT)
            self.shadow.command(Command.LISTEN_AT)
            self.other = self.peer.open(HERE, PORT, self.now, PEER_PORT)
        else:
            if rng.random() < 0.8:
                self.peer.listen(PEER_PORT)
            else:
                self.other = self.peer.open(HERE, PORT, self.now, PEER_PORT)  # at the same time
                self.early = rng.randbytes(rng.choice([0, 10, 500]))
                self.peer.send(self.other, self.early, self.now)
            self.mine = self.twin.open(THERE, PEER_PORT, self.now, PORT)
            self.shadow.command(Command.OPEN, int(THERE), PEER_PORT)
            self.compare("open")
        while self.steps < most and not self.finished:
            self.step()
        return self.steps

    @property
    def finished(self):
        return self.mine is not None and self.mine.state is State.CLOSED

    def compare(self, event: str) -> None:
        self.steps += 1
        expected = [self.twin.segments.popleft() for _ in range(len(self.twin.segments))]
        sent = [self.shadow.segments.popleft() for _ in range(len(self.shadow.segments))]
        wanted = [(int(to), each) for to, each in expected]
        got = [(to, decode(octets, to)) for to, octets in sent]
        both = f"program {show(got)}\ntwin    {show(wanted)}"
        assert got == wanted, f"step {self.steps}, {event}, at {self.now} ms:\n{both}"
        for to, each in expected:
            self.fly(HERE, to, each)

    def fly(self, source, destination, segment):
        rng = self.rng
        for _ in range(1 + (rng.random() < self.doubling)):
            if rng.random() < self.loss:
                continue
            late = rng.randrange(3 * self.delay) if rng.random() < self.lateness else 0
            if rng.random() < self.mutation and destination == HERE:
                segment = mutated(segment, rng)
            if segment.flags & Flag.SYN and destination == HERE and self.early:
                segment = replace(segment, payload=self.early[: rng.randrange(len(self.early))])
            self.order += 1
            heapq.heappush(self.flying, (self.now + self.delay + late, self.order, source, destination, segment))

    def from_peer(self):
        while self.peer.segments:
            destination, segment = self.peer.segments.popleft()
            self.fly(THERE, destination, segment)

    def step(self):
        """Let something happen."""
        self.from_peer()
        self.find_ends()
        rng = self.rng
        if rng.random() < 0.4:
            self.user()
        times = [self.now + rng.choice([0, 1, 50, 3000]), *(each[0] for each in self.flying[:1])]
        times += [each.deadline for each in (self.twin, self.peer) if each.deadline is not None]
        self.now = max(self.now, min(times))
        if self.twin.deadline is not None and self.twin.deadline <= self.now:
            self.twin.tick(self.now)
            self.shadow.tick(self.now)
            self.compare("tick")
        elif rng.random() < 0.1:
            self.shadow.tick(self.now)  # no timer is due
            self.compare("idle tick")
        self.peer.tick(self.now)
        if self.flying and self.flying[0][0] <= self.now:
            _, _, source, destination, segment = heapq.heappop(self.flying)
            if destination == THERE:
                self.peer.receive(source, segment, self.now)
            else:
                self.twin.receive(source, segment, self.now)
                self.shadow.receive(int(source), segment, self.now)
                self.find_ends()
                self.compare(f"segment {show([(0, segment)])}")

    def find_ends(self):
        for endpoint, name in ((self.twin, "mine"), (self.peer, "other")):
            if getattr(self, name) is None and endpoint.connections:
                setattr(self, name, next(iter(endpoint.connections.values())))

    def user(self):
        """The users of both ends write, read, close, and rarely abort."""
        rng, mine, other = self.rng, self.mine, self.other
        writable = (State.ESTABLISHED, State.CLOSE_WAIT)
        if other and other.state in writable and not other.sender.closing:
            if rng.random() < 0.001:
                self.peer.close(other, self.now)
            else:
                self.peer.send(other, rng.randbytes(rng.choice([1, 10, 500, 3000, 10_000])), self.now)
        if other and rng.random() < 0.5:
            self.peer.take(other, rng.choice([1, 1000, 100_000]), self.now)
        if not mine:
            return
        if mine.state.synchronized and rng.random() < 0.005:
            times = KeepAlive(rng.choice([1, 3, 60]), rng.choice([1, 2, 20]), rng.choice([1, 3]))
            self.twin.keep_alive(mine, times, self.now)
            self.shadow.now = self.now
            self.shadow.command(Command.KEEP_ALIVE, times.idle * 1000, times.probes, times.interval * 1000)
            self.compare("keep-alive")
        if mine.state in writable and not mine.sender.closing:
            choice = rng.random()
            if choice < 0.001:
                self.twin.close(mine, self.now)
                self.shadow.now = self.now
                self.shadow.command(Command.CLOSE)
                self.compare("close")
            elif choice < 0.0012:
                self.twin.abort(mine)
                self.shadow.now = self.now
                self.shadow.command(Command.ABORT)
                self.compare("abort")
            elif choice < 0.7:
                octets = rng.randbytes(rng.choice([1, 10, 100, 700, 2000, 9000]))
                octets = octets[: self.shadow.most_to_send(mine.sender.room)]
                assert self.twin.send(mine, octets, self.now) == self.shadow.send(octets, self.now)
                self.compare("send")
        if rng.random() < 0.5 and mine.receiver.available:
            pieces = self.shadow.pieces(rng, mine.receiver.available)
            octets = b"".join([self.twin.take(mine, most, self.now) for most in pieces])
            assert octets == self.shadow.take(pieces, self.now), "other octets were received"
            self.compare("take")


def decode(octets: bytes, to: int) -> Segment:
    """Decode a segment whose checksum is left to the block behind."""
    destination = IPv4Address(to)
    octets = octets[:16] + bytes(2) + octets[18:]
    value = checksum(pseudo_header(HERE, destination, 6, len(octets)), octets)
    return Segment.decode(octets[:16] + value.to_bytes(2, "big") + octets[18:], HERE, destination)


def mutated(segment: Segment, rng: random.Random) -> Segment:
    """A segment of which one field is wrong, with a checksum that is not."""
    near = rng.choice([1, 2, 100, 1460, 5000, 70_000, 1 << 31])
    match rng.randrange(5):
        case 0:
            return replace(segment, seq=(segment.seq + rng.choice([near, -near])) % 2**32)
        case 1:
            return replace(segment, ack=(segment.ack + rng.choice([near, -near])) % 2**32)
        case 2:
            return replace(segment, flags=Flag(rng.getrandbits(6)))
        case 3:
            return replace(segment, window=rng.choice([0, 1, 100, 65535]))
        case _:
            return replace(segment, payload=segment.payload[: rng.randrange(len(segment.payload) + 1)])


def show(segments) -> str:
    """Segments in a line each."""
    lines = [
        f"{each.flags!r} seq {each.seq} ack {each.ack} win {each.window} len {len(each.payload)} sack {each.sack}"
        for _, each in segments
    ]
    return "; ".join(lines) or "nothing"
