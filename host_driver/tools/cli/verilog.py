# amaranth: UnusedElaboratable=no
"""``rnic verilog``: the data path, or the whole RNIC, as Verilog, for use in other designs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from open_rnic.host_driver.tools.cli.build import ADDRESS, AddressOption
from open_rnic.host_driver.tools.cli.common import CommandError, LanesOption, UsageError, whole_file, whole_number
from open_rnic.rtl.formats.memory_bus import MemoryBus
from open_rnic.rtl.rdma.fabric import Fabric

STORE = 4096  # octets for received ULPDUs, if the engine needs them and no other number is given


class Part(StrEnum):
    """What can be added to the data path: an engine, or all of an RNIC."""

    RDMA = "rdma"
    RNIC = "rnic"


class RegisterBus(StrEnum):
    """The bus on which the registers of an RNIC are, beside UDP and a UART."""

    NONE = "none"
    AXI4_LITE = "axi4-lite"


_DATAPATH = {"lanes": 4, "event_depth": 16, "store_and_forward": 0, "measure": 0}
_DEFAULTS: dict[Part | None, dict[str, Any]] = {
    None: _DATAPATH,
    Part.RDMA: _DATAPATH | {"sample": 4, "sample_buffer": 4096},
    Part.RNIC: {
        "connections": 1, "ring": 1 << 14, "memory": 1 << 20, "memory_bus": MemoryBus.AXI4, "memory_bits": 32,
        "register_bus": RegisterBus.NONE, "fabric": Fabric.SAMPLES, "clock": 50_000_000, "baud": 1_000_000,
        "octet_cycles": 1, "address": ADDRESS,
    },
}  # fmt: skip


def verilog(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file to write; - is standard output.")
    ],
    lanes: LanesOption | None = None,
    event_depth: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number, help="The depth of the event FIFO, 2 to 255; default: 16."),
    ] = None,
    store_and_forward: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of a memory that holds a received ULPDU until its verdict is known: a power of 2, "
            f"which also limits a ULPDU's length. 0: no memory; with --with rdma {STORE}.",
        ),
    ] = None,
    measure: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS",
            parser=whole_number,
            help="The size of a memory that measures the host's ULPDUs, so that s_axis_ulpdu needs no tuser: a "
            "power of 2. 0: no memory.",
        ),
    ] = None,
    parts: Annotated[
        list[Part] | None,
        typer.Option(
            "--with",
            help="rdma: add the RDMA engine and the sample writer, with an AXI4 port for their memory. rnic: the whole "
            "RNIC with its Ethernet MAC, of one lane, with its memory on AXI4 or Wishbone, at LiteDRAM, or inside.",
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
        typer.Option(metavar="NAME", help="The module's name; by default mpa_datapath, rdma_datapath or rnic."),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number, help="Of the RNIC: the number of connections; default: 1."),
    ] = None,
    ring: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS", parser=whole_number,
            help="Of the RNIC: the size of each of a connection's two rings for TCP, a power of 2; default: 16384.",
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="OCTETS", parser=whole_number,
            help="Of the RNIC: the size of its memory, a power of 2; default: 1048576.",
        ),
    ] = None,
    memory_bus: Annotated[
        MemoryBus | None,
        typer.Option(
            help="Of the RNIC: the bus on which its memory is, two ports of LiteDRAM, or none for block RAM; "
            "default: axi4."
        ),
    ] = None,
    memory_bits: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number,
            help="Of the RNIC: the width of a word at ports of LiteDRAM, 32, 64 or another power of 2; default: 32.",
        ),
    ] = None,
    register_bus: Annotated[
        RegisterBus | None,
        typer.Option(help="Of the RNIC: the bus on which its registers are, beside UDP and the UART; default: none."),
    ] = None,
    fabric: Annotated[
        Fabric | None,
        typer.Option(
            help="Of the RNIC: the logic beside its engine, a sample writer with samples of a port or of a generator, "
            "or a port for work; default: samples."
        ),
    ] = None,
    clock: Annotated[
        int | None,
        typer.Option(metavar="HZ", parser=whole_number, help="Of the RNIC: the frequency of clk; default: 50000000."),
    ] = None,
    baud: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number, help="Of the RNIC: the UART's baud rate; default: 1000000."),
    ] = None,
    octet_cycles: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number,
            help="Of the RNIC: cycles of tx_clk in an octet on the wire, 2 behind MII; default: 1.",
        ),
    ] = None,
    address: AddressOption = None,
) -> None:
    """Write the data path, or the whole RNIC, as Verilog.

    The ports are AXI4-Stream and AXI4-Lite, and AXI4 for memory. The same options always give the same text.
    docs/verilog.md explains the ports.
    """
    from open_rnic.host_driver.devices.sim.build import BuildError
    from open_rnic.host_driver.lib.optional_packages import need
    from open_rnic.host_driver.tools import verilog as writer
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath
    from open_rnic.rtl.rdma.axi import AxiRdmaDatapath
    from open_rnic.rtl.rnic.plain_rnic import PlainRnic

    part = parts[-1] if parts else None
    given = {
        "lanes": lanes, "event_depth": event_depth, "store_and_forward": store_and_forward, "measure": measure,
        "sample": sample, "sample_buffer": sample_buffer, "connections": connections, "ring": ring, "memory": memory,
        "memory_bus": memory_bus, "memory_bits": memory_bits, "register_bus": register_bus,
        "fabric": fabric, "clock": clock, "baud": baud, "octet_cycles": octet_cycles, "address": address,
    }  # fmt: skip
    defaults = _DEFAULTS[part]
    for option, value in given.items():
        if value is not None and option not in defaults:
            home = next(each for each, options in _DEFAULTS.items() if option in options)
            wanted = f"for --with {home}" if home else f"not for --with {part}"
            raise UsageError(f"--{option.replace('_', '-')} {value} is {wanted}")
    options = {option: value if given[option] is None else given[option] for option, value in defaults.items()}
    if part is Part.RDMA:
        options["store_and_forward"] = options["store_and_forward"] or STORE
    top, usual = {
        None: (AxiMpaDatapath, "mpa_datapath"),
        Part.RDMA: (AxiRdmaDatapath, "rdma_datapath"),
        Part.RNIC: (lambda clock, address, register_bus, **rest: PlainRnic(
            clock_hz=clock, station=address.station, registers=register_bus is RegisterBus.AXI4_LITE, **rest
        ), "rnic"),
    }[part]
    name = usual if name is None else name
    try:
        writer.check_name(name)
    except ValueError as error:
        raise UsageError(f"--name: {error}") from None
    need("sim")
    with whole_file(output) as file:  # opened first: Amaranth warns about a component that is made but not used
        try:
            component = top(**options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        chosen = {"with": part.value} if part else {}
        written = {key.replace("_", "-"): str(value) for key, value in options.items()}
        try:
            file.write(writer.module(component, name, chosen | written))
        except BuildError as error:
            raise CommandError(str(error)) from None
