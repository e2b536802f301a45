"""The choice of logic beside an RDMA engine that posts work of its own."""

from enum import StrEnum

__all__ = ["FABRIC_PORTS", "Fabric", "fabric_members"]

FABRIC_PORTS = "samples", "work", "work_reports"  # to the design around, of all kinds of logic


class Fabric(StrEnum):
    """The logic beside an engine, with samples of 4 octets, or with work."""

    NONE = "none"
    GENERATOR = "generator"  # a :class:`.Sampler` with a :class:`.SignalGenerator`
    SAMPLES = "samples"  # a :class:`.Sampler` with samples of the design around
    WORK = "work"  # a :class:`.WorkPort` of the design around

    @property
    def is_sampler(self) -> bool:
        """Whether it is a :class:`.Sampler`."""
        return self in {Fabric.GENERATOR, Fabric.SAMPLES}


def fabric_members(part) -> dict:
    """Return those of :data:`FABRIC_PORTS` that a component has."""
    members = part.signature.members
    return {name: members[name] for name in FABRIC_PORTS if name in members}
