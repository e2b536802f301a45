"""Programs in forks: their ends, and those of the process that forks and of the process that asks."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.harness import forks
from open_rnic.cocotb_tests.plugins.limits import HANG


def serve(descriptor):
    forks.serve(descriptor, run, prepare)


def prepare(words):
    assert words["do"] != "not even begin"


def run(files, do, **more):
    """What the programs of these tests do."""
    match do:
        case "sleep":
            time.sleep(HANG)
        case "exit":
            sys.exit(more["code"])
        case "count":
            os.write(files[0], str(len(more["octets"])).encode())


@pytest.fixture
def parent():
    made = forks.Forks(__name__)
    yield made
    made.close()


def ends(pid):
    """Wait until a process has ended, whether or not its end has been noticed."""
    latest = time.monotonic() + HANG
    with suppress(FileNotFoundError, ProcessLookupError):
        while "State:\tZ" not in Path(f"/proc/{pid}/status").read_text():
            assert time.monotonic() < latest, f"process {pid} goes on"
            time.sleep(0.01)


def test_a_fork_reports_its_exit_code(parent):
    assert forks.Fork(parent, {"do": "exit", "code": 3}).wait() == 3


def test_a_fork_that_is_killed_reports_the_signal_and_leaves_others_alone(parent):
    one, other = (forks.Fork(parent, {"do": "sleep"}) for _ in range(2))
    one.kill()
    assert (one.returncode, other.wait(0)) == (-signal.SIGKILL, None)
    other.kill()


def test_a_fork_has_its_files_and_words_of_any_length(parent):
    reads, writes = os.pipe()
    with os.fdopen(reads) as read:
        program = forks.Fork(parent, {"do": "count", "octets": "x" * 1_000_000}, [writes])
        os.close(writes)
        assert (read.read(), program.wait()) == ("1000000", 0)


def test_no_descriptor_is_left_over(parent):
    def count():
        program = forks.Fork(parent, {"do": "sleep"})  # when it runs, all of those before it has been closed
        counts = [len(os.listdir(f"/proc/{each}/fd")) for each in ("self", parent.process.pid)]
        program.kill()
        return counts

    before = count()
    for _ in range(5):
        forks.Fork(parent, {"do": "exit", "code": 0}).wait()
    assert count() == before


def test_the_end_of_the_process_that_forks_is_reported_and_ends_its_forks(parent):
    one, other = (forks.Fork(parent, {"do": "sleep"}) for _ in range(2))
    parent.process.kill()
    for program in (one, other):
        with pytest.raises(RuntimeError, match="the process that forks has ended with -9"):
            program.wait()
        ends(program.pid)
    with pytest.raises(RuntimeError, match="has ended with -9"):
        forks.Fork(parent, {"do": "sleep"})


def test_an_error_in_the_process_that_forks_is_reported(parent):
    with pytest.raises(RuntimeError, match="has ended with 1"):
        forks.Fork(parent, {"do": "not even begin"})


def test_forks_end_with_the_process_that_asked_for_them():
    code = f"""
import os
from open_rnic.cocotb_tests.harness.forks import Fork, Forks
print(Fork(Forks({__name__!r}), {{"do": "sleep"}}).pid, flush=True)
os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=False)
    ends(json.loads(done.stdout))
