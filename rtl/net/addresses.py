"""The kinds of IPv4 addresses, from the view of a host."""

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data

__all__ = ["Kinds", "classify"]


class Kinds(data.StructLayout):
    """The kinds of an address.

    Members
    -------
    ours : 1 bit
        The address is this host's own.
    local : 1 bit
        The address is in this host's network.
    broadcast : 1 bit
        The address is 255.255.255.255, the network's broadcast address, or the network's own address (RFC 1122
        §3.3.6). A network of one or two addresses has only the first (RFC 3021).
    no_host : 1 bit
        No host can have the address (RFC 1122 §3.2.1.3): 0/8, loopback, multicast and above.
    routed : 1 bit
        The address is in this host's network, or there is a gateway.
    """

    def __init__(self):
        super().__init__({"ours": 1, "local": 1, "broadcast": 1, "no_host": 1, "routed": 1})


def classify(m: Module, address: Value, station: data.View) -> data.View:
    """Return the kinds of ``address``, which has its first octet in bits 7:0; combinational."""
    kinds = Signal(Kinds())
    lowest = Signal()  # in its network
    highest = Signal()
    first = address[:8]
    mask = station.mask
    m.d.comb += [
        kinds.ours.eq(address == station.address),
        kinds.local.eq(((address ^ station.address) & mask) == 0),
        lowest.eq((address & ~mask) == 0),
        highest.eq((~address & ~mask) == 0),
        # Bit 1 of the mask's last octet is 0 in networks of more than two addresses.
        kinds.broadcast.eq((kinds.local & (lowest | highest) & ~mask[25]) | (address == 0xFFFF_FFFF)),
        kinds.no_host.eq((first == 0) | (first == 127) | (first[5:] == 7)),
        kinds.routed.eq(kinds.local | (station.gateway != 0)),
    ]
    return kinds
