"""LiteDRAM's controller of an SDRAM, its PHY for DDR3 SDRAM, and its model of both, as Verilog.

LiteDRAM (https://github.com/enjoy-digital/litedram) is a package of its own: only what uses a board's SDRAM needs it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, reduce
from types import SimpleNamespace
from typing import Any

from open_rnic.rtl.memory.chips import Chip, Kind

__all__ = ["CAS_LATENCY", "READ_LATENCY", "Step", "Timing", "controller", "model", "phy", "start", "steps", "timing"]

CAS_LATENCY = 2  # clock cycles of an SDR SDRAM, at 100 MHz
READ_LATENCY = 6  # cycles of the controller from a read to its word, which pass in our PHY and an SDR SDRAM
_NATIVE = (
    "cmd.valid", "cmd.ready", "cmd.we", "cmd.addr", "wdata.ready", "wdata.data", "wdata.we", "rdata.valid",
    "rdata.data",
)  # fmt: skip
_PHASE = (
    "address", "bank", "cs_n", "ras_n", "cas_n", "we_n", "cke", "odt", "reset_n", "wrdata", "wrdata_en", "wrdata_mask",
    "rddata_en", "rddata",
)  # fmt: skip
_DELAYS = {
    "select": "_dly_sel.storage", "later": "_rdly_dq_inc.re", "slip": "_rdly_dq_bitslip.re",
    "forget": "_burstdet_clr.re", "seen": "_burstdet_seen.status",
}  # fmt: skip
_PHASES = 2  # clock cycles of the SDRAM in a cycle of the controller
_RESET = 200e-6  # seconds after power-up in which a DDR3 SDRAM is in reset (JESD79-3 §3.3.1)


@dataclass(frozen=True)
class Step:
    """A step of the initialisation of an SDRAM: a command, levels from then on, and the cycles to wait."""

    address: int
    bank: int
    cs: bool
    ras: bool
    cas: bool
    we: bool
    wait: int
    cke: bool = True
    reset_n: bool = True


@dataclass(frozen=True)
class Timing:
    """The phases of DFI for reads and for writes, and the cycles from a read to its word, of a PHY."""

    read_phase: int
    write_phase: int
    read_latency: int


def _package(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise ValueError("SDRAM needs LiteDRAM: run pip install '.[litex]'") from None


def _ecp5_phy(chip: Chip, clock_hz: int) -> tuple[Any, SimpleNamespace]:
    """Return LiteDRAM's PHY of an ECP5 for DDR3 SDRAM, and its pins."""
    signal = _package("migen").Signal
    pins = SimpleNamespace(
        a=signal(chip.rows.bit_length() - 1), ba=signal(chip.banks.bit_length() - 1), dm=signal(chip.strobes),
        dq=[signal() for _ in range(chip.bits)], dqs_p=[signal() for _ in range(chip.strobes)],
        **{name: signal() for name in ("clk_p", "cke", "odt", "reset_n", "cs_n", "ras_n", "cas_n", "we_n")},
    )  # fmt: skip
    return _package("litedram.phy.ecp5ddrphy").ECP5DDRPHY(pins, sys_clk_freq=clock_hz), pins


def _settings(chip: Chip, clock_hz: int) -> Any:
    """Return LiteDRAM's settings of the PHY."""
    if chip.kind is Kind.DDR3:
        return _ecp5_phy(chip, clock_hz)[0].settings
    return _package("litedram.common").PhySettings(
        phytype="SDR", memtype="SDR", databits=chip.bits, dfi_databits=chip.bits, nranks=1, nphases=_PHASES,
        rdphase=0, wrphase=0, cl=CAS_LATENCY, read_latency=READ_LATENCY, write_latency=0,
    )  # fmt: skip


def _module(chip: Chip, clock_hz: int) -> Any:
    kind = vars(_package("litedram.modules"))[chip.name]
    known = kind.nbanks, kind.nrows, kind.ncols
    if (chip.banks, chip.columns) != known[::2] or chip.rows > known[1]:
        raise ValueError(f"LiteDRAM's {chip.name} has {known} banks, rows and columns, not those of {chip}")
    return type(chip.name, (kind,), {"nrows": chip.rows})(clock_hz, f"1:{_PHASES}")


def _named(record: Any, prefix: str, names: Iterable[str] | dict[str, str]) -> set[Any]:
    """Return signals of a record, which have these names in Verilog: other ones, if ``names`` is a dictionary."""
    found = set()
    for name in names:
        path = names[name] if isinstance(names, dict) else name
        signal = reduce(getattr, path.split("."), record)
        signal.name_override = f"{prefix}_{name.replace('.', '_')}"
        found.add(signal)
    return found


def _dfi(dfi: Any) -> set[Any]:
    return set().union(*(_named(phase, f"dfi_p{n}", _PHASE) for n, phase in enumerate(dfi.phases)))


def _verilog(made: Any, ports: set[Any], name: str, **options: Any) -> str:
    text = str(_package("migen.fhdl.verilog").convert(made, ios=ports, name=name, **options))
    return text[text.index("module ") :]


def _with_registers(made: Any) -> Any:
    """Return the fragment of the PHY, with registers at two ports of DQSBUFM that keep no time with a clock.

    PAUSE stops the clocks of a strobe at once, so logic must not make a pulse of it, as it may in LiteDRAM's PHY, from
    two clock domains. BURSTDET comes at any time, but in that PHY it passes logic.
    """
    migen, multi_reg = _package("migen"), _package("migen.genlib.cdc").MultiReg
    fragment = made.get_fragment()
    strobes = [each for each in fragment.specials if isinstance(each, migen.Instance) and each.of == "DQSBUFM"]
    starts = migen.Signal(name_override="pause_starts")
    made.specials += multi_reg(made.init.pause, starts)
    for n, strobe in enumerate(sorted(strobes, key=lambda each: each.duid)):
        ports = {each.name: each for each in strobe.items}
        names = "pause", "burst", "burst_stage0"
        pause, burst, stage0 = (migen.Signal(name_override=f"{name}_{n}") for name in names)
        _, select = ports["PAUSE"].expr.operands
        made.sync += pause.eq(starts | select), stage0.eq(burst), ports["BURSTDET"].expr.eq(stage0)
        ports["PAUSE"].expr, ports["BURSTDET"].expr = pause, burst
    return fragment


class _Bidirectional:
    """A pin in both directions, as an ECP5 has it."""

    @staticmethod
    def lower(pin: Any) -> Any:
        """Return what is in place of a ``Tristate``."""
        migen = _package("migen")
        made = migen.Module()
        made.specials += migen.Instance("BB", i_I=pin.o, i_T=~pin.oe, o_O=pin.i, io_B=pin.target)
        return made


@cache
def controller(chip: Chip, clock_hz: int, name: str) -> str:
    """Return a module with the ports of :class:`.NativePort` and :class:`.Dfi`, as Verilog."""
    made = _package("migen").Module()
    module = _module(chip, clock_hz)
    core = _package("litedram.core.controller").LiteDRAMController(
        _settings(chip, clock_hz), module.geom_settings, module.timing_settings, clock_hz
    )
    crossbar = _package("litedram.core.crossbar").LiteDRAMCrossbar(core.interface)
    made.submodules += core, crossbar
    ports = _dfi(core.dfi).union(*(_named(crossbar.get_port(), side, _NATIVE) for side in ("writes", "reads")))
    return _verilog(made, ports, name)


@cache
def phy(chip: Chip, clock_hz: int, name: str) -> str:
    """Return the PHY of an ECP5 for DDR3 SDRAM, as Verilog.

    Its ports are those of :class:`.Dfi`, the pins, and ``clock_stop`` and ``clock_reset`` for its clocks, ``sys2x`` and
    ``sys``. It uses them in the clock domain ``init``.
    """
    made, pins = _ecp5_phy(chip, clock_hz)
    ports = _dfi(made.dfi) | _named(made, "dfi_delays", _DELAYS) | _named(made.init, "clock", ("stop", "reset"))
    for pin, found in vars(pins).items():
        each = {f"{pin}_{n}": one for n, one in enumerate(found)} if isinstance(found, list) else {pin: found}
        ports |= _named(SimpleNamespace(**each), "pin", [*each])
    made = _with_registers(made)
    return _verilog(made, ports, name, special_overrides={_package("migen.fhdl.specials").Tristate: _Bidirectional})


@cache
def model(chip: Chip, clock_hz: int, name: str) -> str:
    """Return LiteDRAM's model of the SDRAM and its PHY, as Verilog with the other side of :class:`.Dfi`."""
    made = _package("litedram.phy.model").SDRAMPHYModel(
        _module(chip, clock_hz), _settings(chip, clock_hz), clk_freq=clock_hz
    )
    return _verilog(made, _dfi(made.dfi), name)


@cache
def timing(chip: Chip, clock_hz: int) -> Timing:
    """Return the timing of DFI."""
    settings = _settings(chip, clock_hz)
    return Timing(settings.rdphase, settings.wrphase, settings.read_latency)


@cache
def steps(chip: Chip, clock_hz: int) -> tuple[Step, ...]:
    """Return the initialisation of the SDRAM."""
    named = start(_settings(chip, clock_hz), _module(chip, clock_hz).timing_settings)
    if chip.kind is Kind.SDR:
        return named
    reset = Step(0, 0, False, False, False, False, round(_RESET * clock_hz), cke=False, reset_n=False)
    return reset, *named


def start(phy_settings: Any, timing_settings: Any) -> tuple[Step, ...]:
    """Return the initialisation of an SDR or DDR3 SDRAM with these settings of LiteDRAM."""
    init = _package("litedram.init")
    made = {"SDR": init.get_sdr_phy_init_sequence, "DDR3": init.get_ddr3_phy_init_sequence}[phy_settings.memtype]
    cke, found = False, []
    for _, address, bank, command, wait in made(phy_settings, timing_settings)[0]:
        cke |= "CONTROL_CKE" in command
        lines = (f"COMMAND_{each}" in command for each in ("CS", "RAS", "CAS", "WE"))
        found.append(Step(address, bank, *lines, wait, cke=cke))
    return tuple(found)
