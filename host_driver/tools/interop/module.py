"""The kernel modules: Debian's own, and siw, which Debian's kernel lacks."""

from __future__ import annotations

import logging
import lzma
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from open_rnic.host_driver.tools.interop.errors import InteropError
from open_rnic.host_driver.tools.interop.tools import run

# For each variant, the constants of the source that it replaces, and their values
VARIANTS = {
    "siw": {},  # unmodified
    "siw-strict": {"peer_to_peer": "true", "mpa_crc_required": "true"},  # requests an RTR and CRCs
    "siw-rev1": {"mpa_version": "MPA_REVISION_1"},  # implements RFC 5044 only
}
_log = logging.getLogger(__name__)


async def build(root: Path, source: Path, variant: str) -> Path:
    """Build siw in ``source`` with the headers unpacked in ``root``; returns the module's file.

    The next variant replaces that file, and compiles only what differs. Raises InteropError with the compiler's first
    error if the build fails; the source may then have that variant's constants.
    """
    _log.info("building %s", variant)
    main = source / "siw_main.c"
    unmodified = main.read_bytes()
    _patch(main, VARIANTS[variant])
    headers = _headers(root)
    libraries = source / "lib"  # for the tools of the headers
    libraries.mkdir(exist_ok=True)
    for name in ("libelf.so.1", "libz.so.1"):
        shutil.copy(next(root.glob(f"**/x86_64-linux-gnu/{name}")), libraries)
    await run(
        ["make", "-j2", "-C", headers, f"M={source}", "CONFIG_RDMA_SIW=m", "CC=gcc", "modules"],
        timeout=300,
        environment={"LD_LIBRARY_PATH": str(libraries)},
    )
    main.write_bytes(unmodified)
    return source / "siw.ko"


def in_order(root: Path, wanted: Sequence[str]) -> list[Path]:
    """Return the files of these modules and of their dependencies in ``root``, in the order of loading."""
    files = {_name(file): file for file in root.glob("lib/modules/*/kernel/**/*.ko*")}
    order: dict[str, Path] = {}

    def add(name: str) -> None:
        if name in order or name not in files:
            return  # a missing module is built into the kernel
        for other in depends(contents(files[name])):
            add(other)
        order[name] = files[name]

    for name in wanted:
        add(name)
    return list(order.values())


def contents(file: Path) -> bytes:
    """Return the contents of a module, decompressed if necessary."""
    octets = file.read_bytes()
    return lzma.decompress(octets) if file.suffix == ".xz" else octets


def depends(module: bytes) -> list[str]:
    """Return the modules that this module needs, by its section .modinfo."""
    match = re.search(rb"\0depends=([^\0]*)\0", module)
    return [name.replace("-", "_") for name in match[1].decode().split(",") if name] if match else []


def _name(file: Path) -> str:
    return file.name.split(".")[0].replace("-", "_")


def _headers(root: Path) -> Path:
    headers = next(root.glob("usr/src/linux-headers-*-amd64"))
    makefile = headers / "Makefile"  # contains the path at which the package would be installed
    makefile.write_text(re.sub(r"^include \S*?/usr/src/", f"include {root}/usr/src/", makefile.read_text(), flags=re.M))
    return headers


def _patch(file: Path, constants: dict[str, str]) -> None:
    text = file.read_text()
    for name, value in constants.items():
        text, count = re.subn(rf"^((?:const )?\w+ {name})\b[^;\n]*;", rf"\1 = {value};", text, flags=re.MULTILINE)
        if count != 1:
            raise InteropError(f"{file.name} of siw does not define the constant {name} any more")
    file.write_text(text)
