"""Work requests and their completions, as verbs has them: what is posted, and what becomes of it.

A request is plain data. Each one that is posted ends in exactly one ``Completion``, which goes to the
``CompletionQueue`` or to the future that it was posted with.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Self

from open_rnic.host_driver.ddp import Opcode
from open_rnic.host_driver.rdma.memory import View

if TYPE_CHECKING:
    from open_rnic.host_driver.rdma.connection import Connection, RdmaError
    from open_rnic.host_driver.rdma.memory import Gather


class QueueFullError(Exception):
    """More was posted than the queue holds; nothing of it is done."""


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """A Send, an RDMA Write or an RDMA Read, as ``ibv_send_wr``; ``send``, ``write`` and ``read`` make them.

    ``local`` is a scatter/gather list, or its only entry: a buffer, a ``Region`` or a slice of one. It is the source
    of the message, for an RDMA Read its sink. ``fence`` holds the request, and all that is posted behind it, back until
    every earlier RDMA Read has completed (RFC 5040 §5.5 rule 12). Without ``signaled`` only its failure makes an entry
    in the completion queue. ``wr_id`` is the ULP's, and comes back in the completion.
    """

    opcode: Opcode
    local: Gather
    stag: int = 0  # the peer's, for tagged messages and to be invalidated
    to: int = 0
    fence: bool = False
    signaled: bool = True
    wr_id: Any = None

    @classmethod
    def send(
        cls, local: Gather, *, solicited: bool = False, invalidate: int | None = None, **flags: Any
    ) -> Self:
        """A Send; ``solicited`` asks for an event at the peer, ``invalidate`` revokes an STag of the peer's."""
        opcode = {
            (False, False): Opcode.SEND,
            (False, True): Opcode.SEND_INVALIDATE,
            (True, False): Opcode.SEND_SE,
            (True, True): Opcode.SEND_SE_INVALIDATE,
        }[solicited, invalidate is not None]
        return cls(opcode, local, invalidate or 0, **flags)

    @classmethod
    def write(cls, local: Gather, stag: int, to: int = 0, **flags: Any) -> Self:
        """An RDMA Write to the peer's memory."""
        return cls(Opcode.RDMA_WRITE, local, stag, to, **flags)

    @classmethod
    def read(cls, local: Gather, stag: int, to: int = 0, **flags: Any) -> Self:
        """An RDMA Read of the peer's memory that fills ``local``, whose regions need the right LOCAL_WRITE."""
        return cls(Opcode.RDMA_READ_REQUEST, local, stag, to, **flags)


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """A buffer for one Send, as ``ibv_recv_wr``: a scatter/gather list, whose regions need the right LOCAL_WRITE."""

    local: Gather
    wr_id: Any = None


class Status(Enum):
    """What became of a request."""

    SUCCESS = "success"
    FLUSHED = "flushed"  # the connection, or the peer's half of it, ended first


@dataclass(frozen=True, slots=True)
class Completion:
    """A request is done, and its buffers are the ULP's again.

    Without an ``error`` its work is done, a Read's data is there. With one, what ended the connection, it is not known
    what was done (RFC 5040 §6.2.1).
    """

    opcode: Opcode
    octets: int  # of the message
    wr_id: Any = None
    error: RdmaError | None = None
    connection: Connection | None = field(default=None, repr=False)

    @property
    def status(self) -> Status:
        """Whether the request was carried out."""
        return Status.FLUSHED if self.error else Status.SUCCESS


@dataclass(frozen=True, slots=True)
class Received(Completion):
    """A Send has come, of which ``opcode`` is the kind, or with an ``error`` will not come any more."""

    buffer: View = field(default=memoryview(b""), repr=False)
    invalidated: int | None = None  # the STag of this end that it revoked

    @property
    def data(self) -> memoryview:
        """The part of the posted buffer that the Send filled, in place unless the buffer is in pieces."""
        return self.buffer[: self.octets]

    @property
    def solicited(self) -> bool:
        """It asks for an event."""
        return self.opcode.solicited

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return self.octets


Deliver = Callable[[Completion], None]  # what a completion is given to


class CompletionQueue:
    """Completions of requests, in the order in which they completed; connections may share one.

    A request has its place from when it is posted until its completion is polled, so nothing is ever lost: when all
    ``depth`` places are taken, posting raises QueueFullError.
    """

    def __init__(self, depth: int = 1024) -> None:
        if depth < 1:
            raise ValueError(f"a completion queue has at least 1 entry, not {depth}")
        self.depth = depth
        self.free = depth  # places
        self._completions: deque[Completion] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._completions)

    def poll(self, most: int | None = None) -> list[Completion]:
        """Those that are there, at most so many; does not wait."""
        count = len(self._completions) if most is None else min(most, len(self._completions))
        batch = [self._completions.popleft() for _ in range(count)]
        self.free += count
        if not self._completions:
            self._arrived.clear()
        return batch

    async def wait(self, most: int | None = None) -> list[Completion]:
        """Wait until there is one, and poll."""
        while not self._completions:
            await self._arrived.wait()
        return self.poll(most)

    def reserve(self, places: int) -> None:
        """Take places for requests that are about to be posted; raises QueueFullError when there are not so many."""
        if places > self.free:
            raise QueueFullError(f"the completion queue of {self.depth} entries has room for {self.free} more")
        self.free -= places

    def deliver(self, completion: Completion) -> None:
        """Append it, in the place that was reserved for it."""
        self._completions.append(completion)
        self._arrived.set()

    def deliver_failure(self, completion: Completion) -> None:
        """The same for a request without ``signaled``: a success only gives its place back."""
        if completion.error:
            self.deliver(completion)
        else:
            self.free += 1


def resolve(future: asyncio.Future[Any], completion: Completion) -> None:
    """Deliver to a future: an error is its exception."""
    if future.done():  # cancelled
        return
    if completion.error:
        future.set_exception(completion.error)
        future.exception()  # whoever posted and does not look is not to be warned
    else:
        future.set_result(completion)
