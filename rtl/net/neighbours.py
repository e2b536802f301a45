"""The ARP cache (RFC 826, RFC 1122 §2.3.2): it maps the addresses of neighbours to their MACs."""

from enum import IntEnum

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

__all__ = ["EXPIRED", "FRESH", "INTERVAL", "SWEEP", "Neighbours", "Task"]

SWEEP = 256  # ticks from one unit of age to the next
FRESH = 235  # units of age from which a MAC is to be confirmed: 60 s (RFC 1122 §2.3.2.1: on the order of a minute)
EXPIRED = 469  # units of age from which a MAC is not used: 120 s
FREE = 511  # an entry without an address
INTERVAL = 5  # units between requests for an address: 1.02 to 1.28 s (RFC 1122 §2.3.2.1: at most one a second)


class Word(IntEnum):
    """The words of an entry."""

    ADDRESS = 0
    MAC_0 = 1  # the first 2 octets of the MAC, in bits 31:16
    MAC_2 = 2  # the other 4


class Task(enum.Enum, shape=2):
    """What is to be done for an address."""

    NONE = 0
    LOOK_UP = 1
    UPDATE = 2  # an entry that exists
    LEARN = 3  # also an entry that does not


_AGE = data.StructLayout({"age": 9, "wait": 3})  # ``wait``: units until the next request is allowed


class Neighbours(wiring.Component):
    """A cache that is searched sequentially.

    An entry is created if a neighbour asks for this host's address, and if a MAC is looked up; then it has no MAC until
    the neighbour answers. A new entry replaces the one that was confirmed longest ago.

    ================  ==============================================================================
    the MAC is        a lookup
    ================  ==============================================================================
    unknown           fails, and asks for a broadcast request, at most one in INTERVAL
    up to FRESH old   succeeds
    up to EXPIRED     succeeds, and asks for a request to the MAC alone, at most one in INTERVAL
    older             is treated as if the MAC were unknown
    ================  ==============================================================================

    Latency: at most ``entries`` + 6 cycles; a sweep, once in SWEEP ticks, delays a task by ``entries`` cycles.

    Parameters
    ----------
    entries : a power of 2, 2 to 16

    Members
    -------
    task : In, :class:`Task`
        Stays until ``done``, as ``address`` and ``sender`` do.
    address : In, 32 bits
        A neighbour's address; not 0.
    sender : In, 48 bits
        With UPDATE and LEARN, the neighbour's MAC.
    done : Out, 1 bit
        The task has been done. The other outputs are valid, and do not change until the next task.
    known : Out, 1 bit
        ``mac`` is valid.
    ask : Out, 1 bit
        A request is to be sent, to ``mac`` if it is known, otherwise to all.
    mac : Out, 48 bits
        The neighbour's MAC, in the order of ``sender``.
    tick : In, 1 bit
        A millisecond has passed.
    sweep : Out, 1 bit
        A unit of age has passed.

    """

    def __init__(self, entries: int = 8):
        if entries not in (2, 4, 8, 16):
            raise ValueError(f"entries must be 2, 4, 8 or 16, not {entries!r}")
        self.entries = entries
        super().__init__({
            "task": In(Task),
            "address": In(32),
            "sender": In(48),
            "done": Out(1),
            "known": Out(1),
            "ask": Out(1),
            "mac": Out(48),
            "tick": In(1),
            "sweep": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        entries = self.entries
        m.submodules.words = words = Memory(shape=32, depth=4 * entries, init=[])
        free = {"age": FREE, "wait": 0}
        m.submodules.ages = ages = Memory(shape=_AGE, depth=entries, init=[free] * entries)
        write, read = words.write_port(), words.read_port()
        age_write, age_read = ages.write_port(), ages.read_port(domain="comb")

        ticks = Signal(range(SWEEP))
        sweep_due = Signal()
        with m.If(self.tick):
            m.d.sync += ticks.eq(ticks + 1)
            with m.If(ticks == SWEEP - 1):
                m.d.comb += self.sweep.eq(1)
                m.d.sync += sweep_due.eq(1)

        row = Signal(range(entries))  # the entry that is examined
        word = Signal(Word)  # the word that is read next, or written
        after = Signal(range(entries + 1))  # the entry that is read
        oldest = Signal(range(entries))
        oldest_age = Signal(9)
        age = Signal(_AGE)  # of the entry in ``row``
        new_age = Signal(_AGE)
        learns = Signal()
        looks_up = Signal()
        found = Signal()
        m.d.comb += [
            looks_up.eq(self.task == Task.LOOK_UP),
            learns.eq(self.task != Task.LOOK_UP),
            age_read.addr.eq(row),
            age.eq(age_read.data),
            age_write.addr.eq(row),
            age_write.data.eq(new_age),
            found.eq((read.data == self.address) & (age.age != FREE)),
            write.addr.eq(Cat(word, row)),
            read.addr.eq(Cat(word, row)),
            read.en.eq(1),
        ]
        with m.Switch(word):
            with m.Case(Word.ADDRESS):
                m.d.comb += write.data.eq(self.address)
            with m.Case(Word.MAC_0):
                m.d.comb += write.data.eq(Cat(Const(0, 16), self.sender[:16]))
            with m.Default():
                m.d.comb += write.data.eq(self.sender[16:])

        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [after.eq(0), row.eq(0), oldest_age.eq(0)]
                m.d.comb += read.addr.eq(0)
                with m.If(sweep_due):
                    m.d.sync += sweep_due.eq(0)
                    m.next = "Sweep"
                with m.Elif(self.task != Task.NONE):
                    m.d.sync += [self.known.eq(0), self.ask.eq(0), after.eq(1)]
                    m.next = "Search"

            with m.State("Sweep"):
                m.d.comb += [
                    age_write.en.eq(1),
                    new_age.age.eq(Mux((age.age == EXPIRED) | (age.age == FREE), age.age, age.age + 1)),
                    new_age.wait.eq(age.wait - (age.wait != 0)),
                ]
                m.d.sync += row.eq(row + 1)
                with m.If(row == entries - 1):
                    m.next = "Idle"

            with m.State("Search"):
                # Word ADDRESS of the entry ``row`` has been read, that of ``after`` is read now.
                m.d.comb += read.addr.eq(Cat(Const(Word.ADDRESS, 2), after[: len(row)]))
                with m.If(age.age >= oldest_age):
                    m.d.sync += [oldest.eq(row), oldest_age.eq(age.age)]
                with m.If(found):
                    m.d.sync += word.eq(Word.MAC_0)
                    m.next = "Found"
                with m.Elif(after[-1]):
                    m.next = "Missed"
                with m.Else():
                    m.d.sync += [row.eq(row + 1), after.eq(after + 1)]

            with m.State("Missed"):
                m.d.sync += [row.eq(oldest), word.eq(Word.ADDRESS)]
                with m.If(self.task == Task.UPDATE):
                    m.next = "Done"
                with m.Else():
                    m.next = "Create"

            with m.State("Create"):
                m.d.comb += [
                    write.en.eq(1),
                    age_write.en.eq(1),
                    new_age.age.eq(EXPIRED),
                    new_age.wait.eq(INTERVAL),
                ]
                m.d.sync += [self.ask.eq(looks_up), word.eq(Word.MAC_0)]
                m.next = "Done"
                with m.If(learns):
                    m.next = "Found"

            with m.State("Found"):
                # Both words of the MAC are written or read.
                m.d.sync += [word.eq(Word.MAC_2)]
                m.d.comb += [write.en.eq(learns), age_write.en.eq(learns), new_age.eq(0)]
                with m.If(looks_up):
                    m.d.sync += self.known.eq(age.age < EXPIRED)
                    with m.If((age.age >= FRESH) & (age.wait == 0)):
                        m.d.sync += self.ask.eq(1)
                        m.d.comb += [age_write.en.eq(1), new_age.age.eq(age.age), new_age.wait.eq(INTERVAL)]
                m.next = "Mac"

            with m.State("Mac"):
                m.d.comb += write.en.eq(learns)
                with m.If(looks_up):
                    m.d.sync += self.mac[:16].eq(read.data[16:])
                m.next = "Last"

            with m.State("Last"):
                with m.If(looks_up):
                    m.d.sync += self.mac[16:].eq(read.data)
                m.next = "Done"

            with m.State("Done"):
                m.d.comb += self.done.eq(1)
                m.next = "Idle"
        return m
