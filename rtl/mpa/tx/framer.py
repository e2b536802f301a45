"""From ULPDUs to FPDUs: ULPDU_Length in front, PAD behind (RFC 5044 §4.1)."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, carried
from open_rnic.rtl.lib.conveyor import Conveyor
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.stream import Buffer, Stage, swap_octets
from open_rnic.rtl.mpa.tx.crc_appender import crc_appender
from open_rnic.rtl.mpa.tx.markers import MarkerInserter

__all__ = ["FpduFramer", "frame"]


def frame(m: Module, ulpdus: stream.Interface, lanes: int, connections: int = 1):
    """Add the blocks that make FPDUs of a fence's ULPDUs. Return the inserter of markers, and the stream of FPDUs."""
    m.submodules.framer = framer = FpduFramer(lanes, connections)
    m.submodules.inserter = inserter = MarkerInserter(lanes, connections)
    m.submodules.marked = marked = Stage(inserter.o.payload.shape())
    m.submodules.appender = appender = crc_appender(lanes, connections)
    wiring.connect(m, ulpdus, framer.i)
    wiring.connect(m, framer.o, inserter.i)
    wiring.connect(m, inserter.o, marked.i)
    wiring.connect(m, marked.o, appender.i)
    return inserter, appender.o


class FpduFramer(wiring.Component):
    """Prepends ULPDU_Length to each ULPDU, and appends zeros up to a multiple of 4 octets.

    Latency: 2 cycles. Throughput: one beat per cycle. An FPDU whose last 2 octets need a beat of their own stalls the
    input for 1 cycle. No combinational path leads from ``o`` to ``i``.

    Members
    -------
    i : In, stream of :class:`.Packet` with ``length`` (16 bits) and ``abort`` (1 bit)
        ULPDUs. ``length`` is valid on the first beat. ``abort`` on the last beat: the FPDU must be invalid.
    o : Out, stream of :class:`.Packet` with ``abort`` (1 bit)
        FPDUs without markers and CRC, in whole lanes.

    Both have the fields of :func:`.carried`, with ``markers`` and ``crc``.
    """

    def __init__(self, lanes: int, connections: int = 1):
        self.carried = carried(connections, "markers", "crc")
        super().__init__({
            "i": In(stream.Signature(Packet(lanes, length=16, abort=1, **self.carried))),
            "o": Out(stream.Signature(Packet(lanes, abort=1, **self.carried))),
        })
        self.lanes = lanes

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        counted_shape, padded_shape, shape = (
            _Counted(lanes, self.carried), _Padded(lanes, self.carried), self.o.payload.shape()
        )  # fmt: skip
        if lanes > AT_ONCE:
            m.submodules.conveyor = given = conveyor = Conveyor(counted_shape, shape, twice="spills", steps=0)
            padded = stream.Signature(padded_shape).create()
            self._count(m, conveyor.i)
            self._pad(m, conveyor.begun, padded)
            self._frame(m, padded, conveyor.again, conveyor.given)
        else:
            m.submodules.padded = padded = Stage(padded_shape, twice="spills")
            m.submodules.given = given = Buffer(shape)
            counted = stream.Signature(counted_shape).create()
            self._count(m, counted)
            self._pad(m, counted, padded.i)
            self._frame(m, padded.o, padded.again, given.i)
        wiring.connect(m, given.o, wiring.flipped(self.o))
        return m

    def _count(self, m, o):
        """Determine the ULPDU's octets, and whether its end still fits in the beat after the shift."""
        i, counted = self.i.payload, o.payload
        width = 4 * self.lanes
        octets = Mux(i.last, i.octets, width)
        m.d.comb += [
            o.valid.eq(self.i.valid),
            self.i.ready.eq(o.ready),
            *(counted[name].eq(i[name]) for name in ("data", "length", "last", "abort", *self.carried)),
            counted.keeps.eq(Cat(~i.last | (n < i.octets) for n in range(width))),
            counted.octets.eq(Cat(Const(0, 2), (octets + 2 + 3)[2:])),
            counted.spills.eq(i.last & (octets > width - 2)),
        ]

    def _pad(self, m, i, o):
        """Clear the octets after the ULPDU."""
        counted, padded = i.payload, o.payload
        m.d.comb += [
            o.valid.eq(i.valid),
            i.ready.eq(o.ready),
            *(padded[name].eq(counted[name]) for name in padded.shape().members if name != "data"),
            padded.data.eq(counted.data & Cat(keeps.replicate(8) for keeps in counted.keeps)),
        ]

    def _frame(self, m, i, alone, given):
        """Shift the ULPDU by 2 octets, to make room for its length."""
        padded, o = i.payload, given.payload
        carry = Signal(16, reset_less=True)
        first = Signal(init=1)
        # With ``alone``, ``carry`` has the ULPDU's last octets, which need a beat of their own. The zeros behind them
        # are not chosen, because synthesis would make this a late reset of the next register.
        behind = padded.data[:16] & ~alone.replicate(16)
        m.d.comb += [
            o.data.eq(Cat(Mux(first, swap_octets(padded.length), carry), behind, padded.data[16:])),
            o.octets.eq(Mux(alone, 4, padded.octets)),
            given.valid.eq(i.valid),
            i.ready.eq(given.ready),
            o.last.eq(padded.last & (alone | ~padded.spills)),
            o.abort.eq(padded.abort),
            *(o[name].eq(padded[name]) for name in self.carried),
        ]
        with m.If(given.valid & given.ready):
            m.d.sync += [
                carry.eq(padded.data[-16:]),
                first.eq(o.last),
            ]


class _Counted(Packet):
    """A beat of a ULPDU. ``keeps``: its octets that are valid. The other fields are those of :class:`_Padded`."""

    def __init__(self, lanes: int, also):
        super().__init__(lanes, keeps=4 * lanes, length=16, abort=1, spills=1, **also)


class _Padded(Packet):
    """A beat of a ULPDU, with zeros after the ULPDU's end.

    ``octets``: the valid octets of the FPDU's last beat. ``spills``: the ULPDU's last beat does not fit in one beat of
    the FPDU; its rest follows in another one.
    """

    def __init__(self, lanes: int, also):
        super().__init__(lanes, length=16, abort=1, spills=1, **also)
