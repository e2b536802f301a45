"""Builds the guest's boot files from packages, once for each kernel version."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

from open_rnic.host_driver.tools.interop import initramfs, kernel, module, packages, program, tools
from open_rnic.host_driver.tools.interop.packages import Packages
from open_rnic.host_driver.tools.interop.qemu import Image
from open_rnic.host_driver.tools.interop.tools import run


async def prepare(folder: Path) -> tuple[Image, Packages]:
    """Build the files that the guest boots below ``folder``, from the packages in ``cache``.

    Raises InteropError.
    """
    await tools.install()
    folder = folder.resolve()
    found = await packages.fetch(folder / "cache")
    names = [file.name.encode() for file in sorted(found.files)]
    built = folder / f"{found.release}-{_hash(*names, *map(_text, (packages, module, kernel)))}"
    if not (built / "done").exists():
        await _kernel(found, built)
    sources = (source.read_bytes() for source in program.SOURCES + program.SCRIPTS)
    key = _hash(*map(_text, (initramfs, program)), *sources)
    image = Image(built / "vmlinux", built / f"initramfs-{key}")
    if not image.initramfs.exists():
        await _initramfs(built, image.initramfs)
    return image, found


async def _kernel(found: Packages, folder: Path) -> None:
    """Unpack everything, and build every variant of siw."""
    root, source = folder / "root", folder / "source"
    await packages.unpack(found, root)
    await packages.unpack_driver(found, source)
    for variant in module.VARIANTS:
        file = await module.build(root, source, variant)
        await run(["strip", "--strip-debug", "-o", folder / f"{variant}.ko", file])
    boot = (root / "boot" / f"vmlinuz-{found.release}").read_bytes()
    (folder / "vmlinux").write_bytes(kernel.uncompressed(boot))
    (folder / "done").touch()


async def _initramfs(folder: Path, file: Path) -> None:
    root = folder / "root"
    order = {each.name.removesuffix(".xz"): module.contents(each) for each in module.in_order(root, initramfs.MODULES)}
    variants = {f"{variant}.ko": (folder / f"{variant}.ko").read_bytes() for variant in module.VARIANTS}
    programs = await program.build(root, folder)
    octets = initramfs.archive(initramfs.collect(root, {**order, **variants}, order, programs))
    part = file.with_suffix(".part")
    part.write_bytes(octets)
    part.rename(file)


def _text(source: ModuleType) -> bytes:
    return Path(str(source.__file__)).read_bytes()


def _hash(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]
