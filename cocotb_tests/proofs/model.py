"""Prints the design that sby reads for one property, as RTLIL.

``python -m open_rnic.cocotb_tests.proofs.model FAMILY NAME LANES [PATCH]``

PATCH is the module of a mutant, a line of it and what is there instead, or a key of :mod:`..mutation.sites`; as JSON.
A process of its own for each, so that a mutant of a module is what every other module imports.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path

from open_rnic.cocotb_tests.mutation import sites
from open_rnic.cocotb_tests.proofs.harness import PROPERTIES, Bench


def _mutate(name: str, old: str, new: str):
    """Import module ``name`` below ``open_rnic`` with ``new`` for the one ``old`` in its source."""
    name = f"open_rnic.{name}"
    spec = importlib.util.find_spec(name)
    source = Path(spec.origin).read_text()
    if source.count(old) != 1:
        raise SystemExit(f"{spec.origin} has {source.count(old)} times, not once: {old}")
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    exec(compile(source.replace(old, new), spec.origin, "exec"), module.__dict__)


def main():
    family, name, lanes, *patch = sys.argv[1:]
    match json.loads(patch[0]) if patch else []:
        case [key]:
            sites.install()
            sites.begin({}, only=key)
        case [module, old, new]:
            _mutate(module, old, new)
    importlib.import_module(f"open_rnic.cocotb_tests.proofs.{family}")
    (stated,) = (each for each in PROPERTIES if (each.family, each.name) == (family, name))
    bench = Bench(stated.block(int(lanes)), inductive=not patch)
    stated.check(bench, bench.block)
    print(bench.rtlil())


if __name__ == "__main__":
    main()
