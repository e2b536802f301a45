"""Builds a target of litex-boards with an RNIC behind its Ethernet port."""

import inspect
import os
import re
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from litex.soc.integration.builder import Builder
from litex.soc.integration.soc_core import soc_core_argdict, soc_core_args

from open_rnic.boards.flows import ABC9, ECP5_TIMING
from open_rnic.boards.litex import SdramStart, add_rnic

__all__ = ["build", "make"]

#: Platforms that share a target with others, and the parameters by which the target knows which one it is.
_SHARED = {
    "colorlight_5a_75b": ("colorlight_5a_75x", {"board": "5a-75b"}),
    "colorlight_5a_75e": ("colorlight_5a_75x", {"board": "5a-75e"}),
    "colorlight_i5a_907": ("colorlight_5a_75x", {"board": "i5a-907"}),
}
_DEFAULTS = {"revision": "7.0", "sys_clk_freq": 50e6}  # of targets that have such a parameter
_TOOLS = "yosys", "nextpnr-ecp5", "nextpnr-ice40", "nextpnr-himbaechel", "ecppack", "icepack"


def make(board: str, *, cpu_type: str | None, folder: Path, given: Mapping[str, object], rnic: Mapping[str, object],
         soc_options: Sequence[str] = ()):  # fmt: skip
    """Return the SoC of a target, with Ethernet, whose LiteEth MAC gives place to an RNIC.

    ``given`` are parameters of the target's ``BaseSoC``, ``rnic`` those of :func:`.add_rnic`, ``soc_options`` are
    options of LiteX's ``soc_core_args``. Raises ValueError if the target cannot have an RNIC.
    """
    target, shared = _SHARED.get(board, (board, {}))
    try:
        base = import_module(f"litex_boards.targets.{target}").BaseSoC
    except ModuleNotFoundError as error:
        if error.name != f"litex_boards.targets.{target}":
            raise
        raise ValueError(f"litex-boards has no target {board!r}") from None
    known = inspect.signature(base.__init__).parameters
    if "with_ethernet" not in known:
        raise ValueError(f"the target {board} has no Ethernet")
    for name in given:
        if name not in known:
            raise ValueError(f"the target {board} has no parameter {name!r}")

    class Soc(base):
        rnic_phy = sdram_phy = sdram_module = None

        def add_ethernet(self, name="ethmac", phy=None, **_):
            self.rnic_phy = phy

        def add_sdram(self, name="sdram", phy=None, module=None, **options):
            self.sdram_phy, self.sdram_module = phy, module
            super().add_sdram(name, phy, module, **options)

    parser = ArgumentParser()
    soc_core_args(parser)
    alone = ["--no-uart", "--no-timer"] if cpu_type is None else []
    options = soc_core_argdict(parser.parse_args([f"--cpu-type={cpu_type}", *alone, *soc_options]))
    soc = Soc(**{**options, **{name: each for name, each in _DEFAULTS.items() if name in known}, **shared,
                 "with_ethernet": True, **given})  # fmt: skip
    if soc.rnic_phy is None:
        raise ValueError(f"the target {board} has added no PHY of LiteEth")
    added = add_rnic(soc, soc.rnic_phy, folder=folder, **rnic)
    added.add_milliseconds(soc.sys_clk_freq)
    if cpu_type is None and soc.sdram_module is not None:
        start = SdramStart(soc.sdram, soc.sdram_phy.settings, soc.sdram_module.timing_settings)
        soc.add_module(name="sdram_start", module=start)
        soc.comb += added.hold.eq(~start.done)
    return soc


def build(soc, folder: Path, *, run: bool) -> None:
    """Write the SoC's files, and with ``run`` a bitstream; raises OSError if a tool fails.

    The tools are those of YoWASP beside the Python interpreter, if they are there.
    """
    builder = Builder(soc, output_dir=str(folder), compile_software=soc.cpu_type is not None)
    with _tools(folder / "tools"):
        builder.build(run=run)


@contextmanager
def _tools(folder: Path):
    """Put the tools of YoWASP on the PATH, with the names that LiteX knows, and with the options of ``rnic build``.

    YoWASP's tools do not read all absolute names; the sources are in the folder in which they run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    script = rf"hierarchy -top \2\nproc -norom\n{ABC9}\nsynth_ecp5 -nowidelut \1-top \2".replace("&", r"\&")
    edit = rf"s#$PWD/##g; s#^synth_ecp5 \(.*\)-top \([^ ]*\)#{script}#"
    before = {"yosys": f"for each; do case $each in *.ys) sed -i {_quoted(edit)} $each;; esac; done\n"}
    options = {"nextpnr-ecp5": ECP5_TIMING}
    for name in _TOOLS:
        if (tool := Path(sys.executable).parent / f"yowasp-{name}").exists():
            wrapper = folder.resolve() / name
            wrapper.write_text(f'#!/bin/sh\n{before.get(name, "")}exec {tool} {options.get(name, "")} "$@"\n')
            wrapper.chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{folder.resolve()}{os.pathsep}{path}"
    try:
        yield
    except subprocess.CalledProcessError as error:
        raise OSError(f"a tool has failed: {error}") from None
    finally:
        os.environ["PATH"] = path


def _quoted(text: str) -> str:
    """Return text for a shell, which replaces ``$PWD`` in it."""
    return '"' + re.sub(r'([\\"`])', r"\\\1", text) + '"'
