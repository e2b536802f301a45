"""The stages of MPA's work, and a split: on which side of the host link each of them is done."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, StrEnum
from itertools import groupby

__all__ = ["RECEIVE", "RTL", "TRANSMIT", "Direction", "Side", "Split", "Stage", "inseparable"]


class Side(Enum):
    """Which end of the host link."""

    HOST = "host"
    DEVICE = "device"


class Direction(Enum):
    """Which way the octets go."""

    TRANSMIT = "transmit"
    RECEIVE = "receive"


class Stage(StrEnum):
    """A piece of work that can be on either side."""

    STARTUP = "startup"  #: the exchange of Request and Reply (RFC 6581 §9)
    COPIES = "copies"  #: of the application's octets, from and to where the data path has them
    PLACEMENT = "placement"  #: of tagged and untagged segments (RFC 5041 §5)
    FENCE = "fence"  #: FPDUs wait for the RTR (RFC 6581 §9.2)
    FRAMING = "framing"  #: ULPDU_Length and padding, put on and found again (RFC 5044 §4)
    MARKER_INSERTION = "marker-insertion"  #: (RFC 5044 §4.3)
    CRC_GENERATION = "crc-generation"  #: (RFC 5044 §4.4)
    MARKER_REMOVAL = "marker-removal"
    CRC_CHECK = "crc-check"
    RTR_DETECTION = "rtr-detection"


#: The stages that an octet passes, in their order.
TRANSMIT = (
    Stage.COPIES,
    Stage.PLACEMENT,
    Stage.FENCE,
    Stage.FRAMING,
    Stage.MARKER_INSERTION,
    Stage.CRC_GENERATION,
)
RECEIVE = (
    Stage.MARKER_REMOVAL,
    Stage.FRAMING,
    Stage.CRC_CHECK,
    Stage.RTR_DETECTION,
    Stage.PLACEMENT,
    Stage.COPIES,
)

#: The stages that the RTL can do.
RTL = frozenset(
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


#: The stages of receive that one block of the RTL does at 1 lane, :class:`.LaneReceiver`.
_ONE_BLOCK = frozenset({Stage.MARKER_REMOVAL, Stage.FRAMING, Stage.CRC_CHECK})


def inseparable(direction: Direction, lanes: int) -> frozenset[Stage]:
    """Stages of which the device does all or none, because one block does them."""
    return _ONE_BLOCK if direction is Direction.RECEIVE and lanes == 1 else frozenset()


@dataclass(frozen=True)
class Split:
    """Which stages the device does; the host does the others."""

    device: frozenset[Stage]

    @classmethod
    def of(cls, stages: Iterable[str]) -> "Split":
        """The split with the stages of these names on the device; ValueError names one that is none."""
        names = list(stages)
        for name in names:
            if name not in set(Stage):
                raise ValueError(f"no stage is called {name!r}; there are {', '.join(Stage)}")
        return cls(frozenset(map(Stage, names)))

    def side(self, stage: Stage) -> Side:
        """Where ``stage`` is done."""
        return Side.DEVICE if stage in self.device else Side.HOST

    def segments(self, direction: Direction) -> Iterator[tuple[Side, tuple[Stage, ...]]]:
        """The way of an octet: the stages that follow each other on one side, together.

        Between two of these it crosses the host link.
        """
        order = TRANSMIT if direction is Direction.TRANSMIT else RECEIVE
        for side, stages in groupby(order, self.side):
            yield side, tuple(stages)
