"""The ARP cache (RFC 826, RFC 1122 §2.3.2): it maps the addresses of neighbours to their MACs."""

from collections.abc import Sequence
from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.late_read import late_read

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

    Latency: at most ``entries`` + 6 cycles, and ``entries`` more once in a unit of age. A reset frees all entries.

    Parameters
    ----------
    entries : a power of 2, 2 to 8
    constants : further words of every entry, from Word.CONSTANTS on
    unit : ticks in a unit of age, a power of 2

    Members
    -------
    task : In, :class:`Task`; stays until ``done``, as ``address`` and ``sender`` do
    address : In, 32 bits; a neighbour's, not 0 if it is looked up
    sender : In, 48 bits; with UPDATE and LEARN, the neighbour's MAC
    done : Out, 1 bit; the other outputs are valid, and do not change until the next task
    known : Out, 1 bit; the entry has a MAC
    ask : Out, 1 bit; a request is to be sent, to the MAC if it is known, otherwise to all
    show : In, range(WORDS); a :class:`Word`, or a constant
    word : Out, 32 bits; the word of the entry that was selected by ``show`` in the previous cycle
    rest : In, 1 bit; the entry is not used any more; ages may be increased
    tick : In, 1 bit; a millisecond has passed
    sweep : Out, 1 bit; a unit of age has passed

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
        self._row = Signal(range(2 * entries))  # the entry that is examined
        self._next_row = Signal(range(2 * entries))
        self._word = Signal(range(WORDS))  # the word that is written
        self._oldest = Signal(range(entries))
        self._oldest_age = Signal(7)
        self._age = Signal(_AGE)  # of the entry in ``row``
        self._new_age = Signal(_AGE)
        self._looks_up = Signal()
        self._sweep_due = Signal()

    def elaborate(self, platform):
        m = Module()
        write, held, address = self._words(m)
        age_write = self._ages(m)
        m.d.comb += [self._looks_up.eq(self.task == Task.LOOK_UP), self._next_row.eq(self._row + 1)]
        with m.FSM(init="Free"):
            self._free(m, age_write)
            self._begin(m)
            self._increase_ages(m, age_write)
            self._search(m, held, address)
            self._create(m, write, age_write)
            self._answer(m, age_write)
            self._update(m, write)
        self._time(m)
        return m

    def _words(self, m):
        """Store the words of the entries; return the write port, the word that has been read, and the read address."""
        entry = [0] * Word.CONSTANTS + [*self.constants]
        entry += [0] * (WORDS - len(entry))
        m.submodules.words = words = Memory(
            shape=32,
            depth=2 * self.entries * WORDS,
            init=entry * 2 * self.entries,
            attrs={"ram_style": "block"},
        )
        # A word is never read in the cycle in which it is written.
        write, read = words.write_port(), late_read(m, words)
        m.d.comb += [
            write.addr.eq(Cat(self._word, self._row)),
            read.addr.eq(Cat(self.show, self._row)),
            self.word.eq(read.data),
        ]
        with m.Switch(self._word):
            with m.Case(Word.ADDRESS):
                m.d.comb += write.data.eq(self.address)
            with m.Case(Word.MAC_0):
                m.d.comb += write.data[16:].eq(self.sender[:16])
            with m.Default():
                m.d.comb += write.data.eq(self.sender[16:])
        return write, read.data, read.addr

    def _ages(self, m):
        """Store the ages of the entries; return the write port, which writes ``new_age``."""
        free = {"age": FREE, "wait": 0}
        m.submodules.ages = ages = Memory(shape=_AGE, depth=2 * self.entries, init=[free] * 2 * self.entries)
        age_write, age_read = ages.write_port(), ages.read_port(domain="comb")
        m.d.comb += [
            age_read.addr.eq(self._row),
            self._age.eq(age_read.data),
            age_write.addr.eq(self._row),
            age_write.data.eq(self._new_age),
        ]
        return age_write

    def _time(self, m):
        """Count the ticks of a unit of age, after which all ages are to be increased."""
        ticks = Signal(range(self.unit))
        with m.If(self.tick):
            m.d.sync += ticks.eq(ticks + 1)
        m.d.comb += self.sweep.eq(self.tick & (ticks == self.unit - 1))
        with m.If(self.sweep):
            m.d.sync += self._sweep_due.eq(1)

    def _free(self, m, age_write):
        """After a reset: no entry has an address."""
        with m.State("Free"):
            m.d.comb += [age_write.en.eq(1), self._new_age.age.eq(FREE)]
            m.d.sync += self._row.eq(self._next_row)
            with m.If(self._row == 2 * self.entries - 1):
                m.next = "Idle"

    def _begin(self, m):
        with m.State("Idle"):
            m.d.sync += [self._oldest_age.eq(0), self._word.eq(Word.ADDRESS)]
            with m.If(self._sweep_due & self.rest):
                m.d.sync += [self._sweep_due.eq(0), self._row.eq(0)]
                m.next = "Sweep"
            with m.Elif(self.task != Task.NONE):
                m.d.sync += [self.known.eq(0), self.ask.eq(0), self._row.eq(0)]
                m.next = "Begin"

    def _increase_ages(self, m, age_write):
        age = self._age
        with m.State("Sweep"):
            m.d.comb += [
                age_write.en.eq(1),
                self._new_age.age.eq(age.age + (age.age < EXPIRED)),
                self._new_age.wait.eq(age.wait - (age.wait != 0)),
            ]
            m.d.sync += self._row.eq(self._next_row)
            with m.If(self._next_row[-1]):
                m.next = "Idle"

    def _search(self, m, held, address):
        """Compare the addresses of all entries, and find the oldest entry."""
        age = self._age
        with m.State("Begin"):
            m.d.comb += address.eq(Word.ADDRESS)
            m.next = "Search"

        with m.State("Search"):
            # The address of the entry ``row`` has been read; the next one is read now.
            m.d.comb += address.eq(Cat(Const(Word.ADDRESS, 4), self._next_row))
            with m.If(age.age >= self._oldest_age):
                m.d.sync += [self._oldest.eq(self._row), self._oldest_age.eq(age.age)]
            with m.If((held == self.address) & (age.age != FREE)):
                m.next = "Found"
            with m.Else():
                m.d.sync += self._row.eq(self._next_row)
                with m.If(self._next_row[-1]):
                    m.next = "Missed"

        with m.State("Missed"):
            # ``row`` is the spare entry.
            with m.If(self.task != Task.UPDATE):
                m.d.sync += self._row.eq(self._oldest)
            m.next = "Create"

    def _create(self, m, write, age_write):
        with m.State("Create"):
            m.d.comb += [
                write.en.eq(1),
                age_write.en.eq(1),
                self._new_age.age.eq(EXPIRED),
                self._new_age.wait.eq(INTERVAL),
            ]
            m.d.sync += self.ask.eq(self._looks_up)
            m.next = "Found"
            with m.If(self._looks_up):
                m.next = "Done"

    def _answer(self, m, age_write):
        """Show whether the entry's MAC is known, and is to be asked for; or begin to write the MAC, which is new."""
        age = self._age
        with m.State("Found"):
            m.d.sync += self._word.eq(Word.MAC_0)
            with m.If(self._looks_up):
                m.d.sync += self.known.eq(age.age < EXPIRED)
                with m.If((age.age >= FRESH) & (age.wait == 0)):
                    m.d.sync += self.ask.eq(1)
                    m.d.comb += [age_write.en.eq(1), self._new_age.age.eq(age.age), self._new_age.wait.eq(INTERVAL)]
                m.next = "Done"
            with m.Else():
                m.d.comb += age_write.en.eq(1)
                m.next = "WriteFirst"

        with m.State("Done"):
            m.d.comb += self.done.eq(1)
            m.next = "Idle"

    def _update(self, m, write):
        with m.State("WriteFirst"):
            m.d.comb += write.en.eq(1)
            m.d.sync += self._word.eq(Word.MAC_2)
            m.next = "WriteRest"

        with m.State("WriteRest"):
            m.d.comb += write.en.eq(1)
            m.next = "Done"
