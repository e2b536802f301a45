"""The Internet checksum (RFC 1071), over 32-bit words.

The sum does not depend on the order of the octets in a word, as long as all words have the same order (RFC 1071 §2
(B)), so the words are added as they lie in their lanes. The checksum lies in its lane in the same way.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

__all__ = ["FOLDED_BITS", "SUM_BITS", "Checksum", "add_word", "complement", "fold", "is_correct"]

SUM_BITS = 33  # of a sum: 32 bits, and a carry that is added with the next word
FOLDED_BITS = 17  # of a folded sum: 16 bits, and a carry


def add_word(total: Value, word: Value) -> Value:
    """Return the sum of ``total``, of SUM_BITS bits, and a 32-bit word. One carry chain computes it."""
    return (Cat(Const(1, 1), total[:32]) + Cat(total[32], word))[1 : 1 + SUM_BITS]


def fold(total: Value) -> Value:
    """Return a sum of SUM_BITS bits as one of FOLDED_BITS."""
    return (Cat(Const(1, 1), total[:16]) + Cat(total[32], total[16:32]))[1 : 1 + FOLDED_BITS]


def complement(folded: Value) -> Value:
    """Return the checksum: the complement of a folded sum."""
    return ~(folded[:16] + folded[16])[:16]


def is_correct(folded: Value) -> Value:
    """Return whether octets with this folded sum include a correct checksum: it is 0 modulo 0xFFFF.

    A sum of 0 is not correct: it would need octets that are all 0.
    """
    return (folded == 0xFFFF) | (folded == 0x1FFFE)


class Checksum(wiring.Component):
    """The checksum of the words of a packet.

    Members
    -------
    word, adds : In, 32 bits; In, 1 bit
        A word of the packet.
    clear : In, 1 bit
        Another packet begins with the next word.
    restart : In, 1 bit
        Another packet began with the previous word.
    folded : Out, FOLDED_BITS bits
        The folded sum of the words up to the one 3 cycles ago.
    checksum : Out, 16 bits
        Its complement.

    """

    def __init__(self):
        super().__init__({
            "word": In(32),
            "adds": In(1),
            "clear": In(1),
            "restart": In(1),
            "folded": Out(FOLDED_BITS),
            "checksum": Out(16),
        })

    def elaborate(self, platform):
        m = Module()
        summand = Signal(32)
        total = Signal(SUM_BITS)
        m.d.sync += [
            summand.eq(Mux(self.adds, self.word, 0)),
            total.eq(Mux(self.restart, summand, add_word(total, summand))),
            self.folded.eq(fold(total)),
        ]
        with m.If(self.clear):
            m.d.sync += total.eq(0)
        m.d.comb += self.checksum.eq(complement(self.folded))
        return m
