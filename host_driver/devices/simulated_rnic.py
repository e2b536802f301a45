"""An RNIC in simulation: TCP, MPA and RDMA in RTL, in Verilator, in a process of its own.

``host_driver.devices.sim.server`` is the other side of the sockets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from ipaddress import IPv4Address, IPv4Interface

from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.devices.sim.frame_socket import FrameSocket
from open_rnic.host_driver.devices.sim.wire import WORD, Kind, frame
from open_rnic.host_driver.devices.simulated import SimulatedDevice
from open_rnic.host_driver.rdma.engine import MappedMemory
from open_rnic.host_driver.tcp.attached import AttachedTcp, RegisterTcp
from open_rnic.rtl.tcp.registers import BY_NAME

__all__ = ["SimulatedRnic", "opened"]


class SimulatedRnic(FrameSocket):
    """An Ethernet port (:class:`.Port`), with the registers of the network path behind it (:class:`.PathRegisters`).

    ``paths`` are the data paths of the connections. Open it with :meth:`open`.
    """

    @classmethod
    async def open(cls, *, connections: int = 4, ring: int = 8192, offload: bool = False) -> SimulatedRnic:
        """Start an RNIC of ``connections`` connections (1, 2, 4 or 8), with rings of ``ring`` octets each way.

        With ``offload``, each connection has an RDMA engine, whose memory is this program's. The first of a kind is
        built, which takes minutes. Raises DeviceError if it cannot be built or started.
        """
        rnic = cls()
        top = "rnic", str(connections), str(ring), *(["rdma"] if offload else [])
        sockets = await rnic._begin(*top, others=connections)
        assert rnic._process
        memory = MappedMemory() if offload else None
        rnic.paths = [await SimulatedDevice.join(each, rnic._process, memory) for each in sockets]
        return rnic

    def __init__(self) -> None:
        super().__init__()
        self.paths: list[SimulatedDevice] = []
        self._interrupt_due = False  # an interrupt has been asked for, and has not come
        self._values: deque[asyncio.Future[int]] = deque()

    # The registers of the network path

    async def get(self, register: str) -> int:
        """See PathRegisters."""
        return await self._access(frame(Kind.GET, BY_NAME[register].address // 4))

    async def set(self, register: str, value: int) -> None:
        """See PathRegisters."""
        await self._access(frame(Kind.SET, BY_NAME[register].address // 4, WORD.pack(value)))

    async def interrupt(self) -> None:
        """See PathRegisters."""
        self._check()
        if not self._interrupt_due:
            self._interrupt_due = True
            self._write(frame(Kind.INTERRUPT))
        await self.gate.until(lambda: not self._interrupt_due or self.failure is not None)
        self._check()

    async def close(self) -> None:
        """End the simulation. Idempotent."""
        for path in self.paths:
            await path.close()
        await super().close()

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        match kind:
            case Kind.VALUE:
                value = self._values.popleft()
                if not value.done():
                    value.set_result(WORD.unpack(octets)[0])
            case Kind.INTERRUPT:
                self._interrupt_due = False

    def _end(self) -> None:
        if self._process and self.failure is None and self._closed:
            self.failure = DeviceError("the device has been closed")
        super()._end()
        for value in self._values:
            if not value.done() and self.failure:
                value.set_exception(self.failure)
        self._values.clear()

    def _check(self) -> None:
        if self.failure:
            raise DeviceError(*self.failure.args)

    async def _access(self, octets: bytes) -> int:
        self._check()
        value: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._values.append(value)
        self._write(octets)
        return await value


@contextlib.asynccontextmanager
async def opened(
    mac: bytes,
    address: IPv4Interface,
    gateway: IPv4Address | None = None,
    *,
    connections: int = 4,
    ring: int = 8192,
    offload: bool = False,
) -> AsyncIterator[tuple[SimulatedRnic, AttachedTcp]]:
    """Return an RNIC with these addresses, and its TCP, as an asynchronous context manager.

    The other parameters are those of :meth:`SimulatedRnic.open`.
    """
    rnic = await SimulatedRnic.open(connections=connections, ring=ring, offload=offload)
    try:
        async with RegisterTcp(rnic, connections) as registers:
            await registers.station(mac, address, gateway)
            paths: list[Device] = [*rnic.paths]
            async with AttachedTcp(registers, address.ip, paths) as tcp:
                yield rnic, tcp
    finally:
        await rnic.close()
