"""Tries the tests and proofs of the RTL on mutants of it: ``python -m open_rnic.cocotb_tests.mutation``.

Ends with 1 when a mutant survives that :file:`equivalent.toml` has no reason for, or a reason there is of no use.
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
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from open_rnic.cocotb_tests.mutation import sites
from open_rnic.host_driver.folders import built

HERE = Path(__file__).parent
TESTS = HERE.parent
REASONS = HERE / "equivalent.toml"
# In this order: those that cost least first.
BLOCKS = (
    "mpa/test_tx.py", "mpa/test_rx.py", "lib/test_queues.py", "lib/test_crc.py", "mpa/test_length.py",
    "link/test_link.py",
)  # fmt: skip
SYSTEM = (
    "test_stream_mode.py", "test_axi.py", "test_registers.py", "test_fence.py", "test_errors.py", "test_vectors.py",
    "test_datapath.py", "test_linked.py",
)  # fmt: skip
# What has no test as a block, and the test of the system that is of it.
OWN = {
    "rtl/register_bank.py": "test_registers.py", "rtl/mpa/axi.py": "test_axi.py",
    "rtl/mpa/datapath.py": "test_registers.py", "rtl/mpa/rx/rtr_detector.py": "test_fence.py",
    "rtl/mpa/rx/store.py": "test_errors.py", "rtl/mpa/stream_mode.py": "test_stream_mode.py",
    "rtl/mpa/rx/mode_switch.py": "test_stream_mode.py", "rtl/mpa/tx/mode_switch.py": "test_stream_mode.py",
    "rtl/mpa/tx/fence.py": "test_fence.py", "rtl/link/top.py": "test_linked.py",
    **dict.fromkeys((f"rtl/link/{name}.py" for name in ("beats", "crc", "link", "requests")), "test_linked.py"),
}  # fmt: skip
LANES = (1, 4)  # of the tests that have several widths
SAMPLE = 60  # mutants


def mutants_at(widths: Iterable[int]) -> set[str]:
    """The keys of all mutants of the designs that tests have, at these widths."""
    from amaranth.back import rtlil

    from open_rnic.rtl.link.top import LinkedDatapath
    from open_rnic.rtl.link.uart import Uart
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath
    from open_rnic.rtl.mpa.datapath import MpaDatapath
    from open_rnic.rtl.mpa.length import LengthFifo

    sites.begin({})
    designs: list[Any] = [Uart(Fraction(25, 3))]
    for lanes in widths:
        designs += [AxiMpaDatapath(lanes), LinkedDatapath(lanes), LengthFifo(lanes, 128)]
        designs += [MpaDatapath(lanes, store_and_forward=2048)]
    for design in designs:
        rtlil.convert(design, name="top", emit_src=False)
    return set(sites.live)


def choose(keys: Iterable[str], seed: int, count: int) -> list[str]:
    """So many mutants. The order goes by a mutant's class and text, so most stay when the source changes or moves."""

    def place(key: str) -> tuple[bytes, str]:
        file_and_function, _, text = key.partition(": ")
        block = file_and_function.partition(" ")[2].partition(".")[0]
        return hashlib.sha256(f"{seed} {block}: {text}".encode()).digest(), key

    return sorted(keys, key=place)[:count]


def reasons() -> dict[str, str]:
    """The mutants that change nothing which can be seen from outside, and why."""
    return dict(tomllib.loads(REASONS.read_text()))


class Campaign:
    """The mutants that were chosen, and what killed which: a file, which pytest's plugin goes on writing."""

    def __init__(self, folder: Path, mutants: list[str], jobs: int, *, resume: bool = False):
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "plan.json"
        before = json.loads(self._file.read_text())["killed"] if resume and self._file.exists() else {}
        self._plan: dict[str, Any] = {
            "mutants": {key: number for number, key in enumerate(mutants, 1)},
            "killed": {key: test for key, test in before.items() if key in set(mutants)},
            "jobs": jobs,
        }

    @property
    def killed(self) -> dict[str, str]:
        """The mutants that are dead: the test that each one failed first."""
        return self._plan["killed"]

    @property
    def mutants(self) -> list[str]:
        """All."""
        return list(self._plan["mutants"])

    @property
    def alive(self) -> list[str]:
        """Those that are not dead."""
        return [key for key in self.mutants if key not in self.killed]

    def test(self, files: Iterable[Path], lanes: int, own: bool) -> bool:
        """Run these tests at a width; whether they could be run.

        Tests of the system get the mutants whose ``own`` test they are, or all others.
        """
        plan = {**self._plan, "lanes": lanes, "own": own, "owners": OWN, "system": SYSTEM}
        self._file.write_text(json.dumps(plan))
        plugin = ["-p", f"{__package__}.tests", "--mutants", str(self._file), "-p", "no:cacheprovider", "-q", "-s"]
        command = [sys.executable, "-m", "pytest", *plugin, *map(str, files)]
        done = subprocess.run(command, cwd=TESTS.parent, check=False)
        self._plan = json.loads(self._file.read_text())
        return done.returncode == 0

    def prove(self) -> None:
        """Try the mutants that are alive on the proofs of their blocks."""
        from open_rnic.cocotb_tests.proofs.__main__ import Job, chosen
        from open_rnic.cocotb_tests.proofs.harness import SiteMutant

        for key in self.alive:
            block = re.search(r" (\w+)", key)[1]
            for stated in chosen([]):
                if key not in self.killed and block in re.findall(r"\w+", stated.of):
                    mutant = SiteMutant(key)
                    tried = replace(stated, mutants=(*stated.mutants, mutant))
                    if Job(tried, stated.lanes[0], mutant).run().verdict == "FAIL":
                        self.killed[key] = f"proof {stated.full_name}"
        self._file.write_text(json.dumps(self._plan, indent=1))


def _by(killer: str) -> str:
    return "proofs" if killer.startswith("proof ") else "blocks" if "/rtl/" in killer else "system"


def table(campaign: Campaign, excused: dict[str, str]) -> str:
    """What became of the mutants of each file, and the equivalent ones with their reasons, in Markdown."""
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
        lines += ["", "| equivalent | why |", "|---|---|"]
        lines += [f"| `{key.replace('|', chr(92) + '|')}` | {excused[key]} |" for key in sorted(listed)]
    return "\n".join(lines) + "\n"


def complaints(campaign: Campaign, excused: dict[str, str], known: set[str]) -> list[str]:
    """What is wrong with it."""
    return [
        *(f"survived: {key}" for key in campaign.alive if key not in excused),
        *(f"{REASONS.name} has a mutant that there is not: {key}" for key in excused if key not in known),
        *(f"{REASONS.name} has a mutant that {campaign.killed[key]} kills: {key}"
          for key in excused if key in campaign.killed),
    ]  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutants; default: 1")
    parser.add_argument("--count", type=int, help=f"how many; default: 500, of a sample {SAMPLE}")
    parser.add_argument("--block", default="", help="only mutants whose key has this, as rtl/mpa/tx/fence.py or Fence")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="at a time; default: one for each core")
    parser.add_argument(
        "--sample", action="store_true", help="in minutes: of those without a reason, at 1 lane as far as that will do"
    )
    parser.add_argument("--resume", action="store_true", help="go on with those that the last run has not killed")
    parser.add_argument("--markdown", type=Path, help="a page whose table, between its comments, is replaced")
    options = parser.parse_args(arguments)
    count = options.count if options.count is not None else SAMPLE if options.sample else 500
    for name, value in (("count", count), ("jobs", options.jobs)):
        if value < 1:
            parser.error(f"--{name} must be at least 1, not {value}")
    sites.install()
    known = mutants_at(LANES)
    excused = reasons()
    candidates = mutants_at(LANES[:1]) - excused.keys() if options.sample else known
    candidates = {key for key in candidates if options.block in key}
    if not candidates:
        parser.error(f"--block {options.block!r} is in no mutant's key")
    mutants = choose(candidates, options.seed, count)
    campaign = Campaign(built("mutation"), mutants, options.jobs, resume=options.resume)
    blocks = [TESTS / "rtl" / each for each in BLOCKS]
    system = [TESTS / "system" / each for each in SYSTEM]
    for files, own in ((blocks + system, True), (system, False)):
        for lanes in LANES:
            if campaign.alive and not campaign.test(files, lanes, own):
                print("a test fails without a mutant, or does not run", file=sys.stderr)
                return 1
    campaign.prove()
    text = table(campaign, excused)
    print(text)
    if options.markdown:
        page = options.markdown.read_text()
        page = re.sub(r"(?s)(<!-- table -->\n).*?(<!-- end -->)", lambda m: m[1] + text + m[2], page)
        options.markdown.write_text(page)
    wrong = complaints(campaign, excused, known)
    for each in wrong:
        print(each, file=sys.stderr)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
