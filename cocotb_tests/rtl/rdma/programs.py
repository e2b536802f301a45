"""Random programs of both ends for the RDMA engine and for its twin, which must show the same whenever both rest.

A program is a setting and steps. A step is the name of a method of :class:`Program`, and a number from which it draws
all of its choices: the smaller the number, the simpler the step. The setting is such a number, too.
"""

import random
from collections import deque
from collections.abc import Sequence
from contextlib import contextmanager
from typing import Any

from open_rnic.cocotb_tests.harness import bench, never, parameter, pauses, stalls
from open_rnic.cocotb_tests.rtl.rdma.bench import (
    MAY_INVALIDATE,
    OCTETS,
    REST,
    SIZES,
    Engine,
    cut_send,
    cut_tagged,
    request,
)
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Terminate, Untagged, decode
from open_rnic.host_driver.ddp.faults import Fault
from open_rnic.host_driver.rdma.engine import Twin
from open_rnic.rtl.formats.opcodes import INVALIDATES
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, REQUEST_WORDS, Right
from open_rnic.rtl.registers import Rtr

__all__ = ["CHANCES", "ENDS", "ERRORS", "STEPS", "program", "random_program"]

SENDS = (Opcode.SEND, Opcode.SEND_SE, *INVALIDATES)
TARGETS, SOURCES, SINKS, BUFFERS = 0x0003, 0x4001, 0x8002, 0xA005  # octets that are written, and read, do not overlap
REGION, SINK, BUFFER = 0x800, 0x200, 0x180  # octets of each of them
SOURCE_STAG, SINK_STAG = 0x5000_0004, 0x6000_0008  # of the first one; those of the targets change
FIRST_TO = [0, 1 << 33, 7 << 40, 2**64 - 1 - REGION]  # of the targets, and of the sources
SHOWN = (
    "ready", "placing", "sending", "refused", "source_refused", "passed", "blocked", "send_begun", "write_begun",
    "requests", "reads",
)  # fmt: skip
OF_TRANSMIT = ("irq", "requests", "reads", "DONE", "ULPDUS")  # what depends on what has been sent
QUIET = 100  # cycles
TERMINATE = Terminate.of(Fault.BOUNDS).encode()


class Choices:
    """The choices that a number stands for; behind its end, all are the first one."""

    def __init__(self, number: int):
        self._left = number

    def below(self, bound: int) -> int:
        self._left, choice = divmod(self._left, bound)
        return choice

    def between(self, least: int, most: int) -> int:
        return least + self.below(most - least + 1)

    def of(self, values: Any) -> Any:
        return values[self.below(len(values))]


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
        self.coming = deque()  # ULPDUs that the twin has not taken
        self.from_host = []
        self.finished = 0  # posted work that is done
        self._only = ""

    @contextmanager
    def only(self, which):
        """Only this of the two, "rtl" or "twin", gets what is given here."""
        self._only = which
        yield
        self._only = ""

    async def access(self, name, value=None):
        if value is not None and self._only != "rtl":
            self.twin.write(f"RDMA_{name}", value)
        return 0 if self._only == "twin" else await super().access(name, value)

    def receive(self, *ulpdus):
        if self._only != "twin":
            super().receive(*ulpdus)
        if self._only != "rtl":
            self.coming += [each if isinstance(each, bytes) else each.encode() for each in ulpdus]

    def interrupt(self):
        return bool(self.dut.irq.value)

    def host_sends(self, ulpdu):
        super().host_sends(ulpdu)
        self.from_host.append(ulpdu)

    def take_all(self):
        """Let the twin receive all that it can."""
        while self.coming and self.twin.receive(self.coming[0]):
            self.coming.popleft()

    def run_twin(self):
        """Let the twin receive and send until it rests; return what it sends."""
        sent = []
        self.take_all()
        while ulpdu := self.twin.next_ulpdu():
            sent.append(ulpdu)
            self.take_all()
        return sent

    async def rests(self):
        """Wait until the RTL rests; return the ULPDUs that it has sent."""
        await self.settle(QUIET)
        sent, self.sent = self.sent, []
        return sent

    async def compare(self):
        """Compare everything at rest, and return the ULPDUs that were sent."""
        due = self.run_twin()
        sent = await self.rests()
        self._compare_sent(sent, due, whole=True)
        await self.compare_state()
        return sent

    async def compare_end(self, *ulpdus):
        """Compare what can be compared if one of these ULPDUs ends the stream: the RTL may have sent less than is due.

        Its last ULPDU may come before or behind those of the host.
        """
        due = self.run_twin()
        self.receive(*ulpdus)
        assert not self.run_twin()
        self._compare_sent(await self.rests(), due, whole=False)
        await self.compare_state(*OF_TRANSMIT)

    def _compare_sent(self, sent, due, *, whole):
        due, self.from_host = due + self.from_host, []
        for kind in range(3):  # their order among each other depends on time
            found, expected = ([each for each in ulpdus if _kind(each) == kind] for ulpdus in (sent, due))
            if not whole:
                expected = expected[: len(found)]
            assert found == expected, (decode_all(found), decode_all(expected))

    async def compare_state(self, *but):
        """Compare memory, ULPDUs for the host, and registers ``but`` those, or fields of STATUS, with these names."""
        assert self.passed == list(self.twin.ulpdus)
        assert self.memory.octets == self.copy.octets, self._difference()
        assert "irq" in but or self.interrupt() == self.twin.irq, "the interrupt differs"
        while True:
            found, due = await super().access("RECEIVED"), self.twin.read("RDMA_RECEIVED")
            assert found == due, "completions differ"
            if not due:
                break
            if opcode := BY_NAME["RDMA_RECEIVED"]["opcode"].get(found):  # otherwise, the buffer was withdrawn
                await self._compare_registers("RECEIVED_OCTETS", *["RECEIVED_STAG"] * (opcode in INVALIDATES))
        found, due = await super().access("STATUS"), self.twin.read("RDMA_STATUS")
        status, expected = (
            {name: BY_NAME["RDMA_STATUS"][name].get(word) for name in SHOWN if name not in but} for word in (found, due)
        )
        assert status == expected, [(name, status[name], expected[name]) for name in status]
        done, due = await super().access("DONE"), self.twin.read("RDMA_DONE")
        assert "DONE" in but or done == due, "DONE differs"
        self.finished = (done & 0xFFFF) + (done >> 16)
        names = list(REST)
        if status["refused"] and not status["passed"]:
            tagged = await super().access("REFUSED_0") >> 31  # then fewer words are the header's
            names += ["REFUSED_LENGTH", *(f"REFUSED_{n}" for n in range(HEADER_WORDS - 1 - tagged))]
        if status["source_refused"]:
            names += ["SOURCE"] * REQUEST_WORDS + ["SOURCE_LEFT"]
        elif status.get("reads"):
            names.append("RX_ARRIVED")
        await self._compare_registers(*(name for name in names if name not in but))

    async def _compare_registers(self, *names):
        for name in names:
            found, due = await super().access(name), self.twin.read(f"RDMA_{name}")
            assert found == due, f"{name} is {found:#x}, and {due:#x} in the twin"

    def _difference(self):
        first = next(n for n in range(OCTETS) if self.memory.octets[n] != self.copy.octets[n])
        return f"memory differs from {first:#x} on"

    def copy_beginning(self, address, octets):
        """Give the twin those of ``octets`` that the RTL has placed: some from the first one on."""
        now, before = self.memory.get(address, len(octets)), self.copy.read(address, len(octets))
        assert any(now == octets[:n] + before[n:] for n in range(len(octets) + 1)), "no beginning was placed"
        self.copy.write(address, now)

    async def rtrs(self, received, sent):
        """Have these RTRs received and sent."""
        self.dut.rtr__sends.value = sent
        self.twin.engine.rtr_sent(sent)
        if received is not Rtr.NONE:
            self.twin.engine.rtr_received(received, 18)
            await self._pulse(self.dut.rtr__received, received)

    async def rtr_is_answered(self):
        self.twin.engine.rtr_answered()
        await self._pulse(self.dut.rtr__answered, 1)

    async def _pulse(self, signal, value):
        signal.value = value
        await self.cycles(1)
        signal.value = 0

    async def restart(self):
        """Reset both while the RTL is at work: it has taken all ULPDUs, and written some of their octets."""
        before = bytes(self.copy.octets)
        self.run_twin()
        assert not self.coming
        await self.reset()
        self.twin.reset()
        self.passed.clear()
        self.restart_sinks()
        assert not await self.rests(), "a ULPDU of the last connection"
        for found, old, new in zip(self.memory.octets, before, self.copy.octets, strict=True):
            assert found in (old, new), "an octet was written that was not sent"
        self.copy.octets[:] = self.memory.octets
        self.memory.put(0, bytes(self.memory.octets))


def decode_all(ulpdus):
    return [str(decode(each)) for each in ulpdus]


def _kind(ulpdu):
    """0 for a message of the engine, 1 for a Read Response, 2 for a ULPDU of the host."""
    opcode = decode(ulpdu).opcode
    return 2 if opcode is Opcode.TERMINATE else int(opcode is Opcode.RDMA_READ_RESPONSE)


class Program:
    """Carries a program out."""

    def __init__(self, end: Both):
        self.end = end
        self.messages = 0  # each has other octets
        self.generation = 0  # of the STags of targets

    async def run(self, setting, steps):
        self.ended = False
        await self.begin(Choices(setting))
        for name, number in steps:
            self.choices = Choices(number)
            await getattr(self, name)()
            if self.ended:
                return
        await self.rest()

    async def begin(self, choices):
        """Begin a connection."""
        end = self.end
        await end.rtrs(choices.of([Rtr.NONE, Rtr.SEND, Rtr.READ]), choices.of(list(Rtr)))
        self.send_msn, self.read_msn = end.twin.read("RDMA_RX_SEND_MSN"), end.twin.read("RDMA_RX_READ_MSN")
        self.ird, self.ord = 4 - choices.below(4), 4 - choices.below(4)
        self.flags = choices.of([{"waits": 1}, {"waits": 0, "drops": 1}, {"waits": 0}])
        self.waits, self.drops = self.flags["waits"], self.flags.get("drops", 0)
        self.stags = {}  # of the targets, by their number
        self.sinks = deque(range(8))  # that are free
        self.asked = deque()  # RDMA Read Requests of the engine that have not been answered
        self.requests = 0  # of the peer, that have not been answered
        self.posted = self.buffers = end.finished = 0
        self.free_buffers = 0  # for which no Send has come; less than 0 if Sends wait
        await end.start(choices.between(64, 300), self.ird, self.ord, **self.flags)
        await end.access("STATUS")  # clears the interrupt of the reset
        end.twin.read("RDMA_STATUS")
        for n in range(4):
            await self._target(n)
            await self._source(n)

    async def _target(self, n):
        self.generation += 1
        self.stags[n] = stag = self.generation << 8 | n
        rights = Right.REMOTE_WRITE | Right.REMOTE_READ | MAY_INVALIDATE
        await self.end.region(stag, TARGETS + REGION * n, REGION, to=FIRST_TO[n], rights=rights)

    async def _source(self, n):
        await self.end.region(SOURCE_STAG + n, SOURCES + REGION * n, REGION, to=FIRST_TO[n], rights=Right.REMOTE_READ)

    def _octets(self, size):
        self.messages += 1
        return random.Random(self.messages).randbytes(size)

    def _size(self, most):
        return min(most, self.choices.of([1, 0, self.choices.below(71), self.choices.below(601)]))

    def _sizes(self, size):
        """Cut a message into segments."""
        pieces, longest = [], self.choices.of([186, 64, 7])
        while size:
            pieces.append(min(size, longest - self.choices.below(longest)))
            size -= pieces[-1]
        return pieces or [0]

    # --- messages of the peer

    def _write(self, n):
        """STag and TO of no octets may have any value (RFC 5041 §5.2)."""
        size = self._size(400)
        to = FIRST_TO[n] + self.choices.below(REGION - size + 1)
        stag = self.stags[n] if size else self.choices.of([self.stags[n], 0])
        return cut_tagged(Opcode.RDMA_WRITE, stag, to, self._octets(size), self._sizes(size))

    async def _send(self, opcode, stag=0):
        """It waits for a buffer, has one, or is discarded, as the setting says."""
        if not self.waits and self.free_buffers == 0 and not (self.drops and self.choices.below(2)):
            await self._buffer()
        size = self._size(BUFFER)
        segments = cut_send(opcode, self.send_msn, self._octets(size), self._sizes(size), stag)
        self.send_msn += 1
        if self.waits or self.free_buffers:
            self.free_buffers -= 1
        return segments

    def _request(self, stag, to, size):
        self.read_msn += 1
        return request(self.read_msn - 1, ReadRequest(self.generation, self.messages << 40, size, stag, to))

    async def _may_request(self):
        """Count a request, if there is room; there is none behind a Send that waits for its buffer."""
        if self.requests == self.ird:
            await self.rest()
        there_is = self.requests < self.ird
        self.requests += there_is
        return there_is

    def _request_to_source(self, n):
        size = self._size(600)
        return self._request(SOURCE_STAG + n, FIRST_TO[n] + self.choices.below(REGION - size + 1), size)

    def _response(self):
        asked = self.asked.popleft()
        self.sinks.append(asked.sink_stag & 7)
        stag = asked.sink_stag if asked.size else self.choices.of([asked.sink_stag, 0])
        octets = self._octets(asked.size)
        return cut_tagged(Opcode.RDMA_READ_RESPONSE, stag, asked.sink_to, octets, self._sizes(asked.size))

    # --- steps

    async def rest(self):
        for each in await self.end.compare():
            segment = decode(each)
            if segment.opcode is Opcode.RDMA_READ_REQUEST:
                self.asked.append(ReadRequest.decode(segment.payload))
            self.requests -= segment.opcode is Opcode.RDMA_READ_RESPONSE and segment.last

    async def wait(self):
        await self.end.cycles(self.choices.below(200))

    async def write(self):
        self.end.receive(*self._write(self.choices.below(4)))

    async def send(self):
        """Some invalidate a target, which is then replaced."""
        opcode, n = self.choices.of(SENDS), self.choices.below(4)
        if opcode not in INVALIDATES:
            self.end.receive(*await self._send(opcode))
            return
        self.end.receive(*await self._send(opcode, self.stags[n]))
        await self._catch_up()
        await self._target(n)

    async def mix(self):
        """The segments of three messages between each other."""
        send = await self._send(self.choices.of(SENDS[:2]))
        messages = [deque(self._write(self.choices.below(4))), deque(send)]
        if self.asked:
            messages.append(deque(self._response()))
        while messages := [each for each in messages if each]:
            self.end.receive(self.choices.of(messages).popleft())

    async def buffer(self):
        """There is room for it even if no Send comes."""
        if self.free_buffers < SIZES["buffers"] - 1 and len(self.end.twin.engine.receives) < SIZES["buffers"]:
            await self._buffer()

    async def _buffer(self):
        if not self.waits or self.free_buffers <= 0:
            await self.rest()  # whether a Send meets it does not depend on time
        await self.end.buffer(BUFFERS + BUFFER * (self.buffers % 16), BUFFER)
        self.buffers += 1
        self.free_buffers += 1

    async def withdraw(self):
        """Any of the posted buffers, maybe for the second time."""
        await self._catch_up()
        if buffers := self.end.twin.engine.receives:
            place = self.choices.below(len(buffers))
            self.free_buffers -= buffers[place].context is None
            await self.end.withdraw(self.end.twin.oldest + place)
            await self.rest()

    async def _catch_up(self):
        """Rest, without Sends that wait for a buffer."""
        while self.free_buffers < 0:
            await self._buffer()
        await self.rest()

    async def request(self):
        if await self._may_request():
            self.end.receive(self._request_to_source(self.choices.below(4)))

    async def echo(self):
        """The peer reads what it has just written."""
        if await self._may_request():
            segments = self._write(self.choices.below(4))
            first, size = segments[0], sum(len(each.payload) for each in segments)
            self.end.receive(*segments, self._request(first.stag, first.to, size))
            await self.rest()

    async def post(self):
        await self._credit()
        pieces = [
            (SOURCES + self.choices.below(0x1800), self.choices.between(1, 200)) for _ in range(self.choices.below(4))
        ]
        opcode, fence = self.choices.of([Opcode.RDMA_WRITE, *SENDS]), self.choices.below(5) == 4
        to = self.choices.of([self.choices.below(2**40), 2**64 - 1 - self.choices.below(600)])
        await self.end.work(opcode, *pieces, stag=self.messages, to=to, fence=fence)

    async def read(self):
        if not self.sinks:
            return
        await self._credit()
        n, size, fence = self.sinks.popleft(), self._size(SINK), self.choices.below(5) == 4
        at = SINKS + SINK * n
        await self.end.region(SINK_STAG + n, at, size, to=at, rights=Right.LOCAL_WRITE)
        await self.end.read(size, self.messages, self.messages << 33, sink=SINK_STAG + n, address=at, fence=fence)

    async def _credit(self):
        """Wait until there is room for another message; they have two pieces on average."""
        while self.posted - self.end.finished >= SIZES["work"] // 2:
            await self.respond()
            await self.end.rtr_is_answered()
            await self._catch_up()
        self.posted += 1

    async def respond(self):
        for _ in range(min(len(self.asked), self.choices.between(1, 4))):
            self.end.receive(*self._response())

    async def answer(self):
        """The Read Response to a Read RTR comes."""
        await self.end.rtr_is_answered()

    async def segment(self):
        """Another MULPDU."""
        await self.rest()
        await self.end.limits(self.choices.between(64, 300), self.ird, self.ord)

    async def host(self):
        """The host sends a ULPDU between those of the engine."""
        self.end.host_sends(TERMINATE)

    async def stop(self):
        """The engine sends nothing for a while."""
        await self.rest()
        await self.end.control(**self.flags, stop=1)
        if await self._may_request():
            self.end.receive(self._request_to_source(self.choices.below(4)))
        for step in (self.post, self.read):
            if self.posted - self.end.finished < SIZES["work"] // 2:
                await step()
        await self.rest()
        await self.end.control(**self.flags)

    async def shut(self):
        """RDMA Read Requests are discarded for a while."""
        await self._catch_up()
        await self.end.control(**self.flags, shut=1)
        self.end.receive(*(self._request_to_source(self.choices.below(4)) for _ in range(self.choices.below(3))))
        await self.rest()
        await self.end.control(**self.flags)

    async def reset(self):
        """The connection ends in the middle of everything, and another one begins."""
        await self._catch_up()
        for name in ("write", "request", "mix", "post", "read", "write"):
            if self.choices.below(2):
                await getattr(self, name)()
        if self.free_buffers < 0:
            await self._catch_up()
        await self.end.rx.drained()
        await self.end.cycles(self.choices.below(80))
        await self.end.restart()
        await self.begin(self.choices)

    # --- steps after which the stream may have ended

    async def revoke(self):
        """A target is revoked while RDMA Writes arrive: from some octet on they are refused."""
        await self._catch_up()
        end, n = self.end, self.choices.below(4)
        segments = [each for _ in range(self.choices.between(1, 3)) for each in self._write(n)]
        delay = self.choices.below(30 * len(segments) + 30)
        with end.only("rtl"):
            end.receive(*segments)
            await end.cycles(delay)
            await end.revoke(self.stags[n])
            assert not await end.rests()
            taken = self._taken(await end.access("ULPDUS"))
        with end.only("twin"):
            end.receive(*segments[:taken])
            assert not end.run_twin()
            await end.revoke(self.stags[n])
            end.receive(*segments[taken:])
            assert not end.run_twin()
        if taken < len(segments):
            self.ended = True
            cut_off = segments[taken]
            end.copy_beginning(TARGETS + REGION * n + cut_off.to - FIRST_TO[n], cut_off.payload)
            await end.compare_state("write_begun")  # which knows the ULPDU, even though it was cut off
        else:
            await end.compare_state()
            await self._target(n)

    def _taken(self, ulpdus):
        """ULPDUs that the RTL has received, and the twin has not."""
        return (ulpdus - self.end.twin.read("RDMA_ULPDUS")) & 0xFFFF

    async def revoke_source(self):
        """A source is revoked while RDMA Reads of it are answered."""
        await self._catch_up()
        end, n = self.end, self.choices.below(4)
        requests = [self._request_to_source(n) for _ in range(self.choices.between(1, self.ird))]
        sizes = [ReadRequest.decode(each.payload).size for each in requests]
        delay = self.choices.below(600)
        end.gives_up = True
        with end.only("rtl"):
            end.receive(*requests)
            await end.cycles(delay)
            await end.revoke(SOURCE_STAG + n)
            sent = await end.rests()
            taken = self._taken(await end.access("ULPDUS"))  # the others came after the error
            unanswered = await end.field("requests")
            left = await end.access("SOURCE_LEFT") if unanswered else 0
        whole = taken - unanswered
        octets = sum(sizes[: whole + 1]) - left
        with end.only("twin"):
            end.receive(*requests[:taken])
            end.take_all()
            due = []
            while sum(segment.last for segment in due) < whole or sum(len(each.payload) for each in due) < octets:
                due.append(decode(end.twin.next_ulpdu()))
            await end.revoke(SOURCE_STAG + n)
            assert end.twin.next_ulpdu() is None
            end.receive(*requests[taken:])
            end.take_all()
        self.ended = bool(unanswered)
        assert sent == [each.encode() for each in due]
        assert len(end.given_up) <= self.ended  # a segment may have been cut off
        end.gives_up = False
        await end.compare_state(*OF_TRANSMIT if self.ended else ())
        if not self.ended:
            await self._source(n)

    async def error(self):
        """The peer ends the stream, at rest or in the middle of everything."""
        await self._catch_up()
        while self.free_buffers < 1:
            await self._buffer()
        await self.rest()
        kind, moving, n = self.choices.of(ERRORS), self.choices.below(2), self.choices.below(4)
        if moving and kind not in AT_REST:
            for name in ("write", "request", "post", "write", "read"):
                if self.choices.below(2):
                    await getattr(self, name)()
        bad = await getattr(self, kind)(n)
        behind = [] if kind in SOURCE_ERRORS else self._write((n + 1) % 4)
        await self.end.compare_end(*bad, *behind)
        assert await self.end.field("refused") or await self.end.field("source_refused"), kind
        self.ended = True

    # --- errors: what the peer sends, the bad ULPDU last

    def _bad_write(self, stag, to):
        return [Tagged(Opcode.RDMA_WRITE, stag, to % 2**64, bool(self.choices.below(2)), self._octets(9))]

    def _bad_send(self, opcode=Opcode.SEND, qn=0, msn=0, mo=0, size=9, stag=0):
        return [Untagged(opcode, qn, self.send_msn + msn, mo, True, self._octets(size), stag)]

    def _bad_request(self, **fields):
        return [self._request_to_source(0)._replace(**fields)]

    def _bad_source(self, stag, to, size):
        self.requests += 1
        return [self._request(stag, to, size)]

    async def error_write_behind(self, n):
        return self._bad_write(self.stags[n], FIRST_TO[n] + REGION - self.choices.below(9))

    async def error_write_in_front(self, n):
        return self._bad_write(self.stags[n], FIRST_TO[n] - 1 - self.choices.below(12))

    async def error_write_far(self, n):
        return self._bad_write(self.stags[n], FIRST_TO[n] + (1 << 32 + self.choices.below(32)))

    async def error_write_to_unknown(self, n):
        return self._bad_write(self.stags[n] ^ 1 << 4 + self.choices.below(28), FIRST_TO[n])

    async def error_write_without_right(self, n):
        return self._bad_write(self.choices.of([SOURCE_STAG + n, SINK_STAG]), FIRST_TO[n])

    async def error_write_to_invalidated(self, n):
        send = self._bad_send(self.choices.of(INVALIDATES), stag=self.stags[n])
        self.send_msn += 1
        return send + self._bad_write(self.stags[n], FIRST_TO[n])

    async def error_response(self, n):
        """Where none is due, or of too many octets."""
        octets, last = self._octets(SINK + 1), bool(self.choices.below(2))
        if self.asked:
            due = self.asked[0]
            return [Tagged(Opcode.RDMA_READ_RESPONSE, due.sink_stag, due.sink_to, last, octets[: due.size + 1])]
        return [Tagged(Opcode.RDMA_READ_RESPONSE, SINK_STAG + n, SINKS + SINK * n, last, octets)]

    async def error_response_at_another_to(self, _n):
        if not self.asked:
            return await self.error_response(0)
        due = self.asked[0]
        return [Tagged(Opcode.RDMA_READ_RESPONSE, due.sink_stag, due.sink_to + 1, False, b"o")]

    async def error_response_too_short(self, _n):
        if not self.asked or not self.asked[0].size:
            return await self.error_response(0)
        due = self.asked[0]
        return [Tagged(Opcode.RDMA_READ_RESPONSE, due.sink_stag, due.sink_to, True, self._octets(due.size - 1))]

    async def error_send_too_long(self, _n):
        return self._bad_send(size=BUFFER + 1)

    async def error_later_segment_too_long(self, _n):
        first, size = cut_send(Opcode.SEND, self.send_msn, bytes(BUFFER + 1), [BUFFER - 5, 6])[0], self.choices.below(9)
        return [first, *self._bad_send(mo=BUFFER - 5, size=6 + size)]

    async def error_send_without_buffer(self, _n):
        """Which is one only if it neither waits nor is discarded."""
        if self.waits or self.drops:
            return await self.error_send_too_long(0)
        good = [self._bad_send(msn=n)[0] for n in range(self.free_buffers)]
        return good + self._bad_send(msn=self.free_buffers)

    async def error_invalidation(self, n):
        stag = self.choices.of([SOURCE_STAG + n, self.stags[n] ^ 1 << 4 + self.choices.below(28)])
        return self._bad_send(self.choices.of(INVALIDATES), stag=stag)

    async def error_send_msn(self, _n):
        return self._bad_send(msn=1)

    async def error_send_mo(self, _n):
        return self._bad_send(mo=1 << self.choices.below(32))

    async def error_send_queue(self, _n):
        return self._bad_send(qn=1 + self.choices.below(3))

    async def error_request_msn(self, _n):
        return self._bad_request(msn=self.read_msn + 1)

    async def error_request_mo(self, _n):
        return self._bad_request(mo=1 << self.choices.below(32))

    async def error_request_queue(self, _n):
        return self._bad_request(qn=2 * self.choices.below(2))

    async def error_request_length(self, _n):
        return self._bad_request(payload=bytes(self.choices.of([27, 29, 0])))

    async def error_request_goes_on(self, _n):
        return self._bad_request(last=False)

    async def error_requests_beyond_ird(self, _n):
        await self.end.control(**self.flags, stop=1)
        return [self._request_to_source(0) for _ in range(self.ird + 1)]

    async def error_source_behind(self, n):
        return self._bad_source(SOURCE_STAG + n, FIRST_TO[n] + REGION - self.choices.below(9), 9)

    async def error_source_in_front(self, n):
        return self._bad_source(SOURCE_STAG + n, (FIRST_TO[n] - 1) % 2**64, 9)

    async def error_source_unknown(self, n):
        return self._bad_source(SOURCE_STAG + n + 16, FIRST_TO[n], 9)

    async def error_source_without_right(self, n):
        at = SINKS + SINK * n
        await self.end.region(SINK_STAG + n, at, SINK, to=at, rights=Right.LOCAL_WRITE)
        return self._bad_source(SINK_STAG + n, at, 9)

    async def error_terminate(self, _n):
        return [TERMINATE]

    async def error_garbage(self, _n):
        """The first octet says DDP version 0."""
        return [bytes([4 * self.choices.below(16)]) + self._octets(self.choices.below(60))]

    async def error_short_header(self, _n):
        return [self._bad_send()[0].encode()[: 1 + self.choices.below(17)]]


ERRORS = sorted(name for name in vars(Program) if name.startswith("error_"))
SOURCE_ERRORS = {name for name in ERRORS if name.startswith("error_source")}
AT_REST = SOURCE_ERRORS | {"error_requests_beyond_ird", "error_source_without_right"}
STEPS = (
    "write", "send", "mix", "buffer", "withdraw", "request", "echo", "post", "read", "respond", "answer", "segment",
    "host", "stop", "shut", "wait", "rest", "reset",
)  # fmt: skip
ENDS = ("error", "revoke", "revoke_source")
CHANCES = (0, 0.2, 0.7)


def random_program(rng: random.Random) -> dict[str, Any]:
    """A program, most often a short one with simple steps, and at its end a few steps that may end the stream."""

    def steps(names: Sequence[str], most: int) -> list[tuple[str, int]]:
        return [(rng.choice(names), number()) for _ in range(rng.randint(0, most))]

    def number() -> int:
        return rng.getrandbits(rng.choice((8, 16, 16, 64, 256)))

    return {
        "setting": number(), "steps": steps(STEPS, rng.choice((5, 20, 100))) + steps(ENDS, 3),
        "idle": rng.choice(CHANCES), "busy": rng.choice(CHANCES),
    }  # fmt: skip


@bench(cycles=2_000_000)
async def program(dut):
    """Carry programs out, each on a new connection."""
    some = parameter("programs")
    idle, busy = some[0]["idle"], some[0]["busy"]
    end = Both(dut, pauses(idle) if idle else never(), stalls(busy) if busy else never())
    runs = Program(end)
    for n, each in enumerate(some):
        if n:
            await end.restart()
        await runs.run(each["setting"], each["steps"])
