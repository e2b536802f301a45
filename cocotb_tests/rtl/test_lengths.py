"""Bodies that fit a screen: the functions of ``rtl`` are short, and its wiring does not go through lists of names."""

import ast
from collections.abc import Iterator
from pathlib import Path

import open_rnic.rtl

RTL = Path(open_rnic.rtl.__path__[0])
LINES = 60
GETATTR = 7  # calls in rtl


def functions(tree: ast.AST, within: str = "") -> Iterator[tuple[str, int]]:
    """Yield the functions of a module by their qualified names, and their lines."""
    for node in ast.iter_child_nodes(tree):
        name = within
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{within}.{node.name}" if within else node.name
            if not isinstance(node, ast.ClassDef):
                assert node.end_lineno is not None
                yield name, node.end_lineno - node.lineno + 1
        yield from functions(node, name)


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Yield the modules of ``rtl``."""
    for path in sorted(RTL.rglob("*.py")):
        yield path.relative_to(RTL).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_functions_fit_a_screen():
    long = {f"{path}: {name}" for path, tree in modules() for name, lines in functions(tree) if lines > LINES}
    assert long == set(), f"more than {LINES} lines"


def test_few_wirings_go_by_names():
    calls = sum(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"
        for _, tree in modules()
        for node in ast.walk(tree)
    )
    assert calls <= GETATTR, "connect signatures instead"
    assert calls == GETATTR, "lower GETATTR: there are fewer"


def test_lengths_are_counted():
    tree = ast.parse("class A:\n    def f(self):\n        def g():\n            pass\n        return g\n\nx = 1\n")
    assert dict(functions(tree)) == {"A.f": 4, "A.f.g": 2}
