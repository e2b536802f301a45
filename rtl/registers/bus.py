"""The bus between the host interface and the registers."""

from collections.abc import Iterable

from amaranth.hdl import Module, Mux, Signal, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["BusSwitch", "RegisterBus", "connect_pages", "paged_bus"]


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


def paged_bus(pages: int) -> RegisterBus:
    """The bus to so many pages, such as one for each connection: their number is above the 8 bits of an address."""
    return RegisterBus(8 + (pages - 1).bit_length())


class BusSwitch(wiring.Component):
    """Gives the accesses of two initiators to one target, a whole access at a time, in turn while both have one.

    An access has no more latency than without the switch, unless one of the other initiator is being carried out.

    Members
    -------
    initiators : In, array of 2 :class:`RegisterBus`
    bus : Out, :class:`RegisterBus`
    """

    def __init__(self, address_bits: int):
        side = RegisterBus(address_bits)
        super().__init__({"initiators": In(side).array(2), "bus": Out(side)})

    def elaborate(self, platform):
        m = Module()
        first, second = self.initiators
        bus = self.bus
        latest = Signal()  # the initiator of the access that began last
        begun = Signal()
        chosen = Signal()
        m.d.comb += [
            chosen.eq(Mux(begun, latest, Mux(latest, ~first.request, second.request))),
            bus.request.eq(Mux(chosen, second.request, first.request)),
            bus.write.eq(Mux(chosen, second.write, first.write)),
            bus.address.eq(Mux(chosen, second.address, first.address)),
            bus.write_data.eq(Mux(chosen, second.write_data, first.write_data)),
            first.ack.eq(bus.ack & ~chosen),
            second.ack.eq(bus.ack & chosen),
            first.read_data.eq(bus.read_data),
            second.read_data.eq(bus.read_data),
        ]
        with m.If(bus.request):
            m.d.sync += [latest.eq(chosen), begun.eq(~bus.ack)]
        return m


def connect_pages(m: Module, bus, pages: Iterable[tuple[object, ValueLike]]) -> None:
    """Connect ``bus`` to several others: an access reaches the one beside which 1 stands; 1 stands beside one at most.

    The most significant bits of the address are left out where a bus has fewer.
    """
    for page, chosen in pages:
        m.d.comb += [
            page.request.eq(bus.request & chosen),
            page.write.eq(bus.write),
            page.address.eq(bus.address),
            page.write_data.eq(bus.write_data),
        ]
        with m.If(chosen):
            m.d.comb += [bus.ack.eq(page.ack), bus.read_data.eq(page.read_data)]
