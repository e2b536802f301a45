"""The executor of a sweep's jobs: all cores of this machine, or an existing Dask cluster."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Generic, TypeVar

from open_rnic.host_driver.lib.optional_packages import missing

__all__ = ["Starter", "abandon", "executor"]

_T = TypeVar("_T")

_folders: set[str] = set()  # of the jobs on this machine
_ANSWER = "10s"  # time limit for a scheduler to answer
_START = "600s"  # time limit for the processes of this machine to start, which may be busy


@contextmanager
def executor(scheduler: str | None = None) -> Iterator[tuple[Executor, int]]:
    """Yield an executor, and its number of parallel jobs. By default, its processes run on this machine.

    ``scheduler`` is the address of a Dask scheduler, such as ``tcp://host:8786``. Its workers need the same versions of
    this package and of the tools as this process. Raises ConnectionError if the scheduler does not answer or has no
    workers, or if the local processes do not start, and ModuleNotFoundError without the package ``distributed``.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise missing("distributed", "bench") from None
    for name in ("distributed", "distributed.client"):  # these loggers report each connection that is made or closed
        logging.getLogger(name).setLevel(logging.CRITICAL)

    if scheduler is None:
        # Closed explicitly, because a context must be left by the task that entered it. The files of jobs are removed
        # with the folder, even if a process is killed before it can do so.
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="rnic-bench-"))
            _folders.add(folder)
            stack.callback(_folders.remove, folder)
            stack.enter_context(dask.config.set({"distributed.comm.timeouts.connect": _START}))
            with _deaf():
                try:
                    local = stack.enter_context(closing(LocalCluster(
                        n_workers=os.cpu_count() or 1, threads_per_worker=1, processes=True,
                        dashboard_address="127.0.0.1:0", local_directory=folder, env={"TMPDIR": folder},
                        silence_logs="CRITICAL",
                    )))  # fmt: skip
                except RuntimeError as problem:
                    raise ConnectionError(f"the workers on this machine did not start: {problem}") from None
            client = stack.enter_context(closing(Client(local)))
            yield client.get_executor(), len(client.ncores())
        return
    try:
        client = Client(scheduler, timeout=_ANSWER)
    except (OSError, ValueError) as problem:
        raise ConnectionError(f"no scheduler answers at {scheduler}: {problem or type(problem).__name__}") from None
    with closing(client):
        cores = sum(client.ncores().values())
        if not cores:
            raise ConnectionError(f"the scheduler at {scheduler} has no workers")
        yield client.get_executor(), cores


class Starter(Generic[_T]):
    """Calls ``start`` once, when its result is first awaited, in a thread, so that Ctrl-C need not wait for it."""

    def __init__(self, start: Callable[[], _T]):
        self._start = start
        self._task: asyncio.Task[_T] | None = None

    async def __call__(self) -> _T:
        """Return the result, or raise the exception, of ``start``."""
        if self._task is None:
            self._task = asyncio.create_task(self._result())
        return await asyncio.shield(self._task)

    async def _result(self) -> _T:
        future: Future[_T] = Future()
        future.set_running_or_notify_cancel()

        def run() -> None:
            try:
                future.set_result(self._start())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()  # one of asyncio's would have to end before the program
        return await asyncio.wrap_future(future)


def abandon() -> None:
    """Kill all processes that this one has started, and those that they have, and remove the files of jobs.

    For a program that is about to end: a cluster that is closed in order takes seconds.
    """
    ended: set[int] = set()
    while fresh := _descendants() - ended:
        for pid in fresh:  # a stopped process starts no others
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        ended |= fresh
    for pid in ended:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder in map(Path, _folders):
        while folder.exists():  # a thread that is about to start processes may make it again
            shutil.rmtree(folder, ignore_errors=True)


def _descendants() -> set[int]:
    """Return the processes below this one, but for that of multiprocessing which tidies up behind it, and then ends."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    tidying = getattr(resource_tracker, "_resource_tracker")._pid  # noqa: B009  Mypy does not know the name
    found, fresh = set[int](), {os.getpid()}
    while fresh := {pid for pid, parent in parents.items() if parent in fresh and pid != tidying}:
        found |= fresh
    return found


@contextmanager
def _quiet() -> Iterator[None]:
    """Let the process that tidies up behind multiprocessing do so without a warning, even if this one was killed."""
    before = os.environ.get("PYTHONWARNINGS")
    mine = "ignore::UserWarning:multiprocessing.resource_tracker"
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (before, mine)))
    try:
        yield
    finally:
        del os.environ["PYTHONWARNINGS"]
        if before is not None:
            os.environ["PYTHONWARNINGS"] = before


@contextmanager
def _deaf() -> Iterator[None]:
    """Protect the processes that are started in this context from Ctrl-C: this process ends them itself.

    SIGINT is blocked, which threads and processes inherit. It is not ignored, so that this process receives it later.
    """
    with _quiet():
        resource_tracker.ensure_running()  # otherwise it unblocks SIGINT when the first process starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
