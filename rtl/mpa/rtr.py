"""A fact about RTRs (RFC 6581 §9.2) that :class:`.RtrGenerator` and :class:`.RtrDetector` share."""

__all__ = ["HEADER"]

HEADER = 48  # octets, whole beats at up to 4 lanes, that hold the longest RTR: a Read Request of 46 octets
