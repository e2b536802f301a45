"""Soak test: millions of mutated startup frames and MPA streams must cause no exception, no hang and no memory leak.

Each case is determined by the seed, its kind and its number, so any case can be repeated. Kinds:

startup   a faulty frame for the negotiation, in both roles and all dialects
stream    faulty FPDUs for the software data path, which must deliver everything before the first fault, and no more
rtl       the same kind of streams for the RTL in simulation, which must give the same results as the software

    python -m open_rnic.cocotb_tests.soak [--cases N] [--seed N] [--jobs N]
    python -m open_rnic.cocotb_tests.soak --replay FILE
"""

import argparse
import json
import os
import random
import re
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from open_rnic.host_driver.build_folders import built
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.negotiation import Config, Established, Failed, Negotiation, Rejected, Requested
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.host_driver.mpa.startup import (
    MAX_PRIVATE_DATA,
    NO_NEGOTIATION,
    Dialect,
    EnhancedData,
    FrameKind,
    StartupFrame,
)
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.registers import BY_NAME, Cause, EventKind, Model, Role, Rtr

KINDS = (Rtr.SEND, Rtr.WRITE, Rtr.READ)
FOLDER = "soak"  # folder inside built() for failing cases
BATCH = 2000
HANG = 60  # limit of processor time for a case, in seconds
GROWTH = 64 << 20  # limit of memory that a batch may add to a process, in octets
RTL_SHARE = 500  # one case in 500 is simulated, because simulation takes about 200 times as long


def mutated(rng: random.Random, octets: bytes) -> bytes:
    """Return the octets with one to three random faults."""
    changed = bytearray(octets)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        some = rng.randbytes(rng.choice([1, 1, 2, 4, 40]))
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + len(some)] = some
            case 2:
                changed[at:at] = some
            case 3:
                del changed[at : at + len(some)]
            case 4:
                del changed[at:]
            case 5:
                changed[at:] = rng.randbytes(rng.randrange(600))
    return bytes(changed)


def pieces(rng: random.Random, octets: bytes) -> Iterator[bytes]:
    """Yield the octets in pieces, as TCP may deliver them."""
    while octets:
        size = rng.choice([1, 3, 20, 1460, 65536])
        yield octets[:size]
        octets = octets[size:]


@dataclass(frozen=True)
class Case:
    """A test case. ``octets`` come from the peer; ``seed`` determines all other choices, such as where they are cut."""

    kind: str
    seed: str
    octets: bytes
    good: bytes = b""  # of a stream: the octets before mutation
    lanes: int = 4  # width of the RTL

    @classmethod
    def make(cls, kind: str, seed: int, number: int) -> "Case":
        """Make case ``number`` of a run with this ``seed``."""
        name = f"{kind} {seed} {number}"
        rng = random.Random(f"{name} octets")
        if kind == "startup":
            frame = _frame(rng, FrameKind.REPLY if _role(name) is Role.INITIATOR else FrameKind.REQUEST)
            return cls(kind, name, mutated(rng, frame.encode() + rng.randbytes(rng.choice([0, 30]))))
        good = b"".join(_fpdus(rng, markers=has_markers(name)))
        return cls(kind, name, mutated(rng, good), good)

    def run(self) -> str:
        """Run the case, and return its outcome; raises an exception, such as AssertionError, if the case fails."""
        if self.kind == "startup":
            return _try_startup(self)
        if self.kind == "stream":
            return _try_stream(self)
        from open_rnic.cocotb_tests.system.test_soak import run_cases

        run_cases(self.lanes, [self])
        return "same as the software"

    def to_json(self) -> dict[str, Any]:
        """Return the case as plain data."""
        return {name: value.hex() if isinstance(value, bytes) else value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Case":
        """Return a case from the result of :meth:`to_json`."""
        octets, good = bytes.fromhex(data["octets"]), bytes.fromhex(data["good"])
        return cls(data["kind"], data["seed"], octets, good, data["lanes"])


def _role(name: str) -> Role:
    return random.Random(f"{name} role").choice(list(Role))


def rtr_octets(case: Case) -> int:
    """Return the size of the first FPDU of the good stream, which is the RTR, with its leading marker."""
    marker = 4 * has_markers(case.seed)
    length = int.from_bytes(case.good[marker : marker + 2], "big")
    return marker + (2 + length + 3) // 4 * 4 + 4


def has_markers(name: str) -> bool:
    """Return whether the case with this name uses markers."""
    return random.Random(f"{name} markers").random() < 0.5


def _frame(rng: random.Random, kind: FrameKind) -> StartupFrame:
    enhanced = None
    if rng.random() < 0.8:
        depth = (0, 1, 16, 128, 200, NO_NEGOTIATION)
        rtr = frozenset(each for each in KINDS if rng.random() < 0.5)
        enhanced = EnhancedData(rng.choice(depth), rng.choice(depth), rng.random() < 0.7, rtr)
    return StartupFrame(
        kind,
        markers=rng.random() < 0.3,
        crc=rng.random() < 0.5,
        rejected=rng.random() < 0.2,
        rev=rng.choice([1, 2, 2, 2]),
        enhanced=enhanced,
        private_data=rng.randbytes(rng.choice([0, 0, 5, MAX_PRIVATE_DATA - 4])),
    )


def negotiate(rng: random.Random, config: Config, octets: bytes) -> Any:
    """Return the last event of a negotiation that receives these octets and then loses its connection."""
    end = Negotiation(config)
    events = end.start(0)
    for piece in pieces(rng, octets):
        while piece and end.wanted:
            assert end.wanted <= MAX_PRIVATE_DATA + 20, f"the negotiation wants {end.wanted} octets of a startup frame"
            taken, piece = piece[: end.wanted], piece[end.wanted :]
            events += end.receive(taken)
    if isinstance(events[-1] if events else None, Requested):
        events += end.accept() if rng.random() < 0.5 else end.reject()
    events += end.connection_lost("the peer closed")
    return events[-1]


def _try_startup(case: Case) -> str:
    rng = random.Random(case.seed)
    config = Config(_role(case.seed), dialect=rng.choice(list(Dialect)), min_ord=rng.choice([0, 0, 9]))
    outcome = negotiate(rng, config, case.octets)
    assert isinstance(outcome, Established | Rejected | Failed), f"the negotiation ended with {outcome!r}"
    assert isinstance(outcome, Established) or outcome.what, f"{outcome!r} has no reason"
    return type(outcome).__name__


def _fpdus(rng: random.Random, *, markers: bool) -> list[bytes]:
    framer = FpduFramer(markers=markers, crc=True)
    ulpdus = [rtr_ulpdu(rng.choice(KINDS)), *(rng.randbytes(rng.randint(1, 700)) for _ in range(rng.randrange(5)))]
    return [bytes(framer.frame(each)) for each in ulpdus]


def configured(*, markers: bool, crc: bool = True, permissive: bool = False) -> MpaDatapath:
    """Return a software data path for a responder in the peer-to-peer model."""
    path = MpaDatapath(lanes=4)
    config = BY_NAME["CONFIG"]
    values = {
        "role": Role.RESPONDER,
        "model": Model.PEER_TO_PEER,
        "rtr_accept": sum(kind.bit for kind in KINDS),
        "permissive": permissive,
        "markers_rx": markers,
        "crc_rx": crc,
    }
    word = config.reset
    for name, value in values.items():
        word = (word & ~config[name].mask) | config[name].put(int(value))
    path.write("CONFIG", word)
    path.write("CONTROL", BY_NAME["CONTROL"]["rx_enable"].mask)
    return path


def expected(case: Case) -> tuple[list[bytes], int]:
    """Return the ULPDUs behind the RTR that are complete before the first altered octet, and the number of FPDUs."""
    both = zip(case.good, case.octets, strict=False)
    same = next((at for at, (one, other) in enumerate(both) if one != other), min(len(case.good), len(case.octets)))
    delineator = FpduDelineator(markers=has_markers(case.seed), crc=True)
    delineator.feed(case.good[:same])
    ulpdus = delineator.take()
    return ulpdus[1:], len(ulpdus)


def _try_stream(case: Case) -> str:
    path = configured(markers=has_markers(case.seed))
    delivered: list[bytes] = []
    for piece in pieces(random.Random(case.seed), case.octets):
        path.receive(piece)
        delivered += [path.ulpdus.pop().octets for _ in range(len(path.ulpdus))]
    ulpdus, whole = expected(case)
    assert delivered == ulpdus, f"{len(delivered)} ULPDUs were delivered, but {len(ulpdus)} are good"
    errors = []
    while (event := path.take_event()).kind is not EventKind.NONE:
        if event.kind is EventKind.ERROR:
            errors.append(event)
    assert len(errors) <= 1, f"{len(errors)} errors"
    assert path.rx_octets == 0
    if not errors:
        return "waits for more"
    assert errors[0].what
    assert path.read("RX_FPDUS") == whole
    return Cause(errors[0].cause).name


def _check_good() -> None:
    """Check that a good exchange works, so that earlier cases have left no state behind."""
    enhanced = EnhancedData(4, 4, True, frozenset({Rtr.WRITE}))
    request = StartupFrame(FrameKind.REQUEST, enhanced=enhanced).encode()
    end = Negotiation(Config(Role.RESPONDER))
    end.start(0)
    events = end.receive(request[: end.wanted])
    events += end.receive(request[20:])
    assert isinstance(events[-1], Requested), "a good Request was rejected"
    assert isinstance(end.accept()[-1], Established), "a good Request could not be accepted"
    path = configured(markers=True)
    framer = FpduFramer(markers=True, crc=True)
    for ulpdu in (rtr_ulpdu(Rtr.WRITE), bytes(600), b"good"):
        path.receive(framer.frame(ulpdu))
    assert [path.ulpdus.pop().octets for _ in range(len(path.ulpdus))] == [bytes(600), b"good"], "good FPDUs were lost"


class Hang(AssertionError):  # noqa: N818 -- the name is clear without a suffix
    """Something took longer than :func:`limited_time` allows."""


@contextmanager
def limited_time(seconds: float) -> Iterator[None]:
    """Raise Hang inside of the context when it has taken this much processor time."""

    def late(*_: Any) -> None:
        raise Hang(f"not finished after {seconds} s of processor time")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextmanager
def limited_growth(failures: list[str], name: str) -> Iterator[None]:
    """Report a failure of ``name`` if the process's peak of memory grows by over GROWTH inside of the context."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > GROWTH:
        failures.append(f"{name}: memory grew by {grown >> 20} MiB")


def attempt(case: Case) -> tuple[str, str]:
    """Run a case; return its outcome, and the error, which is empty if the case passed."""
    try:
        with limited_time(HANG):
            return case.run(), ""
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a case with fewer octets that still fails, by leaving out smaller and smaller parts."""
    size = len(case.octets)
    while size:
        at = 0
        while at < len(case.octets):
            less = replace(case, octets=case.octets[:at] + case.octets[at + size :])
            if fails(less):
                case = less
            else:
                at += size
        size //= 2
    return case


def keep(case: Case, wrong: str) -> Path:
    """Write a failing case to a file for ``--replay``."""
    folder = built(FOLDER)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{case.seed.replace(' ', '-')}.json"
    path.write_text(json.dumps(case.to_json() | {"wrong": wrong}, indent=1))
    return path


@dataclass
class Report:
    """The results of some cases."""

    outcomes: Counter[str]
    failures: list[str]


def batch(kind: str, seed: int, numbers: range) -> Report:
    """Run these cases; failing ones are shrunk and kept."""
    report = Report(Counter(), [])
    if kind == "rtl":
        return _batch_rtl(seed, numbers)
    with limited_growth(report.failures, f"{kind} {seed}, cases {numbers[0]} to {numbers[-1]}"):
        for number in numbers:
            case = Case.make(kind, seed, number)
            ended, wrong = attempt(case)
            report.outcomes[f"{kind}: {ended}"] += 1
            if wrong:
                report.failures.append(_failure_line(*_smaller(case, wrong)))
            elif number % 100 == 0:
                _check_good()
    return report


def _smaller(case: Case, wrong: str) -> tuple[Case, str]:
    """Return the shrunk case, which fails with the same exception, and its error."""
    exception = wrong.partition(":")[0]
    case = shrunk(case, lambda each: attempt(each)[1].partition(":")[0] == exception)
    return case, attempt(case)[1]


def _batch_rtl(seed: int, numbers: range) -> Report:
    """Run many streams in one simulation; a failing one is identified, and kept by itself."""
    from open_rnic.cocotb_tests.system.test_soak import run_cases

    report = Report(Counter(), [])
    cases = [Case.make("rtl", seed, number) for number in numbers]
    lanes = LANES[numbers[0] // len(numbers) % len(LANES)]
    try:
        run_cases(lanes, cases)
        report.outcomes["rtl: same as the software"] += len(cases)
    except AssertionError as error:
        report.outcomes["rtl: failed"] += len(cases)
        named = re.search(r"case number (\d+)", str(error))
        if named is None:
            report.failures.append(f"rtl {seed}, cases {numbers[0]} to {numbers[-1]}, {lanes} lanes: {error}")
        else:
            report.failures.append(_failure_line(replace(cases[int(named[1])], lanes=lanes), str(error)[-500:]))
    return report


def _failure_line(case: Case, wrong: str) -> str:
    path = keep(case, wrong)
    return f"{case.seed}: {wrong}\n  again: {Path(sys.executable)} -m open_rnic.cocotb_tests.soak --replay {path}"


def soak(cases: int, seed: int, jobs: int, progress: Callable[[int], None], simulated: int) -> Report:
    """Run ``cases`` cases in ``jobs`` processes, ``simulated`` of them in RTL; ``progress`` gets the cases done."""
    shares = {"startup": cases // 2, "stream": cases - cases // 2 - simulated, "rtl": simulated}
    total = Report(Counter(), [])
    with ProcessPoolExecutor(jobs) as pool:
        waiting = {
            pool.submit(batch, kind, seed, range(at, min(at + size, count))): min(at + size, count) - at
            for kind, count in shares.items()
            for size in [BATCH if kind != "rtl" else 100]
            for at in range(0, count, size)
        }
        for done in as_completed(waiting):
            total.outcomes += done.result().outcomes
            total.failures += done.result().failures
            progress(waiting[done])
    return total


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1_000_000, help="number of cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="seed of a run to repeat (default: random)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes (default: one per core)")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one case that an earlier run has kept")
    options = parser.parse_args()
    if options.replay:
        case = Case.from_json(json.loads(options.replay.read_text()))
        ended, wrong = attempt(case)
        print(f"{case.seed}: {wrong or ended}")
        return bool(wrong)
    seed = random.SystemRandom().getrandbits(32) if options.seed is None else options.seed
    console = Console()
    print(f"{options.cases:,} cases, seed {seed}, {options.jobs} processes", flush=True)
    begun = time.monotonic()
    simulated = options.cases // RTL_SHARE
    columns = *Progress.get_default_columns()[:-1], MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("cases", total=options.cases)

        def progress(cases: int) -> None:
            bar.advance(task, cases)
            done = int(bar.tasks[0].completed)
            if not console.is_terminal and done * 20 // options.cases > (done - cases) * 20 // options.cases:
                print(f"{done:,} of {options.cases:,} after {time.monotonic() - begun:,.0f} s", flush=True)

        report = soak(options.cases, seed, options.jobs, progress, simulated)
    for what, count in sorted(report.outcomes.items()):
        print(f"{count:>9,}  {what}")
    for failure in report.failures:
        print(failure)
    verdict = f"{len(report.failures)} failures" if report.failures else "no failure"
    print(f"seed {seed}: {verdict} in {time.monotonic() - begun:,.0f} s")
    return bool(report.failures)


if __name__ == "__main__":
    sys.exit(main())
