"""A logic analyser, whose traces are samples for the RNIC: a program in the network finds them in its memory."""

from litex.gen import LiteXModule
from litex.soc.interconnect import stream
from migen import Cat, If, Memory, Signal

__all__ = ["Capture"]

_BITS = 31


class Capture(LiteXModule):
    """Takes a trace of signals each time a trigger is seen: a word in each cycle.

    The words leave as fast as the RNIC takes them, and wait in block RAM. No other trace begins before all have left.
    Bit 31 of a word is 1 in the first one of a trace.

    Parameters
    ----------
    signals : up to 31 bits of the domain ``sys``
    trigger : 1 bit of it
    length : words of a trace
    before : cycles from the first word to the trigger, at least 1

    Attributes
    ----------
    source : ``stream.Endpoint`` with ``data`` of 32 bits, for :attr:`.Rnic.samples`

    """

    def __init__(self, signals, trigger, *, length: int = 512, before: int = 32):
        if len(signals) > _BITS:
            raise ValueError(f"a capture has up to {_BITS} bits, not {len(signals)}")
        if not 1 <= before < length:
            raise ValueError(f"a capture begins 1 to {length - 1} cycles before its trigger, not {before}")
        history = Memory(len(signals), before + 1)
        write, read = history.get_port(write_capable=True), history.get_port()
        self.specials += history, write, read
        place, oldest = Signal(max=before + 1), Signal(max=before + 1)
        left, first = Signal(max=length + 1), Signal()
        self.fifo = fifo = stream.SyncFIFO([("data", 32)], length, buffered=True)
        self.source = fifo.source
        word = Signal(_BITS)
        self.comb += [
            If(place != before, oldest.eq(place + 1)),
            write.adr.eq(place), write.dat_w.eq(signals), write.we.eq(1), read.adr.eq(oldest),
            word.eq(read.dat_r), fifo.sink.data.eq(Cat(word, first)), fifo.sink.valid.eq(left != 0),
        ]  # fmt: skip
        self.sync += [
            place.eq(oldest),
            first.eq(0),
            If(left != 0, left.eq(left - 1)).Elif(trigger & (fifo.level == 0), left.eq(length), first.eq(1)),
        ]
