"""The RDMA engine in software; the commands of an engine, its memory, and its registers in Python: the twin.

The package lies below the devices, and imports nothing of ``host_driver.rdma``.
"""

from open_rnic.host_driver.rdma.engine import commands
from open_rnic.host_driver.rdma.engine.copied import CopiedMemory
from open_rnic.host_driver.rdma.engine.engine import Engine, Message, Progress, Request, UntaggedBuffer
from open_rnic.host_driver.rdma.engine.mapped import MappedMemory
from open_rnic.host_driver.rdma.engine.memory import SPACE, Buffer, EngineMemory, MemoryAccess, Placed, Places
from open_rnic.host_driver.rdma.engine.twin import Memory, Twin

__all__ = [
    "SPACE", "Buffer", "CopiedMemory", "Engine", "EngineMemory", "MappedMemory", "Memory", "MemoryAccess", "Message",
    "Placed", "Places", "Progress", "Request", "Twin", "UntaggedBuffer", "commands",
]  # fmt: skip
