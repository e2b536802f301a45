"""The user's cache: folders whose contents follow from their keys alone, shared by all checkouts.

The cache lies in ``$OPEN_RNIC_CACHE``, or else in ``open-rnic`` below ``$XDG_CACHE_HOME`` or ``~/.cache``. A key is a
hash of everything that an entry is made from: texts, options and versions of tools, but no path. So an entry is what
the same inputs would give again, and any entry may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["KINDS", "Cache", "clear", "digest", "entries", "limit", "root", "size", "used"]

KINDS = ("designs", "mutants", "proofs", "simulations")  # of entries: the folders in the cache

_DONE = "done"  # the file in a complete entry; its time is that of the last use
_TEXT = "text"  # the file in an entry that is a text
_IN_USE = 3600  # seconds after its last use in which an entry is not evicted: a program may be about to start it
_SMALL = 64 << 10  # octets up to which an entry evicts no other: there are many, and each would look at all entries


def root() -> Path:
    """Return the folder of the cache."""
    chosen = os.environ.get("OPEN_RNIC_CACHE")
    if chosen:
        return Path(chosen).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "open-rnic"


def limit() -> int:
    """Return the size in octets that the cache may have: ``$OPEN_RNIC_CACHE_MIB``, or else 2048 MiB.

    Raises ValueError if the variable is not a number.
    """
    text = os.environ.get("OPEN_RNIC_CACHE_MIB", "2048")
    if not text.isdecimal():
        raise ValueError(f"OPEN_RNIC_CACHE_MIB is a number of MiB, not {text!r}")
    return int(text) << 20


def digest(*parts: object) -> str:
    """Return a key of 16 digits for the ``repr`` of ``parts``."""
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def entries() -> Iterator[Path]:
    """Yield the folders of all complete entries of all kinds; the name of its parent is an entry's kind."""
    for kind in KINDS:
        yield from (done.parent for done in (root() / kind).glob(f"*/{_DONE}"))


def used(entry: Path) -> float:
    """Return the time of an entry's last use, in seconds since the epoch. Raises OSError if the entry is gone."""
    return (entry / _DONE).stat().st_mtime


def size(entry: Path) -> int:
    """Return the octets of all files of an entry, 0 if it is gone."""
    octets = 0
    for path in entry.rglob("*"):
        with suppress(OSError):
            octets += path.lstat().st_size
    return octets


def clear() -> None:
    """Delete all entries, complete or not, and nothing else, wherever the cache lies. Raises OSError."""
    for kind in KINDS:
        with suppress(FileNotFoundError):
            shutil.rmtree(root() / kind)


class Cache:
    """The entries of one of the ``KINDS``: each a folder, named by its key."""

    def __init__(self, kind: str) -> None:
        assert kind in KINDS
        self._kind = kind

    def find(self, key: str) -> Path | None:
        """Return the folder of an entry, and note its use; None if there is no such entry."""
        entry = root() / self._kind / key
        try:
            os.utime(entry / _DONE)
        except OSError:
            return None
        return entry

    def make(self, key: str, fill: Callable[[Path], None]) -> Path:
        """Return the folder of an entry; if there is none, ``fill`` writes its files into a folder first.

        Of several processes one fills it, and the others wait. If ``fill`` raises an exception, there is no entry, and
        the files stay until the next attempt, so that a message may name a log among them. At last, the entries that
        were used longest ago are deleted, until the cache is within its :func:`limit`.
        """
        limit()  # a wrong one is reported before the work
        entry = root() / self._kind / key
        with _locked(entry):
            new = self.find(key) is None
            if new:
                for each in entry.iterdir():
                    if each.name != "lock":
                        shutil.rmtree(each) if each.is_dir() else each.unlink()
                fill(entry)
                (entry / _DONE).touch()
        if new and size(entry) > _SMALL:
            _evict()
        return entry

    def text(self, key: str) -> str | None:
        """Return the text that :meth:`keep` has kept under this key, or None."""
        entry = self.find(key)
        try:
            return None if entry is None else (entry / _TEXT).read_text()
        except FileNotFoundError:  # another process has deleted it since
            return None

    def texts(self, beginning: str) -> Iterator[str]:
        """Yield the texts of all keys that begin so."""
        for done in (root() / self._kind).glob(f"{beginning}*/{_DONE}"):
            text = self.text(done.parent.name)
            if text is not None:
                yield text

    def keep(self, key: str, text: str) -> None:
        """Make an entry of a text."""

        def fill(entry: Path) -> None:
            (entry / _TEXT).write_text(text)

        self.make(key, fill)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _evict() -> None:
    ages = []
    for entry in entries():
        with suppress(OSError):  # another process has evicted it
            ages.append((used(entry), entry, size(entry)))
    excess = sum(octets for *_, octets in ages) - limit()
    for when, entry, octets in sorted(ages):
        if excess <= 0 or when > time.time() - _IN_USE:
            return
        (entry / _DONE).unlink(missing_ok=True)
        shutil.rmtree(entry, ignore_errors=True)
        excess -= octets
