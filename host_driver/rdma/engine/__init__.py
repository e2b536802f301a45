"""The RDMA engine of a device as the host knows it: its twin, and the memory that it works on.

The package lies below the devices, and imports nothing of ``host_driver.rdma``.
"""

from open_rnic.host_driver.rdma.engine import commands
from open_rnic.host_driver.rdma.engine.copied import CopiedMemory
from open_rnic.host_driver.rdma.engine.mapped import MappedMemory
from open_rnic.host_driver.rdma.engine.memory import SPACE, Buffer, EngineMemory, MemoryAccess, Placed, Places
from open_rnic.host_driver.rdma.engine.twin import Engine, Memory

__all__ = [
    "SPACE", "Buffer", "CopiedMemory", "Engine", "EngineMemory", "MappedMemory", "Memory", "MemoryAccess", "Placed",
    "Places", "commands",
]  # fmt: skip
