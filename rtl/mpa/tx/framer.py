"""From ULPDUs to FPDUs: ULPDU_Length in front, PAD behind (RFC 5044 §4.1)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Packet
from open_rnic.rtl.lib.stream import Stage, keep_octets, swap_octets

__all__ = ["FpduFramer"]


class FpduFramer(wiring.Component):
    """Puts ULPDU_Length before each ULPDU and zeros behind it, up to a multiple of 4 octets.

    Latency 1 cycle; one beat a cycle. An FPDU whose last 2 octets begin a beat of their own holds the input up for 1
    cycle. It stands still while ``o.ready`` is 0, which must not wait for ``o.valid``.

    Members
    -------
    i : :class:`TxUlpdu` and ``abort``: on the last beat, the ULPDU must not be taken for good
    o : FPDUs without markers and CRC, whole lanes; ``abort`` as on ``i``
    """

    def __init__(self, lanes: int):
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, length=16, abort=1))),
            "o": Out(stream.Signature(Packet(lanes, abort=1))),
        })
        self.lanes = lanes

    def elaborate(self, platform):
        m = Module()
        m.submodules.padded = padded = Stage(_Padded(self.lanes), twice="spills")
        self._pad(m, padded.i)
        self._frame(m, padded.o, padded.again)
        return m

    def _pad(self, m, o):
        """Clear what is behind the ULPDU, and find out whether its end fits behind the 2 octets before it."""
        i, padded = self.i.payload, o.payload
        width = 4 * self.lanes
        octets = Mux(i.last, i.octets, width)
        m.d.comb += [
            o.valid.eq(self.i.valid),
            self.i.ready.eq(o.ready),
            *(padded[name].eq(i[name]) for name in ("length", "last", "abort")),
            padded.data.eq(Mux(i.last, keep_octets(i.data, i.octets), i.data)),
            padded.octets.eq(Cat(Const(0, 2), (octets + 2 + 3)[2:])),
            padded.spills.eq(i.last & (octets > width - 2)),
        ]

    def _frame(self, m, i, alone):
        """Shift the ULPDU by 2 octets, behind its length."""
        padded, o = i.payload, self.o.payload
        carry = Signal(16, reset_less=True)
        first = Signal(init=1)
        with m.If(alone):  # the ULPDU's last octets, in ``carry``, are a beat
            m.d.comb += [o.data.eq(Cat(carry, Const(0, 16), padded.data[16:])), o.octets.eq(4)]
        with m.Else():
            m.d.comb += [
                o.data.eq(Cat(Mux(first, swap_octets(padded.length), carry), padded.data)),
                o.octets.eq(padded.octets),
            ]
        m.d.comb += [
            self.o.valid.eq(i.valid),
            i.ready.eq(self.o.ready),
            o.last.eq(padded.last & (alone | ~padded.spills)),
            o.abort.eq(padded.abort),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += [
                carry.eq(padded.data[-16:]),
                first.eq(o.last),
            ]


class _Padded(Packet):
    """A beat of a ULPDU with zeros behind it.

    ``octets`` are those of the FPDU's beat that it is going to be, if it is the last one. ``spills``: it is not the
    last one, but what does not fit into it is.
    """

    def __init__(self, lanes: int):
        super().__init__(lanes, length=16, abort=1, spills=1)
