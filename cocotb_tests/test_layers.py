"""The layers in docs/architecture.md: no module imports one from a layer above its own.

Imports are read from the source, so that those inside functions and under ``TYPE_CHECKING`` count as well.
"""

import ast
import itertools
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("rtl", "boards", "host_driver")
PAGE = ROOT / "docs/architecture.md"
HIDING = ("import_module", "__import__")  # functions that import a module by its name


def looked_at(tree):
    """The imports and calls in the syntax tree of a module."""
    return [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom, ast.Call))]


@cache
def modules(*folders):
    """The imports and calls in each module, by its name without ``open_rnic.``; not of packages without code."""
    if len(folders) > 1:
        return dict(itertools.chain.from_iterable(modules(folder).items() for folder in folders))
    found = {}
    for path in (ROOT / folders[0]).rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        tree = ast.parse(path.read_text())
        if parts[-1] != "__init__":
            found[".".join(parts)] = looked_at(tree)
        elif not all(isinstance(each, ast.Expr) for each in tree.body):
            found[".".join(parts[:-1])] = looked_at(tree)
    return found


def imports(nodes, known):
    """The modules of this project that a module imports."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{each.name}" for each in node.names]
            names = [name if name.removeprefix("open_rnic.") in known else node.module for name in names]
        else:
            continue
        yield from (name.removeprefix("open_rnic.") for name in names if name.startswith("open_rnic."))


def layers(text):
    """The names in the first column of the page's table, from the bottom layer to the top."""
    section = text.partition("\n## Layers\n")[2].partition("\n## ")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)]


def layer_of(module, names):
    """The layer of a module: the longest name that the module's own name begins with."""
    return max((name for name in names if f"{module}.".startswith(f"{name}.")), key=len, default=None)


def upward(trees, names):
    """All imports from a layer above, as text; a module without a layer is above all others."""
    height = {name: at for at, name in enumerate(names)} | {None: len(names)}
    for module, tree in sorted(trees.items()):
        for imported in sorted(set(imports(tree, trees))):
            if height[layer_of(imported, names)] > height[layer_of(module, names)]:
                yield f"{module} imports {imported}"


def test_every_module_is_in_a_layer_and_every_layer_has_a_module():
    trees, names = modules(*FOLDERS), layers(PAGE.read_text())
    assert len(set(names)) == len(names)
    assert [module for module in trees if layer_of(module, names) is None] == []
    assert set(names) - {layer_of(module, names) for module in trees} == set()


def test_no_import_goes_up():
    assert set(upward(modules(*FOLDERS), layers(PAGE.read_text()))) == set()


def test_rtl_imports_neither_the_driver_nor_boards():
    trees = modules(*FOLDERS)
    for module, tree in trees.items():
        if module.split(".")[0] == "rtl":
            assert {imported.split(".")[0] for imported in imports(tree, trees)} <= {"rtl"}, module


def test_the_server_of_a_simulation_imports_no_hardware_library():
    """Each simulation would take a second more to start."""
    program = (
        "import ctypes, sys\n"
        "from unittest.mock import MagicMock\n"
        "ctypes.CDLL = MagicMock()  # VPI is only in a simulation\n"
        "import open_rnic.host_driver.devices.sim.server\n"
        "assert 'amaranth' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_no_import_hides_in_a_string():
    for module, nodes in modules(*FOLDERS).items():
        for node in nodes:
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in HIDING:
                assert not (node.args and isinstance(node.args[0], ast.Constant)), f"{module}: {ast.unparse(node)}"


def test_an_upward_import_is_found_wherever_it_stands():
    low = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from open_rnic.b import high
def late():
    import open_rnic.b.other
    from open_rnic.b.third import name
"""
    sources = {"a.low": low, "b.high": "from open_rnic.a import low", "b.other": "", "b.third": ""}
    known = {name: looked_at(ast.parse(source)) for name, source in sources.items()}
    found = ["a.low imports b.high", "a.low imports b.other", "a.low imports b.third"]
    assert list(upward(known, ["a", "b"])) == found


def circles(trees, but=()):
    """Each pair of folders that import each other, directly or through others, as text.

    Imports between a folder and a folder inside it do not count. A module at the top of a tree counts as a folder.
    """
    packages = {name.rpartition(".")[0] for name in trees}

    def folder(module):
        inside = module if module in packages else module.rpartition(".")[0]
        return inside if "." in inside else module

    reached = {folder(module): set() for module in trees}  # for each folder, those that it imports
    for module in trees.keys() - set(but):
        own = folder(module)
        for other in {folder(each) for each in imports(trees[module], trees) if each in trees}:
            if not f"{own}.".startswith(f"{other}.") and not f"{other}.".startswith(f"{own}."):
                reached[own].add(other)
    for _ in reached:  # no path is longer than the number of folders
        for each in reached.values():
            each.update(*(reached[other] for other in tuple(each)))
    for one, other in itertools.combinations(sorted(reached), 2):
        if other in reached[one] and one in reached[other]:
            yield f"{one} and {other}"


def test_folders_do_not_import_each_other():
    assert list(circles(modules(*FOLDERS))) == []


def test_a_circle_is_found_even_if_it_leads_through_a_third_folder():
    sources = {
        "top.a.one": "import open_rnic.top.b.one",
        "top.b.one": "import open_rnic.top.c.one",
        "top.c.one": "import open_rnic.top.a.two",
        "top.a.two": "",
        "top.d.one": "import open_rnic.top.a.one",
    }
    known = {name: looked_at(ast.parse(source)) for name, source in sources.items()}
    assert list(circles(known)) == ["top.a and top.b", "top.a and top.c", "top.b and top.c"]


def test_every_import_of_a_module_of_this_project_leads_to_a_file():
    """Those inside functions, too, which run only when something needs them."""
    known = modules(*FOLDERS, "cocotb_tests")
    packages = {".".join(name.split(".")[:n]) for name in known for n in range(1, name.count(".") + 1)}
    wrong = [
        f"{name}: {each}"
        for name, tree in known.items()
        for each in imports(tree, known)
        if each not in known and each not in packages
    ]
    assert not wrong
