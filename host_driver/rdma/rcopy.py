"""The protocol of librdmacm's rcopy, which copies files over rsockets.

The client opens a file at the server, writes it whole, and closes it. Each request has a header of 16 octets, and so
has its response; between the request to write and its response go the octets of the file::

    version (0), command, octets of the message (16), value (32), identifier (64)

The value of a request to open is the file's mode; of a response, an error number of Linux, or 0. The path of the file
follows the header, ended by a zero octet; the number of octets follows that of a request to write. All is in the byte
order of the client's host; this end is little-endian.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
import struct
import time
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from open_rnic.host_driver.rdma.connection import By, ClosedError
from open_rnic.host_driver.rdma.rsocket import Rsocket

PORT = 7427
_HEADER = struct.Struct("<BBHIQ")
_SIZE = struct.Struct("<Q")
_RESPONSE = 0x80
_MAX_PATH = 4096  # octets, as of Linux
_PIECE = 1 << 20  # octets of a file that are read or written at a time


class _Command(IntEnum):
    OPEN = 1
    CLOSE = 2
    WRITE = 3


class RcopyError(Exception):
    """The peer refused a request, or violated the protocol."""


class Copied(NamedTuple):
    """A file that has been copied, and the seconds that its octets took."""

    path: str
    octets: int
    seconds: float

    def __str__(self) -> str:
        rate = self.octets / self.seconds / 1e6 if self.seconds else 0.0
        return f"{self.path}: {self.octets} octets in {self.seconds:.2f} s, {rate:.2f} MB/s"


async def send_file(rsocket: Rsocket, source: Path, destination: str) -> Copied:
    """Copy a file to the server's destination. Raises OSError for the source, RcopyError, and errors of rsockets."""
    path = destination.encode(errors="surrogateescape")
    if not path or b"\0" in path or len(path) >= _MAX_PATH:
        raise ValueError(f"a destination has 1 to {_MAX_PATH - 1} octets, and no zero octet")
    path += bytes(8 - len(path) % 8)
    with source.open("rb") as file:
        status = os.fstat(file.fileno())
        await _request(rsocket, _Command.OPEN, status.st_mode, path, f"cannot open {destination}")
        began = time.perf_counter()
        if octets := status.st_size:  # rcopy cannot receive a file without octets, but opening has made one
            await _write(rsocket, file, octets, destination)
        seconds = time.perf_counter() - began
    await _request(rsocket, _Command.CLOSE, 0, b"", f"cannot close {destination}")
    return Copied(destination, octets, seconds)


async def _write(rsocket: Rsocket, file: BinaryIO, octets: int, destination: str) -> None:
    await rsocket.send(_HEADER.pack(0, _Command.WRITE, _HEADER.size + _SIZE.size, 0, 0) + _SIZE.pack(octets))
    left, what = octets, f"cannot write {destination}"
    try:
        while left:
            piece = file.read(min(left, _PIECE))
            if not piece:
                raise RcopyError(f"{file.name} has become shorter by {left} octets")
            await rsocket.send(piece)
            left -= len(piece)
    except ClosedError as error:  # the server may have said before why
        with contextlib.suppress(ClosedError):
            await _response(rsocket, _Command.WRITE, what)
        raise error from None
    await _response(rsocket, _Command.WRITE, what)


async def _request(rsocket: Rsocket, command: _Command, value: int, more: bytes, what: str) -> None:
    await rsocket.send(_HEADER.pack(0, command, _HEADER.size + len(more), value, 0) + more)
    await _response(rsocket, command, what)


async def _response(rsocket: Rsocket, command: _Command, what: str) -> None:
    version, answered, length, value, _ = _HEADER.unpack(await rsocket.recv_exactly(_HEADER.size))
    if (version, answered, length) != (0, command | _RESPONSE, _HEADER.size):
        raise RcopyError(f"the server answered {command.name} with version {version}, {answered:#04x}, {length} octets")
    if value:
        raise RcopyError(f"the server {what}: {os.strerror(value)}")


async def serve(rsocket: Rsocket, folder: Path, show: Callable[[Copied], None] = lambda copied: None) -> None:
    """Store the files of a client below ``folder`` until it closes; ``show`` is called for each.

    Paths are those below the folder, with or without a slash in front: a path that leads out of it is refused. Raises
    RcopyError, after the answer to the client, and errors of rsockets.
    """
    folder = folder.resolve()
    opened: tuple[str, BinaryIO] | None = None
    try:
        while header := await rsocket.recv(_HEADER.size):
            header += await rsocket.recv_exactly(_HEADER.size - len(header))
            version, command, length, value, number = _HEADER.unpack(header)
            more = length - _HEADER.size
            if version or more < 0:
                raise RcopyError(f"the client sent a request of version {version}, with {length} octets")
            status, what = errno.EINVAL, f"the client sent the request {command:#04x}, with {length} octets"
            match command:
                case _Command.OPEN if opened:
                    status, what = errno.EBUSY, "the client opened a second file"
                case _Command.OPEN if 0 < more <= _MAX_PATH + 8:
                    path = (await rsocket.recv_exactly(more)).split(b"\0")[0].decode(errors="surrogateescape")
                    try:
                        opened = path, _open(folder, path, value)
                        status = 0
                    except OSError as error:
                        status, what = error.errno or errno.EIO, f"the client may not open {path}: {error.strerror}"
                case _Command.WRITE if opened and more == _SIZE.size:
                    path, file = opened
                    [octets] = _SIZE.unpack(await rsocket.recv_exactly(_SIZE.size))
                    began = time.perf_counter()
                    try:
                        await _receive(rsocket, file, octets)
                        status = 0
                    except OSError as error:
                        if isinstance(error, ConnectionError):
                            raise
                        status, what = error.errno or errno.EIO, f"cannot write {path}: {error.strerror}"
                    else:
                        show(Copied(path, octets, time.perf_counter() - began))
                case _Command.CLOSE if not more:
                    if opened:
                        opened[1].close()
                    opened, status = None, 0
            await rsocket.send(_HEADER.pack(0, command & ~_RESPONSE | _RESPONSE, _HEADER.size, status, number))
            if status:
                raise RcopyError(what)
    except ClosedError:
        raise RcopyError("the client closed inside a request") from None
    finally:
        if opened:
            opened[1].close()


def _open(folder: Path, path: str, mode: int) -> BinaryIO:
    """Open a regular file below the folder for writing; raises OSError."""
    file = folder.joinpath(*[part for part in PurePosixPath(path).parts if part != "/"]).resolve()
    if not file.is_relative_to(folder) or file == folder:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    special = PermissionError(errno.EACCES, "it is no regular file, but a FIFO, a socket or a device")
    try:  # a FIFO without a reader fails at once, instead of blocking
        opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, mode & 0o777)
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise special from None
        raise
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise special
    return os.fdopen(opened, "wb")


async def _receive(rsocket: Rsocket, file: BinaryIO, octets: int) -> None:
    left = octets
    while left:
        piece = await rsocket.recv(min(left, _PIECE))
        if not piece:
            raise ClosedError(By.PEER)
        file.write(piece)
        left -= len(piece)
        await asyncio.sleep(0)
    file.flush()
