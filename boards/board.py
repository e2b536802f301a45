"""What a board is: all that the rest of the project knows of one."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

__all__ = ["LEAST_PERIOD", "Board"]

#: Clock cycles in a bit of the UART, at least, so that its samples are sure.
LEAST_PERIOD = 8


@dataclass(frozen=True)
class Board:
    """A board, and what is built for it unless told otherwise.

    Parameters
    ----------
    name, title : as commands, and as people call it
    part : the FPGA, package and speed grade
    flow : how it is built, by name: one of ``boards.flows.FLOWS``
    platform : makes Amaranth's platform for it; its default clock is the oscillator, and it has a resource "uart"
    oscillator_hz, clock_hz : what the platform's clock gives, and what the data path gets, by a PLL if they differ
    lanes, widths : the width that is built by default, and those that fit
    uart : where the link's wires are found
    loader : what openFPGALoader is to be told of the board
    baud : of the link's UART
    size : octets of a link's frame
    led : the name of a resource whose lights show the link at work

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
