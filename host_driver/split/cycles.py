"""Clock cycles of a device that does some stages: as few as its beats allow, and what it takes to fill it."""

from __future__ import annotations

from collections.abc import Sequence

from host_driver.fpdu import MARKER_INTERVAL
from host_driver.split.stages import Direction, Stage

__all__ = ["device_cycles"]

_DEPTH = 2  # cycles of a stage


def device_cycles(
    stages: tuple[Stage, ...], direction: Direction, lanes: int, ulpdus: Sequence[int], *, markers: bool, crc: bool
) -> int:
    """Clock cycles from the first beat taken to the last beat given, with both sides always willing."""
    larger = MARKER_INTERVAL / (MARKER_INTERVAL - 4) if markers else 1.0
    beats = sum(-(-(length + 9 & ~3) * larger // (4 * lanes)) for length in ulpdus)
    return int(beats) + _DEPTH * len(stages)
