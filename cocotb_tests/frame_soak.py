"""Soak test of the twin's network stack: random and mutated frames do no harm to a host with TCP.

In each round, two hosts hold a good connection, which transfers octets both ways, and a second connection. Between its
good frames, the first host receives others:

random    random octets, most of them behind a good Ethernet header
mutated   a good frame with one to three faults, such as changed, missing or added octets
forged    a good segment of the second connection, whose fields are changed and whose checksums are right

The first host must raise no exception, and each round must end in a limited time. The good connection must deliver
exactly its octets, and a further connection must open, transfer octets and close. A mutated segment whose checksums
are right by chance is left out, as is an ARP packet that claims the address of one of the hosts: nothing protects a
host from these.

    python -m open_rnic.cocotb_tests.frame_soak [--frames N] [--seed N] [--jobs N]
"""

import argparse
import contextlib
import gc
import os
import random
import sys
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor, as_completed
from ipaddress import IPv4Interface

from open_rnic.cocotb_tests.host_driver.tcp.test_fuzz import forged
from open_rnic.cocotb_tests.soak import HANG, limited_growth, limited_time, mutated
from open_rnic.host_driver.net.frames import Arp, FrameError, Ipv4
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.tcp.endpoint import Endpoint
from open_rnic.host_driver.tcp.segment import PROTOCOL, Segment, SegmentError
from open_rnic.host_driver.tcp.states import State

ROUND = 500  # frames
PORT = 7
IPV4, ARP = b"\x08\x00", b"\x08\x06"
HEADER = 14  # octets of the Ethernet header


def random_frame(rng, target, source):
    """Random octets, most of them behind a good Ethernet header from the MAC ``source`` to ``target``."""
    octets = rng.randbytes(rng.choice([0, 1, 13, 20, 60, 100, 1500, 3000]))
    header = target + source + rng.choice([IPV4, ARP, rng.randbytes(2)])
    return octets if rng.random() < 0.2 else header + octets


def misleads(kind, frame, original, addresses):
    """Whether a frame is one that no host can distinguish from a good one. ``original`` was mutated."""
    with contextlib.suppress(FrameError, SegmentError):
        if frame[12:HEADER] == ARP:
            return Arp.decode(frame[HEADER:]).sender in addresses
        if kind == "mutated" and frame[12:HEADER] == IPV4:
            packet = Ipv4.decode(frame[HEADER:])
            Segment.decode(packet.payload, packet.source, packet.destination)
            return packet != Ipv4.decode(original[HEADER:])
    return False


class Stack:
    """A host with TCP, without a port; ``frames`` has the frames that it sends."""

    def __init__(self, number):
        address = IPv4Interface(f"10.9.0.{number}/24")
        self.host = Host(bytes([2, 0, 0, 0, 0, number]), address)
        self.host.handlers[PROTOCOL] = self._receive_packet
        self.endpoint = Endpoint(address.ip)
        self.endpoint.listen(PORT)
        self.malformed = 0

    def _receive_packet(self, packet, now):
        try:
            segment = Segment.decode(packet.payload, packet.source, packet.destination)
        except SegmentError:
            self.malformed += 1
            return
        self.endpoint.receive(packet.source, segment, int(now * 1000))

    def frames(self, now):
        """Take the frames that are to be sent."""
        self.host.tick(now)
        self.endpoint.tick(int(now * 1000))
        while self.endpoint.segments:
            destination, segment = self.endpoint.segments.popleft()
            self.host.send(PROTOCOL, destination, segment.encode(self.endpoint.address, destination), now)
        sent = [*self.host.frames]
        self.host.frames.clear()
        return sent


class Flow:
    """Octets from one end of a connection to the other, compared as they arrive."""

    def __init__(self, source, sender, target, receiver, rng):
        self._ends = source, sender, target, receiver
        self._rng = rng
        self._waiting = bytearray()  # sent, and not yet delivered
        self.delivered = 0

    def move(self, now, size):
        """Send at most ``size`` octets, and take what has arrived."""
        source, sender, target, receiver = self._ends
        octets = self._rng.randbytes(size)
        self._waiting += octets[: source.endpoint.send(sender, octets, now)] if size else b""
        came = target.endpoint.take(receiver, 1 << 20, now)
        assert came == self._waiting[: len(came)], f"{len(came)} octets were delivered that were not sent"
        del self._waiting[: len(came)]
        self.delivered += len(came)

    @property
    def finished(self):
        """Whether everything has been delivered."""
        return not self._waiting


class Round:
    """Two hosts, and what they receive."""

    def __init__(self, seed, number):
        self.rng = random.Random(f"frames {seed} {number}")
        self.first, self.other = Stack(1), Stack(2)
        self.now = self.rng.uniform(1, 1e6)
        self.good = deque(maxlen=40)  # frames that the first host has received
        self.outcomes = Counter()
        self.flows = self._connection()
        self.victim = None
        self._original = b""

    def _connection(self):
        """Open a connection; return the flows of both directions."""
        ours, theirs = self._open()
        there = Flow(self.first, ours, self.other, theirs, self.rng)
        return ours, theirs, [there, Flow(self.other, theirs, self.first, ours, self.rng)]

    def _open(self):
        opener, listener = self.first.endpoint, self.other.endpoint
        ours = opener.open(listener.address, PORT, self.ms)
        for _ in range(10_000):
            if listener.accepted[PORT]:
                return ours, listener.accepted[PORT].popleft()
            self.exchange(0.01)
        raise AssertionError("no connection opens any more")

    @property
    def ms(self):
        return int(self.now * 1000)

    def exchange(self, seconds):
        """Let time pass, and the hosts exchange their frames."""
        self.now += seconds
        while pairs := [
            (target, frame)
            for source, target in ((self.first, self.other), (self.other, self.first))
            for frame in source.frames(self.now)
        ]:
            for target, frame in pairs:
                if target is self.first:
                    self.good.append(frame)
                target.host.receive(frame, self.now)

    def run(self, count):
        """Give the first host ``count`` frames, and return how many there were of each kind."""
        rng = self.rng
        for _ in range(count):
            for flow in self.flows[2]:
                flow.move(self.ms, rng.choice([0, 0, 1, 100, 2000]))
            self.exchange(rng.choice([0, 0, 0.001, 0.05]))
            kind = rng.choice(["random", "mutated", "mutated", "forged"])
            frame = getattr(self, f"_{kind}")()
            if misleads(kind, frame, self._original, (self.first.endpoint.address, self.other.endpoint.address)):
                kind = "left out: no host can distinguish it from a good one"
            else:
                self.first.host.receive(frame, self.now)
            self.outcomes[kind] += 1
            self.first.endpoint.accepted[PORT].clear()
        self._finish(self.flows)
        self._finish(self._connection())
        return self.outcomes

    def _random(self):
        return random_frame(self.rng, self.first.host.mac, self.other.host.mac)

    def _mutated(self):
        self._original = self.rng.choice(self.good)
        return mutated(self.rng, self._original)

    def _forged(self):
        """A segment of the second connection, or of none."""
        rng, first, other = self.rng, self.first, self.other
        if self.victim is None or self.victim.end:
            self.victim, _ = self._open()
        sender, receiver = self.victim.sender, self.victim.receiver
        if self.victim.state is State.ESTABLISHED and not sender.closing:
            first.endpoint.send(self.victim, bytes(rng.choice([1, 1000])), self.ms)
        first.endpoint.take(self.victim, 1 << 20, self.ms)
        peer = self.victim.peer
        numbers = receiver.next % 2**32, rng.choice([sender.una, sender.next]) % 2**32
        segment = forged(Segment(peer.port, peer.local_port, *numbers, window=rng.choice([0, 1000, 65535])), rng)
        payload = segment.encode(other.endpoint.address, first.endpoint.address)
        packet = Ipv4(other.endpoint.address, first.endpoint.address, PROTOCOL, payload).encode()
        return first.host.mac + other.host.mac + IPV4 + packet

    def _finish(self, connection):
        """Deliver everything, and close both halves."""
        ours, theirs, flows = connection
        for flow in flows:
            flow.move(self.ms, 5000)
        for _ in range(10_000):
            if all(flow.finished for flow in flows):
                break
            self.exchange(0.01)
            for flow in flows:
                flow.move(self.ms, 0)
        else:
            raise AssertionError(f"a good connection delivers no more: {ours.state}, {theirs.state}")
        self.first.endpoint.close(ours, self.ms)
        self.other.endpoint.close(theirs, self.ms)
        for _ in range(10_000):
            self.exchange(0.01)
            if State.ESTABLISHED not in (ours.state, theirs.state) and ours.finished and theirs.finished:
                return
        raise AssertionError(f"a good connection does not close: {ours.state}, {theirs.state}")


def batch(seed, numbers, count=ROUND):
    """Run rounds; return the number of frames of each kind, and a line for each failure."""
    outcomes, failures = Counter(), []
    with limited_growth(failures, f"seed {seed}, rounds {numbers[0]} to {numbers[-1]}"):
        for number in numbers:
            try:
                with limited_time(HANG):
                    outcomes += Round(seed, number).run(count)
            except Exception as error:
                failures.append(f"seed {seed}, round {number}: {type(error).__name__}: {error}")
            gc.collect()  # hosts refer to their own methods; what a round leaves behind must not count as growth
    return outcomes, failures


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(prog="frame_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=1_000_000, help="number of frames (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default: one per core)")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    rounds = -(-options.frames // ROUND)
    print(f"{rounds * ROUND:,} frames, seed {seed}, {options.jobs} processes", flush=True)
    begun, total, failures = time.monotonic(), Counter(), []
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [pool.submit(batch, seed, range(at, min(at + 20, rounds))) for at in range(0, rounds, 20)]
        for done in as_completed(waiting):
            outcomes, failed = done.result()
            total += outcomes
            failures += failed
            print(*failed, sep="\n", end="\n" if failed else "", flush=True)
    for kind, count in sorted(total.items()):
        print(f"{count:>9,}  {kind}")
    verdict = f"{len(failures)} failures" if failures else "no failure"
    print(f"seed {seed}: {verdict} in {time.monotonic() - begun:,.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
