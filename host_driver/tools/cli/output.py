"""Standard output whose errors name standard output."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING

from open_rnic.host_driver.tools.named import NamedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

NAME = "standard output"


class _Closed(io.RawIOBase):
    """Stands for a descriptor that was closed when the program started."""

    def writable(self) -> bool:
        return True

    def write(self, octets: Buffer, /) -> int:
        raise OSError(errno.EBADF, "it is closed", NAME)


def name_output() -> None:
    """Make errors of ``sys.stdout`` name it, even if it is closed; output to a closed standard error is discarded."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        if stream is None:  # so that no other file or socket gets this number, and the output
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
    raw = _Closed() if sys.stdout is None else NamedFile(sys.stdout.fileno(), "wb", NAME)
    interactive = sys.stdout is not None and sys.stdout.isatty()
    encoding, errors = (sys.stdout.encoding, sys.stdout.errors) if sys.stdout is not None else ("utf-8", None)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=interactive)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 -- to the process's end


def give_up_output() -> None:
    """Discard all further output: its reader has gone, and that has been reported."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    with contextlib.suppress(OSError, ValueError):  # the interpreter flushes the original stream when it exits
        os.dup2(sys.stdout.fileno(), 1)
