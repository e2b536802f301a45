"""RMII: 2 bits at 50 MHz (RMII 1.2)."""

from amaranth.hdl import DomainRenamer, Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.assembler import OctetAssembler
from open_rnic.rtl.mac.layouts import RxOctets, TxOctets
from open_rnic.rtl.mac.pins import pin, speed_in
from open_rnic.rtl.mac.registers import Speed

__all__ = ["RmiiAdapter"]

_SLOWER = 10  # times, at 10 Mb/s


class RmiiAdapter(wiring.Component):
    """Octets at the pins of a PHY with RMII, at 10 or 100 Mb/s.

    The domains ``mac_rx`` and ``mac_tx`` must both have the reference clock of 50 MHz.

    Latency: receive 3 times, and transmit 1 time, that 2 bits take.

    Parameters
    ----------
    pins : the pins, as Amaranth's platforms return them if no buffers are requested: ``rx_crs_dv`` (or ``rx_crs``),
        ``rx_er``, ``rx_data``, ``tx_en`` and ``tx_data``

    Members
    -------
    rx : Out, signature :class:`.RxOctets`; in the domain ``mac_rx``
    tx : In, signature :class:`.TxOctets`; in the domain ``mac_tx``
    speed : In, :class:`.Speed`
        Must be that of the link, and must only change while no frames pass.

    """

    def __init__(self, pins):
        self.pins = pins
        super().__init__({"rx": Out(RxOctets()), "tx": In(TxOctets()), "speed": In(Speed)})

    def elaborate(self, platform):
        m = Module()
        pins = self.pins

        # Receive. At the end of a frame, CRS_DV may be 0 during the first half of each nibble that the PHY still has
        # (RMII 1.2 §5.2): bits are valid if CRS_DV is 1 with them or with the next ones.
        m.submodules.dibits = dibits = DomainRenamer("mac_rx")(OctetAssembler(2))
        m.submodules.crs_dv = crs_dv = io.FFBuffer("i", pin(pins, "rx_crs_dv", "rx_crs"), i_domain="mac_rx")
        m.submodules.rx_er = rx_er = io.FFBuffer("i", pin(pins, "rx_er"), i_domain="mac_rx")
        m.submodules.rx_data = rx_data = io.FFBuffer("i", pin(pins, "rx_data"), i_domain="mac_rx")
        carrier = Signal()
        error = Signal()
        bits = Signal(2)
        m.d.comb += [
            dibits.strobe.eq(_pace(m, "mac_rx", speed_in(m, "mac_rx", self.speed))),
            dibits.valid.eq(carrier | crs_dv.i),
            dibits.error.eq(error),
            dibits.data.eq(bits),
        ]
        with m.If(dibits.strobe):
            m.d.mac_rx += [carrier.eq(crs_dv.i), error.eq(rx_er.i), bits.eq(rx_data.i)]
        wiring.connect(m, dibits.o, wiring.flipped(self.rx))

        # Transmit.
        pace = _pace(m, "mac_tx", speed_in(m, "mac_tx", self.speed))
        part = Signal(range(4))  # of an octet
        with m.If(pace):
            m.d.mac_tx += part.eq(part + 1)
        m.d.comb += self.tx.strobe.eq(pace & part.all())
        for name, source in (("tx_en", self.tx.valid), ("tx_data", self.tx.data.word_select(part, 2))):
            m.submodules[name] = buffer = io.FFBuffer("o", pin(pins, name), o_domain="mac_tx")
            m.d.comb += buffer.o.eq(source)
        return m


def _pace(m: Module, domain: str, speed) -> Signal:
    """Return a signal that is 1 in one cycle of the time that 2 bits take."""
    count = Signal(range(_SLOWER), name=f"count_{domain}")
    pace = Signal(name=f"pace_{domain}")
    m.d.comb += pace.eq((count == _SLOWER - 1) | (speed != Speed.MBIT_10))
    m.d[domain] += count.eq(count + 1)
    with m.If(pace):
        m.d[domain] += count.eq(0)
    return pace
