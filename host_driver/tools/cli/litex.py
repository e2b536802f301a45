"""``rnic litex``: a SoC of LiteX with an RNIC for a board of litex-boards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.build import ADDRESS, AddressOption, clock_text, show_cells
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, whole_number


def litex(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="A target or platform of litex-boards with Ethernet.")],
    build: Annotated[bool, typer.Option("--build", help="Build the bitstream, not only the files for it.")] = False,
    cpu_type: Annotated[
        str, typer.Option("--cpu-type", metavar="NAME", help="The SoC's CPU, such as vexriscv; None: it has none.")
    ] = "None",
    connections: Annotated[
        int, typer.Option(metavar="N", parser=whole_number, help="The number of connections of the RNIC.")
    ] = 1,
    ring: Annotated[
        int,
        typer.Option(
            metavar="OCTETS", parser=whole_number,
            help="The size of each of a connection's two rings for TCP, in block RAM: a power of 2.",
        ),
    ] = 1 << 14,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS", parser=whole_number,
            help="How much of the main memory peers reach, a power of 2; default: as much as is there.",
        ),
    ] = None,
    address: AddressOption = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A parameter of the target's BaseSoC, such as revision=8.0."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The folder to build in; default: build/litex/BOARD.")
    ] = None,
) -> None:
    """Make a SoC of LiteX whose main memory peers reach by RDMA.

    The RNIC stands in the place of LiteEth's MAC. docs/litex.md explains the SoC. LiteX, with the tools that it needs,
    is the extra "litex".
    """
    need("litex")
    if cpu_type != "None":
        need("cpu")
    from open_rnic.boards.litex.build import build as build_soc
    from open_rnic.boards.litex.build import make
    from open_rnic.host_driver.devices.sim.build import BuildError

    folder = out or Path("build/litex") / board
    for each in settings or []:
        if "=" not in each:
            raise UsageError(f"--set takes NAME=VALUE, not {each!r}")
    try:
        soc = make(
            board, cpu_type=None if cpu_type == "None" else cpu_type, folder=folder / "gateware",
            given=dict(each.split("=", 1) for each in settings or []),
            rnic={"connections": connections, "ring": ring, "memory": memory, "address": str(address or ADDRESS)},
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error)) from None
    except (ImportError, BuildError) as error:
        raise CommandError(f"{board}: {error}") from None
    try:
        report = build_soc(soc, folder, run=build)
    except OSError as error:
        raise CommandError(f"{board}: {error}") from None
    if report:
        show_cells(report.cells)
        for name, each in report.clocks.items():
            typer.echo(f"clock {name}: {clock_text(*each)}")
        if report.slow:
            raise CommandError(f"{board}: too slow: {', '.join(report.slow)}")
    elif build:
        typer.echo("no report of nextpnr to read cells and clocks from: see those of the tool for this FPGA")
    main = soc.bus.regions.get("main_ram")
    place = f", from {main.origin:#x} on" if main else ""
    typer.echo(f"peers reach {soc.rnic.memory} octets of the main memory{place}")
    typer.echo(f"files: {folder / 'gateware'}")
    typer.echo(f"then, at a PC in its network: rnic inspect udp:{(address or ADDRESS).address.ip}")
