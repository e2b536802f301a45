"""One data path of many connections at each width: mixed work end to end, cycles lost, and isolation."""

import functools
import json
import random
import sys
import tempfile
from pathlib import Path

import pytest
from cocotb.triggers import gather

from open_rnic.cocotb_tests.harness import bench, parameter, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import word_of
from open_rnic.cocotb_tests.harness.shared_ends import Lost, Shared
from open_rnic.cocotb_tests.mpa.fpdu import Checker
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.rdma.bench import cut_send, cut_tagged
from open_rnic.cocotb_tests.system.test_fence import TERMINATE
from open_rnic.host_driver.ddp import Opcode, Tagged
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.registers import DirectionState, EventKind, Role
from open_rnic.rtl.rnic.shared_datapath import SharedDatapath
from open_rnic.rtl.rnic.watcher import _Kind

CONNECTIONS = 4
RING, MEMORY = 1 << 14, 1 << 14
PART = MEMORY // CONNECTIONS  # of the memory, of each connection
SOURCE, TARGET, BUFFERS, SINK = 0, 0x400, 0x800, 0xC00  # in a part
AREA = 0x400
LANES = [1, 2, 4]
MULPDU = 1422  # of RDMA Writes of 1,408 octets, whose FPDUs are as long as those of a peer with an EMSS of 1,428
LOST = 4  # cycles, at a change of connection, on average over a turn
LOST_AT_ONE = 7  # with those of earlier changes that queues have moved
STARTUP = 20
LONG, SHORT, MIXED = (1408,) * 4, (256,) * 4, (1408, 256, 1000, 300)  # octets of each connection's messages


def path(lanes):
    return functools.partial(
        SharedDatapath, CONNECTIONS, RING, MEMORY, lanes, regions=16, buffers=8, work=16, reads=4
    )


def base(end):
    return end.n * PART


def stag(end, what):
    return 0x100 * (1 + end.n) + what // AREA


async def begin(end, source, mulpdu, **config):
    """Set up the connection, its memory and its regions; nothing is in MPA mode yet."""
    await end.start(mulpdu=mulpdu, ird=4, ord=4)
    await end.configure(STARTUP, **config)
    await end.put(base(end) + SOURCE, source)
    for what in (SOURCE, TARGET, SINK):
        await end.region(stag(end, what), base(end) + what, AREA)


async def start_up(end, peer):
    """Exchange startup frames, which nobody reads here, and enter MPA mode."""
    frame = random.randbytes(STARTUP)
    await end.write_stream(frame)
    assert await peer.read_stream(STARTUP) == frame


async def works(end, peer, rng):
    """Do random work; return what the memory of the peer's target, of its buffers, and of the own sink becomes."""
    source = bytes(end.source)
    target, sink, sent = bytearray(AREA), bytearray(AREA), []

    def some(least=0):
        size = rng.choice((least, rng.randint(least, 20), rng.randint(least, 250), 4 * rng.randint(1, 60)))
        return rng.randrange(AREA - size), size, rng.randrange(AREA - size)

    for _ in range(12):
        at, size, to = some()
        match rng.choice(("write", "write", "read", "send")):
            case "write":
                half = rng.randint(0, size)
                pieces = [(at, half), (at + half, size - half)] if 0 < half < size else [(at, size)]
                await end.work(Opcode.RDMA_WRITE, *((base(end) + first, octets) for first, octets in pieces),
                               stag=stag(peer, TARGET), to=to)  # fmt: skip
                end.posted += 1
                target[to : to + size] = source[at : at + size]
            case "send" if len(sent) < 4:
                size = min(size, AREA // 4)
                await end.work(Opcode.SEND, (base(end) + at, size))
                end.posted += 1
                sent.append(source[at : at + size])
            case _:
                at, size, to = some(1)
                if end.reads_posted < 4:  # each has a sink region of its own
                    number = end.reads_posted
                    end.reads_posted += 1
                    size, to = min(size, AREA // 4), number * AREA // 4
                    name = 0x1000 * (1 + end.n) + 4 + number
                    await end.region(name, base(end) + SINK + to, size, to=base(end) + SINK + to)
                    await end.read(size, stag(peer, SOURCE), at, sink=name, address=base(end) + SINK + to)
                    sink[to : to + size] = peer.source[at : at + size]
    return target, sink, sent


@bench(cycles=3_000_000)
async def mixed_work_of_all_connections_is_done(dut):
    rng = random.Random(random.getrandbits(64))
    shared = Shared(dut, CONNECTIONS, RING, {n: n ^ 1 for n in range(CONNECTIONS)}, stalls(0.2))
    pairs = [(end, shared.ends[end.n ^ 1]) for end in shared.ends]
    options = [{"markers_tx": rng.getrandbits(1), "crc_tx": rng.getrandbits(1)} for _ in shared.ends]
    for end, peer in pairs:
        end.source, end.reads_posted, end.posted = rng.randbytes(AREA), 0, 0
        its, theirs = options[end.n], options[peer.n]
        role = Role.RESPONDER if end.n & 1 else Role.INITIATOR
        await begin(end, end.source, rng.choice((64, 80, 200)), role=role, **its,
                    markers_rx=theirs["markers_tx"], crc_rx=theirs["crc_tx"])  # fmt: skip
        for k in range(4):
            await end.buffer(base(end) + BUFFERS + k * AREA // 4, AREA // 4)
    for end, peer in pairs:
        await start_up(end, peer)
    for end in shared.ends:
        await end.enter()
    expected = await gather(*(works(end, peer, rng) for end, peer in pairs))
    for end, peer in pairs:
        target, sink, sent = expected[end.n]
        await peer.until("all Sends have come", functools.partial(has_come, peer, sent))
        await end.until("all messages are done", functools.partial(is_done, end))
    await shared.settle()
    for end, peer in pairs:
        target, sink, sent = expected[end.n]
        for where, what, octets in ((peer, TARGET, target), (end, SINK, sink)):
            assert await where.fetch(base(where) + what, AREA) == octets, (end.n, what)
        for k, octets in enumerate(sent):
            found = await peer.fetch(base(peer) + BUFFERS + k * AREA // 4, AREA // 4)
            assert found[: len(octets)] == octets
        assert await end.fetch(base(end) + SOURCE, AREA) == end.source
    for end, peer in pairs:
        config = options[end.n]
        checker = Checker(markers=bool(config["markers_tx"]), crc=bool(config["crc_tx"]))
        startup, *fpdus = end.sent
        assert len(startup) == STARTUP
        for octets in fpdus:  # each is a packet
            [fpdu] = checker.feed(octets)
            assert not fpdu.problems
        octets = sum(map(len, fpdus))
        sent, received = await end.counters(), await peer.counters()
        assert (sent["TX_FPDUS"], sent["TX_OCTETS_LO"]) == (len(fpdus), octets)
        assert (received["RX_FPDUS"], received["RX_OCTETS_LO"]) == (len(fpdus), octets)
        assert received["RX_MARKERS"] == sent["TX_MARKERS"]
        assert received["RX_CRC_ERRORS"] == 0
        assert await end.errors() == []
        assert await end.refused() is None


async def has_come(end, sent):
    found = getattr(end, "found", [])
    end.found = found + await end.received()
    assert [octets for _, octets, _ in end.found] == [len(each) for each in sent][: len(end.found)]
    return len(end.found) == len(sent)


async def is_done(end):
    return await end.done() == (end.posted, end.reads_posted)


async def opened(shared, **config):
    """Let all connections enter MPA mode as initiators; the last two of them have markers."""
    for end in shared.ends:
        await end.start(mulpdu=MULPDU, ird=4, ord=4)
        await end.configure(0, markers_tx=end.n >> 1, markers_rx=end.n >> 1, **config)
        await end.region(stag(end, TARGET), base(end), PART)
        await end.enter()
        await end.until("it is in MPA mode", functools.partial(is_open, end))


async def is_open(end):
    return await end.get("STATE") == word_of("STATE", tx=DirectionState.MPA, rx=DirectionState.MPA, fence_open=1)


def named(sizes):
    return " to ".join(str(each) for each in sorted({min(sizes), max(sizes)}))


def report(dut, way, what, lost):
    """Check how many cycles were lost at a change of connection, without the first and the last ones.

    Blocks have queues, so what is lost at one change may stall the next packet: a change is one of those of a turn of
    all connections, and the turn in which most cycles are lost counts.
    """
    changes = lost.changes()[CONNECTIONS:-CONNECTIONS]
    assert len(changes) >= 2 * CONNECTIONS
    turns = [sum(changes[at : at + CONNECTIONS]) / CONNECTIONS for at in range(len(changes) - CONNECTIONS + 1)]
    figures = {
        "lanes": parameter("lanes"), "way": way, "what": what, "average": sum(changes) / len(changes),
        "turn": max(turns), "packet": max(changes),
    }  # fmt: skip
    dut._log.info("%s", figures)
    if outcome := parameter("outcome"):
        with Path(outcome).open("a") as file:
            file.write(json.dumps(figures) + "\n")
    assert figures["turn"] <= LOST, figures
    assert figures["packet"] <= LOST_AT_ONE, figures


@bench(cycles=1_000_000)
async def few_cycles_are_lost_in_transmit(dut):
    shared = Shared(dut, CONNECTIONS, RING, {})
    await opened(shared)
    for sizes, segments in ((LONG, 1), (LONG, 3), (SHORT, 1), (MIXED, 1)):
        for end, octets in zip(shared.ends, sizes, strict=True):
            await end.control(stop=1)
            for _ in range(8 // segments):
                await end.work(Opcode.RDMA_WRITE, (base(end), octets * segments), stag=1)
        lost = Lost(dut, "to_send")
        for end in shared.ends:
            await end.control()
        await shared.settle()
        report(dut, "transmit", named(sizes) + (f" in each of {segments} segments" if segments > 1 else ""), lost)
        lost.stop()


@bench(cycles=1_000_000)
async def few_cycles_are_lost_in_receive(dut):
    shared = Shared(dut, CONNECTIONS, RING, {})
    await opened(shared)
    framers = [FpduFramer(markers=bool(end.n & 2), crc=True) for end in shared.ends]
    for sizes in (LONG, SHORT, MIXED):
        dut.accept.value = 0
        written = [random.randbytes(octets) for octets in sizes]
        for end, framer in zip(shared.ends, framers, strict=True):
            fpdu = Tagged(Opcode.RDMA_WRITE, stag(end, TARGET), 0, True, written[end.n]).encode()
            for _ in range(10):
                shared.rings.deliver(end.n, framer.frame(fpdu))
        await shared.ends[0].cycles(200)
        lost = Lost(dut, "rings__o", train_of)
        dut.accept.value = (1 << CONNECTIONS) - 1
        await shared.settle()
        report(dut, "receive", named(sizes), lost)
        lost.stop()
        for end in shared.ends:
            assert await end.fetch(base(end), len(written[end.n])) == written[end.n]


def train_of(beat):
    tag = beat.fields["tag"]
    return tag >> 2 & CONNECTIONS - 1 if tag & 3 == _Kind.TRAIN.value else None


async def disturb(failing, refusing, rng):
    """A wrong CRC, a Terminate and a reset for one connection; a refused RDMA Write, then no room, for another one."""
    rings = failing.shared.rings
    framers = [FpduFramer(markers=bool(end.n & 2), crc=True) for end in (failing, refusing)]
    for kind in ("crc", "reset", "refused", "terminate", "room"):
        await failing.cycles(rng.randint(50, 300))
        match kind:
            case "crc":
                fpdu = framers[0].frame(bytes(100))
                rings.deliver(failing.n, fpdu[:-1] + bytes([fpdu[-1] ^ 1]) + framers[0].frame(bytes(40)))
                await failing.until("the error is reported", functools.partial(has_failed, failing))
            case "reset":
                for _ in range(4):
                    await failing.work(Opcode.RDMA_WRITE, (base(failing), AREA), stag=1)
                await failing.set("CONTROL", word_of("CONTROL", reset=1))
            case "refused":
                wrong = Tagged(Opcode.RDMA_WRITE, 0xBAD, 0, True, bytes(300)).encode()
                rings.deliver(refusing.n, framers[1].frame(wrong))
                await refusing.until("the RDMA Write is refused", refusing.refused)
            case "terminate":
                await refusing.write_stream(TERMINATE)
            case "room":
                await refusing.until("the Terminate leaves", functools.partial(has_terminated, refusing))
                refusing.dut.room.value = refusing.dut.room.value.to_unsigned() & ~(1 << refusing.n)


async def has_terminated(end):
    return end.sent[-1][2:-4] == TERMINATE


async def has_failed(end):
    return bool(await end.get("ERROR"))


@bench(cycles=1_000_000)
async def what_happens_to_some_connections_changes_nothing_of_others(dut):
    rng = random.Random(random.getrandbits(64))
    shared = Shared(dut, CONNECTIONS, RING, {2: 3, 3: 2}, stalls(0.2))
    await opened(shared)
    failing, refusing, *others = shared.ends
    pairs = list(zip(others, reversed(others), strict=True))
    source = rng.randbytes(AREA)
    expected = {}
    for end, _ in pairs:
        await end.limits(100, 4, 4)
        await end.put(base(end) + SOURCE, source)
        await end.region(stag(end, SINK), base(end) + SINK, AREA)
        for k in range(4):
            await end.buffer(base(end) + BUFFERS + k * AREA // 4, AREA // 4)
        expected[end.n] = []
    for peer in (failing, refusing):
        await peer.work(Opcode.RDMA_WRITE, (base(peer), 900), stag=1)

    async def work(end, peer):
        name, framer = stag(peer, SINK), FpduFramer(markers=bool(end.n & 2), crc=True)
        for msn in range(1, 5):
            size = rng.randint(600, AREA)
            await end.work(Opcode.RDMA_WRITE, (base(end), size), stag=name, to=0)
            await end.work(Opcode.SEND, (base(end), 4 * msn))
            segments = cut_tagged(Opcode.RDMA_WRITE, name, 0, source[:size], 100 - 14)
            segments += cut_send(Opcode.SEND, msn, source[: 4 * msn], 100 - 18)
            expected[end.n] += [framer.frame(each.encode()) for each in segments]

    await gather(disturb(failing, refusing, rng), *(work(*pair) for pair in pairs))
    sends = [source[: 4 * k] for k in range(1, 5)]
    for _, peer in pairs:
        await peer.until("all Sends have come", functools.partial(has_come, peer, sends))
    await shared.settle()
    for end, peer in pairs:
        assert end.sent == expected[end.n]
        octets = sum(map(len, expected[end.n]))
        markers = -(-octets // 512) if end.n & 2 else 0
        sent, received = await end.counters(), await peer.counters()
        assert (sent["TX_FPDUS"], sent["TX_OCTETS_LO"], sent["TX_MARKERS"]) == (len(end.sent), octets, markers)
        assert (received["RX_FPDUS"], received["RX_OCTETS_LO"], received["RX_CRC_ERRORS"]) == (len(end.sent), octets, 0)
        kinds = sorted(each.kind for each in await end.events())
        assert kinds == sorted((EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN))
        assert await end.fetch(base(end) + SOURCE, AREA) == source
        assert (await end.fetch(base(end) + SINK, AREA))[:600] == source[:600]
        assert await end.refused() is None


@pytest.mark.parametrize("lanes", widths(*LANES))
@pytest.mark.parametrize("bench", [
    mixed_work_of_all_connections_is_done, few_cycles_are_lost_in_transmit, few_cycles_are_lost_in_receive,
    what_happens_to_some_connections_changes_nothing_of_others,
])  # fmt: skip
def test_shared_datapath(bench, lanes):
    simulate(path(lanes), bench, parameters={"lanes": lanes, "outcome": ""})


def main():
    """Print the cycles lost at a change of connection: ``python -m`` with widths as arguments (default: 1 2 4)."""
    print("| lanes | way | octets of RDMA Writes | average | worst turn | most with one packet |")
    print("| --: | --- | --: | --: | --: | --: |")
    for lanes in map(int, sys.argv[1:] or LANES):
        with tempfile.TemporaryDirectory() as folder:
            outcome = Path(folder) / "lost"
            parameters = {"lanes": lanes, "outcome": str(outcome)}
            benches = few_cycles_are_lost_in_transmit, few_cycles_are_lost_in_receive
            simulate(path(lanes), *benches, parameters=parameters)
            for line in outcome.read_text().splitlines():
                each = json.loads(line)
                print(f"| {lanes} | {each['way']} | {each['what']} | {each['average']:.1f} | "
                      f"{each['turn']:.1f} | {each['packet']} |")  # fmt: skip


if __name__ == "__main__":
    main()
