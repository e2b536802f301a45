"""The Internet checksum (RFC 1071), over 32-bit words.

The sum does not depend on the order of the octets in a word, as long as all words have the same order (RFC 1071 §2
(B)), so the words are added as they lie in their lanes. The checksum lies in its lane in the same way.
"""

from amaranth.hdl import Cat, Const, Value

__all__ = ["SUM_BITS", "add_word", "complement", "fold", "is_correct"]

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
