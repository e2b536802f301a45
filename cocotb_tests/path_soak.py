"""Soak test of the network path in RTL, in Verilator: random and mutated frames do no harm to a good connection.

The RTL and the twin hold a good connection, which transfers octets both ways, and a second one. Between the good
frames, the RTL receives those of :mod:`.frame_soak`: random, mutated, and forged ones of the second connection. The
good connection must deliver exactly its octets, and connections must open, transfer octets and close in between.

    python -m open_rnic.cocotb_tests.path_soak [--frames N] [--seed N]
"""

import argparse
import asyncio
import random
import sys
import time
from collections import Counter, deque
from ipaddress import IPv4Interface

from open_rnic.cocotb_tests.frame_soak import IPV4, misleads, random_frame
from open_rnic.cocotb_tests.host_driver.tcp.test_fuzz import forged
from open_rnic.cocotb_tests.soak import mutated
from open_rnic.host_driver.devices.simulated_path import opened
from open_rnic.host_driver.errors import MpaConnectionError
from open_rnic.host_driver.net.frames import Ipv4
from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Pipe, joined
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.segment import PROTOCOL, Segment
from open_rnic.host_driver.tcp.stack import UserTcp

RTL, TWIN = IPv4Interface("10.9.0.1/24"), IPv4Interface("10.9.0.2/24")
MACS = {address: local_mac(address.ip) for address in (RTL, TWIN)}
BURST = 32  # frames between two exchanges of the good connection; more would not fit in the queue of the simulation
FRESH = 50  # bursts after which one more connection opens and closes
PATIENCE = 120.0  # seconds in which an exchange must succeed, on a busy machine
KINDS = "random", "mutated", "mutated", "forged"


async def pair(twin, listener):
    """Open a connection; return both ends. It is refused while forged SYNs occupy all connections of the RTL."""
    theirs = None
    async with asyncio.timeout(PATIENCE):
        while theirs is None:
            try:
                theirs = await twin.connect(str(RTL.ip), listener.address[1], PATIENCE, None)
            except MpaConnectionError as error:
                if "refused" not in str(error):
                    raise
                await asyncio.sleep(0.01)
    while (ours := await listener.accept()).peer[1] != theirs.local[1]:
        ours.close(reset=True)  # a forged SYN has opened it
    return ours, theirs


async def exchange(ends, rng):
    """Transfer octets both ways, and compare them."""
    for source, target in (ends, ends[::-1]):
        octets = rng.randbytes(rng.choice([1, 100, 1460, 4000]))
        await source.send(octets)
        received = b""
        while len(received) < len(octets):
            piece = await target.receive()
            assert piece, "a good connection has ended"
            received += piece
        assert received == octets, "octets were delivered that were not sent"


def forged_frame(rng, connection):
    """A segment of the twin's connection, with changed fields."""
    sender, receiver, peer = connection.sender, connection.receiver, connection.peer
    numbers = sender.next % 2**32, receiver.next % 2**32
    segment = forged(Segment(peer.local_port, peer.port, *numbers, window=rng.choice([0, 1000, 65535])), rng)
    packet = Ipv4(TWIN.ip, RTL.ip, PROTOCOL, segment.encode(TWIN.ip, RTL.ip)).encode()
    return MACS[RTL] + MACS[TWIN] + IPV4 + packet


async def soak(frames, seed):
    """Give the RTL ``frames`` frames; return the number of each kind."""
    rng, outcomes, good = random.Random(f"path {seed}"), Counter(), deque(maxlen=40)
    port, ours = joined()
    async with (
        opened(MACS[RTL], RTL, connections=4) as path,
        Pipe(port, path),
        EngineTcp(path, RTL.ip) as tcp,
        UserTcp(ours, Host(MACS[TWIN], TWIN)) as twin,
    ):
        give = path.send
        path.send = lambda frame: (good.append(frame), give(frame))[1]
        listener = await tcp.listen(str(RTL.ip), 7)
        ends = await pair(twin, listener)
        victim = None
        for burst in range(-(-frames // BURST)):
            async with asyncio.timeout(PATIENCE):
                await exchange(ends, rng)
                if burst % FRESH == 0:
                    fresh = await pair(twin, listener)
                    await exchange(fresh, rng)
                    for end in fresh:
                        end.close(reset=False)
            if victim is None or victim[1].connection.end:
                if victim:
                    victim[0].close(reset=True)
                victim = await pair(twin, listener)
            for _ in range(BURST):
                kind = rng.choice(KINDS)
                original = rng.choice(good)
                match kind:
                    case "random":
                        frame = random_frame(rng, MACS[RTL], MACS[TWIN])
                    case "mutated":
                        frame = mutated(rng, original)
                    case _:
                        frame = forged_frame(rng, victim[1].connection)
                if misleads(kind, frame, original, (RTL.ip, TWIN.ip)):
                    kind = "left out: no host can distinguish it from a good one"
                else:
                    give(frame)
                outcomes[kind] += 1
        async with asyncio.timeout(PATIENCE):
            await exchange(ends, rng)
            await exchange(await pair(twin, listener), rng)
    return outcomes


def main():
    """Run the command."""
    parser = argparse.ArgumentParser(prog="path_soak", description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=100_000, help="number of frames (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    options = parser.parse_args()
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    print(f"{options.frames:,} frames, seed {seed}", flush=True)
    begun = time.monotonic()
    outcomes = asyncio.run(soak(options.frames, seed))
    for kind, count in sorted(outcomes.items()):
        print(f"{count:>9,}  {kind}")
    print(f"seed {seed}: no failure in {time.monotonic() - begun:,.0f} s")


if __name__ == "__main__":
    sys.exit(main())
