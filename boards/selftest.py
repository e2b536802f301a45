"""A top for any board with a clock and an LED: the data path, fed and checked by itself.

ULPDUs of pseudo-random lengths and octets go in, the MPA stream comes out and straight in again, and what receive
delivers is compared with what was sent. The LED blinks as long as all is well: it stops when something differs, or
when nothing comes.
"""

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In, Out

from rtl.datapath import MpaDatapath
from rtl.registers import BY_NAME, Verdict

__all__ = ["Pattern", "SelfTest", "SelfTestTop"]


def _word(register: str, **fields: int) -> tuple[int, int]:
    """A register's address on the bus, and its reset value with these fields changed."""
    description = BY_NAME[register]
    word = description.reset
    for name, value in fields.items():
        word = word & ~description[name].mask | description[name].put(value)
    return description.address >> 2, word


SETTINGS = (
    _word("CONFIG", rdmap=0, markers_tx=1, markers_rx=1),
    _word("CONTROL", tx_enable=1, rx_enable=1),
)


class Pattern(wiring.Component):
    """The beats of an endless sequence of packets of 0 to 2,046 octets, the same for every instance.

    Members
    -------
    step : go on to the next beat
    data, octets, last : the beat; octets that are not valid are zero
    length : octets of its packet
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "step": In(1),
            "data": Out(32 * lanes),
            "octets": Out(range(4 * lanes + 1)),
            "last": Out(1),
            "length": Out(11),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        # Galois shift registers of full length: x^32 + x^22 + x^2 + x + 1, and x^11 + x^2 + 1.
        noise, size = Signal(32, init=1), Signal(11, init=1)
        left = Signal(11)
        inside = Signal()
        now = Signal(11)
        m.d.comb += [
            now.eq(Mux(inside, left, size - 1)),
            self.length.eq(size - 1),  # the shift register is never zero
            self.last.eq(now <= width),
            self.octets.eq(Mux(self.last, now, width)),
            self.data.eq(Cat(
                Mux(n < now, (noise ^ Const(n // 4 * 0x9E3779B9, 32)).word_select(n % 4, 8), 0) for n in range(width)
            )),
        ]
        with m.If(self.step):
            m.d.sync += [
                noise.eq((noise >> 1) ^ Mux(noise[0], 0x80200003, 0)),
                inside.eq(~self.last),
                left.eq(now - width),
            ]
            with m.If(self.last):
                m.d.sync += size.eq((size >> 1) ^ Mux(size[0], 0x402, 0))
        return m


class SelfTest(wiring.Component):
    """The data path with its MPA stream looped back, and a check of all that it delivers.

    Members
    -------
    flip : spoil the octet that is on its way back, to see that this is noticed
    good : ULPDUs that came back as they were sent
    failed : something else came back; stays 1
    """

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({"flip": In(1), "good": Out(32), "failed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.path = path = MpaDatapath(self.lanes)
        m.submodules.sent = sent = Pattern(self.lanes)
        m.submodules.expected = expected = Pattern(self.lanes)

        # Set the registers, one after the other.
        index = Signal(range(len(SETTINGS) + 1))
        address, value = (Array(each) for each in zip(*SETTINGS, strict=True))
        m.d.comb += [
            path.bus.request.eq(index != len(SETTINGS)),
            path.bus.write.eq(1),
            path.bus.address.eq(address[index]),
            path.bus.write_data.eq(value[index]),
        ]
        with m.If(path.bus.ack):
            m.d.sync += index.eq(index + 1)

        give = path.tx_ulpdu
        m.d.comb += [
            give.valid.eq(1),
            *(give.payload[name].eq(getattr(sent, name)) for name in ("data", "octets", "last", "length")),
            sent.step.eq(give.ready),
            path.rx_mpa.payload.data.eq(path.tx_mpa.payload.data ^ self.flip),
            path.rx_mpa.payload.octets.eq(path.tx_mpa.payload.octets),
            path.rx_mpa.payload.last.eq(path.tx_mpa.payload.last),
            path.rx_mpa.valid.eq(path.tx_mpa.valid),
            path.tx_mpa.ready.eq(path.rx_mpa.ready),
        ]

        take = path.rx_ulpdu
        got = take.payload
        kept = Cat(
            Mux(~got.last | (n < got.octets), got.data.word_select(n, 8), 0) for n in range(4 * self.lanes)
        )
        # Compared a cycle later, which is soon enough.
        came, last = Signal(), Signal()
        differs = Signal()
        m.d.comb += [take.ready.eq(1), expected.step.eq(take.valid)]
        m.d.sync += [
            came.eq(take.valid),
            last.eq(got.last),
            differs.eq(
                (kept != expected.data) | (got.last != expected.last)
                | (got.last & ((got.octets != expected.octets) | (got.verdict != Verdict.GOOD)))
            ),
        ]
        with m.If(came & differs):
            m.d.sync += self.failed.eq(1)
        with m.Elif(came & last & ~self.failed):
            m.d.sync += self.good.eq(self.good + 1)
        return m


class SelfTestTop(wiring.Component):
    """:class:`SelfTest` on a board: LED 0 changes every 2^15 good ULPDUs."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({})

    def elaborate(self, platform):
        m = Module()
        m.submodules.test = test = SelfTest(self.lanes)
        m.submodules.led = led = io.Buffer("o", platform.request("led", 0, dir="-"))
        m.d.comb += led.o.eq(test.good[15])
        return m
