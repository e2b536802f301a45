"""RDMA over a device, for asyncio: connections as in rdma_cm, operations as in verbs.

``listen`` and ``connect`` make connections, ``Connection`` has the operations, and ``Region`` is registered memory.
``WorkRequest`` and ``ReceiveRequest`` are operations as plain data, which complete in a ``CompletionQueue``. The end
of a connection is one of three kinds of RdmaError: TerminatedError, ClosedError or LostError.
"""

from open_rnic.host_driver.connection import MpaConnectionError, RejectedError
from open_rnic.host_driver.ddp import Fault, Opcode, Terminate
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.lib.state_machine import ProtocolError
from open_rnic.host_driver.mpa.negotiation import Config, Negotiated, Reason
from open_rnic.host_driver.rdma.connection import (
    By,
    ClosedError,
    Connection,
    LostError,
    OpenDevice,
    Options,
    RdmaError,
    TerminatedError,
)
from open_rnic.host_driver.rdma.manager import ConnectionRequest, Listener, connect, listen, software
from open_rnic.host_driver.rdma.memory import Access, DeviceBuffer, Piece, Place, ProtectionDomain, Region, StagTable
from open_rnic.host_driver.rdma.work import (
    Completion,
    CompletionQueue,
    QueueFullError,
    Received,
    ReceiveRequest,
    Status,
    WorkRequest,
)
from open_rnic.rtl.registers import Model, Role, Rtr

__all__ = [
    "Access",
    "By",
    "ClosedError",
    "Completion",
    "CompletionQueue",
    "Config",
    "Connection",
    "ConnectionRequest",
    "DeviceBuffer",
    "Fault",
    "KeepAlive",
    "Listener",
    "LostError",
    "Model",
    "MpaConnectionError",
    "Negotiated",
    "Opcode",
    "OpenDevice",
    "Options",
    "Piece",
    "Place",
    "ProtectionDomain",
    "ProtocolError",
    "QueueFullError",
    "RdmaError",
    "Reason",
    "ReceiveRequest",
    "Received",
    "Region",
    "RejectedError",
    "Role",
    "Rtr",
    "StagTable",
    "Status",
    "Terminate",
    "TerminatedError",
    "WorkRequest",
    "connect",
    "listen",
    "software",
]
