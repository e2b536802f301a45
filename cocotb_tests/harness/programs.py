"""Runs ``rnic`` in forks of a process that has imported what its commands need, which takes Python a third of a second.

That process calls :func:`serve`. For each program, it receives a message with the arguments and the ends of three
pipes: for standard output, for standard error, and for a line with the process id, and one with the exit code and the
seconds of processor time.
"""

import atexit
import contextlib
import functools
import gc
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
from fcntl import F_SETPIPE_SZ, fcntl

from open_rnic.host_driver.builds import ledger

__all__ = ["Program"]

_PIPE = 1 << 20  # octets: enough for all output while other ends run to their ends
_MESSAGE = 1 << 17  # octets of a message, at most


class Program:
    """The program ``rnic`` with these arguments, in the folder and with the environment of this process."""

    def __init__(self, *arguments: str) -> None:
        ours, theirs = zip(*(os.pipe() for _ in range(3)), strict=True)
        for each in theirs[:2]:
            fcntl(each, F_SETPIPE_SZ, _PIPE)
        message = {"arguments": arguments, "folder": os.getcwd(), "variables": dict(os.environ)}
        socket.send_fds(_forks(), [json.dumps(message).encode()], theirs)
        for each in theirs:
            os.close(each)
        self.stdout, self.stderr = map(os.fdopen, ours[:2])
        self._status = os.fdopen(ours[2], "rb", buffering=0)  # so that what has not been read is seen by select
        self.pid = int(self._status.readline())
        self.returncode: int | None = None

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.communicate()
        for each in (self.stdout, self.stderr, self._status):
            each.close()

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.returncode is None and not select.select([self._status], [], [], 0)[0]:
            with contextlib.suppress(ProcessLookupError):  # its status is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End the program at once."""
        self.send_signal(signal.SIGKILL)

    def communicate(self) -> tuple[str, str]:
        """Wait for the end; returns the rest of standard output and of standard error."""
        rest = self.stdout.read(), self.stderr.read()
        if self.returncode is None:
            code, spent = self._status.readline().split()
            self.returncode = int(code)
            ledger.add(float(spent))
        return rest


@functools.cache
def _forks() -> socket.socket:
    """Return a socket to the process that the programs of this one are forks of; it ends with this one."""
    ours, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with theirs:
        code = f"from {__name__} import serve; serve({theirs.fileno()})"
        process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )  # fmt: skip

    def close() -> None:
        ours.close()
        process.wait()

    atexit.register(close)
    return ours


def serve(descriptor: int) -> None:
    """Fork for each message from this socket, and report the ends of the forks."""
    from open_rnic.host_driver.tools import cli

    with contextlib.redirect_stderr(io.StringIO()):
        cli.run(["connect", "127.0.0.1", "1"])  # is refused, and has imported what most commands need
    gc.freeze()
    messages = socket.socket(fileno=descriptor)
    running: dict[int, tuple[int, int]] = {}  # for each program its id, and the pipe for its status
    while True:
        for each in select.select([messages.fileno(), *running], [], [])[0]:
            if each in running:
                number, status = running.pop(each)
                _, code, used = os.wait4(number, 0)
                os.write(status, f"{os.waitstatus_to_exitcode(code)} {used.ru_utime + used.ru_stime}\n".encode())
                os.close(each)
                os.close(status)
                continue
            message, ends, _, _ = socket.recv_fds(messages, _MESSAGE, 3)
            if not message:
                return
            number = os.fork()
            if not number:
                messages.close()
                _become(**json.loads(message), ends=ends)
                cli.main()
            output, error, status = ends
            os.close(output)
            os.close(error)
            os.write(status, f"{number}\n".encode())
            running[os.pidfd_open(number)] = number, status


def _become(arguments: list[str], folder: str, variables: dict[str, str], ends: list[int]) -> None:
    """Take over what a program is given."""
    sys.argv[1:] = arguments
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    for number, end in enumerate(ends[:2], start=1):
        os.dup2(end, number)
    for each in ends:
        os.close(each)
