"""RDMAP streams without I/O: the behaviour of each end, and the result of each error."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from open_rnic.host_driver.ddp import (
    Fault,
    Opcode,
    ReadRequest,
    Tagged,
    Terminate,
    Untagged,
    decode,
)
from open_rnic.host_driver.rdma.memory import Access, Piece, ProtectionDomain, StagTable, octets_of
from open_rnic.host_driver.rdma.stream import Receive, SoftwareStream, Work
from open_rnic.host_driver.rdma.work import ReceiveRequest, WorkRequest
from open_rnic.rtl.registers import Rtr

ALL = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE


class End:
    """A stream, with the ULPDUs that it has sent and the requests that it has completed."""

    def __init__(self, ird=4, depth=4, waits=False, mulpdu=128, stags=None):
        self.domain = ProtectionDomain(stags)
        self.stream = SoftwareStream(self.domain, waits=waits)
        self.stream.engine.ird, self.stream.engine.ord = ird, depth
        self.mulpdu = mulpdu
        self.sent = []

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def memory(self, octets, access=ALL, to=0, fill=0x55, stream="own"):
        buffer = bytearray([fill]) * octets
        return buffer, self.domain.register(buffer, access, to=to, stream=self.stream if stream == "own" else stream)

    def buffer(self, octets=100):
        buffer = bytearray(octets)
        self.post_receive(buffer)
        return buffer

    def post(self, request):
        work = self.stream.prepare(request)
        self.stream.post(work)
        return work

    def post_send(self, message, **flags):
        return self.post(WorkRequest.send(message, **flags))

    def post_write(self, message, stag, to):
        return self.post(WorkRequest.write(message, stag, to))

    def post_read(self, sink, offset, octets, stag, to):
        return self.post(WorkRequest.read(Piece(sink.stag, sink.to + offset, octets), stag, to))

    def post_receive(self, buffer):
        receive = self.stream.prepare_receive(ReceiveRequest(buffer))
        self.stream.post_receive(receive)
        return receive

    def next(self):
        self.stream.handed_over()
        self.stream.engine.mulpdu = self.mulpdu
        ulpdus = self.stream.next_ulpdus(1)
        for ulpdu in ulpdus:
            assert len(ulpdu) <= self.mulpdu
            self.sent.append(ulpdu)
        return ulpdus[0] if ulpdus else None

    def done(self):
        completed, self.stream.completed = list(self.stream.completed), type(self.stream.completed)()
        return completed


@pytest.fixture
def ends():
    return End(), End()


def pump(*ends):
    """Carry ULPDUs between two ends until neither has one, each in turn."""
    moved = True
    while moved:
        moved = False
        for one, other in (ends, reversed(ends)):
            if ulpdu := one.next():
                moved = other.receive(ulpdu)


def view(octets):
    return octets_of(octets)


# Operations


@given(st.integers(0, 700), st.integers(128, 300), st.booleans(), st.booleans())
def test_sends_arrive_with_all_of_their_fields(octets, mulpdu, solicited, invalidates):
    one, other = End(mulpdu=mulpdu), End()
    _, region = other.memory(10)
    message = bytes(n % 251 for n in range(octets))
    buffer = other.buffer(700)
    one.post_send(view(message), solicited=solicited, invalidate=region.stag if invalidates else None)
    pump(one, other)
    (work,), (receive,) = one.done(), other.done()
    assert (work.octets, buffer[: receive.octets]) == (octets, message)
    assert (receive.octets, receive.opcode.solicited) == (octets, solicited)
    assert receive.invalidated == (region.stag if invalidates else None)
    assert region.valid != invalidates


@given(st.integers(0, 700), st.integers(128, 300), st.integers(0, 50), st.sampled_from([0, 7, 2**64 - 1000]))
def test_writes_are_placed_at_their_to_and_complete_nothing_at_the_peer(octets, mulpdu, at, to):
    one, other = End(mulpdu=mulpdu), End()
    memory, region = other.memory(800, Access.REMOTE_WRITE, to)
    message = bytes(n % 251 for n in range(octets))
    one.post_write(view(message), region.stag, to + at)
    pump(one, other)
    assert len(one.done()) == 1
    assert not other.done()
    assert memory == b"\x55" * at + message + b"\x55" * (800 - at - octets)


@given(st.lists(st.integers(0, 400), min_size=1, max_size=12), st.integers(1, 4), st.integers(128, 300))
def test_reads_return_the_peers_memory_and_never_exceed_the_ord(sizes, depth, mulpdu):
    one, other = End(depth=depth, mulpdu=mulpdu), End(ird=depth, mulpdu=mulpdu)
    source, remote = other.memory(400, Access.REMOTE_READ, to=64)
    source[:] = bytes(n % 251 for n in range(400))
    sinks = [one.memory(400, Access.LOCAL_WRITE) for _ in sizes]
    for (_, sink), size in zip(sinks, sizes, strict=True):
        one.post_read(sink, 400 - size, size, remote.stag, 64)
    pump(one, other)
    assert not one.ended
    assert not other.ended
    assert [work.octets for work in one.done()] == sizes
    assert [bytes(sink) for sink, _ in sinks] == [b"\x55" * (400 - size) + source[:size] for size in sizes]


def test_a_read_beyond_the_ord_waits_and_so_does_all_work_behind_it():
    one, other = End(depth=1), End()
    _sink, local = one.memory(10)
    _, remote = other.memory(10)
    for _ in range(2):
        one.post_read(local, 0, 10, remote.stag, 0)
    one.post_send(view(b"x"))
    request = one.next()
    assert decode(request).opcode is Opcode.RDMA_READ_REQUEST
    assert one.next() is None
    other.receive(request)
    one.receive(other.next())
    assert decode(one.next()).msn == 2
    assert decode(one.next()).opcode is Opcode.SEND


def test_work_completes_in_the_order_of_posting():
    """RFC 5040 §5.5 rule 15: a Send behind a Read waits for the Read's response."""
    one, other = End(), End()
    _, local = one.memory(10)
    _, remote = other.memory(10)
    other.buffer()
    read = one.post_read(local, 0, 10, remote.stag, 0)
    send = one.post_send(view(b"x"))
    for _ in range(2):
        other.receive(one.next())
    assert one.next() is None
    assert one.done() == []
    assert one.posted == 2
    pump(one, other)
    assert one.done() == [read, send]
    assert one.idle


def test_messages_complete_when_all_of_their_ulpdus_have_been_handed_over(ends):
    """RFC 5040 §5.5 rule 9."""
    one, _ = ends
    one.engine.mulpdu = 128
    posted = [one.post_write(view(bytes(200)), 5, 0), one.post_send(view(b"x"))]
    for octets, done in ((1, []), (200, posted)):
        assert one.stream.next_ulpdus(octets)
        assert one.done() == []
        one.stream.handed_over()
        assert one.done() == done
    assert one.stream.next_ulpdus(1) == []
    assert one.idle


def test_an_end_is_idle_when_its_answers_have_been_handed_over(ends):
    _, other = ends
    other.receive(read(0, 0, 0))
    assert other.stream.next_ulpdus(1)
    assert not other.idle
    other.stream.handed_over()
    assert other.idle


def test_the_mulpdu_is_that_of_the_next_ulpdus(ends):
    one, _ = ends
    mulpdus = iter((128, 200, 150))
    asyncio.run(one.stream.begin(4, 4, lambda: next(mulpdus)))
    one.post_write(view(bytes(900)), 5, 0)
    sizes = [[len(each) for each in one.stream.next_ulpdus(300)] for _ in range(3)]
    assert sizes[:2] == [[128] * 3, [200] * 2]
    assert sum(size - 14 for batch in sizes for size in batch) == 900


def test_msns_count_each_queue_and_wrap():
    one, other = End(), End()
    _, local = one.memory(10)
    for end, msns in ((one, one.engine.tx_msn), (other, other.engine.rx_msn)):
        msns[0] = msns[1] = 2**32 - 1
        assert end.engine.ord == 4
    for _ in range(3):
        other.buffer()
        one.post_send(view(b"x"))
    one.post_read(local, 0, 0, 1, 0)
    one.post_read(local, 0, 0, 1, 0)
    pump(one, other)
    assert not other.ended
    sent = [decode(each) for each in one.sent]
    assert [each.msn for each in sent] == [2**32 - 1, 0, 1, 2**32 - 1, 0]


def test_responses_and_the_ulps_messages_take_turns():
    one, other = End(), End(ird=4)
    _, local = one.memory(1000)
    _, remote = other.memory(1000)
    for _ in range(3):
        one.post_read(local, 0, 10, remote.stag, 0)
        other.receive(one.next())
        other.post_send(view(b"x"))
    opcodes = [decode(other.next()).opcode for _ in range(6)]
    assert sorted(opcodes[:2]) == sorted(opcodes[2:4]) == [Opcode.RDMA_READ_RESPONSE, Opcode.SEND]


@pytest.mark.parametrize("kind", [Rtr.SEND, Rtr.WRITE, Rtr.READ])
def test_an_rtr_uses_up_its_msn_and_nothing_else(kind):
    """RFC 6581 §4.4.2."""
    one, other = End(depth=1), End(ird=1)
    one.engine.rtr_sent(kind)
    other.engine.rtr_received(kind, {Rtr.SEND: 18, Rtr.WRITE: 14, Rtr.READ: 46}[kind])
    assert not one.done()
    assert not other.done()
    _, local = one.memory(10)
    _, remote = other.memory(10)
    other.buffer()
    one.post_send(view(b"x"))
    one.post_read(local, 0, 10, remote.stag, 0)
    send = one.next()
    assert decode(send).msn == (2 if kind is Rtr.SEND else 1)
    if kind is Rtr.READ:  # it is outstanding like any other until it is answered
        assert one.next() is None
        one.engine.rtr_answered()
    request = one.next()
    assert decode(request).msn == (2 if kind is Rtr.READ else 1)
    other.receive(send)
    other.receive(request)
    pump(one, other)
    assert not other.ended
    assert len(one.done()) == 2
    assert len(other.done()) == 1


def test_an_rtr_without_a_ddp_header_uses_up_no_msn():
    other = End()
    other.engine.rtr_received(Rtr.SEND, 0)
    other.buffer()
    other.receive(Untagged(Opcode.SEND, 0, 1, 0, True).encode())
    assert len(other.done()) == 1


def test_a_send_without_a_buffer_waits_for_one_if_so_configured():
    other = End(waits=True)
    ulpdu = Untagged(Opcode.SEND, 0, 1, 0, True, b"abc").encode()
    assert not other.receive(ulpdu)
    assert not other.receive(ulpdu)
    buffer = other.buffer(3)
    assert other.receive(ulpdu)
    assert buffer == b"abc"
    other.stream.control(drops=True)
    assert other.receive(Untagged(Opcode.SEND, 0, 2, 0, False, b"abc").encode())
    assert other.receive(Untagged(Opcode.SEND, 0, 2, 3, True, b"abc").encode())
    assert not other.ended


def test_a_buffer_can_be_withdrawn_until_a_send_has_begun_to_fill_it():
    other = End()
    one, another = (other.post_receive(memoryview(bytearray(9))) for _ in range(2))
    other.receive(Untagged(Opcode.SEND, 0, 1, 0, False, b"abc").encode())
    other.withdraw(one)
    other.withdraw(another)
    assert other.receives == 1
    other.receive(Untagged(Opcode.SEND, 0, 1, 3, True, b"def").encode())
    assert other.done() == [one]


# Refusals


def write(stag, to, payload=b"abcd", last=True, opcode=Opcode.RDMA_WRITE):
    return Tagged(opcode, stag, to, last, payload).encode()


def send(msn=1, mo=0, payload=b"abcd", qn=0, last=True, opcode=Opcode.SEND, stag=0):
    return Untagged(opcode, qn, msn, mo, last, payload, stag).encode()


def read(stag, to, size, msn=1, qn=1, mo=0):
    return Untagged(Opcode.RDMA_READ_REQUEST, qn, msn, mo, True, ReadRequest(9, 8, size, stag, to).encode()).encode()


def refused(end, ulpdu, fault, headers="MD"):
    """Check that the end sends exactly this Terminate, then sends and takes nothing more."""
    assert not end.ended
    completed = list(end.completed)
    assert end.receive(ulpdu)
    terminate = end.terminate
    assert terminate.fault is fault, (end.what, terminate)
    assert end.what
    untagged = ulpdu[:1] < b"\x80"
    assert terminate.segment_length == (len(ulpdu) if "M" in headers else None)
    assert terminate.ddp_header == (ulpdu[: 18 if untagged else 14] if "D" in headers else b"")
    assert terminate.rdma_header == (ulpdu[18:46] if "R" in headers else b"")
    end.post_send(view(b"never"))
    assert end.next() is None
    assert end.receive(send())
    assert list(end.completed) == completed
    assert end.terminate is terminate


STAG = "the region's"


@pytest.mark.parametrize(
    ("ulpdu", "fault"),
    [
        (lambda stag: write(stag ^ 1, 100), Fault.STAG),
        (lambda stag: write(stag, 99), Fault.BOUNDS),
        (lambda stag: write(stag, 0), Fault.BOUNDS),
        (lambda stag: write(stag, 117), Fault.BOUNDS),
        (lambda stag: write(stag, 2**63), Fault.BOUNDS),
        (lambda stag: write(stag, 2**64 - 4), Fault.TO_WRAP),
        (lambda stag: write(stag, 2**64 - 1), Fault.TO_WRAP),
        (lambda stag: write(stag, 100, opcode=Opcode.RDMA_READ_RESPONSE), Fault.OPCODE),
        (lambda stag: write(stag, 100, opcode=Opcode.SEND), Fault.OPCODE),
        (lambda stag: write(stag, 100, opcode=Opcode.RDMA_READ_REQUEST), Fault.OPCODE),
        (lambda stag: write(stag, 100, opcode=Opcode.TERMINATE), Fault.OPCODE),
    ],
)
def test_tagged_segments_that_are_refused(ulpdu, fault):
    """RFC 5041 §7.1: the memory stays as it was."""
    end = End()
    memory, region = end.memory(20, to=100)
    refused(end, ulpdu(region.stag), fault)
    assert memory == b"\x55" * 20


@pytest.mark.parametrize("access", [Access(0), Access.REMOTE_READ, Access.LOCAL_WRITE])
def test_a_write_needs_the_right(access):
    end = End()
    memory, region = end.memory(20, access)
    refused(end, write(region.stag, 0), Fault.STAG)
    assert memory == b"\x55" * 20


@pytest.mark.parametrize("access", [Access(0), Access.REMOTE_WRITE, Access.LOCAL_WRITE])
def test_a_read_needs_the_right(access):
    end = End()
    _, region = end.memory(20, access)
    refused(end, read(region.stag, 0, 4), Fault.SOURCE_ACCESS, "MDR")


@pytest.mark.parametrize("where", ["another stream", "another domain"])
def test_an_stag_of_another_stream_or_domain_is_not_for_this_one(where):
    """RFC 5041 §8.2."""
    for ulpdu, fault, headers in (
        (lambda stag: write(stag, 0), Fault.STREAM, "MD"),
        (lambda stag: read(stag, 0, 4), Fault.SOURCE_STREAM, "MDR"),
        (lambda stag: send(opcode=Opcode.SEND_INVALIDATE, stag=stag), Fault.CANNOT_INVALIDATE, "MD"),
    ):
        stags = StagTable()
        end, other = End(stags=stags), End(stags=stags)
        end.buffer()
        owner, stream = (end, other.stream) if where == "another stream" else (other, None)
        memory, region = owner.memory(20, stream=stream)
        refused(end, ulpdu(region.stag), fault, headers)
        assert memory == b"\x55" * 20
        assert region.valid


def test_an_stag_of_the_whole_domain_is_for_every_stream_in_it_and_no_peer_may_revoke_it():
    """RFC 5040 §8.1.1 rule 7."""
    end = End()
    memory, region = end.memory(20, stream=None)
    buffer = end.buffer()
    end.receive(write(region.stag, 0))
    assert memory[:5] == b"abcd\x55"
    refused(end, send(opcode=Opcode.SEND_INVALIDATE, stag=region.stag), Fault.CANNOT_INVALIDATE)
    assert region.valid
    assert buffer == bytes(100)


def test_a_region_of_no_octets_can_be_revoked():
    end = End()
    _, region = end.memory(0)
    end.buffer()
    end.receive(send(opcode=Opcode.SEND_INVALIDATE, stag=region.stag))
    (receive,) = end.done()
    assert receive.invalidated == region.stag
    assert not region.valid


def test_a_deregistered_stag_is_not_valid():
    for ulpdu, fault, headers in (
        (lambda stag: write(stag, 0), Fault.STAG, "MD"),
        (lambda stag: read(stag, 0, 4), Fault.SOURCE_STAG, "MDR"),
        (lambda stag: send(opcode=Opcode.SEND_SE_INVALIDATE, stag=stag), Fault.SOURCE_STAG, "MD"),
    ):
        end = End()
        end.buffer()
        memory, region = end.memory(20)
        region.deregister()
        refused(end, ulpdu(region.stag), fault, headers)
        memory += b"it may change its size again"


@pytest.mark.parametrize(
    ("ulpdu", "fault"),
    [
        (send(qn=1), Fault.QN),
        (send(qn=3), Fault.QN),
        (send(qn=2**32 - 1), Fault.QN),
        (send(msn=0), Fault.MSN),
        (send(msn=2), Fault.MSN),
        (send(mo=1), Fault.MO),
        (send(mo=2**32 - 1), Fault.MO),
        (send(payload=bytes(9)), Fault.TOO_LONG),
        (send(opcode=Opcode.RDMA_WRITE), Fault.OPCODE),
        (send(opcode=Opcode.RDMA_READ_RESPONSE), Fault.OPCODE),
        (read(1, 2, 3, qn=0), Fault.QN),
        (read(1, 2, 3, msn=2), Fault.MSN),
        (read(1, 2, 3, mo=28), Fault.MO),
        (read(1, 2, 3) + b"?", Fault.TOO_LONG),
        (read(1, 2, 3)[:-1], Fault.STREAM_CATASTROPHIC),
        (bytes.fromhex("0141") + read(1, 2, 3)[2:], Fault.STREAM_CATASTROPHIC),  # L=0
        (send(opcode=Opcode.TERMINATE, qn=0), Fault.QN),
        (send(opcode=Opcode.TERMINATE, qn=2, msn=2), Fault.MSN),
        (send(opcode=Opcode.TERMINATE, qn=2, payload=b"abc"), Fault.STREAM_CATASTROPHIC),
        (b"\x42" + send()[1:], Fault.UNTAGGED_VERSION),
        (b"\x40" + send()[1:], Fault.UNTAGGED_VERSION),
        (b"\xc0" + write(1, 2)[1:], Fault.TAGGED_VERSION),
        (b"\x41\x03" + send()[2:], Fault.RDMAP_VERSION),
        (b"\x41\x83" + send()[2:], Fault.RDMAP_VERSION),
        (b"\x41\x48" + send()[2:], Fault.OPCODE),
        (b"\x41\x4f" + send()[2:], Fault.OPCODE),
    ],
)
def test_untagged_segments_and_headers_that_are_refused(ulpdu, fault):
    end = End()
    buffer = end.buffer(8)
    refused(end, ulpdu, fault)
    assert buffer == bytes(8)


@pytest.mark.parametrize("ulpdu", [b"", b"\x41", send()[:17], write(1, 2)[:13]])
def test_a_ulpdu_without_a_whole_header_is_refused_without_headers(ulpdu):
    refused(End(), ulpdu, Fault.STREAM_CATASTROPHIC, "")


def test_reserved_bits_are_ignored():
    """RFC 5041 §4.1, RFC 5040 §4.1."""
    end = End()
    end.buffer()
    ulpdu = bytearray(send())
    ulpdu[0] |= 0x3C
    ulpdu[1] |= 0x30
    ulpdu[2:6] = b"\xff" * 4
    assert end.receive(bytes(ulpdu))
    assert len(end.done()) == 1


def test_a_message_that_exceeds_its_buffer_is_refused_at_that_segment():
    end = End()
    buffer = end.buffer(8)
    end.receive(send(payload=b"12345678", last=False))
    refused(end, send(mo=8, payload=b"9"), Fault.TOO_LONG)
    assert buffer == b"12345678"


def test_a_gap_in_a_message_is_refused():
    end = End()
    end.buffer(20)
    end.receive(send(last=False))
    refused(end, send(mo=8), Fault.MO)


def test_a_send_without_a_buffer_is_refused_if_it_must_not_wait():
    refused(End(), send(), Fault.NO_BUFFER)
    refused(End(), send(payload=b""), Fault.NO_BUFFER)  # RFC 5040 §5.3: a Send of no octets uses a buffer, too


@pytest.mark.parametrize(
    ("stag", "to", "size", "fault"),
    [
        (1, 100, 4, Fault.SOURCE_STAG),
        (0, 99, 4, Fault.SOURCE_BOUNDS),
        (0, 117, 4, Fault.SOURCE_BOUNDS),
        (0, 100, 2**32 - 1, Fault.SOURCE_BOUNDS),
        (0, 2**64 - 4, 4, Fault.SOURCE_TO_WRAP),
    ],
)
def test_reads_of_memory_that_the_peer_may_not_read_are_refused(stag, to, size, fault):
    """RFC 5040 §7.2, and §7.1 rule 3: the Terminate has all headers."""
    end = End()
    _, region = end.memory(20, to=100)
    refused(end, read(region.stag ^ stag, to, size), fault, "MDR")


def test_zero_length_messages_are_not_checked_and_are_answered():
    """RFC 5041 §5.2, RFC 5040 §5.2.1."""
    end = End()
    assert end.receive(write(77, 2**64 - 1, b""))
    assert end.receive(read(78, 2**64 - 1, 0))
    response = decode(end.next())
    assert response[:4] == (Opcode.RDMA_READ_RESPONSE, 9, 8, True)
    assert not response.payload
    assert not end.ended


def test_more_reads_than_the_ird_are_refused():
    """RFC 5040 §5.2.2: queue 1 has IRD buffers; RFC 5041 §7.1: there is no other."""
    end = End(ird=2)
    for msn in (1, 2):
        assert end.receive(read(0, 0, 0, msn))
    refused(end, read(0, 0, 0, 3), Fault.NO_BUFFER)


def test_a_read_may_follow_as_soon_as_an_answer_has_left():
    end = End(ird=1)
    for msn in range(1, 5):
        assert end.receive(read(0, 0, 0, msn))
        assert end.next()
    assert not end.ended


def test_a_source_that_is_revoked_during_a_read_ends_the_stream_there():
    """RFC 5040 §4.8: the RDMA header of the Terminate names the place that the Read reached; §8.1.1 rule 6."""
    end = End()
    source, region = end.memory(400, to=1000)
    request = read(region.stag, 1000, 400)
    end.receive(request)
    sent = len(decode(end.next()).payload)
    region.deregister()
    source.clear()
    assert end.next() is None
    assert end.terminate.fault is Fault.SOURCE_STAG
    assert end.terminate.ddp_header == request[:18]
    now = ReadRequest.decode(end.terminate.rdma_header)
    assert now == ReadRequest(9, 8 + sent, 400 - sent, region.stag, 1000 + sent)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"stag": 1}, Fault.STAG),
        ({"to": 1}, Fault.BOUNDS),
        ({"payload": bytes(11)}, Fault.BOUNDS),
        ({"payload": bytes(9)}, Fault.BOUNDS),
        ({"payload": b""}, Fault.BOUNDS),
    ],
)
def test_a_read_response_that_was_not_asked_for_is_refused(change, fault):
    """RFC 5040 §5.2.2."""
    one, other = End(), End()
    sink, local = one.memory(40, Access.LOCAL_WRITE, to=10)
    _, remote = other.memory(20)
    one.post_read(local, 5, 10, remote.stag, 0)
    other.receive(one.next())
    response = decode(other.next())
    assert (response.stag, response.to) == (local.stag, 15)
    change = {name: value if name == "payload" else getattr(response, name) + value for name, value in change.items()}
    refused(one, response._replace(**change).encode(), fault)
    assert sink == b"\x55" * 40


def test_a_sink_that_is_deregistered_takes_no_response():
    """RFC 5040 §8.1.1 rule 6."""
    one, other = End(), End()
    sink, local = one.memory(40, Access.LOCAL_WRITE)
    _, remote = other.memory(40)
    one.post_read(local, 0, 40, remote.stag, 0)
    other.receive(one.next())
    local.deregister()
    refused(one, other.next(), Fault.STAG)
    assert sink == b"\x55" * 40


def test_a_received_terminate_ends_the_stream():
    end = End()
    end.post_send(view(b"x"))
    terminate = Terminate.of(Fault.BOUNDS, write(1, 2))
    assert end.receive(terminate.encode())
    assert end.terminated == terminate
    assert end.next() is None
    assert end.terminate is None  # nothing answers it
    assert end.receive(send())
    assert end.terminated == terminate


def refused_by(one, other):
    """Carry ULPDUs until ``other`` refuses one, and return the request that its Terminate names, of those posted."""
    while not other.terminate:
        for sender, receiver in ((one, other), (other, one)):
            if ulpdu := sender.next():
                receiver.receive(ulpdu)
    one.receive(other.terminate.encode())
    assert one.terminated.fault is other.terminate.fault
    return one.named(one.terminated)


@pytest.mark.parametrize("at", [0, 1, 400])
def test_a_terminate_names_the_write_that_was_refused(ends, at):
    one, other = ends
    _, region = other.memory(at)
    _, source = other.memory(9, to=500)
    _, sink = one.memory(9)
    one.post_read(sink, 0, 9, source.stag, 500)  # the Write in front of its response is done, and has not completed
    one.post_write(bytes(at), region.stag, 0)
    refused = one.post_write(bytes(500), region.stag, 0)
    one.post_write(bytes(500), region.stag, 0)
    assert refused_by(one, other) is refused
    assert one.terminated.fault is Fault.BOUNDS
    assert refused not in one.done()


def test_a_terminate_names_the_send_that_was_refused(ends):
    one, other = ends
    for octets in (200, 200, 100):
        other.buffer(octets)
    posted = [one.post_send(bytes(200)) for _ in range(4)]
    assert refused_by(one, other) is posted[2]
    assert one.terminated.fault is Fault.TOO_LONG
    assert one.done() == posted[:2]


def test_a_terminate_names_the_send_whose_stag_cannot_be_invalidated(ends):
    one, other = ends
    _, sink = one.memory(9)
    _, region = other.memory(9)
    other.buffer()
    other.buffer()
    one.post_read(sink, 0, 9, region.stag, 0)
    posted = [one.post_send(b"", invalidate=stag) for stag in (region.stag, region.stag)]
    assert refused_by(one, other) is posted[1]
    assert one.terminated.fault is Fault.SOURCE_STAG


def test_a_terminate_names_the_read_that_exceeds_the_ird():
    one, other = End(depth=4), End(ird=2)
    _, region = other.memory(1000)
    _, sink = one.memory(4000)
    posted = [one.post_read(sink, n * 1000, 1000, region.stag, 0) for n in range(4)]
    for _ in range(3):
        other.receive(one.next())
    assert refused_by(one, other) is posted[2]
    assert one.terminated.fault is Fault.NO_BUFFER


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xc1\x40",
        b"\xff" * 18,
        Tagged(Opcode.RDMA_WRITE, 1, 2, True).encode(),
        Tagged(Opcode.RDMA_READ_RESPONSE, 5, 0, True).encode(),
        Untagged(Opcode.SEND, 0, 2, 0, True).encode(),
        Untagged(Opcode.RDMA_READ_REQUEST, 1, 1, 0, True).encode(),
        Untagged(Opcode.TERMINATE, 2, 1, 0, True).encode(),
    ],
)
def test_a_terminate_with_other_headers_names_nothing(header):
    one = End()
    one.post_write(bytes(500), 5, 0)
    one.next()
    assert one.named(Terminate(1, 1, 0, 18, header)) is None
    one = End()
    one.post_send(bytes(500))
    one.next()
    assert one.named(Terminate(1, 2, 5, 18, header)) is None


def test_the_first_error_counts():
    """RFC 5040 §7.1 rule 4."""
    end = End()
    end.receive(write(1, 2))
    end.abort(Fault.RDMAP_CATASTROPHIC, "late")
    assert end.terminate.fault is Fault.STAG


def test_an_abort_of_this_end_has_no_headers():
    """RFC 5040 §7.1 rule 1."""
    end = End()
    end.abort(Fault.RDMAP_CATASTROPHIC, "why not")
    assert end.terminate == Terminate(0, 0, 0)


@given(st.lists(st.binary(max_size=60), max_size=5), st.booleans())
def test_every_ulpdu_is_taken_refused_or_waits(ulpdus, waits):
    end = End(waits=waits)
    memory, _ = end.memory(8, Access.LOCAL_WRITE)
    for ulpdu in ulpdus:
        end.receive(ulpdu)
        while end.next():
            pass
    assert memory == b"\x55" * 8


@given(st.data())
def test_mutated_ulpdus_do_no_harm(data):
    end = End(waits=True)
    memory, region = end.memory(64, Access.REMOTE_READ | Access.REMOTE_WRITE)
    guarded, other = end.memory(64, Access.REMOTE_READ)
    end.buffer(16)
    for good in (write(region.stag, 0), send(), read(region.stag, 0, 64), read(other.stag, 8, 8, msn=2)):
        ulpdu = bytearray(good)
        for _ in range(data.draw(st.integers(0, 3))):
            ulpdu[data.draw(st.integers(0, len(ulpdu) - 1))] = data.draw(st.integers(0, 255))
        end.receive(bytes(ulpdu))
        while end.next():
            pass
    assert guarded == b"\x55" * 64
    assert len(memory) == 64


# Requests that the ULP may not post


def test_impossible_work_is_refused_before_anything_is_sent():
    end, other = End(), End(depth=0)
    _, read_only = end.memory(10, Access.REMOTE_READ)
    _, gone = end.memory(10)
    _, sink = end.memory(10)
    gone.deregister()
    _, foreign = other.memory(10)
    for post, what in (
        (lambda: end.post_write(view(b"x"), 2**32, 0), "an STag is 0 to 0xffffffff, not 0x100000000"),
        (lambda: end.post_write(view(b"x"), 1, 2**64 - 1), "1 octets from TO 0xffffffffffffffff on do not stay below"),
        (lambda: end.post_write(view(b"x"), 1, -1), "TO -0x1"),
        (lambda: end.post_send(view(b"x"), invalidate=-1), "an STag is 0 to"),
        (lambda: end.post_read(read_only, 0, 1, 1, 0), "has no right LOCAL_WRITE"),
        (lambda: end.post_read(gone, 0, 1, 1, 0), "is not valid on this stream"),
        (lambda: end.post_read(foreign, 0, 1, 1, 0), "is not valid on this stream"),
        (lambda: end.post_read(sink, 5, 6, 1, 0), "6 octets at offset 5 do not lie in a region of 10"),
        (lambda: end.post_read(sink, -1, 6, 1, 0), "6 octets at offset -1 do not lie"),
        (lambda: other.post_read(foreign, 0, 1, 1, 0), "the connection's ORD is 0"),
        (lambda: end.post_receive(memoryview(b"x")), "a read-only buffer cannot receive"),
    ):
        with pytest.raises(ValueError, match=what):
            post()
    assert end.next() is None
    assert end.posted == 0


def test_all_posted_work_can_be_flushed():
    end = End()
    posted = [end.post_send(view(b"x")), end.post_send(view(b"y")), end.post_receive(memoryview(bytearray(1)))]
    end.next()
    assert end.flush() == posted
    assert end.posted == end.receives == 0
    assert all(isinstance(each, Work | Receive) for each in posted)
