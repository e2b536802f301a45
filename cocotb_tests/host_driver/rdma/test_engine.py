"""The RDMA engine's twin: what it sends, places and refuses, register by register."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Terminate, Untagged, decode
from open_rnic.host_driver.rdma.engine import MappedMemory, Twin, commands
from open_rnic.rtl.formats.opcodes import SENDS
from open_rnic.rtl.rdma.registers import BY_NAME, Right
from open_rnic.rtl.registers import Rtr

ALL = Right.LOCAL_WRITE | Right.REMOTE_WRITE | Right.REMOTE_READ
STAG = 0x1234_5601


class End:
    """An engine and its memory."""

    def __init__(self, mulpdu=128, ird=4, depth=4, **flags):
        self.memory = MappedMemory()
        self.twin = Twin(self.memory)
        self.set("LIMITS", mulpdu=mulpdu, ird=ird, ord=depth)
        self.set("CONTROL", enable=1, **flags)

    def set(self, name, **fields):
        register = BY_NAME[f"RDMA_{name}"]
        self.twin.write(f"RDMA_{name}", sum(register[field].put(value) for field, value in fields.items()))

    def get(self, name, field=None):
        word = self.twin.read(f"RDMA_{name}")
        return word if field is None else BY_NAME[f"RDMA_{name}"][field].get(word)

    def status(self, *flags):
        """Whether of the flags about errors these are set, and no others."""
        word = self.twin.read("RDMA_STATUS")
        names = ("refused", "source_refused", "passed", "blocked")
        return [name for name in names if BY_NAME["RDMA_STATUS"][name].get(word)] == list(flags)

    def command(self, words):
        for word in words:
            self.twin.write("RDMA_COMMAND", word)

    def map(self, octets, fill=0x55):
        buffer = bytearray([fill]) * octets
        return buffer, self.memory.map(memoryview(buffer))

    def region(self, octets, rights=ALL, to=0, stag=STAG, invalidate=False):
        buffer, address = self.map(octets)
        self.command(commands.region(stag, address, octets, to, rights, invalidate=invalidate))
        return buffer

    def buffer(self, octets=100):
        buffer, address = self.map(octets)
        self.command(commands.buffer(address, octets))
        return buffer

    def post(self, opcode, message=b"", stag=0, to=0, cuts=(), fence=False):
        """Post a message, cut into pieces there."""
        ends = [*cuts, len(message)]
        pieces = [message[at:end] for at, end in zip([0, *cuts], ends, strict=True)]
        places = [(self.memory.map(memoryview(bytearray(each))), len(each)) for each in pieces]
        self.command(commands.work(opcode, len(message), stag, to, places, fence=fence))

    def post_read(self, octets, stag, to, sink=0x77, fence=False):
        buffer, address = self.map(octets)
        self.command(commands.region(sink, address, octets, address, Right.LOCAL_WRITE))
        words = commands.work(Opcode.RDMA_READ_REQUEST, octets, stag, to, [(address, sink)], fence=fence)
        self.command(words)
        return buffer

    def next(self):
        ulpdu = self.twin.next_ulpdu()
        return None if ulpdu is None else decode(ulpdu)

    def drain(self):
        return list(iter(self.next, None))

    def received(self):
        """The oldest completed Send: its Opcode and length."""
        word = self.twin.read("RDMA_RECEIVED")
        assert BY_NAME["RDMA_RECEIVED"]["valid"].get(word)
        return BY_NAME["RDMA_RECEIVED"]["opcode"].get(word), self.get("RECEIVED_OCTETS")

    def receive(self, segment):
        return self.twin.receive(segment.encode())


def pump(*ends):
    moved = True
    while moved:
        moved = False
        for one, other in (ends, reversed(ends)):
            if (ulpdu := one.twin.next_ulpdu()) is not None:
                assert other.twin.receive(ulpdu)
                moved = True


def numbered(octets):
    return bytes(n % 251 for n in range(octets))


def send(payload=b"abcd", msn=1, mo=0, last=True, opcode=Opcode.SEND, stag=0, qn=0):
    return Untagged(opcode, qn, msn, mo, last, payload, stag)


def write(payload=b"abcd", to=0, stag=STAG, last=True):
    return Tagged(Opcode.RDMA_WRITE, stag, to, last, payload)


def request(size=4, to=0, msn=1, stag=STAG):
    return Untagged(Opcode.RDMA_READ_REQUEST, 1, msn, 0, True, ReadRequest(9, 8, size, stag, to).encode())


# Transmit


@given(st.integers(0, 700), st.lists(st.integers(0, 700), max_size=4), st.integers(64, 300), st.sampled_from(SENDS))
def test_sends_leave_in_full_segments_gathered_from_their_pieces(octets, cuts, mulpdu, opcode):
    end = End(mulpdu)
    message = numbered(octets)
    end.post(opcode, message, 0x99 if opcode.invalidates else 0, cuts=sorted(min(each, octets) for each in cuts))
    segments = end.drain()
    assert b"".join(each.payload for each in segments) == message
    assert [each.last for each in segments] == [False] * (len(segments) - 1) + [True]
    room = mulpdu - 18
    assert [each.mo for each in segments] == list(range(0, octets or 1, room))
    assert {(each.opcode, each.qn, each.msn) for each in segments} == {(opcode, 0, 1)}
    assert {each.stag for each in segments} == {0x99 if opcode.invalidates else 0}
    assert end.get("DONE") == 1
    assert end.get("ULPDUS", "sent") == len(segments)


@given(st.integers(0, 700), st.sampled_from([0, 7, 2**64 - 1000]))
def test_writes_go_from_memory_to_memory(octets, to):
    one, other = End(), End()
    buffer = other.region(800, Right.REMOTE_WRITE, to)
    one.post(Opcode.RDMA_WRITE, numbered(octets), STAG, to + 100)
    pump(one, other)
    assert buffer == b"\x55" * 100 + numbered(octets) + b"\x55" * (700 - octets)
    assert other.get("ULPDUS", "received") == one.get("ULPDUS", "sent")


@given(st.lists(st.integers(0, 390), min_size=1, max_size=8), st.integers(1, 4))
def test_reads_are_answered_within_ird_and_ord(sizes, depth):
    one, other = End(depth=depth), End(ird=depth)
    source = other.region(400, Right.REMOTE_READ, 64)
    source[:] = numbered(400)
    sinks = [one.post_read(size, STAG, 64 + n, 0x100 + n) for n, size in enumerate(sizes)]
    pump(one, other)
    assert one.status()
    assert other.status()
    assert [bytes(each) for each in sinks] == [bytes(source[n : n + len(each)]) for n, each in enumerate(sinks)]
    assert one.get("DONE", "reads") == len(sinks)


def test_responses_and_own_messages_take_turns_and_responses_begin():
    end = End()
    end.region(300)
    for msn in (1, 2, 3):
        end.receive(request(200, msn=msn))
    for _ in range(3):
        end.post(Opcode.SEND, bytes(200))
    kinds = [each.opcode for each in end.drain() if each.last]
    assert kinds == [Opcode.RDMA_READ_RESPONSE, Opcode.SEND] * 3


def test_a_read_beyond_the_ord_stalls_own_work_and_no_response():
    end = End(depth=1)
    end.region(100)
    for n in range(2):
        end.post_read(4, 1, 0, 0x100 + n)
    end.post(Opcode.SEND)
    assert [each.opcode for each in end.drain()] == [Opcode.RDMA_READ_REQUEST]
    assert end.get("STATUS", "reads") == 1
    end.receive(request())
    (response,) = end.drain()
    assert response.opcode is Opcode.RDMA_READ_RESPONSE


@pytest.mark.parametrize("fence", [False, True])
def test_a_fence_waits_for_all_earlier_reads(fence):
    end = End()
    end.post_read(4, 1, 0)
    end.post(Opcode.SEND, fence=fence)
    (first, *rest) = end.drain()
    assert len(rest) == (not fence)
    named = ReadRequest.decode(first.payload)
    end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, named.sink_stag, named.sink_to, True, b"abcd"))
    assert len(end.drain()) == fence


def test_nothing_is_sent_after_a_stop():
    end = End()
    end.post(Opcode.SEND, bytes(300))
    end.next()
    assert end.get("STATUS", "sending")
    end.set("CONTROL", enable=1, stop=1)
    assert end.next() is None
    assert not end.get("STATUS", "sending")


# RTRs


def test_rtrs_use_the_first_msn_of_their_queue():
    end = End(depth=1)
    end.twin.engine.rtr_sent(Rtr.SEND)
    end.twin.engine.rtr_received(Rtr.SEND, 18)
    end.post(Opcode.SEND)
    assert end.next().msn == 2
    end.buffer()
    assert end.receive(send(msn=2))
    end.twin.engine.rtr_received(Rtr.READ, 46)
    assert end.get("RX_READ_MSN") == 2
    assert end.status()
    end.twin.engine.rtr_received(Rtr.SEND, 0)  # without a header
    assert end.get("RX_SEND_MSN") == 3


def test_a_read_rtr_counts_against_the_ord_until_it_is_answered():
    end = End(depth=1)
    end.twin.engine.rtr_sent(Rtr.READ)
    end.post_read(4, 1, 0)
    assert (end.next(), end.get("STATUS", "reads")) == (None, 1)
    end.twin.engine.rtr_answered()
    assert end.next().msn == 2


# Sends of the peer


def test_sends_fill_buffers_in_order_and_complete_with_their_length():
    end = End(waits=1)
    first, second = end.buffer(), end.buffer()
    end.receive(send(b"abc", last=False))
    assert (end.get("RX_MO"), end.get("STATUS", "send_begun"), end.twin.irq) == (3, 1, False)
    end.receive(send(b"def", mo=3))
    end.receive(send(b"x", msn=2, opcode=Opcode.SEND_SE))
    assert end.twin.irq
    assert (end.received(), end.received()) == ((Opcode.SEND, 6), (Opcode.SEND_SE, 1))
    assert end.get("RECEIVED") == 0
    assert not end.twin.irq
    assert (first[:7], second[:2]) == (b"abcdef\x55", b"x\x55")


def test_a_send_stalls_until_a_buffer_is_posted_and_blocks_nothing_that_is_sent():
    end = End(waits=1)
    assert not end.receive(send())
    assert end.twin.irq
    assert end.status("blocked")
    assert not end.twin.irq  # STATUS has been read
    end.post(Opcode.SEND)
    assert end.next()
    buffer = end.buffer()
    assert end.receive(send())
    assert end.status()
    assert buffer[:4] == b"abcd"


def test_a_send_without_a_buffer_is_refused_or_dropped():
    assert End().receive(send())
    end = End()
    end.receive(send())
    assert end.status("refused")
    end = End(drops=1, waits=1)
    assert end.receive(send())
    assert end.status()
    assert (end.get("RX_SEND_MSN"), end.get("RECEIVED")) == (2, 0)


def test_a_send_with_invalidate_revokes_a_region_that_allows_it():
    end = End()
    end.region(10, invalidate=True)
    end.buffer()
    end.receive(send(opcode=Opcode.SEND_INVALIDATE, stag=STAG))
    assert end.received() == (Opcode.SEND_INVALIDATE, 4)
    assert end.get("RECEIVED_STAG") == STAG
    end.receive(write())
    assert end.status("refused")


# The peer's violations


BAD = {
    "STag": write(stag=STAG ^ 1),
    "another STag of the same row": write(stag=STAG ^ 1 << 20),
    "TO before the region": write(to=3),
    "TO behind the region": write(to=17),
    "TO that wraps": write(to=2**64 - 2),
    "MSN": send(msn=2),
    "MO": send(mo=4),
    "QN": send(qn=1),
    "too long": send(bytes(21)),
    "STag to invalidate": send(opcode=Opcode.SEND_INVALIDATE, stag=STAG ^ 1),
    "STag that must not be invalidated": send(opcode=Opcode.SEND_INVALIDATE, stag=STAG),
    "MSN of a Read": request(msn=2),
    "length of a Read": request()._replace(payload=bytes(27)),
    "a Read that goes on": request()._replace(last=False),
    "a Read Response that is not due": Tagged(Opcode.RDMA_READ_RESPONSE, STAG, 4, True, b"abcd"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_violation_is_refused_and_changes_no_octet(name):
    end, bad = End(waits=1), BAD[name].encode()
    memory, buffer = end.region(16, to=4), end.buffer(20)
    end.receive(write(to=4))
    assert end.twin.receive(bad)
    assert end.twin.irq
    assert end.status("refused")
    header = b"".join(end.get(f"REFUSED_{n}").to_bytes(4, "big") for n in range(5))
    assert header == bad[:20].ljust(20, b"\0")
    assert end.get("REFUSED_LENGTH") == len(bad)
    assert end.get("ULPDUS", "received") == 1
    end.receive(write(b"late", to=4))
    end.receive(send(b"late"))
    end.post(Opcode.SEND)
    assert end.next() is None
    assert memory == b"abcd".ljust(16, b"\x55")
    assert buffer == b"\x55" * 20


@pytest.mark.parametrize("rights", [0, Right.LOCAL_WRITE | Right.REMOTE_READ])
def test_a_write_needs_its_right(rights):
    end = End()
    end.region(10, rights)
    end.receive(write(b""))  # of no octets: nothing is checked
    assert end.status()
    end.receive(write())
    assert end.status("refused")


def test_requests_beyond_the_ird_are_refused_and_those_of_a_shut_engine_dropped():
    end = End(ird=2)
    for msn in (1, 2, 3):
        assert end.status()
        end.receive(request(msn=msn))
    assert end.status("refused")
    assert end.get("STATUS", "requests") == 2
    end = End(shut=1)
    end.receive(request())
    assert (end.get("STATUS", "requests"), end.get("RX_READ_MSN")) == (0, 2)


RESPONSES = {
    "whole": ([(0, b"abcdef", True)], True),
    "in pieces": ([(0, b"abc", False), (3, b"def", True)], True),
    "with an empty end": ([(0, b"abcdef", False), (6, b"", True)], True),
    "too short": ([(0, b"abcde", True)], False),
    "too long": ([(0, b"abcdefg", True)], False),
    "with a gap": ([(0, b"abc", False), (4, b"ef", True)], False),
    "twice": ([(0, b"abcdef", True), (0, b"", True)], False),
}


@pytest.mark.parametrize("name", RESPONSES)
def test_a_read_response_has_exactly_the_octets_that_are_due(name):
    segments, good = RESPONSES[name]
    end = End()
    sink = end.post_read(6, 1, 0)
    named = ReadRequest.decode(end.next().payload)
    arrived = 0
    for at, payload, last in segments:
        assert end.get("RX_ARRIVED") == arrived
        arrived = 0 if last else arrived + len(payload)
        end.receive(Tagged(Opcode.RDMA_READ_RESPONSE, named.sink_stag, named.sink_to + at, last, payload))
    assert end.status(*([] if good else ["refused"]))
    assert (end.get("DONE", "reads"), bytes(sink)) == (1, b"abcdef") or not good


def test_a_source_that_must_not_be_read_stops_the_engine_behind_what_was_sent():
    end = End()
    end.region(300)
    end.receive(request(200))
    end.receive(request(200, msn=2))
    assert not end.next().last
    end.command(commands.revoke(STAG))
    assert end.next() is None
    assert end.twin.irq
    assert end.status("source_refused")
    assert [end.get("SOURCE") for _ in range(7)] == [9, 0, 8, 200, STAG, 0, 0]
    assert end.get("SOURCE_LEFT") == 200 - 114
    assert end.get("RX_READ_MSN") - end.get("STATUS", "requests") == 1


@pytest.mark.parametrize(
    "ulpdu",
    [
        Terminate(0, 0, 0).encode(),
        b"",
        b"\x41",
        b"\x42" + send().encode()[1:],
        b"\x41\x03" + send().encode()[2:],
        b"\x41\x4f" + send().encode()[2:],
        send().encode()[:17],
        Tagged(Opcode.SEND, 0, 0, True).encode(),
        Untagged(Opcode.RDMA_WRITE, 0, 1, 0, True).encode(),
    ],
)
def test_terminates_and_ulpdus_without_a_valid_header_pass_to_the_host_and_end_the_stream(ulpdu):
    end = End(waits=1)
    assert end.twin.receive(ulpdu)
    assert list(end.twin.ulpdus) == [ulpdu]
    assert end.status("refused", "passed")
    assert end.get("ULPDUS", "received") == 0
    end.receive(send())
    assert len(end.twin.ulpdus) == 1


# Registers and commands


def test_a_revoked_stag_is_gone_and_its_row_can_be_used_again():
    end = End()
    end.region(10)
    end.command(commands.revoke(STAG ^ 1 << 20))  # another STag of the same row
    end.receive(write())
    assert end.status()
    end.command(commands.revoke(STAG))
    buffer = end.region(10, stag=STAG ^ 1 << 20)
    end.receive(write(stag=STAG ^ 1 << 20))
    assert end.status()
    assert buffer[:4] == b"abcd"
    end.receive(write())
    assert end.status("refused")


def test_counts_of_work_clear_the_interrupt_when_they_are_read():
    end = End()
    end.get("STATUS")
    end.post(Opcode.SEND)
    assert not end.twin.irq
    end.next()
    assert end.twin.irq
    assert end.get("DONE") == 1
    assert not end.twin.irq


def test_a_reset_forgets_everything():
    end = End()
    end.region(10)
    end.buffer()
    end.post(Opcode.SEND)
    end.receive(send(msn=9))
    end.twin.reset()
    fresh = Twin(end.memory)
    assert [end.twin.read(name) for name in BY_NAME] == [fresh.read(name) for name in BY_NAME]
    assert not end.twin.enabled
    assert end.twin.next_ulpdu() is None


def test_unknown_registers_and_impossible_sizes_are_refused():
    twin = Twin(MappedMemory())
    assert twin.read("RDMA_CAPABILITIES") == 10 | 6 << 8 | 6 << 16 | 4 << 24
    with pytest.raises(ValueError, match="no register is called CONTROL"):
        twin.read("CONTROL")
    with pytest.raises(ValueError, match="holds 32 bits"):
        twin.write("RDMA_CONTROL", 1 << 32)
    with pytest.raises(ValueError, match="work is a power of two, not 3"):
        Twin(MappedMemory(), work=3)
    with pytest.raises(ValueError, match="at most 63 pieces, not 64"):
        commands.work(Opcode.SEND, 0, 0, 0, [(0, 0)] * 64)
