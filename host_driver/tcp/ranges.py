"""Ranges of sequence numbers that were received out of order, at either end of a connection."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Range", "Ranges"]

Range = tuple[int, int]  # the first sequence number, and the first behind the range


class Ranges:
    """At most ``most`` disjoint ranges, which do not touch each other, in ascending order."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._ranges: list[Range] = []

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def end(self) -> int:
        """The end of the last range. There must be one."""
        return self._ranges[-1][1]

    def add(self, start: int, end: int) -> Range | None:
        """Add a range, and return the range that it is now part of; None, and no change, if there would be too many."""
        apart = [each for each in self._ranges if each[1] < start or end < each[0]]
        if len(apart) == self._most:
            return None
        joined = [each for each in self._ranges if not (each[1] < start or end < each[0])]
        whole = (min([start, *(each[0] for each in joined)]), max([end, *(each[1] for each in joined)]))
        self._ranges = sorted([*apart, whole])
        return whole

    def cut(self, start: int) -> None:
        """Forget everything before ``start``."""
        self._ranges = [(max(start, each[0]), each[1]) for each in self._ranges if each[1] > start]

    def clear(self) -> None:
        """Forget all ranges."""
        self._ranges = []

    def holding(self, number: int) -> Range | None:
        """Return the range that contains ``number``."""
        return next((each for each in self._ranges if each[0] <= number < each[1]), None)

    def gaps(self, start: int, end: int) -> Iterator[Range]:
        """Yield what no range covers, from ``start`` to ``end``."""
        for first, behind in self._ranges:
            if first >= end:
                break
            if start < first:
                yield start, first
            start = max(start, behind)
        if start < end:
            yield start, end
