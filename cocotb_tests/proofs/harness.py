"""The classes and functions with which properties are stated."""

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass

from amaranth.asserts import AnyConst, Initial
from amaranth.hdl import Assert, Assume, ClockDomain, Const, DomainRenamer, Fragment, Module, Shape, Signal, Value
from amaranth.lib.wiring import In

from open_rnic.host_driver.devices.sim.elaborate import to_rtlil

__all__ = ["PROPERTIES", "Bench", "Block", "Mutant", "Property", "proves"]

_NO_LANES = (0,)  # of a block without a width


ENGINE = "smtbmc --nopresat --nomem boolector"  # of sby; the solver sees memories as registers


@dataclass(frozen=True)
class Mutant:
    """A fault in the RTL that a property must catch: ``new`` instead of ``old``, which occurs once in ``of``.

    ``of`` is the class or function itself, so that a mutant does not depend on names of modules. White space between
    the tokens of ``old`` is ignored.
    """

    what: str
    of: type | Callable
    old: str
    new: str

    @property
    def patch(self) -> list[str]:
        """The module, the name in it, and both texts, as arguments for :mod:`.model`."""
        return [self.of.__module__, self.of.__qualname__, self.old, self.new]


@dataclass(frozen=True)
class SiteMutant(Mutant):
    """A mutant of :mod:`open_rnic.cocotb_tests.mutation`, identified by its key."""

    what: str
    of: type | Callable = object
    old: str = ""
    new: str = ""

    @property
    def patch(self) -> list[str]:
        return [self.what]


@dataclass(frozen=True)
class Property:
    """A property of a block: one row of the table in docs/proofs.md.

    Parameters
    ----------
    sentence : the property in words
    check : states the property, given a bench and the block
    block : makes the block, given the number of ``lanes`` if it has that parameter
    of : name of the block in the table
    mutants : faults that the property must catch, tried at the first of ``lanes``
    lanes : widths at which the property is proved
    depth : depth of the induction in cycles; or the number of cycles from reset, if ``bounded`` is set
    bounded : whether the proof covers a number of cycles instead of all time
    reach : number of cycles from reset within which mutants must be caught
    engine : sby's engine for the induction, if :data:`ENGINE` takes very long

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
    engine: str = ENGINE

    @property
    def full_name(self) -> str:
        return f"{self.family}.{self.name}"

    def make(self, lanes: int):
        """Return the block at this width; 0 is that of a block without one."""
        return self.block(lanes) if lanes else self.block()

    @property
    def widths(self) -> str:
        return "-" if self.lanes == _NO_LANES else ", ".join(map(str, sorted(self.lanes)))

    @property
    def method(self) -> str:
        return f"{self.depth} cycles from reset" if self.bounded else f"induction over {self.depth}"


PROPERTIES: list[Property] = []


def proves(sentence: str, block, *mutants: Mutant, name: str = "", of: str = "", **options):
    """Decorate a function that states the property ``sentence`` of ``block``, and add it to :data:`PROPERTIES`."""
    if "lanes" not in inspect.signature(block).parameters:
        options["lanes"] = _NO_LANES

    def decorated(check):
        family = sys.modules[check.__module__].__name__.rpartition(".")[2]
        PROPERTIES.append(
            Property(family, name or check.__name__, sentence, check, block, of or block.__name__, mutants, **options)
        )
        return check

    return decorated


class Block:
    """A component in the design: its ports are attributes, the signals and submodules inside it are items.

    Names are those in the Verilog and in waveforms: ``block["fifo"]["level"]`` is the signal ``level`` of the submodule
    ``fifo``. A signal inside is a plain value: ``Event(block["happened"])`` restores its fields.

    Properties refer to ports only. An induction refers to signals inside, to restrict the states of the block.
    """

    def __init__(self, fragment: Fragment, names: dict[Fragment, dict[str, Signal]]):
        self._fragment = fragment
        self._names = names
        # For a component in a ResetInserter, this is the component.
        self._component = next(each for each in fragment.origins if not hasattr(each, "_elaboratable_"))

    def __getattr__(self, name):
        return getattr(self._component, name)

    def __getitem__(self, name: str) -> "Block | Signal":
        for inner, called, _src_loc in self._fragment.subfragments:
            if called == name:
                return Block(inner, self._names)
        return self.signal(name)

    def signal(self, name: str) -> Signal:
        """Return the signal ``name``, if a submodule has the same name."""
        names = self._names[self._fragment]
        if name not in names or any(each.startswith(f"{name}$") for each in names):
            how_many = "several signals" if name in names else "no signal"
            raise KeyError(f"{type(self._component).__name__} has {how_many} called {name}: {', '.join(names)}")
        return names[name]

    def within(self, state: str) -> Value:
        """Return whether the FSM of the block is in ``state``."""
        return self["fsm_state"] == self._fragment.generated["fsm"].encoding[state]

    def stored(self, m, memory: str, address) -> Value:
        """Return the word of ``memory`` at ``address`` modulo its depth, through an additional read port."""
        block = self[memory]
        at = Signal(range(block.depth))
        data = Signal(Shape.cast(block.shape))
        m.d.comb += at.eq(address)
        block._fragment.read_port(domain="comb", addr=at, data=data, en=Const(1), transparent_for=())
        return data


def _names(fragment: Fragment) -> dict[Fragment, dict[str, Signal]]:
    """Return the signals of ``fragment`` and of all its subfragments, by their names in the netlist."""
    design = DomainRenamer("sync")(fragment).prepare()  # of a copy, because it adds domains
    names = {}

    def walk(own: Fragment, prepared: Fragment):
        names[own] = {name: signal for signal, name in design.fragments[prepared].signal_names.items()}
        for (inner, *_), (inner_prepared, *_) in zip(own.subfragments, prepared.subfragments, strict=True):
            walk(inner, inner_prepared)

    walk(fragment, design.fragment)
    return names


class Bench:
    """A Module around the block under proof. Inputs that are not driven may have any value in each cycle.

    In the first cycle, everything is reset from an arbitrary state: registers without reset may have any value.
    """

    def __init__(self, component, *, inductive: bool):
        self._inductive = inductive
        self._module = Module()
        self._module.domains.sync = clock = ClockDomain()
        self._reset = clock.rst
        self.d.comb += Assume(clock.rst == Initial(), src_loc_at=1)
        self._module.submodules.block = fragment = Fragment.get(component, None)
        self.block = Block(fragment, _names(fragment))
        self.ports = [clock.clk, clock.rst]
        for _path, member, value in component.signature.flatten(component):
            if member.flow == In:
                self.ports.append(Value.cast(value))

    def __getattr__(self, name):
        return getattr(self._module, name)

    def always(self, *conditions):
        """Prove the conditions."""
        for condition in conditions:
            self.d.comb += Assert(condition | self._reset, src_loc_at=1)

    def states(self, *conditions):
        """Prove conditions on reachable states, which an induction needs; they are not used to catch mutants."""
        if self._inductive:
            for condition in conditions:
                self.d.comb += Assert(condition | self._reset, src_loc_at=1)

    def given(self, *conditions):
        """Assume the conditions."""
        for condition in conditions:
            self.d.comb += Assume(condition | self._reset, src_loc_at=1)

    def fixed(self, *inputs):
        """Let each input have an arbitrary value that does not change."""
        for each in inputs:
            self.d.comb += Value.cast(each).eq(AnyConst(Value.cast(each).shape()))

    def last(self, value) -> Signal:
        """Return the value that ``value`` had in the previous cycle; zero in the first cycle."""
        value = Value.cast(value)
        was = Signal(value.shape())
        self.d.sync += was.eq(value)
        return was

    def ever(self, condition) -> Signal:
        """Return a signal that is 1 if ``condition`` was true in an earlier cycle."""
        ever = Signal()
        with self.If(condition):
            self.d.sync += ever.eq(1)
        return ever

    def rtlil(self) -> str:
        """Return the design for sby."""
        return to_rtlil(self._module, ports=self.ports)
