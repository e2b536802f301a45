"""The server in the process of a simulation: it serves a program whatever the top has.

The layout of the top says what that is, and each part has a peripheral here. Python runs once in many clock cycles,
and each time moves all that has accumulated. It sleeps while nothing is on its way; simulated time then stops, or goes
on from tick to tick if the top counts them.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import cocotb

from open_rnic.host_driver.devices.sim.data_path import DataPath
from open_rnic.host_driver.devices.sim.dut import Clock, start
from open_rnic.host_driver.devices.sim.frames import Frames
from open_rnic.host_driver.devices.sim.gmii import Gmii
from open_rnic.host_driver.devices.sim.layout import of
from open_rnic.host_driver.devices.sim.link import Link, wait
from open_rnic.host_driver.devices.sim.peripheral import Peripheral
from open_rnic.host_driver.devices.sim.register_page import RegisterPage
from open_rnic.host_driver.devices.sim.samples import Samples
from open_rnic.host_driver.devices.sim.tcp_streams import TcpStreams
from open_rnic.host_driver.devices.sim.terminal import Cable, Noise, Terminal
from open_rnic.host_driver.devices.sim.wire import ENDS, NOISE, TOP, Kind, frame

_QUIET = 64  # clock cycles: if nothing has moved for this long, nothing will without new input or time
_PAUSE = 0.005  # seconds between two looks at the time, for a top that counts ticks


def peripherals(clock: Clock) -> list[list[Peripheral]]:
    """Return what the top has, behind the program's first link, its second one, and so on."""
    has = clock.layout.control.keys()
    if "to_board_posted" in has:
        seed, chance = os.environ.get(NOISE, "0 0").split()
        return [[Cable(clock, Noise(int(seed), float(chance)))]]
    if "up" in has:
        return [[Gmii(clock), *([RegisterPage(clock, 0, lambda: 0)] if "turn" in has else [])]]
    if "to_send_posted" in has:
        return [[Frames(clock), TcpStreams(clock)]]
    if "tx_ulpdu_posted" in has:
        alone = DataPath(clock)
        return [[alone, *([Samples(clock)] if alone.memory else [])]]
    paths = [DataPath(clock, at) for at in range(sum(name.startswith("flush_") for name in has))]
    memories = [path.memory for path in paths if path.memory]
    registers = RegisterPage(clock, 0, lambda: clock.status["irq"] & 1)
    ends: list[list[Peripheral]] = [[Frames(clock, memories), registers]]
    ends.extend([path] for path in paths)
    return ends


class Server:
    """The parts of a top, each behind one of the program's links."""

    def __init__(self, clock: Clock, links: list[Link]):
        self._clock = clock
        self._links = links
        self._ends = list(zip(links, peripherals(clock), strict=True))
        self._parts = [part for _, parts in self._ends for part in parts]
        self._ticks = "ticks" in clock.control

    async def run(self) -> None:
        """Serve until the program closes the first link, or ends."""
        clock = self._clock
        short, long = clock.layout.slices
        for link in self._links:
            link.send(frame(Kind.HELLO))
        began, quiet, runs, awake = time.monotonic(), 0, False, False
        await clock.step()
        while True:
            talks = await self._serve()
            if self._links[0].ended:
                return
            due = {"ticks": int((time.monotonic() - began) * 1000) & 0xFFFF} if self._ticks else {}
            clock.control.update(due)
            before = clock.status | due
            work = long if awake or before.get("active") else max(part.work for part in self._parts) if runs else 0
            cycles = max(short, min(long, work))
            await clock.step(cycles)
            runs = clock.status != before or bool(clock.status.get("active"))
            quiet = 0 if runs or talks else quiet + cycles
            awake = False
            if quiet >= _QUIET:
                pause = await self._pause()
                awake = pause == 0
                if not awake:
                    wait(self._links, pause)

    async def _serve(self) -> bool:
        """Exchange messages with the program; return whether there were any."""
        moved = False
        for link, parts in self._ends:
            messages = link.messages()
            for message in messages:
                for part in parts:
                    part.take(*message)
            octets = b"".join([await part.serve() for part in parts])
            link.send(octets)
            moved |= bool(messages or octets)
        return moved

    async def _pause(self) -> float | None:
        """Return for how many seconds the clock may stand still; None: for any time."""
        pauses = [await part.pause() for part in self._parts]
        return min((each for each in pauses if each is not None), default=_PAUSE if self._ticks else None)


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """Serve until the program ends. For cocotb, this is the only test in the simulation."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a program that has ended is no reason to die
    await start(dut)
    clock = Clock(dut, of(*os.environ[TOP].split()))
    descriptors = map(int, os.environ[ENDS].split())
    links = [Terminal(each) if os.isatty(each) else Link(each) for each in descriptors]
    await Server(clock, links).run()
