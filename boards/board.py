"""The description of a board."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = ["LEAST_PERIOD", "Board"]

#: Smallest number of clock cycles in a bit of the UART, so that it samples reliably.
LEAST_PERIOD = 8


@dataclass(frozen=True)
class Board:
    """A board, and the defaults for building it.

    Parameters
    ----------
    name, title : name in commands, and full name
    part : FPGA, package and speed grade
    flow : name of the flow that builds it, a key of ``boards.flows.FLOWS``
    platform : makes Amaranth's platform, which has the oscillator as default clock, and a resource "uart"
    oscillator_hz, clock_hz : frequencies of the platform's clock and of the data path; a PLL is used if they differ
    lanes, widths : default width, and all widths that fit
    uart : where to find the link's wires
    loader : options for openFPGALoader that select the board
    baud : rate of the link's UART
    size : largest size of a link frame in octets
    led : name of a resource whose lights show activity on the link

    """

    name: str
    title: str
    part: str
    flow: str
    platform: Callable[[], Any]
    oscillator_hz: int
    clock_hz: int
    lanes: int
    widths: tuple[int, ...]
    uart: str
    loader: tuple[str, ...]
    baud: int = 3_000_000
    size: int = 2048
    led: str | None = None

    @property
    def period(self) -> Fraction:
        """Clock cycles in a bit of the UART."""
        return Fraction(self.clock_hz, self.baud)
