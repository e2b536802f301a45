"""The side of a queue of frames from which they leave."""

from amaranth.hdl import Cat, Module, Signal

__all__ = ["deliver"]


def deliver(m: Module, read, end: Signal, o) -> tuple[Signal, Signal]:
    """Let the words of a memory up to the pointer ``end`` leave at ``o``; all in the domain ``read``.

    A word passes two registers, of which the first belongs to the memory.

    Returns the pointer to the next word to be read, and whether no word is on its way.
    """
    head = Signal.like(end)
    more = Signal()
    fetched = Signal()
    moves = Signal()
    register = Signal.like(o.payload, reset_less=True)
    empty = Signal()
    m.d.comb += [
        more.eq(head != end),
        moves.eq(o.ready | ~o.valid),
        read.addr.eq(head),
        read.en.eq(moves),
        o.payload.eq(register),
        empty.eq(~Cat(more, fetched, o.valid).any()),
    ]
    with m.If(moves):
        m.d.read += [head.eq(head + more), fetched.eq(more), o.valid.eq(fetched)]
        with m.If(fetched):
            m.d.read += register.eq(read.data)
    return head, empty
