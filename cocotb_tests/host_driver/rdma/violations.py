"""A peer that breaks the rules of DDP and RDMAP, in every way that has an answer, and the answer that the RFCs require.

Each kind of violation is a method of ``Violations``, with its fault. Its ULPDUs are encoded here, and so is the
Terminate that must answer them: RFC 5040 §4.8, RFC 5041 §7.2.
"""

import asyncio
import random
import socket
import struct
from dataclasses import dataclass

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.rdma import Access

END = 2**64
IRD = 2
WRITE, REQUEST, RESPONSE, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE = range(8)
TAGGED, UNTAGGED = (WRITE, RESPONSE), (REQUEST, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE)
OCTETS = 2048  # of the memory in which everything is; regions are in it
OPEN, READ_ONLY, WRITE_ONLY, SINK = slice(100, 500), slice(600, 1000), slice(1100, 1500), slice(1600, 1750)
BUFFERS = [slice(at, at + 60) for at in (1801, 1862, 1923)]  # for Sends
ROOM = 60


def tagged(opcode, stag, to, payload=b"", *, last=True, dv=1, rv=1):
    """Return a tagged ULPDU (RFC 5041 figure 2, RFC 5040 figure 3)."""
    return struct.pack(">BBIQ", 0x80 | last << 6 | dv, rv << 6 | opcode, stag, to) + payload


def untagged(opcode, qn, msn, mo=0, payload=b"", *, last=True, stag=0, dv=1, rv=1):
    """Return an untagged ULPDU (RFC 5041 figure 4)."""
    return struct.pack(">BBIIII", last << 6 | dv, rv << 6 | opcode, stag, qn, msn, mo) + payload


def request(stag, to, size, sink=(9, 8)):
    """Return the header of an RDMA Read Request (RFC 5040 figure 5)."""
    return struct.pack(">IQIIQ", *sink, size, stag, to)


def terminate(fault, ulpdu):
    """Return the ULPDU of the Terminate that answers ``ulpdu`` (RFC 5040 figures 7, 8 and 10)."""
    layer, kind, code = fault
    octets = 14 if ulpdu[0] & 0x80 else 18
    whole = len(ulpdu) >= octets
    of_request = (layer, kind) == (0, 1) and ulpdu[1] & 0xF == REQUEST
    word = layer << 28 | kind << 24 | code << 16 | whole << 15 | whole << 14 | of_request << 13
    copies = struct.pack(">H", len(ulpdu)) + ulpdu[:octets] if whole else b""
    copies += ulpdu[octets : octets + 28] if of_request else b""
    return untagged(TERMINATE, 2, 1, 0, struct.pack(">I", word) + copies)


def refused(layer, kind, code, *, late=False):
    """Mark a kind of violation. ``late``: an engine finds it when it answers, and takes what arrives until then."""

    def mark(method):
        method.fault = layer, kind, code
        method.late = late
        return method

    return mark


class Peer:
    """The initiator's end of a connection as a bare socket, in the client-server model, with CRCs."""

    def __init__(self, sock):
        self.sock = sock
        self.loop = asyncio.get_running_loop()
        self.framer = FpduFramer(markers=False, crc=True)
        self.delineator = FpduDelineator(markers=False, crc=True)
        self.request = StartupFrame(FrameKind.REQUEST, crc=True, enhanced=EnhancedData(ird=4, ord=IRD)).encode()
        self.reply = b""
        self.eof = False

    async def send(self, *ulpdus):
        await self.loop.sock_sendall(self.sock, b"".join(map(self.framer.frame, ulpdus)))

    async def ulpdu(self):
        """Return the next ULPDU; None if the connection is closed."""
        while (ulpdu := self.delineator.next()) is None and not self.eof:
            try:
                octets = await self.loop.sock_recv(self.sock, 65536)
            except ConnectionError:
                octets = b""
            self.delineator.feed(octets)
            self.eof = not octets
        return ulpdu


class Violations:
    """What a peer may do on one connection, and what the memory at this end must then be."""

    def __init__(self, connection, peer, stags, seed):
        self.connection = connection
        self.peer = peer
        self.draw = random.Random(seed)
        self.memory = bytearray(self.draw.randbytes(OCTETS))
        self.expected = bytearray(self.memory)
        view = memoryview(self.memory)
        both = Access.REMOTE_READ | Access.REMOTE_WRITE
        self.to = self.draw.randrange(2**40)
        register = connection.register
        self.open = register(view[OPEN], both, to=self.to).stag
        self.read_only = register(view[READ_ONLY], Access.REMOTE_READ | Access.LOCAL_WRITE, to=self.to).stag
        self.write_only = register(view[WRITE_ONLY], Access.REMOTE_WRITE, to=END - 401).stag
        self.readable = register(view[READ_ONLY], Access.REMOTE_READ, to=END - 401).stag
        self.empty = register(view[:0], both, to=self.to).stag
        self.of_domain = connection.domain.register(view[OPEN], both, to=self.to).stag
        self.other_domain = rdma.ProtectionDomain(stags)
        self.foreign = self.other_domain.register(view[OPEN], both, to=self.to).stag
        revoked = register(view[OPEN], both, to=self.to)
        revoked.deregister()
        self.revoked = revoked.stag
        self.valid = {self.open, self.read_only, self.write_only, self.readable, self.empty, self.of_domain}
        self.valid.add(self.foreign)
        self.posted = [connection.post_receive(view[buffer]) for buffer in BUFFERS]
        self.msn = 1  # of the next Send

    def release(self):
        for region in (*self.connection.domain, *self.other_domain):
            region.deregister()

    # --- good ULPDUs

    def octets(self, least=1, most=120):
        return self.draw.randbytes(self.draw.randint(least, most))

    def good_write(self):
        payload = self.octets(0)
        at = self.draw.randint(0, 400 - len(payload))
        place = OPEN.start + at
        self.expected[place : place + len(payload)] = payload
        return tagged(WRITE, self.open, self.to + at, payload)

    def good_send(self):
        payload = self.octets(0, ROOM)
        at = BUFFERS[self.msn - 1].start
        self.expected[at : at + len(payload)] = payload
        return self.send(payload)

    def followers(self):
        """Return good ULPDUs that nothing may come of, as they follow a bad one."""
        write = tagged(WRITE, self.open, self.to + self.draw.randrange(300), self.octets(1, 99))
        return [write, untagged(SEND, 0, self.draw.choice([self.msn, self.msn + 1]), 0, self.octets(0, ROOM)), write]

    # --- parts of bad ones

    def other(self, *values, bits=32):
        """Return a random number that is none of ``values``, and often near one."""
        while True:
            near = self.draw.choice(values) ^ 1 << self.draw.randrange(bits)
            number = self.draw.choice([self.draw.getrandbits(bits), near])
            if number not in values:
                return number

    def send(self, payload=b"", *, opcode=None, **changes):
        fields = {"qn": 0, "msn": self.msn, "mo": 0, "payload": payload} | changes
        self.msn += 1
        return untagged(self.draw.choice([SEND, SEND_SE]) if opcode is None else opcode, **fields)

    def invalidate(self, stag, **changes):
        opcode = self.draw.choice([SEND_INVALIDATE, SEND_SE_INVALIDATE])
        return self.send(self.octets(0, ROOM), opcode=opcode, stag=stag, **changes)

    def read(self, stag, to, size, **changes):
        fields = {"qn": 1, "msn": 1, "mo": 0, "payload": request(stag, to, size)} | changes
        return untagged(REQUEST, **fields)

    def good_read(self, **changes):
        return self.read(self.open, self.to, self.draw.randint(1, 99), **changes)

    def unknown(self):
        return self.other(*self.valid)

    # --- RDMA Writes

    @refused(1, 1, 0)
    async def write_to_an_unknown_stag(self):
        return [tagged(WRITE, self.unknown(), self.to, self.octets())]

    @refused(1, 1, 0)
    async def write_to_a_revoked_stag(self):
        return [tagged(WRITE, self.revoked, self.to, self.octets())]

    @refused(1, 1, 0)
    async def write_without_the_right(self):
        return [tagged(WRITE, self.read_only, self.to, self.octets())]

    @refused(1, 1, 2)
    async def write_to_an_stag_of_another_domain(self):
        return [tagged(WRITE, self.foreign, self.to, self.octets())]

    @refused(1, 1, 1)
    async def write_before_the_region(self):
        payload = self.octets()
        near = (self.to - self.draw.randint(1, len(payload) + 3)) % END
        if near + len(payload) >= END:
            near = self.to ^ 1 << 62
        return [tagged(WRITE, self.open, near, payload, last=self.draw.random() < 0.5)]

    @refused(1, 1, 1)
    async def write_past_the_region(self):
        payload = self.octets()
        to = self.to + 400 - len(payload) + self.draw.randint(1, len(payload) + 3)
        return [tagged(WRITE, self.open, to, payload, last=self.draw.random() < 0.5)]

    @refused(1, 1, 1)
    async def write_4_gib_past_the_region(self):
        return [tagged(WRITE, self.open, self.to + 2**32 * self.draw.randint(1, 9), self.octets())]

    @refused(1, 1, 1)
    async def write_into_an_empty_region(self):
        return [tagged(WRITE, self.empty, self.to, self.octets())]

    @refused(1, 1, 1)
    async def later_segment_past_the_region(self):
        first = self.octets()
        self.expected[OPEN.start : OPEN.start + len(first)] = first
        begins = tagged(WRITE, self.open, self.to, first, last=False)
        return [begins, tagged(WRITE, self.open, self.to + len(first), bytes(401 - len(first)))]

    @refused(1, 1, 3)
    async def write_that_wraps(self):
        payload = self.octets()
        return [tagged(WRITE, self.write_only, END - self.draw.randint(1, len(payload)), payload)]

    # --- Sends

    @refused(1, 2, 1)
    async def send_on_another_queue(self):
        return [self.send(self.octets(0, ROOM), qn=self.other(0))]

    @refused(1, 2, 3)
    async def send_with_another_msn(self):
        return [self.send(self.octets(0, ROOM), msn=self.other(self.msn))]

    @refused(1, 2, 4)
    async def first_segment_with_an_mo(self):
        return [self.send(self.octets(0, ROOM), mo=self.other(0))]

    @refused(1, 2, 4)
    async def later_segment_with_another_mo(self):
        msn, first = self.msn, self.octets(0, 30)
        at = BUFFERS[msn - 1].start
        self.expected[at : at + len(first)] = first
        begins = self.send(first, last=False)
        return [begins, self.send(self.octets(0, 30), msn=msn, mo=self.other(len(first)))]

    @refused(1, 2, 5)
    async def send_that_exceeds_its_buffer(self):
        return [self.send(self.octets(ROOM + 1, ROOM + 60), last=self.draw.random() < 0.5)]

    @refused(1, 2, 5)
    async def later_segment_that_exceeds_the_buffer(self):
        msn, first = self.msn, self.octets(0, ROOM)
        at = BUFFERS[msn - 1].start
        self.expected[at : at + len(first)] = first
        begins = self.send(first, last=False)
        return [begins, self.send(self.octets(ROOM - len(first) + 1, ROOM + 1), msn=msn, mo=len(first))]

    @refused(1, 2, 2)
    async def send_without_a_buffer(self):
        good = []
        while self.msn <= len(BUFFERS):
            good.append(self.good_send())
        return [*good, self.send(self.octets(0, 99), last=self.draw.random() < 0.5)]

    @refused(0, 1, 0)
    async def send_to_invalidate_an_unknown_stag(self):
        return [self.invalidate(self.unknown())]

    @refused(0, 1, 0)
    async def send_to_invalidate_a_revoked_stag(self):
        return [self.invalidate(self.revoked)]

    @refused(0, 1, 9)
    async def send_to_invalidate_an_stag_of_the_domain(self):
        return [self.invalidate(self.of_domain, last=self.draw.random() < 0.5)]

    @refused(0, 1, 9)
    async def send_to_invalidate_an_stag_of_another_domain(self):
        return [self.invalidate(self.foreign)]

    # --- RDMA Read Requests

    @refused(1, 2, 1)
    async def request_on_another_queue(self):
        return [self.good_read(qn=self.other(1))]

    @refused(1, 2, 3)
    async def request_with_another_msn(self):
        return [self.good_read(msn=self.other(1))]

    @refused(1, 2, 4)
    async def request_with_an_mo(self):
        return [self.good_read(mo=self.other(0))]

    @refused(1, 2, 5)
    async def request_that_is_too_long(self):
        return [self.good_read(payload=request(self.open, self.to, 1) + self.octets())]

    @refused(0, 2, 7)
    async def request_that_is_too_short(self):
        return [self.good_read(payload=request(self.open, self.to, 1)[: self.draw.randrange(28)])]

    @refused(0, 2, 7)
    async def request_that_goes_on(self):
        return [self.good_read(last=False)]

    @refused(1, 2, 2)
    async def request_beyond_the_ird(self):
        large = bytearray(1 << 20)
        stag = self.connection.register(large, Access.REMOTE_READ).stag
        return [self.read(stag, 0, len(large), msn=msn) for msn in range(1, IRD + 2)]

    @refused(0, 1, 0, late=True)
    async def read_of_an_unknown_stag(self):
        return [self.read(self.unknown(), self.to, self.draw.randint(1, 2**32 - 1))]

    @refused(0, 1, 0, late=True)
    async def read_of_a_revoked_stag(self):
        return [self.read(self.revoked, self.to, self.draw.randint(1, 400))]

    @refused(0, 1, 1, late=True)
    async def read_before_the_region(self):
        return [self.read(self.open, self.to - 1 if self.to else self.to ^ 1 << 62, self.draw.randint(1, 400))]

    @refused(0, 1, 1, late=True)
    async def read_past_the_region(self):
        at = self.draw.randrange(400)
        return [self.read(self.open, self.to + at, 400 - at + self.draw.choice([1, 2, 2**31]))]

    @refused(0, 1, 2, late=True)
    async def read_without_the_right(self):
        return [self.read(self.write_only, END - 401, self.draw.randint(1, 400))]

    @refused(0, 1, 3, late=True)
    async def read_of_an_stag_of_another_domain(self):
        return [self.read(self.foreign, self.to, self.draw.randint(1, 400))]

    @refused(0, 1, 4, late=True)
    async def read_that_wraps(self):
        size = self.draw.randint(1, 400)
        return [self.read(self.readable, END - self.draw.randint(1, size), size)]

    # --- RDMA Read Responses

    async def due(self):
        """Have an RDMA Read into SINK, and return the STag and the TO that it names."""
        self.connection.post_read(memoryview(self.memory)[SINK], stag=1, to=2)
        await self.peer.send(tagged(WRITE, 0, 0))  # a responder may send once it has received an FPDU
        asked = await self.peer.ulpdu()
        assert (asked[1] & 0xF, len(asked)) == (REQUEST, 18 + 28)
        stag, to, size, *source = struct.unpack(">IQIIQ", asked[18:])
        assert (size, source) == (150, [1, 2])
        self.valid.add(stag)
        return stag, to

    @refused(0, 2, 6)
    async def response_where_none_is_due(self):
        return [tagged(RESPONSE, self.draw.choice([self.open, self.read_only]), self.to, self.octets(0))]

    @refused(1, 1, 0)
    async def response_to_another_stag(self):
        _, to = await self.due()
        stag = self.draw.choice([self.open, self.read_only, self.unknown()])
        return [tagged(RESPONSE, stag, self.draw.choice([to, self.to]), self.octets(1, 149), last=False)]

    @refused(1, 1, 1)
    async def response_at_another_to(self):
        stag, to = await self.due()
        return [tagged(RESPONSE, stag, self.other(to, bits=64), self.octets(1, 149), last=False)]

    @refused(1, 1, 1)
    async def later_segment_of_a_response_at_another_to(self):
        stag, to = await self.due()
        first = self.octets(1, 70)
        self.expected[SINK.start : SINK.start + len(first)] = first
        begins = tagged(RESPONSE, stag, to, first, last=False)
        return [begins, tagged(RESPONSE, stag, to + len(first) + self.draw.choice([-1, 1, 3]), self.octets(1, 70))]

    @refused(1, 1, 1)
    async def response_of_too_many_octets(self):
        stag, to = await self.due()
        return [tagged(RESPONSE, stag, to, self.octets(151, 200), last=self.draw.random() < 0.5)]

    @refused(1, 1, 1)
    async def response_of_too_few_octets(self):
        stag, to = await self.due()
        return [tagged(RESPONSE, stag, to, self.octets(0, 149))]

    # --- headers

    @refused(1, 1, 4)
    async def tagged_segment_of_another_ddp_version(self):
        return [tagged(WRITE, self.open, self.to, self.octets(), dv=self.draw.choice([0, 2, 3]))]

    @refused(1, 2, 6)
    async def untagged_segment_of_another_ddp_version(self):
        return [self.send(self.octets(0, ROOM), dv=self.draw.choice([0, 2, 3]))]

    @refused(0, 2, 5)
    async def segment_of_another_rdmap_version(self):
        version = self.draw.choice([0, 2, 3])
        send = self.send(self.octets(0, ROOM), rv=version)
        return [self.draw.choice([send, tagged(WRITE, self.open, self.to, self.octets(), rv=version)])]

    @refused(0, 2, 6)
    async def unknown_opcode(self):
        opcode = self.draw.randrange(8, 16)
        send = self.send(self.octets(0, ROOM), opcode=opcode)
        return [self.draw.choice([send, tagged(opcode, self.open, self.to, self.octets())])]

    @refused(0, 2, 6)
    async def opcode_of_tagged_segments_in_an_untagged_one(self):
        return [self.send(self.octets(0, ROOM), opcode=self.draw.choice(TAGGED))]

    @refused(0, 2, 6)
    async def opcode_of_untagged_segments_in_a_tagged_one(self):
        return [tagged(self.draw.choice(UNTAGGED), self.open, self.to, self.octets())]

    @refused(0, 2, 7)
    async def ulpdu_without_a_whole_header(self):
        whole = self.draw.choice([self.send(), tagged(WRITE, self.open, self.to)])
        return [whole[: self.draw.randrange(2, len(whole))]]

    # --- Terminates

    @refused(1, 2, 1)
    async def terminate_on_another_queue(self):
        return [untagged(TERMINATE, self.other(2), 1, 0, bytes(4))]

    @refused(1, 2, 3)
    async def terminate_with_another_msn(self):
        return [untagged(TERMINATE, 2, self.other(1), 0, bytes(4))]

    @refused(1, 2, 4)
    async def terminate_with_an_mo(self):
        return [untagged(TERMINATE, 2, 1, self.other(0), bytes(4))]

    @refused(0, 2, 7)
    async def terminate_that_is_too_short(self):
        return [untagged(TERMINATE, 2, 1, 0, bytes(self.draw.randrange(4)))]


KINDS = [name for name, method in vars(Violations).items() if hasattr(method, "fault")]


@dataclass
class Answer:
    """A refused ULPDU, the Terminate that it caused, and all that both ends have sent, as octets of the streams."""

    kind: str
    refused: bytes
    terminate: bytes
    request: bytes
    reply: bytes
    fpdus: list[bytes]


async def commit(listener, kind, seed, *, engine):
    """Commit a violation on a connection of its own, and check the answer, the memory and the error; return the answer.

    ``engine`` is whether the listener's devices have an RDMA engine.
    """
    with socket.socket() as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, listener.address)
        peer = Peer(sock)
        await peer.loop.sock_sendall(sock, peer.request)
        connection = await (await listener.request()).accept(domain=rdma.ProtectionDomain(listener.stags))
        while len(peer.reply) < 24:
            peer.reply += await peer.loop.sock_recv(sock, 24 - len(peer.reply))
        scene = Violations(connection, peer, listener.stags, f"{kind} {seed}")
        method = getattr(scene, kind)
        before = scene.draw.sample([scene.good_write, scene.good_send], scene.draw.randint(0, 2))
        good = [make() for make in before]
        *more, bad = await method()
        behind = [] if method.late and engine else scene.followers()
        await peer.send(*good, *more, bad, *behind)
        fpdus = []
        while (ulpdu := await peer.ulpdu()) is not None:
            fpdus.append(ulpdu)
        last = fpdus.pop()
        assert last == terminate(method.fault, bad), f"{last.hex(' ')} answered {bad.hex(' ')}"
        assert all(each[1] & 0xF == RESPONSE for each in fpdus)
        peer.sock.close()
        error = await connection.disconnected()
        assert isinstance(error, rdma.TerminatedError)
        assert (error.layer, error.type, error.code, error.by) == (*method.fault, rdma.By.LOCAL)
        assert error.what
        await connection.close()
        assert scene.memory == scene.expected
        filled = len([make for make in good if make[1] & 0xF in (SEND, SEND_SE)])
        failures = await asyncio.gather(*scene.posted, return_exceptions=True)
        if kind != "send_without_a_buffer":
            assert failures[filled:] == [error] * (len(BUFFERS) - filled)
        assert [region.stream for region in connection.domain] == [None]  # those of the connection are revoked
        scene.release()
        return Answer(kind, bad, last, peer.request, peer.reply, [*fpdus, last])
