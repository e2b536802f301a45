"""``rnic verilog``: the data path as Verilog, for use in other designs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.tools.cli.common import LanesOption, UsageError, whole_file, whole_number


def verilog(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")
    ],
    lanes: LanesOption = 4,
    event_depth: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="The depth of the event FIFO, 2 to 255.")
    ] = 16,
    store_and_forward: Annotated[
        int,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of a memory that holds a received ULPDU until its verdict is known: a power of 2, "
            "which also limits a ULPDU's length. 0: no memory.",
        ),
    ] = 0,
    measure: Annotated[
        int,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of a memory that measures the host's ULPDUs, so that s_axis_ulpdu needs no tuser: a "
            "power of 2. 0: no memory.",
        ),
    ] = 0,
    name: Annotated[str, typer.Option(metavar="NAME", help="The module's name.")] = "mpa_datapath",
) -> None:
    """Write the data path as Verilog, with AXI4-Stream and AXI4-Lite ports.

    The same options always give the same text. docs/verilog.md explains the ports.
    """
    from open_rnic.host_driver.tools import verilog as writer
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath

    options = {"lanes": lanes, "event_depth": event_depth, "store_and_forward": store_and_forward,
               "measure": measure}  # fmt: skip
    try:
        writer.check_name(name)
    except ValueError as error:
        raise UsageError(f"--name: {error}") from None
    with whole_file(output) as file:  # opened first: Amaranth warns about a component that is made but not used
        try:
            component = AxiMpaDatapath(**options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        file.write(writer.module(component, name, {key.replace("_", "-"): value for key, value in options.items()}))
