"""The kinds of IPv4 addresses, from the view of a host."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.net.layouts import Station

__all__ = ["Classifier", "Kinds"]


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


class Classifier(wiring.Component):
    """Determines the kinds of an address; combinational. Receive and transmit share it, and receive goes first.

    Members
    -------
    station : In, :class:`.Station`
    first : In, 32 bits
        An address, with its first octet in bits 7:0.
    first_valid : In, 1 bit
    second : In, 32 bits
        The address that is examined while ``first_valid`` is 0.
    kinds : Out, :class:`Kinds`
    """

    station: In(Station())
    first: In(32)
    first_valid: In(1)
    second: In(32)
    kinds: Out(Kinds())

    def elaborate(self, platform):
        m = Module()
        kinds, mask = self.kinds, self.station.mask
        address = Signal(32)
        extreme = Signal()  # the lowest or highest address of its network
        octet = address[:8]
        m.d.comb += [
            address.eq(Mux(self.first_valid, self.first, self.second)),
            kinds.ours.eq(address == self.station.address),
            kinds.local.eq(((address ^ self.station.address) & mask) == 0),
            extreme.eq(((address ^ address[24].replicate(32)) & ~mask) == 0),
            # Bit 1 of the mask's last octet is 0 in networks of more than two addresses.
            kinds.broadcast.eq((kinds.local & extreme & ~mask[25]) | (address == 0xFFFF_FFFF)),
            kinds.no_host.eq((octet == 0) | (octet == 127) | (octet[5:] == 7)),
            kinds.routed.eq(kinds.local | (self.station.gateway[:8] != 0)),  # no host's address begins with 0
        ]
        return m
