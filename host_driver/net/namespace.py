"""A Linux network namespace: a TCP/IP stack of the kernel's with interfaces, addresses and settings of its own.

A namespace belongs to a thread. ``NetworkNamespace.inside`` therefore runs a function in a thread that has entered the
namespace, and the process itself stays where it is. What the function opens (a socket, a TAP device, a child process)
remains in the namespace for good and can be used from anywhere.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import ipaddress
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from open_rnic.host_driver.net.host import local_mac
from open_rnic.host_driver.net.pipe import PortError

__all__ = ["NetworkNamespace", "bring_up", "set_sysctl"]

P = ParamSpec("P")
T = TypeVar("T")

_CLONE_NEWNET = 0x40000000  # linux/sched.h
# linux/sockios.h
_SIOCSIFFLAGS, _SIOCSIFADDR, _SIOCSIFNETMASK, _SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922
_SIOCSIFHWADDR, _SIOCSIFTXQLEN = 0x8924, 0x8943
_IFF_UP, _ARPHRD_ETHER = 1, 1
_QUEUE = 10_000  # frames that wait for the reader of a TAP device, so that a burst of the kernel's is not lost there


class NetworkNamespace:
    """A new network namespace with only the loopback interface, which is up.

    It lives until it is closed and everything that was opened inside is closed as well. Raises PortError unless the
    process has the right to make it (CAP_SYS_ADMIN: root, or a process under ``unshare -rn``).
    """

    def __init__(self) -> None:
        self._fd = _in_thread(_new)
        self.inside(bring_up, "lo")

    def inside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short function in the namespace and return its result. Waits for its end."""

        def enter() -> T:
            _call("setns", self._fd, _CLONE_NEWNET)
            return function(*args, **kwargs)

        return _in_thread(enter)

    def socket(
        self, family: socket.AddressFamily = socket.AF_INET, kind: socket.SocketKind = socket.SOCK_STREAM
    ) -> socket.socket:
        """Open a socket in the namespace, which does not block."""
        opened = self.inside(socket.socket, family, kind)
        opened.setblocking(False)
        return opened

    def sysctl(self, name: str, value: str | int) -> None:
        """Write a setting of the namespace, such as ``net.ipv4.tcp_sack``. Raises OSError if there is none."""
        self.inside(set_sysctl, name, value)

    def close(self) -> None:
        """Release the namespace. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1


def set_sysctl(name: str, value: str | int) -> None:
    """Write a setting of the calling thread's namespace."""
    Path("/proc/sys", *name.split(".")).write_text(f"{value}\n")


def bring_up(name: str, address: str | None = None, mtu: int | None = None) -> None:
    """Give an interface of the calling thread's namespace an address such as ``10.9.0.1/24``, and switch it on.

    An interface with an address has the MAC address 02:00 and the four octets of the address, and no IPv6. Raises
    OSError.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:

        def set_(request: int, value: bytes) -> None:
            fcntl.ioctl(control, request, struct.pack("16s24s", name.encode(), value))

        if address is not None:
            host = ipaddress.IPv4Interface(address)
            with suppress(FileNotFoundError):  # a kernel without IPv6
                set_sysctl(f"net.ipv6.conf.{name}.disable_ipv6", 1)
            set_(_SIOCSIFHWADDR, struct.pack("H6s", _ARPHRD_ETHER, local_mac(host.ip)))
            with suppress(PermissionError):  # the kernel lets only root of the whole machine do this
                set_(_SIOCSIFTXQLEN, struct.pack("i", _QUEUE))
            set_(_SIOCSIFADDR, _sockaddr(host.ip))
            set_(_SIOCSIFNETMASK, _sockaddr(host.netmask))
        if mtu is not None:
            set_(_SIOCSIFMTU, struct.pack("i", mtu))
        set_(_SIOCSIFFLAGS, struct.pack("H", _IFF_UP))


def _sockaddr(address: ipaddress.IPv4Address) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, address.packed)


def _new() -> int:
    """Move the calling thread into a new namespace, and return a file descriptor of it."""
    _call("unshare", _CLONE_NEWNET)
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _call(name: str, *args: int) -> None:
    """Call a function of the C library: ``os`` has these two from Python 3.12."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*args) == 0:
        return
    error = ctypes.get_errno()
    if error == errno.EPERM:
        raise PortError("a network namespace needs root (CAP_SYS_ADMIN); unshare -rn gives it to a program")
    raise PortError(f"no network namespace: {name}: {os.strerror(error)}")


def _in_thread(function: Callable[[], T]) -> T:
    """Run a function in a thread of its own, which ends with it: the thread's namespace is lost then."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]
