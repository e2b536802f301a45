"""The registers of an Ethernet port, as plain data.

:class:`.EthernetPort` is their gateware. This module imports no hardware library.
"""

from enum import IntEnum

from open_rnic.rtl.registers import Access, Field, Register

__all__ = ["BY_NAME", "IDENTITY", "MAC_MAP", "VERSION", "LinkSource", "Speed"]

IDENTITY = int.from_bytes(b"MAC1", "big")
VERSION = 0x0001_0000


class Speed(IntEnum):
    """The speed of a link, as RGMII encodes the frequency of RXC."""

    MBIT_10 = 0
    MBIT_100 = 1
    MBIT_1000 = 2


class LinkSource(IntEnum):
    """Where the state of the link comes from."""

    MDIO = 0  # the registers of the PHY
    IN_BAND = 1  # the reports of a PHY with RGMII between frames
    FIXED = 2  # nowhere: the link is up, with CONTROL.speed


def _count(name: str, address: int, doc: str) -> Register:
    return Register(name, address, doc, (Field("value", 0, 32, "frames"),))


def _state(first: int = 0) -> tuple[Field, ...]:
    return (
        Field("up", first, 1, "the link is up"),
        Field("speed", first + 1, 2, "its speed", enum=Speed),
        Field("full_duplex", first + 3, 1, "it is full duplex; the MAC works in no other way"),
    )


MAC_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x000, "Identifies the page.", (
        Field("value", 0, 32, '"MAC1" in ASCII', reset=IDENTITY),
    )),
    Register("VERSION", 0x004, "The version of the register map.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x008, "The parameters with which the port was built.", (
        Field("rx_queue", 0, 8, "size of the queue of received frames: 2 to this power octets"),
        Field("tx_queue", 8, 8, "size of the queue of frames to transmit: 2 to this power octets"),
        Field("phy", 16, 5, "address on MDIO at which the PHY is read"),
        Field("in_band", 24, 1, "the interface to the PHY is RGMII, which has IN_BAND"),
    )),
    Register("CONTROL", 0x00C, "Controls the port.", (
        Field("enable", 0, 1, "let the MAC run while the link is up", Access.RW, 1),
        Field("source", 1, 2, "where the state of the link comes from; a board may have another reset value", Access.RW,
              LinkSource.MDIO, LinkSource),
        Field("speed", 3, 2, "the speed if `source` is FIXED", Access.RW, Speed.MBIT_1000, Speed),
        Field("restart_phy", 8, 1, "reset the PHY and set it up again", Access.PULSE),
    )),
    Register("LINK", 0x010, "The state of the link.", (
        *_state(),
        Field("running", 4, 1, "frames pass"),
        Field("phy_answers", 5, 1, "the PHY has answered when MDIO read it last"),
        Field("changed", 6, 1, "`running` has changed; the interrupt is set while this bit is", Access.CLEAR),
    )),
    Register("IN_BAND", 0x014, "The state that a PHY with RGMII reported last between frames.", _state()),
    Register("PHY_ACCESS", 0x018, "An access to a register of a PHY.", (
        Field("data", 0, 16, "the word to write", Access.RW),
        Field("register", 16, 5, "number of the register", Access.RW),
        Field("phy", 21, 5, "address of the PHY", Access.RW),
        Field("write", 26, 1, "1: write; 0: read", Access.RW),
        Field("go", 30, 1, "make the access", Access.PULSE),
        Field("pending", 31, 1, "the access has not been made; do not write to this register"),
    )),
    Register("PHY_RESULT", 0x01C, "The result of the last access.", (
        Field("data", 0, 16, "the word that was read"),
        Field("answered", 16, 1, "a PHY has answered; only of a read"),
    )),
    _count("RX_FRAMES", 0x080, "Frames received, and stored for the core."),
    _count("RX_NO_ROOM", 0x084, "Good frames discarded, because the core had not taken the frames before them."),
    _count("RX_ERROR", 0x088, "Frames discarded, because the PHY reported an error in them."),
    _count("RX_OVERSIZE", 0x08C, "Frames discarded, because they were too long."),
    _count("RX_RUNT", 0x090, "Frames discarded, because they were shorter than 64 octets, or had no SFD."),
    _count("RX_FCS", 0x094, "Frames discarded, because their FCS was wrong."),
    _count("TX_FRAMES", 0x098, "Frames transmitted."),
    _count("TX_DROPPED", 0x09C, "Frames of the core discarded: the MAC was not running, or they were too long, or had "
           "no header."),
)  # fmt: skip

BY_NAME: dict[str, Register] = {each.name: each for each in MAC_MAP}
