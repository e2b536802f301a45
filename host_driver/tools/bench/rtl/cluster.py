"""Where the jobs of a sweep run: on all cores of this machine, or on a Dask cluster that is there already."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, closing, contextmanager
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory

__all__ = ["executor"]

_ANSWER = "10s"  # in which a scheduler must
_START = "600s"  # in which the processes of this machine must, however busy it is


@contextmanager
def executor(scheduler: str | None = None) -> Iterator[tuple[Executor, int]]:
    """An executor, and how many jobs it does at once; without ``scheduler``, of processes that end with this context.

    ``scheduler`` is the address of one, as ``tcp://host:8786``. Its workers need what this process has: the same
    version of this package, and of the tools. Raises ConnectionError when it does not answer or has no workers, or the
    processes do not start, and ModuleNotFoundError without the package ``distributed``.
    """
    try:
        import dask
        from distributed import Client, LocalCluster
    except ModuleNotFoundError:
        raise ModuleNotFoundError("the Python package distributed is missing: install open-rnic[bench]") from None
    for name in ("distributed", "distributed.client"):  # it tells of each connection that it makes or ends
        logging.getLogger(name).setLevel(logging.CRITICAL)

    if scheduler is None:
        # Closed, not used as contexts, which would have to be left in the task that entered them. What jobs write is
        # removed with the folder, even if the processes had no time to.
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
    """What is started meanwhile does not hear Ctrl-C, which is told to all of a terminal's processes: we end them.

    SIGINT is blocked, which threads and processes inherit, and not ignored: one that comes meanwhile comes behind it.
    """
    resource_tracker.ensure_running()  # it would unblock SIGINT when the first process starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
