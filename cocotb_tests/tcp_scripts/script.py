"""Scripts of TCP segments, as the TOML files of this folder hold them.

A script has a line for each event:

    +0   user listen
    +0   in   S 0:0 win 65535 <mss 1460>
    +0   out  S. 0:0 ack 1 <mss 1460, sackOK>
    +10  in   P. 1:101 ack 1
    +40  out  . 1:1 ack 101          # 40 ms later, the delayed acknowledgment
    +0   user read 100
    +0   state ESTABLISHED

``+10`` is the time since the line before, in milliseconds. ``in`` is a segment of the peer, ``out`` one that must leave
at that time. Flags are S, F, R, P, U, a dot for ACK, and ``-`` for none. ``1:101`` are the octets 1 to 100. Numbers
count from the initial sequence number of the end that they belong to; ``=0`` is the number 0 itself. A segment
without ``win`` has a window of 65,535 if it comes in, any window if it leaves; all other fields are compared.
``state CLOSED`` is followed by how the connection ended: closed, aborted, reset, refused, timed_out.
``from 8001``, ``from 10.0.0.3:8000`` and ``to 7001`` change ports and address of the peer and of this end; ``wrong
checksum``, ``wrong offset 4``, ``wrong offset 15`` and ``wrong cut`` spoil a segment. The octets of each end's stream
depend on their number, so that a retransmission has the same ones, and all octets are compared.
"""

import re
import tomllib
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address
from pathlib import Path

__all__ = [
    "FOLDER", "HERE", "OTHER", "PEER_PORT", "PORT", "THERE", "Case", "Number", "Options", "Script", "ScriptError",
    "Shape", "Step", "load",
]  # fmt: skip

FOLDER = Path(__file__).parent
HERE, THERE, OTHER = (IPv4Address(f"10.0.0.{host}") for host in (1, 2, 3))
PORT, PEER_PORT = 7000, 8000
# The number of arguments.
USER = {"listen": 0, "open": 0, "close": 0, "abort": 0, "send": 1, "read": 1, "keep_alive": 3}
FLAGS = "FSRP.U"  # in the order of their bits
DEFECTS = ("checksum", "offset 4", "offset 15", "cut")
NEEDS = ("timestamps", "scaling", "sack sending", "reopening", "partial reads")


class ScriptError(ValueError):
    """A line that is no line of a script, or a segment that is not the expected one."""


@dataclass(frozen=True)
class Number:
    """A sequence number: relative to the initial one, or as it is on the wire."""

    value: int
    absolute: bool = False

    def __str__(self):
        return "=" * self.absolute + str(self.value)


@dataclass(frozen=True)
class Options:
    """The options of a segment; ``raw`` are octets that are sent in front of the others."""

    mss: int | None = None
    sack_permitted: bool = False
    scale: int | None = None
    timestamps: tuple[int, int] | None = None
    sack: tuple[tuple[int, int], ...] = ()
    raw: bytes = b""

    def __str__(self):
        parts = [f"mss {self.mss}"] if self.mss is not None else []
        parts += ["sackOK"] if self.sack_permitted else []
        parts += [f"wscale {self.scale}"] if self.scale is not None else []
        parts += [f"TS val {self.timestamps[0]} ecr {self.timestamps[1]}"] if self.timestamps else []
        parts += ["sack " + " ".join(f"{start}:{end}" for start, end in self.sack)] if self.sack else []
        parts += [f"raw {self.raw.hex(' ')}"] if self.raw else []
        return f" <{', '.join(parts)}>" if parts else ""


@dataclass(frozen=True)
class Shape:
    """A segment as a script shows it. ``length`` is the number of octets of data, ``ack`` is None without ACK."""

    flags: str
    seq: Number
    length: int
    ack: Number | None = None
    window: int | None = None
    options: Options = Options()
    address: IPv4Address = THERE
    peer_port: int = PEER_PORT
    port: int = PORT
    urgent: int = 0
    defect: str | None = None

    def __str__(self):
        end = "" if self.seq.absolute else f":{self.seq.value + self.length}"
        text = f"{self.flags} {self.seq}{end}"
        text += "" if self.ack is None else f" ack {self.ack}"
        text += "" if self.window is None else f" win {self.window}"
        text += str(self.options)
        if (self.address, self.peer_port) != (THERE, PEER_PORT):
            text += f" from {self.address}:{self.peer_port}"
        return text + (f" to {self.port}" if self.port != PORT else "")


@dataclass(frozen=True)
class Step:
    """A line: ``kind`` is ``user``, ``in``, ``out`` or ``state``."""

    line: int
    delay: int
    kind: str
    words: tuple[str, ...] = ()
    segment: Shape | None = None


@dataclass(frozen=True)
class Script:
    """The steps of a script in a file."""

    file: str
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Case:
    """A case. ``scripts`` has those of its openings, then its own."""

    file: str
    name: str
    rfc: str
    scripts: tuple[Script, ...]
    needs: tuple[str, ...] = ()
    config: dict[str, int] = field(default_factory=dict)

    def __str__(self):
        return f"{self.file.removesuffix('.toml')}: {self.name}"

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all its scripts, in their order."""
        return tuple(step for script in self.scripts for step in script.steps)

    @property
    def needs_the_twin(self) -> bool:
        """Whether the RTL lacks by design something that the case needs."""
        return any(each != "partial reads" for each in self.needs)

    @property
    def fits_the_path(self) -> bool:
        """Whether the network path in RTL can play the case, with the parameters that it is built with.

        The simulated path counts its ticks modulo 2**16, and takes 32 cycles for each, so no step may take days.
        """
        return not self.needs and not self.config and all(step.delay < 1 << 16 for step in self.steps)

    @property
    def duration(self) -> int:
        """The time from the first to the last step in ms."""
        return sum(step.delay for step in self.steps)


def _take(pattern: str, text: str) -> tuple[re.Match | None, str]:
    """Find a field, and return it and the text without it."""
    found = re.search(rf"(?:^|\s){pattern}(?=\s|$)", text)
    return (found, (text[: found.start()] + text[found.end() :]).strip()) if found else (None, text)


def _number(text: str) -> Number:
    return Number(int(text.removeprefix("=")), text.startswith("="))


def _options(text: str) -> Options:
    options = Options()
    for part in filter(None, (each.strip() for each in text.split(","))):
        match part.split():
            case ["mss", value]:
                options = replace(options, mss=int(value))
            case ["sackOK"]:
                options = replace(options, sack_permitted=True)
            case ["wscale", value]:
                options = replace(options, scale=int(value))
            case ["TS", "val", value, "ecr", echo]:
                options = replace(options, timestamps=(int(value), int(echo)))
            case ["sack", *blocks]:
                edges = [block.split(":") for block in blocks]
                options = replace(options, sack=tuple((int(start), int(end)) for start, end in edges))
            case ["raw", *octets]:
                options = replace(options, raw=bytes.fromhex("".join(octets)))
            case _:
                raise ScriptError(f"{part!r} is no option")
    return options


def _segment(text: str) -> Shape:
    found, text = _take("<([^>]*)>", text)
    options = _options(found[1]) if found else Options()
    ack, text = _take(r"ack (=?-?\d+)", text)
    window, text = _take(r"win (\d+)", text)
    source, text = _take(r"from (?:([\d.]+):)?(\d+)", text)
    port, text = _take(r"to (\d+)", text)
    urgent, text = _take(r"urg (\d+)", text)
    defect, text = _take(f"wrong ({'|'.join(DEFECTS)})", text)
    words = re.fullmatch(r"([SFRPU.]+|-) (=?)(-?\d+)(?::(-?\d+))?", text)
    if not words:
        raise ScriptError(f"{text!r} is no segment, as S. 0:0 ack 1")
    flags, absolute, start, end = words.groups()
    if ("." in flags) != bool(ack):
        raise ScriptError("a segment with the flag . has an ack, others have none")
    length = int(end) - int(start) if end else 0
    if length < 0:
        raise ScriptError(f"{start}:{end} ends before it begins")
    return Shape(
        "".join(flag for flag in FLAGS if flag in flags) or "-", Number(int(start), bool(absolute)), length,
        _number(ack[1]) if ack else None, int(window[1]) if window else None, options,
        IPv4Address(source[1]) if source and source[1] else THERE, int(source[2]) if source else PEER_PORT,
        int(port[1]) if port else PORT, int(urgent[1]) if urgent else 0, defect[1] if defect else None,
    )  # fmt: skip


def _step(line: int, text: str) -> Step:
    words = re.fullmatch(r"\+(\d+)\s+(user|in|out|state)\s+(.+)", text)
    if not words:
        raise ScriptError(f"{text!r} does not begin as +10 user, +0 in, +0 out or +0 state")
    delay, kind, rest = int(words[1]), words[2], " ".join(words[3].split())
    if kind in ("in", "out"):
        return Step(line, delay, kind, segment=_segment(rest))
    if kind == "user":
        command, *arguments = rest.split()
        if USER.get(command) != len(arguments) or not all(each.isdigit() for each in arguments):
            raise ScriptError(f"{rest!r} is nothing that a user does: {', '.join(USER)}")
    return Step(line, delay, kind, tuple(rest.split()))


def _script(file: str, text: str, at: int) -> Script:
    steps = []
    for line, content in enumerate(text.splitlines(), at):
        if content := content.partition("#")[0].strip():
            try:
                steps.append(_step(line, content))
            except ValueError as error:
                raise ScriptError(f"{file}:{line}: {error}") from None
    return Script(file, tuple(steps))


def _lines(text: str, names: list[str], opening: str) -> list[int]:
    """The first line of each table's script in a file, which tomllib does not report."""
    lines, found, at = text.splitlines(), [], 0
    for name in names:
        at = next(at for at in range(at, len(lines)) if lines[at] == opening.format(name))
        at = next(at for at in range(at, len(lines)) if lines[at].startswith("script = "))
        found.append(at + 2)  # lines count from 1, and the script begins on the next one
    return found


def openings() -> dict[str, tuple[Script, ...]]:
    """Return the scripts that other ones begin with; an opening may begin with another that stands above it."""
    path = FOLDER / "openings.toml"
    text = path.read_text()
    tables = tomllib.loads(text)
    found: dict[str, tuple[Script, ...]] = {}
    for (name, table), line in zip(tables.items(), _lines(text, [*tables], "[{}]"), strict=True):
        found[name] = (*found.get(table.get("after"), ()), _script(path.name, table["script"], line))
    return found


def load(path: Path) -> list[Case]:
    """Return the cases of a file. Raises ScriptError, with file and line."""
    known, text = openings(), path.read_text()
    tables = tomllib.loads(text)["case"]
    cases = []
    for table, line in zip(tables, _lines(text, [each["name"] for each in tables], 'name = "{}"'), strict=True):
        unknown = [*(table.keys() - {"name", "rfc", "after", "needs", "config", "script"})]
        unknown += [*({table.get("after")} - {None, *known}), *(set(table.get("needs", ())) - set(NEEDS))]
        if unknown:
            raise ScriptError(f"{path.name}:{line}: {table['name']}: unknown: {', '.join(unknown)}")
        scripts = (*known.get(table.get("after"), ()), _script(path.name, table["script"], line))
        cases.append(
            Case(path.name, table["name"], table["rfc"], scripts, (*table.get("needs", ()),), table.get("config", {}))
        )
    return cases
