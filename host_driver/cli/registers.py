"""``rnic registers``: the register map, for people."""

from __future__ import annotations

from typing import Annotated

import typer

from rtl.registers import MAP, Field


def registers(
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the whole reference as Markdown.")] = False,
) -> None:
    """Show the device's registers, from the one description that gateware and host share."""
    if markdown:
        typer.echo(_markdown(), nl=False)
        return

    from rich.console import Console
    from rich.table import Table

    table = Table()
    for heading in ("address", "register", "bits", "field", "access", "reset"):
        table.add_column(heading)
    for register in MAP:
        for index, field in enumerate(register.fields):
            place = ("", "") if index else (f"0x{register.address:03x}", register.name)
            table.add_row(*place, _bits(field), field.name, field.access.name, f"{field.reset:#x}")
    Console().print(table)


def _bits(field: Field) -> str:
    high = field.lsb + field.width - 1
    return f"{high}:{field.lsb}" if field.width > 1 else f"{high}"


def _markdown() -> str:
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
            lines.append(f"| {_bits(field)} | {field.name} | {field.access.name} | {field.reset:#x} | {meaning} |")
    return "\n".join(lines) + "\n"
