# amaranth: UnusedElaboratable=no
"""ULPDUs that the RDMA engine must refuse: memory is untouched, the registers say which it was, and nothing follows."""

import random

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma.bench import ALL_RIGHTS, MAY_INVALIDATE, Engine, cut_send, engine, request
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Untagged
from open_rnic.rtl.formats.opcodes import INVALIDATES
from open_rnic.rtl.rdma.registers import Right

END = 2**64
STAG, AT, LENGTH = 0x5EED_0001, 0x2005, 400
OTHER, OTHER_AT, OTHER_LENGTH = 0x5EED_0002, 0x3007, 100  # at the end of all TOs; with the right to write only
READ_ONLY, INVALIDATED, EMPTY = 0x5EED_0003, 0x5EED_0004, 0x5EED_0005
SINK, SINK_AT, SINK_LENGTH = 0x5EED_0006, 0x4003, 150
BUFFER_AT, ROOM = 0x5001, 60
SENDS = (Opcode.SEND, Opcode.SEND_SE)


def octets(least=1, most=120):
    return random.randbytes(random.randint(least, most))


def other_than(*values, bits=32):
    """Return a random number that is none of ``values``, and often near one."""
    while True:
        number = random.choice([random.getrandbits(bits), random.choice(values) ^ 1 << random.randrange(bits)])
        if number not in values:
            return number


class Peer:
    """Makes the ULPDUs of a peer: good ones, and bad ones of each kind. MSNs count on."""

    def __init__(self, end):
        self.end = end
        self.msn = 1  # of the next Send
        self.to = random.randrange(2**40)  # of STAG

    async def set_up(self, **flags):
        end = self.end
        await end.reset()
        await end.start(ird=random.randint(1, 4), **flags)
        await end.region(STAG, AT, LENGTH, to=self.to, rights=ALL_RIGHTS)
        await end.region(
            OTHER, OTHER_AT, OTHER_LENGTH, to=END - 1 - OTHER_LENGTH, rights=Right.REMOTE_WRITE | MAY_INVALIDATE
        )
        await end.region(READ_ONLY, AT, LENGTH, to=self.to, rights=Right.REMOTE_READ | Right.LOCAL_WRITE)
        await end.region(EMPTY, AT, 0, to=self.to, rights=ALL_RIGHTS)
        await end.region(INVALIDATED, AT, LENGTH, to=self.to, rights=ALL_RIGHTS)
        await end.revoke(INVALIDATED)
        for _ in range(4):
            await end.buffer(BUFFER_AT, ROOM)

    async def due(self, rights=Right.LOCAL_WRITE, octets=SINK_LENGTH):
        """Have an RDMA Read of ``octets`` octets, whose response is due."""
        await self.end.region(SINK, SINK_AT, octets, to=SINK_AT, rights=rights)
        await self.end.read(octets, 1, 2, sink=SINK, address=SINK_AT)
        [sent] = await self.end.segments()
        assert ReadRequest.decode(sent.payload) == ReadRequest(SINK, SINK_AT, octets, 1, 2)

    def write(self, size=None):
        """Return a good RDMA Write."""
        size = random.randint(0, 100) if size is None else size
        return Tagged(Opcode.RDMA_WRITE, STAG, self.to + random.randint(0, LENGTH - size), True, random.randbytes(size))

    def send(self):
        """Return a good Send."""
        self.msn += 1
        return Untagged(random.choice(SENDS), 0, self.msn - 1, 0, True, octets(0, ROOM))

    def asks(self, msn=1):
        """Return a good RDMA Read Request."""
        return request(msn, ReadRequest(1, 2, random.randrange(99), STAG, self.to))

    # --- bad ones; each may first give the engine good ones

    async def send_on_another_queue(self):
        return self.send()._replace(qn=other_than(0))

    async def request_on_another_queue(self):
        return self.asks()._replace(qn=other_than(1))

    async def send_with_another_msn(self):
        good = self.send()
        return good._replace(msn=other_than(good.msn))

    async def request_with_another_msn(self):
        return self.asks()._replace(msn=other_than(1))

    async def first_segment_with_an_mo(self):
        return self.send()._replace(mo=other_than(0))

    async def later_segment_with_another_mo(self):
        good = self.send()
        self.end.receive(Untagged(good.opcode, 0, good.msn, 0, False, b"begins"))
        return good._replace(mo=other_than(6))

    async def request_with_an_mo(self):
        return self.asks()._replace(mo=other_than(0))

    async def send_that_exceeds_its_buffer(self):
        return self.send()._replace(payload=octets(ROOM + 1, ROOM + 40), last=bool(random.getrandbits(1)))

    async def later_segment_that_exceeds_the_buffer(self):
        good = self.send()
        size = random.randint(0, ROOM)
        self.end.receive(good._replace(payload=bytes(size), last=False))
        return good._replace(mo=size, payload=octets(ROOM - size + 1, ROOM + 1))

    async def send_to_invalidate_an_unknown_stag(self):
        return self.send()._replace(
            opcode=random.choice(INVALIDATES), stag=other_than(STAG, OTHER, READ_ONLY, EMPTY)
        )

    async def send_to_invalidate_an_stag_that_was_revoked(self):
        return self.send()._replace(opcode=random.choice(INVALIDATES), stag=INVALIDATED)

    async def send_to_invalidate_an_stag_that_must_not_be(self):
        return self.send()._replace(opcode=random.choice(INVALIDATES), stag=random.choice([STAG, READ_ONLY]))

    async def first_segment_to_invalidate_an_stag_that_must_not_be(self):
        return self.send()._replace(opcode=random.choice(INVALIDATES), stag=STAG, last=False)

    async def request_of_another_length(self):
        good = self.asks()
        return good._replace(payload=random.choice([good.payload[:-1], good.payload + b"x", b"", octets(29)]))

    async def request_that_goes_on(self):
        return self.asks()._replace(last=False)

    async def request_beyond_the_ird(self):
        await self.end.control(stop=1)  # so that none is answered
        ird = random.randint(1, 4)
        await self.end.limits(200, ird, 4)
        for msn in range(1, ird + 1):
            self.end.receive(self.asks(msn))
        return self.asks(ird + 1)

    async def write_to_an_unknown_stag(self):
        stag = other_than(STAG, OTHER, READ_ONLY, EMPTY)
        return Tagged(Opcode.RDMA_WRITE, stag, self.to, True, octets())

    async def write_to_an_stag_that_was_revoked(self):
        return Tagged(Opcode.RDMA_WRITE, INVALIDATED, self.to, True, octets())

    async def write_without_the_right(self):
        return Tagged(Opcode.RDMA_WRITE, READ_ONLY, self.to, True, octets())

    async def write_before_the_region(self):
        payload = octets()
        near = self.to - random.randint(1, len(payload) + 3)
        return Tagged(Opcode.RDMA_WRITE, STAG, random.choice([near % END, self.to ^ 1 << 63]), False, payload)

    async def write_behind_the_region(self):
        payload = octets()
        to = self.to + LENGTH + random.randint(1, 5) - random.randint(1, len(payload))
        return Tagged(Opcode.RDMA_WRITE, STAG, max(to, self.to + LENGTH + 1 - len(payload)), True, payload)

    async def write_2_to_the_32_behind_the_region(self):
        return Tagged(Opcode.RDMA_WRITE, STAG, self.to + 2**32 * random.randint(1, 9), True, octets())

    async def write_into_an_empty_region(self):
        return Tagged(Opcode.RDMA_WRITE, EMPTY, self.to, True, octets())

    async def write_that_wraps(self):
        payload = octets(1, 60)
        return Tagged(Opcode.RDMA_WRITE, OTHER, END - random.randint(1, len(payload)), True, payload)

    async def write_that_wraps_into_a_region(self):
        await self.end.region(OTHER, OTHER_AT, OTHER_LENGTH, to=0, rights=Right.REMOTE_WRITE)
        payload = octets(2, 60)
        return Tagged(Opcode.RDMA_WRITE, OTHER, END - random.randint(1, len(payload) - 1), True, payload)

    async def response_where_none_is_due(self):
        payload = octets(0)
        return Tagged(Opcode.RDMA_READ_RESPONSE, random.choice([STAG, READ_ONLY]), self.to, True, payload)

    async def response_to_another_stag(self):
        await self.due()
        # The right octets, even of a region with the same TOs.
        await self.end.region(OTHER, SINK_AT, SINK_LENGTH, to=SINK_AT, rights=ALL_RIGHTS)
        return Tagged(Opcode.RDMA_READ_RESPONSE, OTHER, SINK_AT, False, octets())

    async def response_at_another_to(self):
        await self.due()
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT + random.randint(1, 30), False, octets())

    async def later_segment_of_a_response_at_another_to(self):
        await self.due()
        first = octets(1, 50)
        self.end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT, False, first))
        to = SINK_AT + len(first) + random.choice([-1, 1, 2, -len(first)])
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, to, False, octets(1, 50))

    async def response_of_too_many_octets(self):
        await self.due(octets=(size := random.randint(0, 100)))
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT, random.choice([True, False]),
                      octets(size + 1, size + 20))  # fmt: skip

    async def response_of_too_few_octets(self):
        await self.due()
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT, True, octets(0, SINK_LENGTH - 1))

    async def response_without_the_right(self):
        await self.due(rights=Right.REMOTE_WRITE | Right.REMOTE_READ)
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT, False, octets())

    async def response_whose_sink_was_revoked(self):
        await self.due()
        await self.end.revoke(SINK)
        return Tagged(Opcode.RDMA_READ_RESPONSE, SINK, SINK_AT, False, octets())


KINDS = [
    name for name in vars(Peer)
    if name.startswith(("send_", "request_", "write_", "response_", "first_", "later_"))
]  # fmt: skip


@cocotb.parametrize(kind=KINDS)  # the report of a failure has the number
@bench()
async def is_refused(dut, kind):
    end = Engine(dut, pauses(0.2), stalls(0.2)) if random.getrandbits(1) else Engine(dut)
    for _ in range(parameter("tries")):
        peer = Peer(end)
        await peer.set_up()
        end.receive(*(make() for make in random.choice([[], [peer.write], [peer.send], [peer.write, peer.send]])))
        bad = await getattr(peer, kind)()
        await end.settle()
        end.memory.touched.clear()
        before = await end.field("received")
        # Those behind it follow without a pause, in one beat and in several.
        end.receive(bad, peer.write(1), *cut_send(Opcode.SEND, peer.msn, octets(0, ROOM), 70), peer.write(50))
        end.receive(bad)
        await end.settle()
        await end.expect_refused(bad)
        assert not end.memory.touched
        assert await end.field("received") == before
        assert not end.passed
        sent = len(end.sent)
        await end.work(Opcode.SEND, (AT, 10))
        await end.control()
        await end.settle()
        assert len(end.sent) == sent
        end.sent.clear()
        await end.control(enable=0)


@bench()
async def a_send_without_a_buffer_is_refused(dut):
    end = Engine(dut)
    for _ in range(parameter("tries")):
        await end.reset()
        await end.start(waits=0)
        await end.region(STAG, AT, LENGTH)
        bad = Untagged(random.choice(SENDS), 0, 1, 0, bool(random.getrandbits(1)), octets(0))
        end.receive(bad, Tagged(Opcode.RDMA_WRITE, STAG, 0, True, octets()))
        await end.settle()
        await end.expect_refused(bad)
        assert not end.memory.touched


@bench()
async def what_accesses_no_octets_needs_no_stag(dut):
    """RFC 5041 §5.2, RFC 5040 §5.2.1: STag and TO of a message of no octets are ignored."""
    end = Engine(dut)
    await end.start()
    await end.read(0, 1, 2, sink=9, address=AT)
    await end.settle()
    end.sent.clear()
    end.receive(
        Tagged(Opcode.RDMA_WRITE, random.getrandbits(32), random.getrandbits(64), True),
        Tagged(Opcode.RDMA_READ_RESPONSE, random.getrandbits(32), random.getrandbits(64), True),
        request(1, ReadRequest(5, 6, 0, random.getrandbits(32), random.getrandbits(64))),
    )
    assert await end.segments() == [Tagged(Opcode.RDMA_READ_RESPONSE, 5, 6, True)]
    assert await end.refused() is None
    assert await end.done() == (0, 1)
    assert not end.memory.touched


@pytest.mark.parametrize("tries", shortened("more tries of each kind", 1, [4, 16]))
@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_refusals(lanes, tries):
    simulate(engine(lanes), __name__, parameters={"lanes": lanes, "tries": tries})
