"""CRC-32C of packets of whole lanes, one beat per cycle, at any width.

The CRC is that of RFC 5044 §4.4: bits enter least significant first, all ones before, complemented after. In that
order a 32-bit word ``w`` takes the CRC register from ``s`` to ``M(s + w)``, where ``M`` is the matrix of 32 steps and
``+`` is XOR, so a beat of ``n`` lanes takes it to ``M^n s + M^n w0 + ... + M w(n-1)``.

Three methods make this fast and small:

* The register is kept in other coordinates, ``s = T z``, in which ``M`` is a companion matrix: a shift with feedback
  from the bit that is shifted out. The only loop, ``z' = T^-1 M^n T z + ...``, is therefore a shift by ``n``.
* The contribution of the data is computed outside the loop, in a pipelined tree of XORs over all lanes. All bits of the
  result share its first level: 3 neighbouring bits have only 7 different sums. At two lanes the first level sums groups
  of 4 bits; at most 16 terms remain, which take two levels of tables and no further registers.
* A short last beat is extended with lanes of zeros. Their effect is undone afterwards (to generate a CRC) or expected
  (to check one). The loop therefore has one matrix only, and undoing is a shift with feedback, too.

Starting with all ones is the same as complementing the first lane.
"""

from collections.abc import Sequence

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib import gf2
from open_rnic.rtl.lib.copies import AT_ONCE
from open_rnic.rtl.lib.lanes import check_lanes

__all__ = ["BASIS", "ONES", "POLYNOMIAL", "STEP", "WORD", "Crc32c", "residue", "times", "undone"]

POLYNOMIAL = 0x82F63B78  # 0x1EDC6F41 with its bits in the order in which they are sent
ONES = 0xFFFF_FFFF
SHARED = 3  # neighbouring bits whose sums all rows of a matrix share
SUMMED = 16  # terms of a sum between registers: two levels of 4-input tables


def _word_matrix() -> gf2.Matrix:
    """The effect of 32 zero bits on the CRC register."""
    step = tuple((bit >> 1) ^ (POLYNOMIAL if bit & 1 else 0) for bit in gf2.identity(32))
    return gf2.power(step, 32)


def _basis() -> gf2.Matrix:
    columns = [1]
    while len(columns) < 32:
        columns.append(gf2.apply(WORD, columns[-1]))
    return tuple(columns)


WORD = _word_matrix()  # M
BASIS = _basis()  # T
TO_Z = gf2.inverse(BASIS)
STEP = gf2.multiply(TO_Z, gf2.multiply(WORD, BASIS))  # the effect of a lane of zeros on ``z``: the companion matrix


def residue(missing: int) -> int:
    """``z`` after a packet that ends with its own CRC and with ``missing`` lanes of zeros."""
    return gf2.apply(TO_Z, gf2.apply(gf2.power(WORD, missing + 1), ONES))


def _parts(row: int, shared: int = SHARED) -> list[int]:
    """``row`` split into groups of ``shared`` neighbouring bits; groups of zeros are omitted."""
    group = (1 << shared) - 1
    return [part for at in range(0, 32, shared) if (part := row & group << at)]


def _sum(vector: Value, mask: int) -> Value:
    return Cat(bit for i, bit in enumerate(vector) if mask >> i & 1).xor()


def times(matrix: gf2.Matrix, vector: Value) -> Value:
    """``matrix`` times ``vector``, as logic."""
    return Cat(Cat(_sum(vector, part) for part in _parts(row)).xor() if row else Const(0, 1)
               for row in gf2.rows(matrix))


def undone(m: Module, z: Value, missing: Value, least: int = 1) -> Value:
    """``z`` before ``missing * least`` lanes of zeros, as logic: one level per bit of ``missing``."""
    for i, bit in enumerate(missing):
        # One signal per level: in a nested expression, every use would become logic of its own.
        before = z
        z = Signal(32, name=f"without_{least << i}")
        m.d.comb += z.eq(Mux(bit, times(gf2.power(STEP, -least << i), before), before))
    return z


def _later(m: Module, when: str, values: dict[str, Value], *, reset_less: bool = False) -> dict[str, Value]:
    """``values``, one cycle later."""
    later: dict[str, Value] = {}
    for name, value in values.items():
        later[name] = each = Signal.like(value, name=f"{name}_{when}", reset_less=reset_less)
        m.d.sync += each.eq(value)
    return later


class Crc32c(wiring.Component):
    """The CRC register over packets, in the coordinates ``z``.

    With the parameter ``markers``, a beat may contain a marker besides its lanes; such a beat takes a step of one more
    lane.

    Latency: :attr:`latency` cycles, 3 to 5, from a packet's last beat to ``z``. Throughput: one beat per cycle, without
    stalls.

    Members
    -------
    valid : In, 1 bit
        ``data`` is a beat.
    data : In, 32 * ``lanes`` bits, with ``markers`` 32 * (``lanes`` + 1) bits
        The beat. The additional lane is the first one; it is zero if no lane is a marker.
    used : In, range(``lanes`` + 1)
        On the last beat, the number of lanes that are valid, without a marker; 1 to ``lanes``.
    marked : In, 1 bit
        One of the lanes is a marker. Only with ``markers``.
    first, last : In, 1 bit
        The beat begins or ends a packet.
    z_valid : Out, 1 bit
        ``z`` and ``missing`` are those of a whole packet.
    z : Out, 32 bits
        The register after the packet and ``missing`` lanes of zeros.
    missing : Out, range(``lanes``)
        ``lanes - used``.
    """

    def __init__(self, lanes: int, *, markers: bool = False):
        check_lanes(lanes)
        self.lanes = lanes
        self.markers = markers
        self._levels, self._shared = (3, 4) if lanes + markers <= 2 else (4, SHARED)
        self.latency = self._levels + (lanes > AT_ONCE)
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

        missing = Signal.like(self.missing)
        absent = Signal(lanes)  # lanes that are not valid
        m.d.comb += [
            missing.eq(-self.used),  # modulo ``lanes``
            absent.eq(Cat(self.last & self.used.matches(*range(1, lane + 1)) for lane in range(lanes))),
        ]
        octets = {"data": self.data, "absent": absent}
        about = {"valid": self.valid, "first": self.first, "last": self.last,
                 "marked": self.marked if self.markers else Const(0), "missing": missing}  # fmt: skip
        if lanes > AT_ONCE:  # too much is chosen by ``absent`` in the cycle in which it is found out
            octets, about = _later(m, "arrived", octets, reset_less=True), _later(m, "arrived", about)

        # The contribution of the beat: a sum for each bit of z, with registers behind each level.
        terms = self._shared_sums(m, **octets)
        for level in range(2, self._levels):
            summed = SUMMED if level < self._levels - 1 else 32 * lanes
            terms = [self._registered_sums(m, f"sum_{level}_{bit}", summands, summed)
                     for bit, summands in enumerate(terms)]
        beat = Cat(terms)

        # The properties of the beat, delayed by the same number of cycles.
        for stage in range(1, self._levels):
            about = _later(m, str(stage), about)
        valid, first, last, marked, missing = about.values()

        # The register.
        def stepped(lanes):
            start = gf2.apply(TO_Z, gf2.apply(gf2.power(WORD, lanes), ONES))
            return Mux(first, start, times(gf2.power(STEP, lanes), self.z))

        m.d.sync += self.z_valid.eq(valid & last)
        with m.If(valid):
            m.d.sync += [
                self.z.eq((Mux(marked, stepped(lanes + 1), stepped(lanes)) if self.markers else stepped(lanes)) ^ beat),
                self.missing.eq(missing),
            ]
        return m

    def _shared_sums(self, m: Module, data: Value, absent: Value) -> list[list[Value]]:
        """The summands of each bit of ``z``, in registers; lanes that are ``absent`` are zero."""
        terms: list[list[Value]] = [[] for _ in range(32)]
        for lane in range(-self.markers, self.lanes):
            rows = gf2.rows(gf2.multiply(TO_Z, gf2.power(WORD, self.lanes - lane)))
            parts = sorted({part for row in rows for part in _parts(row, self._shared)})
            sums = Signal(len(parts), name=f"sums_{lane + self.markers}", reset_less=True)
            word = data.word_select(lane + self.markers, 32)
            with m.If(absent[lane] if lane > 0 else 0):
                m.d.sync += sums.eq(0)
            with m.Else():
                m.d.sync += sums.eq(Cat(_sum(word, part) for part in parts))
            for summands, row in zip(terms, rows, strict=True):
                summands += [sums[parts.index(part)] for part in _parts(row, self._shared)]
        return terms

    def _registered_sums(self, m: Module, name: str, terms: Sequence[Value], summed: int) -> list[Signal]:
        """The sum of ``terms``, with ``summed`` terms per register."""
        sums = []
        for at in range(0, len(terms), summed):
            sums.append(Signal(name=f"{name}_{at}", reset_less=True))
            m.d.sync += sums[-1].eq(Cat(terms[at:at + summed]).xor())
        return sums
