"""Work requests and their completions, as in verbs.

A request is plain data. Each posted request ends in exactly one ``Completion``, which is delivered to the
``CompletionQueue`` or the future that it was posted with.
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
    """More requests were posted than the queue holds; none of them is carried out."""


@dataclass(frozen=True, slots=True)
class WorkRequest:
    """A Send, an RDMA Write or an RDMA Read, as ``ibv_send_wr``; ``send``, ``write`` and ``read`` make them.

    ``local`` is a scatter/gather list, or its only entry: a buffer, a ``Region`` or a slice of one. It is the source
    of the message, or the sink of an RDMA Read. ``fence`` delays the request, and all requests posted after it, until
    every earlier RDMA Read has completed (RFC 5040 §5.5 rule 12). Without ``signaled``, only a failure of the
    request makes an entry in the completion queue. ``wr_id`` is the ULP's, and is returned in the completion.
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
        """Make a Send; ``solicited`` requests an event at the peer, ``invalidate`` revokes an STag of the peer."""
        opcode = {
            (False, False): Opcode.SEND,
            (False, True): Opcode.SEND_INVALIDATE,
            (True, False): Opcode.SEND_SE,
            (True, True): Opcode.SEND_SE_INVALIDATE,
        }[solicited, invalidate is not None]
        return cls(opcode, local, invalidate or 0, **flags)

    @classmethod
    def write(cls, local: Gather, stag: int, to: int = 0, **flags: Any) -> Self:
        """Make an RDMA Write to the peer's memory."""
        return cls(Opcode.RDMA_WRITE, local, stag, to, **flags)

    @classmethod
    def read(cls, local: Gather, stag: int, to: int = 0, **flags: Any) -> Self:
        """Make an RDMA Read of the peer's memory into ``local``, whose regions need the right LOCAL_WRITE."""
        return cls(Opcode.RDMA_READ_REQUEST, local, stag, to, **flags)


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """A buffer for one Send, as ``ibv_recv_wr``: a scatter/gather list, whose regions need the right LOCAL_WRITE."""

    local: Gather
    wr_id: Any = None


class Status(Enum):
    """The result of a request.

    The peer can only refuse a request that has not completed. A Send or RDMA Write completes before the peer has it.
    """

    SUCCESS = "success"
    FLUSHED = "flushed"  # the connection, or the peer's half of it, ended first
    REMOTE_ACCESS_ERROR = "remote access error"  # the peer has refused it: it may not access that memory
    REMOTE_OPERATION_ERROR = "remote operation error"  # the peer has refused it for another reason


@dataclass(frozen=True, slots=True)
class Completion:
    """The completion of a request: its buffers belong to the ULP again.

    Without an ``error``, the work is done, and the data of a Read has been placed. An ``error`` is the one that ended
    the connection; it is then unknown how much was done (RFC 5040 §6.2.1).
    """

    opcode: Opcode
    octets: int  # of the message
    wr_id: Any = None
    error: RdmaError | None = None
    connection: Connection | None = field(default=None, repr=False)
    refused: Status | None = field(default=None, repr=False, kw_only=True)  # if the peer's Terminate names this request

    @property
    def status(self) -> Status:
        """Whether the request was carried out."""
        return self.refused or (Status.FLUSHED if self.error else Status.SUCCESS)


@dataclass(frozen=True, slots=True)
class Received(Completion):
    """The completion of a receive: a Send of kind ``opcode``, or with an ``error``, no Send."""

    buffer: View = field(default=memoryview(b""), repr=False)
    invalidated: int | None = None  # the STag of this end that it revoked

    @property
    def data(self) -> memoryview:
        """The part of the posted buffer that the Send filled, in place unless the buffer is in pieces."""
        return self.buffer[: self.octets]

    @property
    def solicited(self) -> bool:
        """Whether the Send requests an event."""
        return self.opcode.solicited

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return self.octets


Deliver = Callable[[Completion], None]  # called with a completion


class CompletionQueue:
    """Completions of requests, in the order in which they completed; connections may share one.

    A request occupies an entry from its posting until its completion is polled, so no completion is ever lost: if all
    ``depth`` entries are occupied, posting raises QueueFullError.
    """

    def __init__(self, depth: int = 1024) -> None:
        if depth < 1:
            raise ValueError(f"a completion queue has at least 1 entry, not {depth}")
        self.depth = depth
        self.free = depth  # entries
        self._completions: deque[Completion] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._completions)

    def __repr__(self) -> str:
        used = self.depth - self.free
        return f"<CompletionQueue of {self.depth} entries, {used} occupied, {len(self)} of these completed>"

    def poll(self, most: int | None = None) -> list[Completion]:
        """Return the completions that are available, up to a maximum, without waiting."""
        count = len(self._completions) if most is None else min(most, len(self._completions))
        batch = [self._completions.popleft() for _ in range(count)]
        self.free += count
        if not self._completions:
            self._arrived.clear()
        return batch

    async def wait(self, most: int | None = None) -> list[Completion]:
        """Wait for a completion, then poll."""
        while not self._completions:
            await self._arrived.wait()
        return self.poll(most)

    def reserve(self, places: int) -> None:
        """Reserve entries for requests that are about to be posted; raises QueueFullError if too few are free."""
        if places > self.free:
            raise QueueFullError(f"the completion queue of {self.depth} entries has room for {self.free} more")
        self.free -= places

    def deliver(self, completion: Completion) -> None:
        """Append a completion to its reserved entry."""
        self._completions.append(completion)
        self._arrived.set()

    def deliver_failure(self, completion: Completion) -> None:
        """Append a failure of a request without ``signaled``; a success only frees its entry."""
        if completion.error:
            self.deliver(completion)
        else:
            self.free += 1


def resolve(future: asyncio.Future[Any], completion: Completion) -> None:
    """Deliver a completion to a future; an error becomes its exception."""
    if future.done():  # cancelled
        return
    if completion.error:
        future.set_exception(completion.error)
        future.exception()  # marks it as retrieved, so that asyncio does not warn about a future that nobody awaits
    else:
        future.set_result(completion)
