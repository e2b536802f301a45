"""``rnic program``: loads a bitstream into a board."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Annotated

import typer

from open_rnic.host_driver.lib.optional_packages import need
from open_rnic.host_driver.tools.cli.boards import CoreOption, folder
from open_rnic.host_driver.tools.cli.common import CommandError, UsageError

# Messages of openFPGALoader and its libraries, and the explanation for the user.
_KNOWN = (
    (("permission", "access denied", "libusb_error_access", "unable to claim"),
     "no permission to use the USB cable: `rnic doctor 'udev rules'` says how to get it"),
    (("device not found", "unable to open ftdi", "no device", "not found", "cable not", "fail to open", "no dfu"),
     "no board found: is it connected and powered?"),
)  # fmt: skip


def program(
    board: Annotated[str, typer.Argument(metavar="BOARD", help="A board that `rnic boards` lists.")],
    core: CoreOption = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="The folder of the build; default: that of `rnic build`."),
    ] = None,
    flash: Annotated[
        bool, typer.Option("--flash", help="Write the bitstream to the flash, which keeps it without power.")
    ] = False,
    cable: Annotated[
        str | None, typer.Option(metavar="NAME", help="openFPGALoader's name of the JTAG cable; default: the board's.")
    ] = None,
) -> None:
    """Load the bitstream of `rnic build BOARD`, by openFPGALoader."""
    need("boards")
    from open_rnic.boards import find
    from open_rnic.boards.build import bitstream

    try:
        chosen = find(board)
    except ValueError as error:
        raise UsageError(str(error)) from None
    core = core or chosen.core
    made = bitstream(board, out or folder(chosen, core))
    if not made.exists():
        command = f"rnic build {board}" + (f" --core {core}" if core is not chosen.core else "")
        raise CommandError(f"{board}: {made} does not exist: run `{command}` first")
    loader = shutil.which("openFPGALoader")
    if loader is None:
        raise CommandError("openFPGALoader is not installed: Debian's package is openfpgaloader")
    arguments = [
        loader,
        *(chosen.loader if cable is None else ("--cable", cable)),
        *(["--write-flash"] if flash else []),
    ]
    try:
        done = subprocess.run([*arguments, str(made)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError as error:
        raise CommandError(f"{loader}: {error.strerror}") from None
    said = done.stdout.decode(errors="replace").strip()
    if done.returncode:
        raise CommandError(f"{board}: {_meaning(said)}")
    typer.echo(f"{board}: {made} is loaded{' into flash' if flash else ''}")


def _meaning(said: str) -> str:
    for signs, meaning in _KNOWN:
        if any(sign in said.lower() for sign in signs):
            return meaning
    last = said.splitlines()[-1] if said else "no output"
    return f"openFPGALoader failed: {last}"
