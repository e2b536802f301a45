"""The errors that end a connection."""

from __future__ import annotations

import os
import socket

from open_rnic.host_driver.device import DeviceError, Event
from open_rnic.host_driver.mpa.negotiation import Failed, Reason, Rejected

__all__ = ["MpaConnectionError", "RejectedError", "device_failed", "how", "observer_failed"]


class MpaConnectionError(ConnectionError):
    """A connection could not be made, or ended out of order.

    Attributes
    ----------
    reason : has the MPA error code (RFC 5044 §8, RFC 6581 §8)
    failed : the negotiation's last event, if the startup exchange failed
    event : the device's event, if the device found the error
    terminate_code : the code of the Terminate (layer 2, type 0) that the peer got behind the exchange (RFC 6581 §8)
    may_retry_unenhanced : the peer behaved as one that knows RFC 5044 only (RFC 6581 §10)
    without_crc : the first ULPDU, if it was refused because its CRC field was 0; otherwise empty

    """

    def __init__(
        self, what: str, reason: Reason, *, failed: Failed | None = None, event: Event | None = None
    ) -> None:
        super().__init__(what)
        self.reason = reason
        self.failed = failed
        self.event = event
        self.without_crc = b""
        self.terminate_code = reason.code if failed and failed.terminate else None
        self.may_retry_unenhanced = failed is not None and failed.may_retry_unenhanced


class RejectedError(MpaConnectionError):
    """The responder rejected the connection.

    ``frame`` is its Reply (R=1). ``theirs`` is the peer's frame: the Request at a responder, otherwise this Reply.
    """

    def __init__(self, rejected: Rejected) -> None:
        super().__init__(rejected.what, Reason.CONNECTION_LOST)
        self.frame = rejected.frame
        self.theirs = rejected.theirs
        self.may_retry_unenhanced = rejected.may_retry_unenhanced


def device_failed(error: DeviceError) -> MpaConnectionError:
    """The error for a device that failed."""
    return MpaConnectionError(f"the device failed: {error}", Reason.LOCAL)


def observer_failed(error: Exception) -> MpaConnectionError:
    """The error for an observer that raised an exception."""
    return MpaConnectionError(f"the connection's observer failed: {how(error) or repr(error)}", Reason.LOCAL)


def how(error: Exception) -> str:
    """Describe an error without the address that asyncio and socket put behind it."""
    match error:
        case socket.gaierror():
            return str(error.strerror)
        case OSError(errno=int(number)):
            return os.strerror(number)
        case _:
            return str(error)
