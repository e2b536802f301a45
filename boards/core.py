"""What a board's top contains: a module of its own, which commands import without Amaranth."""

from enum import StrEnum

__all__ = ["Core"]


class Core(StrEnum):
    """What a board's top contains behind the link."""

    RNIC = "rnic"  # the whole RNIC: Ethernet MAC, TCP, MPA and RDMA
    MPA = "mpa"  # the MPA data path
    RDMA = "rdma"  # the data path with an RDMA engine and memory
