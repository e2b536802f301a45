"""The layouts of the beats between blocks, and constants that several blocks share.

Inside MPA every boundary lies between lanes (RFC 5044 §4.1, §4.3), so ``octets`` is a multiple of 4 there.
"""

from amaranth.hdl import ShapeLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rotate import steps_of
from open_rnic.rtl.lib.rows import connection_field, connection_shape, only_many
from open_rnic.rtl.registers import Cause, Verdict

__all__ = [
    "CHECKED",
    "INTERVAL",
    "SINK",
    "AlignedBeat",
    "CheckedUlpdu",
    "Found",
    "Packet",
    "RxUlpdu",
    "StreamBeat",
    "Train",
    "TxUlpdu",
    "aligned",
    "carried",
    "packet",
    "room_latency",
]

INTERVAL = 128  # lanes from one marker to the next, itself included: 512 octets

# The findings about an FPDU. ``cause``: its error, or NONE. ``value``: the value for the event. ``size``: its size on
# the wire in lanes, markers included. ``markers``: the number of its markers. ``none``: the beat has no octets of a
# ULPDU.
CHECKED = {"cause": Cause, "value": 16, "size": 15, "markers": 8, "none": 1}

# Bits of the Sink STag and Sink TO of a Read Request (RFC 5040 §4.4). The Read Response carries the same 12 octets as
# its STag and TO: octets 18 to 29 of the request become octets 2 to 13 of the response.
SINK = 96


class Packet(data.StructLayout):
    """One beat of a packet, with ``extra`` fields behind the common ones.

    Members
    -------
    data : 32 * ``lanes`` bits
        The octets.
    octets : range(4 * ``lanes`` + 1)
        On the last beat, the number of valid octets.
    last : 1 bit
        The packet ends with this beat.
    """

    def __init__(self, lanes: int, **extra):
        check_lanes(lanes)
        self.lanes = lanes
        super().__init__({"data": 32 * lanes, "octets": range(4 * lanes + 1), "last": 1, **extra})


class TxUlpdu(Packet):
    """A beat of a ULPDU to send, of ``connection``.

    ``length`` (16 bits), valid on the first beat, is the ULPDU's length in octets.
    """

    def __init__(self, lanes: int, connections: int = 1):
        super().__init__(lanes, length=16, **connection_field(connections))


class CheckedUlpdu(Packet):
    """A beat of a received ULPDU of ``connection``, with the findings about its FPDU.

    ``length`` (16 bits), valid on the first beat, is the ULPDU's length in octets. The fields of :data:`CHECKED` are
    valid on the last beat.
    """

    def __init__(self, lanes: int, connections: int = 1):
        super().__init__(lanes, length=16, **CHECKED, **connection_field(connections))


class RxUlpdu(Packet):
    """A beat of a received ULPDU of ``connection``.

    ``length`` (16 bits), valid on the first beat, is the ULPDU's length in octets; the octets of stream mode have none.
    ``verdict`` (:class:`.Verdict`) is valid on the last beat.
    """

    def __init__(self, lanes: int, connections: int = 1):
        super().__init__(lanes, length=16, verdict=Verdict, **connection_field(connections))


class Train(Packet):
    """A beat of a train: a whole FPDU of one connection, with its markers.

    A train has whole lanes, and ends with the CRC. Of an FPDU whose ULPDU_Length is over the maximum, no more than the
    first lane, and a marker before it, has to be in the train, which then ends.

    ``connection`` is the number of the train's connection, on every beat. ``place`` (7 bits), valid on the first beat,
    is the number of lanes from the last place of a marker to the train's first lane; 0 if that lane is a marker.
    """

    def __init__(self, lanes: int, connections: int):
        super().__init__(lanes, place=range(INTERVAL), connection=connection_shape(connections))


def carried(connections: int, *settings: str) -> dict[str, ShapeLike]:
    """What an FPDU carries along in transmit, on every beat: its connection, and settings of this connection.

    ``settings`` are ``markers`` (CONFIG.markers_tx) or ``crc`` (CONFIG.crc_tx).
    """
    return {**connection_field(connections), **dict.fromkeys(settings, 1)}


def packet(lanes: int, **extra) -> stream.Signature:
    """The stream signature of :class:`Packet`."""
    return stream.Signature(Packet(lanes, **extra))


class StreamBeat(data.StructLayout):
    """A beat of the MPA stream without its markers.

    For example, at 4 lanes a chunk of 8 octets is sent as a beat with ``count`` 2; after the next chunk of 8 octets the
    same beat is sent again, with ``count`` 4.

    Members
    -------
    data : 32 * ``lanes`` bits
        The lanes.
    count : range(``lanes`` + 1)
        The number of lanes that have arrived, from lane 0 on. Unless all have, the next beat is this beat with more
        lanes.
    marked : 1 bit
        A marker preceded lane ``place``.
    place : range(``lanes``)
        The lane, which may not have arrived yet.
    marker : 32 bits
        The marker, as it lay in its lane.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "data": 32 * lanes, "count": range(lanes + 1), "marked": 1, "place": range(lanes), "marker": 32,
        })  # fmt: skip


class Found(data.StructLayout):
    """The place of an FPDU in the stream without markers.

    Members
    -------
    lane : range(``lanes``)
        The lane in which the FPDU begins.
    length : 16 bits
        ULPDU_Length.
    too_long : 1 bit
        ULPDU_Length is over the maximum; no later FPDU can be found.
    final : 15 bits
        The number of the FPDU's last lane.
    single : 1 bit
        The FPDU fits in one beat.
    brief : 1 bit
        The whole ULPDU is in the FPDU's first beat.
    """

    def __init__(self, lanes: int):
        super().__init__({
            "lane": range(lanes), "length": 16, "too_long": 1, "final": 15, "single": 1, "brief": 1,
        })  # fmt: skip


class AlignedBeat(data.StructLayout):
    """A beat of an FPDU without its markers, from ULPDU_Length to the CRC.

    Members
    -------
    data : 32 * ``lanes`` + 16 bits
        The beat, and the 2 octets that follow it.
    count : range(``lanes`` + 1)
        The number of its lanes that are valid.
    last : 1 bit
        The FPDU ends with this beat.
    length : 16 bits
        ULPDU_Length.
    too_long : 1 bit
        ULPDU_Length is over the maximum; this single beat stands for the FPDU.
    marked : 1 bit
        If ``place`` is less than ``count``, a marker preceded lane ``place``; otherwise it belongs to another FPDU.
        With one connection and more than 4 lanes, it is 0 then.
    place : range(2 * ``lanes``)
        The lane.
    marker : 32 bits
        The marker, as it lay in its lane.
    gives : 1 bit
        The beat has octets of the ULPDU, from its third octet on.
    ends : 1 bit
        The ULPDU ends in this beat.
    octets : range(4 * ``lanes`` + 1)
        With ``ends``, the number of octets of the ULPDU; otherwise all octets are.
    connection : the number of the FPDU's connection
    crc : 1 bit
        CONFIG.crc_rx of this connection. Only with many connections.
    """

    def __init__(self, lanes: int, connections: int = 1):
        super().__init__({
            "data": 32 * lanes + 16, "count": range(lanes + 1), "last": 1, "length": 16, "too_long": 1,
            "marked": 1, "place": range(2 * lanes), "marker": 32,
            "gives": 1, "ends": 1, "octets": range(4 * lanes + 1),
            **connection_field(connections), **only_many(connections, {"crc": 1}),
        })  # fmt: skip


def room_latency(lanes: int) -> int:
    """The most cycles that pass from ``room``, which promises a place, to the beat of :func:`aligned` that takes it."""
    return 2 if lanes <= AT_ONCE else 2 + len(steps_of((lanes - 1).bit_length()))


def aligned(lanes: int, connections: int = 1) -> wiring.Signature:
    """Beats that cannot be stalled: a beat is sent at most :func:`room_latency` cycles after ``room``, which promises a
    place for it.
    """
    return wiring.Signature({"valid": Out(1), "payload": Out(AlignedBeat(lanes, connections)), "room": In(1)})
