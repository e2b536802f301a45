"""The matrix: every case, in the order in which they run."""

from __future__ import annotations

from open_rnic.host_driver.tools.interop.case import Case
from open_rnic.host_driver.tools.interop.cases import (
    ends,
    many,
    memory,
    perftest,
    programs,
    rsockets,
    samples,
    startup,
    streams,
    terminates,
)

MATRIX: tuple[Case, ...] = (
    *programs.CASES,
    *perftest.CASES,
    *rsockets.CASES,
    *startup.CASES,
    *terminates.CASES,
    *streams.CASES,
    *memory.CASES,
    *samples.CASES,
    *many.CASES,
    *ends.CASES,
)
