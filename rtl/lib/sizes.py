"""The check of a size that must be a power of 2."""

__all__ = ["check_size"]


def check_size(name: str, value: int, least: int, most: int) -> None:
    """Raise ValueError, which names the parameter, unless ``value`` is a power of 2 from ``least`` to ``most``."""
    if not least <= value <= most or value & (value - 1):
        raise ValueError(f"{name} must be a power of 2 from {least} to {most}, not {value!r}")
