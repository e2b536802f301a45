"""Soak: random cases for a long time; its seed repeats a run, and a case that fails is shrunk and kept for replay.

    python -m open_rnic.cocotb_tests.soaks [KIND...] [--count N] [--seed N] [--jobs N] [--set FIELD=VALUE]...
    python -m open_rnic.cocotb_tests.soaks --replay FILE

Without a KIND, all kinds run, one after the other; each is a module of :mod:`.soaks`.
"""

import argparse
import gc
import os
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Union

import msgspec
from rich.console import Console
from rich.progress import track

from open_rnic.cocotb_tests.soaks.case import Case, attempt, batch
from open_rnic.cocotb_tests.soaks.fpdus import Fpdus, FpdusRtl
from open_rnic.cocotb_tests.soaks.mac import Mac
from open_rnic.cocotb_tests.soaks.rdma import Rdma
from open_rnic.cocotb_tests.soaks.rnic import Rnic
from open_rnic.cocotb_tests.soaks.startup import Startup
from open_rnic.cocotb_tests.soaks.tcp import Tcp, TcpRtl

KINDS = {each.__struct_config__.tag: each for each in (Startup, Fpdus, FpdusRtl, Tcp, TcpRtl, Mac, Rdma, Rnic)}
CASE = Union[tuple(KINDS.values())]  # noqa: UP007 -- of a list


def soak(kind: type[Case], seed: int, count: int, jobs: int, fields: dict[str, Any]) -> int:
    """Run cases in this number of processes, print a report, and return the number of failures."""
    name, began, console = kind.__struct_config__.tag, time.monotonic(), Console()
    console.print(f"{name}: {count:,} cases, seed {seed}, {jobs} processes", highlight=False)
    outcomes, failures = Counter(), 0
    with ProcessPoolExecutor(jobs, initializer=gc.freeze) as pool:  # collections look at the objects of cases only
        ranges = [range(at, min(at + kind.BATCH, count)) for at in range(0, count, kind.BATCH)]
        waiting = [pool.submit(batch, kind, seed, numbers, **fields) for numbers in ranges]
        finished = track(as_completed(waiting), name, len(waiting), console=console, disable=not console.is_terminal)
        for number, done in enumerate(finished, 1):
            found, wrong = done.result()
            outcomes.update(found)
            failures += len(wrong)
            for each in wrong:
                console.print(each, markup=False, highlight=False, soft_wrap=True)
            twentieth = number * 20 // len(waiting) > (number - 1) * 20 // len(waiting)
            if twentieth and not console.is_terminal:
                print(f"{number / len(waiting):4.0%} after {time.monotonic() - began:,.0f} s", flush=True)
    for what, times in sorted(outcomes.items()):
        print(f"{times:12,}  {what}")
    print(f"{name}, seed {seed}: {failures or 'no'} failure(s) in {time.monotonic() - began:,.0f} s", flush=True)
    return failures


def chosen(kind: type[Case], settings: list[str]) -> dict[str, Any]:
    """Return the values of ``--set``, with the types of the fields; raises ValueError for one that does not fit."""
    types, fields = {each.name: each.type for each in msgspec.structs.fields(kind)[1:]}, {}  # without the seed
    for each in settings:
        name, _, value = each.partition("=")
        if name not in types:
            raise ValueError(f"--set {each}: a case of {kind.__struct_config__.tag} has the fields {', '.join(types)}")
        try:
            fields[name] = msgspec.convert(value, types[name], strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(f"--set {each}: {error}") from None
    return fields


def kept(path: Path) -> Case:
    """Return the case of a file; raises ValueError if there is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=CASE)
    except (OSError, msgspec.DecodeError) as error:
        raise ValueError(f"--replay {path}: {getattr(error, 'strerror', None) or error}") from None


def main(arguments: list[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.partition("\n")[0])
    parser.add_argument("kind", nargs="*", help=f"default: all, which are {', '.join(KINDS)}")
    parser.add_argument("--count", type=int, help="number of cases of each kind; default: hours of them all together")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat; default: a random one")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes; default: one per core")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="a field of all cases")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one case that an earlier run has kept")
    parser.error = lambda line: parser.exit(2, f"soak: {line}\n")
    options = parser.parse_args(arguments)
    if unknown := [each for each in options.kind if each not in KINDS]:
        parser.error(f"there is no kind {unknown[0]}: the kinds are {', '.join(KINDS)}")
    for name in ("count", "jobs"):
        if (number := getattr(options, name)) is not None and number < 1:
            parser.error(f"--{name} must be at least 1, not {number}")
    kinds = [KINDS[each] for each in options.kind or KINDS]
    try:
        case = kept(options.replay) if options.replay else None
        fields = [chosen(each, options.set) for each in kinds]
    except ValueError as error:
        parser.error(error)
    if case:
        outcomes, wrong = attempt(case)
        print(f"{case.seed}: {wrong or ', '.join(outcomes)}")
        return bool(wrong)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    runs = zip(kinds, fields, strict=True)
    failures = [soak(each, seed, options.count or each.COUNT, options.jobs, more) for each, more in runs]
    return any(failures)


if __name__ == "__main__":
    sys.exit(main())
