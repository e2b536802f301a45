"""``rnic registers``: the register map, for people, for C and for tools."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from open_rnic.host_driver.tools import describe
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.common import UsageError
from open_rnic.host_driver.tools.cli.figures import show_tables


class PageName(StrEnum):
    """The pages of registers."""

    MPA = "mpa"
    TCP = "tcp"
    MAC = "mac"
    RDMA = "rdma"
    SAMPLES = "samples"
    SIGNAL = "signal"
    RNIC = "rnic"
    STREAMS = "streams"


def registers(
    page: Annotated[
        PageName,
        typer.Option(
            "--page",
            help="mpa: those of a data path; tcp: those of addresses and connections; mac: those of the Ethernet "
            "port; rdma: those of the RDMA engine; samples: those of the sample writer; signal: those of the signal "
            "generator; rnic: those of a whole RNIC; streams: those of its ULPDUs and stream octets.",
        ),
    ] = PageName.MPA,
    markdown: Annotated[bool, typer.Option("--markdown", help="Write the whole reference as Markdown.")] = False,
    c: Annotated[bool, typer.Option("--c", help="Write a C header.")] = False,
    systemrdl: Annotated[bool, typer.Option("--systemrdl", help="Write SystemRDL 2.0, as PeakRDL reads it.")] = False,
) -> None:
    """Show the device's registers, or write them for other tools.

    They come from the one description that gateware and host share.
    """
    asked = [(markdown, describe.markdown), (c, describe.c_header), (systemrdl, describe.systemrdl)]
    match [write for wanted, write in asked if wanted]:
        case []:
            _show(describe.PAGES[page])
        case [write]:
            typer.echo(write(describe.PAGES[page]), nl=False)
        case _:
            raise UsageError("only one of --markdown, --c and --systemrdl can be given")


def _show(page: describe.Page) -> None:
    rows = []
    for register in page.registers:
        for index, field in enumerate(register.fields):
            place = ("", "") if index else (f"0x{register.address:03x}", register.name)
            rows.append((*place, describe.bits(field), field.name, field.access.name, f"{field.reset:#x}"))
    headings = "address", "register", "bits", "field", "access", "reset"
    show_tables([Table("", headings, rows, left=range(len(headings)))])
