# amaranth: UnusedElaboratable=no
"""Work of the fabric: each is done in the order of its connection, or reported as failed, whatever the others do."""

import random
from collections import Counter, deque

import cocotb
import pytest
from amaranth.hdl import Module, Value
from amaranth.lib import wiring
from cocotb.triggers import ClockCycles, RisingEdge, gather

from open_rnic.cocotb_tests.harness import bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma.bench import OCTETS, SIZES, Engine
from open_rnic.cocotb_tests.rtl.rdma.shared_bench import SharedBench
from open_rnic.cocotb_tests.rtl.rdma.streams import pass_cycles, run, until
from open_rnic.cocotb_tests.rtl.rdma.test_shared_engine import (
    CONNECTIONS,
    HOST_STAG,
    host_writes,
    messages_of,
    pieces,
    start_all,
)
from open_rnic.host_driver.devices.sim.signals import level
from open_rnic.rtl.formats.opcodes import SENDS, Opcode
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, fabric_members
from open_rnic.rtl.rdma.registers import Command
from open_rnic.rtl.rdma.work_port import Work, WorkPort

STAG = 0xFAB0_0001
MOST = 4


class EngineWithWork(wiring.Component):
    """An engine with a :class:`.WorkPort` in the place of its ports for the fabric."""

    def __init__(self, connections):
        self.engine = RdmaEngine(**SIZES, connections=connections, fabric=True)
        self.port = WorkPort(self.engine.work, connections)
        members = self.engine.signature.members
        self.others = {name: members[name] for name in members if not name.startswith("fabric")}
        super().__init__({**self.others, **fabric_members(self.port)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.engine, m.submodules.port = engine, port = self.engine, self.port
        port.serve(m, engine, self.reset if "reset" in self.others else Value.cast(self.clear))
        expose(m, engine, self, self.others)
        expose(m, port, self, FABRIC_PORTS)
        return m


class Fabric:
    """Logic that posts work, and counts the reports of each connection."""

    def __init__(self, dut):
        self.dut, self.edge = dut, RisingEdge(dut.clk)
        self.posted, self.done, self.failed = Counter(), Counter(), Counter()
        dut.work__valid.value = 0
        cocotb.start_soon(self._count())

    async def _count(self):
        reports = [
            (count, getattr(self.dut, f"work_reports__{name}"), getattr(self.dut, f"work_reports__{name}_of", None))
            for count, name in ((self.done, "done"), (self.failed, "failed"))
        ]
        while True:
            await self.edge
            for count, number, connection in reports:
                count[0 if connection is None else int(connection.value)] += int(number.value)

    async def post(self, connection, piece, to=0, opcode=Opcode.RDMA_WRITE):
        address, octets = piece
        self.posted[connection] += 1
        self.dut.work__payload.value = payload(
            address=connection * OCTETS + address, octets=octets, stag=STAG, to=to, opcode=opcode, connection=connection
        )
        self.dut.work__valid.value = 1
        await self.edge
        while not level(self.dut.work__ready):
            await self.edge
        self.dut.work__valid.value = 0

    async def reported(self):
        while self.done + self.failed != self.posted:
            await self.edge


def payload(**fields):
    return Work.const(fields).as_value().value


@bench(cycles=400_000)
async def work_of_all_connections_is_done_beside_that_of_their_hosts(dut):
    rng = random.Random(parameter("seed"))
    shared = SharedBench(dut, CONNECTIONS, pauses(0.3), stalls(0.3), 0.2)
    fabric = Fabric(dut)
    await ClockCycles(dut.clk, 20)

    await start_all(shared)
    theirs = [pieces(rng, 20) for _ in shared.ends]
    ours = [(rng.randrange(CONNECTIONS), (at, octets * (rng.random() < 0.9))) for at, octets in pieces(rng, 60)]
    hosts = gather(*(host_writes(end, given) for end, given in zip(shared.ends, theirs, strict=True)))
    hosts = cocotb.start_soon(hosts)
    for n, (connection, piece) in enumerate(ours):
        await fabric.post(connection, piece, n << 16)
    await hosts
    await fabric.reported()
    assert not fabric.failed.total()
    for end, given in zip(shared.ends, theirs, strict=True):
        with end.only("rtl"):
            found = messages_of(await end.segments())
        for stag, due in (HOST_STAG, given), (STAG, [piece for connection, piece in ours if connection == end.n]):
            assert [octets for each, octets in found if each == stag] == [end.memory.get(*piece) for piece in due]


@bench(cycles=400_000)
async def work_of_a_connection_that_is_reset_fails_and_that_of_the_others_goes_on(dut):
    rng = random.Random(parameter("seed"))
    shared = SharedBench(dut, CONNECTIONS, pauses(0.3), stalls(0.3), 0.2)
    fabric = Fabric(dut)
    await ClockCycles(dut.clk, 20)
    await fabric.post(1, (0, 8))
    await fabric.reported()
    assert fabric.failed == Counter({1: 1}), "the host has not enabled the engine of that connection"
    await start_all(shared)
    given = {n: [] for n in range(CONNECTIONS)}
    ends = False

    async def post():
        while not ends:
            [piece] = pieces(rng, 1)
            connection = rng.randrange(CONNECTIONS)
            given[connection].append(piece)
            await fabric.post(connection, piece)

    posting = cocotb.start_soon(post())
    owner = rng.randrange(CONNECTIONS)
    end = shared.ends[owner]
    await ClockCycles(dut.clk, rng.randrange(500, 3000))
    failed = fabric.failed[owner]
    await shared.reset(owner)
    cut = len(given[owner])
    assert fabric.failed[owner] > failed
    sent = b"".join(octets for _, octets in messages_of(await end.segments()))
    assert b"".join(end.memory.get(*piece) for piece in given[owner]).startswith(sent)
    with end.only("rtl"):
        await end.start(mulpdu=80)
    await ClockCycles(dut.clk, 2000)
    ends = True
    await posting
    await fabric.reported()
    for other in shared.ends:
        due = b"".join(other.memory.get(*piece) for piece in given[other.n][cut if other is end else 0 :])
        found = b"".join(octets for _, octets in messages_of(await other.segments()))
        assert found
        assert due.endswith(found)
        assert other is end or (found == due and not fabric.failed[other.n] - (other.n == 1))


@bench(cycles=100_000)
async def work_of_the_only_connection_is_done_or_fails_at_its_reset(dut):
    rng = random.Random(parameter("seed"))
    end, fabric = Engine(dut, pauses(0.3), stalls(0.3)), Fabric(dut)
    failed = 0
    for _ in range(3):
        await end.start(mulpdu=80)
        some = [*pieces(rng, 5), (0, 0), *pieces(rng, 20)]
        for piece in some:
            await fabric.post(0, piece)
        await fabric.reported()
        assert not fabric.failed.total()
        assert messages_of(await end.segments()) == [(STAG, end.memory.get(*piece)) for piece in some]
        for piece in pieces(rng, SIZES["work"]):
            await fabric.post(0, piece)
        await ClockCycles(dut.clk, rng.randrange(1, 100))
        await end.reset()
        end.restart_sinks()
        await fabric.reported()
        failed += fabric.failed.total()
        fabric.failed.clear()
        fabric.posted = fabric.done.copy()
    assert failed


@pytest.mark.parametrize("seed", shortened("more seeds", 1, list(range(4))))
def test_work_shares_an_engine_with_the_hosts_of_all_connections(seed):
    simulate(
        EngineWithWork(CONNECTIONS), work_of_all_connections_is_done_beside_that_of_their_hosts,
        work_of_a_connection_that_is_reset_fails_and_that_of_the_others_goes_on, parameters={"seed": seed}, seed=seed,
    )  # fmt: skip


def test_work_of_one_connection():
    simulate(EngineWithWork(1), work_of_the_only_connection_is_done_or_fails_at_its_reset, parameters={"seed": 0})


@pytest.mark.parametrize("seed", range(3))
def test_each_work_has_one_report_also_if_its_connection_is_reset_within_its_command(seed):
    """Opposite an engine that takes words at its own pace, and forgets all at a reset."""
    rng = random.Random(seed)
    dut = WorkPort(MOST)
    good = Opcode.RDMA_WRITE, *SENDS
    given = [(rng.choice(good if rng.random() < 0.8 else range(256)), rng.choice((0, 5)), rng.random() < 0.1)
             for _ in range(200)]  # fmt: skip
    posted, reported = deque(), Counter()  # the numbers of the work that the engine has, and kinds of reports

    async def post(ctx):
        for n, (opcode, octets, elsewhere) in enumerate(given):
            work = payload(opcode=opcode, octets=octets, address=n, connection=elsewhere)
            ctx.set(dut.work.payload.as_value(), work)
            ctx.set(dut.work.valid, 1)
            await until(ctx, dut.work.ready)
            ctx.set(dut.work.valid, 0)
            await pass_cycles(ctx, rng.choice((0, 0, 30)))
        while reported.total() < len(given):
            await ctx.tick()

    async def engine(ctx):
        enabled, command, accepted = True, [], 0
        while True:
            reset = rng.random() < 0.01
            enabled = not reset and (enabled or rng.random() < 0.05)
            ready, done = rng.random() < 0.5, bool(posted) and rng.random() < 0.03
            ctx.set(dut.clear.as_value()[0], reset)
            ctx.set(dut.enabled, enabled)
            ctx.set(dut.words.ready, ready)
            ctx.set(dut.done, done)
            _, takes, valid, word, is_done, failed = await ctx.tick(
                dut.work.valid & dut.work.ready, dut.words.valid, dut.words.payload, dut.work_reports.done,
                dut.work_reports.failed,
            )  # fmt: skip
            reported.update(done=is_done, failed=failed)
            assert is_done == (done and not reset)
            if valid and ready:
                command.append(word)
                if len(command) == 5 + 2 * (command[0] >> 8 & 1):
                    assert takes
                    assert (command[0] >> 28, command[0] & 0xF, command[1]) == (Command.WORK, *given[accepted][:2])
                    posted.append(accepted)
                    assert len(posted) <= MOST
                    command.clear()
            elif takes:
                opcode, _, elsewhere = given[accepted]
                assert failed == 1
                assert elsewhere or opcode not in good or not enabled
            accepted += takes
            if is_done:
                posted.popleft()
            if reset:
                assert failed == len(posted)
                posted.clear()
                command.clear()

    run(dut, post, engine, cycles=60_000)
    assert reported["done"] > 20
    assert reported["failed"] > 20
