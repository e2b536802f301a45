"""Run splits on whole devices: a message crosses a connection, and the octets that cross the host link are counted.

Each part is done by the host, with the twin's TCP and the software device, or by simulated devices:

========================  =================================  ================================================
on the device             its device                         octets over the link
========================  =================================  ================================================
nothing                   a plain network card: a port       frames
MPA; MPA, RDMA            the data path, without and with    ULPDUs, or words of memory; FPDUs, and frames
                          its engine
TCP                       the network path                   FPDUs
TCP, MPA; TCP, MPA, RDMA  the RNIC, without and with         ULPDUs, or words of memory
                          engines
========================  =================================  ================================================
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from ipaddress import IPv4Interface
from typing import Any

from open_rnic.host_driver import rdma
from open_rnic.host_driver.device import AttachedDevice, Device
from open_rnic.host_driver.devices import open_device, simulated_path, simulated_rnic
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.net.host import Host, local_mac
from open_rnic.host_driver.net.pipe import Pipe, Port, discard, joined
from open_rnic.host_driver.rdma.engine import MappedMemory
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tools.bench.table import Table
from open_rnic.host_driver.tools.split.model import Setting, named, predict
from open_rnic.host_driver.tools.split.sizes import size_of
from open_rnic.host_driver.tools.split.stages import MPA, RDMA, TCP, Direction, Split, Stage
from open_rnic.host_driver.transport import Tcp

__all__ = ["LANES", "Counted", "count", "devices", "table"]

LANES = 4  # of data paths beside the host's TCP; the octets that cross the link do not depend on them
_ADDRESSES = tuple(IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2))
_HEADERS = 80  # octets: a shorter frame has no payload, and is an acknowledgment or part of the opening


@dataclass(frozen=True)
class Counted:
    """The octets of one message over the links of both ends, predicted and counted."""

    device: frozenset[Stage]
    name: str
    octets: int
    predicted: dict[str, float]  #: by direction
    counted: dict[str, int]

    @property
    def error(self) -> float:
        """The relative error of the prediction: 0.01 means 1 % too many octets."""
        return sum(self.predicted.values()) / sum(self.counted.values()) - 1


@dataclass
class _Tally:
    """The octets that have crossed the link of one end, in both directions."""

    octets: int = 0

    def add(self, *packets: Any) -> None:
        """Count packets, which are octets or have octets."""
        self.octets += sum(len(getattr(each, "octets", each)) for each in packets)


def devices(setting: Setting) -> list[Split]:
    """Return the splits with names that whole devices can do."""
    parts = MPA, RDMA, TCP
    return [
        split
        for split in named(setting)
        if split.device == frozenset[Stage]().union(*(part for part in parts if part <= split.device))
    ]


async def count(setting: Setting, split: Split, octets: int) -> Counted:
    """Carry one message by an RDMA Write. Raises DeviceError if a simulation cannot be built or started."""
    [point] = predict(setting, split, [octets]).points
    tallies = _Tally(), _Tally()
    async with contextlib.AsyncExitStack() as stack:
        ends = [
            await stack.enter_async_context(_end(split.device, *each)) for each in zip(_ADDRESSES, tallies, strict=True)
        ]
        (one, client, near), (other, server, far) = ends
        await stack.enter_async_context(Pipe(one, other))
        await _carry(client, near, server, far, octets, tallies)
    counted = {direction.value: tally.octets for direction, tally in zip(Direction, tallies, strict=True)}
    name = predict(setting, split, [1]).name
    return Counted(split.device, name, octets, point.link, counted)


async def _carry(
    client: Tcp, near: rdma.OpenDevice, server: Tcp, far: rdma.OpenDevice, octets: int, tallies: Sequence[_Tally]
) -> None:
    message, memory = bytes(n % 251 for n in range(octets)), bytearray(octets)
    patient = rdma.Config(rdma.Role.INITIATOR, timeout=60.0)
    host = str(_ADDRESSES[1].ip)
    responder = rdma.Config(rdma.Role.RESPONDER, timeout=60.0)
    async with await rdma.listen(host, 7174, responder, device=far, tcp=server) as listener:
        connecting = asyncio.create_task(rdma.connect(host, 7174, patient, device=near, tcp=client))
        async with await (await listener.request()).accept() as theirs, await connecting as ours:
            region = theirs.register(memory, rdma.Access.REMOTE_WRITE)
            await theirs.send(region.stag.to_bytes(4, "big"))
            stag = int.from_bytes((await ours.receive()).data, "big")
            for tally in tallies:
                tally.octets = 0
            await ours.write(message, stag)
            await ours.send(b"")
            await theirs.receive()
            if memory != message:
                raise rdma.RdmaError("the message has not arrived as it was sent")
            counted = [tally.octets for tally in tallies]
        for tally, found in zip(tallies, counted, strict=True):
            tally.octets = found


@contextlib.asynccontextmanager
async def _end(
    device: frozenset[Stage], address: IPv4Interface, tally: _Tally
) -> AsyncIterator[tuple[Port, Tcp, rdma.OpenDevice]]:
    """Open one end of a connection: its Ethernet port, its TCP, and the devices of its connections."""
    mac = local_mac(address.ip)
    offload = device >= RDMA
    if device >= TCP | MPA:
        async with simulated_rnic.opened(mac, address, connections=1, offload=offload) as (rnic, tcp):
            if isinstance(memory := tcp.paths[0].memory, MappedMemory):
                _count_memory(memory, tally)
            else:
                _count_methods(tcp.paths[0], tally, ULPDUS)
            yield rnic, tcp, tcp.open_device if offload else AttachedDevice.open
    elif device >= TCP:
        async with simulated_path.opened(mac, address, connections=1) as path, EngineTcp(path, address.ip) as engine:
            yield path, engine, partial(_software, tally)
    else:
        ours, port = joined()
        async with UserTcp(ours, Host(mac, address)) as twin:
            open_one = partial(_data_path, offload, tally) if device >= MPA else partial(_software, None)
            yield _CountedPort(port, tally), twin, open_one


async def _software(tally: _Tally | None) -> Device:
    """Open the software device; with ``tally``, its FPDUs cross the link."""
    device = SoftwareDevice()
    if tally:
        _count_methods(device, tally, FPDUS)
    return device


async def _data_path(offload: bool, tally: _Tally) -> Device:
    """Open the data path in RTL."""
    device = await open_device("simulated", lanes=LANES, offload=offload)
    _count_methods(device, tally, FPDUS if offload else FPDUS + ULPDUS)
    if isinstance(device.memory, MappedMemory):
        _count_memory(device.memory, tally)
    return device


ULPDUS = ("write_ulpdu", "write_ulpdus", "read_ulpdu", "read_ulpdus")
FPDUS = ("write_mpa", "read_fpdus")


def _count_methods(device: Device, tally: _Tally, names: Sequence[str]) -> None:
    """Count what passes through these methods of a device."""
    for name in names:
        setattr(device, name, _counting(getattr(device, name), tally))


def _counting(method: Callable[..., Awaitable[Any]], tally: _Tally) -> Callable[..., Awaitable[Any]]:
    async def call(*arguments: Any) -> Any:
        result = await method(*arguments)
        for packets in (*arguments, result):
            if packets is not None:
                tally.add(*(packets if isinstance(packets, list) else [packets]))
        return result

    return call


def _count_memory(memory: MappedMemory, tally: _Tally) -> None:
    """Count the words that an engine reads and writes. A simulation may read a word again, which is counted once."""
    words, write = memory.words, memory.write
    read: set[int] = set()

    def counted_words(address: int, most: int, word: int) -> bytes:
        found = words(address, most, word)
        numbers = set(range(address, address + len(found), word)) - read
        read.update(numbers)
        tally.octets += word * len(numbers)
        return found

    def counted_write(address: int, octets: Any) -> None:
        tally.add(octets)
        write(address, octets)

    memory.words, memory.write = counted_words, counted_write  # type: ignore[method-assign]


class _CountedPort:
    """The port of a plain network card, whose frames cross the link."""

    def __init__(self, port: Port, tally: _Tally) -> None:
        self.receive: Callable[[bytes], None] = discard
        self._port = port
        self._tally = tally
        port.receive = self._out

    def _out(self, frame: bytes) -> None:
        self._count(frame)
        self.receive(frame)

    def send(self, frame: bytes) -> None:
        """See Port."""
        self._count(frame)
        self._port.send(frame)

    def _count(self, frame: bytes) -> None:
        if len(frame) >= _HEADERS:
            self._tally.add(frame)


def table(counts: Sequence[Counted]) -> Table:
    """Return a table with a row for each split."""
    rows = []
    for each in counts:
        both = (f"{each.predicted[way]:,.0f} / {each.counted[way]:,}" for way in each.predicted)
        rows.append((each.name, *both, f"{each.error:+.1%}"))
    title = f"Octets over the links of whole devices for a message of {size_of(counts[0].octets)}, predicted / counted"
    return Table(title, ("on the device", "sender", "receiver", "error"), rows, left=(0,))
