"""TAP devices: this machine's own network stack as the peer at the other end of a cable.

``TapNetwork`` is the usual way in: a kernel TCP/IP stack of its own, isolated in a network namespace, and the port that
its frames pass::

    async with TapNetwork("10.9.0.1/24") as linux, Pipe(linux.port, twin, faults, seed):
        listener = linux.socket()
        listener.bind(("10.9.0.1", 7))
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from open_rnic.host_driver.net.namespace import NetworkNamespace, bring_up
from open_rnic.host_driver.net.pipe import PortError, discard

__all__ = ["Tap", "TapNetwork"]

P = ParamSpec("P")
T = TypeVar("T")

_DEVICE = Path("/dev/net/tun")
# linux/if_tun.h
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TAP, _IFF_NO_PI = 0x0002, 0x1000
_IFNAMSIZ = 16  # with the terminating zero
_LONGEST = 65536 + 18
_BURST = 64  # frames that are read before other tasks have a turn


class Tap:
    """A port over a TAP device of the calling thread's network namespace.

    A device that does not exist is created and vanishes again in ``close``; it is down until it is configured
    (``ip addr add …``, ``ip link set … up``). Offloads are off: the kernel computes all checksums, and no segment is
    longer than the MTU. As an asynchronous context manager, a Tap starts and closes. Raises PortError if there is no
    /dev/net/tun, if the process has no right to it, or if the name is in use.

    Members
    -------
    name : of the device
    discarded : number of frames that the kernel did not take: the device is down, a frame too short, no room

    """

    def __init__(self, name: str) -> None:
        self.receive: Callable[[bytes], None] = discard
        self.name = name
        self.discarded = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._fd = _open(name)

    @classmethod
    def existing(cls, name: str) -> Tap:
        """Return the port of a device that exists, and raise PortError if it does not: its name may be mistyped."""
        names = [each for _, each in socket.if_nameindex()]
        if name not in names:
            raise PortError(f"no TAP device {name}: this machine has {', '.join(names) or 'no network interface'}; "
                            f"ip tuntap add {name} mode tap makes one")  # fmt: skip
        return cls(name)

    def start(self) -> None:
        """Begin to receive frames in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._read)

    def send(self, frame: bytes) -> None:
        """Give a frame to the kernel."""
        try:
            os.write(self._fd, frame)
        except OSError:
            self.discarded += 1

    def close(self) -> None:
        """Give the device back. Idempotent."""
        if self._fd < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._fd)
        os.close(self._fd)
        self._fd = -1

    async def __aenter__(self) -> Tap:
        self.start()
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.close()

    def _read(self) -> None:
        with suppress(OSError):  # BlockingIOError: no more frames now; others: the device is down
            for _ in range(_BURST):
                self.receive(os.read(self._fd, _LONGEST))
                if self._fd < 0:
                    return


def _open(name: str) -> int:
    if not 0 < len(name.encode()) < _IFNAMSIZ:
        raise PortError(f"the name of a TAP device has 1 to {_IFNAMSIZ - 1} octets: {name!r}")
    try:
        fd = os.open(_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        match error.errno:
            case errno.ENOENT | errno.ENODEV | errno.ENXIO:
                hint = "; load the module tun"
            case errno.EACCES | errno.EPERM:
                hint = "; it needs root, or the right to open this file"
            case _:
                hint = ""
        raise PortError(f"no TAP device: {_DEVICE}: {error.strerror}{hint}") from None
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
        fcntl.ioctl(fd, _TUNSETOFFLOAD, 0)
    except OSError as error:
        os.close(fd)
        match error.errno:
            case errno.EBUSY:
                why = "it is in use by another program"
            case errno.EPERM:
                why = f"it needs root, or a device that is yours: ip tuntap add {name} mode tap user NAME"
            case errno.EINVAL:
                why = "another kind of interface has this name"
            case _:
                why = str(error.strerror)
        raise PortError(f"no TAP device {name}: {why}") from None
    return fd


class TapNetwork:
    """A network namespace with a TAP device: a TCP/IP stack of this machine's kernel, and the port to its frames.

    An asynchronous context manager; inside of it, the device has its address and is up. Everything is released at its
    end, except sockets, which their owner closes. Raises PortError: see ``Tap`` and ``NetworkNamespace``.

    Parameters
    ----------
    address : of the kernel's stack, with the length of the prefix, such as ``10.9.0.1/24``
    name : of the device
    mtu : of the device, in octets

    Members
    -------
    port : the other end of the kernel's cable
    namespace : where the kernel's stack is

    """

    port: Tap
    namespace: NetworkNamespace

    def __init__(self, address: str, *, name: str = "rnic0", mtu: int = 1500) -> None:
        self._address, self._name, self._mtu = address, name, mtu

    async def __aenter__(self) -> TapNetwork:
        self.namespace = NetworkNamespace()
        try:
            self.port = self.namespace.inside(Tap, self._name)
            try:
                self.namespace.inside(bring_up, self._name, self._address, self._mtu)
                self.port.start()
            except BaseException:
                self.port.close()
                raise
        except BaseException:
            self.namespace.close()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        self.port.close()
        self.namespace.close()

    def socket(
        self, family: socket.AddressFamily = socket.AF_INET, kind: socket.SocketKind = socket.SOCK_STREAM
    ) -> socket.socket:
        """Open a socket of this stack, which does not block."""
        return self.namespace.socket(family, kind)

    def inside(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short function in this stack's namespace, such as ``subprocess.Popen``, and return its result."""
        return self.namespace.inside(function, *args, **kwargs)

    def sysctl(self, name: str, value: str | int) -> None:
        """Write a setting of this stack, such as ``net.ipv4.tcp_sack``. Raises OSError if there is none."""
        self.namespace.sysctl(name, value)
