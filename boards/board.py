"""The description of a board."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from open_rnic.boards.core import Core
from open_rnic.rtl.mac.phy import PhySettings
from open_rnic.rtl.mac.rgmii import RgmiiDelays
from open_rnic.rtl.memory.chips import Chip, Kind
from open_rnic.rtl.tcp.send_ring import ROOM

__all__ = ["LEAST_PERIOD", "Board", "Core", "Ethernet", "Interface"]

#: Smallest number of clock cycles in a bit of the UART, so that it samples reliably.
LEAST_PERIOD = 8

#: Largest number of connections whose rings are in block RAM.
INSIDE = 16

_NO_DELAYS = RgmiiDelays()


class Interface(StrEnum):
    """How a PHY is connected."""

    RGMII = "rgmii"
    MII = "mii"


@dataclass(frozen=True)
class Ethernet:
    """The Ethernet port of a board, and the size of the RNIC that is built behind it.

    Parameters
    ----------
    phy : name of the PHY
    interface : its interface
    settings : of the PHY
    delays : of the pins of RGMII
    port : number of the platform's resource "eth_rgmii" or "eth_mii", which has the pins of the PHY, with "mdc", "mdio"
        and, if the PHY can be reset, "rst", which stays open if it never is
    reference : name of a resource on which the FPGA gives the PHY its clock of 25 MHz, if it does so
    clock_hz : frequency of the RNIC's clock
    connections : number of connections
    memory : octets of memory for the RDMA engine, a power of 2
    ring : the most octets of each of a connection's two rings for TCP, a power of 2
    rings : octets of block RAM for the rings of all connections in each direction, which they share equally; more if a
        ring had no room for a packet
    samples : whether there is a sample writer, with a signal generator
    sdram : the SDRAM of the board, on the platform's resource "sdram", or "ddr3"
    in_sdram : whether the RDMA engine's memory is all of the SDRAM, and no block RAM

    """

    phy: str
    interface: Interface
    settings: PhySettings
    delays: RgmiiDelays = _NO_DELAYS
    port: int = 0
    reference: str | None = None
    clock_hz: int = 50_000_000
    connections: int = 1
    memory: int = 1 << 14
    ring: int = 1 << 14
    rings: int = 1 << 14
    samples: bool = False
    sdram: Chip | None = None
    in_sdram: bool = False

    @property
    def resource(self) -> tuple[str, int]:
        """The platform's resource with the pins."""
        return f"eth_{self.interface}", self.port

    @property
    def outside(self) -> bool:
        """Whether there are too many connections for rings in block RAM. Such an RNIC can be simulated, not built."""
        return self.connections > INSIDE

    def ring_of(self, connections: int) -> int:
        """Return the octets of each ring of each of this number of connections."""
        return max(ROOM, min(self.ring, self.rings // min(connections, INSIDE)))

    def sized(
        self, connections: int | None = None, memory: int | None = None, samples: bool | None = None,
        in_sdram: bool = False,
    ) -> "Ethernet":  # fmt: skip
        """Return the port with an RNIC of another size; raises ValueError if there is no SDRAM.

        Too many connections for block RAM have as much memory each as the most that are not.
        """
        if in_sdram:
            if self.sdram is None:
                raise ValueError("has no SDRAM that an RNIC could use")
            memory = self.sdram.octets
        number = self.connections if connections is None else connections
        return replace(
            self,
            connections=number,
            memory=self.memory * max(1, number // INSIDE) if memory is None else memory,
            samples=self.samples if samples is None else samples,
            in_sdram=in_sdram,
        )

    @property
    def clocks(self) -> dict[str, int]:
        """The frequencies in Hz of the clock domains that the FPGA makes, the RNIC's first."""
        made = {"sync": self.clock_hz}
        if self.interface is Interface.RGMII:
            made["mac_tx"] = 125_000_000
        if self.reference is not None:
            made["phy"] = 25_000_000
        if self.in_sdram:
            made["sdram"] = 2 * self.clock_hz
        if self.edge is not None:
            made["init"] = 25_000_000
        return made

    @property
    def edge(self) -> str | None:
        """The clock domain of the pins of DDR3 SDRAM, of which "sync" is made: see :class:`.Pll`."""
        return "sdram" if self.in_sdram and self.sdram is not None and self.sdram.kind is Kind.DDR3 else None

    @property
    def phy_clocks(self) -> dict[str, int]:
        """The frequencies in Hz of the clock domains that have a clock of the PHY, at its highest speed."""
        if self.interface is Interface.RGMII:
            return {"mac_rx": 125_000_000}
        return {"mac_rx": 25_000_000, "mac_tx": 25_000_000}


@dataclass(frozen=True)
class Board:
    """A board, and the defaults for building it.

    Parameters
    ----------
    name, title : name in commands, and full name
    part : FPGA, package and speed grade
    flow : name of the flow that builds it, a key of ``boards.flows.FLOWS``
    platform : makes Amaranth's platform, which has the oscillator as default clock, and a resource "uart"
    oscillator_hz, clock_hz : frequencies of the platform's clock and of the data path; a PLL is used if they differ
    lanes, widths : default width, and all widths that fit
    uart : where to find the link's wires
    loader : options for openFPGALoader that select the board
    baud : rate of the link's UART
    size : largest size of a link frame in octets
    led : name of a resource whose lights show activity on the link
    memory : octets of block RAM for the RDMA engine, a power of 2; 0 if the engine does not fit
    ethernet : the Ethernet port, if the whole RNIC can be built

    """

    name: str
    title: str
    part: str
    flow: str
    platform: Callable[[], Any]
    oscillator_hz: int
    clock_hz: int
    lanes: int
    widths: tuple[int, ...]
    uart: str
    loader: tuple[str, ...]
    baud: int = 3_000_000
    size: int = 2048
    led: str | None = None
    memory: int = 0
    ethernet: Ethernet | None = None

    @property
    def core(self) -> Core:
        """The default core: the whole RNIC where there is Ethernet."""
        return Core.MPA if self.ethernet is None else Core.RNIC

    def supports(self, core: Core) -> bool:
        """Whether the board can have this core."""
        return {Core.RNIC: self.ethernet is not None, Core.MPA: True, Core.RDMA: self.memory > 0}[core]

    def check(self, core: Core) -> None:
        """Raise ValueError if the board cannot have this core."""
        if not self.supports(core):
            lacks = "Ethernet that an RNIC could use" if core is Core.RNIC else "room for an RDMA engine"
            raise ValueError(f"{self.name} has no {lacks}: choose --core mpa")

    def sized(
        self, connections: int | None = None, memory: int | None = None, samples: bool | None = None,
        in_sdram: bool = False,
    ) -> "Board":  # fmt: skip
        """Return the board with an RNIC of another size: see :meth:`Ethernet.sized`; ValueErrors name the board."""
        if self.ethernet is None:
            raise ValueError(f"{self.name} has no Ethernet that an RNIC could use")
        try:
            return replace(self, ethernet=self.ethernet.sized(connections, memory, samples, in_sdram))
        except ValueError as problem:
            raise ValueError(f"{self.name} {problem}") from None

    def clocks(self, core: Core) -> dict[str, int]:
        """The frequencies in Hz of the clock domains that the FPGA makes, the core's ("sync") first."""
        if core is Core.RNIC and self.ethernet is not None:
            return self.ethernet.clocks
        return {"sync": self.clock_hz}

    def all_clocks(self, core: Core) -> dict[str, int]:
        """The frequencies in Hz of all clock domains with logic, the core's ("sync") first."""
        port = self.ethernet if core is Core.RNIC else None
        found = self.clocks(core) | (port.phy_clocks if port is not None else {})
        return {name: each for name, each in found.items() if port is None or name != port.edge}

    def width(self, core: Core) -> int:
        """The default width: with an RDMA engine, which one lane is wide enough for, the least that fits."""
        return self.lanes if core is Core.MPA else min(self.widths)

    def path_options(self, core: Core) -> dict[str, int]:
        """Return the options of the data path's top; raises ValueError if the engine does not fit."""
        self.check(core)
        return {"size": self.size, "memory": self.memory if core is Core.RDMA else 0}

    @property
    def period(self) -> Fraction:
        """Clock cycles of the data path in a bit of the UART."""
        return Fraction(self.clock_hz, self.baud)
