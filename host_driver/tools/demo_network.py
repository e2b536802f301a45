"""The networks of the demonstration: two TCP endpoints that can reach each other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Interface
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from open_rnic.host_driver.devices import names
    from open_rnic.host_driver.net.pipe import Port
    from open_rnic.host_driver.transport import Tcp

__all__ = ["Ends", "Kind", "Network"]

_INITIATOR, _RESPONDER = (IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2))


class Kind(StrEnum):
    """The TCP of both ends: this machine's, on loopback; the twin's; that of simulated RTL."""

    KERNEL = "kernel"
    TWIN = "twin"
    RTL = "rtl"


class Ends(NamedTuple):
    """The TCP of both ends, and the responder's address."""

    initiator: Tcp
    responder: Tcp
    host: str


@dataclass(frozen=True)
class Network:
    """The network of a demonstration.

    Except for ``kernel``, the ends have Ethernet ports, and a frame pipe joins them. It loses each frame with the
    probability ``drop``, and writes the pcapng file ``capture``. ``attached``: the RTL has data paths, too, and its
    connections are for :class:`.AttachedDevice`. With ``boards``, each end has the TCP of this board, or without
    one another: the twin's, or with real boards this machine's.
    """

    kind: Kind = Kind.KERNEL
    drop: float = 0.0
    capture: Path | None = None
    attached: bool = False
    boards: tuple[names.Rnic | None, ...] = ()
    seed: int = 1

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Ends]:
        """Open both ends. Raises DeviceError if a simulation cannot be started, and OSError for the capture."""
        from open_rnic.host_driver.devices import names, simulated_path, simulated_rnic
        from open_rnic.host_driver.devices.udp import endpoint
        from open_rnic.host_driver.net.host import Host, local_mac
        from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
        from open_rnic.host_driver.sockets import KERNEL
        from open_rnic.host_driver.tcp.attached import AttachedTcp
        from open_rnic.host_driver.tcp.engine import EngineTcp
        from open_rnic.host_driver.tcp.stack import UserTcp

        if any(isinstance(board, names.UdpRnic) for board in self.boards):
            async with AsyncExitStack() as stack:
                tcps: list[Tcp] = []
                for board in self.boards:
                    if isinstance(board, names.UdpRnic):
                        opened = endpoint.opened(board.address, board.port)
                        tcps.append((await stack.enter_async_context(opened))[1])
                    else:
                        tcps.append(KERNEL)
                assert isinstance(tcps[1], AttachedTcp)
                yield Ends(tcps[0], tcps[1], str(tcps[1].address))
            return
        if self.kind is Kind.KERNEL and not self.boards:
            yield Ends(KERNEL, KERNEL, "127.0.0.1")
            return
        async with AsyncExitStack() as stack:
            ends: list[tuple[Port, Tcp]] = []
            for nth, interface in enumerate((_INITIATOR, _RESPONDER)):
                mac = local_mac(interface.ip)
                tcp: Tcp
                board = self.boards[nth] if self.boards else None
                if isinstance(board, names.SimulatedRnic):
                    simulated = await stack.enter_async_context(endpoint.simulated(board.place, interface))
                    ends.append((simulated.port, simulated.tcp))
                elif self.boards or self.kind is Kind.TWIN:
                    ours, port = joined()
                    tcp = await stack.enter_async_context(UserTcp(ours, Host(mac, interface)))
                    ends.append((port, tcp))
                elif self.attached:
                    rnic, tcp = await stack.enter_async_context(
                        simulated_rnic.opened(mac, interface, connections=1)
                    )
                    ends.append((rnic, tcp))
                else:
                    path = await stack.enter_async_context(simulated_path.opened(mac, interface, connections=1))
                    tcp = await stack.enter_async_context(EngineTcp(path, interface.ip))
                    ends.append((path, tcp))
            (one, initiator), (other, responder) = ends
            await stack.enter_async_context(Pipe(one, other, Faults(drop=self.drop), self.seed, self.capture))
            yield Ends(initiator, responder, str(_RESPONDER.ip))
