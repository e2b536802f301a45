"""Docstrings of ``rtl`` name all members of components, signatures, layouts in a section ``Members``, and no others."""

import ast
import re
from collections.abc import Iterator

import pytest

from open_rnic.cocotb_tests.rtl.test_lengths import modules

COMPONENTS = {"wiring.Component", "Component"}
OTHERS = {"wiring.Signature", "data.StructLayout"}  # a sentence may be all that they need


def described() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, tree in modules():
        for node in (node for node in tree.body if isinstance(node, ast.ClassDef)):
            bases, has_section = {ast.unparse(base) for base in node.bases}, "Members\n" in str(ast.get_docstring(node))
            if (bases & COMPONENTS and node.name[0] != "_") or (bases & OTHERS and has_section):
                yield f"{path}: {node.name}", node


def named(docstring: str) -> list[str]:
    """The names of the section: "a, b : In" names two, and so does "a, b" above an indented explanation."""
    _, _, section = docstring.partition("Members\n-------\n")
    entries = re.findall(r"^(\w+(?:, \w+)*)(?: : .*|\n    .*)", section, re.M)
    return [name for names in entries for name in names.split(", ")]


def keys(node: ast.AST, values: dict[str, ast.AST]) -> Iterator[str | None]:
    """The keys of a dictionary of members; None stands for those that another function gives it."""
    match node:
        case ast.Dict():
            for key, value in zip(node.keys, node.values, strict=True):
                yield from [key.value] if isinstance(key, ast.Constant) else keys(value, values)
        case ast.IfExp():
            yield from [*keys(node.body, values), *keys(node.orelse, values)]
        case ast.Call(func=ast.Name("only_many")):
            yield from keys(node.args[1], values)
        case ast.DictComp(generators=[ast.comprehension(iter=ast.Tuple(names))]):
            yield from (name.value for name in names)
        case ast.Name() if node.id in values:
            yield from keys(values[node.id], values)
        case _:
            yield None


def members(component: ast.ClassDef) -> Iterator[str | None]:
    values = {}
    for node in ast.walk(component):
        if isinstance(node, ast.AnnAssign) and re.match(r"(In|Out)\(", ast.unparse(node.annotation)):
            yield ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            values[ast.unparse(node.targets[0])] = node.value
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "super().__init__":
            yield from (name for argument in node.args for name in keys(argument, values))


@pytest.mark.parametrize("component", [pytest.param(node, id=name) for name, node in described()])
def test_a_docstring_names_all_members(component):
    found, documented = set(members(component)), named(ast.get_docstring(component) or "")
    assert len(documented) == len(set(documented))
    assert found - {None} <= set(documented)
    assert None in found or set(documented) <= found
