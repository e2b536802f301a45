"""Programs in forks of a process that has imported what they need: that takes Python a third of a second or more.

That process runs :func:`serve`. For each program, it receives a message of JSON with open files, of which the first is
a pipe. Into this it writes a line with the id of the fork, and one with its exit code and seconds of processor time.
"""

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from open_rnic.host_driver.builds import ledger

__all__ = ["Fork", "Forks", "serve"]

_MESSAGE = 1 << 17  # octets of a message, at most


class Forks:
    """A process that forks; it ends with this one.

    It calls the function ``serve`` of ``module``, which prepares it and calls :func:`serve` with the same descriptor.
    """

    def __init__(self, module: str, variables: Mapping[str, str] = os.environ) -> None:
        self.messages, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import serve; serve({theirs.fileno()})"], env=dict(variables),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        self.messages.close()
        self._process.wait()


class Fork:
    """A program that has been given these words and open files."""

    def __init__(self, forks: Forks, words: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        ours, theirs = os.pipe()
        try:
            socket.send_fds(forks.messages, [json.dumps(words).encode()], [theirs, *files])
        finally:
            os.close(theirs)
        self._status = os.fdopen(ours, "rb", buffering=0)  # so that select sees what has not been read
        started = self._status.readline()
        if not started:
            self._status.close()
            raise RuntimeError("the process that forks has ended")
        self.pid = int(started)
        self.returncode: int | None = None

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code, which is negative for a signal, or None if the program still runs after ``seconds``."""
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            code, spent = self._status.readline().split()
            self._status.close()
            ledger.add(float(spent))
            self.returncode = int(code)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.wait(0) is None:
            with contextlib.suppress(ProcessLookupError):  # its status is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program at once."""
        self.send_signal(signal.SIGKILL)
        self.wait()


def serve(
    descriptor: int, run: Callable[..., None], prepare: Callable[[dict[str, Any]], None] = lambda words: None
) -> None:
    """Fork for each message from this socket, and report the ends of the forks.

    A fork calls ``run`` with the open files and the words of the message, and this process before that ``prepare`` with
    the words.
    """
    messages = socket.socket(fileno=descriptor)
    running: dict[int, tuple[int, int]] = {}  # for each program its id, and the pipe for its status
    while True:
        for each in select.select([messages.fileno(), *running], [], [])[0]:
            if each in running:
                number, status = running.pop(each)
                _, code, used = os.wait4(number, 0)
                os.close(each)
                _report(status, os.waitstatus_to_exitcode(code), used.ru_utime + used.ru_stime)
                os.close(status)
                continue
            message, opened, _, _ = socket.recv_fds(messages, _MESSAGE, 8)
            if not message:
                return
            status, *files = opened
            words = json.loads(message)
            prepare(words)
            number = os.fork()
            if not number:
                messages.close()
                os.close(status)
                run(files, **words)
                return
            for one in files:
                os.close(one)
            _report(status, number)
            running[os.pidfd_open(number)] = number, status


def _report(status: int, *words: float) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for this program any more
        os.write(status, (" ".join(map(str, words)) + "\n").encode())
