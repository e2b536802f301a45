"""The server in the process that simulates a board: it carries octets between a pseudo-terminal and the board's pins.

Python runs once in many clock cycles. It sleeps while no octets are on their way; simulated time then stops.
"""

from __future__ import annotations

import os
import random
import select
from array import array
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.handle import Immediate
from cocotb.triggers import Timer

from open_rnic.host_driver.devices.sim.board import CONTROL, STATUS
from open_rnic.host_driver.devices.sim.dut import PERIOD, Memory, start
from open_rnic.host_driver.devices.sim.layout import COUNT, DEPTH, pack, unpack
from open_rnic.host_driver.devices.sim.wire import NOISE, TERMINAL

_WORD = 4  # octets of memory for each octet in a ring
_CYCLES = 512  # clock cycles between two steps of Python: too few to fill a ring


class Terminal:
    """The master of a pseudo-terminal; only :meth:`wait` blocks."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor
        os.set_blocking(descriptor, False)
        self._unsent = bytearray()

    def send(self, octets: bytes) -> None:
        """Send octets; those that the terminal does not accept at once are sent later."""
        self._unsent += octets
        try:
            while self._unsent:
                del self._unsent[: os.write(self._descriptor, self._unsent)]
        except BlockingIOError:
            pass

    def receive(self, most: int) -> bytes | None:
        """Return up to ``most`` received octets; None if the program has closed its side or ended."""
        try:
            return os.read(self._descriptor, most) if most else b""
        except BlockingIOError:
            return b""
        except OSError:
            return None

    def wait(self) -> None:
        """Sleep until there are octets to receive, or until more octets can be sent."""
        select.select([self._descriptor], [self._descriptor] if self._unsent else [], [])


class Noise:
    """A noisy line: a bit of each octet is flipped, or the octet lost or doubled, with probability ``chance``."""

    def __init__(self, seed: int, chance: float):
        self._random = random.Random(seed)
        self._chance = chance

    def __call__(self, octets: bytes) -> bytes:
        """Return the octets as they arrive at the other end of the line."""
        return b"".join(
            self._damaged(each) if self._random.random() < self._chance else bytes((each,)) for each in octets
        )

    def _damaged(self, octet: int) -> bytes:
        return self._random.choice((bytes((octet ^ 1 << self._random.randrange(8),)), b"", bytes((octet, octet))))


async def carry(dut: Any, terminal: Terminal, noise: Callable[[bytes], bytes] = bytes) -> None:
    """Carry octets until the program closes the terminal."""
    to_board = Memory(f"{cocotb.top._name}.shared_to_board", _WORD)
    from_board = Memory(f"{cocotb.top._name}.shared_from_board", _WORD)
    control, written = dict.fromkeys(CONTROL, 0), 0
    status = dict.fromkeys(STATUS, 0)
    while True:
        room = DEPTH - (control["to_board_posted"] - status["to_board_taken"]) % COUNT
        octets = terminal.receive(room // 2)  # noise may double all of them
        if octets is None:
            return
        octets = noise(octets)
        if octets:
            to_board.write(control["to_board_posted"], array("I", list(octets)).tobytes())
            control["to_board_posted"] = (control["to_board_posted"] + len(octets)) % COUNT
        elif not status["active"] and control["to_board_posted"] == status["to_board_taken"]:
            terminal.wait()
            terminal.send(b"")
            continue
        word = pack(CONTROL, control)
        if word != written:
            dut.control.set(Immediate(word))
            written = word
        await Timer(_CYCLES * PERIOD, "step")
        status = unpack(STATUS, int(dut.status.value))
        assert not status["from_board_lost"], "the ring was too short"
        count = (status["from_board_written"] - control["from_board_freed"]) % COUNT
        if count:
            terminal.send(noise(from_board.read(control["from_board_freed"], count)[::_WORD]))
            control["from_board_freed"] = status["from_board_written"]


@cocotb.test()  # type: ignore[untyped-decorator]
async def serve(dut: Any) -> None:
    """Serve until the program ends. For cocotb, this is the only test in the simulation."""
    await start(dut)
    seed, chance = os.environ.get(NOISE, "0 0").split()
    noise = Noise(int(seed), float(chance)) if float(chance) else bytes
    terminal = Terminal(int(os.environ[TERMINAL]))
    terminal.send(b"\0")  # the simulation is up; between frames a zero has no meaning
    await carry(dut, terminal, noise)
