"""Hosts, links and devices that a split is looked at for: figures, each with its source, in files of TOML.

A figure stands in one line, ``name = { value = 1.5, source = "where it comes from" }``, so that a fault can be told by
its line. Nothing has a default: a file that says less than all, or more, is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from copy import deepcopy
from functools import reduce
from importlib.resources import files
from operator import getitem
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

__all__ = [
    "Block",
    "BlockName",
    "Cost",
    "Device",
    "Figure",
    "Host",
    "Link",
    "ProfileError",
    "Rate",
    "Work",
    "dump",
    "find",
    "known",
    "read",
]

_FOLDER = "profiles"


class ProfileError(ValueError):
    """A profile that is not as it must be: one line with the file, the line, and what is wrong."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """What is not named here is refused."""


class Figure(_Strict, frozen=True):
    """A number, and how one can know it: a command, a document with its page, or that it is an estimate and of what."""

    value: Annotated[float, Meta(ge=0, lt=1e18)]
    source: Annotated[str, Meta(min_length=1)]


class Rate(_Strict, frozen=True):
    """A figure that is more than zero: things are divided by it."""

    value: Annotated[float, Meta(gt=0, lt=1e18)]
    source: Annotated[str, Meta(min_length=1)]


class Cost(_Strict, frozen=True):
    """Clock cycles that a stage takes: for each octet that it is given, and for each FPDU."""

    per_octet: Figure
    per_fpdu: Figure


class Copies(_Strict, frozen=True):
    """Clock cycles of a copy: of octets that a cache has, and of octets that come from memory."""

    per_octet: Figure
    per_octet_from_memory: Figure
    per_fpdu: Figure
    cache_octets: Figure  #: messages longer than this come from memory


class Placement(_Strict, frozen=True):
    """Clock cycles for a segment, and for each piece after the first of one that lies in several."""

    per_fpdu: Figure
    per_piece: Figure


class Host(_Strict, frozen=True, tag_field="kind", tag="host"):
    """A processor: one core's clock, and what the stages cost on it. ``crc`` has a cost for each way to do it."""

    title: str
    clock_hz: Rate
    startup_cycles: Figure  #: of both ends, for a connection
    crc: Annotated[dict[str, Cost], Meta(min_length=1)]
    marker_insertion: Cost
    marker_removal: Cost
    framing_transmit: Cost
    framing_receive: Cost
    fence: Cost
    rtr_detection: Cost
    placement_transmit: Placement
    placement_receive: Placement
    copies: Copies


class Link(_Strict, frozen=True, tag_field="kind", tag="link"):
    """What lies between host and device. The same each way, both at once."""

    title: str
    bits_per_second: Rate  #: of what ``overhead_octets`` are part of
    latency_s: Figure  #: one way, of the first octet
    transaction_octets: Rate  #: of data, at most
    overhead_octets: Figure  #: that a transaction has besides
    host_s_per_transfer: Figure  #: of the host's time, to have one FPDU moved


class Block(_Strict, frozen=True):
    """A piece of RTL, placed and routed alone."""

    luts: Figure
    clock_hz: Rate


class Work(_Strict, frozen=True):
    """A stage that this project has no RTL of: its size, and its clock cycles."""

    luts: Figure
    clock_hz: Rate
    per_octet: Figure
    per_fpdu: Figure


#: The blocks that splits are made of, and the whole data path, as ``rnic bench rtl`` calls them.
if TYPE_CHECKING:
    BlockName = str  # for who has the names from elsewhere
else:
    BlockName = Literal[
        "Fence", "FpduFramer", "Delineator", "MarkerInserter", "CrcAppender", "ChunkPacker", "FpduChecker",
        "FpduReceiver",
        "RtrDetector", "TxModeSwitch", "RxModeSwitch", "RegisterBank", "EventQueue", "MpaDatapath",
    ]  # fmt: skip


class Device(_Strict, frozen=True, tag_field="kind", tag="device"):
    """An FPGA: blocks by their names in ``rnic bench rtl``, by the width of the data path in lanes.

    ``stages`` are those of startup, copies and placement that this device does besides.
    """

    title: str
    lanes: dict[Literal["1", "2", "4", "8", "16"], dict[BlockName, Block]]
    stages: dict[Literal["startup", "copies", "placement"], Work] = {}


Profile = Host | Link | Device
_P = TypeVar("_P", Host, Link, Device)
_FOLDERS: dict[type[Profile], str] = {Host: "hosts", Link: "links", Device: "devices"}


def known(kind: type[Profile]) -> list[str]:
    """The names of the profiles of this kind that come with this package."""
    folder = files(__package__) / _FOLDER / _FOLDERS[kind]
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def find(kind: type[_P], name: str) -> _P:
    """The profile of this name that comes with this package, or in the file of this name; raises ProfileError."""
    if name in known(kind):
        path = files(__package__) / _FOLDER / _FOLDERS[kind] / f"{name}.toml"
        return read(kind, path.read_text(), f"{name}.toml")
    if not name.endswith(".toml"):
        raise ProfileError(f"no {kind.__name__.lower()} is called {name!r}: there are {', '.join(known(kind))}, "
                           "or a file that ends in .toml")  # fmt: skip
    try:
        text = Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{name}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    return read(kind, text, name)


def read(kind: type[_P], text: str, name: str) -> _P:
    """The profile that a file's text is; raises ProfileError, which calls the file ``name``."""
    try:
        plain = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{name}: {error}") from None
    try:
        if "kind" not in plain:
            raise msgspec.ValidationError("Object missing required field `kind`")
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        path: tuple[str, ...] = _path(kind, plain, str(error))
        what = str(error).partition(" - at `")[0]
        if what.startswith("Expected") and " got " not in what:
            what += f", not {reduce(getitem, path, plain)!r}"
    lines = dict(_lines(text))
    quoted = re.search(r"field `([^`]+)`", what)
    if quoted and (*path, quoted[1]) in lines:  # an unknown one has a line of its own
        path += (quoted[1],)
    there = ((at, path[:n]) for n in range(len(path), 0, -1) for at in lines)
    line = next((lines[at] for at, wanted in there if at[: len(wanted)] == wanted), 1)
    where = "".join(f"{each}." for each in path).rstrip(".")
    raise ProfileError(f"{name}: line {line}: {where + ': ' if where else ''}{what[:1].lower()}{what[1:]}")


def _path(kind: type[Profile], plain: dict[str, Any], message: str) -> tuple[str, ...]:
    """The keys that lead to what ``message`` is about, which has ``[...]`` for a name that a profile may choose."""
    path: tuple[str, ...] = ()
    found: Any = plain
    what, _, place = message.partition(" - at `")
    named = place.startswith("key` in `")  # of a table whose names are not free: it is about one of them
    for key in re.findall(r"\[\.\.\.\]|[\w-]+", place.removeprefix("key` in `").strip("$`")):
        if key == "[...]":
            key = next(each for each in found if _complaint(kind, plain, path, each) == message)
        path += (key,)
        found = found[key]
    return (*path, what.partition("'")[2].rstrip("'")) if named else path


def _complaint(kind: type[Profile], plain: dict[str, Any], path: tuple[str, ...], key: str) -> str:
    """What would be said if of the table at ``path`` there was only this key."""
    alone = deepcopy(plain)
    found = alone
    for each in path:
        found = found[each]
    for other in found.keys() - {key}:
        del found[other]
    try:
        msgspec.convert(alone, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Where each table and each entry stands."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[([^\[\]]+)\]", line):
            table = _keys(head[1])
            yield table, number
        elif entry := re.match(r"\s*([\w\"'. -]+?)\s*=", line):
            yield table + _keys(entry[1]), number
            for inner in re.findall(r"[{,]\s*([\w-]+)\s*=", line):
                yield (*table, *_keys(entry[1]), inner), number


def _keys(text: str) -> tuple[str, ...]:
    return tuple(key.strip().strip("\"'") for key in text.split("."))


def dump(profile: Profile) -> str:
    """The text of a file that :func:`read` makes this profile of."""
    plain = msgspec.to_builtins(profile)
    return "".join(_dumped({"kind": plain.pop("kind"), **plain}, ()))


def _dumped(plain: dict[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    inner = {key: value for key, value in plain.items() if isinstance(value, dict) and "source" not in value}
    flat = {key: value for key, value in plain.items() if key not in inner}
    if path and flat:
        yield f"\n[{'.'.join(map(_key, path))}]\n"
    for key, value in flat.items():
        if isinstance(value, dict):
            yield f"{_key(key)} = {{ value = {_number(value['value'])}, source = {_text(value['source'])} }}\n"
        else:
            yield f"{_key(key)} = {_text(value)}\n"
    for key, value in inner.items():
        yield from _dumped(value, (*path, key))


def _key(key: str) -> str:
    return key if re.fullmatch(r"[\w-]+", key) else _text(key)


def _text(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
