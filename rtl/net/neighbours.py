"""The ARP cache (RFC 826, RFC 1122 §2.3.2): it maps the addresses of neighbours to their MACs."""

from collections.abc import Sequence
from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["EXPIRED", "FRESH", "INTERVAL", "UNIT", "WORDS", "Neighbours", "Task", "Word"]

UNIT = 1024  # ticks in a unit of age
FRESH = 64  # units of age from which a MAC is to be confirmed: 66 s (RFC 1122 §2.3.2.1: on the order of a minute)
EXPIRED = 120  # units of age from which a MAC is not used: 123 s
FREE = 127  # an entry without an address
INTERVAL = 2  # units between requests for an address: 1.02 to 2.05 s (RFC 1122 §2.3.2.1: at most one a second)
WORDS = 16  # in an entry


class Word(IntEnum):
    """The words of an entry. Constants follow."""

    ADDRESS = 0
    MAC_0 = 1  # the first 2 octets of the MAC, in bits 31:16
    MAC_2 = 2  # the other 4
    CONSTANTS = 3


class Task(enum.Enum, shape=2):
    """What is to be done for an address."""

    NONE = 0
    LOOK_UP = 1
    UPDATE = 2  # an entry that exists
    LEARN = 3  # also an entry that does not


_AGE = data.StructLayout({"age": 7, "wait": 2})  # ``wait``: units until the next request is allowed


class Neighbours(wiring.Component):
    """A cache that is searched sequentially.

    An entry is created if a neighbour asks for this host's address, and if a MAC is looked up; then it has no MAC until
    the neighbour answers. A new entry replaces the one that was confirmed longest ago. A spare entry holds the last
    sender that was not learned, so that it can be answered.

    ================  ==============================================================================
    the MAC is        a lookup
    ================  ==============================================================================
    unknown           fails, and asks for a broadcast request, at most one in INTERVAL
    up to FRESH old   succeeds
    up to EXPIRED     succeeds, and asks for a request to the MAC alone, at most one in INTERVAL
    older             is treated as if the MAC were unknown
    ================  ==============================================================================

    Latency: at most ``entries`` + 6 cycles, and ``entries`` more once in a unit of age.

    Parameters
    ----------
    entries : a power of 2, 2 to 8
    constants : further words of every entry, from Word.CONSTANTS on
    unit : ticks in a unit of age, a power of 2

    Members
    -------
    task : In, :class:`Task`
        Stays until ``done``, as ``address`` and ``sender`` do.
    address : In, 32 bits
        A neighbour's address; not 0 if it is looked up.
    sender : In, 48 bits
        With UPDATE and LEARN, the neighbour's MAC.
    done : Out, 1 bit
        The task has been done. The other outputs are valid, and do not change until the next task.
    known : Out, 1 bit
        The entry has a MAC.
    ask : Out, 1 bit
        A request is to be sent, to the MAC if it is known, otherwise to all.
    show : In, range(WORDS)
        A :class:`Word`, or a constant.
    word : Out, 32 bits
        The word of the entry that was selected by ``show`` in the previous cycle.
    rest : In, 1 bit
        The entry is not used any more; ages may be increased.
    tick : In, 1 bit
        A millisecond has passed.
    sweep : Out, 1 bit
        A unit of age has passed.

    """

    def __init__(self, entries: int = 8, constants: Sequence[int] = (), unit: int = UNIT):
        if entries not in (2, 4, 8):
            raise ValueError(f"entries must be 2, 4 or 8, not {entries!r}")
        self.entries = entries
        self.constants = tuple(constants)
        self.unit = unit
        super().__init__({
            "task": In(Task),
            "address": In(32),
            "sender": In(48),
            "done": Out(1),
            "known": Out(1),
            "ask": Out(1),
            "show": In(range(WORDS)),
            "word": Out(32),
            "rest": In(1),
            "tick": In(1),
            "sweep": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entries = self.entries
        entry = [0] * Word.CONSTANTS + [*self.constants]
        entry += [0] * (WORDS - len(entry))
        # A word is never read in the cycle in which it is written.
        m.submodules.words = words = Memory(
            shape=32,
            depth=2 * entries * WORDS,
            init=entry * 2 * entries,
            attrs={"ram_style": "block", "no_rw_check": 1},
        )
        free = {"age": FREE, "wait": 0}
        m.submodules.ages = ages = Memory(shape=_AGE, depth=2 * entries, init=[free] * entries)
        write, read = words.write_port(), words.read_port(domain="comb")
        age_write, age_read = ages.write_port(), ages.read_port(domain="comb")

        ticks = Signal(range(self.unit))
        sweep_due = Signal()
        with m.If(self.tick):
            m.d.sync += ticks.eq(ticks + 1)
        m.d.comb += self.sweep.eq(self.tick & (ticks == self.unit - 1))

        row = Signal(range(2 * entries))  # the entry that is examined
        next_row = Signal(range(2 * entries))
        word = Signal(range(WORDS))  # the word that is written
        oldest = Signal(range(entries))
        oldest_age = Signal(7)
        age = Signal(_AGE)  # of the entry in ``row``
        new_age = Signal(_AGE)
        looks_up = Signal()
        held = Signal(32, reset_less=True)  # the output register of the memory
        m.d.sync += held.eq(read.data)
        m.d.comb += [
            looks_up.eq(self.task == Task.LOOK_UP),
            next_row.eq(row + 1),
            age_read.addr.eq(row),
            age.eq(age_read.data),
            age_write.addr.eq(row),
            age_write.data.eq(new_age),
            write.addr.eq(Cat(word, row)),
            read.addr.eq(Cat(self.show, row)),
            self.word.eq(held),
        ]
        with m.Switch(word):
            with m.Case(Word.ADDRESS):
                m.d.comb += write.data.eq(self.address)
            with m.Case(Word.MAC_0):
                m.d.comb += write.data[16:].eq(self.sender[:16])
            with m.Default():
                m.d.comb += write.data.eq(self.sender[16:])

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [oldest_age.eq(0), word.eq(Word.ADDRESS)]
                with m.If(sweep_due & self.rest):
                    m.d.sync += [sweep_due.eq(0), row.eq(0)]
                    m.next = "Sweep"
                with m.Elif(self.task != Task.NONE):
                    m.d.sync += [self.known.eq(0), self.ask.eq(0), row.eq(0)]
                    m.next = "Begin"

            with m.State("Sweep"):
                m.d.comb += [
                    age_write.en.eq(1),
                    new_age.age.eq(age.age + (age.age < EXPIRED)),
                    new_age.wait.eq(age.wait - (age.wait != 0)),
                ]
                m.d.sync += row.eq(next_row)
                with m.If(next_row[-1]):
                    m.next = "Idle"

            with m.State("Begin"):
                m.d.comb += read.addr.eq(Word.ADDRESS)
                m.next = "Search"

            with m.State("Search"):
                # The address of the entry ``row`` has been read; the next one is read now.
                m.d.comb += read.addr.eq(Cat(Const(Word.ADDRESS, 4), next_row))
                with m.If(age.age >= oldest_age):
                    m.d.sync += [oldest.eq(row), oldest_age.eq(age.age)]
                with m.If((held == self.address) & (age.age != FREE)):
                    m.next = "Found"
                with m.Else():
                    m.d.sync += row.eq(next_row)
                    with m.If(next_row[-1]):
                        m.next = "Missed"

            with m.State("Missed"):
                # ``row`` is the spare entry.
                with m.If(self.task != Task.UPDATE):
                    m.d.sync += row.eq(oldest)
                m.next = "Create"

            with m.State("Create"):
                m.d.comb += [
                    write.en.eq(1),
                    age_write.en.eq(1),
                    new_age.age.eq(EXPIRED),
                    new_age.wait.eq(INTERVAL),
                ]
                m.d.sync += self.ask.eq(looks_up)
                m.next = "Found"
                with m.If(looks_up):
                    m.next = "Done"

            with m.State("Found"):
                m.d.sync += word.eq(Word.MAC_0)
                with m.If(looks_up):
                    m.d.sync += self.known.eq(age.age < EXPIRED)
                    with m.If((age.age >= FRESH) & (age.wait == 0)):
                        m.d.sync += self.ask.eq(1)
                        m.d.comb += [age_write.en.eq(1), new_age.age.eq(age.age), new_age.wait.eq(INTERVAL)]
                    m.next = "Done"
                with m.Else():
                    m.d.comb += age_write.en.eq(1)
                    m.next = "WriteFirst"

            with m.State("WriteFirst"):
                m.d.comb += write.en.eq(1)
                m.d.sync += word.eq(Word.MAC_2)
                m.next = "WriteRest"

            with m.State("WriteRest"):
                m.d.comb += write.en.eq(1)
                m.next = "Done"

            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"

        with m.If(self.sweep):
            m.d.sync += sweep_due.eq(1)
        return m
