"""``rnic inspect``: the Ethernet port of a board, also of one that the network does not reach."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from open_rnic.host_driver.tools.cli.common import CommandError, UsageError, interruptible
from open_rnic.rtl.mac.registers import LinkSource

if TYPE_CHECKING:
    from open_rnic.host_driver.devices.udp.inspection import Inspection, Link
    from open_rnic.host_driver.devices.udp.rnic import UdpRnic

_LATENCY = 0.1  # seconds that a serial adapter and the system may take


def inspect(
    device: Annotated[
        str,
        typer.Argument(
            metavar="DEVICE",
            help="udp:ADDRESS[:PORT], serial:PORT[:BAUD] (the UART of a whole RNIC), or udp:sim:BOARD.",
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show the state of a board's Ethernet port.

    It has the link, the PHYs that answer, the addresses, and the counters of frames.

    It takes the board over: a program that operates it ends with an error. The board's connections go on without it,
    until the next program opens the board and aborts them.
    """
    found = interruptible(_inspect(device))
    if as_json:
        print(json.dumps(asdict(found) | {"mac": found.mac.hex(":"), "source": found.source.name.lower()}, default=str))
        return
    for name, text in _lines(found):
        print(f"{name:<15} {text}")


def _lines(found: Inspection) -> Iterator[tuple[str, str]]:
    """Return the names and values that are shown."""
    gateway = f", gateway {found.gateway}" if int(found.gateway) else ""
    yield "address", f"{found.address}, MAC {found.mac.hex(':')}{gateway}"
    yield "link", f"{_state(found.link)}; frames {'pass' if found.running else 'do not pass'}"
    match found.source:
        case LinkSource.MDIO:
            answers = "" if found.phy_answers else ", which does not answer"
            yield "reported by", f"MDIO, by the PHY at {found.phy}{answers}"
        case LinkSource.IN_BAND:
            yield "reported by", "RGMII, between frames"
        case _:
            yield "reported by", "nothing: it is fixed"
    if found.in_band:
        yield "in band", _state(found.in_band)
    for phy in found.phys:
        link = "up" if phy.link else "down"
        yield f"PHY at {phy.address}", f"identifier {phy.identifier:08x}, link {link}"
    if not found.phys:
        yield "PHYs", "none answers on MDIO"
    for name, count in found.counters.items():
        yield name, f"{count:,}"
    for name, count in found.discarded.items():
        yield f"path {name}", f"{count:,}"


def _state(link: Link) -> str:
    return f"up, {link.speed} Mb/s, {'full' if link.full_duplex else 'half'} duplex" if link.up else "down"


async def _inspect(device: str) -> Inspection:
    from open_rnic.host_driver.devices.udp.inspection import inspect

    async with _opened(device) as rnic:
        return await inspect(rnic)


@contextlib.asynccontextmanager
async def _opened(device: str) -> AsyncIterator[UdpRnic]:
    """Yield the RNIC, whose connections go on. Raises UsageError for another device."""
    from open_rnic.host_driver.devices import names
    from open_rnic.host_driver.devices.serial.device import BITS
    from open_rnic.host_driver.devices.serial.exchange import NoAnswerError
    from open_rnic.host_driver.devices.udp import endpoint
    from open_rnic.host_driver.devices.udp.datagrams import Datagrams, KernelDatagrams
    from open_rnic.host_driver.devices.udp.rnic import LATENCY, PACE, UdpRnic
    from open_rnic.host_driver.devices.udp.serial_way import SerialWay

    way: Datagrams
    try:
        match names.parse(device):
            case names.SimulatedRnic(place=place):
                async with endpoint.simulated(place) as board:
                    yield board.rnic
                return
            case names.UdpRnic(address=address, port=number):
                way, pace, latency = await KernelDatagrams.open(str(address), number), PACE, LATENCY
            case names.SerialPort(port=port, baud=baud):
                way, pace, latency = SerialWay(port, baud), BITS / baud, _LATENCY
            case name:
                forms = "udp:ADDRESS[:PORT], serial:PORT[:BAUD] or udp:sim:BOARD"
                raise ValueError(f"a whole RNIC is {forms}, not {name}")
    except ValueError as error:
        raise UsageError(str(error)) from None
    rnic = UdpRnic(way, pace=pace, latency=latency)
    try:
        yield rnic
    except NoAnswerError:
        trouble = f" ({way.trouble})" if way.trouble else ""
        raise CommandError(f"{way.place}: no answer{trouble}: is it a board that is programmed with an RNIC?") from None
    finally:
        await rnic.close()
