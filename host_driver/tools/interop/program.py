"""Build the guest's programs for operations that Debian's tools do not offer, and those for users."""

from __future__ import annotations

from pathlib import Path

from open_rnic.host_driver.tools.interop.tools import run

_LINUX = Path(__file__).parents[2] / "linux"
SOURCES = (Path(__file__).with_name("peer.c"), *sorted(_LINUX.glob("*.c")))
SCRIPTS = (_LINUX / "receive_samples.py",)


async def build(root: Path, folder: Path) -> list[Path]:
    """Compile the programs into ``folder``, with librdmacm below ``root``; returns these and the scripts.

    Raises InteropError if that fails.
    """
    libraries = root / "usr/lib/x86_64-linux-gnu"
    linked = [libraries / name for name in ("librdmacm.so.1", "libibverbs.so.1")]
    files = []
    for source in SOURCES:
        files.append(folder / source.stem)
        command: list[str | Path] = ["gcc", "-Wall", "-Wextra", "-O1", f"-I{root / 'usr/include'}", "-o", files[-1]]
        await run([*command, source, *linked, "-Wl,--allow-shlib-undefined"])
    return [*files, *SCRIPTS]
