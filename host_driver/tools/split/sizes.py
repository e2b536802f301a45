"""Format a number of octets for a reader."""

__all__ = ["size_of"]


def size_of(octets: float) -> str:
    """Return ``octets`` as text, in octets, KiB or MiB."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets >= scale:
            return f"{octets / scale:.3g} {unit}"
    return f"{octets:.3g} octet{'s' if octets != 1 else ''}"
