"""The registers of the signal generator, as plain data.

They follow those of the sample writer (:data:`open_rnic.rtl.rdma.sample_registers.SAMPLE_MAP`) in the same page. This
module imports no hardware library.
"""

from enum import IntEnum

from open_rnic.rtl.rdma.sample_registers import TAKEN
from open_rnic.rtl.registers import Access, Field, Register

__all__ = ["BY_NAME", "IDENTITY", "SIGNAL_MAP", "VERSION", "Pattern"]

IDENTITY = int.from_bytes(b"SIG1", "big")
VERSION = 0x0001_0000


class Pattern(IntEnum):
    """The content of a sample of the signal generator.

    COUNTER is the number of the sample, from 0 on. SINE is a signed amplitude of 16 bits, and the low bits of the
    number of the sample above it; of a sample with fewer than 16 bits, it is the high bits of the amplitude.
    """

    COUNTER = 0
    SINE = 1


def _value(doc: str, access: Access = Access.RO, reset: int = 0) -> tuple[Field, ...]:
    return (Field("value", 0, 32, doc, access, reset),)


SIGNAL_MAP: tuple[Register, ...] = (
    Register("IDENTITY", 0x380, "Identifies the signal generator; 0 in a device without it.",
             _value('"SIG1" in ASCII', reset=IDENTITY)),
    Register("VERSION", 0x384, "The version of these registers.", (
        Field("minor", 0, 16, "increased by compatible changes", reset=VERSION & 0xFFFF),
        Field("major", 16, 16, "increased by incompatible changes", reset=VERSION >> 16),
    )),
    Register("CONTROL", 0x388, "Controls the signal generator. Other registers are written while `enable` is 0.", (
        Field("enable", 0, 1, "samples are given, the first with number 0", Access.RW),
        Field("pattern", 4, 2, "the content of a sample", Access.RW, enum=Pattern),
    )),
    Register("PERIOD", 0x38C, "The clock cycles from one sample to the next.", _value("cycles, at least 1", Access.RW,
             1)),
    Register("STEP", 0x390, "How far the phase of a SINE moves with each sample.",
             _value("a fraction of a turn, in units of 2^-32", Access.RW)),
    Register("SAMPLES", 0x394, "The samples to give.", _value("samples; 0: any number", Access.RW)),
    Register("STATUS", 0x398, "The state of the signal generator.", (
        Field("runs", 0, 1, "samples are still to be given"),
        Field("stalls", 1, 1, "a sample waits to be taken"),
        Field("taken", TAKEN, 1, "another connection has the sample writer, and its generator"),
    )),
    Register("GIVEN_LO", 0x39C, "The samples that have been given since `enable` was set last; one of them may wait.",
             _value("bits 31:0 of the number")),
    Register("GIVEN_HI", 0x3A0, "The samples that have been given since `enable` was set last; one of them may wait.",
             _value("bits 63:32 of the number")),
)  # fmt: skip

BY_NAME: dict[str, Register] = {f"SIGNAL_{each.name}": each for each in SIGNAL_MAP}  # as a host names them
