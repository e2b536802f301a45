"""Ethernet at 1 Gb/s in simulations with a clock of 62.5 MHz: a beat of 4 octets takes two cycles."""

from collections.abc import Callable

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests.harness import PERIOD, cycles
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with
from open_rnic.rtl.net.layouts import Frame

__all__ = ["FULL_FRAME", "LEAST_FRAME", "Wire", "cycles_of"]

OVERHEAD = 24  # octet times of a frame: preamble 8, FCS 4, gap 12
PADDING = 2  # octets in front of each frame


def cycles_of(octets: int) -> int:
    """Return the cycles that a frame of ``octets`` octets, without FCS, takes at 1 Gb/s."""
    return -(-(octets + OVERHEAD) // 2)


LEAST_FRAME, FULL_FRAME = cycles_of(60), cycles_of(1514)  # 42 and 769 cycles


class Wire:
    """Carries frames at 1 Gb/s, from the port ``tx_frames`` of one path, and to the port ``rx_frames`` of another.

    Both ports may belong to the same path; a path that is not named (None) takes or sends nothing. A beat that leaves
    one path arrives at the other in the next cycle. ``lost`` is called with the number of each frame: a frame for which
    it returns true does not arrive. ``frames`` has the cycle in which each frame began, and its octets.
    """

    def __init__(
        self, dut, source: str | None, sink: str | None = None, lost: Callable[[int], bool] = lambda number: False
    ):
        self.frames: list[tuple[int, bytes]] = []
        self._lost = lost
        self._dut = dut
        self._edge = RisingEdge(dut.clk)
        self._queue: Queue[bytes] = Queue()
        self._fields = {name: (field.offset, field.width) for name, field in Frame()}
        if sink is not None:
            self._sink = getattr(dut, f"{sink}rx_frames__payload"), getattr(dut, f"{sink}rx_frames__valid")
            drive(self._sink[1], 0)
        else:
            self._sink = None
        if source is not None:
            self._source = [getattr(dut, f"{source}tx_frames__{name}") for name in ("payload", "valid", "ready")]
            drive(self._source[2], 0)
            cocotb.start_soon(self._carry())
        else:
            cocotb.start_soon(self._send())

    @property
    def idle(self) -> bool:
        """Whether no frame waits to be sent."""
        return self._queue.empty()

    @property
    def cycle(self) -> int:
        """The number of the cycle."""
        return int(get_sim_time("ns")) // PERIOD

    def send(self, frame: bytes) -> None:
        """Send a frame, behind those that wait; only for a wire without a source."""
        self._queue.put_nowait(frame.ljust(60, b"\0"))

    async def _carry(self):
        payload, valid, ready = self._source
        data, octets, last = (self._fields[name] for name in ("data", "octets", "last"))
        while True:
            frame = bytearray()
            ended = False
            lost = self._lost(len(self.frames))
            while not ended:
                drive(ready, 1)
                await rises_with(self._edge, valid)
                drive(ready, 0)
                word = level(payload)
                if not frame:
                    began = self.cycle
                ended = bool(word >> last[0] & 1)
                count = word >> octets[0] & ((1 << octets[1]) - 1) if ended else 4
                frame += (word >> data[0] & 0xFFFF_FFFF).to_bytes(4, "little")[:count]
                if self._sink and not lost:
                    self._drive(bytes(frame[-count:]), ended)
                await self._edge
                if self._sink:
                    drive(self._sink[1], 0)
            self.frames.append((began, bytes(frame[PADDING:])))
            await cycles(self._dut, began + cycles_of(len(frame) - PADDING) - self.cycle - 1)

    async def _send(self):
        while True:
            frame = await self._queue.get()
            await self._edge
            began = self.cycle
            padded = bytes(PADDING) + frame
            for at in range(0, len(padded), 4):
                self._drive(padded[at : at + 4], at + 4 >= len(padded))
                await self._edge
                drive(self._sink[1], 0)
                await self._edge
            self.frames.append((began, frame))
            await cycles(self._dut, began + cycles_of(len(frame)) - self.cycle - 1)

    def _drive(self, octets: bytes, last: bool) -> None:
        beat = int.from_bytes(octets, "little") << self._fields["data"][0]
        beat |= len(octets) << self._fields["octets"][0] | last << self._fields["last"][0]
        payload, valid = self._sink
        drive(payload, beat)
        drive(valid, 1)
