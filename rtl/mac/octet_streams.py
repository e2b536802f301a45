"""Octets as streams: those of a PHY's logic that has streams of frames, as LiteEth's PHYs do."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.layouts import RxOctets, TxOctets

__all__ = ["OctetStreams"]

_MOST_CYCLES = 1000  # an octet at 10 Mb/s has 100 at 125 MHz


class OctetStreams(wiring.Component):
    """An adapter of :class:`.EthernetPort` whose octets are beats of two streams, from preamble to FCS.

    The streams are in the domains ``mac_rx`` and ``mac_tx``, whose clocks are inputs. Between two frames, the
    transmitter offers nothing for 12 octets (IEEE 802.3 §4A.4.2).

    Latency: receive none, transmit 1 octet. Throughput: one octet per cycle.

    Parameters
    ----------
    octet_cycles : cycles of ``mac_tx`` in an octet of the medium: 1 with GMII and RGMII at 1 Gb/s, 2 with MII. Only
        the gap between frames depends on it

    Members
    -------
    rx : Out, signature :class:`.RxOctets`; in the domain ``mac_rx``
    tx : In, signature :class:`.TxOctets`; in the domain ``mac_tx``
    rx_clk, tx_clk : In, 1 bit
        The clocks.
    mac_rx_clk, mac_tx_clk : Out, 1 bit
        The same, for :func:`.add_clocks`.
    rx_data, rx_error, rx_last, rx_valid : In, 8, 1, 1 and 1 bit
    rx_ready : Out, 1 bit
        Received octets; ``rx_error`` marks one with an error. Not ready for one cycle after each frame.
    tx_data, tx_last, tx_valid : Out, 8, 1 and 1 bit
    tx_ready : In, 1 bit
        Octets to transmit.

    """

    def __init__(self, octet_cycles: int = 1):
        if not 1 <= octet_cycles <= _MOST_CYCLES:
            raise ValueError(f"octet_cycles must be 1 to {_MOST_CYCLES}, not {octet_cycles!r}")
        self.octet_cycles = octet_cycles
        super().__init__({
            "rx": Out(RxOctets()), "tx": In(TxOctets()),
            "rx_clk": In(1), "tx_clk": In(1), "mac_rx_clk": Out(1), "mac_tx_clk": Out(1),
            "rx_data": In(8), "rx_error": In(1), "rx_last": In(1), "rx_valid": In(1), "rx_ready": Out(1),
            "tx_data": Out(8), "tx_last": Out(1), "tx_valid": Out(1), "tx_ready": In(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.d.comb += [self.mac_rx_clk.eq(self.rx_clk), self.mac_tx_clk.eq(self.tx_clk)]
        self._receive(m)
        self._transmit(m)
        return m

    def _receive(self, m):
        """While the next octet of a frame is late, no time passes; behind the last one is a gap."""
        inside = Signal()
        gap = Signal()
        m.d.comb += [
            self.rx_ready.eq(~gap),
            self.rx.valid.eq(self.rx_valid & ~gap),
            self.rx.strobe.eq(self.rx_valid | ~inside),
            self.rx.data.eq(self.rx_data),
            self.rx.error.eq(self.rx_error),
        ]
        m.d.mac_rx += gap.eq(self.rx.valid & self.rx_last)
        with m.If(self.rx.valid):
            m.d.mac_rx += inside.eq(~self.rx_last)

    def _transmit(self, m):
        """An octet is kept until it is known whether it is the last one."""
        left = Signal(range(self.octet_cycles))  # cycles of an octet of the gap
        idle = ~self.tx_valid & ~self.tx.valid
        m.d.comb += [
            self.tx.strobe.eq(Mux(self.tx_valid, self.tx_ready, self.tx.valid | (left == 0))),
            self.tx_last.eq(~self.tx.valid),
        ]
        m.d.mac_tx += left.eq(Mux(idle & (left != 0), left - 1, self.octet_cycles - 1))
        with m.If(self.tx.strobe):
            m.d.mac_tx += [self.tx_valid.eq(self.tx.valid), self.tx_data.eq(self.tx.data)]
