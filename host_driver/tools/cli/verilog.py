"""``rnic verilog``: the data path as Verilog, for use in other designs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.tools.cli.common import LanesOption, UsageError, whole_file, whole_number

STORE = 4096  # octets for received ULPDUs, if the engine needs them and no other number is given


class Part(StrEnum):
    """What can be added to the data path."""

    RDMA = "rdma"


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
            f"which also limits a ULPDU's length. 0: no memory; with --with rdma {STORE}.",
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
    parts: Annotated[
        list[Part] | None,
        typer.Option(
            "--with", help="rdma: add the RDMA engine and the sample writer, with an AXI4 port for their memory."
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of a sample: a power of 2, at most 4 * N; default: 4.",
        ),
    ] = None,
    sample_buffer: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of the memory in which samples wait: a power of 2, room for 4 RDMA Writes; default: 4096.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The module's name; by default mpa_datapath, or rdma_datapath."),
    ] = None,
) -> None:
    """Write the data path as Verilog, with AXI4-Stream and AXI4-Lite ports, and AXI4 for the memory of an RDMA engine.

    The same options always give the same text. docs/verilog.md explains the ports.
    """
    from open_rnic.host_driver.tools import verilog as writer
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath
    from open_rnic.rtl.rdma.axi import AxiRdmaDatapath

    options = {"lanes": lanes, "event_depth": event_depth, "store_and_forward": store_and_forward,
               "measure": measure}  # fmt: skip
    chosen = {"with": Part.RDMA.value} if parts else {}
    if chosen:
        options |= {
            "store_and_forward": store_and_forward or STORE,
            "sample": 4 if sample is None else sample,
            "sample_buffer": 4096 if sample_buffer is None else sample_buffer,
        }
    else:
        for option, value in {"--sample": sample, "--sample-buffer": sample_buffer}.items():
            if value is not None:
                raise UsageError(f"{option} {value} is for --with rdma")
    top = AxiRdmaDatapath if chosen else AxiMpaDatapath
    name = ("rdma_datapath" if chosen else "mpa_datapath") if name is None else name
    try:
        writer.check_name(name)
    except ValueError as error:
        raise UsageError(f"--name: {error}") from None
    with whole_file(output) as file:  # opened first: Amaranth warns about a component that is made but not used
        try:
            component = top(**options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        given = {key.replace("_", "-"): str(value) for key, value in options.items()}
        file.write(writer.module(component, name, chosen | given))
