"""The protocol of librdmacm's rping.

A ping takes four messages and two transfers::

    client                                   server
    Send: the place of the ping       ─▸
                                      ◂─     RDMA Read of the ping
                                      ◂─     Send: go ahead
    Send: the place for the pong      ─▸
                                      ◂─     RDMA Write of the same octets there
                                      ◂─     Send: done

A Send has 16 octets in network order: TO (64), STag (32), length (32); the server's values have no meaning. The data is
text that ends with a zero octet; the server returns the octets up to and including the first zero octet.
"""

from __future__ import annotations

from collections.abc import Callable

from open_rnic.host_driver.rdma.connection import ClosedError, Connection, LostError
from open_rnic.host_driver.rdma.memory import PLACE_OCTETS, Access, Place

PORT = 7174
DEFAULT_SIZE = 64
MIN_SIZE, MAX_SIZE = 26, 65535  # octets of a ping: room for its number, and what rping takes
_LETTERS = bytes(range(ord("A"), ord("z") + 1))
_ALL = Access.LOCAL_WRITE | Access.REMOTE_READ | Access.REMOTE_WRITE


class RpingError(Exception):
    """The peer violated rping's protocol, or returned changed data."""


def ping_data(number: int, size: int) -> bytes:
    """Return the text of ping ``number`` (from 0): the number, then letters, which start one later in each ping."""
    head = b"rdma-ping-%d: " % number
    first = number % len(_LETTERS)
    letters = (_LETTERS[first:] + _LETTERS[:first]) * (size // len(_LETTERS) + 1)
    return (head + letters)[: size - 1] + b"\0"


async def client(
    connection: Connection,
    *,
    count: int = 0,
    size: int = DEFAULT_SIZE,
    validate: bool = False,
    show: Callable[[str], None] = lambda line: None,
) -> int:
    """Ping ``count`` times, or without limit if it is 0; returns the number of pings. ``show`` gets the returned data.

    Raises RpingError if the peer violates the protocol, or, with ``validate``, if the data differs, and RdmaError if
    the connection ends.
    """
    start, sink = bytearray(size), bytearray(size)
    with connection.register(start, _ALL) as source, connection.register(sink, _ALL) as target:
        number = 0
        while not count or number < count:
            start[:] = ping_data(number, size)
            for region in (source, target):  # where the ping is, and when it has been read, where the pong is to go
                answer = connection.post_receive(bytearray(PLACE_OCTETS))
                await connection.send(Place.of(region).encode())
                if len(await answer) != PLACE_OCTETS:
                    raise RpingError(f"a Send of {len(answer.result())} octets where {PLACE_OCTETS} are due")
            if validate and sink != start:
                raise RpingError(f"ping {number} came back changed")
            show(f"ping data: {_text(sink)}")
            number += 1
    return number


async def server(connection: Connection, *, show: Callable[[str], None] = lambda line: None) -> int:
    """Answer pings until the client closes; returns their number. ``show`` gets the data of each.

    Raises RpingError if the peer violates the protocol, and RdmaError if the connection ends inside a ping.
    """
    buffer = bytearray(MAX_SIZE)
    with connection.register(buffer, Access.LOCAL_WRITE) as region:
        number = 0
        while True:
            try:
                source = await _advertised(connection)
            except (ClosedError, LostError):  # between two pings: the client has had enough
                return number
            await connection.post_read(region, source.octets, source.stag, source.to)
            ping = bytes(buffer[: source.octets])
            show(f"server ping data: {_text(ping)}")
            await connection.send(bytes(PLACE_OCTETS))
            sink = await _advertised(connection)
            await connection.write(ping[: ping.find(0) + 1 or len(ping)], sink.stag, sink.to)
            await connection.send(bytes(PLACE_OCTETS))
            number += 1


async def _advertised(connection: Connection) -> Place:
    """Return the place in a Send of the client."""
    received = await connection.receive(PLACE_OCTETS)
    if len(received) != PLACE_OCTETS:
        raise RpingError(f"a Send of {len(received)} octets where {PLACE_OCTETS} are due")
    try:
        place = Place.decode(received.data)
    except ValueError as error:
        raise RpingError(f"the client offers a wrong buffer: {error}") from None
    if place.octets > MAX_SIZE:
        raise RpingError(f"a buffer of {place.octets} octets is offered, rping has at most {MAX_SIZE}")
    return place


def _text(octets: bytes | bytearray) -> str:
    return bytes(octets).split(b"\0", 1)[0].decode("ascii", errors="backslashreplace")
