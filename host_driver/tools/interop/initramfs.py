"""The guest's files, as an archive that the kernel unpacks into memory (cpio, "newc").

``init`` loads the modules in order, sets up the network and serves commands: each connection to AGENT_PORT sends one
line for the shell, and receives its output, with the exit status in the last line.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from open_rnic.host_driver.tools.interop.errors import InteropError

AGENT_PORT = 7000
READY = "the guest is ready"
ADDRESS = "10.0.2.15"  # of the guest, in QEMU's user network
HOST = "10.0.2.2"  # this machine's loopback, as seen by the guest
AGENT_NETWORK = "10.0.3"  # of a second card, for commands, if the first is at the end of a cable
STATUS = "exit status"  # first words of an answer's last line

MODULES = ("virtio_pci", "virtio_net", "rdma_ucm", "ib_uverbs", "crc32c_generic", "libcrc32c")
PROGRAMS = (
    "ib_read_bw",
    "ib_read_lat",
    "ib_send_bw",
    "ib_write_bw",
    "ib_write_lat",
    "rcopy",
    "rdma_client",
    "rdma_server",
    "riostream",
    "rping",
    "rstream",
    "ucmatose",
)
_LIBRARIES = "lib/x86_64-linux-gnu"
_NEEDED = (  # shared libraries of the programs, and their dependencies
    "libbsd.so.0",
    "libc.so.6",
    "libcap.so.2",
    "libefa.so.1",
    "libexpat.so.1",
    "libffi.so.8",
    "libgcc_s.so.1",
    "libibumad.so.3",
    "libibverbs.so.1",
    "libm.so.6",
    "libmd.so.0",
    "libmlx5.so.1",
    "libmnl.so.0",
    "libnl-3.so.200",
    "libnl-route-3.so.200",
    "libpci.so.3",
    "librdmacm.so.1",
    "libudev.so.1",
    "libz.so.1",
)

_PACKAGES = ("collections", "ctypes", "encodings", "importlib", "json", "lib-dynload", "logging", "re")  # of Python

# The largest TCP window of a guest in QEMU's user network, in octets. That network cuts our streams at the end of the
# window, which has no scale. With the guest's own, 65535 octets, the pieces after a cut begin and end inside words,
# and siw refuses a CRC that arrives in two pieces. CRCs are whole words, so cuts between words never split one.
WINDOW = 44 * 1460
_BUFFER = 2 * WINDOW  # the kernel's share for the data is one half

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys
exec >/dev/console 2>&1 </dev/console
while read -r module; do insmod /modules/$module || echo "cannot load $module"; done </modules/order
ip link set lo up; ip link set eth0 up
ip addr add {ADDRESS}/24 dev eth0; ip route add default via {HOST}
if ip link set eth1 up 2>/dev/null; then ip addr add {AGENT_NETWORK}.15/24 dev eth1
else echo '4096 {_BUFFER} {_BUFFER}' >/proc/sys/net/ipv4/tcp_rmem; fi
/bin/load siw
if grep -q rnic.shell /proc/cmdline; then setsid cttyhack sh; poweroff -f; fi
echo '{READY}'
exec nc -ll -p {AGENT_PORT} -e /bin/agent
"""
LOAD = """#!/bin/busybox sh
rdma link delete siw0 2>/dev/null
rmmod siw 2>/dev/null
insmod /modules/$1.ko && rdma link add siw0 type siw netdev eth0
"""
AGENT = f"""#!/bin/busybox sh
IFS= read -r line
sh -c "$line" </dev/null 2>&1
status=$?
echo
echo "{STATUS} $status"
"""


def collect(
    root: Path, modules: Mapping[str, bytes], order: Iterable[str], programs: Iterable[Path]
) -> dict[str, bytes]:
    """Return the guest's files by name, from the packages unpacked in ``root``; raises InteropError if one is missing.

    ``modules`` are the files for /modules; those named in ``order`` are loaded, in that order. ``programs`` are this
    project's.
    """
    files = {
        "init": INIT.encode(),
        "bin/load": LOAD.encode(),
        "bin/agent": AGENT.encode(),
        "modules/order": "".join(f"{name}\n" for name in order).encode(),
        "etc/libibverbs.d/siw.driver": b"driver siw\n",
        "bin/busybox": _find(root, "bin/busybox"),
        "lib64/ld-linux-x86-64.so.2": _find(root, f"{_LIBRARIES}/ld-linux-x86-64.so.2"),
        "usr/bin/rdma": _find(root, "bin/rdma"),
    }
    for name, octets in modules.items():
        files[f"modules/{name}"] = octets
    for program in programs:
        files[f"usr/bin/{program.name}"] = program.read_bytes()
    for name in PROGRAMS:
        files[f"usr/bin/{name}"] = _find(root, f"usr/bin/{name}")
    for name in _NEEDED:
        files[f"{_LIBRARIES}/{name}"] = _find(root, f"{_LIBRARIES}/{name}")
    files |= _python(root)
    for file in root.glob("usr/lib/x86_64-linux-gnu/libibverbs/libsiw-*.so"):
        files[f"usr/lib/x86_64-linux-gnu/libibverbs/{file.name}"] = file.read_bytes()
    return files


def _python(root: Path) -> dict[str, bytes]:
    """Return Python with pyverbs, and of its other packages only some."""
    library, interpreter = (_first(root, f"usr/{folder}/python3.*") for folder in ("lib", "bin"))
    places = (library, *(library / name for name in _PACKAGES))
    found = [file for place in places for file in place.iterdir()]
    found += root.glob("usr/lib/python3/dist-packages/pyverbs/*")
    found += root.glob(f"usr/{_LIBRARIES}/libpython3.*.so.1.0")
    files = {str(file.relative_to(root)): file.read_bytes() for file in found if file.is_file()}
    return files | {"usr/bin/python3": interpreter.read_bytes()}


def archive(files: Mapping[str, bytes]) -> bytes:
    """Return the archive, in which all files are executable and their folders exist."""
    folders = sorted({str(parent) for name in files for parent in Path(name).parents} - {"."} | {"dev", "proc", "sys"})
    members = [_member(name, stat.S_IFDIR | 0o755) for name in folders]
    members += [_member(name, stat.S_IFREG | 0o755, octets) for name, octets in files.items()]
    return b"".join(members) + _member("TRAILER!!!", 0)


def _member(name: str, mode: int, octets: bytes = b"") -> bytes:
    encoded = name.encode() + b"\0"
    # magic, inode, mode, uid, gid, links, time, size, device (2), special device (2), length of the name, checksum
    numbers = (0, mode, 0, 0, 1, 0, len(octets), 0, 0, 0, 0, len(encoded), 0)
    return _padded(b"070701" + b"".join(b"%08X" % number for number in numbers) + encoded) + _padded(octets)


def _padded(octets: bytes) -> bytes:
    return octets + bytes(-len(octets) % 4)


def _first(root: Path, pattern: str) -> Path:
    """Return the first file or folder of this name."""
    for found in root.glob(pattern):
        return found
    raise InteropError(f"no package contains {pattern}")


def _find(root: Path, name: str) -> bytes:
    """Find a file in / or in /usr, which are the same in an installed system."""
    for folder in (root, root / "usr"):
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    raise InteropError(f"no package contains {name}")
