"""A cable from the guest's network card to the twin's TCP, which can lose frames."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Self

from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.net.qemu import QemuPort
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tools.interop.initramfs import HOST

_MAC = bytes.fromhex("020000000002")
_SEED = 1


@dataclass(frozen=True)
class Plan:
    """The faults of each direction of the cable. ``seed`` selects the frames that meet them."""

    faults: Faults = field(default_factory=Faults)
    seed: int = _SEED


class Cable:
    """The cable, as an asynchronous context manager. ``tcp`` is the twin's TCP at this machine's end.

    ``options`` are QEMU's, for a card at the other end. ``path`` is a socket that the cable makes.
    """

    def __init__(self, path: Path, plan: Plan) -> None:
        ours, segment = joined()
        self._qemu = QemuPort(path)
        self._pipe = Pipe(self._qemu, segment, plan.faults, plan.seed)
        self._stack = contextlib.AsyncExitStack()
        self.tcp = UserTcp(ours, Host(_MAC, IPv4Interface(f"{HOST}/24")))
        self.options = f"stream,id=net,server=off,addr.type=unix,addr.path={path}"

    async def __aenter__(self) -> Self:
        for part in (self._qemu, self._pipe, self.tcp):
            await self._stack.enter_async_context(part)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
