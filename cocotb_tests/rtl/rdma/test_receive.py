# amaranth: UnusedElaboratable=no
"""Receive of the RDMA engine: messages are placed where they belong, and nothing else is written."""

import random

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import bench, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.rdma.bench import (
    MAY_INVALIDATE,
    Engine,
    cut_send,
    cut_tagged,
    engine,
    request,
)
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Untagged
from open_rnic.rtl.formats.opcodes import INVALIDATES
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers import Rtr

STAG, TO, AT, LENGTH = 0xABCDE_123, 0x1_FFFF_FF00, 0x1003, 2000


def slow(dut):
    return Engine(dut, pauses(0.2), stalls(0.2))


def sizes(width):
    return [*range(width + 3), 2 * width - 1, 2 * width, 2 * width + 1, 3 * width + 2, 186]


def around(address, octets):
    return set(range(address, address + octets))


@cocotb.parametrize(make=[Engine, slow])
@bench()
async def rdma_writes_of_all_sizes_are_placed(dut, make):
    """At random addresses, and of all sizes around the width."""
    end = make(dut)
    await end.start()
    await end.region(STAG, AT, 8000, to=TO, rights=Right.REMOTE_WRITE)
    at, expected = 0, []
    for size in sizes(end.rx.octets_per_beat):
        message = random.randbytes(size)
        end.receive(Tagged(Opcode.RDMA_WRITE, STAG, TO + at, True, message))
        expected.append((at, message))
        at += size + random.randrange(3)
    await end.settle()
    for offset, message in expected:
        assert end.memory.get(AT + offset, len(message)) == message
    assert end.memory.touched == {
        address for offset, message in expected for address in around(AT + offset, len(message))
    }
    assert await end.refused() is None
    assert await end.field("received") == len(expected)


@bench()
async def a_region_is_written_from_its_first_to_its_last_octet(dut):
    end = slow(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH, to=TO, rights=Right.REMOTE_WRITE)
    message = random.randbytes(LENGTH)
    segments = cut_tagged(Opcode.RDMA_WRITE, STAG, TO, message, random.choice([37, 100, 186, 1500]))
    end.receive(*segments)
    await end.settle()
    assert end.memory.get(AT, LENGTH) == message
    assert end.memory.touched == around(AT, LENGTH)
    assert await end.field("received") == len(segments)


@bench()
async def a_write_that_has_not_ended_is_shown(dut):
    end = Engine(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH)
    assert not await end.field("write_begun")
    end.receive(Tagged(Opcode.RDMA_WRITE, STAG, 0, False, b"begins"))
    await end.settle()
    assert await end.field("write_begun")
    end.receive(Tagged(Opcode.RDMA_WRITE, STAG, 6, True, b""))
    await end.settle()
    assert not await end.field("write_begun")
    assert end.memory.get(AT, 6) == b"begins"


@bench()
async def sends_of_all_sizes_are_placed_in_their_buffers(dut):
    end = slow(dut)
    await end.start()
    msn = 1
    for size in sizes(end.rx.octets_per_beat):
        opcode = random.choice([Opcode.SEND, Opcode.SEND_SE])
        address = AT + random.randrange(64)
        room = size + random.choice([0, 1, 100])
        message = random.randbytes(size)
        await end.buffer(address, room)
        end.memory.touched.clear()
        end.receive(*cut_send(opcode, msn, message, random.choice([1 + size // 2, 1 + size // 3, 186])))
        await end.settle()
        assert await end.received() == [(opcode, size, None)]
        assert end.memory.get(address, size) == message
        assert end.memory.touched == around(address, size)
        msn += 1
        assert await end.access("RX_SEND_MSN") == msn


@bench()
async def sends_take_the_buffers_in_their_order(dut):
    """More Sends than buffers; segments of no octets, too."""
    end = slow(dut)
    await end.start()
    messages = [random.randbytes(random.choice([0, 1, 30, 90])) for _ in range(12)]
    for msn, message in enumerate(messages, 1):
        half = len(message) // 2
        end.receive(*cut_send(Opcode.SEND, msn, message, [half, 0, len(message) - half]))
    for n, message in enumerate(messages):
        address = 0x200 * n + 5
        await end.buffer(address, len(message))
        await end.settle()
        assert await end.received() == [(Opcode.SEND, len(message), None)]
        assert end.memory.get(address, len(message)) == message
    assert await end.access("RX_MO") == 0
    assert await end.refused() is None


@bench()
async def a_send_without_a_buffer_stalls(dut):
    end = Engine(dut)
    await end.start(waits=1)
    message = random.randbytes(50)
    await end.region(STAG, AT, LENGTH)
    end.receive(*cut_send(Opcode.SEND, 1, message, 20), Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"behind it"))
    await end.settle()
    assert await end.field("blocked")
    assert not end.memory.touched
    assert not await end.received()
    await end.buffer(0x3001, 50)
    await end.settle()
    assert not await end.field("blocked")
    assert await end.received() == [(Opcode.SEND, 50, None)]
    assert end.memory.get(0x3001, 50) == message
    assert end.memory.get(AT, 9) == b"behind it"


@bench()
async def a_send_without_a_buffer_is_refused_unless_the_engine_waits(dut):
    end = Engine(dut)
    await end.start(waits=0)
    send = Untagged(Opcode.SEND, 0, 1, 0, True, b"octets")
    end.receive(send)
    await end.settle()
    await end.expect_refused(send)
    assert not end.memory.touched


@cocotb.parametrize(waits=[0, 1])
@bench()
async def a_send_without_a_buffer_is_dropped(dut, waits):
    """MSNs and MOs count on."""
    end = Engine(dut)
    await end.start(waits=waits, drops=1)
    await end.region(STAG, AT, LENGTH)
    end.receive(
        *cut_send(Opcode.SEND, 1, bytes(50), 20),
        Untagged(Opcode.SEND_SE, 0, 2, 0, False, b"begins"),
        Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"behind them"),
    )
    await end.settle()
    assert await end.refused() is None
    assert not await end.received()
    assert (await end.access("RX_SEND_MSN"), await end.access("RX_MO")) == (2, 6)
    assert await end.field("send_begun")
    assert end.memory.touched == around(AT, 11)


@bench()
async def a_blocked_send_is_dropped_once_the_host_says_so(dut):
    end = Engine(dut)
    await end.start(waits=1)
    await end.region(STAG, AT, LENGTH)
    end.receive(Untagged(Opcode.SEND, 0, 1, 0, True, b"octets"), Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"behind"))
    await end.settle()
    await end.control(drops=1)
    await end.settle()
    assert not await end.field("blocked")
    assert await end.access("RX_SEND_MSN") == 2
    assert end.memory.touched == around(AT, 6)


@bench()
async def a_withdrawn_buffer_takes_no_send(dut):
    """The buffers are given back in their order, those of no Send as soon as they are the oldest."""
    end = slow(dut)
    await end.start()
    for n in range(4):
        await end.buffer(0x1000 * n, 100)
    await end.withdraw(2)
    await end.settle()
    assert not await end.received()
    await end.withdraw(0)
    await end.settle()
    assert await end.received() == [None]
    end.receive(*cut_send(Opcode.SEND, 1, b"first", 2), *cut_send(Opcode.SEND_SE, 2, b"second", 2))
    await end.settle()
    assert await end.received() == [(Opcode.SEND, 5, None), None, (Opcode.SEND_SE, 6, None)]
    assert (end.memory.get(0x1000, 5), end.memory.get(0x3000, 6)) == (b"first", b"second")
    assert end.memory.touched == around(0x1000, 5) | around(0x3000, 6)
    await end.withdraw(1)  # it has been given back
    await end.buffer(0x1000, 100)
    end.receive(Untagged(Opcode.SEND, 0, 3, 0, True, b"third"))
    await end.settle()
    assert await end.received() == [(Opcode.SEND, 5, None)]


async def withdraw(end, number, after):
    await end.cycles(after)
    await end.withdraw(number)


@cocotb.parametrize(make=[Engine, slow], waits=[0, 1])
@bench(cycles=2_000_000)
async def a_buffer_may_be_withdrawn_at_any_time(dut, make, waits):
    """A Send comes in this buffer as a whole, or in the next one as a whole."""
    end = make(dut)
    await end.start(waits=waits)
    used = set()
    for n in range(80):
        first, second = 0x400 * (2 * n % 50), 0x400 * (2 * n % 50 + 1)
        await end.buffer(first, 100)
        await end.buffer(second, 100)
        message = random.randbytes(60)
        withdrawing = cocotb.start_soon(withdraw(end, 2 * n, after=n + 1))
        await end.cycles(40)
        end.receive(*cut_send(Opcode.SEND, n + 1, message, random.choice([[60], [20, 40]])))
        await withdrawing
        await end.settle()
        found = await end.received()
        if found[0] is None:
            assert found == [None, (Opcode.SEND, 60, None)]
            address = second
        else:
            assert found == [(Opcode.SEND, 60, None)]
            await end.withdraw(2 * n + 1)
            await end.settle()
            assert await end.received() == [None]
            address = first
        used.add(address == first)
        assert end.memory.get(address, 60) == message
        assert end.memory.touched == around(address, 60)
        end.memory.touched.clear()
        assert await end.refused() is None
    assert used == {True, False}


@cocotb.parametrize(opcode=INVALIDATES)
@bench()
async def a_send_invalidates_an_stag(dut, opcode):
    """With its last segment; what was placed before stays."""
    end = slow(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_WRITE | MAY_INVALIDATE)
    await end.region(STAG + 1, AT, LENGTH, rights=Right.REMOTE_WRITE | MAY_INVALIDATE)
    await end.buffer(0x4000, 40)
    first, last = cut_send(opcode, 1, random.randbytes(40), 20, stag=STAG)
    end.receive(first, Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"still"), last)
    end.receive(Tagged(Opcode.RDMA_WRITE, STAG + 1, 9, True, b"another"))
    await end.settle()
    assert await end.received() == [(opcode, 40, STAG)]
    assert end.memory.get(AT, 5) == b"still"
    assert end.memory.get(AT + 9, 7) == b"another"
    assert await end.refused() is None
    end.memory.touched.clear()
    late = Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"too late")
    end.receive(late)
    await end.settle()
    await end.expect_refused(late)
    assert not end.memory.touched


@bench()
async def nothing_behind_a_send_with_invalidate_is_placed(dut):
    """The Write follows the Send without a pause."""
    end = Engine(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH, rights=Right.REMOTE_WRITE | MAY_INVALIDATE)
    await end.buffer(0x4000, 40)
    late = Tagged(Opcode.RDMA_WRITE, STAG, 0, True, random.randbytes(100))
    end.receive(Untagged(Opcode.SEND_INVALIDATE, 0, 1, 0, True, b"", STAG), late)
    await end.settle()
    await end.expect_refused(late)
    assert await end.received() == [(Opcode.SEND_INVALIDATE, 0, STAG)]
    assert not end.memory.touched


@bench()
async def read_responses_are_placed_in_their_sinks(dut):
    """Of all sizes around the width, four RDMA Reads at a time, and in several segments."""
    end = slow(dut)
    await end.start(mulpdu=200, ord=4)
    reads = 0
    todo = sizes(end.rx.octets_per_beat)
    while todo:
        now, todo = todo[:4], todo[4:]
        messages = [random.randbytes(size) for size in now]
        for n, message in enumerate(messages):
            address = 0x1000 * (n + 1) + random.randrange(64)
            await end.region(0x700 + n, address, len(message), to=address, rights=Right.LOCAL_WRITE)
            await end.read(len(message), 0x99, 0x1234_5678_9ABC, sink=0x700 + n, address=address)
        asked = [ReadRequest.decode(each.payload) for each in await end.segments()]
        assert [each.size for each in asked] == now
        assert {(each.source_stag, each.source_to) for each in asked} == {(0x99, 0x1234_5678_9ABC)}
        assert await end.field("reads") == len(now)
        end.memory.touched.clear()
        for each, message in zip(asked, messages, strict=True):
            pieces = random.choice([1 + len(message) // 2, 186])
            end.receive(*cut_tagged(Opcode.RDMA_READ_RESPONSE, each.sink_stag, each.sink_to, message, pieces))
        await end.settle()
        for each, message in zip(asked, messages, strict=True):
            assert end.memory.get(each.sink_to, each.size) == message
        assert end.memory.touched == set().union(*(around(each.sink_to, each.size) for each in asked))
        reads += len(now)
        assert await end.done() == (0, reads)
        assert await end.field("reads") == 0
    assert await end.refused() is None


@bench()
async def what_has_arrived_of_a_read_response_is_shown(dut):
    end = Engine(dut)
    await end.start()
    await end.region(0x700, AT, 100, to=AT, rights=Right.LOCAL_WRITE)
    await end.read(100, 1, 2, sink=0x700, address=AT)
    await end.settle()
    assert await end.access("RX_ARRIVED") == 0
    end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, 0x700, AT, False, bytes(30)))
    await end.settle()
    assert await end.access("RX_ARRIVED") == 30
    assert await end.done() == (0, 0)


@bench()
async def requests_are_discarded_when_shut(dut):
    end = Engine(dut)
    await end.start(ird=1, shut=1)
    await end.region(STAG, AT, LENGTH)
    for msn in (1, 2, 3):
        end.receive(request(msn, ReadRequest(1, 2, 10, STAG, 0)))
    assert not await end.segments()
    assert await end.access("RX_READ_MSN") == 4
    assert await end.field("requests") == 0
    await end.control()
    end.receive(request(4, ReadRequest(1, 2, 10, STAG, 0)))
    assert await end.segments() == [Tagged(Opcode.RDMA_READ_RESPONSE, 1, 2, True, end.memory.get(AT, 10))]


@bench()
async def an_rtr_has_the_first_msn(dut):
    """A Send RTR and a Read RTR of the peer."""
    end = Engine(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH)
    for rtr in (Rtr.SEND, Rtr.READ):
        dut.rtr__received.value = rtr
        await end.cycles(1)
    dut.rtr__received.value = Rtr.NONE
    await end.buffer(0x3000, 10)
    end.receive(Untagged(Opcode.SEND, 0, 2, 0, True, b"octets"), request(2, ReadRequest(1, 2, 3, STAG, 4)))
    assert await end.segments() == [Tagged(Opcode.RDMA_READ_RESPONSE, 1, 2, True, end.memory.get(AT + 4, 3))]
    assert await end.received() == [(Opcode.SEND, 6, None)]


@bench()
async def a_disabled_engine_passes_everything_to_the_host(dut):
    end = slow(dut)
    ulpdus = [random.randbytes(random.randrange(1, 100)) for _ in range(20)]
    end.receive(*ulpdus)
    await end.settle()
    assert end.passed == ulpdus
    assert not await end.field("passed")
    assert await end.field("received") == 0
    await end.start()
    await end.region(STAG, AT, LENGTH)
    end.receive(Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"octets"))
    await end.settle()
    assert end.memory.touched == around(AT, 6)
    assert end.passed == ulpdus


@bench()
async def the_interrupt_reports_each_change(dut):
    end = Engine(dut)
    await end.start()

    async def irq():
        await end.settle()
        return int(dut.irq.value)

    await end.field("ready")  # clears the interrupt of the reset
    assert not await irq()
    await end.buffer(AT, 10)
    end.receive(Untagged(Opcode.SEND, 0, 1, 0, True, b"octets"))
    assert await irq()
    await end.received()
    assert not await irq()
    await end.work(Opcode.SEND, (AT, 10))
    assert await irq()
    assert await end.done() == (1, 0)
    assert not await irq()
    end.receive(Untagged(Opcode.SEND, 0, 2, 0, True, b"no buffer"))
    assert await irq()
    assert await end.field("blocked")
    assert not await irq()
    await end.control(waits=0)
    assert await irq()
    assert await end.field("refused")
    assert not await irq()


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_receive(lanes):
    simulate(engine(lanes), __name__, parameters={"lanes": lanes})
