"""Mutants of ``open_rnic.rtl``: made when a module is imported, and selected while the design runs.

:func:`install` makes Python rewrite every module of ``rtl`` on import. Each place that can be mutated becomes a call of
one of the functions below. It returns the original, or, if a mutant of this place is ``chosen``, a multiplexer::

    a == b    becomes    Mux(selector == 7, a != b, a == b)

One design therefore holds many mutants. :data:`selector`, an input of the top, selects one of them, or 0 for none.

A mutant's key is ``file function: original -> mutant``, with `` (2)`` appended for the second place with the same text.
It does not contain a line number, so it remains valid if code moves.
"""

import ast
import importlib.abc
import importlib.machinery
import operator
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, ResetSignal, Shape, Signal, Value
from amaranth.hdl._ast import Switch

PACKAGE = "open_rnic.rtl"
WIDTH = 16

selector: Value = Signal(WIDTH, name="mutant")
chosen: dict[str, int] = {}  # numbers of the mutants to build in
live: set[str] = set()  # keys of the mutants that can be built into the elaborated design
_NAME = "__mutation__"  # name of this module inside a mutated one


@dataclass
class Site:
    """A place in the source: the keys of its mutants, by the names that the functions below use for them."""

    keys: dict[str, str] = field(default_factory=dict)


SITES: list[Site] = []


def begin(mutants: dict[str, int], only: str | None = None) -> None:
    """Choose the mutants to build in; ``only`` is the key of a single one, which is always active."""
    global selector
    chosen.clear()
    chosen.update(mutants)
    live.clear()
    if only is not None:
        chosen[only] = 1
        selector = Const(1, WIDTH)


# --- functions that mutated modules call --------------------------------------------------------


def _is(key: str) -> Value | None:
    """Return whether this mutant is active, or None if it is not built in."""
    live.add(key)
    return selector == chosen[key] if key in chosen else None


def _fitted(value: Any, shape: Shape) -> Value:
    """Convert ``value`` to another shape, so that the mutant has the shape of the original."""
    value = Value.cast(value)
    fill = value[-1] if value.shape().signed and len(value) else Const(0, 1)
    value = Cat(value, fill.replicate(max(0, shape.width - len(value))))[: shape.width]
    return value.as_signed() if shape.signed else value


def _choose(site: int, original: Any, makers: dict[str, Callable[[], Any]]) -> Any:
    """Return ``original``, or a multiplexer between it and its chosen mutants."""
    if not isinstance(original, Value):
        return original
    result, shape = original, original.shape()
    for name, make in makers.items():
        if (here := _is(SITES[site].keys[name])) is not None:
            result = Mux(here, _fitted(make(), shape), result)
            result = _fitted(result, shape)
    return result


def _number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, Enum | bool)


COMPARISONS = {
    "==": (operator.eq, ("!=",)), "!=": (operator.ne, ("==",)),
    "<": (operator.lt, ("<=", ">=")), "<=": (operator.le, ("<", ">")),
    ">": (operator.gt, (">=", "<=")), ">=": (operator.ge, (">", "<")),
}  # fmt: skip
OPERATIONS = {
    "+": (operator.add, ("-",)), "-": (operator.sub, ("+",)), "&": (operator.and_, ("|",)),
    "|": (operator.or_, ("&",)), "^": (operator.xor, ("|",)),
}  # fmt: skip
_OPERATORS = COMPARISONS | OPERATIONS


def binary(site: int, name: str, left: Any, right: Any) -> Any:
    """A comparison or operation; mutants: another one, either operand of a condition, a constant incremented by one."""
    function, others = _OPERATORS[name]
    original = function(left, right)
    makers = {other: lambda other=other: _OPERATORS[other][0](left, right) for other in others}
    if name in "&|":
        makers |= {"left": lambda: left, "right": lambda: right}
    elif name != "^" and _number(right):
        makers["more"] = lambda: function(left, right + 1)
    return _choose(site, original, makers)


def invert(site: int, value: Any) -> Any:
    """``~value``; mutant: ``value``."""
    return _choose(site, ~value, {"": lambda: value})


def reduce(site: int, name: str, value: Any) -> Any:
    """``value.any()`` or ``value.all()``; mutant: the other one."""
    other = "all" if name == "any" else "any"
    return _choose(site, getattr(value, name)(), {other: lambda: getattr(value, other)()})


def condition(site: int, value: Any) -> Any:
    """The condition of a Mux, an If or an Elif; mutants: always true, always false."""
    return _choose(site, Value.cast(value).bool(), {"true": lambda: Const(1), "false": lambda: Const(0)})


def assign(site: int, target: Any, value: Any) -> Any:
    """``target.eq(value)``; mutants: another constant; no assignment, see :func:`add`."""
    keys = SITES[site].keys
    if isinstance(value, int) and not isinstance(value, Enum) and hasattr(target, "shape"):
        here = _is(keys["constant"])
        if here is not None:
            value = Mux(here, value ^ 1, value)
    statement = target.eq(value)
    for each in statement if isinstance(statement, list) else [statement]:
        each._mutant = keys["dropped"]
    return statement


def _statements(given: Any) -> Iterator[Any]:
    if isinstance(given, Iterable):
        for each in given:
            yield from _statements(each)
    else:
        yield given


def add(m: Module, domain: str, given: Any) -> None:
    """``m.d[domain] += given``; mutant: without one of the assignments."""
    for each in _statements(given):
        key = getattr(each, "_mutant", None)
        here = _is(key) if key else None
        with nullcontext() if here is None else _except_in(m, here):
            m.d[domain] += each


@contextmanager
def _except_in(m: Module, here: Value) -> Iterator[None]:
    """A context for an assignment that this mutant lacks, also between the states of an FSM, where no If may stand."""
    context, m._ctrl_context = m._ctrl_context, None
    with m.If(~here):
        yield
    m._flush_ctrl()  # the next State looks for its FSM
    m._ctrl_context = context


def unless(site: int, m: Module) -> AbstractContextManager[None]:
    """A context for ``m.next = …``; mutant: no assignment."""
    here = _is(SITES[site].keys["dropped"])
    return nullcontext() if here is None else m.If(~here)


def resets(m: Module, where: str) -> Module:
    """Add mutants to a complete module that give a register another reset value."""
    seen: Counter[str] = Counter()
    found = []
    for signal, domains in m._driving.items():
        if "sync" in domains and not signal.reset_less and signal.name:
            key = _key(seen, f"{where}: reset of {signal.name} = {signal.init}", f"{signal.init ^ 1}")
            if (here := _is(key)) is not None:
                found.append((signal, here))
    for signal, here in found:
        signal._mutant_init = Mux(here, Const(signal.init ^ 1, signal.shape()), Const(signal.init, signal.shape()))
        signal._reset_less = True  # the statements below reset it instead
        with m.If(ResetSignal("sync")):
            m.d.sync += signal.eq(signal._mutant_init)
    return m


def _reset_inserter(inserted: Callable[..., None]) -> Callable[..., None]:
    """Return a ResetInserter's method that applies the mutants of reset values."""

    def insert(self: Any, fragment: Any, domain: str, lhs_masks: Any) -> None:
        inserted(self, fragment, domain, lhs_masks)
        for signal, start, stop in lhs_masks.chunks():
            if hasattr(signal, "_mutant_init"):
                reset = signal[start:stop].eq(signal._mutant_init[start:stop])
                switch = Switch(self.controls[domain], [(1, [reset], None)], src_loc=self.src_loc)
                fragment.add_statements(domain, switch)

    return insert


# --- rewriting ----------------------------------------------------------------------------------


def _key(seen: Counter[str], original: str, mutant: str) -> str:
    key = f"{original} -> {mutant}"
    seen[key] += 1
    return key if seen[key] == 1 else f"{key} ({seen[key]})"


_AST = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Add: "+", ast.Sub: "-", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
}  # fmt: skip


def _unparse(left: ast.expr, name: str, right: ast.expr) -> str:
    operation = next(each for each, its in _AST.items() if its == name)()
    if name in COMPARISONS:
        return ast.unparse(ast.Compare(left, [operation], [right]))
    return ast.unparse(ast.BinOp(left, operation, right))


class Rewriter(ast.NodeTransformer):
    """Rewrites a module; only code in functions is mutated."""

    def __init__(self, file: str):
        self.file = file
        self._scope: list[str] = []
        self._functions = 0
        self._seen: Counter[str] = Counter()

    def _site(self, original: str, mutants: dict[str, str]) -> ast.Constant:
        where = f"{self.file} {'.'.join(self._scope)}: {original}"
        SITES.append(Site({name: _key(self._seen, where, mutant) for name, mutant in mutants.items()}))
        return ast.Constant(len(SITES) - 1)

    @staticmethod
    def _call(name: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(_NAME, ast.Load()), name, ast.Load()), list(arguments), [])

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self._scope.append(node.name)
        node.body = [self.visit(each) for each in node.body]
        self._scope.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self._scope.append(node.name)
        self._functions += 1
        node.body = [self.visit(each) for each in node.body]
        self._functions -= 1
        self._scope.pop()
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.JoinedStr):
            return node
        return super().generic_visit(node)

    def _binary(self, node: ast.expr, left: ast.expr, operation: ast.AST, right: ast.expr) -> ast.AST:
        name = _AST.get(type(operation))
        if not self._functions or name is None:
            return self.generic_visit(node)
        mutants = {other: _unparse(left, other, right) for other in _OPERATORS[name][1]}
        mutants |= {"left": ast.unparse(left), "right": ast.unparse(right)}
        mutants |= {"more": _unparse(left, name, ast.BinOp(right, ast.Add(), ast.Constant(1)))}
        site = self._site(ast.unparse(node), mutants)
        return self._call("binary", site, ast.Constant(name), self.visit(left), self.visit(right))

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        if len(node.ops) > 1:
            return self.generic_visit(node)
        return self._binary(node, node.left, node.ops[0], node.comparators[0])

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self._binary(node, node.left, node.op, node.right)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if not self._functions or not isinstance(node.op, ast.Invert):
            return self.generic_visit(node)
        site = self._site(ast.unparse(node), {"": ast.unparse(node.operand)})
        return self._call("invert", site, self.visit(node.operand))

    def _condition(self, node: ast.Call, before: str) -> None:
        test = node.args[0]
        if isinstance(test, ast.Starred):  # an argument list, which includes the branches
            return
        site = self._site(before + ast.unparse(test), {"true": before + "True", "false": before + "False"})
        node.args[0] = self._call("condition", site, self.visit(test))
        node.args[1:] = map(self.visit, node.args[1:])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        function = ast.unparse(node.func)
        attribute = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if not self._functions:
            return self.generic_visit(node)
        if function in ("m.If", "m.Elif", "Mux"):
            self._condition(node, function.removeprefix("m.") + " ")
            return node
        if attribute == "eq" and len(node.args) == 1:
            text = ast.unparse(node)
            target, value = node.func.value, node.args[0]
            other = f"{ast.unparse(target)}.eq({ast.unparse(value)} ^ 1)"
            site = self._site(text, {"dropped": "nothing", "constant": other})
            return self._call("assign", site, self.visit(target), self.visit(value))
        if attribute in ("any", "all") and not node.args:
            other = "all" if attribute == "any" else "any"
            target = node.func.value
            site = self._site(ast.unparse(node), {other: f"{ast.unparse(target)}.{other}()"})
            return self._call("reduce", site, ast.Constant(attribute), self.visit(target))
        return self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        target = node.target
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "m.d":
            return ast.Expr(self._call("add", target.value.value, ast.Constant(target.attr), self.visit(node.value)))
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "m.d":
            return ast.Expr(self._call("add", target.value.value, target.slice, self.visit(node.value)))
        node.value = self.visit(node.value)
        return node

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        [target, *_] = node.targets
        if ast.unparse(target) != "m.next":
            node.value = self.visit(node.value)
            return node
        site = self._site(ast.unparse(node), {"dropped": "nothing"})
        return ast.With([ast.withitem(self._call("unless", site, target.value))], [node])

    def visit_Return(self, node: ast.Return) -> ast.AST:
        if self._scope[-1] == "elaborate" and ast.unparse(node) == "return m":
            where = ast.Constant(f"{self.file} {'.'.join(self._scope)}")
            return ast.Return(self._call("resets", node.value, where))
        return self.generic_visit(node)


class _Loader(importlib.machinery.SourceFileLoader):
    def get_code(self, fullname: str) -> Any:  # does not use the cache of compiled modules
        source = self.get_data(self.path)
        tree = ast.parse(source)
        file = Path(self.path)
        parts = fullname.removeprefix("open_rnic.").split(".")
        Rewriter("/".join([*parts[:-1], file.name])).visit(tree)
        after = next((n for n, each in enumerate(tree.body) if not _heading(each)), len(tree.body))
        tree.body.insert(after, ast.ImportFrom(__package__, [ast.alias("sites", _NAME)], 0))
        return compile(ast.fix_missing_locations(tree), self.path, "exec")


def _heading(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if not name.startswith(PACKAGE + "."):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.origin and spec.origin.endswith(".py"):
                    spec.loader = _Loader(name, spec.origin)
                return spec
        return None


def install() -> None:
    """Mutate modules of ``rtl`` that are imported from now on."""
    if any(name.startswith(PACKAGE + ".") for name in sys.modules):
        raise RuntimeError(f"{PACKAGE} has already been imported")
    sys.meta_path.insert(0, _Finder())
    ResetInserter._insert_control = _reset_inserter(ResetInserter._insert_control)
