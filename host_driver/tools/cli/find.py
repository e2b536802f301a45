"""``rnic find``: lists the boards in the network."""

from __future__ import annotations

import asyncio
import json
from ipaddress import IPv4Address
from typing import Annotated

import typer

from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError
from open_rnic.host_driver.tools.cli.figures import show_tables


def find(
    interface: Annotated[
        list[str] | None,
        typer.Option("--interface", metavar="NAME", help="Ask in the network of this interface only; can be repeated."),
    ] = None,
    address: Annotated[
        list[str] | None,
        typer.Option("--address", metavar="ADDRESS", help="Ask at this address, of a board or of a whole network."),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", metavar="S", help="The time for answers.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """List the boards in the networks of this machine.

    Those that are RNICs answer a broadcast. No board carries anything out, and no host loses a board. A board is in use
    if it has had a host since it started.
    """
    from open_rnic.host_driver.devices.udp import finding
    from open_rnic.rtl.host_link.protocol import VERSION

    if not 0 < seconds <= 60:
        raise UsageError(f"--seconds must be more than 0, and at most 60, not {seconds:g}")
    known = finding.interfaces()
    places = []
    for name in interface or ([] if address else known):
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "there is none"
            raise UsageError(f"--interface {name}: no interface with an IPv4 address has this name; {there}")
        places.append(known[name].network.broadcast_address)
    for text in address or ():
        try:
            places.append(IPv4Address(text))
        except ValueError:
            raise UsageError(f"--address {text}: not an IPv4 address") from None
    if not places:
        raise CommandError("this machine has no network interface with an IPv4 address")
    try:
        found = asyncio.run(finding.find(places, seconds=seconds))
    except OSError as error:
        raise CommandError(f"no request can be sent to {', '.join(map(str, places))}: {error.strerror}") from None
    if as_json:
        print(json.dumps([
            {"address": str(each.address), "mac": each.mac, "in_use": each.used, "link_version": each.version}
            for each in found
        ]))  # fmt: skip
    if not found:
        raise CommandError(f"no board has answered from {', '.join(map(str, places))} within {seconds:g} s")
    if as_json:
        return
    rows = [
        (
            str(each.address),
            each.mac or "unknown",
            "in use" if each.used else "free",
            "" if each.version == VERSION else f"speaks version {each.version} of the link, this program {VERSION}",
        )
        for each in found
    ]
    show_tables([Table("", ("address", "MAC", "use", ""), rows, left=(0, 1, 2, 3))])
