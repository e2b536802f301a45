"""Pull-ups of pins that something outside may leave open."""

from collections.abc import Iterable
from copy import deepcopy

from amaranth.build import Resource, Subsignal

__all__ = ["pulled_up"]


def pulled_up(resources: Iterable[Resource], *names: str) -> list[Resource]:
    """Return the resources, of an ECP5, with pull-ups at those that are ``names``: of a resource, or of a part of one.

    Without a pull-up, MDIO reads as 0 if no PHY answers and the board has none, as if one did (IEEE 802.3 §22.2.4.5.4).
    """
    found = deepcopy(list(resources))
    for resource in found:
        parts = {f"{resource.name}.{part.name}": part for part in resource.ios if isinstance(part, Subsignal)}
        for name, part in {resource.name: resource, **parts}.items():
            if name in names:
                part.attrs["PULLMODE"] = "UP"
    return found
