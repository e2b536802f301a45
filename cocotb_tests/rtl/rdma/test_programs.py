# amaranth: UnusedElaboratable=no
"""Random programs of both ends on the RDMA engine and on its twin: all that can be seen at rest must be equal."""

import random
from collections import deque

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from open_rnic.cocotb_tests.harness import bench, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.rtl.rdma.bench import (
    INVALIDATES,
    MAY_INVALIDATE,
    REST,
    Engine,
    cut_send,
    cut_tagged,
    engine,
    request,
)
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Terminate, Untagged, decode
from open_rnic.host_driver.ddp.faults import Fault
from open_rnic.host_driver.rdma.engine import Engine as Twin
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, Right

SIZES = {"regions": 16, "buffers": 4, "work": 8, "reads": 4}
SENDS = (Opcode.SEND, Opcode.SEND_SE, *INVALIDATES)
TARGETS, SOURCES, SINKS, BUFFERS = 0x0003, 0x4001, 0x8002, 0xA005  # octets that are written, and read, do not overlap
REGION, SINK, BUFFER = 0x800, 0x200, 0x180  # octets of each of them
IRD = ORD = 4
SHOWN = ("ready", "refused", "source_refused", "passed", "blocked", "send_begun", "write_begun", "requests", "reads")


class _Octets:
    """The memory of the twin."""

    def __init__(self, octets):
        self.octets = bytearray(octets)

    def read(self, address, octets):
        return bytes(self.octets[address : address + octets])

    def write(self, address, octets):
        self.octets[address : address + len(octets)] = octets


class Both(Engine):
    """The RTL and its twin, which get the same."""

    def __init__(self, dut, idle, busy):
        super().__init__(dut, idle, busy)
        self.copy = _Octets(self.memory.octets)
        self.twin = Twin(self.copy, **SIZES)
        self.coming = deque()
        self.completed = 0  # Sends that have been taken from RECEIVED
        self.finished = 0  # posted work that is done

    async def access(self, name, value=None):
        if value is not None:
            self.twin.write(f"RDMA_{name}", value)
        return await super().access(name, value)

    def receive(self, *ulpdus):
        super().receive(*ulpdus)
        self.coming += [each if isinstance(each, bytes) else each.encode() for each in ulpdus]

    def _run_twin(self):
        """Let the twin receive and send until it rests; return what it sends."""
        sent, moved = [], True
        while moved:
            moved = False
            while self.coming and self.twin.receive(self.coming[0]):
                self.coming.popleft()
                moved = True
            while ulpdu := self.twin.next_ulpdu():
                sent.append(ulpdu)
                moved = True
        return sent

    async def compare(self):
        """Compare everything at rest, and return the ULPDUs that were sent."""
        expected = self._run_twin()
        await self.settle(100)
        sent, self.sent = self.sent, []
        for answers in (True, False):  # their order among each other depends on time
            found, due = ([each for each in ulpdus if _answers(each) == answers] for ulpdus in (sent, expected))
            assert found == due, (decode_all(found), decode_all(due))
        assert self.passed == list(self.twin.passed)
        assert self.memory.octets == self.copy.octets, "memory differs"
        assert int(self.dut.irq.value) == self.twin.irq, "the interrupt differs"
        while True:
            found, due = await super().access("RECEIVED"), self.twin.read("RDMA_RECEIVED")
            assert found == due
            if not due:
                break
            self.completed += 1
            names = ["RECEIVED_OCTETS"] + ["RECEIVED_STAG"] * ((found >> 4) in INVALIDATES)
            for name in names:
                assert await super().access(name) == self.twin.read(f"RDMA_{name}"), name
        found, due = await super().access("STATUS"), self.twin.read("RDMA_STATUS")
        for name in SHOWN:
            field = BY_NAME["RDMA_STATUS"][name]
            assert field.get(found) == field.get(due), name
        names = list(REST)
        done = await super().access("DONE")
        assert done == self.twin.read("RDMA_DONE")
        self.finished = (done & 0xFFFF) + (done >> 16)
        if await self.refused():
            names += [f"REFUSED_{n}" for n in range(HEADER_WORDS - 1)] + ["REFUSED_LENGTH"]
        if BY_NAME["RDMA_STATUS"]["source_refused"].get(found):
            names += ["SOURCE"] * 7 + ["SOURCE_LEFT"]
        elif BY_NAME["RDMA_STATUS"]["reads"].get(found):
            names += ["RX_ARRIVED"]
        for name in names:
            if name.startswith("REFUSED_3") and await super().access("REFUSED_0") >> 31:
                continue  # behind the header of a tagged segment
            assert await super().access(name) == self.twin.read(f"RDMA_{name}"), name
        return sent


def decode_all(ulpdus):
    return [str(decode(each)) for each in ulpdus]


def _answers(ulpdu):
    return decode(ulpdu).opcode is Opcode.RDMA_READ_RESPONSE


class Program:
    """Carries a program out: each step is the name of a method, and the seed of its choices."""

    def __init__(self, end):
        self.end = end
        self.rng = random.Random()
        self.send_msn = self.read_msn = 1
        self.mulpdu = 200
        self.stags = {}  # of the targets, by their number
        self.generation = 0
        self.sinks = deque()  # that are free
        self.asked = deque()  # RDMA Read Requests of the engine that have not been answered
        self.requests = 0  # that have not been answered
        self.posted = self.buffers = self.places = 0
        self.ended = False

    async def begin(self):
        await self.end.start(self.mulpdu, IRD, ORD)
        await self.end.access("STATUS")  # clears the interrupt of the reset
        self.end.twin.read("RDMA_STATUS")
        for n in range(4):
            await self._target(n)
            await self.end.region(
                0x5000_0004 + n, SOURCES + REGION * n, REGION, to=n << 40 | 7, rights=Right.REMOTE_READ
            )
        self.sinks.extend(range(8))

    async def _target(self, n):
        self.generation += 1
        self.stags[n] = stag = self.generation << 8 | n
        await self.end.region(
            stag, TARGETS + REGION * n, REGION, to=n << 33, rights=Right.REMOTE_WRITE | MAY_INVALIDATE
        )

    async def run(self, steps):
        await self.begin()
        for name, seed in steps:
            self.rng = random.Random(seed)
            await getattr(self, name)()
        if not self.ended:
            await self.rest()

    def _sizes(self, size):
        pieces = []
        while size:
            pieces.append(self.rng.randint(1, min(size, self.rng.choice([3, 64, 186]))))
            size -= pieces[-1]
        return pieces or [0]

    def _size(self, most):
        return min(most, self.rng.choice([0, 1, self.rng.randint(0, 70), self.rng.randint(0, 400)]))

    # --- steps

    async def rest(self):
        for each in await self.end.compare():
            segment = decode(each)
            if segment.opcode is Opcode.RDMA_READ_REQUEST:
                self.asked.append(ReadRequest.decode(segment.payload))
            self.requests -= segment.opcode is Opcode.RDMA_READ_RESPONSE and segment.last

    async def write(self):
        n, size = self.rng.randrange(4), self._size(400)
        message = self.rng.randbytes(size)
        to = (n << 33) + self.rng.randint(0, REGION - size)
        self.end.receive(*cut_tagged(Opcode.RDMA_WRITE, self.stags[n], to, message, self._sizes(size)))

    async def send(self):
        """Some invalidate a target, which then is replaced."""
        size = self._size(BUFFER)
        opcode = self.rng.choice(SENDS)
        n = self.rng.randrange(4)
        stag = self.stags[n] if opcode in INVALIDATES else 0
        self.end.receive(*cut_send(opcode, self.send_msn, self.rng.randbytes(size), self._sizes(size), stag))
        self.send_msn += 1
        if stag:
            while self.buffers < self.send_msn - 1:
                await self._buffer()
            await self.rest()
            await self._target(n)

    async def buffer(self):
        """At most as many as fit, if no Send comes."""
        if self.buffers - (self.send_msn - 1) < 3:
            await self._buffer()

    async def _buffer(self):
        if self.buffers - self.end.completed == SIZES["buffers"]:
            await self.rest()
        await self.end.buffer(BUFFERS + BUFFER * (self.buffers % 16), BUFFER)
        self.buffers += 1

    async def request(self):
        if self.requests == IRD:
            await self.rest()
        if self.requests == IRD:
            return  # they wait behind a Send without a buffer
        n, size = self.rng.randrange(4), self._size(600)
        self.requests += 1
        to = (n << 40 | 7) + self.rng.randint(0, REGION - size)
        asked = ReadRequest(self.rng.getrandbits(32), self.rng.getrandbits(63), size, 0x5000_0004 + n, to)
        self.end.receive(request(self.read_msn, asked))
        self.read_msn += 1

    async def post(self):
        await self._credit()
        pieces = [
            (SOURCES + self.rng.randrange(0x1800), self.rng.randint(1, 200)) for _ in range(self.rng.randrange(4))
        ]
        opcode = self.rng.choice([*SENDS, Opcode.RDMA_WRITE, Opcode.RDMA_WRITE])
        await self.end.work(
            opcode, *pieces, stag=self.rng.getrandbits(32), to=self.rng.getrandbits(62), fence=self.rng.random() < 0.2
        )

    async def read(self):
        if not self.sinks:
            return
        await self._credit()
        n, size = self.sinks.popleft(), self._size(SINK)
        at = SINKS + SINK * n
        await self.end.region(0x6000_0008 + n, at, size, to=at, rights=Right.LOCAL_WRITE)
        await self.end.read(size, self.rng.getrandbits(32), self.rng.getrandbits(62), sink=0x6000_0008 + n,
                            address=at, fence=self.rng.random() < 0.2)  # fmt: skip

    async def _credit(self):
        """Wait until there is room for another message; they have two pieces on average."""
        while self.posted - self.end.finished >= SIZES["work"] // 2:
            await self.respond()
            await self.rest()
            if self.end.coming:
                await self._buffer()
        self.posted += 1

    async def respond(self):
        for _ in range(min(len(self.asked), self.rng.randint(1, 4))):
            asked = self.asked.popleft()
            message = self.rng.randbytes(asked.size)
            self.end.receive(
                *cut_tagged(Opcode.RDMA_READ_RESPONSE, asked.sink_stag, asked.sink_to, message, self._sizes(asked.size))
            )
            self.sinks.append(asked.sink_stag & 7)

    async def segment(self):
        """Another MULPDU."""
        await self.rest()
        self.mulpdu = self.rng.randint(64, 300)
        await self.end.limits(self.mulpdu, IRD, ORD)

    async def error(self):
        """The peer, or this end, ends the stream."""
        await self.rest()
        while self.buffers < self.send_msn:
            await self._buffer()
        while self.asked:
            await self.respond()
            await self.rest()
        await self.rest()
        n = self.rng.randrange(4)
        bad = self.rng.choice([
            Tagged(Opcode.RDMA_WRITE, self.stags[n], (n << 33) + REGION - 5, True, b"beyond"),
            Tagged(Opcode.RDMA_WRITE, self.stags[n] ^ 0x100, n << 33, True, b"unknown"),
            Tagged(Opcode.RDMA_READ_RESPONSE, 0x6000_0008, SINKS, True, b"none is due"),
            Untagged(Opcode.SEND, 0, self.send_msn, 0, True, bytes(BUFFER + 1)),
            Untagged(Opcode.SEND_INVALIDATE, 0, self.send_msn, 0, True, b"", 0x5000_0004),
            Untagged(Opcode.SEND, 0, self.send_msn + 1, 0, True, b"another MSN"),
            request(self.read_msn, ReadRequest(1, 2, 3, self.stags[n], n << 33)),
            request(self.read_msn, ReadRequest(1, 2, REGION, 0x5000_0004 + n, (n << 40) + 8)),
            Terminate.of(Fault.BOUNDS).encode(),
            self.rng.randbytes(self.rng.randint(1, 60)),
        ])
        self.end.receive(bad, Tagged(Opcode.RDMA_WRITE, self.stags[n], n << 33, True, b"behind it"))
        await self.rest()
        self.ended = True


STEPS = ("write", "send", "buffer", "request", "post", "read", "respond", "segment", "rest")
PROGRAM = st.tuples(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2**32)), max_size=120),
    st.lists(st.tuples(st.just("error"), st.integers(0, 2**32)), max_size=1),
    st.sampled_from([0, 0.2, 0.7]),
    st.sampled_from([0, 0.2, 0.7]),
)


@bench(cycles=2_000_000)
async def program(dut):
    steps, end, idle, busy = parameter("program")
    both = Both(dut, pauses(idle) if idle else never(), stalls(busy) if busy else never())
    await Program(both).run([*steps, *end])


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_programs(lanes):
    @settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(PROGRAM)
    def run(steps):
        simulate(engine(lanes, **SIZES), __name__, parameters={"program": steps})

    run()


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_a_long_program(lanes):
    rng = random.Random(lanes)
    steps = [(rng.choice(STEPS), rng.getrandbits(32)) for _ in range(1500)]
    simulate(engine(lanes, **SIZES), __name__, parameters={"program": (steps, [], 0.2, 0.2)})
