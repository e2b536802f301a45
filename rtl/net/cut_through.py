"""A packet that is cut through: its octets enter the frame while they are stored for TCP."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet

__all__ = ["CutThrough"]


class CutThrough(wiring.Signature):
    """From a TCP engine to the :class:`.Sender` of its frames, beside the stream of segments.

    A packet begins, and its beats follow, behind the room for the headers. If the packet is to be sent as one segment,
    the engine asks for the headers, and gives TCP's on the stream of segments, without payload. Otherwise it cancels,
    and sends the packet later. The sender gives a packet up if another frame is to be sent first.

    Members
    -------
    accepts : In, 1 bit
        A packet may begin.
    begin : Out, 1 bit
        A packet to ``destination`` begins. Its first beat follows 2 cycles later, or after that.
    destination : Out, 32 bits
        The peer's address as an integer; stays until the packet has been sent or cancelled.
    valid : Out, 1 bit
        A beat, which is taken at once.
    beat : Out, :class:`.Packet`
    cancel : Out, 1 bit
        The packet is not to be sent, or has not begun.
    collects : In, 1 bit
        A packet is on its way into a frame.
    collected : In, 1 bit
        A packet is in a frame as a whole, and the MAC of its next hop is known. Only then:
    finish : Out, 1 bit
        Send it, as a segment of ``length`` octets. Its header follows on the stream of segments, as its only content.
    length : Out, 16 bits
    """

    def __init__(self):
        super().__init__({
            "accepts": In(1),
            "begin": Out(1),
            "destination": Out(32),
            "valid": Out(1),
            "beat": Out(Packet(1)),
            "cancel": Out(1),
            "collects": In(1),
            "collected": In(1),
            "finish": Out(1),
            "length": Out(16),
        })
