"""Format a number of octets for a reader."""

__all__ = ["size_of"]


def size_of(octets: float) -> str:
    """Return ``octets`` as text, in octets, KiB or MiB."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets >= scale:
            return f"{_short(octets / scale)} {unit}"
    return f"{octets:.0f} octet{'s' if round(octets) != 1 else ''}"


def _short(number: float) -> str:
    """Three digits, or four where the unit above does not fit yet."""
    return f"{number:.3g}" if number < 999.5 else f"{number:.0f}"
