#!/usr/bin/python3
"""Receives samples of a device in a ring of this process's memory, with pyverbs (Debian: python3-pyverbs) alone.

The same as receive_samples.c, for programs in Python: ``receive`` iterates over the samples, in blocks.
docs/samples.md has the protocol.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import mmap
import signal
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from pyverbs import cm_enums as cm
from pyverbs import enums as verbs
from pyverbs.cmid import CMID, AddrInfo, CMEvent, CMEventChannel, ConnParam
from pyverbs.cq import CQ, CompChannel
from pyverbs.mr import MR
from pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from pyverbs.qp import QPCap, QPInitAttr

PLACE = struct.Struct(">QII")  # TO, STag and length of registered memory
RECORD = struct.Struct("<QQ")  # octets written so far, samples dropped before the last of them
HEAD = struct.Struct("<Q")  # octets freed
HEADS = 16  # RDMA Writes of the head that may be on their way; each frees a quarter of the ring


class ReceiveError(Exception):
    """The connection could not be made, or the device does not keep to the protocol."""


class Block(NamedTuple):
    """Samples in their order; ``octets`` is the ring's memory, which is freed when the next block is asked for."""

    octets: memoryview
    dropped: int  # samples that were dropped before the first of these


class Receiver:
    """A connection to a device's sample writer, with a ring of ``octets`` octets, and samples of ``sample`` octets."""

    def __init__(self, address: str, port: str, octets: int, sample: int) -> None:
        self.octets = octets
        self.sample = sample
        self._ring = mmap.mmap(-1, octets)
        self._channel = CMEventChannel()
        self._id = CMID(creator=self._channel, port_space=cm.RDMA_PS_TCP)
        self._id.resolve_addr(AddrInfo(dst=address, dst_service=port, port_space=cm.RDMA_PS_TCP))
        self._expect(cm.RDMA_CM_EVENT_ADDR_RESOLVED)
        self._id.resolve_route()
        self._expect(cm.RDMA_CM_EVENT_ROUTE_RESOLVED)
        context, domain = self._id.context, self._id.pd
        buffers = octets // 1024 + 16  # more than doorbells can be on their way
        self._bells = CompChannel(context)
        self._received, self._sent = CQ(context, buffers, None, self._bells), CQ(context, HEADS)
        self._received.req_notify()
        cap = QPCap(max_send_wr=HEADS, max_recv_wr=buffers, max_inline_data=HEAD.size)
        self._id.create_qp(QPInitAttr(qp_type=verbs.IBV_QPT_RC, scq=self._sent, rcq=self._received, cap=cap))
        writable = verbs.IBV_ACCESS_LOCAL_WRITE | verbs.IBV_ACCESS_REMOTE_WRITE
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._ring))
        ring = self._region = MR(domain, octets, writable, start)
        self._buffers = deque(MR(domain, RECORD.size, verbs.IBV_ACCESS_LOCAL_WRITE) for _ in range(buffers))
        for buffer in self._buffers:
            self._id.post_recv(buffer)
        self._head = MR(domain, HEAD.size, verbs.IBV_ACCESS_LOCAL_WRITE)
        param = ConnParam(resources=0, depth=0, data_len=PLACE.size)
        param.set_private_data(PLACE.pack(start, ring.rkey, octets))
        self._id.connect(param)
        reply = self._expect(cm.RDMA_CM_EVENT_ESTABLISHED)
        if len(reply) < PLACE.size:
            raise ReceiveError(f"the Reply has {len(reply)} octets of private data, and a place has {PLACE.size}")
        self._to, self._stag, _ = PLACE.unpack_from(reply)
        self.received = self.dropped = self.bells = self._freed = 0
        self._stopped = False

    def __iter__(self) -> Iterator[Block]:
        """Iterate until the device has sent its last sample, or ``stop`` is called."""
        self._free()  # an initiator sends first (RFC 5044 §7.1.2)
        while record := self._record():
            end, dropped = RECORD.unpack(record)
            if not self.received <= end <= self._freed + self.octets or end % self.sample or dropped < self.dropped:
                raise ReceiveError(f"behind octet {self.received}, a record says {end}, with {dropped} dropped")
            self.bells += 1
            while self.received < end:  # in two blocks, if the ring's end is between them
                at = self.received % self.octets
                octets = min(self.octets - at, end - self.received)
                self.received += octets
                lost, self.dropped = dropped - self.dropped, dropped
                yield Block(memoryview(self._ring)[at : at + octets], lost)
            if self.received - self._freed >= self.octets // 4:
                self._free()

    def stop(self) -> None:
        """End the iteration; a signal handler calls this, and its signal ends the wait for a doorbell."""
        self._stopped = True

    def close(self) -> None:
        """Disconnect; the peer may have done so before."""
        with suppress(PyverbsError):
            self._id.disconnect()

    def _expect(self, kind: int) -> bytes:
        """Wait for an event of the connection, and return its private data."""
        event = CMEvent(self._channel)
        private = bytes(event.private_data) if kind == cm.RDMA_CM_EVENT_ESTABLISHED else b""
        came, name = event.event_type, event.event_str()
        event.ack_cm_event()
        if came != kind:
            raise ReceiveError(f"the connection failed: {name}")
        return private

    def _record(self) -> bytes | None:
        """Wait for a doorbell, and return its record; None at the end of the connection, or when stopped."""
        count, done = self._received.poll()
        while not count and not self._stopped:
            try:
                self._bells.get_cq_event(self._received)
            except PyverbsRDMAError as error:
                if error.error_code != errno.EINTR:
                    raise
                continue
            self._received.ack_events(1)
            self._received.req_notify()
            count, done = self._received.poll()
        if self._stopped or done[0].status == verbs.IBV_WC_WR_FLUSH_ERR:
            return None
        if done[0].status != verbs.IBV_WC_SUCCESS or done[0].byte_len != RECORD.size:
            raise ReceiveError(f"a doorbell of {done[0].byte_len} octets, with status {done[0].status}")
        buffer = self._buffers.popleft()  # they are filled in the order in which they were posted
        record = bytes(buffer.read(RECORD.size, 0))
        self._id.post_recv(buffer)
        self._buffers.append(buffer)
        return record

    def _free(self) -> None:
        """Let the device overwrite all octets received; no error if the connection has ended."""
        self._sent.poll(HEADS)
        self._freed = self.received
        self._head.write(HEAD.pack(self._freed), HEAD.size)
        with suppress(PyverbsError):
            flags = verbs.IBV_SEND_SIGNALED | verbs.IBV_SEND_INLINE  # copied at once
            self._id.post_write(self._head, HEAD.size, self._to, self._stag, flags)


def main() -> None:
    """Receive samples, print the rate each second, and write the samples to a file if asked for."""
    parser = argparse.ArgumentParser(description="Receive samples of a device in a ring of this process's memory.")
    parser.add_argument("address")
    parser.add_argument("port")
    parser.add_argument("-r", "--ring", type=int, default=1 << 20, help="octets of the ring (default: 1 MiB)")
    parser.add_argument("-s", "--sample", type=int, default=4, help="octets of a sample (default: 4)")
    parser.add_argument("-o", "--output", type=argparse.FileType("wb"), help="write the samples to a file; -: stdout")
    options = parser.parse_args()
    if not 4096 <= options.ring <= 1 << 24 or options.sample < 1 or options.ring % options.sample:
        parser.error(f"a ring has 4096 to {1 << 24} octets and whole samples, not {options.ring}")
    receiver = Receiver(options.address, options.port, options.ring, options.sample)

    def interrupt(*_: object) -> None:
        receiver.stop()
        signal.alarm(1)  # again, in case the wait for a doorbell begins only now

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, interrupt)
    first = printed = time.monotonic()
    before, gaps = 0, 0
    for block in receiver:
        gaps += block.dropped > 0
        if options.output:
            options.output.write(block.octets)
        if (now := time.monotonic()) - printed >= 1:
            rate = (receiver.received - before) / (now - printed) / 1e6
            samples = receiver.received // options.sample
            print(f"{rate:.2f} MB/s, {samples} samples received, {receiver.dropped} dropped", file=sys.stderr)
            printed, before = now, receiver.received
    signal.alarm(0)
    seconds, samples = time.monotonic() - first, receiver.received // options.sample
    if options.output:
        options.output.flush()
    receiver.close()
    print(f"received {samples} samples in {receiver.bells} doorbells, in {seconds:.3f} s", file=sys.stderr)
    print(f"dropped {receiver.dropped} before the last of them, in {gaps} gaps", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except (ReceiveError, PyverbsError, OSError) as error:
        sys.exit(f"receive_samples: {error}")
