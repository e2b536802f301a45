"""What properties are written with."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from amaranth.asserts import AnyConst, Initial
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Elaboratable, Fragment, Module, Signal, Value
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In

__all__ = ["NO_LANES", "PROPERTIES", "Bench", "Block", "Mutant", "Property", "proves"]

NO_LANES = (0,)  # of a block that has none


@dataclass(frozen=True)
class Mutant:
    """A fault in the RTL that a property must catch: in the source of ``module``, ``new`` for the one ``old``."""

    what: str
    module: str
    old: str
    new: str

    @property
    def patch(self) -> list[str]:
        """What :mod:`.model` is given of it."""
        return [self.module, self.old, self.new]


@dataclass(frozen=True)
class SiteMutant(Mutant):
    """A mutant of :mod:`open_rnic.cocotb_tests.mutation`, by its key."""

    what: str
    module: str = ""
    old: str = ""
    new: str = ""

    @property
    def patch(self) -> list[str]:
        return [self.what]


@dataclass(frozen=True)
class Property:
    """What is proved of a block: a few rows of the table.

    ``check(bench, block)`` states it. ``block`` makes the block, given the number of lanes. ``depth``: of the
    induction, in cycles; or how many cycles from reset are looked at, when ``bounded``. ``reach``: in how many cycles
    from reset each of ``mutants`` must have been caught. They are tried at the first of ``lanes``.
    """

    family: str
    name: str
    sentence: str
    check: Callable
    block: Callable
    of: str
    mutants: tuple[Mutant, ...]
    lanes: tuple[int, ...] = (1, 2)
    depth: int = 2
    bounded: bool = False
    reach: int = 20

    @property
    def full_name(self) -> str:
        return f"{self.family}.{self.name}"

    @property
    def widths(self) -> str:
        return "-" if self.lanes == NO_LANES else ", ".join(map(str, sorted(self.lanes)))

    @property
    def method(self) -> str:
        return f"{self.depth} cycles from reset" if self.bounded else f"induction over {self.depth}"


PROPERTIES: list[Property] = []


def proves(sentence: str, block, *mutants: Mutant, name: str = "", of: str = "", **options):
    """The decorated function states ``sentence`` of ``block``, and becomes one of :data:`PROPERTIES`."""

    def decorated(check):
        family = sys.modules[check.__module__].__name__.rpartition(".")[2]
        PROPERTIES.append(
            Property(family, name or check.__name__, sentence, check, block, of or block.__name__, mutants, **options)
        )
        return check

    return decorated


class Block:
    """A block: as an attribute each port of it, and as an item what its elaborate() has named.

    ``block["fifo"]["level"]`` is ``level`` of the submodule that the block calls ``fifo``. An induction needs such to
    say in which states the block can be. What is proved is said with ports. A memory has a further read port, so that
    it can be said what is in it: ``block["memory looked at"]``.
    """

    def __init__(self, component, named):
        self._component = getattr(component, "_elaboratable_", component)  # without a ResetInserter around it
        self._named = named

    def __getattr__(self, name):
        return getattr(self._component, name)

    def __getitem__(self, name: str):
        found = self._named[id(self._component)][name]
        return Block(found, self._named) if isinstance(found, Elaboratable) else found

    def signal(self, name: str) -> Value:
        """The one signal of this name that the block drives, for those that elaborate() makes in a loop."""
        (found,) = (each for each in self["m"]._driving if each.name == name)
        return found

    def within(self, state: str) -> Value:
        """The block's FSM is in ``state``."""
        fsm = self["m"]._generated["fsm"]
        return fsm.state == fsm.encoding[state]


def _elaborated(component) -> tuple[Fragment, Block]:
    """``component``, and what the methods of each block in it have named."""
    named = {}

    def note(frame, event, _):
        if event != "return" or frame.f_code.co_varnames[:1] != ("self",):
            return
        block = frame.f_locals["self"]
        if isinstance(block, Elaboratable) and not isinstance(block, Module | Memory):
            names = named.setdefault(id(block), {})
            names.update(frame.f_locals)
            if frame.f_code.co_name == "elaborate":
                for name, (part, _where) in names["m"]._named_submodules.items() if "m" in names else ():
                    if isinstance(part, Memory):
                        names[f"{name} looked at"] = part.read_port(domain="comb")

    sys.setprofile(note)
    try:
        fragment = Fragment.get(component, None)
    finally:
        sys.setprofile(None)
    return fragment, Block(component, named)


class Bench:
    """A Module around the block under proof. All inputs that nothing drives may do anything, in each cycle.

    In the first cycle all is reset, out of any state: what a reset leaves as it was may have any value.
    """

    def __init__(self, component, *, inductive: bool):
        self._inductive = inductive
        self._module = Module()
        self._module.domains.sync = clock = ClockDomain()
        self._reset = clock.rst
        self.d.comb += Assume(clock.rst == Initial(), src_loc_at=1)
        self._module.submodules.block, self.block = _elaborated(component)
        self.ports = [clock.clk, clock.rst]
        for _path, member, value in component.signature.flatten(component):
            if member.flow == In:
                self.ports.append(Value.cast(value))

    def __getattr__(self, name):
        return getattr(self._module, name)

    def always(self, *conditions):
        """What is proved."""
        for condition in conditions:
            self.d.comb += Assert(condition | self._reset, src_loc_at=1)

    def states(self, *conditions):
        """What an induction needs to know of the states that can be reached; proved, too, but it catches no mutant."""
        if self._inductive:
            for condition in conditions:
                self.d.comb += Assert(condition | self._reset, src_loc_at=1)

    def given(self, *conditions):
        """What is relied on."""
        for condition in conditions:
            self.d.comb += Assume(condition | self._reset, src_loc_at=1)

    def fixed(self, *inputs):
        """Each may have any value, but always the same."""
        for each in inputs:
            self.d.comb += Value.cast(each).eq(AnyConst(Value.cast(each).shape()))

    def last(self, value) -> Signal:
        """``value`` a cycle ago; zero at first."""
        value = Value.cast(value)
        was = Signal(value.shape())
        self.d.sync += was.eq(value)
        return was

    def ever(self, condition) -> Signal:
        """``condition`` has held in an earlier cycle."""
        ever = Signal()
        with self.If(condition):
            self.d.sync += ever.eq(1)
        return ever

    def rtlil(self) -> str:
        """The whole as sby reads it."""
        return rtlil.convert(self._module, name="top", ports=self.ports)
