"""The CRC is that of RFC 5044 §4.4, for any division of a packet into beats (rtl/lib/crc32c.py).

Solvers cannot cope with long sums modulo 2. But the CRC is linear, and so is the logic, as :func:`_is_linear` checks.
The logic is therefore correct for all data if it is correct for all data with at most one bit set, which are checked.
"""

from amaranth.asserts import AnyConst
from amaranth.hdl import Cat, Const, Fragment, Mux, Signal, _ir, _nir

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.rtl.lib.crc32c import BASIS, Crc32c, times, undone

_REFLECTED = int(f"{0x1EDC6F41:032b}"[::-1], 2)  # the polynomial of CRC-32C, least significant bit first


def _bit_by_bit(m, register, word):
    for n in range(32):
        before, register = register, Signal(32)
        m.d.comb += register.eq((before >> 1) ^ Mux(before[0] ^ word[n], _REFLECTED, 0))
    return register


def _is_linear(crc: Crc32c) -> bool:
    """Whether ``crc.data`` passes only XORs, registers, and choices that do not depend on data."""
    ports = [(name, getattr(crc, name), None) for name in crc.signature.members]
    netlist = _ir.build_netlist(Fragment.get(crc, None), ports)
    start, width = netlist.top.ports_i["data"]
    depend = {_nir.Net.from_cell(0, start + bit) for bit in range(width)}  # nets that depend on data
    grows = True
    while grows:
        known = len(depend)
        for at, cell in enumerate(netlist.cells):
            if isinstance(cell, _nir.Top) or not depend.intersection(cell.input_nets()):
                continue
            match cell:
                case _nir.Operator(operator="^" | "r^" | "~"):
                    chooses = set()
                case _nir.Operator(operator="m"):
                    chooses = set(cell.inputs[0])
                case _nir.AssignmentList():
                    chooses = {each.cond for each in cell.assignments}
                case _nir.FlipFlop():
                    chooses = {cell.clk, cell.arst}
                case _:
                    return False
            if depend & chooses:
                return False
            depend |= cell.output_nets(at)
        grows = len(depend) > known
    return True


def _register(m, crc):
    lanes = crc.lanes + crc.markers
    m.always(Const(_is_linear(Crc32c(crc.lanes, markers=crc.markers))))
    # A packet of 1 to 3 beats, with at most one bit set; and one marker or one pause: both together take too long.
    cycle, beat = Signal(4), Signal(range(4))
    ends_in, pauses_in, marked_in, one_in, bit = (AnyConst(range(choices)) for choices in (3, 4, 4, 4, 32 * lanes))
    marked = beat == marked_in
    m.d.sync += [cycle.eq(cycle + 1), beat.eq(beat + crc.valid)]
    m.d.comb += [
        crc.valid.eq(((cycle != pauses_in) | crc.markers) & (beat <= ends_in)),
        crc.first.eq(beat == 0),
        crc.last.eq(beat == ends_in),
        crc.data.eq(Cat((beat == one_in) & (bit == n) for n in range(32 * lanes))),
    ]
    m.given((crc.used > 0) & (crc.used <= crc.lanes), ends_in < 3)
    if crc.markers:
        m.d.comb += crc.marked.eq(marked)
        m.given(marked | (crc.data[:32] == 0))

    register, after = Signal(32), Signal(32)  # the CRC of the packet's valid lanes so far
    m.d.comb += after.eq(Mux(crc.first, 0xFFFF_FFFF, register))
    for lane in range(-crc.markers, crc.lanes):
        counts = marked if lane < 0 else ~crc.last | (crc.used > lane)
        before, after = after, Signal(32)
        m.d.comb += after.eq(Mux(counts, _bit_by_bit(m, before, crc.data.word_select(lane + crc.markers, 32)), before))
    with m.If(crc.valid):
        m.d.sync += register.eq(after)

    expected, ends = register, m.last(crc.valid & crc.last)
    for _ in range(crc.latency - 1):
        expected, ends = m.last(expected), m.last(ends)
    m.always(crc.z_valid == ends)
    z = Signal(32)
    m.d.comb += z.eq(undone(m, crc.z, crc.missing))
    with m.If(ends):
        m.always(times(BASIS, z) == expected)


_UNCOUNTED = Mutant(
    "unused lanes are included",
    Crc32c,
    "with m.If(absent[lane] if lane > 0 else 0):",
    "with m.If(0):",
)
_NOT_ANEW = Mutant("a packet does not start with all ones", Crc32c, "Mux(first, start,", "Mux(first, 0,")
_NOT_LINEAR = Mutant(
    "bits are combined by OR instead of XOR", times, "for part in _parts(row)).xor()", "for part in _parts(row)).any()"
)
_UNMARKED = Mutant(
    "a marker does not take a step", Crc32c, "Mux(marked, stepped(lanes + 1), stepped(lanes))", "stepped(lanes)"
)

_NO_PAUSE = Mutant("a pause counts as a beat", Crc32c, "with m.If(valid):", "with m.If(1):")

for _markers, _mutants in ((False, (_UNCOUNTED, _NOT_ANEW, _NOT_LINEAR, _NO_PAUSE)), (True, (_UNMARKED,))):
    proves(
        "the CRC is that of a bit-serial shift register, for any division of a packet into beats",
        lambda lanes, markers=_markers: Crc32c(lanes, markers=markers),
        *_mutants,
        name="markers" if _markers else "plain",
        of="Crc32c, markers" if _markers else "Crc32c",
        lanes=(1,) if _markers else (2, 1),
        depth=7,
        bounded=True,
    )(_register)
