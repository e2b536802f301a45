"""Two endpoints and a network between them that loses, duplicates and delays segments, all in simulated time."""

import heapq
import itertools
from dataclasses import dataclass
from ipaddress import IPv4Address
from random import Random

from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import Connection
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import Segment
from open_rnic.host_driver.tcp.states import State

PORT = 7
STEPS = 3_000_000  # of a transfer; more are taken for a hang


@dataclass(frozen=True)
class Faults:
    """Probabilities of the faults of a segment, and delays in milliseconds."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    delay: int = 10
    late: int = 30


class Network:
    """Two endpoints, the first of which opens a connection to the second."""

    def __init__(self, seed, faults=Faults(), configs=(TcpConfig(), TcpConfig()), numbers=(None, None)):  # noqa: B008
        self.rng = Random(seed)
        self.faults = faults
        self.now = 0
        self.endpoints = {
            address: Endpoint(address, config, iss=None if number is None else lambda *_, number=number: number)
            for address, config, number in zip(
                map(IPv4Address, ("10.0.0.1", "10.0.0.2")), configs, numbers, strict=True
            )
        }
        self.active, self.passive = self.endpoints.values()
        self.passive.listen(PORT)
        self.segments: list[Segment] = []  # all that were sent
        self._in_flight = []
        self._order = itertools.count()

    def open(self) -> tuple[Connection, Connection]:
        """Open a connection, and return both ends."""
        ours = self.active.open(self.passive.address, PORT, self.now)
        while not self.passive.accepted[PORT]:
            assert self.step(), f"the connection did not open: {ours.state}"
        return ours, self.passive.accepted[PORT].popleft()

    def step(self, wait: int | None = None) -> bool:
        """Advance to the next event, at most ``wait`` milliseconds; return False if nothing will ever happen."""
        self._send()
        times = [each.deadline for each in self.endpoints.values() if each.deadline is not None]
        if self._in_flight:
            times.append(self._in_flight[0][0])
        if wait is not None:
            times.append(self.now + wait)
        if not times:
            return False
        self.now = max(self.now, min(times))
        while self._in_flight and self._in_flight[0][0] <= self.now:
            _, _, source, destination, octets = heapq.heappop(self._in_flight)
            segment = Segment.decode(octets, source, destination)
            self.endpoints[destination].receive(source, segment, self.now)
        for each in self.endpoints.values():
            each.tick(self.now)
        return True

    def _send(self):
        rng, faults = self.rng, self.faults
        for source, endpoint in self.endpoints.items():
            while endpoint.segments:
                destination, segment = endpoint.segments.popleft()
                self.segments.append(segment)
                for _ in range(1 + (rng.random() < faults.duplication)):
                    if rng.random() < faults.loss:
                        continue
                    late = rng.randrange(faults.late) if rng.random() < faults.reordering else 0
                    octets = segment.encode(source, destination)
                    entry = (self.now + faults.delay + late, next(self._order), source, destination, octets)
                    heapq.heappush(self._in_flight, entry)


class Transfer:
    """Octets from one end to the other, written and read in pieces of random sizes."""

    def __init__(self, network, source, target, octets):
        self.network, self.source, self.target = network, source, target
        self.octets = octets
        self.sent = 0
        self.received = bytearray()

    def move(self) -> bool:
        """Write and read what is possible; return whether more will be possible without waiting."""
        network, (endpoint, sender), (other, receiver) = self.network, self.source, self.target
        now, rng = network.now, network.rng
        open_half = sender.state in (State.ESTABLISHED, State.CLOSE_WAIT) and not sender.sender.closing
        if open_half and self.sent < len(self.octets):
            piece = self.octets[self.sent : self.sent + rng.choice([1, 100, 1400, 5000])]
            self.sent += endpoint.send(sender, piece, now)
        elif open_half:
            endpoint.close(sender, now)
        if receiver.receiver.available:
            self.received += other.take(receiver, rng.choice([10, 3000, 1_000_000]), now)
        return bool((self.sent < len(self.octets) and sender.sender.room) or receiver.receiver.available)

    @property
    def finished(self) -> bool:
        """Whether everything has arrived, and the end, too."""
        return self.target[1].finished and not self.target[1].receiver.available


def exchange(network: Network, sizes: tuple[int, int]) -> tuple[Connection, Connection]:
    """Transfer random octets both ways at once, compare them, and return both ends of the connection."""
    ends = network.open()
    one, other = zip(network.endpoints.values(), ends, strict=True)
    there, back = (network.rng.randbytes(size) for size in sizes)
    transfers = Transfer(network, one, other, there), Transfer(network, other, one, back)
    for _ in range(STEPS):
        busy = [each.move() for each in transfers]
        if all(each.finished for each in transfers):
            break
        assert network.step(1 if any(busy) else None), f"nothing happens any more: {[each.state for each in ends]}"
    for transfer in transfers:
        assert bytes(transfer.received) == transfer.octets, f"{len(transfer.received)} of {len(transfer.octets)}"
    return ends
