"""The tools that LiteX calls, by the names that it knows: those that Python's packages bring."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

from open_rnic.boards.flows import ABC9, ECP5_TIMING

__all__ = ["REPORT", "tools"]

REPORT = "report.json"  # of nextpnr
#: nextpnr gives up a design that does not fit after minutes, where it would try for hours.
_GIVE_UP = "--placer-heap-cell-placement-timeout 100000"
_TOOLS = "yosys", "nextpnr-ecp5", "nextpnr-ice40", "nextpnr-himbaechel", "ecppack", "icepack"
_TRIPLE = "riscv-none-elf"
#: Zig's compiler with options of GCC. Its linker is called by itself, as it would bring a C library of its own for -lc;
#: constructors, which no program of LiteX calls, are left out, as they have no place in LiteX's ROM.
_COMPILER = r"""links=
case " $* " in *" -T "*) links=1;; esac
for each; do
  shift
  case $links$each in
    -march=rv32i*) set -- "$@" -mcpu=generic_rv32$(echo "${each#-march=rv32i}" | sed 's/^2p0_*//; s/./+&/g');;
    1-Wl,*) set -- "$@" $(echo "${each#-Wl,}" | tr , ' ');;
    1-[TNLol]*|1[!-]*) set -- "$@" "$each";;
    1*) ;;
    *) set -- "$@" "$each";;
  esac
done
if [ $links ]; then exec ZIG ld.lld "$@" -T "${0%/*}/discard.ld"; fi
exec ZIG cc -target riscv32-freestanding "$@"
"""


@contextmanager
def tools(folder: Path, *, for_risc_v: bool):
    """Put the tools of YoWASP on the PATH, with the names that LiteX knows, and with the options of ``rnic build``.

    YoWASP's tools do not read all absolute names; the sources are in the folder in which they run. What else is beside
    the Python interpreter is on the PATH, too. With ``for_risc_v``, so is a compiler: ``riscv-none-elf-gcc``, with
    ``-c`` to compile and ``-T`` to link.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here = Path(sys.executable).parent
    script = rf"hierarchy -top \2\nproc -norom\n{ABC9}\nsynth_ecp5 -nowidelut \1-top \2".replace("&", r"\&")
    edit = rf"s#$PWD/##g; s#^synth_ecp5 \(.*\)-top \([^ ]*\)#{script}#"
    before = {"yosys": f"for each; do case $each in *.ys) sed -i {_quoted(edit)} $each;; esac; done\n"}
    options = {name: f"{_GIVE_UP} --report {REPORT}" for name in _TOOLS if name.startswith("nextpnr-")}
    options["nextpnr-ecp5"] += f" {ECP5_TIMING}"
    scripts = {
        name: f'{before.get(name, "")}exec {here}/yowasp-{name} {options.get(name, "")} "$@"\n'
        for name in _TOOLS if (here / f"yowasp-{name}").exists()
    }  # fmt: skip
    changes = {"PATH": os.pathsep.join(map(str, (folder, here, os.environ["PATH"])))}
    if for_risc_v:
        scripts |= {f"{_TRIPLE}-{name}": text for name, text in _risc_v().items()}
        changes["LITEX_ENV_CC_TRIPLE"] = _TRIPLE
        (folder / "discard.ld").write_text("SECTIONS { /DISCARD/ : { *(.init_array) } }\n")
    for name, text in scripts.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}")
        (folder / name).chmod(0o755)
    kept = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise OSError(f"a tool has failed: {error}") from None
    finally:
        for name, value in kept.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _risc_v() -> dict[str, str]:
    """Return scripts with the names of GCC's tools. LiteX only shows what readelf says: without it, the sizes are 0."""
    zig = f"{shlex.quote(sys.executable)} -m ziglang"
    archive = f'exec {zig} ar "$@"\n'
    return {
        "gcc": _COMPILER.replace("ZIG", zig), "ar": archive, "gcc-ar": archive,
        "objcopy": f'exec {zig} objcopy "$@"\n', "readelf": 'exec readelf "$@"\n',
    }  # fmt: skip


def _quoted(text: str) -> str:
    """Return text for a shell, which replaces ``$PWD`` in it."""
    return '"' + re.sub(r'([\\"`])', r"\\\1", text) + '"'
