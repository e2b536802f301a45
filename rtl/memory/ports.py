"""The two sides of an SDRAM controller: LiteDRAM's native port, and DFI with the delays of the PHY behind it."""

from amaranth.hdl import Const, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.memory_port import word_bits
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.memory.chips import Chip

__all__ = ["Dfi", "NativeCommand", "NativePort", "ReadDelays", "Split", "dfi_of"]


class Split:
    """How a word of ``lanes`` lanes is a part of a wider word of ``bits`` bits.

    Called with the address of a word of a :class:`.MemoryPort`, it returns the wider word's, and the part's number.
    """

    def __init__(self, lanes: int, address_bits: int, bits: int):
        check_lanes(lanes)
        self.parts = bits // (32 * lanes)
        if self.parts * 32 * lanes != bits or self.parts & (self.parts - 1):
            raise ValueError(f"a word of {bits} bits must have 1, 2, 4 or more words of {lanes} lanes")
        self.lanes, self.address_bits, self.bits = lanes, address_bits, bits
        self.octets = 4 * lanes
        self.word_bits = word_bits(lanes)
        self.part_bits = max(1, (self.parts - 1).bit_length())

    def __call__(self, address: Value) -> tuple[Value, Value]:
        bits = (self.parts - 1).bit_length()
        return address[bits : bits + self.address_bits], address[:bits] if bits else Const(0, 1)


class NativeCommand(data.StructLayout):
    """An access to a word. ``write`` : 1 bit; ``address`` : number of the word."""

    def __init__(self, address_bits: int):
        super().__init__({"write": 1, "address": address_bits})


class NativePort(wiring.Signature):
    """LiteDRAM's native port, from the side of its user, with words of ``bits`` bits. Accesses are done in order.

    Members
    -------
    command : Out, stream of :class:`NativeCommand`
    write_data : Out, ``bits`` bits
        The word of the oldest write whose word has not been taken. It must be there from its command on.
    takes : In, 1 bit
        ``write_data`` is taken in this cycle.
    read_data : In, ``bits`` bits
        The word of the oldest read.
    gives : In, 1 bit
        ``read_data`` is there, in this cycle only.
    """

    def __init__(self, address_bits: int, bits: int):
        super().__init__({
            "command": Out(stream.Signature(NativeCommand(address_bits))),
            "write_data": Out(bits), "takes": In(1), "read_data": In(bits), "gives": In(1),
        })  # fmt: skip


class _Phase(wiring.Signature):
    def __init__(self, address_bits: int, bank_bits: int, bits: int):
        super().__init__({
            "address": Out(address_bits), "bank": Out(bank_bits),
            "cs_n": Out(1, init=1), "ras_n": Out(1, init=1), "cas_n": Out(1, init=1), "we_n": Out(1, init=1),
            "cke": Out(1), "odt": Out(1), "reset_n": Out(1),
            "wrdata": Out(bits), "wrdata_en": Out(1), "wrdata_mask": Out(bits // 8),
            "rddata_en": Out(1), "rddata": In(bits),
        })  # fmt: skip


class ReadDelays(wiring.Signature):
    """When a PHY takes the words that are read: one setting for each strobe, from the side of who chooses it.

    Members
    -------
    select : Out, a bit for each strobe
        The strobes that ``later`` and ``slip`` are for. Their clocks pause meanwhile.
    later : Out, 1 bit
        For one cycle: the next delay, or the first one behind the last.
    slip : Out, 1 bit
        For one cycle: the next place of the words among the bits that have come, or the first one behind the last.
    forget : Out, 1 bit
        For one cycle: resets ``seen``.
    seen : In, a bit for each strobe
        A burst has come in a window of the PHY.
    """

    def __init__(self, strobes: int):
        super().__init__({
            "select": Out(strobes), "later": Out(1), "slip": Out(1), "forget": Out(1), "seen": In(strobes),
        })  # fmt: skip


class Dfi(wiring.Signature):
    """The DDR PHY Interface (DFI 2.0), as far as LiteDRAM uses it, from the side of the controller.

    Members
    -------
    p0, p1
        The two clock cycles of the SDRAM in a cycle of the controller: a command, and halves of a word to write and to
        read. A word follows its command by the latency of the PHY; in SDR SDRAM it is written in the cycle of the
        command. Only DDR3 SDRAM has ``odt`` and ``reset_n``.
    delays : Out, :class:`ReadDelays`
        If there are strobes.
    """

    def __init__(self, address_bits: int, bank_bits: int, bits: int, strobes: int):
        phase = Out(_Phase(address_bits, bank_bits, bits))
        super().__init__({"p0": phase, "p1": phase, **({"delays": Out(ReadDelays(strobes))} if strobes else {})})


def dfi_of(chip: Chip) -> Dfi:
    """Return the DFI of these chips."""
    return Dfi(chip.rows.bit_length() - 1, chip.banks.bit_length() - 1, chip.word // 2, chip.strobes)
