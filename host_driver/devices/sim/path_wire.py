"""The frames on the socket between a program and the process that simulates a network path: those of ``wire``."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct

__all__ = ["COMMAND", "CONNECTIONS", "STATION", "STATUS", "Damage", "Kind"]

CONNECTIONS = "RNIC_SIMULATION_CONNECTIONS"  # environment variable of the process: how many the path has
COMMAND = Struct("<B3I")  # connection, ports, the peer's address, ISS
STATION = Struct("<Q3I")  # MAC, address, mask, gateway, each as an integer whose first octet is the most significant
STATUS = Struct("<HIIH")  # status, the peer's address, ports; how many commands were carried out before, modulo 2**16


class Kind(IntEnum):
    """The kinds of frames."""

    HELLO = 0  # the simulation is up
    FRAME = 1  # an Ethernet frame, without FCS; to a whole RNIC, with a Damage as note
    OCTETS = 2  # note: the connection; octets to send as a packet, or received octets
    COMMAND = 3  # note: a Command of rtl.tcp.words; a COMMAND
    GRANT = 4  # note: OCTETS; a WORD: so many beats have been taken
    STATION = 5  # a STATION: the addresses of this host
    STATUS = 6  # note: the connection; a STATUS, after each change and each command
    ACCEPT = 7  # note: the connection; a WORD: 1 if received octets of it are wanted, 0 if not
    GET = 8  # of an RNIC: note: register address / 4; answered by VALUE
    SET = 9  # note: register address / 4; a WORD; answered by VALUE
    VALUE = 10  # a WORD
    IRQ = 11  # CHANGED is not 0; not repeated until CHANGED is written
    CABLE = 12  # of a whole RNIC: note: whether its cable is in


class Damage(IntEnum):
    """What happens to a frame on the last metre, between the pipe and the MAC of a whole RNIC."""

    NONE = 0
    FCS = 1  # a bit of the FCS is flipped
    ERROR = 2  # the PHY reports an error (RX_ER)
    RUNT = 3  # it is a valid frame of 63 octets
