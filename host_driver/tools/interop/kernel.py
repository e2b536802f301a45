"""The kernel, decompressed: the guest would take half of its boot for that, because QEMU emulates its processor."""

from __future__ import annotations

import lzma
import struct

_ELF = b"\x7fELF"
_XZ = b"\xfd7zXZ\0"
_SECTOR = 512
# Positions in the header of the boot file ("The Linux/x86 Boot Protocol")
_SETUP_SECTORS, _MAGIC, _PAYLOAD = 0x1F1, 0x202, 0x248


def uncompressed(boot: bytes) -> bytes:
    """Return the kernel in a boot file as an ELF file, which QEMU boots, too; other files are returned unchanged."""
    if boot[_MAGIC : _MAGIC + 4] != b"HdrS":
        return boot
    offset, size = struct.unpack_from("<II", boot, _PAYLOAD)
    start = (1 + (boot[_SETUP_SECTORS] or 4)) * _SECTOR + offset
    payload = boot[start : start + size]
    if not payload.startswith(_XZ):
        return boot
    kernel = lzma.LZMADecompressor().decompress(payload)  # its size is behind the compressed octets
    return kernel if kernel.startswith(_ELF) else boot
