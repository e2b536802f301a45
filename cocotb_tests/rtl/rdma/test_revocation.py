# amaranth: UnusedElaboratable=no
"""Revocation at any time: no octet is placed or read any more, and the stream ends in order. And the reset."""

import random

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.rtl.rdma.bench import MAY_INVALIDATE, Engine, cut_tagged, engine, request
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Untagged, decode
from open_rnic.rtl.rdma.registers import Right

STAG, AT, LENGTH = 0x5EED_0001, 0x2005, 900
SAME_ROW = STAG + 0x1000
TRIES = 24


def some(dut):
    """An engine whose memory and streams stall never, sometimes or mostly."""
    chance = random.choice([0, 0.3, 0.8])
    return Engine(dut, pauses(chance) if chance else never(), stalls(chance) if chance else never())


async def begin(end, mulpdu=200, **flags):
    await end.settle(150)
    end.sent.clear()
    end.given_up.clear()
    end.memory.touched.clear()
    await end.reset()
    await end.start(mulpdu=mulpdu, **flags)


@cocotb.parametrize(right=[Right.REMOTE_WRITE, Right.LOCAL_WRITE])
@bench()
async def a_region_is_revoked_while_it_is_written(dut, right):
    end = some(dut)
    size = random.choice([20, 186, 900])
    cut_off = 0
    for _ in range(TRIES):
        await begin(end)
        await end.region(STAG, AT, LENGTH, to=AT, rights=right)
        message = random.randbytes(LENGTH)
        opcode = Opcode.RDMA_WRITE
        if right is Right.LOCAL_WRITE:
            opcode = Opcode.RDMA_READ_RESPONSE
            await end.read(LENGTH, 1, 2, sink=STAG, address=AT)
            await end.settle()
        before = end.memory.get(AT, LENGTH)
        end.receive(*cut_tagged(opcode, STAG, AT, message, size))
        await end.cycles(random.randrange(LENGTH // 2 // parameter("lanes")))
        await end.revoke(STAG)
        await end.cycles(4)
        while await end.field("placing") and not await end.field("refused"):
            pass
        while await end.field("placing"):
            pass
        # A new region in its row, over the same memory.
        done = end.memory.get(AT, LENGTH)
        await end.region(SAME_ROW, AT, LENGTH, to=AT, rights=right)
        await end.settle()
        assert end.memory.get(AT, LENGTH) == done
        placed = len(end.memory.touched)
        assert done == message[:placed] + before[placed:]
        assert end.memory.touched == set(range(AT, AT + placed))
        whole = placed == LENGTH
        assert await end.field("refused") == (not whole)
        if not whole:
            cut_off += placed > 0
            refused, length = await end.refused()
            to = int.from_bytes(refused[6:14], "big") - AT
            assert refused[:2] == bytes([0xC1 if to + length - 14 == LENGTH else 0x81, 0x40 | opcode])
            assert to % size == 0
            assert to <= placed < to + size
        assert await end.done() == (0, whole and right is Right.LOCAL_WRITE)
    assert cut_off


@bench()
async def no_octet_of_a_region_comes_behind_four_ulpdus_that_follow_its_revocation(dut):
    """A host that has seen them need not wait for ``placing``, which others keep at 1; memory mostly stalls."""
    end = Engine(dut, busy=stalls(0.95, longest=60))
    under_way = placing = 0
    for _ in range(TRIES):
        await begin(end)
        await end.region(STAG, AT, LENGTH, to=AT, rights=Right.REMOTE_WRITE)
        await end.region(STAG + 1, 0x6000, LENGTH, rights=Right.REMOTE_WRITE)
        size = random.choice([30, 300])
        end.receive(Tagged(Opcode.RDMA_WRITE, STAG, AT, True, random.randbytes(size)))
        end.receive(*(Tagged(Opcode.RDMA_WRITE, STAG + 1, 0, True, random.randbytes(5)) for _ in range(40)))
        while not await end.field("received"):
            pass
        await end.revoke(STAG)
        under_way += len(end.memory.touched & set(range(AT, AT + size))) < size
        first = await end.field("received")
        while await end.field("received") < first + 4:
            pass
        placing += await end.field("placing")
        assert end.memory.touched >= set(range(AT, AT + size))
        await end.settle(150)
        assert not await end.field("refused")
    assert under_way
    assert placing


@bench()
async def a_source_is_revoked_while_it_is_read(dut):
    end = Engine(dut, pauses(0.5), stalls(0.6))
    end.gives_up = True
    cut_off = 0
    for _ in range(TRIES * max(1, parameter("lanes") // 4)):  # the wider, the shorter is the time of a ULPDU
        await begin(end, mulpdu=114)
        octets = random.choice([90, 450])
        await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_READ)
        end.receive(request(1, ReadRequest(7, 8, 5, STAG, 0)), request(2, ReadRequest(1, 1000, octets, STAG, 9)))
        message = end.memory.get(AT + 9, octets)
        await end.cycles(random.randrange(20, 60 + octets // parameter("lanes")))
        await end.revoke(STAG)
        await end.settle()
        first, *segments = [decode(each) for each in end.sent] or [None]
        if not await end.field("source_refused"):
            assert b"".join(each.payload for each in segments) == message
            assert await end.field("requests") == 0
            assert not end.given_up
            continue
        msn = await end.access("RX_READ_MSN") - await end.field("requests")
        assert not await end.field("sending")
        if msn == 1:  # before the first answer, or in it
            assert first is None
            assert await end.source() == ReadRequest(7, 8, 5, STAG, 0)
            assert await end.access("SOURCE_LEFT") == 5
            continue
        assert msn == 2
        assert first
        assert await end.source() == ReadRequest(1, 1000, octets, STAG, 9)
        left = await end.access("SOURCE_LEFT")
        assert b"".join(each.payload for each in segments) == message[: octets - left]
        assert len(end.given_up) <= 1
        cut_off += len(end.given_up)
    assert cut_off


@bench()
async def nothing_is_read_of_a_source_that_was_revoked(dut):
    """While memory stalls."""
    end = Engine(dut, busy=iter(lambda: random.choice([0, 0, 40]), None))
    end.gives_up = True
    for _ in range(TRIES):
        await begin(end)
        await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_READ)
        end.receive(request(1, ReadRequest(1, 2, LENGTH, STAG, 0)))
        await end.cycles(random.randrange(30, 400))
        await end.revoke(STAG)
        await end.cycles(50)  # the read that was offered then
        reads = end.memory.reads
        await end.settle(150)
        assert end.memory.reads == reads


@bench()
async def an_invalidated_source_is_not_read(dut):
    """The Send with Invalidate arrives while the Read Response is being sent."""
    end = some(dut)
    end.gives_up = True
    for _ in range(TRIES):
        await begin(end, mulpdu=64)
        await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_READ | MAY_INVALIDATE)
        await end.buffer(0x4000, 10)
        end.receive(request(1, ReadRequest(1, 1000, 400, STAG, 9)))
        await end.cycles(random.randrange(30, 150))
        end.receive(Untagged(Opcode.SEND_INVALIDATE, 0, 1, 0, True, b"octets", STAG))
        await end.settle()
        assert await end.received() == [(Opcode.SEND_INVALIDATE, 6, STAG)]
        refused = await end.field("source_refused")
        segments = [decode(each) for each in end.sent]
        left = await end.access("SOURCE_LEFT") if refused else 0
        assert b"".join(each.payload for each in segments) == end.memory.get(AT + 9, 400 - left)
        assert len(end.given_up) <= refused


@bench()
async def no_octets_leave_of_words_that_memory_could_not_read(dut):
    """Segments with such a word, and all behind them, are given up, and their messages are not done."""
    end = some(dut)
    end.gives_up = True
    for _ in range(TRIES):
        await begin(end, mulpdu=114)
        await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_READ)
        width, octets, wrong = 4 * parameter("lanes"), random.choice([4, 90, 450]), random.randrange(900)
        end.memory.faulty = {(AT + wrong) // width * width}
        end.receive(request(1, ReadRequest(1, 1000, octets, STAG, 0)))
        for n in range(2):
            await end.work(Opcode.RDMA_WRITE, (AT + 450 * n, 450), stag=7, to=1000 * n)
        await end.settle()
        segments = [decode(each) for each in end.sent]
        sent = {opcode: [each for each in segments if each.opcode is opcode] for opcode in (
            Opcode.RDMA_READ_RESPONSE, Opcode.RDMA_WRITE
        )}  # fmt: skip
        assert await end.field("memory_failed")
        assert not await end.field("sending")
        assert not await end.field("source_refused")
        assert end.given_up
        answer = b"".join(each.payload for each in sent[Opcode.RDMA_READ_RESPONSE])
        assert answer == end.memory.get(AT, len(answer))
        for each in sent[Opcode.RDMA_WRITE]:
            at = AT + each.to % 1000 + 450 * (each.to // 1000)
            assert bytes(each.payload) == end.memory.get(at, len(each.payload))
        assert (await end.done())[0] <= sum(each.last for each in sent[Opcode.RDMA_WRITE])
        await end.work(Opcode.RDMA_WRITE, (AT, 4), stag=7)
        before = len(end.sent), len(end.given_up)
        await end.settle()
        assert before == (len(end.sent), len(end.given_up))
        end.memory.faulty.clear()


@bench()
async def a_region_in_the_row_of_another_takes_its_place(dut):
    end = some(dut)
    await end.start()
    for n in range(5):
        await end.region(STAG + n * 0x1_0000, AT + 100 * n, 100, to=5, rights=Right.REMOTE_WRITE)
        end.receive(Tagged(Opcode.RDMA_WRITE, STAG + n * 0x1_0000, 5, True, bytes([n]) * 100))
        await end.settle()
        assert end.memory.get(AT + 100 * n, 100) == bytes([n]) * 100
    late = Tagged(Opcode.RDMA_WRITE, STAG, 5, True, b"late")
    end.memory.touched.clear()
    end.receive(late)
    await end.settle()
    await end.expect_refused(late)
    assert not end.memory.touched


@bench()
async def a_reset_forgets_everything(dut):
    """In the middle of everything; memory brings words of the time before the reset behind it."""
    end = Engine(dut, pauses(0.5, longest=12))
    late = 0
    for _ in range(TRIES):
        await end.start(mulpdu=random.choice([64, 200]))
        await end.region(STAG, AT, LENGTH)
        await end.work(Opcode.RDMA_WRITE, (AT + random.randrange(9), 300), stag=STAG)
        end.receive(*(request(msn, ReadRequest(1, 2, 300, STAG, 0)) for msn in range(1, 4)))
        await end.rx.drained()
        await end.cycles(random.randrange(100))
        late += len(end.memory.outstanding) > 0
        await end.reset()
        end.restart_sinks()
        await end.start()
        assert await end.field("requests") == 0
        await end.work(Opcode.RDMA_WRITE, (AT, 100), stag=5, to=6)
        assert await end.segments() == [Tagged(Opcode.RDMA_WRITE, 5, 6, True, end.memory.get(AT, 100))]
        assert await end.done() == (1, 0)
        await end.reset()
    assert late


@bench()
async def resets_while_memory_is_silent_do_not_mix_up_its_words(dut):
    end = Engine(dut)
    for resets in (1, 2, 7):
        end.memory.silent = True
        before = end.memory.reads
        for _ in range(resets):
            await end.start()
            await end.region(STAG, AT, LENGTH)
            end.receive(request(1, ReadRequest(1, 2, LENGTH, STAG, 0)))
            await end.work(Opcode.SEND, (AT + 1, 300))
            await end.cycles(300)
            await end.reset()
            end.restart_sinks()
        assert len(end.memory.outstanding) == end.memory.reads - before > 1
        await end.start()
        await end.work(Opcode.RDMA_WRITE, (AT, 100), stag=5, to=6)
        await end.cycles(300)
        end.memory.silent = False
        assert await end.segments() == [Tagged(Opcode.RDMA_WRITE, 5, 6, True, end.memory.get(AT, 100))]
        assert await end.done() == (1, 0)
        await end.reset()


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_revocation(lanes):
    simulate(engine(lanes), __name__, parameters={"lanes": lanes})
