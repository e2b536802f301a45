"""The stages of the work for a connection, and a split: the side of the host link on which each stage is done."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import groupby

__all__ = [
    "MPA",
    "RDMA",
    "RECEIVE",
    "RTL",
    "TCP",
    "TRANSMIT",
    "Direction",
    "Side",
    "Split",
    "Stage",
    "inseparable",
    "parts",
]


class Side(Enum):
    """An end of the host link."""

    HOST = "host"
    DEVICE = "device"


class Direction(Enum):
    """A direction of the data path."""

    TRANSMIT = "transmit"
    RECEIVE = "receive"


class Stage(StrEnum):
    """A piece of work that can be done on either side."""

    STARTUP = "startup"  #: the exchange of Request and Reply (RFC 6581 §9)
    COPIES = "copies"  #: copies of payload between the application's memory and the data path
    PLACEMENT = "placement"  #: placement of tagged and untagged segments (RFC 5041 §5)
    FENCE = "fence"  #: holding FPDUs back until the RTR (RFC 6581 §9.2)
    FRAMING = "framing"  #: adding ULPDU_Length and PAD, and removing them (RFC 5044 §4)
    MARKER_INSERTION = "marker-insertion"  #: (RFC 5044 §4.3)
    CRC_GENERATION = "crc-generation"  #: (RFC 5044 §4.4)
    MARKER_REMOVAL = "marker-removal"
    CRC_CHECK = "crc-check"
    RTR_DETECTION = "rtr-detection"
    TCP = "tcp"  #: segments in order, acknowledgments and retransmission, with IPv4 below (RFC 9293)


#: The stages of each direction, in the order in which an octet passes them.
TRANSMIT = (
    Stage.COPIES,
    Stage.PLACEMENT,
    Stage.FENCE,
    Stage.FRAMING,
    Stage.MARKER_INSERTION,
    Stage.CRC_GENERATION,
    Stage.TCP,
)
RECEIVE = (
    Stage.TCP,
    Stage.MARKER_REMOVAL,
    Stage.FRAMING,
    Stage.CRC_CHECK,
    Stage.RTR_DETECTION,
    Stage.PLACEMENT,
    Stage.COPIES,
)

#: The stages that a part of the RTL does. Between two parts, packets wait until they are complete.
RDMA = frozenset({Stage.COPIES, Stage.PLACEMENT})
MPA = frozenset(
    {
        Stage.FENCE,
        Stage.FRAMING,
        Stage.MARKER_INSERTION,
        Stage.CRC_GENERATION,
        Stage.MARKER_REMOVAL,
        Stage.CRC_CHECK,
        Stage.RTR_DETECTION,
    }
)
TCP = frozenset({Stage.TCP})

#: The stages that are available as RTL.
RTL = RDMA | MPA | TCP


#: The stages of receive that one block of the RTL does at 1 lane, :class:`.LaneReceiver`.
_ONE_BLOCK = frozenset({Stage.MARKER_REMOVAL, Stage.FRAMING, Stage.CRC_CHECK})


def inseparable(direction: Direction, lanes: int) -> frozenset[Stage]:
    """Stages of MPA of which the device does all or none, because one block does them."""
    return _ONE_BLOCK if direction is Direction.RECEIVE and lanes == 1 else frozenset()


def parts(stages: Iterable[Stage]) -> Iterator[tuple[Stage, ...]]:
    """Yield the runs of stages that the same part of the RTL does."""
    for _, together in groupby(stages, lambda stage: next(part for part in (RDMA, MPA, TCP) if stage in part)):
        yield tuple(together)


@dataclass(frozen=True)
class Split:
    """The set of stages that the device does; the host does all others."""

    device: frozenset[Stage]

    @classmethod
    def of(cls, stages: Iterable[str]) -> "Split":
        """Return the split that has these stages on the device; raises ValueError for an unknown name."""
        names = list(stages)
        for name in names:
            if name not in set(Stage):
                raise ValueError(f"no stage is called {name!r}; there are {', '.join(Stage)}")
        return cls(frozenset(map(Stage, names)))

    def side(self, stage: Stage) -> Side:
        """Return the side on which ``stage`` is done."""
        return Side.DEVICE if stage in self.device else Side.HOST

    def segments(self, direction: Direction) -> Iterator[tuple[Side, tuple[Stage, ...]]]:
        """Yield the runs of adjacent stages that are done on the same side, in the order of the data path.

        Octets cross the host link between two runs.
        """
        order = TRANSMIT if direction is Direction.TRANSMIT else RECEIVE
        for side, stages in groupby(order, self.side):
            yield side, tuple(stages)
