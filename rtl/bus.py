"""The bus between the host interface and the registers."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["RegisterBus"]


class RegisterBus(wiring.Signature):
    """A bus for accesses to 32-bit registers, one at a time.

    The initiator sets ``request`` and holds it, with ``write``, ``address`` and ``write_data``, until the target sets
    ``ack``, in the same cycle or later. In the cycle after ``ack``, ``request`` is 0 or belongs to the next access.

    Members
    -------
    request : Out, 1 bit
        An access is requested.
    write : Out, 1 bit
        1: write; 0: read.
    address : Out, ``address_bits`` bits
        The octet address of the register, divided by 4.
    write_data : Out, 32 bits
        The word to write.
    ack : In, 1 bit
        The access is complete.
    read_data : In, 32 bits
        The word that was read, valid with ``ack``.
    """

    def __init__(self, address_bits: int = 8):
        super().__init__({
            "request": Out(1),
            "write": Out(1),
            "address": Out(address_bits),
            "write_data": Out(32),
            "ack": In(1),
            "read_data": In(32),
        })
