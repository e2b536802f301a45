"""A part of a simulated top, for the server: the interface of them all."""

from __future__ import annotations

from open_rnic.host_driver.devices.sim.dut import Clock

__all__ = ["Peripheral"]


class Peripheral:
    """A part of the top that a program reaches by messages. It ignores those that are for others behind the same link.

    ``work`` is about the number of clock cycles that the RTL needs for what waits for it.
    """

    work = 0

    def __init__(self, clock: Clock):
        self.clock = clock

    def take(self, kind: int, note: int, octets: bytes) -> None:
        """Take a message of the program."""

    async def serve(self) -> bytes:
        """Move everything that is ready; return octets to send."""
        return b""

    async def pause(self) -> float | None:
        """Return for how many seconds the clock may stand still while nothing moves; None: for any time."""
        return None
