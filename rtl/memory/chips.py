"""SDRAM chips, as plain data: this module imports no hardware library."""

from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["CHIPS", "M12L16161A", "M12L64322A", "MT41K64M16", "MT41K256M16", "Chip", "Kind"]

_SIMULATED = 32 << 20  # octets of a chip in a simulation: its rows have 11 bits, the least with which LiteDRAM can do


class Kind(StrEnum):
    """Kinds of SDRAM, by LiteDRAM's names."""

    SDR = "SDR"
    DDR3 = "DDR3"

    @property
    def resource(self) -> str:
        """The resource of Amaranth's platforms that has the pins."""
        return "sdram" if self is Kind.SDR else "ddr3"


@dataclass(frozen=True)
class Chip:
    """SDRAM, whose timing LiteDRAM knows under its name.

    Parameters
    ----------
    name : class of ``litedram.modules``
    banks, rows, columns : of one chip
    bits : data pins of all chips that share the other pins
    kind : of SDRAM

    """

    name: str
    banks: int
    rows: int
    columns: int
    bits: int = 32
    kind: Kind = Kind.SDR

    def __str__(self) -> str:
        return self.name

    @property
    def octets(self) -> int:
        """Size of the memory."""
        return self.banks * self.rows * self.columns * self.bits // 8

    @property
    def word(self) -> int:
        """Bits of a word of the controller: those of a burst."""
        return self.bits * (2 if self.kind is Kind.SDR else 8)

    @property
    def strobes(self) -> int:
        """Groups of data pins whose delays a PHY finds by itself; none of SDR SDRAM."""
        return 0 if self.kind is Kind.SDR else self.bits // 8

    @property
    def simulated(self) -> "Chip":
        """The chip with no more rows than a simulation can hold."""
        return replace(self, rows=min(self.rows, _SIMULATED * self.rows // self.octets))


M12L16161A = Chip("M12L16161A", banks=2, rows=2048, columns=256)
M12L64322A = Chip("M12L64322A", banks=4, rows=2048, columns=256)
MT41K64M16 = Chip("MT41K64M16", banks=8, rows=8192, columns=1024, bits=16, kind=Kind.DDR3)
MT41K256M16 = Chip("MT41K256M16", banks=8, rows=32768, columns=1024, bits=16, kind=Kind.DDR3)
CHIPS = (M12L16161A, M12L64322A, MT41K64M16, MT41K256M16)
