"""Octets as a reader wants to see them."""

__all__ = ["size_of"]


def size_of(octets: float) -> str:
    """Octets in the unit that a reader would choose."""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if octets >= scale:
            return f"{octets / scale:.3g} {unit}"
    return f"{octets:.3g} octet{'s' if octets != 1 else ''}"
