"""SDRAM chips, as plain data: this module imports no hardware library."""

from dataclasses import dataclass

__all__ = ["CHIPS", "M12L16161A", "M12L64322A", "Chip"]


@dataclass(frozen=True)
class Chip:
    """SDR SDRAM, whose timing LiteDRAM knows under its name.

    Parameters
    ----------
    name : class of ``litedram.modules``
    banks, rows, columns : of one chip
    bits : data pins of all chips that share the other pins

    """

    name: str
    banks: int
    rows: int
    columns: int
    bits: int = 32

    def __str__(self) -> str:
        return self.name

    @property
    def octets(self) -> int:
        """Size of the memory."""
        return self.banks * self.rows * self.columns * self.bits // 8


M12L16161A = Chip("M12L16161A", banks=2, rows=2048, columns=256)
M12L64322A = Chip("M12L64322A", banks=4, rows=2048, columns=256)
CHIPS = (M12L16161A, M12L64322A)
