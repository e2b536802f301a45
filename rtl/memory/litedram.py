"""LiteDRAM's controller of an SDRAM, as Verilog.

LiteDRAM (https://github.com/enjoy-digital/litedram) is a package of its own: only what uses a board's SDRAM needs it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, reduce
from typing import Any

from open_rnic.rtl.memory.chips import Chip

__all__ = ["CAS_LATENCY", "READ_LATENCY", "Step", "controller", "model", "start", "steps"]

CAS_LATENCY = 2  # clock cycles of the SDRAM, at 100 MHz
READ_LATENCY = 6  # cycles of the controller from a read to its word, which pass in the PHY and the SDRAM
_NATIVE = (
    "cmd.valid", "cmd.ready", "cmd.we", "cmd.addr", "wdata.ready", "wdata.data", "wdata.we", "rdata.valid",
    "rdata.data",
)  # fmt: skip
_PHASE = (
    "address", "bank", "cs_n", "ras_n", "cas_n", "we_n", "cke", "wrdata", "wrdata_en", "wrdata_mask", "rddata_en",
    "rddata",
)  # fmt: skip
_PHASES = 2  # clock cycles of the SDRAM in a cycle of the controller


@dataclass(frozen=True)
class Step:
    """A step of the initialisation of an SDRAM: a command, and the cycles to wait after it."""

    address: int
    bank: int
    cs: bool
    ras: bool
    cas: bool
    we: bool
    wait: int


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ValueError("SDRAM needs LiteDRAM: run pip install '.[litex]'") from None


def _phy(chip: Chip) -> Any:
    return _package("litedram.common").PhySettings(
        phytype="SDR", memtype="SDR", databits=chip.bits, dfi_databits=chip.bits, nranks=1, nphases=_PHASES,
        rdphase=0, wrphase=0, cl=CAS_LATENCY, read_latency=READ_LATENCY, write_latency=0,
    )  # fmt: skip


def _module(chip: Chip, clock_hz: int) -> Any:
    made = vars(_package("litedram.modules"))[chip.name](clock_hz, f"1:{_PHASES}")
    geometry = made.geom_settings
    known = (1 << geometry.bankbits, 1 << geometry.rowbits, 1 << geometry.colbits)
    if known != (chip.banks, chip.rows, chip.columns):
        raise ValueError(f"LiteDRAM's {chip.name} has {known} banks, rows and columns, not those of {chip}")
    return made


def _named(record: Any, prefix: str, names: Iterable[str]) -> set[Any]:
    """Return signals of a record, which have these names in Verilog."""
    found = set()
    for name in names:
        signal = reduce(getattr, name.split("."), record)
        signal.name_override = f"{prefix}_{name.replace('.', '_')}"
        found.add(signal)
    return found


def _dfi(dfi: Any) -> set[Any]:
    return set().union(*(_named(phase, f"dfi_p{n}", _PHASE) for n, phase in enumerate(dfi.phases)))


def _verilog(made: Any, ports: set[Any], name: str) -> str:
    text = str(_package("migen.fhdl.verilog").convert(made, ios=ports, name=name))
    return text[text.index("module ") :]


@cache
def controller(chip: Chip, clock_hz: int, name: str) -> str:
    """Return a module with the ports of :class:`.NativePort` and :class:`.Dfi`, as Verilog."""
    made = _package("migen").Module()
    module = _module(chip, clock_hz)
    core = _package("litedram.core.controller").LiteDRAMController(
        _phy(chip), module.geom_settings, module.timing_settings, clock_hz
    )
    crossbar = _package("litedram.core.crossbar").LiteDRAMCrossbar(core.interface)
    made.submodules += core, crossbar
    ports = _dfi(core.dfi).union(*(_named(crossbar.get_port(), side, _NATIVE) for side in ("writes", "reads")))
    return _verilog(made, ports, name)


@cache
def model(chip: Chip, clock_hz: int, name: str) -> str:
    """Return LiteDRAM's model of the SDRAM and its PHY, as Verilog with the other side of :class:`.Dfi`."""
    made = _package("litedram.phy.model").SDRAMPHYModel(_module(chip, clock_hz), _phy(chip), clk_freq=clock_hz)
    return _verilog(made, _dfi(made.dfi), name)


@cache
def steps(chip: Chip, clock_hz: int) -> tuple[Step, ...]:
    """Return the initialisation of the SDRAM."""
    return start(_phy(chip), _module(chip, clock_hz).timing_settings)


def start(phy_settings: Any, timing_settings: Any) -> tuple[Step, ...]:
    """Return the initialisation of an SDR SDRAM with these settings of LiteDRAM."""
    init = _package("litedram.init").get_sdr_phy_init_sequence(phy_settings, timing_settings)
    return tuple(
        Step(address, bank, *(f"COMMAND_{each}" in command for each in ("CS", "RAS", "CAS", "WE")), wait)
        for _, address, bank, command, wait in init[0]
    )
