"""MII: 4 bits at 2.5 or 25 MHz (IEEE 802.3 §22)."""

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.assembler import OctetAssembler
from open_rnic.rtl.mac.layouts import RxOctets, TxOctets
from open_rnic.rtl.mac.pins import clock_of, pin

__all__ = ["MiiAdapter"]


class MiiAdapter(wiring.Component):
    """Octets at the pins of a PHY with MII, at 10 or 100 Mb/s, which only makes a difference to the PHY's clocks.

    The domains ``mac_rx`` and ``mac_tx`` have the PHY's clocks.

    Latency: receive 2 cycles, transmit 1.

    Parameters
    ----------
    pins : the pins, as Amaranth's platforms return them if no buffers are requested: ``rx_clk``, ``rx_dv``, ``rx_er``,
        ``rx_data``, ``tx_clk``, ``tx_en`` and ``tx_data``. The others do not matter in full duplex.

    Members
    -------
    rx : Out, signature :class:`.RxOctets`; in the domain ``mac_rx``
    tx : In, signature :class:`.TxOctets`; in the domain ``mac_tx``
    mac_rx_clk, mac_tx_clk : Out, 1 bit
        The clocks of these domains: see :func:`.add_clocks`.

    """

    def __init__(self, pins):
        self.pins = pins
        super().__init__({"rx": Out(RxOctets()), "tx": In(TxOctets()), "mac_rx_clk": Out(1), "mac_tx_clk": Out(1)})

    def elaborate(self, platform):
        m = Module()
        pins = self.pins
        m.d.comb += [
            self.mac_rx_clk.eq(clock_of(m, platform, "rx_clk", pin(pins, "rx_clk"), 25e6)),
            self.mac_tx_clk.eq(clock_of(m, platform, "tx_clk", pin(pins, "tx_clk"), 25e6)),
        ]

        m.submodules.nibbles = nibbles = DomainRenamer("mac_rx")(OctetAssembler(4))
        m.d.comb += nibbles.strobe.eq(1)
        for name, target in (("rx_dv", nibbles.valid), ("rx_er", nibbles.error), ("rx_data", nibbles.data)):
            m.submodules[name] = buffer = io.FFBuffer("i", pin(pins, name), i_domain="mac_rx")
            m.d.comb += target.eq(buffer.i)
        wiring.connect(m, nibbles.o, wiring.flipped(self.rx))

        second = Signal()  # of the nibbles of an octet
        m.d.mac_tx += second.eq(~second)
        m.d.comb += self.tx.strobe.eq(second)
        for name, source in (("tx_en", self.tx.valid), ("tx_data", self.tx.data.word_select(second, 4))):
            m.submodules[name] = buffer = io.FFBuffer("o", pin(pins, name), o_domain="mac_tx")
            m.d.comb += buffer.o.eq(source)
        return m
