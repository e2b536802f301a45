"""Other programs: checks that they are installed, and runs them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from open_rnic.host_driver.lib.debian import package_of
from open_rnic.host_driver.tools.interop.errors import InteropError

TOOLS = "qemu-system-x86_64", "tshark", "gcc", "make", "tar", "xz", "setpriv"
_log = logging.getLogger(__name__)


def missing() -> list[str]:
    """Return the tools that are not installed."""
    return [name for name in TOOLS if shutil.which(name) is None]


def is_root() -> bool:
    """Return whether this process can install packages with apt."""
    return os.geteuid() == 0


async def install() -> None:
    """Install missing tools as root; raises InteropError if a tool is missing otherwise."""
    for name in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(name) is None:
            raise InteropError(f"{name} is missing: only a Debian system can build the guest")
    lacking = missing()
    if not lacking:
        return
    packages = sorted({package_of(name) for name in lacking})
    if not is_root():
        raise InteropError(f"{', '.join(lacking)}: not installed; as root, run apt-get install {' '.join(packages)}")
    _log.info("installing %s", ", ".join(packages))
    environment = {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-qq", "--no-install-recommends", *packages]
    try:
        await run(["apt-get", "update", "-qq"], timeout=300)
        await run(command, timeout=900, environment=environment)
    except InteropError as error:
        raise InteropError(f"{', '.join(lacking)}: not installed, and cannot be installed: {error}") from None
    if lacking := missing():
        raise InteropError(f"apt-get install {' '.join(packages)} did not install {', '.join(lacking)}")


async def run(
    command: Sequence[str | Path],
    *,
    folder: Path | None = None,
    timeout: float = 120.0,
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command, and return its standard output.

    Raises InteropError with the last line of output if the command fails, or takes over ``timeout`` seconds. No process
    that it started outlives this call.
    """
    words = [str(word) for word in command]
    name = Path(words[0]).name + (f" {words[1]}" if len(words) > 1 and not words[1].startswith(("-", "/")) else "")
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=folder,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        raise InteropError(f"{name}: {error.strerror}") from None
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate()
    except TimeoutError:
        raise InteropError(f"{name} did not end within {timeout:g} s") from None
    finally:
        if process.returncode is None:
            end_group(process.pid)
            await process.wait()
    if process.returncode:
        lines = (err or out).decode(errors="replace").strip().splitlines()
        raise InteropError(f"{name} failed with status {process.returncode}: {lines[-1] if lines else 'no output'}")
    return out.decode(errors="replace")


def end_group(leader: int) -> None:
    """Kill a process that leads a session, and all processes of the session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)
