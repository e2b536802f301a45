"""Build ``peer.c``, the guest's program for operations that Debian's tools do not offer."""

from __future__ import annotations

from pathlib import Path

from open_rnic.host_driver.tools.interop.tools import run

SOURCE = Path(__file__).with_name("peer.c")


async def build(root: Path, file: Path) -> Path:
    """Compile ``peer.c`` into ``file``, with librdmacm below ``root``; raises InteropError if the compiler fails."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    linked = [libraries / name for name in ("librdmacm.so.1", "libibverbs.so.1")]
    command: list[str | Path] = ["gcc", "-Wall", "-Wextra", "-O1", f"-I{root / 'usr/include'}", "-o", file, SOURCE]
    await run([*command, *linked, "-Wl,--allow-shlib-undefined"])
    return file
