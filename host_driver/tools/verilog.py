"""The data path as Verilog for other designs: the output of Yosys, with a readable interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from open_rnic.host_driver.devices.sim.build import verilog
from open_rnic.rtl.formats.memory_bus import MemoryBus
from open_rnic.rtl.lib.ports import named_ports

__all__ = ["check_name", "module", "ports"]

_BUSES: Mapping[str, str] = {
    MemoryBus.AXI4: "AXI4", MemoryBus.WISHBONE: "Wishbone", MemoryBus.LITEDRAM: "LiteDRAM's native",
}  # fmt: skip
# Verilator's style warnings for generated expressions, which are disabled in the file.
_LINT = ("WIDTH", "CASEOVERLAP", "CMPCONST", "UNSIGNED")


def check_name(name: str) -> None:
    """Raise ValueError if ``name`` is not a simple identifier of Verilog, or is a keyword of SystemVerilog."""
    from pygments.lexers.hdl import SystemVerilogLexer
    from pygments.token import Token

    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise ValueError(f"{name!r} is not an identifier of Verilog: use letters, digits and _, and no digit first")
    if next(SystemVerilogLexer().get_tokens(name)) != (Token.Name, name):
        raise ValueError(f"{name!r} is a keyword of SystemVerilog")


def module(component: Any, name: str, options: Mapping[str, str]) -> str:
    """Return ``component`` as Verilog module ``name``: a header with its origin, and ports in the signature's order.

    ``options`` are the options of ``rnic verilog`` that made the component, by their long names. Raises ValueError if
    :func:`check_name` rejects ``name``, and :class:`.BuildError` if Yosys fails.
    """
    check_name(name)
    text = verilog(component, name)
    # The first line that Yosys writes names the machine on which Yosys was built.
    generator, _, text = text.partition("\n")
    yosys = re.search(r"Yosys \S+", generator)
    chosen = " ".join(f"--{key} {value}" for key, value in options.items())
    part = options.get("with")
    what = ("Ethernet, TCP, " if part == "rnic" else "") + "MPA (RFC 5044, RFC 6581)"
    what += ", DDP (RFC 5041) and RDMAP (RFC 5040)" * (part is not None)
    number = options.get("connections", "1")
    users = "one connection" if number == "1" else f"{number} connections"
    has_registers = part != "rnic" or options.get("register-bus") == "axi4-lite"
    streams = "AXI4-Stream and AXI4-Lite" if has_registers else "AXI4-Stream"
    bus = options.get("memory-bus", MemoryBus.AXI4)
    buses = f"{_BUSES[bus]}{',' if has_registers else ' and'} {streams}" if part and bus in _BUSES else streams
    header = f"""\
// SPDX-License-Identifier: Apache-2.0
//
// Open RNIC {version("open-rnic")}: {what} for {users}, {name} with
// {buses} ports. docs/verilog.md and docs/registers.md of Open RNIC describe them.
//
// Generated, with Amaranth {version("amaranth")} and {yosys[0] if yosys else "Yosys"}, by
//   rnic verilog {chosen} --name {name}

"""
    off, on = ("".join(f"// verilator lint_{each} {kind}\n" for kind in _LINT) for each in ("off", "on"))
    return f"{header}{off}{_interface(text, name, ports(component))}{on}"


def ports(component: Any) -> list[str]:
    """Return the names of the ports of the module that :func:`module` writes, in their order."""
    return ["clk", "rst", *named_ports(component)]


def _interface(text: str, name: str, ports: list[str]) -> str:
    """Move the port declarations into the module's head, one per line and in this order."""
    found = re.search(rf"^module {name}\([^)]*\);\n(.*?)^endmodule", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ValueError(f"Yosys did not write module {name}")
    body = found[1]
    declared = {}
    for port in re.finditer(
        r"^  (input|output)( \[\d+:0\])? (\w+);\n  (wire|reg)(?: \[\d+:0\])? \3( = [^;]+)?;\n", body, re.MULTILINE
    ):
        direction, bits, word, kind, reset = port.groups(default="")
        declared[word] = f"  {direction:6} {kind:4} {bits.strip():>7} {word}{reset}"
        body = body.replace(port[0], "", 1)
    if sorted(declared) != sorted(ports):
        raise ValueError(f"the ports of {name} are {sorted(declared)}, not {sorted(ports)}")
    head = f"module {name} (\n" + ",\n".join(declared[port] for port in ports) + "\n);\n"
    return text[: found.start()] + head + body + text[found.end(1) :]
