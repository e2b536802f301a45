"""``rnic demo``: one connection from its startup frames to its end, with a check that every octet arrived."""

from __future__ import annotations

import json
import re
import sys
from contextlib import nullcontext
from enum import StrEnum
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.boards import CONNECTIONS
from open_rnic.host_driver.device import AttachedDevice
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.common import (
    CommandError,
    DeviceOption,
    LanesOption,
    UsageError,
    interruptible,
    number,
    open_device,
)
from open_rnic.host_driver.tools.cli.figures import console, show_tables
from open_rnic.host_driver.tools.demo_network import Kind, Network
from open_rnic.rtl.registers import MAX_ULPDU, Model, Role, Rtr

if TYPE_CHECKING:
    from rich.progress import TaskID

    from open_rnic.host_driver.devices.names import DeviceName, Rnic
    from open_rnic.host_driver.tools.demo import Result

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SIZE = 8 << 20
_SIZE_WITH_WAVES = 16 << 10  # a waveform file has some 2,000 octets for each octet sent
_SIZE_OVER_RTL = 128 << 10  # TCP in simulated RTL: some 5 seconds
_SIZE_OF_A_BOARD, _SIZE_OF_A_SIMULATED_BOARD = 1 << 20, 16 << 10  # some 10 seconds, by their lines


_TCP = {Kind.TWIN: "Python", Kind.RTL: "simulated RTL"}


class ModelName(StrEnum):
    """The connection models of RFC 6581."""

    PEER_TO_PEER = "peer-to-peer"
    CLIENT_SERVER = "client-server"


class RtrName(StrEnum):
    """The RTR indications."""

    SEND = "send"
    WRITE = "write"
    READ = "read"


def octets(text: str | int) -> int:
    """Parse a number of octets, or of KiB, MiB or GiB with the suffix K, M or G."""
    match = re.fullmatch(r"(\d+)([KMG]?)", str(text).strip(), re.IGNORECASE)
    if not match:
        raise typer.BadParameter(f"{text!r} is not a number of octets, such as 100000, 64K or 4M")
    return int(match[1]) * _UNITS[match[2].upper()]


def demo(
    device: DeviceOption = "",
    lanes: LanesOption = 4,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="PATH", help="A file to send in both directions, instead of --size."),
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            "--size",
            metavar="N",
            parser=octets,
            help="The octets to send in each direction, without --file; default: 8M, 1M through boards, 128K with "
            "--transport rtl, and 16K with --waves or through simulated boards.",
        ),
    ] = None,
    model: Annotated[ModelName, typer.Option("--model", help="The connection model.")] = ModelName.PEER_TO_PEER,
    rtr: Annotated[RtrName, typer.Option("--rtr", help="The RTR of the peer-to-peer model.")] = RtrName.WRITE,
    markers: Annotated[bool, typer.Option("--markers/--no-markers", help="Markers in both directions.")] = True,
    crc: Annotated[bool, typer.Option("--crc/--no-crc", help="CRCs in both directions.")] = True,
    mulpdu: Annotated[
        int, number("--mulpdu", help="The longest ULPDU in octets; 0: as long as the TCP connection's segments allow.")
    ] = 0,
    connections: Annotated[
        int,
        number("--connections", help=f"The number of connections at once, 1 to {CONNECTIONS[-1]}."),
    ] = 1,
    port: Annotated[int, number("--port", help="The responder's TCP port; 0 lets the system choose.")] = 0,
    transport: Annotated[
        Kind,
        typer.Option(
            "--transport",
            help="The TCP of both ends: kernel, on loopback; or this project's, over Ethernet frames, in Python (twin) "
            "or simulated RTL (rtl). With rtl and the simulated device, TCP and MPA are one design, 1 lane wide.",
        ),
    ] = Kind.KERNEL,
    drop: Annotated[
        float, typer.Option("--drop", metavar="P", help="The probability that a frame is lost, without the kernel.")
    ] = 0.0,
    pcap: Annotated[
        Path | None,
        typer.Option("--pcap", metavar="FILE", help="Write a capture of the connection as pcapng, for Wireshark."),
    ] = None,
    waves: Annotated[
        Path | None,
        typer.Option("--waves", metavar="DIR", help="Write the waveforms of simulated devices to this folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object instead of text.")] = False,
) -> None:
    """Show one connection, and data both ways through two devices.

    The steps are shown one by one, such as startup frames and the RTR. Two endpoints in this process, each with its own
    device, connect over loopback, or with --transport over a frame pipe that can lose frames. --device takes two names
    separated by a comma for the initiator's device and the responder's.

    Of udp:ADDRESS or udp:sim:BOARD, the TCP and the RDMA engine are used: data goes from memory to memory. The peer of
    a single board is the software twin.

    Both endpoints send at the same time, and the received data is verified by its SHA-256. The default device is
    simulated, and for several --connections, a simulated ECPIX-5, of which one data path serves all of them.
    """
    from open_rnic.host_driver.ddp import DdpError
    from open_rnic.host_driver.devices import check_lanes, names
    from open_rnic.host_driver.mpa.fpdu import MIN_MULPDU
    from open_rnic.host_driver.tools import demo_boards
    from open_rnic.host_driver.tools.demo import Options, run
    from open_rnic.host_driver.tools.ladder import Ladder

    if mulpdu and not MIN_MULPDU <= mulpdu <= MAX_ULPDU:
        raise UsageError(f"--mulpdu must be {MIN_MULPDU} to {MAX_ULPDU} octets (RFC 5044 §4.5), not {mulpdu}")
    if not 0 <= port <= 65535:
        raise UsageError(f"--port must be 0 to 65535, not {port}")
    if not 0 <= drop < 1:
        raise UsageError(f"--drop must be from 0 to less than 1, not {drop}")
    if connections not in range(1, CONNECTIONS[-1] + 1):
        raise UsageError(f"--connections must be 1 to {CONNECTIONS[-1]}, not {connections}")
    if not device and connections > 1:
        device = f"udp:sim:ecpix5:{_enough(connections)}"
    device = device or "simulated"
    try:
        check_lanes(lanes)
        devices = [names.parse(name) for name in device.split(",", 1)]
    except ValueError as error:
        raise UsageError(str(error)) from None
    boards = _boards(devices, connections)
    simulated = bool(boards) and all(board is None or isinstance(board, names.SimulatedRnic) for board in boards)
    if boards and transport is not Kind.KERNEL:
        raise UsageError(f"{device} has TCP of its own: leave --transport {transport} out")
    if drop and transport is Kind.KERNEL and not simulated:
        raise UsageError("--drop needs --transport twin or rtl, or --device udp:sim:BOARD")
    if boards and (mulpdu or waves):
        raise UsageError(f"{'--mulpdu' if mulpdu else '--waves'} has no effect with {device}")
    if pcap and boards and not simulated:
        raise UsageError(f"--pcap has no frames of {device}: capture its cable")
    attached = transport is Kind.RTL and device == "simulated"
    if attached and waves:
        raise UsageError("--waves needs another --transport than rtl")
    options = Options(
        file=file,
        size=size if size is not None else _size(device, bool(waves), transport),
        port=port,
        markers=markers,
        crc=crc,
        model=Model[model.name],
        rtr=Rtr[rtr.name],
        mulpdu=mulpdu or None,
        pcap=pcap,
        connections=connections,
        network=Network(transport, drop, pcap, attached, boards),
    )
    ladder = Ladder((lambda _: None) if as_json else _print, width=console().width)
    ends = [str(board or "the software twin") for board in boards] or [str(each) for each in devices]
    if not as_json:
        lanes = 1 if attached else lanes
        width = "1 lane" if lanes == 1 else f"{lanes} lanes"
        what = f"a {device} device of {width}" if device in ("software", "simulated") else device
        both = f"each with {what}" if len(ends) == 1 else f"the initiator with {ends[0]}, the other with {ends[1]}"
        where = "on loopback" if transport is Kind.KERNEL else f"in {_TCP[transport]} over a frame pipe"
        if boards:
            where = "over a frame pipe" if simulated else "over the network"
        _print(f"Two endpoints over TCP {where}, {both}.\n")
    # Both ends open one after the other: the first is the initiator's.
    next_name = cycle((ends * 2)[: len(Role)])
    try:
        with _Bars() if sys.stderr.isatty() and not as_json else nullcontext() as bars:
            opener = AttachedDevice.open if attached else lambda: open_device(next(next_name), lanes, waves)
            work = demo_boards.run(options, ladder, bars) if boards else run(options, opener, ladder, bars)
            results = interruptible(work)
    except (ValueError, DdpError) as error:
        raise CommandError(str(error)) from None
    if as_json:
        shown = results[0].as_json() if connections == 1 else {"connections": [result.as_json() for result in results]}
        print(json.dumps({**shown, "ladder": [step.as_json() for step in ladder.steps]}))
    elif connections == 1:
        _show(*results)
    else:
        _show_all(results)
    for line in (line for result in results for line in result.differences()):
        raise CommandError(line)
    if not as_json:
        each = f" of each of {connections} connections" if connections > 1 else ""
        print(f"verified {results[0].initiator.sent} octets each way{each}")


def _enough(connections: int) -> int:
    """Return the fewest connections of a board with room for this many."""
    return int(next(size for size in CONNECTIONS if size >= connections))


def _boards(devices: list[DeviceName], connections: int) -> tuple[Rnic | None, ...]:
    """Return the boards of both ends, None for the software twin; nothing if there is no board."""
    from open_rnic.host_driver.devices import names

    if not any(isinstance(name, names.Rnic) for name in devices):
        return ()
    ends = devices if len(devices) == len(Role) else [names.parse("software"), *devices]
    boards = tuple(name if isinstance(name, names.Rnic) else None for name in ends)
    for name, board in zip(ends, boards, strict=True):
        if board is None and name.text != "software":
            raise UsageError(f"the peer of a board with TCP of its own is another one or software, not {name}")
        if isinstance(board, names.SimulatedRnic) and connections > board.connections:
            more = f"udp:sim:{board.board}:{_enough(connections)}"
            raise UsageError(f"{name} has room for {board.connections} of {connections} connections: --device {more}")
    if len({type(board) for board in boards if board}) > 1:
        raise UsageError(f"{' and '.join(map(str, ends))} have no common network")
    if isinstance(boards[0], names.UdpRnic) and boards[1] is None:
        raise UsageError(f"{ends[0]} can only be the responder of a peer in this machine: --device {ends[0]}")
    return boards


def _size(device: str, waves: bool, transport: Kind) -> int:
    if waves:
        return _SIZE_WITH_WAVES
    if transport is Kind.RTL:
        return _SIZE_OVER_RTL
    if "sim:" in device:
        return _SIZE_OF_A_SIMULATED_BOARD
    return _SIZE_OF_A_BOARD if "serial:" in device or "udp:" in device else _SIZE


def _print(line: str) -> None:
    print(line, flush=True)


def _show(result: Result) -> None:
    rate = min(end.received for end in (result.initiator, result.responder)) / max(result.seconds, 1e-9)
    caption = f"{result.seconds:.2f} s, {rate:,.0f} octets a second each way at once"
    headings = "", "initiator to responder", "responder to initiator"
    typer.echo()
    show_tables([Table("", headings, list(result.rows()), left=(0, 1, 2), caption=caption)])


def _show_all(results: list[Result]) -> None:
    seconds = max(result.seconds for result in results)
    octets = sum(end.received for result in results for end in (result.initiator, result.responder))
    headings = "initiator", "responder", "octets each way", "FPDUs", "CRC errors", "SHA-256 forth", "and back"
    rows = [
        (
            *(f"{end.address[0]}:{end.address[1]}" for end in ends),
            f"{result.initiator.sent:,}",
            " / ".join(f"{end.counters['TX_FPDUS']:,}" for end in ends),
            " / ".join(f"{end.counters['RX_CRC_ERRORS']:,}" for end in reversed(ends)),
            *(end.sha256_received[:16] for end in reversed(ends)),
        )
        for result in results
        for ends in [(result.initiator, result.responder)]
    ]
    caption = f"{seconds:.2f} s, {octets / max(seconds, 1e-9):,.0f} octets a second in all"
    typer.echo()
    show_tables([Table("", headings, rows, left=(0, 1, 5, 6), caption=caption)])


class _Bars:
    """Progress bars on standard error, one for each direction."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            redirect_stdout=sys.stdout.isatty(),  # a file must get what is printed
            transient=True,
        )
        self._bars: dict[Role, TaskID] = {}

    def __enter__(self) -> _Bars:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def began(self, role: Role, octets: int) -> None:
        """Show the bar of this end, which expects this many octets more."""
        self._progress.start()
        if role not in self._bars:
            self._bars[role] = self._progress.add_task(f"to the {role.name.lower()}", total=0)
        [bar] = [task for task in self._progress.tasks if task.id == self._bars[role]]
        self._progress.update(bar.id, total=(bar.total or 0) + octets)

    def moved(self, role: Role, octets: int) -> None:
        """Advance the bar of this end by this many octets."""
        self._progress.advance(self._bars[role], octets)
