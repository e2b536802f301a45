"""``rnic doctor``: what this machine has, and how to get the rest."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from open_rnic.host_driver.tools.cli.common import CommandError


def doctor(
    part: Annotated[
        list[str] | None,
        typer.Argument(metavar="PART", help="Parts that must be there, such as siw; default: show all."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON.")] = False,
) -> None:
    """Show what this machine has and lacks, and how to get that.

    The parts are programs, boards, networks and kernel modules. With a PART, the exit status is 1 if it is missing.
    Nothing is changed, and nothing is sent.
    """
    from open_rnic.host_driver.tools.doctor import findings

    found = list(findings())
    if part:
        known = {each.part: each for each in found}
        for name in part:
            if name not in known:
                raise typer.BadParameter(f"{name!r} is not a part; there are {', '.join(known)}", param_hint="PART")
        found = [known[name] for name in dict.fromkeys(part)]
    if as_json:
        print(json.dumps([each.as_json() for each in found]))
    else:
        for each in found:
            print(f"{'ok     ' if each.there else 'missing'}  {each.part}: {each.detail}")
            print(f"         for {each.purpose}")
            if each.remedy:
                print(f"         {each.remedy}")
    if part and (gone := [each.part for each in found if not each.there]):
        raise CommandError(f"{' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} missing")
