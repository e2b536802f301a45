"""``rnic verilog``: the data path for other people's designs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.cli.common import LanesOption, UsageError, whole_number


def verilog(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - is standard output.")
    ],
    lanes: LanesOption = 4,
    event_depth: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="Entries of the event FIFO, 2 to 255.")
    ] = 16,
    store_and_forward: Annotated[
        int,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="Memory in which received ULPDUs wait for their verdict, a power of 2, and the longest ULPDU then; "
            "0: they do not wait.",
        ),
    ] = 0,
    name: Annotated[str, typer.Option(metavar="NAME", help="The module's name.")] = "mpa_datapath",
) -> None:
    """Write the data path as Verilog, with AXI4-Stream and AXI4-Lite ports.

    The same options give the same text. docs/verilog.md explains the ports.
    """
    from open_rnic.host_driver.sim.build import verilog as convert
    from open_rnic.rtl.axi import AxiMpaDatapath

    if not (name.isidentifier() and name.isascii()):
        raise UsageError(f"--name: {name!r} cannot be the name of a Verilog module")
    try:
        component = AxiMpaDatapath(lanes, event_depth=event_depth, store_and_forward=store_and_forward)
    except ValueError as error:
        raise UsageError(str(error)) from None
    if output == Path("-"):
        sys.stdout.write(convert(component, name))
        return
    with output.open("w") as file:  # opened first: a path that cannot be written is told of at once
        file.write(convert(component, name))
