"""Random, mutated and forged frames for a host with TCP, the twin or RTL in Verilator: they do no harm.

The host and another one hold a good connection, which transfers octets both ways, and a second one. Between its good
frames, the host receives bad ones:

random    random octets, most of them behind a good Ethernet header
mutated   a good frame with one to three faults, such as changed, missing or added octets
forged    a good segment of the second connection, whose fields are changed and whose checksums are right

The host must raise no exception. The good connection must deliver exactly its octets, and connections must open,
transfer octets and close in between. A mutated segment whose checksums are right by chance is left out, as is an ARP
packet that claims the address of one of the hosts: nothing protects a host from these.
"""

import asyncio
import contextlib
import gc
import random
import secrets
import selectors
from collections import Counter, deque
from ipaddress import IPv4Interface
from unittest import mock

from open_rnic.cocotb_tests.soaks.case import Case
from open_rnic.cocotb_tests.soaks.faults import bad_frame
from open_rnic.host_driver.devices.simulated_path import opened
from open_rnic.host_driver.errors import MpaConnectionError
from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Pipe, joined
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.segment import Segment
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tcp.states import State

ADDRESSES = TARGET, OTHER = [IPv4Interface(f"10.9.0.{number}/24") for number in (1, 2)]
MACS = [local_mac(each.ip) for each in ADDRESSES]
PORT = 7
FRESH = 50  # bursts after which one more connection opens and closes
PATIENCE = 120.0  # seconds in which an exchange must succeed, on a busy machine


class Tcp(Case, frozen=True, tag="tcp"):
    """Bad frames for the twin, in simulated time.

    BURST : frames while the good connection transfers some octets
    PAUSES : seconds between two frames
    """

    frames: int = 500

    COUNT, BATCH, BURST, PAUSES = 2000, 20, 4, (0, 0, 0.001, 0.05)

    def run(self):
        errors, rng = [], random.Random(f"{self.seed} secrets")
        secret = {"randbelow": rng.randrange, "randbits": rng.getrandbits, "token_bytes": rng.randbytes}
        with mock.patch.multiple(secrets, **secret), asyncio.Runner(loop_factory=self.loop) as runner:
            try:
                return runner.run(self._run(errors))
            except asyncio.CancelledError:
                raise errors[0] from None
            finally:
                gc.collect()  # hosts refer to their own methods; what a case leaves behind must not count as growth

    def loop(self):
        return SimulatedTime(random.Random(self.seed).uniform(1, 1e6))

    @contextlib.asynccontextmanager
    async def target(self):
        """The host's port, and its TCP."""
        port, inside = joined()
        async with UserTcp(inside, Host(MACS[0], TARGET)) as tcp:
            yield port, tcp

    def ended(self, end):
        """Whether an end of this host has ended."""
        return end.connection.end

    def use(self, end, tcp, rng):
        """Let an end of this host send, and take what it has received."""
        connection = end.connection
        if connection.state is State.ESTABLISHED and not connection.sender.closing:
            tcp.endpoint.send(connection, bytes(rng.choice([1, 1000])), tcp.now)
        tcp.endpoint.take(connection, 1 << 20, tcp.now)
        tcp.flush()

    async def _run(self, errors):
        rng, outcomes, good = random.Random(self.seed), Counter(), deque(maxlen=40)
        task, victim, attacked = asyncio.current_task(), None, None
        port, ours = joined()

        def failed(_, context):
            errors.append(context.get("exception") or AssertionError(context["message"]))
            task.cancel()

        asyncio.get_running_loop().set_exception_handler(failed)
        async with self.target() as (path, tcp), Pipe(port, path), UserTcp(ours, Host(MACS[1], OTHER)) as other:
            give = path.send
            path.send = lambda frame: (good.append(frame), give(frame))[1]
            listener = await tcp.listen(str(TARGET.ip), PORT)
            others_listener = await other.listen(str(OTHER.ip), PORT)
            ends = await pair(other, listener)
            hosts = [(mac, address.ip) for mac, address in zip(MACS, ADDRESSES, strict=True)]
            for burst in range(-(-self.frames // self.BURST)):
                if burst % FRESH == 0:
                    await finish(await pair(other, listener), rng)
                    await finish(await pair(tcp, others_listener), rng)
                if victim is None or victim.connection.end or self.ended(attacked):
                    for end in (victim, attacked) if victim else ():
                        end.close(reset=True)
                    victim, attacked = await pair(other, listener)
                exchanging = asyncio.ensure_future(exchange(ends, rng))
                for _ in range(self.BURST):
                    self.use(attacked, tcp, rng)
                    frame, kind = bad_frame(rng, *hosts, good, segment_of(victim.connection, rng))
                    if frame is not None:
                        give(frame)
                    outcomes[kind] += 1
                    await asyncio.sleep(rng.choice(self.PAUSES))
                await exchanging
            await finish(ends, rng)
            await finish(await pair(other, listener), rng)
        return outcomes


class TcpRtl(Tcp, frozen=True, tag="tcp-rtl"):
    """Bad frames for the RTL. More than those of a burst would not fit in the queue of the simulation."""

    frames: int = 10_000

    COUNT, BATCH, SIMULATES, BURST, PAUSES = 10, 1, True, 32, (0,)

    loop = asyncio.SelectorEventLoop

    def ended(self, end):
        return False

    def use(self, end, tcp, rng):
        """Octets that wait for the peer's window would hold up those of all connections."""

    @contextlib.asynccontextmanager
    async def target(self):
        async with opened(MACS[0], TARGET, connections=4) as path, EngineTcp(path, TARGET.ip) as tcp:
            yield path, tcp


class SimulatedTime(asyncio.SelectorEventLoop):
    """An event loop without I/O in which no time passes but that for which all tasks wait."""

    def __init__(self, now):
        selector = selectors.DefaultSelector()
        select = selector.select

        def advance(timeout):
            assert timeout is not None, "nothing happens any more"
            self.now += timeout
            return select(0)

        selector.select = advance
        self.now = now
        super().__init__(selector)

    def time(self):
        return self.now


@contextlib.asynccontextmanager
async def patience(wrong):
    try:
        async with asyncio.timeout(PATIENCE):
            yield
    except TimeoutError:
        raise AssertionError(wrong) from None


async def pair(opener, listener):
    """Open a connection; return both ends. It is refused while forged SYNs occupy all connections of the RTL."""
    async with patience("no connection opens any more"):
        while True:
            try:
                one = await opener.connect(*listener.address, PATIENCE, None)
                break
            except MpaConnectionError:
                await asyncio.sleep(0.01)
        while (other := await listener.accept()).peer[1] != one.local[1]:
            other.close(reset=True)  # a forged SYN has opened it
    return one, other


async def exchange(ends, rng):
    """Transfer octets both ways, and compare them."""
    async with patience("a good connection delivers no more"):
        for source, target in (ends, ends[::-1]):
            octets = rng.randbytes(rng.choice([1, 100, 1460, 4000]))
            await source.send(octets)
            received = b""
            while len(received) < len(octets):
                piece = await target.receive()
                assert piece, "a good connection has ended"
                received += piece
            assert received == octets, "octets were delivered that were not sent"


async def finish(ends, rng):
    """Transfer octets both ways, and close both halves."""
    await exchange(ends, rng)
    async with patience("a good connection does not close"):
        for end in ends:
            end.shut()
        assert [await end.receive() for end in ends] == [b"", b""]
        for end in ends:
            end.close(reset=False)


def segment_of(connection, rng):
    """A segment that the other host might send on its connection."""
    sender, receiver, peer = connection.sender, connection.receiver, connection.peer
    numbers = rng.choice([sender.una, sender.next]) % 2**32, receiver.next % 2**32
    return Segment(peer.local_port, peer.port, *numbers, window=rng.choice([0, 1000, 65535]))
