"""Standard output whose errors say that they are its own."""

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
    """What stands for a descriptor that the program was started without."""

    def writable(self) -> bool:
        return True

    def write(self, octets: Buffer, /) -> int:
        raise OSError(errno.EBADF, "it is closed", NAME)


def name_output() -> None:
    """Give ``sys.stdout`` a name in its errors, also when it is closed; a closed standard error goes nowhere."""
    for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
        if stream is None:  # so that no socket or file of ours gets this number, and what is printed with it
            while os.open(os.devnull, os.O_RDWR) < number:
                pass
    raw = _Closed() if sys.stdout is None else NamedFile(sys.stdout.fileno(), "wb", NAME)
    interactive = sys.stdout is not None and sys.stdout.isatty()
    encoding, errors = (sys.stdout.encoding, sys.stdout.errors) if sys.stdout is not None else ("utf-8", None)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors, line_buffering=interactive)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115 -- to the process's end


def give_up_output() -> None:
    """Let all that is still to be written go nowhere: nobody takes it, and that has been told."""
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    with contextlib.suppress(OSError, ValueError):  # the interpreter flushes what it began with at its end
        os.dup2(sys.stdout.fileno(), 1)
