"""Two clock domains show each other a value."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

__all__ = ["Exchange"]


class Exchange(wiring.Component):
    """Shows a value of each of two clock domains, ``write`` and ``read``, to the other one, again and again.

    A token goes to and fro. The side that has the token takes the other side's value, copies its own one into a
    register, and gives the token back, by a change of a single bit. The register then stays as it is until the token
    returns. The other side reads it when the bit has passed two registers, so that all of its bits have been stable for
    more than a cycle: neither the width of the value nor the ratio of the clocks matters.

    Latency: a value is seen after one to two round trips of the token; a round trip takes 3 cycles of each side.

    Both sides must be reset together: neither may continue until the other one is in reset, too.

    Members
    -------
    written : In, ``width`` bits; in the domain ``write``
    written_seen : Out, ``width`` bits; in the domain ``read``
    read : In, ``width`` bits; in the domain ``read``
    read_seen : Out, ``width`` bits; in the domain ``write``
    frozen : In, 1 bit; in the domain ``read``
        Leave ``written_seen`` as it is, and keep the token.
    """

    def __init__(self, width: int):
        self.width = width
        super().__init__({
            "written": In(width),
            "written_seen": Out(width),
            "read": In(width),
            "read_seen": Out(width),
            "frozen": In(1),
        })

    def elaborate(self, platform):
        m = Module()
        write_turn = Signal()  # equal to ``read_turn``: the side ``write`` has the token
        read_turn = Signal()
        write_turn_seen = Signal()
        read_turn_seen = Signal()
        write_copy = Signal(self.width)
        read_copy = Signal(self.width)
        # The registers of the synchronizers are reset, too, so that no side sees a turn from before a reset.
        m.submodules.to_read = FFSynchronizer(write_turn, write_turn_seen, o_domain="read", reset_less=False)
        m.submodules.to_write = FFSynchronizer(read_turn, read_turn_seen, o_domain="write", reset_less=False)
        with m.If(write_turn == read_turn_seen):
            m.d.write += [self.read_seen.eq(read_copy), write_copy.eq(self.written), write_turn.eq(~write_turn)]
        with m.If((read_turn != write_turn_seen) & ~self.frozen):
            m.d.read += [self.written_seen.eq(write_copy), read_copy.eq(self.read), read_turn.eq(~read_turn)]
        return m
