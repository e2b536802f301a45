"""A ledger of processor time: test runs ask for it, and programs write what they spend time on into it.

If ``$OPEN_RNIC_LEDGER`` names a folder, each process appends lines of JSON to a file of its own there. A line has the
kind of the work, its name, the test for which it was done, and the seconds of processor time of each part.
"""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

__all__ = ["VARIABLE", "add", "note", "own", "started"]

VARIABLE = "OPEN_RNIC_LEDGER"
_added = 0.0


def own() -> float:
    """Return the seconds of processor time that this process has taken."""
    return time.process_time()


def started() -> float:
    """Return the seconds of processor time of all processes that this one started, and that have ended.

    Those that another process started for this one count as far as :func:`add` has had them.
    """
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + _added


def add(seconds: float) -> None:
    """Count a process that another one started for this one."""
    global _added
    _added += seconds


def note(kind: str, name: str, **seconds: float) -> None:
    """Append a line, if there is a ledger."""
    folder = os.environ.get(VARIABLE)
    if folder:
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        line = {"kind": kind, "name": name, "test": test} | {part: round(each, 3) for part, each in seconds.items()}
        with (Path(folder) / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
