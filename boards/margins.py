"""Setup and hold at both ends of RGMII at 1 Gb/s, computed from a board's delays and from data sheets.

Place and route knows no times outside of the FPGA, so nothing else checks the delays. All times are in ps. Data and
clock leave together; at the receiver, the clock must be later than the data by a time in a window.
"""

from dataclasses import dataclass

from open_rnic.boards import BOARDS, find
from open_rnic.boards.board import Interface
from open_rnic.rtl.mac.rgmii import RgmiiDelays

__all__ = ["PHYS", "Margin", "Phy", "margins", "with_rgmii"]

_HALF = 4000  # ps from an edge of the clock to the next one
_SHORT_HALF = 3600  # the same with 45 % of a cycle (RGMII 2.0, Duty_G)
_SKEW = 500  # of a transmitter without a delay (RGMII 2.0, TskewT)
_DELAYED = 1000, 2600  # the window of a receiver without a delay of its own (RGMII 2.0, TskewR)
#: FPGA-DS-02012 for an LFE5U: skew of pins that change together (GDDRX1_TX.SCLK.Aligned), setup and hold around a clock
#: in the middle of the data (GDDRX1_RX.SCLK.Centered). The tools delay data by 39 taps for the latter: see nextpnr.
_FPGA_SKEW = 300
_FPGA_WINDOW = 520
_FPGA_CENTRED = 39 * 25
_TAP_SPREAD = 0.1  # of a DELAYG, by assumption: its data sheet has only typical taps


@dataclass(frozen=True)
class Phy:
    """The delays of a PHY's clocks, as its straps and its reset leave them.

    Parameters
    ----------
    tx : whether it delays TXC
    rx : ps by which RXC is later than RXD, typically
    setup : ps for which RXD are there before an edge of RXC, at least
    hold : the same behind the edge, at least

    """

    tx: bool
    rx: int
    setup: int
    hold: int


_BOTH = Phy(tx=True, rx=2000, setup=1200, hold=1200)  # RGMII 2.0 with internal delays: TsetupT, TholdT
#: By the names in the boards' files.
PHYS = {
    "Broadcom B50612D": _BOTH,
    "Marvell 88E1512": _BOTH,
    "Realtek RTL8211FD": _BOTH,
    # DS00002117F, 7.1: RXC is late by 1.2 ns, TXC is not; RXC's skew is that of RGMII
    "Microchip KSZ9031RNX": Phy(tx=False, rx=1200, setup=1200 - _SKEW, hold=_SHORT_HALF - 1200 - _SKEW),
}


@dataclass(frozen=True)
class Margin:
    """Setup and hold that are left of what a receiver needs, typically and in the worst case of all figures together.

    ``delay`` is that of ``pins`` in the FPGA, and ``middle`` the one that would leave as much setup as hold, typically.
    """

    way: str
    pins: str
    delay: int
    setup: int
    hold: int
    worst_setup: int
    worst_hold: int
    middle: int


def with_rgmii() -> list[str]:
    """Return the names of the boards with RGMII."""
    return [name for name in BOARDS if (port := find(name).ethernet) and port.interface is Interface.RGMII]


def margins(name: str) -> tuple[Margin, Margin]:
    """Return the margins of transmit and receive of a board; raises ValueError for one without RGMII."""
    ethernet = find(name).ethernet
    if ethernet is None or ethernet.interface is not Interface.RGMII:
        raise ValueError(f"{name} has no RGMII; these boards have: {', '.join(with_rgmii())}")
    phy, delays = PHYS[ethernet.phy], ethernet.delays
    return _transmit(phy, delays), _receive(phy, delays)


def _transmit(phy: Phy, delays: RgmiiDelays) -> Margin:
    least, most = (-_SKEW, _SKEW) if phy.tx else _DELAYED
    late = delays.tx_clock
    spread = round(late * _TAP_SPREAD) + _FPGA_SKEW
    return Margin(
        "transmit", "TXC", late, late - least, most - late, late - spread - least, most - late - spread,
        _taps((least + most) // 2),
    )  # fmt: skip


def _receive(phy: Phy, delays: RgmiiDelays) -> Margin:
    later = delays.rx_data - delays.rx_clock - _FPGA_CENTRED  # data, at the registers
    spread = round((delays.rx_data + delays.rx_clock) * _TAP_SPREAD)
    setup, hold = _FPGA_WINDOW + later, _FPGA_WINDOW - later  # that the FPGA needs at its pins
    return Margin(
        "receive", "RXD", delays.rx_data, phy.rx - setup, _HALF - phy.rx - hold, phy.setup - setup - spread,
        phy.hold - hold - spread, _taps(delays.rx_clock + _FPGA_CENTRED + phy.rx - _HALF // 2),
    )  # fmt: skip


def _taps(delay: int) -> int:
    """Return the nearest delay that a DELAYG has."""
    return max(0, round(delay / 25) * 25)
