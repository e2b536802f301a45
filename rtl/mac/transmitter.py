"""Makes octets to transmit from frames."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.crc.catalog import CRC32_ETHERNET
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.mac.layouts import LEAST_FRAME, PADDING, SFD, TxOctets

__all__ = ["MacTransmitter"]

_PREAMBLE = 0x55
_GAP = 12  # octets: 96 bit times (IEEE 802.3 §4A.4.2)
_FCS = 4  # octets


class MacTransmitter(wiring.Component):
    """Sends frames with preamble, SFD and FCS, padded with zeros to 64 octets, and at least 12 octets apart.

    Once a frame has begun, the next word must be offered 2 octets after each word has been taken.

    Latency: a frame begins 2 octets after its first word is offered. Throughput: one octet per ``strobe``.

    Members
    -------
    i : In, stream of :class:`.Packet`
        Frames without FCS, of at least 2 words, preceded by two octets of padding.
    octets : Out, signature :class:`.TxOctets`
    sent : Out, 1 bit
        Pulses when a frame has been sent.
    """

    i: In(stream.Signature(Packet(1)))
    octets: Out(TxOctets())
    sent: Out(1)

    def __init__(self):
        super().__init__()
        # The octet that is chosen.
        self._octet = Signal(8)
        self._valid = Signal()
        self._covered = Signal()  # by the FCS
        self._in_fcs = Signal()
        # The word that it is of.
        self._shifted = Signal(32, reset_less=True)  # the octets that are left
        self._left = Signal(range(5))  # their number
        self._last = Signal()
        self._takes = Signal()  # the next word is taken with this octet
        self._counted = Signal(range(max(8, _GAP)))  # octets that are left of the preamble, the FCS or the gap
        self._missing = Signal(range(LEAST_FRAME - _FCS))  # octets that the shortest frame has behind this one

    def elaborate(self, platform):
        m = Module()
        self._load(m)
        with m.FSM():
            self._preamble(m)
            self._data(m)
            self._fcs(m)
        self._send(m)
        return m

    def _load(self, m):
        """Take a word. The first one of a frame begins with padding."""
        word = self.i.payload
        m.d.comb += self.i.ready.eq(self._takes & self.octets.strobe)
        with m.If(self.i.ready):
            m.d.sync += [
                self._shifted.eq(Mux(self._valid, word.data, word.data >> 8 * PADDING)),
                self._left.eq(Mux(self._valid, Mux(word.last, word.octets, 4), 4 - PADDING)),
                self._last.eq(word.last),
            ]

    def _count(self, m):
        m.d.sync += self._counted.eq(self._counted - 1)
        return m.If(self._counted == 0)

    def _preamble(self, m):
        with m.State("Idle"):
            m.d.comb += self._takes.eq(self.i.valid)
            m.d.sync += [self._counted.eq(7), self._missing.eq(LEAST_FRAME - _FCS - 1)]
            with m.If(self.i.ready):
                m.next = "Preamble"

        with m.State("Preamble"):
            m.d.comb += [self._valid.eq(1), self._octet.eq(Mux(self._counted == 0, SFD, _PREAMBLE))]
            with m.If(self.octets.strobe), self._count(m):
                m.next = "Data"

    def _data(self, m):
        """The octets of the words, and zeros behind them up to the shortest frame."""
        is_last = self._left == 1
        with m.State("Data"):
            m.d.comb += [self._valid.eq(1), self._covered.eq(1)]
            m.d.comb += [self._octet.eq(self._shifted[:8]), self._takes.eq(is_last & ~self._last)]
            m.d.sync += self._counted.eq(_FCS - 1)
            with m.If(self.octets.strobe):
                with m.If(self._left != 1):
                    m.d.sync += [self._shifted.eq(self._shifted >> 8), self._left.eq(self._left - 1)]
                with m.If(self._missing != 0):
                    m.d.sync += self._missing.eq(self._missing - 1)
                with m.If(is_last & self._last):
                    m.next = "Pad"
                    with m.If(self._missing == 0):
                        m.next = "Fcs"

        with m.State("Pad"):
            m.d.comb += [self._valid.eq(1), self._covered.eq(1)]
            with m.If(self.octets.strobe):
                m.d.sync += self._missing.eq(self._missing - 1)
                with m.If(self._missing == 0):
                    m.next = "Fcs"

    def _fcs(self, m):
        """The FCS, and the gap behind it, of which ``Idle`` is one octet."""
        with m.State("Fcs"):
            m.d.comb += [self._valid.eq(1), self._in_fcs.eq(1)]
            with m.If(self.octets.strobe), self._count(m):
                m.d.comb += self.sent.eq(1)
                m.d.sync += self._counted.eq(_GAP - 2)
                m.next = "Gap"

        with m.State("Gap"):
            with m.If(self.octets.strobe), self._count(m):
                m.next = "Idle"

    def _send(self, m):
        """Send the octet that has been chosen, or one of the CRC.

        A register is between the choice and the CRC. During the FCS, the CRC processes its own lowest octet: this
        shifts it by an octet.
        """
        m.submodules.crc = crc = CRC32_ETHERNET(data_width=8).create()
        strobe = self.octets.strobe
        chosen = Signal(8, reset_less=True)
        chosen_valid = Signal()
        chosen_covered = Signal()
        chosen_fcs = Signal()
        low = crc.crc[:8]
        m.d.comb += [
            crc.start.eq(strobe & ~chosen_valid),
            crc.valid.eq(strobe & (chosen_covered | chosen_fcs)),
            crc.data.eq(Mux(chosen_fcs, ~low, chosen)),
        ]
        with m.If(strobe):
            m.d.sync += [
                chosen.eq(self._octet),
                chosen_valid.eq(self._valid),
                chosen_covered.eq(self._covered),
                chosen_fcs.eq(self._in_fcs),
                self.octets.valid.eq(chosen_valid),
                self.octets.data.eq(Mux(chosen_fcs, low, chosen)),
            ]
