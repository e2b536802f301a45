"""The registers of a network path, as plain data: addresses, commands, and the status of connections.

:class:`.PathControl` is their gateware.
"""

from open_rnic.rtl.registers import Access, Field, Register, each_connection
from open_rnic.rtl.tcp.words import Command

__all__ = ["BY_NAME", "IDENTITY", "PATH_MAP", "VERSION"]

IDENTITY = int.from_bytes(b"TCP1", "big")
VERSION = 0x0001_0003


def _word(doc: str, access: Access = Access.RO, reset: int = 0, width: int = 32) -> tuple[Field, ...]:
    return (Field("value", 0, width, doc, access, reset),)


_ACCEPT = each_connection("ACCEPT", (0x024, 0x064), "The connections whose octets are taken into their data paths.",
                          "{}", Access.RW)  # fmt: skip
_CHANGED = each_connection(
    "CHANGED", (0x038, 0x068), "The connections whose status has changed, or whose peer has sent its last octet. The "
    "interrupt is set while there is one.", "{}; write 1 to clear", Access.CLEAR,
)  # fmt: skip
PATH_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x000, "Identifies the page.", _word('"TCP1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x004, "The version of the register map.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CAPABILITIES", 0x008, "The parameters with which the path was built.", (
        Field("connections", 0, 8, "number of connections"),
        Field("send_ring", 8, 8, "size of a send ring: 2 to this power octets"),
        Field("receive_ring", 16, 8, "size of a receive ring: 2 to this power octets"),
    )),
    Register("MAC_LO", 0x010, "The MAC address, low half.", _word("the last 4 octets", Access.RW)),
    Register("MAC_HI", 0x014, "The MAC address, high half.", _word("the first 2 octets", Access.RW, width=16)),
    Register("ADDRESS", 0x018, "The IPv4 address. At 0 the path is silent.", _word("the address", Access.RW)),
    Register("PREFIX", 0x01C, "The mask of the network.", _word("the mask", Access.RW)),
    Register("GATEWAY", 0x020, "The next hop for other networks.", _word("the address; 0: none", Access.RW)),
    _ACCEPT[0],
    Register("COMMAND_PORTS", 0x028, "The ports of the next command.", (
        Field("peer", 0, 16, "the port of the peer; 0 to listen; of KEEP_ALIVE the number of probes", Access.RW),
        Field("local", 16, 16, "the port of this end", Access.RW),
    )),
    Register("COMMAND_ADDRESS", 0x02C, "The peer of the next command.",
             _word("its address; 0 to listen; of KEEP_ALIVE the silence before the first probe, in ms; of UNLISTEN the "
                   "states besides LISTEN in which the connection is forgotten", Access.RW)),
    Register("COMMAND_ISS", 0x030, "The initial sequence number of the next command, which the host chooses so that "
             "nobody can guess it (RFC 6528).",
             _word("the number; of KEEP_ALIVE the time between two probes, in ms", Access.RW)),
    Register("COMMAND", 0x034, "Gives a command to the TCP engine, if none is pending.", (
        Field("kind", 0, 3, "kind of command", Access.RW, enum=Command),
        Field("connection", 8, 6, "number of the connection", Access.RW),
        Field("go", 16, 1, "give the command", Access.PULSE),
        Field("pending", 17, 1, "the engine has not taken the last command"),
    )),
    _CHANGED[0],
    Register("CONNECTION", 0x03C, "The connection that the registers below show.",
             _word("its number", Access.RW, width=6)),
    Register("STATUS", 0x040, "The state of the connection.", (
        Field("status", 0, 16, "a bit for each state of RFC 9293 §3.3.2; or the reason for which it ended: 0x1000 "
              "closed, 0x2000 aborted, 0x3000 reset, 0x4000 refused, 0x5000 timed out"),
        Field("finished", 16, 1, "all octets of the peer, up to its FIN, have been taken"),
    )),
    Register("PEER", 0x044, "The peer.", _word("its address")),
    Register("PORTS", 0x048, "The ports of the connection.", (
        Field("peer", 0, 16, "the port of the peer"),
        Field("local", 16, 16, "the port of this end"),
    )),
    Register("PACKETS", 0x04C, "The packets of the data path that TCP has taken since the data path's last reset: "
             "stream-mode packets and FPDUs.", _word("packets")),
    Register("OCTETS", 0x050, "The octets that the data path has been given since its last reset.", _word("octets")),
    Register("RX_NO_ROOM", 0x054, "Good packets that were discarded, as their queue had no room.", _word("packets")),
    Register("RX_CHECKSUM", 0x058, "Packets with a wrong checksum of IPv4, TCP, UDP or ICMP.", _word("packets")),
    Register("RX_IGNORED", 0x05C, "Frames that are not for this host, malformed, or of no kind that it processes.",
             _word("frames")),
    Register("CONFLICTS", 0x060, "Packets of ARP in which another host uses ADDRESS (RFC 5227 §2.4).",
             _word("packets")),
    *_ACCEPT[1:],
    *_CHANGED[1:],
)  # fmt: skip

BY_NAME: dict[str, Register] = {each.name: each for each in PATH_MAP}
