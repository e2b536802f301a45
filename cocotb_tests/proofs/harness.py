"""What properties are written with."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

from amaranth.asserts import AnyConst, Initial
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Const, DomainRenamer, Fragment, Module, Shape, Signal, Value
from amaranth.lib.wiring import In

__all__ = ["NO_LANES", "PROPERTIES", "Bench", "Block", "Mutant", "Property", "proves"]

NO_LANES = (0,)  # of a block that has none


@dataclass(frozen=True)
class Mutant:
    """A fault in the RTL that a property must catch: in the source of ``of``, ``new`` for the one ``old``.

    ``of`` is the class or function itself, so neither its name nor its module's is said here. Neither spaces nor line
    breaks between the tokens of ``old`` matter.
    """

    what: str
    of: type | Callable
    old: str
    new: str

    @property
    def patch(self) -> list[str]:
        """The module, the name in it, and the two texts, as :mod:`.model` takes them."""
        return [self.of.__module__, self.of.__qualname__, self.old, self.new]


@dataclass(frozen=True)
class SiteMutant(Mutant):
    """A mutant of :mod:`open_rnic.cocotb_tests.mutation`, by its key."""

    what: str
    of: type | Callable = object
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
    """A component in the design: each port as an attribute; each signal and submodule inside as an item.

    Names are those of the Verilog and of waveforms: ``block["fifo"]["level"]`` is the signal ``level`` of the submodule
    ``fifo``. A signal inside is plain bits: ``Event(block["happened"])`` gives it its fields back.

    What is proved is said with ports. An induction needs signals inside to say in which states the block can be.
    """

    def __init__(self, fragment: Fragment, names: dict[Fragment, dict[str, Signal]]):
        self._fragment = fragment
        self._names = names
        # Of a component in a ResetInserter, the component.
        self._component = next(each for each in fragment.origins if not hasattr(each, "_elaboratable_"))

    def __getattr__(self, name):
        return getattr(self._component, name)

    def __getitem__(self, name: str) -> "Block | Signal":
        for inner, called, _src_loc in self._fragment.subfragments:
            if called == name:
                return Block(inner, self._names)
        names = self._names[self._fragment]
        if name not in names or any(each.startswith(f"{name}$") for each in names):
            how_many = "several signals" if name in names else "no signal"
            raise KeyError(f"{type(self._component).__name__} has {how_many} called {name}: {', '.join(names)}")
        return names[name]

    def within(self, state: str) -> Value:
        """The block's FSM is in ``state``."""
        return self["fsm_state"] == self._fragment.generated["fsm"].encoding[state]

    def stored(self, m, memory: str, address) -> Value:
        """What ``memory`` holds at ``address``, which counts modulo its depth: through a read port of its own."""
        block = self[memory]
        at = Signal(range(block.depth))
        data = Signal(Shape.cast(block.shape))
        m.d.comb += at.eq(address)
        block._fragment.read_port(domain="comb", addr=at, data=data, en=Const(1), transparent_for=())
        return data


def _names(fragment: Fragment) -> dict[Fragment, dict[str, Signal]]:
    """The signals of ``fragment`` and of each below it, by their names in the netlist."""
    design = DomainRenamer("sync")(fragment).prepare()  # of a copy, as that adds domains
    names = {}

    def walk(own: Fragment, prepared: Fragment):
        names[own] = {name: signal for signal, name in design.fragments[prepared].signal_names.items()}
        for (inner, *_), (inner_prepared, *_) in zip(own.subfragments, prepared.subfragments, strict=True):
            walk(inner, inner_prepared)

    walk(fragment, design.fragment)
    return names


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
        self._module.submodules.block = fragment = Fragment.get(component, None)
        self.block = Block(fragment, _names(fragment))
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
