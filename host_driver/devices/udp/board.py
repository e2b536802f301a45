"""A whole RNIC in simulation, from its MAC inwards, as an Ethernet port: in Verilator, in a process of its own.

``host_driver.devices.sim.gmii`` is at the other side of the socket.
"""

from __future__ import annotations

from collections.abc import Callable

from open_rnic.boards import NETLIST, find_rnic
from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.frame_socket import FrameSocket
from open_rnic.host_driver.devices.sim.wire import Damage, Kind, frame

__all__ = ["SimulatedBoard", "parameters"]


def parameters(name: str) -> tuple[str, ...]:
    """Return the kind of the simulation of BOARD[:N][:sdram|:netlist], and its parameters.

    Raises ValueError for an unsuitable board.
    """
    ethernet = find_rnic(name)
    number = ethernet.connections
    chip = ethernet.sdram.simulated if ethernet.in_sdram and ethernet.sdram else None
    sizes = str(number), str(ethernet.ring_of(number)), str(chip.octets if chip else ethernet.memory)
    if name.endswith(f":{NETLIST}"):
        return NETLIST, *sizes
    options = [name for name in ("samples", "outside") if getattr(ethernet, name)]
    return "whole", *sizes, *options, *([chip.name] if chip else [])


class SimulatedBoard(FrameSocket):
    """An Ethernet port (:class:`.Port`) of a board. Open it with :meth:`open`."""

    @classmethod
    async def open(cls, name: str) -> SimulatedBoard:
        """Start the board with this name, BOARD[:N][:sdram|:netlist]; the first of a kind takes minutes.

        Raises ValueError for a board that is unknown or has no Ethernet, and DeviceError if it cannot be built or
        started.
        """
        board = cls()
        await board._begin(*parameters(name))
        return board

    def __init__(self) -> None:
        super().__init__()
        self.failed: Callable[[DeviceError], None] = lambda failure: None

    def send(self, given: bytes, damage: Damage = Damage.NONE) -> None:
        """Give a frame to the board's MAC, which may be damaged on its last metre."""
        self._write(frame(Kind.FRAME, damage, given))

    def cable(self, *, up: bool) -> None:
        """Put the cable in, or pull it: the PHY then reports that the link is down."""
        self._write(frame(Kind.CABLE, up))

    def _end(self) -> None:
        before = self.failure
        super()._end()
        if self.failure is not None and before is None:
            self.failed(self.failure)
