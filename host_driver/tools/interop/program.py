"""The guest's own program, ``peer.c``, which does what Debian's tools cannot be told to do."""

from __future__ import annotations

from pathlib import Path

from open_rnic.host_driver.tools.interop.tools import run

SOURCE = Path(__file__).with_name("peer.c")


async def build(root: Path, file: Path) -> Path:
    """Compile it into ``file`` against librdmacm under ``root``; raises InteropError when that fails."""
    libraries = root / "usr/lib/x86_64-linux-gnu"
    linked = [libraries / name for name in ("librdmacm.so.1", "libibverbs.so.1")]
    command: list[str | Path] = ["gcc", "-Wall", "-Wextra", "-O1", f"-I{root / 'usr/include'}", "-o", file, SOURCE]
    await run([*command, *linked, "-Wl,--allow-shlib-undefined"])
    return file
