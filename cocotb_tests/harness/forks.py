"""Programs in forks of a process that has imported what they need: that takes Python half a second or more.

That process runs :func:`serve`. For each program, it receives a message with open files: a pipe, words in JSON, and
those of the program. Into the pipe it writes a line with the id of the fork, and one with its exit code and seconds of
processor time.
"""

import atexit
import contextlib
import ctypes
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

_FILES = 8  # of a message, at most
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class Forks:
    """A process that forks. It ends with this one, and its forks with it.

    It calls the function ``serve`` of ``module``, which prepares it and calls :func:`serve` with the same descriptor.
    """

    def __init__(self, module: str, variables: Mapping[str, str] = os.environ) -> None:
        self.messages, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from {module} import serve; serve({theirs.fileno()})"], env=dict(variables),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[theirs.fileno()],
            )  # fmt: skip
        atexit.register(self.close)

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self.close)
        self.messages.close()
        self.process.wait()


class Fork:
    """A program that has been given these words and open files. Only one thread may use it.

    Raises RuntimeError, as :meth:`wait` does, if the process that forks has ended.
    """

    def __init__(self, forks: Forks, words: Mapping[str, Any], files: Sequence[int] = ()) -> None:
        self._forks = forks
        ours, theirs = os.pipe()
        self._status = os.fdopen(ours, "rb", buffering=0)  # so that select sees what has not been read
        self.returncode: int | None = None
        with os.fdopen(theirs, "wb"), os.fdopen(os.memfd_create("words"), "w+") as given:
            json.dump(words, given)
            given.flush()
            with contextlib.suppress(BrokenPipeError):
                socket.send_fds(forks.messages, [b"fork"], [theirs, given.fileno(), *files])
        (self.pid,) = map(int, self._answer())

    def _answer(self) -> list[bytes]:
        """Return the words of the next line."""
        line = self._status.readline()
        if not line:
            self._status.close()
            raise RuntimeError(f"the process that forks has ended with {self._forks.process.wait()}")
        return line.split()

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit code, which is negative for a signal, or None if the program still runs after ``seconds``."""
        if self.returncode is None and select.select([self._status], [], [], seconds)[0]:
            code, spent = self._answer()
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

    Before a fork, this process calls ``prepare`` with the words; the fork calls ``run`` with the files and the words.
    """
    running: dict[int, tuple[int, int]] = {}  # by the descriptor of each program, its id, and the pipe for its status
    with socket.socket(fileno=descriptor) as messages:
        while True:
            for each in select.select([messages, *running], [], [])[0]:
                if each is not messages:
                    number, status = running.pop(each)
                    _, code, used = os.wait4(number, 0)
                    os.close(each)
                    _report(status, os.waitstatus_to_exitcode(code), used.ru_utime + used.ru_stime)
                    os.close(status)
                    continue
                message, opened, _, _ = socket.recv_fds(messages, _FILES, _FILES)
                if not message:
                    return
                status, given, *files = opened
                with os.fdopen(given) as file:
                    file.seek(0)
                    words = json.load(file)
                prepare(words)
                own = os.getpid()
                number = os.fork()
                if not number:
                    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # nobody would wait for it any more
                    if os.getppid() != own:  # it had ended before
                        return
                    messages.close()
                    for pair in ((status,), *((at, pipe) for at, (_, pipe) in running.items())):
                        for one in pair:
                            os.close(one)  # what others wait for must not stay open here
                    run(files, **words)
                    return
                for one in files:
                    os.close(one)
                running[os.pidfd_open(number)] = number, status
                _report(status, number)


def _report(status: int, *words: float) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody waits for this program any more
        os.write(status, (" ".join(map(str, words)) + "\n").encode())
