"""FIFOs of packets with optional faults, on which the harness and the drivers of MPA are tested."""

from amaranth.hdl import Module
from amaranth.lib import fifo, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.cocotb_tests.harness import Part
from open_rnic.rtl.formats.layouts import packet


class PacketFifo(wiring.Component):
    """Its packets have a ``note`` of so many bits, unless it is 0.

    ``fault`` 1 loses a beat if the reader stalls; 2 never sets ``valid``; 3 sets ``valid`` only after ``ready``.
    """

    def __init__(self, lanes, fault=0, note=0):
        self.fault = fault
        shape = packet(lanes, **({"note": note} if note else {}))
        super().__init__({"i": In(shape), "o": Out(shape)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = inner = fifo.SyncFIFOBuffered(width=len(self.i.payload.as_value()), depth=4)
        wiring.connect(m, wiring.flipped(self.i), inner.w_stream)
        m.d.comb += [
            self.o.payload.eq(inner.r_stream.payload),
            self.o.valid.eq(inner.r_stream.valid & (self.fault != 2) & (self.o.ready | (self.fault != 3))),
            inner.r_stream.ready.eq(self.o.ready | (self.fault == 1)),
        ]
        return m


NOTE = 5
# Lanes, fault and note of those in ``make test``, and of those that ``make test-long`` adds.
SHORT = ((1, 0, NOTE), (4, 0, NOTE), (1, 1, NOTE), (1, 2, NOTE), (1, 3, NOTE), (1, 0, 0), (4, 0, 0), (16, 0, 0))
OTHERS = ((2, 0, 0), (8, 0, 0))


def packet_fifo(lanes, fault=0, note=0):
    """Return a FIFO for ``simulate``, beside the others of the same run."""
    kind = lanes, fault, note
    return Part(_of_kind, kind, SHORT if kind in SHORT else OTHERS)


def _of_kind(kind):
    return PacketFifo(*kind)
