"""RGMII: 4 bits at both edges of a clock (RGMII 2.0)."""

from dataclasses import dataclass

from amaranth.hdl import Cat, DomainRenamer, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.mac.assembler import OctetAssembler
from open_rnic.rtl.mac.ddr import DdrInput, DdrOutput, taps
from open_rnic.rtl.mac.layouts import LinkState, RxOctets, TxOctets
from open_rnic.rtl.mac.pins import clock_of, pin, speed_in
from open_rnic.rtl.mac.registers import Speed

__all__ = ["RgmiiAdapter", "RgmiiDelays"]

_STABLE = 16  # cycles for which a status must not change, until it is believed


@dataclass(frozen=True)
class RgmiiDelays:
    """Times in ps by which pins are delayed: multiples of 25 up to 3,175, and only on ECP5.

    Data change together with the clock (RGMII 2.0 §3.3); either side, or the traces, must delay the clock by 1.5 to
    2 ns, in each direction. Most PHYs can do so.

    Parameters
    ----------
    tx_clock : of TXC, against TXD and TX_CTL; 0 if the PHY delays it
    rx_clock : of RXC
    rx_data : of RXD and RX_CTL: for the time that RXC takes to the registers of these pins

    """

    tx_clock: int = 0
    rx_clock: int = 0
    rx_data: int = 0

    def __post_init__(self):
        for delay in (self.tx_clock, self.rx_clock, self.rx_data):
            taps(delay)


class RgmiiAdapter(wiring.Component):
    """Octets at the pins of a PHY with RGMII.

    The domain ``mac_rx`` has RXC, the clock of the PHY. The domain ``mac_tx`` must have 125 MHz at any speed; TXC is
    made from it. At 10 and 100 Mb/s, an octet takes two periods of 2.5 and 25 MHz.

    Latency at 1 Gb/s: receive 2 cycles, transmit 1, besides those of the pins (:class:`.DdrInput`,
    :class:`.DdrOutput`).

    Parameters
    ----------
    pins : the pins, as Amaranth's platforms return them if no buffers are requested: ``rx_clk``, ``rx_ctl``,
        ``rx_data``, ``tx_clk``, ``tx_ctl`` and ``tx_data``, where ``ctl`` may also be ``ctrl``
    delays : of the pins

    Members
    -------
    rx : Out, signature :class:`.RxOctets`; in the domain ``mac_rx``
    tx : In, signature :class:`.TxOctets`; in the domain ``mac_tx``
    mac_rx_clk : Out, 1 bit
        The clock of ``mac_rx``: see :func:`.add_clocks`.
    speed : In, :class:`.Speed`
        Must be that of the link, and must only change while no frames pass.
    status : Out, :class:`.LinkState`
        The state that the PHY reported last between frames (RGMII 2.0 §3.4.1), if it does so. It stays as it is while
        there is no RXC.

    """

    def __init__(self, pins, delays: RgmiiDelays = RgmiiDelays()):
        self.pins = pins
        self.delays = delays
        super().__init__({
            "rx": Out(RxOctets()),
            "tx": In(TxOctets()),
            "mac_rx_clk": Out(1),
            "speed": In(Speed),
            "status": Out(LinkState()),
        })

    def elaborate(self, platform):
        m = Module()
        self._receive(m, platform)
        self._transmit(m)
        return m

    def _receive(self, m, platform):
        """The level of RX_CTL at the rising edge is RX_DV; a change at the falling edge is RX_ER."""
        pins, delays = self.pins, self.delays
        rx_clk = clock_of(m, platform, "rx_clk", pin(pins, "rx_clk"), 125e6, delay=delays.rx_clock)
        m.d.comb += self.mac_rx_clk.eq(rx_clk)
        m.submodules.rx_data = rx_data = DdrInput(pin(pins, "rx_data"), "mac_rx", delay=delays.rx_data)
        m.submodules.rx_ctl = rx_ctl = DdrInput(pin(pins, "rx_ctl", "rx_ctrl"), "mac_rx", delay=delays.rx_data)
        m.submodules.nibbles = nibbles = DomainRenamer("mac_rx")(OctetAssembler(4))
        octet = Signal(8)
        valid = Signal()
        error = Signal()
        m.d.mac_rx += [
            octet.eq(Cat(rx_data.rise, rx_data.fall)),
            valid.eq(rx_ctl.rise),
            error.eq(rx_ctl.rise ^ rx_ctl.fall),
        ]
        m.d.comb += [
            nibbles.strobe.eq(1),
            nibbles.valid.eq(valid),
            nibbles.error.eq(error),
            nibbles.data.eq(octet[:4]),
        ]
        with m.If(speed_in(m, "mac_rx", self.speed) == Speed.MBIT_1000):
            m.d.mac_rx += [
                self.rx.strobe.eq(1),
                self.rx.valid.eq(valid),
                self.rx.error.eq(error),
                self.rx.data.eq(octet),
            ]
        with m.Else():
            m.d.mac_rx += [
                self.rx.strobe.eq(nibbles.o.strobe),
                self.rx.valid.eq(nibbles.o.valid),
                self.rx.error.eq(nibbles.o.error),
                self.rx.data.eq(nibbles.o.data),
            ]
        self._report(m, ~valid & ~error, octet[:4])

    def _report(self, m, between_frames, nibble):
        """Show the nibble that the PHY sends between frames, once it has been stable."""
        reported = Signal(4)
        seen = Signal(4)
        before = Signal(4)
        unchanged = Signal(range(_STABLE))
        with m.If(between_frames):
            m.d.mac_rx += reported.eq(nibble)
        m.submodules.status = FFSynchronizer(reported, seen)
        m.d.sync += before.eq(seen)
        with m.If(seen != before):
            m.d.sync += unchanged.eq(0)
        with m.Elif(~unchanged.all()):
            m.d.sync += unchanged.eq(unchanged + 1)
        with m.Else():
            m.d.sync += self.status.as_value().eq(before)

    def _transmit(self, m):
        """Below 1 Gb/s, a nibble is sent at both edges for a period of TXC, which is 5 or 50 cycles."""
        pins = self.pins
        speed = speed_in(m, "mac_tx", self.speed)
        beside = self.delays.tx_clock != 0  # so that TXC comes later by the time that is asked for
        m.submodules.tx_data = tx_data = DdrOutput(pin(pins, "tx_data"), "mac_tx", beside=beside)
        m.submodules.tx_ctl = tx_ctl = DdrOutput(pin(pins, "tx_ctl", "tx_ctrl"), "mac_tx", beside=beside)
        m.submodules.tx_clk = tx_clk = DdrOutput(pin(pins, "tx_clk"), "mac_tx", delay=self.delays.tx_clock)
        phase = Signal(range(50))
        second = Signal()  # of the nibbles of an octet
        ends = Signal()  # the last cycle of a nibble
        will_end = Signal()
        gigabit = Signal()
        nibble = Signal(4)
        m.d.comb += [
            gigabit.eq(speed == Speed.MBIT_1000),
            will_end.eq(phase == Mux(speed == Speed.MBIT_100, 3, 48)),
            nibble.eq(self.tx.data.word_select(second, 4)),
        ]
        m.d.mac_tx += [ends.eq(will_end), self.tx.strobe.eq(gigabit | (will_end & second))]
        with m.If(ends | gigabit):
            m.d.mac_tx += [phase.eq(0), second.eq(~second & ~gigabit)]
        with m.Else():
            m.d.mac_tx += phase.eq(phase + 1)
        m.d.mac_tx += [
            tx_data.high.eq(Mux(gigabit, self.tx.data[:4], nibble)),
            tx_data.low.eq(Mux(gigabit, self.tx.data[4:], nibble)),
            tx_ctl.high.eq(self.tx.valid),
            tx_ctl.low.eq(self.tx.valid),
        ]
        with m.Switch(speed):
            with m.Case(Speed.MBIT_1000):
                m.d.mac_tx += [tx_clk.high.eq(1), tx_clk.low.eq(0)]
            with m.Case(Speed.MBIT_100):
                m.d.mac_tx += [tx_clk.high.eq(phase < 3), tx_clk.low.eq(phase < 2)]
            with m.Default():
                m.d.mac_tx += [tx_clk.high.eq(phase < 25), tx_clk.low.eq(phase < 25)]
