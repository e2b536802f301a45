"""What blocks say to each other: the layouts of their beats, and constants that several of them need.

Inside MPA every boundary falls between lanes (RFC 5044 §4.1, §4.3), so there ``octets`` is a multiple of 4.
"""

from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.registers import Cause, Verdict

__all__ = [
    "CHECKED",
    "INTERVAL",
    "SINK",
    "AlignedBeat",
    "Found",
    "Packet",
    "RxUlpdu",
    "StreamBeat",
    "TxUlpdu",
    "aligned",
    "packet",
]

INTERVAL = 128  # lanes from one marker to the next, itself included: 512 octets

# What is known of an FPDU with its last beat: why it is bad, if it is; the value for the event; its size on the wire
# in lanes, markers included; and how many of those are markers. ``none``: the beat has nothing of a ULPDU.
CHECKED = {"cause": Cause, "value": 16, "size": 15, "markers": 8, "none": 1}

# The Sink STag and Sink TO of a Read Request (RFC 5040 §4.4), which the response carries as its own: 12 octets, taken
# as they are from octet 18 of the request to octet 2 of the response.
SINK = 96


class Packet(data.StructLayout):
    """One beat of a packet, with ``extra`` fields behind the common ones.

    ``data``: the octets. ``octets``: how many are valid on the last beat. ``last``: the packet ends here.
    """

    def __init__(self, lanes: int, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({"data": 32 * lanes, "octets": range(4 * lanes + 1), "last": 1, **extra})


class TxUlpdu(Packet):
    """A ULPDU on its way out; ``length`` is its length in octets, valid on the first beat."""

    def __init__(self, lanes: int):
        super().__init__(lanes, length=16)


class RxUlpdu(Packet):
    """A ULPDU that was received; ``verdict`` (:class:`.Verdict`) is valid on the last beat."""

    def __init__(self, lanes: int):
        super().__init__(lanes, verdict=Verdict)


def packet(lanes: int, **extra) -> stream.Signature:
    """The stream signature of :class:`Packet`."""
    return stream.Signature(Packet(lanes, **extra))


class StreamBeat(data.StructLayout):
    """A beat of the MPA stream without its markers.

    ``count`` lanes of ``data`` have arrived, from lane 0 on. As long as that is not all of them, the next
    beat is this one again with more. ``marked``: ``marker``, as it lay in its lane, came before lane ``place``,
    which may not have arrived yet.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "count": range(lanes + 1), "marked": 1, "place": range(lanes), "marker": 32,
        })  # fmt: skip


class Found(data.StructLayout):
    """An FPDU, markers aside: the ``lane`` of a beat of the stream in which it begins, and ULPDU_Length.

    ``too_long``: that is over the maximum, and the stream cannot be followed any more. ``final``: the FPDU's last lane.
    ``single``: it is in the FPDU's first beat. ``brief``: all of the ULPDU is.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "lane": range(lanes), "length": 16, "too_long": 1, "final": 15, "single": 1, "brief": 1,
        })  # fmt: skip


class AlignedBeat(data.StructLayout):
    """A beat of an FPDU without its markers, from ULPDU_Length to the CRC, and what it has of the ULPDU.

    ``data``: the beat, and the 2 octets that follow it. ``count``: how many of its lanes are valid. ``last``: the FPDU
    ends here. ``length``: ULPDU_Length. ``too_long``: that is over the maximum, and this lane stands for the FPDU.

    ``marked``: ``marker``, as it lay in its lane, came before lane ``place`` of this beat, if that is less than
    ``count``; otherwise it is of another FPDU.

    ``gives``: the octets from the third on are of the ULPDU: all, or where it ``ends``, ``octets`` of them.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes + 16, "count": range(lanes + 1), "last": 1, "length": 16, "too_long": 1,
            "marked": 1, "place": range(2 * lanes), "marker": 32,
            "gives": 1, "ends": 1, "octets": range(4 * lanes + 1),
        })  # fmt: skip


def aligned(lanes: int) -> wiring.Signature:
    """Beats that nothing can hold up: one comes only 2 cycles after ``room``, and then there is room for it."""
    return wiring.Signature({"valid": Out(1), "payload": Out(AlignedBeat(lanes)), "room": In(1)})
