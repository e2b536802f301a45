"""Try the tests and proofs of the RTL on mutants of it: ``python -m open_rnic.cocotb_tests.mutation``.

The exit status is 1 if a mutant survives without a reason in :file:`equivalent.toml`, or if a reason there is obsolete.
"""

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from open_rnic.cocotb_tests.mutation import sites
from open_rnic.host_driver.builds.cache import limit
from open_rnic.host_driver.builds.folders import built
from open_rnic.host_driver.tools.bench.table import around, put

HERE = Path(__file__).parent
TESTS = HERE.parent
REASONS = HERE / "equivalent.toml"
# In order of cost, the cheapest first.
BLOCKS = (
    "mpa/test_tx.py", "mpa/test_rx.py", "mpa/test_fence.py", "mpa/test_rtr_detector.py",
    "lib/test_queues.py", "lib/test_rows_and_counters.py", "lib/test_crc.py", "mpa/test_length.py",
    "host_link/test_link.py",
)  # fmt: skip
SYSTEM = (
    "test_stream_mode.py", "test_axi.py", "test_registers.py", "test_fence.py", "test_errors.py", "test_vectors.py",
    "test_datapath.py", "test_linked.py", "test_shared.py",
)  # fmt: skip
# For each file without tests of its blocks, the test of the system that covers it.
OWN = {
    "rtl/registers/bank.py": "test_registers.py", "rtl/mpa/axi.py": "test_axi.py",
    "rtl/mpa/datapath.py": "test_registers.py", "rtl/mpa/rx/rtr_detector.py": "test_fence.py",
    "rtl/mpa/rx/store_and_forward.py": "test_errors.py", "rtl/mpa/stream_mode.py": "test_stream_mode.py",
    "rtl/mpa/rx/mode_switch.py": "test_stream_mode.py", "rtl/mpa/tx/mode_switch.py": "test_stream_mode.py",
    "rtl/mpa/tx/fence.py": "test_fence.py", "rtl/host_link/top.py": "test_linked.py",
    **dict.fromkeys((f"rtl/host_link/{name}.py" for name in ("beats", "crc", "link", "requests")), "test_linked.py"),
}  # fmt: skip
LANES = (1, 4)  # of tests that have several widths
WIDE = 16  # lanes of further tests of blocks: some logic is in every design, and used above 4 lanes only
SAMPLE = 60  # number of mutants


def mutants_at(widths: Iterable[int]) -> set[str]:
    """Return the keys of all mutants in the designs that are tested, at these widths."""
    from open_rnic.host_driver.devices.sim.elaborate import to_rtlil
    from open_rnic.rtl.host_link.top import LinkedDatapath
    from open_rnic.rtl.host_link.uart import Uart
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath
    from open_rnic.rtl.mpa.datapath import MpaDatapath
    from open_rnic.rtl.mpa.length import LengthFifo

    sites.begin({})
    designs: list[Any] = [Uart(Fraction(25, 3))]
    for lanes in widths:
        designs += [AxiMpaDatapath(lanes), LinkedDatapath(lanes), LengthFifo(lanes, 128)]
        designs += [MpaDatapath(lanes, store_and_forward=2048)]
    for design in designs:
        to_rtlil(design)
    return set(sites.live)


def choose(keys: Iterable[str], seed: int, count: int) -> list[str]:
    """Choose mutants, in an order that depends on class and text only, so that most remain if the source changes."""

    def place(key: str) -> tuple[bytes, str]:
        file_and_function, _, text = key.partition(": ")
        block = file_and_function.partition(" ")[2].partition(".")[0]
        return hashlib.sha256(f"{seed} {block}: {text}".encode()).digest(), key

    return sorted(keys, key=place)[:count]


def reasons() -> dict[str, str]:
    """Return the mutants that behave like the original at the ports, each with the reason."""
    return dict(tomllib.loads(REASONS.read_text()))


class Campaign:
    """The chosen mutants, and the killer of each dead one, in a file that pytest's plugin updates."""

    def __init__(self, folder: Path, mutants: list[str], jobs: int, *, resume: bool = False, fresh: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "plan.json"
        before = json.loads(self._file.read_text())["killed"] if resume and self._file.exists() else {}
        self._plan: dict[str, Any] = {
            "mutants": {key: number for number, key in enumerate(mutants, 1)},
            "killed": {key: test for key, test in before.items() if key in set(mutants)},
            "jobs": jobs,
            "fresh": fresh,
            "tried": 0,
            "known": 0,
        }

    @property
    def killed(self) -> dict[str, str]:
        """The dead mutants, each with the test that first failed on it."""
        return self._plan["killed"]

    @property
    def mutants(self) -> list[str]:
        """All mutants."""
        return list(self._plan["mutants"])

    @property
    def known(self) -> str:
        """How many runs of tests on mutants are known from earlier campaigns, as a line."""
        return f"{self._plan['known']} of {self._plan['tried']} runs of a test or proof on a mutant were known"

    @property
    def alive(self) -> list[str]:
        """The mutants that are not dead."""
        return [key for key in self.mutants if key not in self.killed]

    def test(self, files: Iterable[Path], lanes: int, own: bool) -> bool:
        """Run these tests at a width; returns whether they could be run.

        If ``own`` is set, a test of the system is tried on mutants of its files in ``OWN``; otherwise, on all others.
        """
        plan = {**self._plan, "lanes": lanes, "own": own, "owners": OWN, "system": SYSTEM}
        self._file.write_text(json.dumps(plan))
        plugin = ["-p", f"{__package__}.tests", "--mutants", str(self._file), "-p", "no:cacheprovider", "-q", "-s"]
        command = [sys.executable, "-m", "pytest", *plugin, *map(str, files)]
        variables = os.environ | {"PYTHONHASHSEED": "1"}  # the order of sets, too, is the same in each campaign
        done = subprocess.run(command, cwd=TESTS.parent, env=variables, check=False)
        self._plan = json.loads(self._file.read_text())
        return done.returncode == 0

    def prove(self, excused: Container[str]) -> None:
        """Try the mutants that are alive and not ``excused`` on the proofs of their blocks."""
        from open_rnic.cocotb_tests.proofs.__main__ import Job, chosen
        from open_rnic.cocotb_tests.proofs.harness import SiteMutant

        for key in (each for each in self.alive if each not in excused):
            block = re.search(r" (\w+)", key)[1]
            for stated in chosen([]):
                if key not in self.killed and block in re.findall(r"\w+", stated.of):
                    mutant = SiteMutant(key)
                    tried = replace(stated, mutants=(*stated.mutants, mutant))
                    outcome = Job(tried, stated.lanes[0], mutant).run(self._plan["fresh"])
                    self._plan["tried"] += 1
                    self._plan["known"] += outcome.known
                    if outcome.verdict == "FAIL":
                        self.killed[key] = f"proof {stated.full_name}"
        self._file.write_text(json.dumps(self._plan, indent=1))


def _by(killer: str) -> str:
    return "proofs" if killer.startswith("proof ") else "blocks" if "/rtl/" in killer else "system"


def table(campaign: Campaign, excused: dict[str, str]) -> str:
    """Return the results for each file, and the equivalent mutants with their reasons, as Markdown."""
    kinds = ("mutants", "blocks", "system", "proofs", "equivalent", "survived")
    counts: dict[str, Counter[str]] = {}
    for key in campaign.mutants:
        row = counts.setdefault(key.split(" ")[0], Counter())
        killer = campaign.killed.get(key)
        row.update(["mutants", _by(killer) if killer else "equivalent" if key in excused else "survived"])
    total = sum(counts.values(), Counter())
    rows = [("file", "mutants", "killed by tests of blocks", "of the system", "by proofs", "equivalent", "survived")]
    rows.append(("---",) + ("--:",) * len(kinds))
    rows += [(f"`{file}`", *(str(counts[file][kind]) for kind in kinds)) for file in sorted(counts)]
    rows.append(("all", *(str(total[kind]) for kind in kinds)))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    listed = [key for key in campaign.alive if key in excused]
    if listed:
        lines += ["", "| equivalent | reason |", "|---|---|"]
        lines += [f"| `{key.replace('|', chr(92) + '|')}` | {excused[key]} |" for key in sorted(listed)]
    return "\n".join(lines) + "\n"


def complaints(campaign: Campaign, excused: dict[str, str], known: set[str]) -> list[str]:
    """Return error messages for survivors and obsolete reasons."""
    return [
        *(f"survived: {key}" for key in campaign.alive if key not in excused),
        *(f"{REASONS.name} has a mutant that does not exist: {key}" for key in excused if key not in known),
        *(f"{REASONS.name} has a mutant that {campaign.killed[key]} kills: {key}"
          for key in excused if key in campaign.killed),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="seed for the choice of mutants; default: 1")
    parser.add_argument("--count", type=int, help=f"number of mutants; default: 500, or {SAMPLE} for a sample")
    parser.add_argument("--block", default="", help="part of the mutants' keys, such as rtl/mpa/tx/fence.py or Fence")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="concurrent runs; default: one per core")
    parser.add_argument(
        "--sample", action="store_true", help="a run of some minutes: without equivalent mutants, at 1 lane if possible"
    )
    parser.add_argument("--resume", action="store_true", help="continue with the mutants that the last run left alive")
    parser.add_argument("--fresh", action="store_true", help="try again what is known from earlier runs")
    parser.add_argument("--markdown", type=Path, help="page in which to update the table between its comments")
    options = parser.parse_args(arguments)
    count = options.count if options.count is not None else SAMPLE if options.sample else 500
    for name, value in (("count", count), ("jobs", options.jobs)):
        if value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    try:
        limit()
        if options.markdown:
            around(options.markdown, "mutants")
    except ValueError as problem:
        raise SystemExit(str(problem)) from None
    sites.install()
    known = mutants_at(LANES)
    excused = reasons()
    candidates = mutants_at(LANES[:1]) - excused.keys() if options.sample else known
    candidates = {key for key in candidates if options.block in key}
    if not candidates:
        parser.error(f"no mutant's key contains --block {options.block!r}")
    mutants = choose(candidates, options.seed, count)
    campaign = Campaign(built("mutation"), mutants, options.jobs, resume=options.resume, fresh=options.fresh)
    blocks = [TESTS / "rtl" / each for each in BLOCKS]
    system = [TESTS / "system" / each for each in SYSTEM]
    runs = [(blocks + system, lanes, True) for lanes in LANES] + [(blocks, WIDE, True)]
    for files, lanes, own in runs + [(system, lanes, False) for lanes in LANES]:
        if campaign.alive and not campaign.test(files, lanes, own):
            print("a test fails without a mutant, or cannot be run", file=sys.stderr)
            return 1
    campaign.prove(excused)
    text = table(campaign, excused)
    print(text)
    print(campaign.known)
    if options.markdown:
        put(options.markdown, "mutants", text)
    wrong = complaints(campaign, excused, known)
    for each in wrong:
        print(each, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
