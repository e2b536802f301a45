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

    def elaborate(self, platform):
        m = Module()
        word = self.i.payload
        strobe = self.octets.strobe
        m.submodules.crc = crc = CRC32_ETHERNET(data_width=8).create()
        octet = Signal(8)
        valid = Signal()
        covered = Signal()  # by the FCS
        in_fcs = Signal()
        shifted = Signal(32, reset_less=True)  # the octets of the word that are left
        left = Signal(range(5))  # their number
        last = Signal()
        takes = Signal()
        counted = Signal(range(max(8, _GAP)))
        missing = Signal(range(LEAST_FRAME - _FCS))  # octets that the shortest frame has behind this one
        m.d.comb += self.i.ready.eq(takes & strobe)
        with m.If(self.i.ready):
            m.d.sync += [
                shifted.eq(Mux(valid, word.data, word.data >> 8 * PADDING)),
                left.eq(Mux(valid, Mux(word.last, word.octets, 4), 4 - PADDING)),
                last.eq(word.last),
            ]
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += takes.eq(self.i.valid)
                m.d.sync += [counted.eq(7), missing.eq(LEAST_FRAME - _FCS - 1)]
                with m.If(self.i.ready):
                    m.next = "Preamble"

            with m.State("Preamble"):
                m.d.comb += [valid.eq(1), octet.eq(Mux(counted == 0, SFD, _PREAMBLE))]
                with m.If(strobe):
                    m.d.sync += counted.eq(counted - 1)
                    with m.If(counted == 0):
                        m.next = "Data"

            with m.State("Data"):
                m.d.comb += [valid.eq(1), covered.eq(1), octet.eq(shifted[:8]), takes.eq((left == 1) & ~last)]
                m.d.sync += counted.eq(_FCS - 1)
                with m.If(strobe):
                    with m.If(left != 1):
                        m.d.sync += [shifted.eq(shifted >> 8), left.eq(left - 1)]
                    with m.If(missing != 0):
                        m.d.sync += missing.eq(missing - 1)
                    with m.If((left == 1) & last):
                        m.next = "Pad"
                        with m.If(missing == 0):
                            m.next = "Fcs"

            with m.State("Pad"):
                m.d.comb += [valid.eq(1), covered.eq(1)]
                with m.If(strobe):
                    m.d.sync += missing.eq(missing - 1)
                    with m.If(missing == 0):
                        m.next = "Fcs"

            with m.State("Fcs"):
                m.d.comb += [valid.eq(1), in_fcs.eq(1)]
                with m.If(strobe):
                    m.d.sync += counted.eq(counted - 1)
                    with m.If(counted == 0):
                        m.d.comb += self.sent.eq(1)
                        m.d.sync += counted.eq(_GAP - 2)  # ``Idle`` is one octet of the gap
                        m.next = "Gap"

            with m.State("Gap"):
                with m.If(strobe):
                    m.d.sync += counted.eq(counted - 1)
                    with m.If(counted == 0):
                        m.next = "Idle"

        # A register between the choice of an octet and the CRC. During the FCS, the CRC processes its own lowest octet:
        # this shifts it by an octet.
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
                chosen.eq(octet),
                chosen_valid.eq(valid),
                chosen_covered.eq(covered),
                chosen_fcs.eq(in_fcs),
                self.octets.valid.eq(chosen_valid),
                self.octets.data.eq(Mux(chosen_fcs, low, chosen)),
            ]
        return m
