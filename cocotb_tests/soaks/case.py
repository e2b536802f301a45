"""What all kinds of cases have in common: limits, and a file for each case that fails."""

import gc
import resource
import signal
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self

import msgspec

from open_rnic.host_driver.builds.folders import built
from open_rnic.rtl.lib.lanes import LANES

HANG = 60  # limit of processor time for a case, in seconds
GROWTH = 64 << 20  # limit of memory that a batch may add to a process, in octets
Lanes = Literal[tuple(LANES)]


class Case(msgspec.Struct, frozen=True, tag_field="kind"):
    """A case of a soak. Its ``seed`` determines all choices that its other fields do not hold.

    COUNT : number of cases of a run
    BATCH : number of cases that a process runs one after the other, in which its memory must not grow
    SIMULATES : whether a simulation does most of the work; then the time and memory of this process have no limits
    PARTS : name of the field whose elements can be left out, to shrink a case
    """

    seed: str

    COUNT: ClassVar[int]
    BATCH: ClassVar[int] = 1
    SIMULATES: ClassVar[bool] = False
    PARTS: ClassVar[str] = ""

    @classmethod
    def make(cls, seed: str, number: int) -> Self:
        """Make a case of this seed, the case ``number`` of a run."""
        return cls(seed)

    def run(self) -> Counter[str]:
        """Run the case, and return how often each thing happened; raises an exception if the case fails."""
        raise NotImplementedError

    def shrunk(self, fails: Callable[[Self], bool]) -> Self:
        """Return a smaller case that still fails."""
        if not self.PARTS:
            return self

        def with_parts(parts: Sequence[Any]) -> Self:
            return msgspec.structs.replace(self, **{self.PARTS: parts})

        return with_parts(shrunk(getattr(self, self.PARTS), lambda parts: fails(with_parts(parts))))


def shrunk(parts: Sequence[Any], fails: Callable[[Sequence[Any]], bool]) -> Sequence[Any]:
    """Return fewer parts that still fail, by leaving out smaller and smaller pieces."""
    size = len(parts)
    while size:
        at = 0
        while at < len(parts):
            less = parts[:at] + parts[at + size :]
            if fails(less):
                parts = less
            else:
                at += size
        size //= 2
    return parts


class Hang(AssertionError):  # noqa: N818 -- the name is clear without a suffix
    """A case took more processor time than HANG."""


def _late(*_: Any) -> None:
    raise Hang(f"not finished after {HANG} s of processor time")


def attempt(case: Case) -> tuple[Counter[str], str]:
    """Run a case; return what happened, and the error, which is empty if the case passed."""
    callbacks, gc.callbacks[:] = gc.callbacks[:], []  # an exception that is raised in one of them is lost
    signal.signal(signal.SIGVTALRM, _late)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0 if case.SIMULATES else HANG, HANG)
    try:
        return case.run(), ""
    except Exception as error:
        return Counter(failed=1), f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        gc.callbacks[:] = callbacks


def keep(case: Case, wrong: str) -> str:
    """Shrink a case that fails, write it to a file for ``--replay``, and return what is to be reported."""
    exception = wrong.partition(":")[0]
    smaller = case.shrunk(lambda each: attempt(each)[1].partition(":")[0] == exception)
    if smaller != case:
        case, wrong = smaller, attempt(smaller)[1] or wrong
    path = built("soak") / f"{case.seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = msgspec.to_builtins(case) | {"wrong": wrong}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(plain)))
    last = "\n  ".join(wrong.splitlines()[-2:])  # a simulation's log is before it
    return f"{case.seed}: {last}\n  again: {sys.executable} -m open_rnic.cocotb_tests.soaks --replay {path}"


def batch(kind: type[Case], seed: int, numbers: range, **fields: Any) -> tuple[Counter[str], list[str]]:
    """Run cases, with these fields; return how often each thing happened, and a report of each failure."""
    outcomes, failures, before = Counter(), [], _peak()
    name = kind.__struct_config__.tag
    for number in numbers:
        case = msgspec.structs.replace(kind.make(f"{name}-{seed}-{number}", number), **fields)
        found, wrong = attempt(case)
        outcomes.update(found)
        if wrong:
            failures.append(keep(case, wrong))
    grown = _peak() - before
    if grown > GROWTH and not kind.SIMULATES:
        failures.append(f"{name}-{seed}, cases {numbers[0]} to {numbers[-1]}: memory grew by {grown >> 20} MiB")
    return outcomes, failures


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
