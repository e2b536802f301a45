# amaranth: UnusedElaboratable=no
"""Transmit of the RDMA engine: messages of the host, answers to the peer, and ULPDUs of the host between them."""

import random

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import bench, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.rdma.bench import OCTETS, Engine, engine, request
from open_rnic.host_driver.ddp import (
    TAGGED_OCTETS,
    UNTAGGED_OCTETS,
    Opcode,
    ReadRequest,
    Tagged,
    Terminate,
    Untagged,
    decode,
    tagged_segments,
    untagged_segments,
)
from open_rnic.host_driver.ddp.faults import Fault
from open_rnic.rtl.formats.opcodes import INVALIDATES, SENDS
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.rdma.registers import Right
from open_rnic.rtl.registers import Rtr

STAG, TO = 0xABCD_0003, 0xFFFF_FFFF_FFF0


def slow(dut):
    return Engine(dut, pauses(0.2), stalls(0.2))


def sizes(width, mulpdu, header):
    room = mulpdu - header
    around = (2 * width, room, 2 * room)
    return [*range(width + 2), *(size + more for size in around for more in (-1, 0, 1))]


def place(octets):
    """Return a random address for this many octets."""
    return random.randrange(OCTETS - octets - 64)


def cut(octets, pieces):
    """Cut octets into at most this many pieces of random places."""
    ends = sorted({random.randint(1, octets) for _ in range(pieces - 1)} | {octets}) if octets else []
    return [(place(end - start), end - start) for start, end in zip([0, *ends], ends, strict=False)]


async def all_of(end):
    await end.settle()
    found, end.sent = end.sent, []
    return found


@bench()
async def rdma_writes_of_all_sizes_are_sent(dut):
    end = slow(dut)
    await end.start(mulpdu=200)
    todo = sizes(end.rx.octets_per_beat, 200, TAGGED_OCTETS)
    for done, size in enumerate(todo, 1):
        at, to = place(size), TO + random.getrandbits(60)
        await end.work(Opcode.RDMA_WRITE, (at, size), stag=STAG, to=to)
        message = end.memory.get(at, size)
        assert await all_of(end) == list(tagged_segments(Opcode.RDMA_WRITE, STAG, to, message, 200))
        assert await end.done() == (done, 0)
    assert not end.memory.touched


@cocotb.parametrize(opcode=SENDS)
@bench()
async def sends_of_all_sizes_are_sent(dut, opcode):
    end = slow(dut)
    await end.start(mulpdu=130)
    for msn, size in enumerate(sizes(end.rx.octets_per_beat, 130, UNTAGGED_OCTETS), 1):
        at = place(size)
        stag = STAG if opcode in INVALIDATES else 0
        await end.work(opcode, (at, size), stag=stag)
        message = end.memory.get(at, size)
        assert await all_of(end) == list(untagged_segments(opcode, 0, msn, message, 130, stag=stag))


@bench()
async def messages_are_gathered_from_pieces(dut):
    """Of any size, at any address; a segment may end in any of them."""
    end = slow(dut)
    await end.start(mulpdu=64)
    for msn in range(1, 40):
        pieces = cut(random.choice([1, 2, 45, 46, 47, 100, 300]), random.randint(1, 6))
        await end.work(Opcode.SEND, *pieces)
        message = b"".join(end.memory.get(*piece) for piece in pieces)
        assert await all_of(end) == list(untagged_segments(Opcode.SEND, 0, msn, message, 64))


@bench()
async def a_message_of_no_octets_needs_no_pieces(dut):
    end = slow(dut)
    await end.start()
    await end.work(Opcode.SEND)
    await end.work(Opcode.RDMA_WRITE, stag=STAG, to=TO)
    await end.work(Opcode.SEND_SE, (0x1000, 3))
    assert await end.segments() == [
        Untagged(Opcode.SEND, 0, 1, 0, True),
        Tagged(Opcode.RDMA_WRITE, STAG, TO, True),
        Untagged(Opcode.SEND_SE, 0, 2, 0, True, end.memory.get(0x1000, 3)),
    ]
    assert await end.done() == (3, 0)


@bench()
async def the_mulpdu_applies_to_the_next_segments(dut):
    end = Engine(dut)
    await end.start(mulpdu=64)
    await end.work(Opcode.RDMA_WRITE, (0x1000, 200), stag=STAG)
    assert [len(each.payload) for each in await end.segments()] == [50, 50, 50, 50]
    await end.limits(114, 4, 4)
    await end.work(Opcode.RDMA_WRITE, (0x1000, 200), stag=STAG)
    assert [len(each.payload) for each in await end.segments()] == [100, 100]


@bench()
async def the_largest_ulpdu_is_sent(dut):
    end = Engine(dut)
    await end.start(mulpdu=64_768)
    await end.work(Opcode.RDMA_WRITE, (1, 64_760), stag=STAG, to=TO)
    await end.settle(2000)
    assert end.sent == list(tagged_segments(Opcode.RDMA_WRITE, STAG, TO, end.memory.get(1, 64_760), 64_768))


@bench()
async def read_requests_of_all_sizes_are_answered(dut):
    end = slow(dut)
    await end.start(mulpdu=200)
    await end.region(STAG, 0x1003, 3000, to=TO, rights=Right.REMOTE_READ)
    for msn, size in enumerate(sizes(end.rx.octets_per_beat, 200, TAGGED_OCTETS), 1):
        at = random.randint(0, 3000 - size)
        sink = random.getrandbits(32), random.getrandbits(63)
        end.receive(request(msn, ReadRequest(*sink, size, STAG, TO + at)))
        message = end.memory.get(0x1003 + at, size)
        assert await all_of(end) == list(tagged_segments(Opcode.RDMA_READ_RESPONSE, *sink, message, 200))
        assert await end.field("requests") == 0


@bench()
async def a_source_is_read_from_its_first_to_its_last_octet(dut):
    end = Engine(dut)
    await end.start()
    await end.region(STAG, 0x1003, 300, to=2**64 - 301, rights=Right.REMOTE_READ)
    end.receive(request(1, ReadRequest(1, 2, 300, STAG, 2**64 - 301)))
    end.receive(request(2, ReadRequest(1, 2, 1, STAG, 2**64 - 2)))
    segments = await end.segments()
    assert b"".join(each.payload for each in segments) == end.memory.get(0x1003, 300) + end.memory.get(0x1003 + 299, 1)


@cocotb.parametrize(kind=range(7))
@bench()
async def a_source_that_must_not_be_read_is_refused(dut, kind):
    """Behind a good answer, before another request and a message of the host."""
    end = slow(dut)
    to = random.randrange(100, 2**62)
    for _ in range(8):
        await end.reset()
        await end.start(stop=1)
        await end.region(STAG, 0x1003, 300, to=to, rights=Right.REMOTE_READ)
        await end.region(STAG + 1, 0x1003, 300, to=to, rights=Right.REMOTE_WRITE | Right.LOCAL_WRITE)
        size = random.randint(1, 300)
        first, bad = [
            (to - random.randint(1, 90), STAG),
            (to + 301 - size, STAG),
            (to, STAG + 1),
            (to, STAG + 2),
            (to, STAG ^ 0x10000),
            (2**64 - random.randint(1, size), STAG),
            (to + 2**32, STAG),
        ][kind]
        asked = ReadRequest(random.getrandbits(32), random.getrandbits(63), size, bad, first)
        good = ReadRequest(1, 2, 10, STAG, to)
        end.receive(request(1, good), request(2, asked), request(3, good))
        await end.settle()
        await end.work(Opcode.SEND, (0x2000, 10))
        await end.control()
        await end.settle()
        assert await end.field("source_refused")
        sent = [decode(each).opcode for each in end.sent]
        assert sent in ([Opcode.RDMA_READ_RESPONSE], [Opcode.RDMA_READ_RESPONSE, Opcode.SEND])
        assert await end.source() == asked
        assert await end.access("SOURCE_LEFT") == size
        assert await end.access("RX_READ_MSN") - await end.field("requests") == 2
        assert not await end.field("sending")
        assert await end.refused() is None
        end.sent.clear()
        # Nothing else is received.
        end.receive(Tagged(Opcode.RDMA_WRITE, STAG + 1, to, True, b"late"))
        await end.settle()
        assert not end.memory.touched
        await end.control(enable=0)


@bench()
async def answers_and_messages_take_turns(dut):
    end = slow(dut)
    await end.start(stop=1)
    await end.region(STAG, 0x1000, 100)
    for msn in range(1, 4):
        end.receive(request(msn, ReadRequest(msn, 0, 10, STAG, 0)))
        await end.work(Opcode.RDMA_WRITE, (0x2000, 10), stag=msn)
    await end.settle()
    await end.control()
    opcodes = [each.opcode for each in await end.segments()]
    assert opcodes in (
        [Opcode.RDMA_READ_RESPONSE, Opcode.RDMA_WRITE] * 3, [Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE] * 3,
    )  # fmt: skip


@bench()
async def reads_wait_for_the_ord_and_what_is_behind_them_waits_too(dut):
    """RFC 5040 §5.5 rule 13."""
    end = slow(dut)
    await end.start(ord=2)
    sinks = [0x1000 * n for n in range(1, 5)]
    for n, at in enumerate(sinks):
        await end.region(n, at, 10, to=at, rights=Right.LOCAL_WRITE)
        await end.read(10, STAG, TO, sink=n, address=at)
    await end.work(Opcode.SEND, (0x2000, 5))
    for n in range(3):
        asked = await end.segments()
        assert [ReadRequest.decode(each.payload).sink_stag for each in asked if each.qn == 1] == [
            [0, 1], [2], [3],
        ][n]  # fmt: skip
        assert [each.opcode for each in asked if each.qn == 0] == [Opcode.SEND] * (n == 2)
        assert await end.field("reads") == 2
        end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, n, sinks[n], True, bytes(10)))


@bench()
async def no_read_is_sent_with_an_ord_of_0(dut):
    end = Engine(dut)
    await end.start(ord=0)
    await end.read(10, STAG, TO, sink=1, address=0x1000)
    assert not await end.segments()


@bench()
async def a_fence_waits_for_all_reads(dut):
    """RFC 5040 §5.5 rule 12."""
    end = slow(dut)
    await end.start()
    for n in (0, 1):
        await end.region(n, 0x1000 + 32 * n, 10, to=0x1000 + 32 * n, rights=Right.LOCAL_WRITE)
        await end.read(10, STAG, TO, sink=n, address=0x1000 + 32 * n)
    await end.work(Opcode.RDMA_WRITE, (0x2000, 5), stag=STAG)
    await end.work(Opcode.SEND, (0x2000, 5), fence=True)
    await end.work(Opcode.RDMA_WRITE, (0x2000, 6), stag=STAG)
    sent = [each.opcode for each in await end.segments()]
    assert sent == [Opcode.RDMA_READ_REQUEST, Opcode.RDMA_READ_REQUEST, Opcode.RDMA_WRITE]
    end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, 0, 0x1000, True, bytes(10)))
    assert not await end.segments()
    end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, 1, 0x1020, True, bytes(10)))
    assert [each.opcode for each in await end.segments()] == [Opcode.SEND, Opcode.RDMA_WRITE]


@cocotb.parametrize(rtr=[Rtr.SEND, Rtr.WRITE, Rtr.READ])
@bench()
async def an_rtr_of_this_end_has_the_first_msn(dut, rtr):
    """A Read RTR counts against the ORD until it is answered, and no fence waits for it."""
    end = Engine(dut)
    dut.rtr__sends.value = rtr
    await end.start(ord=1)
    assert await end.field("reads") == (rtr is Rtr.READ)
    await end.work(Opcode.SEND, (0x1000, 5), fence=True)
    await end.read(10, STAG, TO, sink=1, address=0x1000)
    send, *asked = await end.segments()
    assert send.msn == 1 + (rtr is Rtr.SEND)
    if rtr is Rtr.READ:
        assert not asked
        dut.rtr__answered.value = 1
        await end.cycles(1)
        dut.rtr__answered.value = 0
        asked = await end.segments()
    assert [each.msn for each in asked] == [1 + (rtr is Rtr.READ)]


@bench()
async def queues_are_filled_to_their_capacity(dut):
    """As many messages and pieces as CAPABILITIES say; twice, so that all pointers wrap."""
    end = slow(dut)
    await end.start(stop=1)
    for _ in range(3):
        messages = []
        for _ in range(8):
            at = place(40)
            await end.work(Opcode.RDMA_WRITE, (at, 40), stag=STAG)
            messages.append(end.memory.get(at, 40))
        await end.control()
        assert [each.payload for each in await end.segments()] == messages
        await end.control(stop=1)
    assert await end.done() == (24, 0)


@bench()
async def a_message_stops_behind_a_ulpdu_and_goes_on(dut):
    end = slow(dut)
    await end.start(mulpdu=64)
    at = place(2000)
    await end.work(Opcode.RDMA_WRITE, (at, 2000), stag=STAG, to=TO)
    found = []
    while len(found) < 40:
        await end.control(stop=random.getrandbits(1))
        await end.cycles(random.randrange(100))
        await end.settle(5)
        found += end.sent
        end.sent.clear()
    assert found == list(tagged_segments(Opcode.RDMA_WRITE, STAG, TO, end.memory.get(at, 2000), 64))


@bench()
async def ulpdus_of_the_host_go_between_those_of_the_engine(dut):
    end = slow(dut)
    await end.start(mulpdu=64)
    at = place(2000)
    await end.work(Opcode.RDMA_WRITE, (at, 2000), stag=STAG, to=TO)
    hosts = [bytes([n]) * random.choice([1, 40, 80]) for n in range(20)]
    for each in hosts:
        end.host_sends(each)
        await end.cycles(random.randrange(50))
    await end.settle()
    own = list(tagged_segments(Opcode.RDMA_WRITE, STAG, TO, end.memory.get(at, 2000), 64))
    assert [each for each in end.sent if each in hosts] == hosts
    assert [each for each in end.sent if each not in hosts] == own
    assert end.sent[-len(hosts):] != hosts
    assert await end.access("ULPDUS") >> 16 == len(own)


@bench()
async def a_disabled_engine_sends_nothing_but_the_ulpdus_of_the_host(dut):
    end = slow(dut)
    await end.start(enable=0)
    await end.work(Opcode.SEND, (0x1000, 10))
    hosts = [random.randbytes(random.randint(1, 90)) for _ in range(10)]
    for each in hosts:
        end.host_sends(each)
    assert await all_of(end) == hosts
    await end.control()
    assert [each.opcode for each in await end.segments()] == [Opcode.SEND]


@bench()
async def nothing_follows_a_terminate(dut):
    """After a refusal in the middle of a message: the host's Terminate is the last ULPDU once SENDING is 0."""
    end = Engine(dut, pauses(0.2), stalls(0.9, longest=30))
    for _ in range(16):
        await end.reset()
        await end.start(mulpdu=64)
        await end.region(STAG, 0x1000, 100)
        await end.work(Opcode.RDMA_WRITE, (0x2000, 2000), stag=STAG)
        await end.work(Opcode.SEND, (0x2000, 2000), stag=STAG)
        await end.cycles(random.randrange(300))
        end.receive(Tagged(Opcode.RDMA_WRITE, STAG, 99, True, b"too long"))
        while not await end.field("refused"):
            pass
        while await end.field("sending"):
            pass
        terminate = Terminate.of(Fault.BOUNDS).encode()
        end.host_sends(terminate)
        await end.settle(200)
        assert end.sent.index(terminate) == len(end.sent) - 1
        end.sent.clear()
        await end.control(enable=0)


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_transmit(lanes):
    simulate(engine(lanes), __name__, parameters={"lanes": lanes})
