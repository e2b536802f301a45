"""The register map in other formats: Markdown for readers, a C header and SystemRDL for drivers and tools."""

from __future__ import annotations

import re
from enum import IntEnum

from open_rnic.rtl.registers import MAP, VERSION, Access, Cause, Field, Register, Verdict

__all__ = ["bits", "c_header", "markdown", "systemrdl"]

# SystemRDL 2.0: software access (Table 10) and its side effects (Tables 11 to 13).
_RDL_ACCESS = {
    Access.RO: "sw = r; hw = w;",
    Access.RW: "sw = rw; hw = r;",
    Access.PULSE: "sw = rw; hw = r; singlepulse;",
    Access.CLEAR: "sw = rw; hw = rw; onwrite = woclr;",
}
_RDL_KEYWORDS = {"level"}  # field names that are keywords of SystemRDL (Table 3); a backslash escapes them


def bits(field: Field) -> str:
    """Return the position of a field in its register: ``7:0``, or ``3``."""
    high = field.lsb + field.width - 1
    return f"{high}:{field.lsb}" if field.width > 1 else f"{high}"


def markdown() -> str:
    """Return the register reference, ``docs/registers.md``."""
    lines = [
        "# Registers",
        "",
        "<!-- Made by `make docs` from rtl/registers.py: change it there. -->",
        "",
        "Registers are 32 bits wide, at multiples of 4. Bits that are not listed read zero, and writing them does",
        "nothing. Reading changes nothing, except that reading `EVENT` pops the event FIFO.",
        "",
        "Access: RO is read only; RW is read and written; a written one of PULSE acts once and reads zero; a written",
        "one of CLEAR clears the flag.",
    ]
    for register in MAP:
        lines += [
            "",
            f"## {register.name} (0x{register.address:03X})",
            "",
            register.doc,
            "",
            "| bits | field | access | reset | meaning |",
            "|---|---|---|---|---|",
        ]
        for field in register.fields:
            meaning = field.doc
            if field.enum is not None:
                meaning += ": " + ", ".join(f"{value.value} {value.name}" for value in field.enum)
            lines.append(f"| {bits(field)} | {field.name} | {field.access.name} | {field.reset:#x} | {meaning} |")
    return "\n".join(lines) + "\n"


def c_header() -> str:
    """Return a C header with addresses, masks and values.

    ``RNIC_REGISTER`` is a register's address in octets, and ``RNIC_REGISTER_AT_RESET`` its value after reset. The
    macros ``RNIC_GET`` and ``RNIC_PUT`` take a field as ``RNIC_REGISTER_FIELD``, to which they add ``_SHIFT`` and
    ``_MASK``.
    """
    lines = [
        "/* Registers of the MPA data path. Made by `rnic registers --c` from rtl/registers.py: change it there.",
        " * SPDX-License-Identifier: Apache-2.0 */",
        "#ifndef RNIC_REGISTERS_H",
        "#define RNIC_REGISTERS_H",
        "",
        "/* Access a field in a register's word: RNIC_GET(word, RNIC_STATE_TX). */",
        "#define RNIC_GET(word, field) (((word) & field##_MASK) >> field##_SHIFT)",
        "#define RNIC_PUT(value, field) (((value) << field##_SHIFT) & field##_MASK)",
        "",
        f"#define RNIC_MAP_VERSION 0x{VERSION:08x}u /* VERSION of the registers below */",
    ]
    for register in MAP:
        name = f"RNIC_{register.name}"
        lines += [
            "",
            f"/* {register.doc} */",
            f"#define {name} 0x{register.address:03x}u",
            f"#define {name}_AT_RESET 0x{register.reset:08x}u",
        ]
        for field in register.fields:
            lines += [
                f"#define {name}_{field.name.upper()}_SHIFT {field.lsb}",
                f"#define {name}_{field.name.upper()}_MASK 0x{field.mask:08x}u /* {field.access.name}: {field.doc} */",
            ]
    for kind in _enums():
        prefix = f"RNIC_{_snake(kind).upper()}"
        lines += ["", f"/* {_doc(kind)} */", f"enum rnic_{_snake(kind)} {{"]
        lines += [f"    {prefix}_{value.name} = {value.value}," for value in kind]
        lines += ["};"]
    return "\n".join([*lines, "", "#endif", ""])


def systemrdl() -> str:
    """Return the register map in SystemRDL 2.0 (Accellera), which PeakRDL and other tools read."""
    lines = [
        "// Registers of the MPA data path. Made by `rnic registers --systemrdl` from rtl/registers.py:",
        "// change it there. SPDX-License-Identifier: Apache-2.0",
    ]
    for kind in dict.fromkeys(field.enum for register in MAP for field in register.fields if field.enum):
        lines += ["", f"enum {_snake(kind)}_e {{"]
        lines += [f"    {value.name} = {value.value};" for value in kind]
        lines += ["};"]
    lines += [
        "",
        "addrmap rnic {",
        f'    name = "MPA data path, registers of version {VERSION >> 16}.{VERSION & 0xFFFF}";',
        "    littleendian; lsb0;",
        "    default regwidth = 32; default accesswidth = 32;",
    ]
    for register in MAP:
        # A read pops the FIFO, which SystemRDL has no property for.
        lines += ["", f"    {'external ' if register.pops else ''}reg {{", f"        desc = {_quoted(register.doc)};"]
        lines += [f"        {_rdl_field(register, field)}" for field in register.fields]
        lines += [f"    }} {register.name} @ 0x{register.address:03x};"]
    return "\n".join([*lines, "};", ""])


def _rdl_field(register: Register, field: Field) -> str:
    name = f"\\{field.name}" if field.name in _RDL_KEYWORDS else field.name
    properties = _RDL_ACCESS[field.access]
    if register.pops:
        properties += " onread = ruser;"
    if field.enum is not None:
        properties += f" encode = {_snake(field.enum)}_e;"
    high = field.lsb + field.width - 1
    return f"field {{ desc = {_quoted(field.doc)}; {properties} }} {name}[{high}:{field.lsb}] = {field.reset:#x};"


def _enums() -> list[type[IntEnum]]:
    """Return the enums of all fields, and two more that a driver needs: an event's cause, and a ULPDU's verdict."""
    found = [field.enum for register in MAP for field in register.fields if field.enum is not None]
    return list(dict.fromkeys([*found, Cause, Verdict]))


def _doc(kind: type[IntEnum]) -> str:
    return (kind.__doc__ or kind.__name__).splitlines()[0].replace("``", "`")


def _snake(kind: type[IntEnum]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
