"""The Debian packages of the guest: found by apt, kept in a cache, and unpacked side by side.

Nothing here needs root: packages are downloaded and unpacked, never installed.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from open_rnic.host_driver.tools.interop.errors import InteropError
from open_rnic.host_driver.tools.interop.tools import is_root, run

META = "linux-image-amd64"  # depends on Debian's current kernel
PYVERBS = "python3-pyverbs"  # depends on Debian's current Python
GUEST = (  # programs of the guest, and their libraries
    "busybox-static",
    "ibverbs-providers",
    "iproute2",
    "libbsd0",
    "libc6",
    "libcap2",
    "libexpat1",
    "libffi8",
    "libgcc-s1",  # loaded by pthread_exit in rping
    "libibumad3",
    "libibverbs1",
    "libmd0",
    "libmnl0",
    "libnl-3-200",
    "libnl-route-3-200",
    "libpci3",
    "librdmacm1",
    "libudev1",
    "perftest",
    PYVERBS,
    "rdmacm-utils",
    "zlib1g",  # for the kernel's objtool, too
)
BUILD = ("libelf1", "libibverbs-dev", "librdmacm-dev")  # the kernel's objtool; headers of the guest's program
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Packages:
    """The fetched packages; ``release`` is the kernel's, as printed by ``uname -r`` in the guest."""

    release: str
    files: tuple[Path, ...]

    @property
    def version(self) -> str:
        """The kernel package's version."""
        return self._kernel.name.split("_")[1].replace("%3a", ":")

    @property
    def series(self) -> str:
        """The kernel's series: 6.1 of 6.1.0-1-amd64."""
        return _series(self.release)

    @property
    def source(self) -> Path:
        """The package of the kernel's source, which is not unpacked as a whole."""
        return next(file for file in self.files if file.name.startswith("linux-source-"))

    @property
    def unpacked(self) -> tuple[Path, ...]:
        """All other packages."""
        return tuple(file for file in self.files if file != self.source)

    @property
    def _kernel(self) -> Path:
        return next(file for file in self.files if file.name.startswith("linux-image-"))


async def fetch(cache: Path) -> Packages:
    """Download every package into ``cache``, unless it is there already.

    Without apt's lists or a network, the packages of an earlier run are used. Raises InteropError.
    """
    cache.mkdir(parents=True, exist_ok=True)
    try:
        packages = await _current(cache)
    except InteropError as error:
        if earlier := _earlier(cache):
            _log.info("%s; using the packages of an earlier run", error)
            return earlier
        raise
    _manifest(cache).write_text(
        json.dumps({"release": packages.release, "files": [file.name for file in packages.files]}, indent=1)
    )
    return packages


async def unpack(packages: Packages, folder: Path) -> None:
    """Unpack all packages but the kernel's source into ``folder``, as if they were installed there."""
    _log.info("unpacking %d packages", len(packages.unpacked))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for file in packages.unpacked:
        await run(["dpkg-deb", "-x", file, folder])


async def unpack_driver(packages: Packages, folder: Path) -> None:
    """Put siw's source files into ``folder``."""
    _log.info("unpacking siw from %s", packages.source.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    name = f"linux-source-{packages.series}"
    inner = "drivers/infiniband/sw/siw"
    script = (
        'set -o pipefail; dpkg-deb --fsys-tarfile "$1" | tar -x --to-stdout "./usr/src/$2.tar.xz"'
        ' | tar -xJ -C "$3" --strip-components=5 "$2/$4"'
    )
    await run(["bash", "-c", script, "bash", packages.source, name, folder, inner], timeout=300)


async def _current(cache: Path) -> Packages:
    """Return the packages that apt would install now."""
    try:
        release, wanted = await _wanted()
    except InteropError as error:
        if not is_root():
            raise InteropError(f"apt does not know {META} ({error}); as root, run apt-get update") from None
        await run(["apt-get", "update", "-qq"], timeout=300)
        release, wanted = await _wanted()
    absent = [name for name, (file, size) in wanted.items() if not _whole(cache / file, size)]
    if absent:
        _log.info("downloading %d packages", len(absent))
        try:
            await _download(absent, cache)
        except InteropError:
            if not is_root():
                raise
            await run(["apt-get", "update", "-qq"], timeout=300)  # the lists may be older than the mirror
            return await _retry(cache)
    files = tuple(cache / file for file, _ in wanted.values())
    for file in files:
        if not file.exists():
            raise InteropError(f"apt-get download succeeded, but did not write {file.name}")
    return Packages(release, files)


async def _retry(cache: Path) -> Packages:
    release, wanted = await _wanted()
    await _download([name for name, (file, size) in wanted.items() if not _whole(cache / file, size)], cache)
    return Packages(release, tuple(cache / file for file, _ in wanted.values()))


async def _wanted() -> tuple[str, dict[str, tuple[str, int]]]:
    """Return the release of Debian's current kernel, such as 6.1.0-1-amd64, and the files of all packages."""
    release = await _named(META, r"linux-image-(\d\S*-amd64)")
    python = await _named(PYVERBS, r"libpython(\d+\.\d+)")
    return release, await _uris(_names(release, python))


async def _named(package: str, other: str) -> str:
    """Return the part in parentheses of the name of the ``other`` package that this package depends on."""
    answer = await run(["apt-cache", "depends", package])
    if match := re.search(rf"Depends: {other}\s", answer + "\n"):
        return match[1]
    raise InteropError(f"apt-cache depends {package} names no {other.partition('(')[0]}")


def _names(release: str, python: str) -> tuple[str, ...]:
    series = _series(release)
    common = release.removesuffix("-amd64") + "-common"
    kernel = (
        f"linux-image-{release}",
        f"linux-headers-{release}",
        f"linux-headers-{common}",
        f"linux-kbuild-{series}",
        f"linux-source-{series}",
    )
    interpreter = (
        f"libpython{python}",
        f"libpython{python}-minimal",
        f"libpython{python}-stdlib",
        f"python{python}-minimal",
    )
    return kernel + interpreter + GUEST + BUILD


async def _uris(names: tuple[str, ...]) -> dict[str, tuple[str, int]]:
    """Return the file name and size that apt would download for each package."""
    found = {}
    with tempfile.TemporaryDirectory() as empty:  # apt does not list files that are in the current folder
        answer = await run(["apt-get", "download", "--print-uris", *names], folder=Path(empty))
    for match in re.finditer(r"^'\S+' (\S+) (\d+) ", answer, re.MULTILINE):
        found[match[1].split("_")[0]] = match[1], int(match[2])
    if absent := [name for name in names if name not in found]:
        raise InteropError(f"apt has no package {', '.join(absent)}")
    return found


async def _download(names: list[str], cache: Path) -> None:
    try:
        await run(["apt-get", "download", "-qq", *names], folder=cache, timeout=600)
    except InteropError as error:
        raise InteropError(f"cannot download {', '.join(names[:3])}{' …' * (len(names) > 3)}: {error}") from None


def _earlier(cache: Path) -> Packages | None:
    try:
        manifest = json.loads(_manifest(cache).read_text())
        packages = Packages(manifest["release"], tuple(cache / name for name in manifest["files"]))
    except (OSError, ValueError, KeyError):
        return None
    return packages if all(file.exists() for file in packages.files) else None


def _manifest(cache: Path) -> Path:
    return cache / "packages.json"


def _whole(file: Path, size: int) -> bool:
    return file.exists() and file.stat().st_size == size


def _series(release: str) -> str:
    return ".".join(release.split(".")[:2])
