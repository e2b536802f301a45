"""From packages to something that boots; what was built for a kernel version is not built again."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from host_driver.interop import initramfs, module, packages, program, tools
from host_driver.interop.guest import Image
from host_driver.interop.packages import Packages
from host_driver.interop.tools import run


async def prepare(folder: Path) -> tuple[Image, Packages]:
    """What the guest boots, below ``folder``: ``cache`` has the packages, the rest is made from them.

    Raises InteropError.
    """
    await tools.install()
    folder = folder.resolve()
    found = await packages.fetch(folder / "cache")
    built = folder / f"{found.release}_{_key(found)}"
    image = Image(built / "vmlinuz", built / "initramfs")
    if not image.initramfs.exists():
        await _build(found, built, image)
    return image, found


def _key(found: Packages) -> str:
    """A hash of all that the image is made of."""
    digest = hashlib.sha256()
    for file in sorted(file.name for file in found.files):
        digest.update(file.encode())
    for source in (packages, module, initramfs, program):
        digest.update(Path(str(source.__file__)).read_bytes())
    digest.update(program.SOURCE.read_bytes())
    return digest.hexdigest()[:16]


async def _build(found: Packages, built: Path, image: Image) -> None:
    root, source = built / "root", built / "source"
    await packages.unpack(found, root)
    await packages.unpack_driver(found, source)
    order = module.in_order(root, initramfs.MODULES)
    files = {file.name.removesuffix(".xz"): module.contents(file) for file in order}
    for variant in module.VARIANTS:
        file = await module.build(root, source, variant, built / variant)
        await run(["strip", "--strip-debug", file])
        files[f"{variant}.ko"] = file.read_bytes()
    names = [file.name.removesuffix(".xz") for file in order]
    peer = await program.build(root, built / "peer")
    octets = initramfs.archive(initramfs.collect(root, files, names, peer))
    shutil.copy(root / "boot" / f"vmlinuz-{found.release}", image.kernel)
    shutil.rmtree(root)  # half a GB, and all that is needed of it is in the archive
    (built / "initramfs.part").write_bytes(octets)
    (built / "initramfs.part").rename(image.initramfs)
