"""Registers in gateware, generated from their description, such as that in :mod:`.registers`."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.ports import ports_of
from open_rnic.rtl.registers import MAP, Access, Register
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["RegisterBank"]


def _members(register: Register, *, outside: bool) -> wiring.Signature:
    members = {"written": Out(1), "word": Out(32)} if outside else {}
    for field in register.fields:
        shape = field.enum or field.width
        match field.access:
            case Access.RO:
                members[field.name] = In(shape, init=field.reset)
            case Access.RW:
                members[field.name] = In(shape) if outside else Out(shape, init=field.reset)
            case Access.PULSE:
                members[field.name] = Out(1)
            case Access.CLEAR:
                members[field.name] = In(field.width)
                members[f"clear_{field.name}"] = Out(field.width)
            case Access.PUSH:
                members[field.name] = Out(field.width)
                members["push"] = Out(1)
    if register.pops:
        members["pop"] = Out(1)
    return wiring.Signature(members)


class RegisterBank(wiring.Component):
    """The registers of ``registers``, by default those of :data:`.MAP`.

    For example, ``CONFIG.role`` is an output with the role that the host wrote; the host reads the input ``STATE.tx``.

    Latency: an access takes 4 cycles.

    Parameters
    ----------
    registers : their description
    outside : names of registers that logic outside keeps: fields that the host writes are inputs, and outputs
        ``written`` (for 1 cycle) and ``word`` report what it writes

    Members
    -------
    bus : In, :class:`.RegisterBus`
        Accesses of the host.
    reset : In, 1 bit
        Set all registers that the host writes to their reset values. An access under way continues.
    NAME : Out, a signature for each register
        One member per field: an input for a read-only field or a flag that the host clears, an output for a field that
        the host writes. Such a flag has an output ``clear_flag`` beside it, a register that pops a FIFO has an output
        ``pop``, and one with a PUSH field an output ``push``. These, and outputs of PULSE fields, are set for 1 cycle.

    """

    def __init__(self, registers: Sequence[Register] = MAP, *, outside: Sequence[str] = ()):
        self.registers = registers
        self.outside = outside
        super().__init__({
            "bus": In(RegisterBus()),
            "reset": In(1),
            **{register.name: Out(_members(register, outside=register.name in outside)) for register in registers},
        })
        self.ports = ports_of(self)

    def show(self, register: str, **values) -> list:
        """Return the statements that give fields of a register these values."""
        return [self.ports[register, field].eq(value) for field, value in values.items()]

    def words(self, registers: Iterable[str], field: str = "value") -> Value:
        """Return this field of some registers, from the first one on."""
        return Cat(self.ports[register, field] for register in registers)

    def elaborate(self, platform):
        from amaranth.vendor import LatticeICE40Platform

        m = Module()
        bus, ports = self.bus, self.ports

        # Cycle 1 decodes the address. Cycle 2 writes, or masks the values of all registers but the addressed one.
        # Cycle 3 combines the masked values. Cycle 4 acknowledges.
        decoded = Signal(len(self.registers))
        second = Signal()
        third = Signal()
        starts = bus.request & ~second & ~third & ~bus.ack
        m.d.sync += [
            second.eq(starts),
            third.eq(second),
            bus.ack.eq(third),
            decoded.eq(Cat(bus.address == register.address >> 2 for register in self.registers)),
        ]

        # Masking a value needs no look-up table if synthesis uses the reset of a flip-flop for it. On an iCE40, each
        # flip-flop has a look-up table at its input, which can combine two values.
        together = 2 if isinstance(platform, LatticeICE40Platform) else 1
        values, words = [], []
        for selected, register in zip(decoded, self.registers, strict=True):
            name = register.name
            word = Signal(32, name=name)
            reads = second & selected & ~bus.write
            writes = second & selected & bus.write
            if name in self.outside:
                m.d.comb += [ports[name, "written"].eq(writes), ports[name, "word"].eq(bus.write_data)]
            if register.pops:
                m.d.comb += ports[name, "pop"].eq(reads)
            for field in register.fields:
                port = ports[name, field.name]
                place = slice(field.lsb, field.lsb + field.width)
                written = bus.write_data[place]
                match field.access:
                    case Access.PULSE:
                        m.d.comb += port.eq(writes & written)
                        continue
                    case Access.PUSH:
                        m.d.comb += [port.eq(written), ports[name, "push"].eq(writes)]
                        continue
                    case Access.CLEAR:
                        m.d.comb += ports[name, f"clear_{field.name}"].eq(Mux(writes, written, 0))
                    case Access.RW if name not in self.outside:
                        with m.If(self.reset):
                            m.d.sync += port.eq(field.reset)
                        with m.Elif(writes):
                            m.d.sync += port.eq(written)
                m.d.comb += word[place].eq(port)
            words.append(Mux(selected, word, 0))
            if len(words) == together or register is self.registers[-1]:
                value = Signal(32, name=f"{name}_chosen")
                m.d.sync += value.eq(reduce(or_, words))
                values.append(value)
                words = []
        m.d.sync += bus.read_data.eq(reduce(or_, values))
        return m
