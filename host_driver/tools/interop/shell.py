"""An interactive shell in the guest."""

from __future__ import annotations

import asyncio
import contextlib

from open_rnic.host_driver.tools.interop.qemu import Guest, Image, command

WELCOME = """\
A shell in the guest; `exit` ends it. The device siw0 has address {address}; the host is {host}.
Port {service} of the guest is 127.0.0.1:{port} on the host. To ping, run in the guest and on the host:
    rping -s -a {address} -p {service} -v
    rnic rping -c -a 127.0.0.1 -p {port} -C 5 -v
"""


async def run(image: Image, port: int) -> int:
    """Boot a guest, connect it to the terminal until it ends, and return the exit status of QEMU."""
    words = command(image, serial="chardev:terminal", forwards={port: Guest.service}, append="rnic.shell")
    terminal = "stdio,id=terminal,signal=off"  # Ctrl-C goes to the guest
    process = await asyncio.create_subprocess_exec(*words, "-chardev", terminal)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
