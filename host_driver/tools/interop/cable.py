"""A cable from the guest's network card to this project's TCP, which can lose frames."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Self

from open_rnic.host_driver.devices import simulated_path, simulated_rnic
from open_rnic.host_driver.devices.udp import endpoint
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.netdev import QemuPort
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tools.interop.initramfs import HOST
from open_rnic.host_driver.transport import Tcp

_MAC = bytes.fromhex("020000000002")
_SEED = 1


@dataclass(frozen=True)
class Plan:
    """The faults of each direction of the cable, and what is at its end: TCP in RTL, or the twin.

    With ``attached``, the RTL has data paths, too, for an :class:`.AttachedDevice`; with ``offload``, these have RDMA
    engines. With the name of a ``board``, it is the whole RNIC of this board.
    ``seed`` selects the frames that meet faults.
    """

    faults: Faults = field(default_factory=Faults)
    seed: int = _SEED
    rtl: bool = False
    attached: bool = False
    offload: bool = False
    board: str = ""


class Cable:
    """The cable, as an asynchronous context manager. ``tcp`` is the TCP at this machine's end.

    ``options`` are QEMU's, for a card at the other end. ``path`` is a socket that the cable makes.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        self._path = path
        self._plan = plan
        self._stack = contextlib.AsyncExitStack()
        self.tcp: Tcp = KERNEL
        self.options = f"stream,id=net,server=off,addr.type=unix,addr.path={path}"

    async def __aenter__(self) -> Self:
        plan, enter = self._plan, self._stack.enter_async_context
        address = IPv4Interface(f"{HOST}/24")
        qemu = await enter(QemuPort(self._path))
        if plan.board:
            board = await enter(endpoint.simulated(plan.board, address, faults=plan.faults, seed=plan.seed))
            await enter(Pipe(qemu, board.port))
            self.tcp = board.tcp
        elif plan.attached:
            rnic, self.tcp = await enter(simulated_rnic.opened(_MAC, address, offload=plan.offload))
            await enter(Pipe(qemu, rnic, plan.faults, plan.seed))
        elif plan.rtl:
            path = await enter(simulated_path.opened(_MAC, address))
            await enter(Pipe(qemu, path, plan.faults, plan.seed))
            self.tcp = await enter(EngineTcp(path, address.ip))
        else:
            ours, segment = joined()
            await enter(Pipe(qemu, segment, plan.faults, plan.seed))
            self.tcp = await enter(UserTcp(ours, Host(_MAC, address)))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
