"""Which modules of this project a module needs, read from the text of their imports; nothing is imported."""

from __future__ import annotations

import ast
import hashlib
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

__all__ = ["Source", "digest", "imported", "needed", "settled"]

_PREFIX = "open_rnic."
_ROOT = Path(__file__).parents[2]  # the folders of the package lie side by side, in a checkout and installed
_TICK = 0.01  # seconds: a file's time is that of the kernel's last tick, so it may be earlier than the change
_BEGAN = time.time() - _TICK
# A line that imports of this project, and a usual import: up to its closing bracket, or to the end of the line.
_MENTION = re.compile(rb"^.*\b(?:import\b.*\bopen_rnic|open_rnic\b.*\bimport)\b", re.MULTILINE)
_IMPORT = re.compile(rb"^[ \t]*((?:from open_rnic\b|import .*\bopen_rnic\b)(?:[^(\n]*\([^)]*\)|.*))", re.MULTILINE)


class Source(NamedTuple):
    """A file that modules need, and over how many imports they do."""

    path: Path
    imports: int


def needed(modules: Iterable[str]) -> dict[str, Source]:
    """Return the files of these modules and of all that they import, directly or not, by the modules' names.

    An import inside a function counts too. A package is one module, its ``__init__``, and needs none of the others in
    its folder. Of what these modules import, only modules of this project are returned. Raises ValueError if one of
    ``modules`` has no file.
    """
    found: dict[str, Source] = {}
    waiting: deque[tuple[str, int]] = deque()
    for name in modules:
        path = _file(name) or _elsewhere(name)
        if path is None:
            raise ValueError(f"there is no file of the module {name}")
        found[name] = Source(path, 0)
        waiting += [(each, 1) for each in imported(path)]
    while waiting:
        name, imports = waiting.popleft()
        path = _file(name)
        if path is not None and name not in found:
            found[name] = Source(path, imports)
            waiting += [(each, imports + 1) for each in (*imported(path), name.rpartition(".")[0])]
    return dict(sorted(found.items()))


def digest(modules: Iterable[str]) -> str:
    """Return a hash of the present text of :func:`needed`, and of data in JSON beside a module, with its name."""
    texts = hashlib.sha256()
    for name, (path, _) in needed(modules).items():
        for each in (path, path.with_suffix(".json")):
            if each.is_file():
                texts.update(f"{name}{each.suffix}".encode() + b"\0" + each.read_bytes() + b"\0")
    return texts.hexdigest()


def settled() -> bool:
    """Return whether no module of this project that is imported has changed since this process began.

    Otherwise the text of :func:`digest` may not be what this process runs, and a result must not be kept under it.
    """
    files = [getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if _ours(name)]
    try:
        return all(Path(file).stat().st_ctime < _BEGAN for file in files if file)
    except FileNotFoundError:
        return False


@cache
def imported(path: Path) -> frozenset[str]:
    """Return the modules of this project that a file imports.

    To parse all of the text takes ten times as long as to parse its imports; where these have an unusual form, all is.
    """
    text = path.read_bytes()
    usual = _IMPORT.findall(text)
    if len(usual) == len(_MENTION.findall(text)):
        with suppress(SyntaxError):  # for instance of a bracket in a comment between the names
            return frozenset(_imports(ast.parse(b"\n".join(usual))))
    return frozenset(_imports(ast.parse(text)))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
        yield from (name for name in names if _file(name) is not None)


def _elsewhere(module: str) -> Path | None:
    """Return the file of a module that is not of this project, or that has another name, as a file of tests may."""
    spec = find_spec(module)
    return Path(spec.origin) if spec is not None and spec.origin is not None else None


def _ours(module: str) -> bool:
    return module.startswith(_PREFIX)


@cache
def _file(module: str) -> Path | None:
    if not _ours(module):
        return None
    path = _ROOT.joinpath(*module.removeprefix(_PREFIX).split("."))
    return next((each for each in (path.with_suffix(".py"), path / "__init__.py") if each.is_file()), None)
