"""When a silent peer counts as gone."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KeepAlive"]

_MOST = {"idle": 32767, "interval": 32767, "probes": 127}  # as in Linux


@dataclass(frozen=True)
class KeepAlive:
    """When a silent peer is probed, and given up (RFC 9293 §3.8.4). The defaults are those of Linux.

    Raises ValueError for what Linux does not take either.
    """

    idle: int = 7200  # seconds of silence before the first probe
    interval: int = 75  # seconds between two probes
    probes: int = 9  # after so many without an answer, the connection has timed out

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if not (isinstance(value, int) and 1 <= value <= most):
                raise ValueError(f"{name} of keep-alive is 1 to {most}, not {value}")
