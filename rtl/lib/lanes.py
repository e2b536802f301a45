"""The widths of the data path, as plain data: it imports nothing, so a host can use it without any hardware library."""

__all__ = ["LANES", "check_lanes"]

LANES = (1, 2, 4, 8, 16)  # in lanes of 32 bits


def check_lanes(lanes: int) -> None:
    """Raise ValueError if ``lanes`` is not a width of the data path."""
    if lanes not in LANES:
        raise ValueError(f"lanes must be one of {', '.join(map(str, LANES))}, not {lanes!r}")
