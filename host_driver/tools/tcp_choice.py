"""The choice of a TCP endpoint by a line of text, as the option ``--transport`` takes it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from open_rnic.host_driver.device import AttachedDevice
from open_rnic.host_driver.devices import names, simulated_path, simulated_rnic
from open_rnic.host_driver.devices.udp import endpoint
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.netdev import QemuPort
from open_rnic.host_driver.net.pipe import Pipe, PortError
from open_rnic.host_driver.net.tap import Tap
from open_rnic.host_driver.rdma.connection import OpenDevice
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.tcp.attached import AttachedTcp
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tools.static_address import StaticAddress
from open_rnic.host_driver.transport import Tcp

__all__ = ["TcpChoice"]

_RTL = "-rtl"
_SOFTWARE = names.parse("software")


@dataclass(frozen=True)
class TcpChoice:
    """A TCP endpoint that can be opened.

    ``kernel`` is this machine's TCP. ``tap:NAME,ADDRESS/PREFIX[,GATEWAY]`` is the twin's, at a TAP device;
    ``qemu:PATH,ADDRESS/PREFIX[,GATEWAY]`` is the twin's, at the socket of QEMU's ``-netdev stream``. With ``tap-rtl``
    and ``qemu-rtl`` it is the RTL's, in simulation. ``attached``: the simulation has data paths, too, and its
    connections are for :class:`.AttachedDevice`; with ``offload``, the data paths have RDMA engines. The MAC address
    follows from the IPv4 address.

    With the device ``udp:ADDRESS``, in ``rnic``, the endpoint is the board at that address, in whatever network it is.
    With ``udp:sim:BOARD``, it is a simulated board, whose cable leads to the TAP device or to QEMU.
    """

    kind: str
    place: str = ""
    address: StaticAddress | None = None
    attached: bool = False
    offload: bool = False
    rnic: names.Rnic | None = None

    @classmethod
    def parse(cls, text: str, device: names.DeviceName = _SOFTWARE, *, offload: bool = False) -> Self:
        """Parse the text, for use with this device. Raises ValueError, with the text in the message."""
        if isinstance(device, names.Rnic):
            return cls._of_rnic(text, device, offload)
        if text == "kernel":
            return cls(text)
        kind, _, rest = text.partition(":")
        place, _, addresses = rest.partition(",")
        if kind.removesuffix(_RTL) not in ("tap", "qemu") or not place or not addresses:
            form = "kernel, tap[-rtl]:NAME,ADDRESS/PREFIX[,GATEWAY] or qemu[-rtl]:PATH,ADDRESS/PREFIX[,GATEWAY]"
            raise ValueError(f"a transport must be {form}, not {text!r}")
        try:
            address = StaticAddress.parse(addresses)
        except ValueError as error:
            raise ValueError(f"{error}, in the transport {text!r}") from None
        return cls(kind, place, address, kind.endswith(_RTL) and device.text == "simulated", offload)

    @classmethod
    def _of_rnic(cls, text: str, device: names.Rnic, offload: bool) -> Self:
        simulated = isinstance(device, names.SimulatedRnic)
        if simulated and text == "kernel":
            raise ValueError(f"the cable of {device} must lead somewhere: choose a transport tap:… or qemu:…")
        if not simulated and text != "kernel":
            raise ValueError(f"{device} has TCP of its own, which takes the place of the transport {text!r}")
        choice = cls.parse(text, offload=offload)
        if choice.kind.endswith(_RTL):
            raise ValueError(f"{device} has TCP of its own: choose a transport tap:… or qemu:…, not {text!r}")
        return replace(choice, rnic=device)

    @contextlib.asynccontextmanager
    async def open_with(self, device: OpenDevice) -> AsyncIterator[tuple[Tcp, OpenDevice]]:
        """Open the endpoint, and return it with the function that opens devices: ``device``, or that of its own."""
        async with self.open() as tcp:
            if isinstance(tcp, AttachedTcp):
                device = tcp.open_device if self.offload else AttachedDevice.open
            yield tcp, device

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[Tcp]:
        """Open the endpoint. Raises PortError if it has no port, or if another host uses its address (RFC 5227).

        Raises DeviceError if its device cannot be opened, and in place of the body's cancellation if a board is lost.
        """
        if isinstance(self.rnic, names.UdpRnic):
            async with endpoint.opened(self.rnic.address, self.rnic.port) as (_, tcp):
                yield tcp
            return
        if self.address is None:
            yield KERNEL
            return
        mac, address, gateway = self.address.mac, self.address.address, self.address.gateway
        port = Tap.existing(self.place) if self.kind.startswith("tap") else QemuPort(Path(self.place))
        if isinstance(self.rnic, names.SimulatedRnic):
            board = endpoint.simulated(self.rnic.place, address, gateway)
            async with port, board as whole, Pipe(port, whole.port):
                if isinstance(port, QemuPort):
                    await port.connected.wait()
                yield whole.tcp
            return
        if self.attached:
            opened = simulated_rnic.opened(mac, address, gateway, offload=self.offload)
            async with port, opened as (rnic, tcp), Pipe(port, rnic):
                if isinstance(port, QemuPort):
                    await port.connected.wait()
                yield tcp
            return
        if self.kind.endswith(_RTL):
            async with port, simulated_path.opened(mac, address, gateway) as path, Pipe(port, path):
                if isinstance(port, QemuPort):
                    await port.connected.wait()
                async with EngineTcp(path, address.ip) as engine:
                    yield engine
            return
        async with port, UserTcp(port, Host(mac, address, gateway)) as twin:
            if isinstance(port, QemuPort):
                await port.connected.wait()
            await twin.claim()
            if conflict := twin.host.conflict:
                raise PortError(f"{address.ip} is in use by {conflict.hex(':')}")
            yield twin
