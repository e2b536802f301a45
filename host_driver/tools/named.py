"""Files whose errors name the file, including errors of writing, such as a full disk."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["NamedFile"]


class NamedFile(io.FileIO):
    """A file, unbuffered, or a file descriptor that stays open.

    Errors of writing have ``shown`` as their file name.
    """

    def __init__(self, file: Path | int, mode: str, shown: str) -> None:
        super().__init__(file, mode, closefd=not isinstance(file, int))
        self._shown = shown

    def write(self, octets: Buffer, /) -> int:
        """Write; raises OSError."""
        try:
            return super().write(octets)
        except OSError as error:
            error.filename = self._shown
            raise
