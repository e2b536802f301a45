"""The test vectors of ``vectors.json``: octets from sources other than this project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VECTORS: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text())
"""The contents of the file; octets are in hexadecimal, in wire order."""


@dataclass(frozen=True)
class CrcVector:
    """Octets, and their CRC-32C in wire order."""

    source: str
    octets: bytes
    wire: bytes


@dataclass(frozen=True)
class FpduVector:
    """A ULPDU and its FPDU with CRC, at an offset of the marked stream."""

    source: str
    markers: bool
    stream_offset: int
    ulpdu: bytes
    wire: bytes

    def __str__(self) -> str:
        return self.source


CRCS = [
    CrcVector(each["source"], bytes.fromhex(each["octets"]), bytes.fromhex(each["wire"])) for each in VECTORS["crc32c"]
]
FPDUS = [
    FpduVector(
        each["source"],
        each["markers"],
        each["stream_offset"],
        bytes.fromhex(each["ulpdu"]),
        bytes.fromhex(each["wire"]),
    )
    for each in VECTORS["fpdu"]
]
