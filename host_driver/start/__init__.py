"""Open RNIC: RDMA over TCP (iWARP), from registered memory to Ethernet frames.

What one starts with is here; the modules that it comes from have the rest, and docs/api.md says what is public.

A program that does RDMA::

    import open_rnic

    async with await open_rnic.listen("127.0.0.1", 7471) as listener: ...
    async with await open_rnic.connect("127.0.0.1", 7471) as connection: ...

A data path by itself, in software, in simulation or on a board: ``open_device``. Gateware for a design of one's own:
``MpaDatapath``, ``RdmaDatapath``, ``AxiMpaDatapath``, ``AxiRdmaDatapath`` and ``WholeRnic``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from open_rnic.host_driver.devices import open_device as open_device
    from open_rnic.host_driver.mpa.negotiation import Config as Config
    from open_rnic.host_driver.rdma import Access as Access
    from open_rnic.host_driver.rdma import CompletionQueue as CompletionQueue
    from open_rnic.host_driver.rdma import Connection as Connection
    from open_rnic.host_driver.rdma import ProtectionDomain as ProtectionDomain
    from open_rnic.host_driver.rdma import connect as connect
    from open_rnic.host_driver.rdma import listen as listen
    from open_rnic.rtl.mpa.axi import AxiMpaDatapath as AxiMpaDatapath
    from open_rnic.rtl.mpa.datapath import MpaDatapath as MpaDatapath
    from open_rnic.rtl.rdma.axi import AxiRdmaDatapath as AxiRdmaDatapath
    from open_rnic.rtl.rdma.datapath import RdmaDatapath as RdmaDatapath
    from open_rnic.rtl.rnic.whole_rnic import WholeRnic as WholeRnic

    __version__: str

#: Where each name comes from; the module is imported when the name is first used, so that none costs the others time.
_HOMES = {
    "Access": "host_driver.rdma", "AxiMpaDatapath": "rtl.mpa.axi", "AxiRdmaDatapath": "rtl.rdma.axi",
    "CompletionQueue": "host_driver.rdma", "Config": "host_driver.mpa.negotiation", "Connection": "host_driver.rdma",
    "MpaDatapath": "rtl.mpa.datapath", "ProtectionDomain": "host_driver.rdma", "RdmaDatapath": "rtl.rdma.datapath",
    "WholeRnic": "rtl.rnic.whole_rnic", "connect": "host_driver.rdma", "listen": "host_driver.rdma",
    "open_device": "host_driver.devices",
}  # fmt: skip

__all__ = [
    "Access", "AxiMpaDatapath", "AxiRdmaDatapath", "CompletionQueue", "Config", "Connection", "MpaDatapath",
    "ProtectionDomain", "RdmaDatapath", "WholeRnic", "connect", "listen", "open_device",
]  # fmt: skip


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("open-rnic")
    except PackageNotFoundError:  # the folder is in the path, and not installed
        return "unknown"


if not TYPE_CHECKING:  # type checkers would believe that there is every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":  # looked up when it is asked for: that takes longer than the import
            return _version()
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"open_rnic.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
