"""A stream of samples of a known signal."""

import math

from amaranth.hdl import Cat, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.rdma.signal_registers import SIGNAL_MAP, Pattern
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["AMPLITUDE", "SINE", "SignalGenerator"]

AMPLITUDE = 32767
_PLACES = 1024  # phases in a turn: 2 KiB of block RAM
SINE = [round(AMPLITUDE * math.sin(2 * math.pi * place / _PLACES)) for place in range(_PLACES)]


class SignalGenerator(wiring.Component):
    """Gives samples of a counter or of a sine, a sample in each PERIOD of clock cycles at most.

    :data:`.SIGNAL_MAP` has the registers, and :class:`.Pattern` the content of a sample. A sample that is not taken
    waits, and delays those behind it.

    Latency: a sample 3 cycles after ``enable``. Throughput: a sample in each cycle.

    Parameters
    ----------
    sample : octets of a sample

    Members
    -------
    o : Out, stream of 8 * ``sample`` bits
    bus : In, :class:`.RegisterBus`
        Access to the registers. All accesses are acknowledged; other addresses read as 0.
    reset : In, 1 bit
        Withdraws the sample that waits, and sets all registers to their reset values.

    """

    def __init__(self, sample: int = 4):
        if sample < 1:
            raise ValueError(f"a sample must have at least 1 octet, not {sample!r}")
        self.sample = sample
        super().__init__({"o": Out(stream.Signature(8 * sample)), "bus": In(RegisterBus()), "reset": In(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = RegisterBank(SIGNAL_MAP)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        m.d.comb += registers.reset.eq(self.reset)
        m.submodules.generator = ResetInserter(self.reset)(self._generator(registers))
        return m

    def _generator(self, registers):
        m = Module()
        m.submodules.sine = sine = Memory(shape=16, depth=_PLACES, init=[value & 0xFFFF for value in SINE])
        amplitude = sine.read_port()
        control, status = registers.CONTROL, registers.STATUS
        next_number = Signal(64)
        phase = Signal(32)
        cycles = Signal(32, name="cycles_left")
        number = Signal(64, name="number_of_sample")
        is_sine = Signal()
        enabled = Signal()  # in the cycle before
        all_given = Signal()
        runs = Signal()
        gives = Signal()
        steps = Signal()
        m.d.comb += [
            all_given.eq((registers.SAMPLES.value != 0) & (next_number[:32] == registers.SAMPLES.value)),
            runs.eq(control.enable & enabled & ~all_given),
            gives.eq(self.o.ready | ~self.o.valid),
            steps.eq(runs & gives & (cycles == 0)),
            amplitude.addr.eq(phase[-(_PLACES.bit_length() - 1) :]),
            amplitude.en.eq(steps),
            status.runs.eq(runs),
            status.stalls.eq(self.o.valid & ~self.o.ready),
            Cat(registers.GIVEN_LO.value, registers.GIVEN_HI.value).eq(next_number),
        ]
        with m.If(gives):
            m.d.sync += self.o.valid.eq(steps)
        with m.If(steps):
            m.d.sync += [
                number.eq(next_number),
                is_sine.eq(control.pattern == Pattern.SINE),
                next_number.eq(next_number + 1),
                phase.eq(phase + registers.STEP.value),
                cycles.eq(registers.PERIOD.value - (registers.PERIOD.value != 0)),
            ]
        with m.Elif(cycles != 0):
            m.d.sync += cycles.eq(cycles - 1)
        m.d.sync += enabled.eq(control.enable)
        with m.If(control.enable & ~enabled):
            m.d.sync += [next_number.eq(0), phase.eq(0), cycles.eq(0)]
        width = 8 * self.sample
        sine_sample = amplitude.data[-width:] if width < 16 else Cat(amplitude.data, number)
        m.d.comb += self.o.payload.eq(Mux(is_sine, sine_sample, number))
        return m
