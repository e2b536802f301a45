"""CRC-32C of packets of whole lanes, one beat a cycle, at any width.

The CRC is that of RFC 5044 §4.4: bits enter least significant first, all ones before, complemented after. In that
order a 32-bit word ``w`` takes the CRC register from ``s`` to ``M(s + w)``, where ``M`` is the matrix of 32 steps and
``+`` is XOR, so a beat of ``n`` lanes takes it to ``M^n s + M^n w0 + ... + M w(n-1)``.

Three things make that fast:

* The register is kept in other coordinates, ``s = T z``, in which ``M^n`` is a companion matrix. Then the only loop,
  ``z' = T^-1 M^n T z + ...``, is a shift with feedback: one XOR of three bits.
* All that the data add is outside the loop and pipelined: each lane by its own matrix, then the sum of the lanes.
* A short last beat is filled up with lanes of zeros, and what they did is undone afterwards (to make a CRC)
  or expected (to check one). So the loop has one matrix only.

All ones at the start is the same as complementing the first lane.
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from . import gf2
from .stream import check_lanes

__all__ = ["POLYNOMIAL", "Crc32c", "crc_matrices", "residue", "undo_stages"]

POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits in the order in which they are sent


def _word_matrix() -> gf2.Matrix:
    """What 32 zero bits do to the CRC register."""
    step = tuple((bit >> 1) ^ (POLYNOMIAL if bit & 1 else 0) for bit in gf2.identity(32))
    return gf2.power(step, 32)


WORD = _word_matrix()


def crc_matrices(lanes: int) -> tuple[gf2.Matrix, gf2.Matrix]:
    """The change of coordinates ``T`` for ``lanes`` lanes, and the companion matrix ``T^-1 M^lanes T``."""
    beat = gf2.power(WORD, lanes)
    columns = [1]
    while len(columns) < 32:
        columns.append(gf2.apply(beat, columns[-1]))
    basis = tuple(columns)
    return basis, gf2.multiply(gf2.inverse(basis), gf2.multiply(beat, basis))


def residue(lanes: int, missing: int) -> int:
    """``z`` after a packet that ends with its own CRC and with ``missing`` lanes of zeros."""
    basis, _ = crc_matrices(lanes)
    return gf2.apply(gf2.inverse(basis), gf2.apply(gf2.power(WORD, missing + 1), 0xFFFF_FFFF))


def _xor(bits: Value, mask: int) -> Value:
    return Cat(bit for i, bit in enumerate(bits) if mask >> i & 1).xor()


def times(matrix: gf2.Matrix, vector: Value) -> Value:
    """``matrix`` times ``vector``, as logic."""
    return Cat(_xor(vector, row) if row else Const(0, 1) for row in gf2.rows(matrix))


class Crc32c(wiring.Component):
    """The CRC register over packets, in the coordinates ``z``.

    Latency :attr:`LATENCY` cycles from a packet's last beat to ``z``; one beat a cycle; it never waits.

    With ``markers`` a beat may have a marker besides its lanes, wherever it lies. The register then takes a step of one
    lane more, which is no companion matrix, so its loop is slower.

    Members
    -------
    valid : a beat is given
    data : the beat; with ``markers`` it has a lane more, and that is the first one that is zero if there is no marker
    used : how many of its lanes count, on the last beat, a marker not included; 1 to ``lanes``
    marked : with ``markers``: one of the lanes of the beat is a marker
    first, last : the beat begins, ends a packet
    z_valid : ``z`` and ``missing`` are those of a whole packet
    z : the register, after the packet and ``missing`` lanes of zeros
    missing : ``lanes - used``
    """

    LATENCY = 4

    def __init__(self, lanes: int, *, markers: bool = False):
        check_lanes(lanes)
        self.lanes = lanes
        self.markers = markers
        super().__init__({
            "valid": In(1),
            "data": In(32 * (lanes + markers)),
            "used": In(range(lanes + 1)),
            **({"marked": In(1)} if markers else {}),
            "first": In(1),
            "last": In(1),
            "z_valid": Out(1),
            "z": Out(32),
            "missing": Out(range(lanes)),
        })

    def elaborate(self, platform):
        m = Module()
        lanes = self.lanes
        basis, companion = crc_matrices(lanes)
        to_z = gf2.inverse(basis)

        # 1: lanes that do not count are zero, and the first lane of a packet is complemented.
        places = range(-1 if self.markers else 0, lanes)  # place -1 is in use if there is a marker
        marked = self.marked if self.markers else Const(0)
        words = {n: Signal(32, name=f"word_{n}".replace("-", "m")) for n in places}
        for n, word in words.items():
            given = self.data.word_select(n - places[0], 32)
            counts = ~self.last | (n < self.used) if n > 0 else Const(1)
            begins = self.first & {-1: marked, 0: ~marked}.get(n, 0)
            m.d.sync += word.eq((given ^ begins.replicate(32)) & counts.replicate(32))

        # 2: what each lane adds.
        parts = {n: Signal(32, name=f"part_{n}".replace("-", "m")) for n in places}
        for n, part in parts.items():
            m.d.sync += part.eq(times(gf2.multiply(to_z, gf2.power(WORD, lanes - n)), words[n]))

        # 3: what the beat adds.
        beat = Signal(32)
        m.d.sync += beat.eq(Cat(Cat(part[bit] for part in parts.values()).xor() for bit in range(32)))

        # 4: the register.
        late = [self.valid, self.first, self.last, self.used, marked]
        for stage in range(3):
            before, late = late, [Signal(len(s), name=f"late_{stage}_{n}") for n, s in enumerate(late)]
            m.d.sync += Cat(late).eq(Cat(before))
        valid, first, last, used, marked = late
        stepped = times(companion, self.z)
        if self.markers:
            longer = gf2.multiply(to_z, gf2.multiply(gf2.power(WORD, lanes + 1), basis))
            stepped = Mux(marked, times(longer, self.z), stepped)
        m.d.sync += self.z_valid.eq(valid & last)
        with m.If(valid):
            m.d.sync += [
                self.z.eq(Mux(first, beat, stepped ^ beat)),
                self.missing.eq(lanes - used),
            ]
        return m


def undo_stages(lanes: int) -> list[gf2.Matrix]:
    """Matrices that undo 1, 2, 4, ... lanes of zeros, as many as ``lanes`` needs."""
    return [gf2.power(WORD, -(1 << i)) for i in range((lanes - 1).bit_length())]
