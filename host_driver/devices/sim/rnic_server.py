"""The server in the process that simulates an RNIC: frames and the registers of the network path over one socket, the
data paths of the connections over one socket each.

Milliseconds of real time become ticks of the RTL.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque
from functools import partial
from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.dut import start
from open_rnic.host_driver.devices.sim.layout import rnic_control, rnic_status
from open_rnic.host_driver.devices.sim.path_server import PAUSE, Frames
from open_rnic.host_driver.devices.sim.path_wire import Kind as PathKind
from open_rnic.host_driver.devices.sim.rdma_server import Engine
from open_rnic.host_driver.devices.sim.server import QUIET, Clock, DataPath, Drain, Feed, Link
from open_rnic.host_driver.devices.sim.wire import ENGINES, SOCKET, WORD, Kind, frame
from open_rnic.rtl.registers import Verdict
from open_rnic.rtl.rnic import PAGE_BITS
from open_rnic.rtl.tcp.pieces import PIECE
from open_rnic.rtl.tcp.registers import BY_NAME

_SHORT, _LONG = 64, 512  # clock cycles between two steps of Python, with little and with much to do
_BLOCK = 1 << 11  # octets that an engine reads at once: any frame may be the reason for another content of memory
_CHANGED = BY_NAME["CHANGED"].address // 4


class RnicServer:
    """The RNIC at the other end of its links: that of the network path, and those of the data paths."""

    def __init__(self, dut: Any, link: Link, links: list[Link], *, rdma: bool):
        self._link = link
        count = len(links)
        self._clock = Clock(dut, rnic_control(count, rdma=rdma), rnic_status(count, rdma=rdma))
        self._engines = [Engine(1, self._clock.control, f"_{at}", _BLOCK) for at in range(count) if rdma]
        self._frames = Frames(self._clock.control)
        self._accesses: deque[tuple[int, int, bytes]] = deque()
        self._reported = False  # the program knows of the interrupt
        self._still = [0] * len(links)  # cycles since the data path has delivered something
        self._paths = [
            DataPath(
                each,
                [Feed(Kind.ULPDU, f"tx_ulpdu_{at}", 1)],
                [Drain(Kind.ULPDU, f"rx_ulpdu_{at}", 1, (Verdict.GOOD, Verdict.STREAM, Verdict.CRC))],
                self._clock.control,
                partial(self._access, 1 + at),
                f"_{at}",
                partial(self._move, at),
            )
            for at, each in enumerate(links)
        ]

    async def run(self) -> None:
        """Serve until the program goes away."""
        links = [self._link, *(path.link for path in self._paths)]
        for link in links:
            link.send(frame(Kind.HELLO))
        began = time.monotonic()
        status = await self._clock.step(_SHORT)
        while (messages := [link.receive() for link in links])[0] is not None:
            for message in messages[0]:
                self._take(*message)
            for at, given in enumerate(messages[1:]):
                for kind, note, octets in given or ():
                    if not (self._engines and self._engines[at].take(kind, octets)):
                        self._paths[at].take(kind, note, octets)
            self._clock.control["ticks"] = int((time.monotonic() - began) * 1000) & 0xFFFF
            out = self._frames.move(status) + await self._registers(status["irq"] & 1)
            self._link.send(out)
            moved = bool(out) or any(messages)
            for at, path in enumerate(self._paths):
                irq = status["irq"] >> 1 + at & 1
                sent = self._move(at)
                sent += await path.serve(status, irq=irq, settle=partial(self._clock.step, _SHORT))
                path.link.send(sent)
                moved |= bool(sent)
                self._still[at] = 0 if sent or not path.received_all(status, irq) else self._still[at] + _SHORT
                if path.drains_due and self._still[at] >= QUIET + PIECE:
                    path.link.send(path.drained())
            busy = self._frames.busy + sum(path.backlog for path in self._paths)
            before = status
            status = await self._clock.step(_LONG if busy > _SHORT else _SHORT)
            waits = any(path.drains_due for path in self._paths)
            if not (moved or busy or waits) and status == before:
                select.select([link.descriptor for link in links], [], [], PAUSE)

    def _take(self, kind: int, note: int, octets: bytes) -> None:
        if kind == PathKind.FRAME:
            self._frames.add(octets)
            for engine in self._engines:
                engine.forget()
        else:
            self._accesses.append((kind, note, octets))

    def _move(self, at: int) -> bytes:
        """Move the words of an engine's memory; return octets to send."""
        if not self._engines:
            return b""
        status = self._clock.status
        return self._engines[at].move(status, status["rdma_irq"] >> at & 1)

    async def _registers(self, irq: int) -> bytes:
        """Access registers of the network path, and report its interrupt."""
        out = b""
        while self._accesses:
            kind, address, octets = self._accesses.popleft()
            (value,) = WORD.unpack(octets) if kind == PathKind.SET else (0,)
            result = await self._access(0, address, kind == PathKind.SET, value)
            out += frame(PathKind.VALUE, address, WORD.pack(result))
            if address == _CHANGED and kind == PathKind.SET:
                self._reported = irq = False
        if irq and not self._reported:
            self._reported = True
            out += frame(PathKind.IRQ)
        return out

    async def _access(self, page: int, address: int, write: int, value: int) -> int:
        return await self._clock.access(page << PAGE_BITS | address, write, value)


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """The only test of the simulation: it ends with the program that started it."""
    await start(dut)
    first, *others = [Link(int(descriptor)) for descriptor in os.environ[SOCKET].split(",")]
    await RnicServer(dut, first, others, rdma=ENGINES in os.environ).run()
    for link in (first, *others):
        link.close()
