"""The bus between the host's side and the registers."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RegisterBus"]


class RegisterBus(wiring.Signature):
    """One access at a time to 32-bit registers.

    The initiator raises ``request`` with ``write``, ``address`` (a register's octet address divided by 4) and
    ``write_data``, and holds them until ``ack``, in the same cycle or later. ``read_data`` is valid with
    ``ack``. In the cycle after ``ack``, ``request`` is low or belongs to the next access.
    """

    def __init__(self):
        super().__init__({
            "request": Out(1),
            "write": Out(1),
            "address": Out(8),
            "write_data": Out(32),
            "ack": In(1),
            "read_data": In(32),
        })
