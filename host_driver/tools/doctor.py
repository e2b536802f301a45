"""What this machine has of all that the project can use, and how to get the rest."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from open_rnic.host_driver.lib.debian import package_of
from open_rnic.host_driver.lib.optional_packages import EXTRAS, lacking, way_to

__all__ = ["Finding", "findings"]

PROGRAMS = {
    "c++": "simulations: builds them",
    "make": "simulations: builds them",
    "openFPGALoader": "boards: loads a bitstream",
    "iverilog": "testbenches of your own, FuseSoC: Icarus",
    "rdma": "stock Linux: makes a siw device",
    "tshark": "captures: Wireshark in a terminal",
    "gtkwave": "waves: shows the files of --waves",
    "qemu-system-x86_64": "rnic interop: boots Linux as the peer",
}
PURPOSES = {
    "sim": "simulated devices and boards, rnic verilog",
    "boards": "rnic boards, build and program",
    "litex": "boards with SDRAM, rnic litex",
    "cpu": "rnic litex --cpu-type: a CPU in the SoC, and its compiler",
    "bench": "rnic bench rtl and sim, plots, rnic split --run and --html",
}
_TUN = Path("/dev/net/tun")
_UDEV = tuple(Path(each, "udev/rules.d") for each in ("/etc", "/lib", "/usr/lib", "/usr/local/lib"))


@dataclass(frozen=True)
class Finding:
    """A part of the system: whether it is there, what it is for, what was found, and how to get it if it is missing."""

    part: str
    there: bool
    purpose: str
    detail: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the finding as plain data."""
        return asdict(self)


def findings() -> Iterator[Finding]:
    """Yield a finding for each part, those of the package first; nothing is changed, and no packet is sent."""
    yield from _extras()
    yield from _programs()
    yield _shared_library()
    yield _udev_rules()
    yield from _serial_ports()
    yield _networks()
    yield _tap()
    yield _siw()


def _extras() -> Iterator[Finding]:
    for extra in EXTRAS:
        gone = lacking(extra)
        detail = f"without {', '.join(gone)}" if gone else "all packages"
        yield Finding(f"extra {extra}", not gone, PURPOSES[extra], detail, way_to(extra) if gone else "")


def _programs() -> Iterator[Finding]:
    for name, purpose in PROGRAMS.items():
        path = shutil.which(name)
        yield Finding(name, path is not None, purpose, path or "not in PATH",
                      "" if path else f"install it; Debian's package is {package_of(name)}")  # fmt: skip


def _shared_library() -> Finding:
    purpose, remedy = "simulations: Python runs in them", "install it; Debian's package is libpython3-dev"
    try:
        from find_libpython import find_libpython
    except ModuleNotFoundError:
        return Finding("libpython", False, purpose, "unknown without the extra sim", way_to("sim"))
    path = find_libpython()
    return Finding("libpython", path is not None, purpose, path or "not found", "" if path else remedy)


def _udev_rules() -> Finding:
    purpose = "boards: their USB cable without root"
    rules = next((each for folder in _UDEV for each in folder.glob("*openfpgaloader*.rules")), None)
    if rules or os.geteuid() == 0:
        return Finding("udev rules", True, purpose, str(rules) if rules else "not needed by root")
    remedy = (
        "copy 99-openfpgaloader.rules, which comes with openFPGALoader, into /etc/udev/rules.d, and join the group "
        "that they name: sudo adduser $USER plugdev; then sudo udevadm control --reload, and plug the cable in again"
    )
    return Finding("udev rules", False, purpose, "none of openFPGALoader", remedy)


def _serial_ports() -> Iterator[Finding]:
    from serial.tools.list_ports import comports

    purpose = "boards: the UART, as serial:PORT"
    ports = sorted(port.device for port in comports() if port.hwid != "n/a")
    if not ports:
        yield Finding("serial ports", False, purpose, "none", "connect the board's USB cable")
    for port in ports:
        usable = os.access(port, os.R_OK | os.W_OK)
        remedy = "" if usable else f"join the group of {port}, on Debian: sudo adduser $USER dialout; then log in again"
        yield Finding(port, usable, purpose, "may be opened" if usable else "may not be opened", remedy)


def _networks() -> Finding:
    from open_rnic.host_driver.devices.udp.finding import interfaces

    found = interfaces()
    detail = ", ".join(f"{name} {address}" for name, address in found.items()) or "none"
    remedy = "" if found else "give the card at the board's cable an address: sudo ip address add 10.0.0.1/24 dev CARD"
    return Finding("networks", bool(found), "boards: their cable, as udp:ADDRESS", detail, remedy)


def _tap() -> Finding:
    usable = os.access(_TUN, os.R_OK | os.W_OK)
    detail = f"{_TUN} {'may be opened' if usable else 'may not be opened' if _TUN.exists() else 'is missing'}"
    remedy = "" if usable else "run as root, or as a user of its group; the kernel's module is tun"
    purpose = "this project's TCP beside the kernel's: --transport tap:NAME,ADDRESS/PREFIX"
    return Finding("TAP devices", usable, purpose, detail, remedy)


def _siw() -> Finding:
    purpose = "stock Linux: RDMA of this machine opposite a board"
    if Path("/sys/module/siw").exists():
        return Finding("siw", True, purpose, "loaded")
    release = platform.release()
    try:
        known = subprocess.run(["modinfo", "siw"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        known = any(Path("/lib/modules", release).rglob("siw.ko*"))
    if known:
        return Finding("siw", True, purpose, "not loaded: sudo modprobe -a rdma_ucm siw")
    return Finding("siw", False, purpose, f"no module of Linux {release}", "docs/maker.md says how to get it")
