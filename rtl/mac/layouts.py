"""What the MAC and the adapters to PHYs exchange: octets of GMII, at any speed."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.registers import Speed

__all__ = [
    "HEADER",
    "LEAST_FRAME",
    "LONGEST_FRAME",
    "LONGEST_TAGGED",
    "PADDING",
    "SFD",
    "Discarded",
    "LinkState",
    "RxOctets",
    "TxOctets",
]

SFD = 0xD5
PADDING = 2  # octets in front of each frame in streams of words
HEADER = 14  # octets of an Ethernet header
LEAST_FRAME = 64  # octets of the shortest frame, with FCS (IEEE 802.3 §4A.4.2)
LONGEST_FRAME = 1518  # of the longest one
LONGEST_TAGGED = 1522  # with a tag (IEEE 802.3 §3.2.7)


class RxOctets(wiring.Signature):
    """Received octets, in the clock domain of receive. The other members mean nothing while ``strobe`` is 0.

    Members
    -------
    strobe : Out, 1 bit
        The time of an octet has passed; at 1 Gb/s in each cycle. Without octets, it may be 1 more often.
    valid : Out, 1 bit
        RX_DV: there was an octet. From SFD on, octets are aligned.
    error : Out, 1 bit
        RX_ER.
    data : Out, 8 bits
    """

    def __init__(self):
        super().__init__({"strobe": Out(1), "valid": Out(1), "error": Out(1), "data": Out(8)})


class TxOctets(wiring.Signature):
    """Octets to transmit, in the clock domain of transmit.

    Members
    -------
    strobe : In, 1 bit
        The octet is taken; at 1 Gb/s in each cycle. The next one is there from the next cycle on.
    valid : Out, 1 bit
        TX_EN.
    data : Out, 8 bits
    """

    def __init__(self):
        super().__init__({"strobe": In(1), "valid": Out(1), "data": Out(8)})


class Discarded(data.StructLayout):
    """Pulses, each for a received frame that was discarded. At most one bit is 1.

    Members
    -------
    error : 1 bit
        The PHY reported an error in it.
    oversize : 1 bit
        The frame was too long.
    runt : 1 bit
        The frame was shorter than 64 octets, or had no SFD.
    fcs : 1 bit
        The FCS was wrong.
    """

    def __init__(self):
        super().__init__({"error": 1, "oversize": 1, "runt": 1, "fcs": 1})


class LinkState(data.StructLayout):
    """The state of a link.

    Members
    -------
    up : 1 bit
    speed : :class:`.Speed`
    full_duplex : 1 bit
    """

    def __init__(self):
        super().__init__({"up": 1, "speed": Speed, "full_duplex": 1})
