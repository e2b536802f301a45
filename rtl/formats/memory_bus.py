"""The buses on which an RNIC can reach a memory of another design."""

from enum import StrEnum

__all__ = ["MemoryBus"]


class MemoryBus(StrEnum):
    """The bus of which the RNIC is a master, or two native ports of LiteDRAM; ``NONE``: its memory is block RAM."""

    AXI4 = "axi4"
    WISHBONE = "wishbone"
    LITEDRAM = "litedram"
    NONE = "none"
