"""Finds the benches that no test runs, when pytest collects a module of tests.

A test runs the benches in its parameters, and those that its code names; if the code calls ``simulate`` and names
``__name__``, all of its module. Code is that of the test, and of all functions and classes of the tests that it names.
"""

import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from cocotb.regression import TestGenerator

from open_rnic.cocotb_tests.harness import benches_of


class Module(pytest.Module):
    """A module of tests, with an error for each bench that none of them runs, whichever tests are selected."""

    def collect(self) -> list[pytest.Item | pytest.Collector]:
        """Return the tests."""
        nodes = list(super().collect())
        tests = [each for each in nodes if isinstance(each, pytest.Function)]
        parameters = [each.callspec.params for each in tests if hasattr(each, "callspec")]
        run = benches_run_by([*(each.function for each in tests), *parameters], self.obj.__name__)
        if unused := [each for each in benches_of(self.obj) if each not in run]:
            raise self.CollectError("\n".join(map(complaint, unused)))
        return nodes


def complaint(bench: TestGenerator) -> str:
    """Return the message about a bench that no test runs."""
    code = inspect.unwrap(bench.func).__code__
    where = f"{os.path.relpath(code.co_filename)}:{code.co_firstlineno}"
    return f"{where}: no test runs the bench {bench.name}: pass it to simulate() in a test, or delete it"


def benches_run_by(values: Iterable[Any], module: str) -> set[TestGenerator]:
    """Return the benches among values, in containers of them, and behind functions of the ``module`` or of tests."""
    found, seen, waiting = set(), set(), list(values)
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, TestGenerator):
            found.add(value)
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, type) and Path(__file__).parents[1].name in value.__module__.split("."):
            waiting += vars(value).values()
        elif callable(value) and isinstance(function := inspect.unwrap(value), FunctionType):
            parts = (function.__module__ or "").split(".")
            if function.__module__ == module or Path(__file__).parents[1].name in parts:
                waiting += _named(function)
    return found


def _named(function: FunctionType) -> Iterator[Any]:
    """Yield what the code of a function names, also behind the name of a module."""
    names, known = set(_names(function.__code__)), function.__globals__
    for value in (known[each] for each in names & known.keys()):
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value)[each] for each in names & vars(value).keys())
    if {"simulate", "__name__"} <= names:
        yield from (each for each in known.values() if isinstance(each, TestGenerator))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _names(each)
