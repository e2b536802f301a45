"""Print the design that sby reads for one property, as RTLIL.

``python -m open_rnic.cocotb_tests.proofs.model FAMILY NAME LANES [PATCH]``

PATCH is JSON: either the module of a mutant, the name of a class or function in it, a text in its source, and the
replacement; or a key of :mod:`..mutation.sites`. Each design is made in a process of its own, so that all modules
import the mutated one.
"""

import ast
import importlib
import importlib.util
import json
import re
import sys
from pathlib import Path

from open_rnic.cocotb_tests.mutation import sites
from open_rnic.cocotb_tests.proofs.harness import PROPERTIES, Bench


def mutated_source(module: str, name: str, old: str, new: str) -> str:
    """Return the source of ``module`` with ``new`` instead of ``old``, which occurs once in its class ``name``.

    ``name`` may also be a function.
    """
    path = importlib.util.find_spec(module).origin
    source = Path(path).read_text()
    (node,) = (each for each in ast.parse(source).body if getattr(each, "name", None) == name)
    part = ast.get_source_segment(source, node)
    found = list(re.finditer(r"\s*".join(map(re.escape, re.findall(r"\w+|[^\w\s]", old))), part))
    if len(found) != 1:
        raise SystemExit(f"{path}, {name} contains this text {len(found)} times instead of once: {old}")
    at = found[0].span()
    return source.replace(part, part[: at[0]] + new + part[at[1] :])


def _mutate(module: str, *change: str):
    """Import ``module`` with a change: see :func:`mutated_source`."""
    source = mutated_source(module, *change)
    spec = importlib.util.find_spec(module)
    sys.modules[module] = mutated = importlib.util.module_from_spec(spec)
    exec(compile(source, spec.origin, "exec"), mutated.__dict__)


def main():
    family, name, lanes, *patch = sys.argv[1:]
    match json.loads(patch[0]) if patch else []:
        case [key]:
            sites.install()
            sites.begin({}, only=key)
        case [module, name_in_it, old, new]:
            _mutate(module, name_in_it, old, new)
    importlib.import_module(f"open_rnic.cocotb_tests.proofs.{family}")
    (stated,) = (each for each in PROPERTIES if (each.family, each.name) == (family, name))
    bench = Bench(stated.make(int(lanes)), inductive=not patch)
    stated.check(bench, bench.block)
    print(bench.rtlil())


if __name__ == "__main__":
    main()
