"""Facts about RTRs (RFC 6581 §9.2) that blocks share."""

from amaranth.lib import data

__all__ = ["HEADER", "Report"]

HEADER = 48  # octets, whole beats at up to 4 lanes, that hold the longest RTR: a Read Request of 46 octets


class Report(data.Struct):
    """A report of receive to the fence: what has arrived in this cycle."""

    good: 1  # a good FPDU has ended
    rtr: 1  # an RTR, or with ``permissive`` the FPDU in its place
    respond: 1  # it is a Read RTR, and must be answered
