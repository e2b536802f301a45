"""What an observer of a connection sees.

An observer is a function that is called with everything that a connection does, in order::

    def observe(seen: Seen) -> None:
        match seen:
            case Frame(direction, frame):
                print(direction.value, frame.kind)
            case Reported(event):
                print(event)

An observer must not wait. If it raises an exception, the connection ends.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from open_rnic.host_driver.device import Event
from open_rnic.host_driver.mpa.negotiation import Negotiated
from open_rnic.host_driver.mpa.startup_frames import StartupFrame
from open_rnic.host_driver.transport import Address

__all__ = [
    "Agreed", "Closed", "Counted", "Direction", "Frame", "Observer", "Octets", "Opened", "Reported", "Seen", "silent",
    "tee",
]  # fmt: skip


class Direction(Enum):
    """The direction of octets, from the point of view of the end that reports them."""

    TX = "sent"
    RX = "received"


@dataclass(frozen=True)
class Opened:
    """The TCP connection exists."""

    local: Address
    peer: Address


@dataclass(frozen=True)
class Frame:
    """A startup frame is about to be sent, or has been received completely."""

    direction: Direction
    frame: StartupFrame


@dataclass(frozen=True)
class Agreed:
    """The startup exchange succeeded. The device is configured next."""

    negotiated: Negotiated


@dataclass(frozen=True)
class Octets:
    """Octets of the TCP stream: one startup frame or FPDU if sent, cut anywhere if received."""

    direction: Direction
    octets: bytes


@dataclass(frozen=True)
class Counted:
    """FPDUs that a device with TCP of its own has sent or delivered; their octets do not pass the host."""

    direction: Direction
    fpdus: int  # since the last report


@dataclass(frozen=True)
class Reported:
    """The device reported an event."""

    event: Event


@dataclass(frozen=True)
class Closed:
    """The TCP connection is closed at this end."""


Seen = Opened | Frame | Agreed | Octets | Counted | Reported | Closed
Observer = Callable[[Seen], None]


def silent(seen: Seen) -> None:
    """Ignore everything."""


def tee(*observers: Observer) -> Observer:
    """One observer that calls several."""

    def observe(seen: Seen) -> None:
        for each in observers:
            each(seen)

    return observe
