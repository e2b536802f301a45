"""Octets that nobody writes stay as they are, though SDRAM is written in whole words (rtl/memory)."""

from amaranth.asserts import AnySeq
from amaranth.hdl import Signal
from amaranth.lib import data

from open_rnic.cocotb_tests.proofs.harness import Mutant, proves
from open_rnic.cocotb_tests.proofs.rules import fifo_level, fifo_states
from open_rnic.rtl.memory.native_memory import NativeMemory
from open_rnic.rtl.memory.ports import Split
from open_rnic.rtl.memory.wide_writes import WideWrites

_ADDRESS_BITS, _BITS, _DEPTH = 4, 64, 4


def _memory(lanes):
    return NativeMemory(Split(lanes, _ADDRESS_BITS, _BITS), depth=_DEPTH)


@proves(
    "an octet that is not written has its value in each word that is written to its place",
    _memory,
    Mutant("a word is written without the octets that it lacks", NativeMemory, "head.mask.all() | has_rest",
           "head.mask.any() | has_rest"),
    Mutant("octets that were not given are those of the queue", NativeMemory, "rest.word_select(n, 8))\n",
           "head.data.word_select(n, 8))\n"),
    Mutant("the rest of the word before is used", NativeMemory, "has_rest.eq(0)", "has_rest.eq(has_rest)"),
    Mutant("a word has the mask of the word before, too", WideWrites, "Mux(joins, mask, 0) | beat.mask",
           "mask | beat.mask"),
    Mutant("a word of another address joins", WideWrites, "follows.eq(held.address == address)", "follows.eq(1)"),
    name="untouched",
    of="NativeMemory",
    lanes=(1, 2),
    depth=3,
    reach=16,
)  # fmt: skip
def _(m, memory):
    write, beat, native = memory.port.write, memory.port.write.payload, memory.writes
    place, octet, value = Signal(_ADDRESS_BITS), Signal(range(_BITS // 8)), Signal(8)
    m.fixed(place, octet, value)
    split = memory.split
    address, part = split(beat.address)
    written = (beat.mask << (part * split.octets)).bit_select(octet, 1)
    m.given(~(write.valid & (address == place) & written))

    # The memory gives the word of a read once, after its command.
    command = native.command
    moves = command.valid & command.ready
    asked, of = Signal(), Signal(_ADDRESS_BITS)
    m.given(~native.gives | asked, ~native.gives | (of != place) | (native.read_data.word_select(octet, 8) == value))
    with m.If(moves & ~command.payload.write):
        m.d.sync += [asked.eq(1), of.eq(command.payload.address)]
    with m.Elif(native.gives):
        m.d.sync += asked.eq(0)

    # It takes the words of writes in the order of their commands. Any of those to the place is watched.
    level, before, watched = Signal(range(17)), Signal(range(17)), Signal()
    enters = moves & command.payload.write
    m.given(~native.takes | (level != 0))
    m.d.sync += level.eq(level + enters - native.takes)
    with m.If(watched):
        m.d.sync += [before.eq(before - native.takes), watched.eq(~(native.takes & (before == 0)))]
    with m.Elif(enters & (command.payload.address == place) & AnySeq(1)):
        m.d.sync += [watched.eq(1), before.eq(level - native.takes)]
    m.always(~(watched & (before == 0)) | (native.write_data.word_select(octet, 8) == value))

    queue, taken = memory["queue"], memory["taken"]
    head, kind = queue.o.payload, queue.o.payload.shape()

    def untouched(word):
        return (word.address != place) | ~word.mask.bit_select(octet, 1)

    held = memory["gatherer"].o.payload
    m.states(
        fifo_states(queue), fifo_states(taken), level == fifo_level(taken), asked == memory["asked"],
        ~watched | (before < level),
        ~watched | (taken.stored(m, "memory", taken["head"] + before).word_select(octet, 8) == value),
        ~memory["gatherer"]["has"] | untouched(held),
        *((n >= fifo_level(queue)) | untouched(data.View(kind, queue.stored(m, "memory", queue["head"] + n)))
          for n in range(_DEPTH)),
        ~asked | (queue.o.valid & (of == head.address) & ~head.mask.all() & ~memory["has_rest"]),
        ~memory["has_rest"] | queue.o.valid,
        ~memory["has_rest"] | (head.address != place) | (memory["rest"].word_select(octet, 8) == value),
    )  # fmt: skip
