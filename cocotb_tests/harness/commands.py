"""Runs ``rnic`` beside a test: in a process of its own, or in a fork of one that has imported what commands need."""

import contextlib
import functools
import gc
import io
import os
import sys
from fcntl import F_SETPIPE_SZ, fcntl

from open_rnic.cocotb_tests.harness import forks

__all__ = ["RNIC", "Command"]

RNIC = [sys.executable, "-m", "open_rnic.host_driver"]  # where the process itself is what a test tries
_PIPE = 1 << 20  # octets: enough for all output while other ends run to their ends


@functools.cache
def _forks() -> forks.Forks:
    return forks.Forks(__name__)


class Command(forks.Fork):
    """``rnic`` with these arguments, in a fork that has the folder and the environment of this process."""

    def __init__(self, *arguments: str) -> None:
        (out, their_out), (err, their_err) = pipes = os.pipe(), os.pipe()
        for _, each in pipes:
            fcntl(each, F_SETPIPE_SZ, _PIPE)
        words = {"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ)}
        try:
            super().__init__(_forks(), words, [their_out, their_err])
        finally:
            os.close(their_out)
            os.close(their_err)
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)

    def __enter__(self) -> "Command":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.stdout.close()
        self.stderr.close()

    def communicate(self) -> tuple[str, str]:
        """Wait for the end; returns the rest of standard output and of standard error, which may have 1 MiB."""
        rest = self.stdout.read(), self.stderr.read()
        self.wait()
        return rest


def serve(descriptor: int) -> None:
    """Fork for each program."""
    from open_rnic.host_driver.tools import cli

    with contextlib.redirect_stderr(io.StringIO()):
        cli.run(["connect", "127.0.0.1", "1"])  # is refused, and has imported what most commands need
    gc.freeze()
    forks.serve(descriptor, _run)


def _run(ends: list[int], arguments: list[str], folder: str, variables: dict[str, str]) -> None:
    """Become a program, with these ends of pipes for its output."""
    from open_rnic.host_driver.tools import cli

    sys.argv[1:] = arguments
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for number, end in enumerate(ends, start=1):
        os.dup2(end, number)
        os.close(end)
    cli.main()
