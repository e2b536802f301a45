"""The description of a board."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

__all__ = ["LEAST_PERIOD", "Board", "Core"]

#: Smallest number of clock cycles in a bit of the UART, so that it samples reliably.
LEAST_PERIOD = 8


class Core(StrEnum):
    """What a board's top contains behind the link."""

    MPA = "mpa"  # the MPA data path
    RDMA = "rdma"  # the data path with an RDMA engine and memory


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
    memory : octets of block RAM for the RDMA engine, a power of 2; 0 if the engine does not fit

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
    memory: int = 0

    def width(self, core: Core) -> int:
        """The default width: with an RDMA engine, which one lane is wide enough for, the least that fits."""
        return min(self.widths) if core is Core.RDMA else self.lanes

    def path_options(self, core: Core) -> dict[str, int]:
        """Return the options of the data path's top; raises ValueError if the engine does not fit."""
        if core is Core.RDMA and not self.memory:
            raise ValueError(f"{self.name} has no room for an RDMA engine")
        return {"size": self.size, "memory": self.memory if core is Core.RDMA else 0}

    @property
    def period(self) -> Fraction:
        """Clock cycles in a bit of the UART."""
        return Fraction(self.clock_hz, self.baud)
