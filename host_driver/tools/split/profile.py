"""Profiles of hosts, links and devices: the figures of the split model, each with its source, as TOML files.

A figure takes one line, ``name = { value = 1.5, source = "where it comes from" }``, so that an error can name the line.
There are no default values: a file that lacks a figure, or has an unknown one, is rejected.
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
    "Calls",
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
    """An invalid profile. The message is one line: the file, the line number, and the fault."""


class _Strict(Struct, frozen=True, forbid_unknown_fields=True, rename="kebab"):
    """A table that rejects unknown keys."""


class Figure(_Strict, frozen=True):
    """A number and its source: a command, a document with its page, or the basis of an estimate."""

    value: Annotated[float, Meta(ge=0, lt=1e18)]
    source: Annotated[str, Meta(min_length=1)]


class Rate(_Strict, frozen=True):
    """A figure greater than zero, which can be a divisor."""

    value: Annotated[float, Meta(gt=0, lt=1e18)]
    source: Annotated[str, Meta(min_length=1)]


class Cost(_Strict, frozen=True):
    """The clock cycles of a stage: for each octet of its input, and for each FPDU."""

    per_octet: Figure
    per_fpdu: Figure


class Copies(_Strict, frozen=True):
    """The clock cycles of a copy, for octets that are in the cache and for octets that come from memory."""

    per_octet: Figure
    per_octet_from_memory: Figure
    per_fpdu: Figure
    cache_octets: Figure  #: longer messages come from memory


class Placement(_Strict, frozen=True):
    """The clock cycles to place a segment, and for each further piece of memory if it spans several."""

    per_fpdu: Figure
    per_piece: Figure


class Calls(_Strict, frozen=True):
    """The clock cycles of TCP in the operating system: for each octet, and for each call, which takes up to 64 KiB."""

    per_octet: Figure
    per_call: Figure


class Host(_Strict, frozen=True, tag_field="kind", tag="host"):
    """A processor: the clock of a core, and the cost of each stage. ``crc`` holds the cost of each CRC method."""

    title: str
    clock_hz: Rate
    startup_cycles: Figure  #: for one connection, both ends together
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
    tcp_transmit: Calls
    tcp_receive: Calls


class Link(_Strict, frozen=True, tag_field="kind", tag="link"):
    """The link between host and device: full duplex, with the same figures in both directions."""

    title: str
    bits_per_second: Rate  #: including ``overhead_octets``
    latency_s: Figure  #: of the first octet, one way
    transaction_octets: Rate  #: largest number of data octets in a transaction
    overhead_octets: Figure  #: octets that a transaction has in addition to its data
    host_s_per_transfer: Figure  #: host time to transfer one FPDU


class Block(_Strict, frozen=True):
    """A block of RTL, placed and routed by itself."""

    luts: Figure
    clock_hz: Rate


class Work(_Strict, frozen=True):
    """The startup, for which this project has no RTL: its size and its clock cycles."""

    luts: Figure
    clock_hz: Rate
    per_connection: Figure


#: The blocks of which splits are made, and the whole data path, by their names in ``rnic bench rtl``.
if TYPE_CHECKING:
    BlockName = str  # so that callers can pass names from other modules
else:
    BlockName = Literal[
        "Fence", "FpduFramer", "Delineator", "MarkerInserter", "CrcAppender", "ChunkPacker", "FpduChecker",
        "FpduReceiver",
        "RtrDetector", "TxModeSwitch", "RxModeSwitch", "RegisterBank", "EventQueue", "MpaDatapath",
        "StoreAndForward", "RdmaEngine", "NetworkPath",
    ]  # fmt: skip


class Device(_Strict, frozen=True, tag_field="kind", tag="device"):
    """An FPGA: the figures of each block by its name in ``rnic bench rtl``, for each width in lanes.

    ``stages`` holds the startup, if the device does it, too.
    """

    title: str
    lanes: dict[Literal["1", "2", "4", "8", "16"], dict[BlockName, Block]]
    stages: dict[Literal["startup"], Work] = {}


Profile = Host | Link | Device
_P = TypeVar("_P", Host, Link, Device)
_FOLDERS: dict[type[Profile], str] = {Host: "hosts", Link: "links", Device: "devices"}


def known(kind: type[Profile]) -> list[str]:
    """Return the names of the profiles of this kind that are shipped with this package."""
    folder = files(__package__) / _FOLDER / _FOLDERS[kind]
    return sorted(each.name.removesuffix(".toml") for each in folder.iterdir() if each.name.endswith(".toml"))


def find(kind: type[_P], name: str) -> _P:
    """Return the shipped profile of this name, or the profile in the file of this name; raises ProfileError."""
    if name in known(kind):
        path = files(__package__) / _FOLDER / _FOLDERS[kind] / f"{name}.toml"
        return read(kind, path.read_text(), f"{name}.toml")
    if not name.endswith(".toml"):
        raise ProfileError(f"no {kind.__name__.lower()} is called {name!r}: there are {', '.join(known(kind))}, "
                           "or a file that ends in .toml")  # fmt: skip
    try:
        text = Path(name).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{name}: {getattr(error, 'strerror', None) or 'not a text file'}") from None
    return read(kind, text, name)


def read(kind: type[_P], text: str, name: str) -> _P:
    """Parse a profile. ``name`` is the name of the file in messages. Raises ProfileError."""
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
    if quoted and (*path, quoted[1]) in lines:  # an unknown key has a line of its own
        path += (quoted[1],)
    there = ((at, path[:n]) for n in range(len(path), 0, -1) for at in lines)
    line = next((lines[at] for at, wanted in there if at[: len(wanted)] == wanted), 1)
    where = "".join(f"{each}." for each in path).rstrip(".")
    raise ProfileError(f"{name}: line {line}: {where + ': ' if where else ''}{what[:1].lower()}{what[1:]}")


def _path(kind: type[Profile], plain: dict[str, Any], message: str) -> tuple[str, ...]:
    """Return the path of keys that ``message`` is about; msgspec writes ``[...]`` for a key that is free to choose."""
    path: tuple[str, ...] = ()
    found: Any = plain
    what, _, place = message.partition(" - at `")
    named = place.startswith("key` in `")  # the message is about a key of a table whose keys are fixed
    for key in re.findall(r"\[\.\.\.\]|[\w-]+", place.removeprefix("key` in `").strip("$`")):
        if key == "[...]":
            key = next(each for each in found if _complaint(kind, plain, path, each) == message)
        path += (key,)
        found = found[key]
    return (*path, what.partition("'")[2].rstrip("'")) if named else path


def _complaint(kind: type[Profile], plain: dict[str, Any], path: tuple[str, ...], key: str) -> str:
    """Return the message for a profile in which the table at ``path`` has only this key."""
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
    """Yield the path and the line number of each table and each entry."""
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
    """Return the text of the profile's file; :func:`read` is the inverse."""
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
