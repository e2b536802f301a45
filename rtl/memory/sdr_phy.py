"""The pins of an SDR SDRAM at twice the clock of its controller."""

from amaranth.hdl import Module, Signal
from amaranth.lib import io, wiring
from amaranth.lib.wiring import In

from open_rnic.rtl.memory.chips import Chip
from open_rnic.rtl.memory.ports import dfi_of

__all__ = ["SdrPhy"]


class SdrPhy(wiring.Component):
    """The pins of an SDRAM that has two clock cycles in each cycle of the controller.

    The first half of a cycle is ``dfi.p0``, the second ``dfi.p1``: pins with two registers change in each half of the
    cycle, so no other pin than the clock needs the faster clock. The SDRAM's clock rises in the middle of a half. Its
    words are sampled three halves after the half of their command, when CAS latency, access time and the delays of both
    chips' pins have passed: at the falling edge for ``p0``, and at the rising edge after it for ``p1``.

    Latency: a command or a word is at the pins 3 cycles after it was given; a word read is at ``dfi`` 6 cycles after
    its command (:data:`.litedram.READ_LATENCY`). DQM, CS and CKE are constant on the board.

    Parameters
    ----------
    chip : the SDRAM
    pins : of the platform's resource "sdram": ``a``, ``ba``, ``ras``, ``cas``, ``we``, ``dq``, ``clk``

    Members
    -------
    dfi : In, :class:`.Dfi`

    The clock domain ``sdram`` has twice the frequency of ``sync``, and rises with it.

    """

    def __init__(self, chip: Chip, pins):
        self.pins = pins
        super().__init__({"dfi": In(dfi_of(chip))})

    def elaborate(self, platform):
        m = Module()
        pins, p0, p1 = self.pins, self.dfi.p0, self.dfi.p1
        for name, port, first, second in (
            ("a", pins.a, p0.address, p1.address), ("ba", pins.ba, p0.bank, p1.bank),
            ("ras", pins.ras, ~p0.ras_n, ~p1.ras_n), ("cas", pins.cas, ~p0.cas_n, ~p1.cas_n),
            ("we", pins.we, ~p0.we_n, ~p1.we_n),
        ):  # fmt: skip
            m.submodules[name] = buffer = io.DDRBuffer("o", port, o_domain="sync")
            m.d.comb += [buffer.o[0].eq(first), buffer.o[1].eq(second)]

        m.submodules.dq = dq = io.DDRBuffer("io", pins.dq, i_domain="sync", o_domain="sync")
        at_fall = Signal(len(p0.rddata))
        m.d.sync += at_fall.eq(dq.i[1])
        m.d.comb += [
            dq.o[0].eq(p0.wrdata),
            dq.o[1].eq(p1.wrdata),
            dq.oe.eq(p0.wrdata_en | p1.wrdata_en),
            p0.rddata.eq(at_fall),
            p1.rddata.eq(dq.i[0]),
        ]
        m.submodules.clk = clk = io.DDRBuffer("o", pins.clk, o_domain="sdram")
        m.d.comb += clk.o[1].eq(1)  # it rises in the middle of a cycle of its domain
        return m
