# amaranth: UnusedElaboratable=no
"""An engine of many connections: each connection does what its own twin does, whatever the others do."""

import functools
import random

import cocotb
import pytest
from cocotb.triggers import ClockCycles, RisingEdge, gather

from open_rnic.cocotb_tests.collisions import colliding
from open_rnic.cocotb_tests.harness import bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma import programs
from open_rnic.cocotb_tests.rtl.rdma.bench import OCTETS, SIZES
from open_rnic.cocotb_tests.rtl.rdma.shared_bench import SharedBench
from open_rnic.host_driver.ddp import Opcode
from open_rnic.host_driver.devices.sim.signals import level
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.registers import Command

CONNECTIONS = 4
HOST_STAG = 0x1234_5678
FABRIC = 1 << 5  # in the first word of a command


async def live(end, lives):
    runs = programs.Program(end)
    runs.messages = end.n << 20  # other octets than those of the other connections
    for k, each in enumerate(lives):
        if k:
            if not runs.ended:
                await runs._catch_up()
            await end.restart()
        await runs.run(each["setting"], each["steps"])


@bench(cycles=3_000_000)
async def each_connection_is_its_twin(dut):
    idle, busy = parameter("idle"), parameter("busy")
    lives = parameter("lives")
    shared = SharedBench(dut, len(lives), pauses(idle) if idle else never(), stalls(busy) if busy else never(),
                         parameter("full"))  # fmt: skip
    await ClockCycles(dut.clk, 20)  # the engine clears what it has in memory
    await gather(*(live(end, some) for end, some in zip(shared.ends, lives, strict=True)))


class Fabric:
    """Logic beside the engine, which writes parts of the memory of connection ``owner`` to its peer."""

    OUTSTANDING = 4
    STAG = 0xFAB0_0001

    def __init__(self, dut):
        self.dut = dut
        self.done = 0
        dut.fabric__valid.value = 0
        cocotb.start_soon(self._count())

    async def _count(self):
        while True:
            await RisingEdge(self.dut.clk)
            self.done += level(self.dut.fabric_done)

    async def write(self, owner, messages):
        """Post RDMA Writes, each an address and octets; end when the connection is reset."""
        dut, edge = self.dut, RisingEdge(self.dut.clk)
        dut.fabric_connection.value = owner
        first = self.done
        for n, (address, octets) in enumerate(messages):
            while n - (self.done - first) == self.OUTSTANDING:
                await edge
                if level(dut.clear) & 1:
                    return
            for word in (Command.WORK << 28 | 1 << 8 | FABRIC | Opcode.RDMA_WRITE, octets, self.STAG, n, 0,
                         owner * OCTETS + address, octets):  # fmt: skip
                dut.fabric__valid.value, dut.fabric__payload.value = 1, word
                while True:
                    await edge
                    if level(dut.clear) & 1:
                        dut.fabric__valid.value = 0
                        return
                    if level(dut.fabric__ready):
                        break
            dut.fabric__valid.value = 0
        while self.done - first < len(messages):
            await edge


def messages_of(segments):
    """Put segments together: the STag and the octets of each message; none begins inside of another."""
    found, last = [], True
    for segment in segments:
        if last:
            found.append((segment.stag, b""))
            first = segment.to
        stag, octets = found[-1]
        assert (segment.stag, segment.to) == (stag, first + len(octets))
        found[-1] = stag, octets + segment.payload
        last = segment.last
    return found


def pieces(rng, count):
    return [(rng.randrange(0x800), rng.randrange(1, 200)) for _ in range(count)]


async def start_all(shared):
    for end in shared.ends:
        with end.only("rtl"):
            await end.start(mulpdu=80)


async def host_writes(end, given):
    """Post RDMA Writes of these pieces, as many at once as there is room for."""
    with end.only("rtl"):
        for n, piece in enumerate(given):
            await end.work(Opcode.RDMA_WRITE, piece, stag=HOST_STAG, to=n << 32)
            while n - (await end.done())[0] >= SIZES["work"] - 1:
                pass


@bench(cycles=400_000)
async def the_fabric_and_the_host_write_at_once(dut):
    """Each keeps its order, no message is in another, and each learns what is done of its own."""
    rng, owner = random.Random(parameter("seed")), parameter("owner")
    shared = SharedBench(dut, CONNECTIONS, pauses(0.3), stalls(0.3), 0.2)
    fabric = Fabric(dut)
    await ClockCycles(dut.clk, 20)

    await start_all(shared)
    theirs, ours = [pieces(rng, 30) for _ in shared.ends], pieces(rng, 40)
    writing = cocotb.start_soon(fabric.write(owner, ours))
    await gather(*(host_writes(end, given) for end, given in zip(shared.ends, theirs, strict=True)))
    await writing
    for end, given in zip(shared.ends, theirs, strict=True):
        with end.only("rtl"):
            found = messages_of(await end.segments())
            assert (await end.done())[0] == len(given)
        for stag, due in ((HOST_STAG, given), (Fabric.STAG, ours if end.n == owner else [])):
            assert [octets for each, octets in found if each == stag] == [end.memory.get(*piece) for piece in due]
    assert fabric.done == len(ours)


@bench(cycles=400_000)
async def the_fabric_is_cut_off_by_a_reset_and_serves_another_connection(dut):
    rng = random.Random(parameter("seed"))
    shared = SharedBench(dut, CONNECTIONS, pauses(0.3), stalls(0.3), 0.2)
    fabric = Fabric(dut)
    await ClockCycles(dut.clk, 20)
    await start_all(shared)
    for owner in rng.sample(range(CONNECTIONS), 3):
        end, endless = shared.ends[owner], pieces(rng, 1000)
        writing = cocotb.start_soon(fabric.write(owner, endless))
        await ClockCycles(dut.clk, rng.randrange(200, 2000))
        await shared.reset(owner)
        assert writing.done()
        sent = b"".join(octets for _, octets in messages_of(await end.segments()))
        assert sent
        assert b"".join(end.memory.get(*piece) for piece in endless).startswith(sent)
        with end.only("rtl"):
            await end.start(mulpdu=80)
        some = pieces(rng, 10)
        await fabric.write(owner, some)
        assert messages_of(await end.segments()) == [(Fabric.STAG, end.memory.get(*piece)) for piece in some]


def program(rng, steps):
    names = [rng.choice(programs.STEPS) for _ in range(rng.randint(1, steps))]
    names += rng.choices(programs.ENDS, k=rng.randrange(4))
    return {"setting": rng.getrandbits(64), "steps": [(name, rng.getrandbits(256)) for name in names]}


RUNS = [(4, 1, 0), (2, 4, 1)]  # of the short run
RUNS += [(2, 1, 0), (2, 1, 1), (2, 1, 2), (2, 2, 0)]
RUNS += [(4, 1, 1), (4, 1, 2), (4, 2, 0), (4, 4, 1), (16, 1, 2), (16, 2, 0), (16, 4, 1)]
LIVES = {2: (5, 30), 4: (4, 20), 16: (3, 10)}  # of each connection, and the most steps of each


@pytest.mark.parametrize(("connections", "lanes", "seed"), shortened("more seeds, and each width with each", 2, RUNS))
def test_each_connection_is_its_twin(connections, lanes, seed):
    lives, steps = LIVES[connections]
    rng = random.Random(100 * connections + seed)
    given = {
        "lives": [[program(rng, steps) for _ in range(lives)] for _ in range(connections)],
        "idle": programs.CHANCES[seed % 3], "busy": programs.CHANCES[seed % 3], "full": rng.choice((0, 0.2, 0.5)),
    }  # fmt: skip
    simulate(engine(connections, lanes), each_connection_is_its_twin, parameters=given, seed=seed)


def engine(connections, lanes):
    return functools.partial(colliding, RdmaEngine, lanes, **SIZES, connections=connections, fabric=lanes == 1)


@pytest.mark.parametrize(("owner", "seed"), [(2, 0)])
def test_the_fabric_shares_an_engine_with_the_hosts_of_all_connections(owner, seed):
    benches = the_fabric_and_the_host_write_at_once, the_fabric_is_cut_off_by_a_reset_and_serves_another_connection
    simulate(engine(CONNECTIONS, 1), *benches, parameters={"owner": owner, "seed": seed}, seed=seed)


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="connections must be a power of 2 from 1 to 64, not 3"):
        RdmaEngine(connections=3)
