"""``rnic`` as a program: an unwritable standard output, Ctrl-C at any time, and announcements of long work."""

import asyncio
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version

import pytest
import typer

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.bench.rtl.cluster import _deaf
from open_rnic.host_driver.tools.cli.common import interruptible
from open_rnic.host_driver.tools.cli.help import WIDTH

AT_ONCE = 3  # seconds; it takes some tenths on an idle machine


def rnic(*arguments, **more):
    """Run the program; returns the exit status, standard output and standard error."""
    more = {"stdout": subprocess.PIPE, "stdin": subprocess.DEVNULL, "timeout": HANG} | more
    done = subprocess.run([*RNIC, *arguments], stderr=subprocess.PIPE, text=True, check=False, **more)
    return done.returncode, done.stdout, done.stderr


def test_the_version_is_that_of_the_package():
    assert rnic("--version") == (0, f"rnic {version('open-rnic')}\n", "")


def test_commands_start_without_the_modules_that_only_some_need():
    """Each start of a program would take half as long again."""
    loaded = "import sys, open_rnic.host_driver.tools.cli; print({'amaranth', 'cocotb', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=HANG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "set()\n", "")


WRITERS = [
    ["--help"],
    ["registers"],
    ["boards", "--names"],
    ["frame"],
    ["listen"],
    ["connect", "127.0.0.1", "1", "--json"],
    ["demo", "--device", "software", "--size", "1"],
    ["bench", "host", "--connections", "1", "--repeats", "1", "--size", "1"],
    ["--version"],
    ["listen", "--help"],
    ["registers", "--markdown"],
    ["boards"],
    ["cache"],
    ["verilog", "--lanes", "1", "-o", "-"],
    ["deframe"],
    ["listen", "--once", "--json"],
    ["rping", "-s", "-v", "-a", "127.0.0.1", "-p", "0"],
    ["demo", "--device", "software", "--size", "1", "--json"],
    ["bench", "crowd", "--silent", "0", "--slow", "0", "--idle", "0", "--clients", "1"],
    ["interop", "--help"],
]
INPUT = {"frame": "61\n", "deframe": "000161006bd02a72\n"}


@pytest.mark.parametrize("arguments", shortened("written in the same ways as others", 8, WRITERS), ids=" ".join)
def test_a_full_standard_output_is_reported(arguments, tmp_path):
    given = tmp_path / "given"
    given.write_text(INPUT.get(arguments[0], ""))
    with open("/dev/full", "w") as full, given.open() as lines:
        status, _, err = rnic(*arguments, stdout=full, stdin=lines)
    *others, last = err.splitlines()
    assert (status, last) == (1, "rnic: standard output: No space left on device")
    assert all(each.startswith("rnic: ") for each in others)


@pytest.mark.parametrize("arguments", shortened(
    "written in the same ways as others", 3,
    [["frame"], ["demo", "--device", "software"], ["--help"], ["registers"], ["listen"]],
), ids=" ".join)  # fmt: skip
def test_a_closed_standard_output_is_reported(arguments, tmp_path):
    given = tmp_path / "given"
    given.write_text(INPUT.get(arguments[0], ""))
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *RNIC, *arguments]
    with given.open() as lines:
        done = subprocess.run(command, stdin=lines, stderr=subprocess.PIPE, text=True, check=False, timeout=HANG)
    assert (done.returncode, done.stderr) == (1, "rnic: standard output: it is closed\n")


@pytest.mark.parametrize(("arguments", "file", "content"), shortened("one that starts Yosys", 1, [
    (["man", "."], "rnic-connect.1", ".TH"), (["verilog", "--lanes", "1", "-o", "mpa.v"], "mpa.v", "endmodule"),
]))  # fmt: skip
def test_a_command_without_output_needs_no_standard_output(arguments, file, content, tmp_path):
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *RNIC, *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=HANG, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert content in (tmp_path / file).read_text()


def test_a_closed_standard_error_does_not_stop_a_command():
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *RNIC, "registers"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=HANG)
    assert (done.returncode, "CONTROL" in done.stdout) == (0, True)
    command[-1] = "no-such-command"
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=HANG)
    assert (done.returncode, done.stdout) == (2, "")


def test_ctrl_c_during_imports_ends_the_program_silently(tmp_path):
    interrupt = "import os, signal, threading\nos.kill(os.getpid(), signal.SIGINT)\nthreading.Event().wait()\n"
    (tmp_path / "typer.py").write_text(interrupt)  # the first thing that the command line imports
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    assert rnic("registers", env=environment) == (-signal.SIGINT, "", "")


def test_ctrl_c_during_elaboration_causes_no_warning():
    interrupted = (
        "import os, signal\n"
        "from open_rnic.host_driver import __main__\n"
        "from open_rnic.host_driver.devices.sim import build\n"
        "build.verilog = lambda *_: os.kill(os.getpid(), signal.SIGINT)\n"
        "__main__.main()\n"
    )
    command = [sys.executable, "-c", interrupted, "verilog", "--lanes", "1", "-o", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.fixture
def heeds_ctrl_c():
    """SIGINT is not ignored, as it is in what a shell without a terminal has put into the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_while_workers_start_reaches_only_the_parent():
    started = []

    def start():
        with _deaf():
            command = [sys.executable, "-c", "print(input(), flush=True)"]
            started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            signal.raise_signal(signal.SIGINT)  # to this thread: another of the test runner's may not block it
            started[0].send_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        start()
    with started[0] as child:
        out, _ = child.communicate("still here\n", timeout=HANG)
    assert (child.returncode, out) == (0, "still here\n")


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_at_the_end_of_a_task_is_not_lost(capsys):
    async def part():
        signal.raise_signal(signal.SIGINT)
        try:
            while True:
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            return "done already"

    with pytest.raises(typer.Exit) as ended:
        interruptible(part(), kept=True)
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err.startswith("interrupted; completed results are kept")


@pytest.mark.parametrize("width", shortened("more widths", 1, [60, 80, 120]))
def test_help_is_wrapped_where_the_terminal_ends_and_nowhere_else(width):
    status, out, err = rnic("connect", "--help", env=os.environ | {"COLUMNS": str(width)})
    assert (status, err) == (0, "")
    [paragraph] = [each for each in re.split(r"\n\s*\n", out) if "sends the messages" in " ".join(each.split())]
    for line, following in itertools.pairwise(paragraph.splitlines()):
        assert len(line.rstrip()) + len(following.split()[0]) >= min(width, WIDTH) - 3


def test_the_first_build_is_announced_without_a_terminal(tmp_path):
    environment = os.environ | {"OPEN_RNIC_CACHE": str(tmp_path), "CXX": "no-such-compiler"}
    status, _, err = rnic("demo", env=environment)
    first, last = err.splitlines()  # once, for both devices
    assert first == "rnic: building the simulation (device 4), once: some minutes"
    assert (status, last) == (1, "rnic: the simulation cannot be built: c++ is missing, which simulation needs: "
                                   "install the Debian package g++")  # fmt: skip


def test_long_work_is_announced_without_a_terminal(capsys):
    status = cli.run(["bench", "crowd", "--silent", "2", "--slow", "1", "--idle", "1", "--clients", "1", "--json"])
    lines = ["silent (2)", "idle (1)", "slow (1)", "good clients (1)"]
    assert (status, capsys.readouterr().err.splitlines()) == (0, [f"rnic: {each}" for each in lines])


@pytest.mark.filterwarnings("error")
def test_inspecting_a_component_causes_no_warning():
    from open_rnic.rtl.mpa.datapath import MpaDatapath

    assert "tx_mpa" in look(lambda: MpaDatapath(1), lambda path: list(path.signature.members))


def below(process):
    """Return the processes below a process, as lines of ps, by their number."""
    shown = subprocess.run(["ps", "-wweo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = {int(line.split()[0]): (int(line.split()[1]), line) for line in shown.splitlines()}
    found, fresh = {}, {process}
    while fresh := {pid for pid, (parent, _) in rows.items() if parent in fresh}:
        found |= {pid: rows[pid][1] for pid in fresh}
    return found


def there(processes):
    """Return those of these processes that still run; a zombie waits only for its parent to notice."""
    shown = subprocess.run(["ps", "-eo", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    alive = {int(pid) for pid, state in map(str.split, shown.splitlines()) if not state.startswith("Z")}
    return [line for pid, line in processes.items() if pid in alive]


@needs("ps")
@pytest.mark.parametrize("moment", ["workers start", "jobs run"])
def test_ctrl_c_ends_a_benchmark_at_once_and_leaves_nothing(moment, tmp_path):
    variables = os.environ | {"OPEN_RNIC_BUILD": str(tmp_path / "build"), "TMPDIR": str(tmp_path)}
    command = [*RNIC, "bench", "rtl", "--block", "TX", "--lanes", "1", "--part", "85f", "--no-cycles"]
    wanted = "spawn_main" if moment == "workers start" else "bench.child"
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=variables) as process:
        running = {}
        while not any(wanted in line for line in running.values()):
            assert process.poll() is None
            time.sleep(0.05)
            running = below(process.pid)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        process.wait(HANG)
        took = time.monotonic() - began
        said = process.stderr.read()
    assert (process.returncode, took < AT_ONCE) == (130, True)
    assert said.endswith("\ninterrupted; completed results are kept, and the same command continues from there\n")
    for _ in range(100):  # multiprocessing's own helper ends when it has tidied up
        if not there(running):
            break
        time.sleep(0.05)
    assert not there(running)
    assert not [*tmp_path.glob("rnic-bench-*")]
