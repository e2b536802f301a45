"""The executor of a sweep's jobs: all cores of this machine, or an existing Dask cluster."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory

from open_rnic.host_driver.lib.optional_packages import missing

__all__ = ["executor"]

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


@contextmanager
def _deaf() -> Iterator[None]:
    """Protect the processes that are started in this context from Ctrl-C: this process ends them itself.

    SIGINT is blocked, which threads and processes inherit. It is not ignored, so that this process receives it later.
    """
    resource_tracker.ensure_running()  # otherwise it unblocks SIGINT when the first process starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
