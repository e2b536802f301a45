"""The registers of many connections: a page for each, in one memory, with one sequential engine for all of them."""

from collections.abc import Mapping, Sequence

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.ports import ports_of
from open_rnic.rtl.lib.rows import Clear, connection_shape
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.mpa.counter_sums import Counted
from open_rnic.rtl.mpa.events import Event
from open_rnic.rtl.registers import BY_NAME, MAP, Access, Cause, DirectionState, EventKind
from open_rnic.rtl.registers.bus import paged_bus

__all__ = ["EVENTS", "NumberedEvent", "SharedRegisters"]

EVENTS = 8  # of a connection, that wait for the host
_WORDS = 64  # of a connection
_RW = {
    register.name: sum(field.mask for field in register.fields if field.access is Access.RW)
    for register in MAP
    if any(field.access is Access.RW for field in register.fields)
}
# Places of words that are not at the address of their register. An event has three words, in places of their own.
_QUEUE = BY_NAME["EVENT"].address >> 2  # of the queue: its head, its level, and the overflow flag
_PLACES = (48, 56, 24)  # of the first event's words: EVENT, EVENT_OFFSET_LO, EVENT_OFFSET_HI


def _word(name: str) -> int:
    return BY_NAME[name].address >> 2


class NumberedEvent(data.StructLayout):
    """An :class:`.Event` of connection ``connection``."""

    def __init__(self, connections: int):
        super().__init__({**dict(Event.as_shape().members), "connection": connection_shape(connections)})


class Reader(wiring.Signature):
    """The settings of ``connection`` that a reader needs: registers, as words without their reserved bits."""

    def __init__(self, connections: int, words: data.StructLayout):
        super().__init__({"connection": In(connection_shape(connections)), "words": Out(words)})


class _Queue(data.StructLayout):
    """The events of a connection that wait for the host."""

    def __init__(self):
        super().__init__({"head": range(EVENTS), "level": range(EVENTS + 1), "overflow": 1})


class SharedRegisters(wiring.Component):
    """A page with the registers of :data:`.MAP` for each connection, and its events and counters.

    All words are in one memory, which a sequential engine reads and writes: for the host, to queue events, to add to
    counters, and to reset a connection. The settings of the host are also in LUT RAM, with a read port for each of the
    blocks that need them.

    Latency: 4 cycles for most accesses of the host, and up to 12 for an event. An access to a connection that is being
    reset waits. Throughput: one event every 9 cycles, or one :class:`.Counted` every 4 to 8 cycles.

    Parameters
    ----------
    connections : number of pages
    lanes : for the host, in CAPABILITIES
    limits : for a register of lengths, by its name, the largest value that readers are given
    readers : for each reader of settings, by its name, the registers

    Members
    -------
    bus : In, :class:`.RegisterBus`; the number of the connection is above the 8 bits of a register's address
    irq : Out, 1 bit for each connection; an event is pending
    events : In, array of streams of :class:`NumberedEvent`, of a kind other than NONE
    counts : In, array of streams of :class:`.Counted`; increments of counters
    state_of : Out, number of a connection
    tx_state, rx_state, open : In, :class:`.DirectionState`, 1 bit; for the register STATE of this connection
    NAME : Out, :class:`Reader`; the settings that the reader NAME needs
    resets : Out, 1 bit; a connection waits for its reset, or is being reset; after power-up, until all pages have their
        words
    idle : In, 1 bit; nothing of any connection is on its way
    clear : Out, :class:`.Clear`; the connection is reset: all about it is forgotten. After power-up, all are

    """

    def __init__(self, connections: int, lanes: int, *, sources: int, counters: int,
                 limits: Mapping[str, int], readers: Mapping[str, Sequence[str]]):  # fmt: skip
        self.connections = connections
        self.lanes = lanes
        self.limits = limits
        number = connection_shape(connections)
        self.readers = {
            name: data.StructLayout({each: _RW[each].bit_length() for each in registers})
            for name, registers in readers.items()
        }
        super().__init__({
            "bus": In(paged_bus(connections)),
            "irq": Out(connections),
            "events": In(stream.Signature(NumberedEvent(connections))).array(sources),
            "counts": In(stream.Signature(Counted(connections))).array(counters),
            "state_of": Out(number),
            "tx_state": In(DirectionState),
            "rx_state": In(DirectionState),
            "open": In(1),
            **{name: Out(Reader(connections, words)) for name, words in self.readers.items()},
            "resets": Out(1, init=1),
            "idle": In(1),
            "clear": Out(Clear(connections), init={"now": 1}),
        })

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self)
        self._store(m, x)
        self._settings(m, x)
        self._find_work(m, x)
        self._next_counter(m, x)
        with m.FSM(init="Wipe"):
            self._choose(m, x)
            self._access(m, x)
            self._pop(m, x)
            self._push(m, x)
            self._add(m, x)
            self._wipe(m, x)
        return m

    def _initial(self) -> list[int]:
        """The words of a page after a reset."""
        words = [0] * _WORDS
        for register in MAP:
            words[register.address >> 2] = register.reset
        capabilities = BY_NAME["CAPABILITIES"]
        words[_word("CAPABILITIES")] = sum(
            capabilities[name].put(value)
            for name, value in {"lanes": self.lanes, "event_depth": EVENTS, "store_and_forward": 1}.items()
        )
        for name in ("STATE", "EVENT", "EVENT_STATUS"):
            words[_word(name)] = 0
        return words

    def _store(self, m, x):
        """The memory, the adder for its words, and the count of cycles."""
        m.submodules.page = page = Memory(shape=32, depth=_WORDS * self.connections, init=self.connections * x.initial)
        # What is read of a word as it is written is not used.
        write, read = page.write_port(), late_read(m, page)
        m.d.comb += [
            read.addr.eq(Cat(x.read_place, x.row)),
            write.addr.eq(Cat(x.write_place, x.row)),
            write.data.eq(x.new_word),
            write.en.eq(x.writes),
            x.word.eq(read.data),
            x.total.eq(x.word + x.increment + x.carry),
        ]
        m.d.sync += x.now.eq(x.now + 1)

    def _settings(self, m, x):
        """The settings in LUT RAM; lengths over their limit are stored as the limit."""
        ports = ports_of(self)
        for name, mask in _RW.items():
            width = mask.bit_length()
            reset = min(BY_NAME[name].reset, self.limits.get(name, BY_NAME[name].reset))
            memory = Memory(shape=width, depth=self.connections, init=self.connections * [reset])
            m.submodules[name] = memory
            write = memory.write_port()
            value = x.new_word[:width]
            if name in self.limits:
                limit = self.limits[name]
                value = Mux(value > limit, limit, value)
            m.d.comb += [
                write.addr.eq(x.row),
                write.data.eq(value),
                write.en.eq(x.writes & x.is_setting & (x.write_place == _word(name))),
            ]
            for reader, words in self.readers.items():
                if name in words.members:
                    read = memory.read_port(domain="comb")
                    m.d.comb += [read.addr.eq(ports[reader, "connection"]), ports[reader, "words"][name].eq(read.data)]

    def _find_work(self, m, x):
        """What waits to be done. A reset waits until nothing has been on its way for some cycles."""
        bus = self.bus
        waits = self.resets & ((x.page == x.resetting) | (bus.write & (bus.address[:8] == _word("CONTROL"))))
        quiet = Signal(3)  # an event takes 2 cycles through its queue
        m.d.comb += [
            x.page.eq(bus.address[8:]),
            x.asks.eq(bus.request & ~bus.ack & ~waits),
            x.pending.eq(Cat(each.valid for each in x.sources).any()),
            x.resets.eq(self.resets & quiet.all() & self.idle & ~self.clear.now),
        ]
        starts = Signal(init=1)  # connections are cleared, one after the other
        is_last = self.clear.connection == self.connections - 1
        with m.If(starts):
            m.d.sync += [self.clear.connection.eq(Mux(is_last, 0, self.clear.connection + 1)), starts.eq(~is_last)]
        m.d.sync += [
            bus.ack.eq(0), self.clear.now.eq(starts & ~is_last),
            quiet.eq(Mux(self.idle & ~x.pending, Cat(1, quiet[:2]), 0)), x.was_pending.eq(x.pending),
        ]  # fmt: skip

    def _choose(self, m, x):
        """Choose what to do next. Events, counters and the host take turns."""
        bus, page = self.bus, x.page
        with m.State("Choose"):
            m.d.sync += x.hosts_turn.eq(0)
            with m.If(x.asks & (x.hosts_turn | ~x.was_pending)):
                m.d.comb += [x.row.eq(page), x.read_place.eq(bus.address[:6])]
                with m.If(bus.address[:8] == _word("EVENT_STATUS")):
                    m.d.comb += x.read_place.eq(_QUEUE)
                with m.If(bus.address[:8] == _word("CYCLES_HI")):
                    m.d.comb += x.read_place.eq(_word("CYCLES_LO"))
                m.d.sync += [x.connection.eq(page), x.carry.eq(0)]
                m.next = "Access"
            with m.Elif(x.pending):
                m.d.sync += x.turn.eq(following(x.turn, len(x.sources)))
                with m.Switch(x.turn):
                    for n, source in enumerate(x.sources):
                        with m.Case(n), m.If(source.valid):
                            connection = source.payload.connection
                            m.d.comb += [x.row.eq(connection), x.read_place.eq(_QUEUE), source.ready.eq(1)]
                            m.d.sync += x.connection.eq(connection)
                            if n < len(self.events):
                                m.d.sync += x.event.eq(source.payload)
                                m.next = "Push"
                            else:
                                m.d.sync += [x.counted.eq(source.payload), x.first.eq(1), x.adds.eq(0), x.carry.eq(0)]
                                m.next = "Add"
            with m.Elif(x.resets):
                m.d.sync += [x.connection.eq(x.resetting), x.count.eq(0)]
                m.d.sync += [self.clear.now.eq(1), self.clear.connection.eq(x.resetting)]
                m.next = "Wipe"

    def _access(self, m, x):
        """An access of the host."""
        bus, connection, address = self.bus, x.connection, self.bus.address[:8]
        known = sum(1 << (register.address >> 2) for register in MAP)
        queue = data.View(_Queue(), x.word[:_Queue().size])
        with m.State("Access"):
            m.d.comb += [x.row.eq(connection), self.state_of.eq(connection)]
            m.d.comb += [x.write_place.eq(address), x.read_place.eq(address)]
            m.d.sync += [bus.ack.eq(1), bus.read_data.eq(x.word), x.hosts_turn.eq(0), x.queue.eq(queue)]
            m.next = "Choose"
            with m.If(address[6:].any() | ~Const(known, _WORDS).bit_select(address[:6], 1)):
                m.d.sync += bus.read_data.eq(0)
            with m.Elif(bus.write):
                with m.Switch(address):
                    for name, mask in _RW.items():
                        with m.Case(_word(name)):
                            m.d.comb += [x.new_word.eq(bus.write_data & mask), x.writes.eq(1), x.is_setting.eq(1)]
                    with m.Case(_word("EVENT_STATUS")):
                        status = BY_NAME["EVENT_STATUS"]["overflow"]
                        m.d.comb += [
                            x.write_place.eq(_QUEUE),
                            x.writes.eq(bus.write_data[status.lsb]),
                            x.new_word.eq(Cat(queue.head, queue.level)),
                        ]
                with m.If((address == _word("CONTROL")) & bus.write_data[BY_NAME["CONTROL"]["reset"].lsb]):
                    m.d.comb += x.writes.eq(0)
                    m.d.sync += [self.resets.eq(1), x.resetting.eq(connection)]
            with m.Else():
                with m.Switch(address):
                    with m.Case(_word("STATE")):
                        m.d.sync += bus.read_data.eq(Cat(self.tx_state, self.rx_state, self.open))
                    with m.Case(_word("EVENT_STATUS")):
                        m.d.sync += bus.read_data.eq(Cat(queue.level, Const(0, 8 - len(queue.level)), queue.overflow))
                    with m.Case(_word("CYCLES_LO")):
                        m.d.comb += x.increment.eq(x.now[:32])
                        m.d.sync += bus.read_data.eq(x.total)
                    with m.Case(_word("CYCLES_HI")):
                        m.d.comb += x.increment.eq(x.now[:32])
                        m.d.sync += [bus.ack.eq(0), x.carry.eq(x.total[32]), x.cycles_high.eq(x.now[32:])]
                        m.next = "High"
                    with m.Case(_QUEUE):
                        m.d.sync += bus.read_data.eq(0)
                        with m.If(queue.level != 0):
                            m.d.comb += x.read_place.eq(_PLACES[0] + queue.head)
                            m.d.sync += [bus.ack.eq(0), x.count.eq(0)]
                            m.next = "Pop"
        with m.State("High"):
            m.d.comb += x.increment.eq(x.cycles_high)
            m.d.sync += [bus.ack.eq(1), bus.read_data.eq(x.total)]
            m.next = "Choose"

    def _pop(self, m, x):
        """The oldest event: its word goes to the host, its offset into the registers beside EVENT."""
        head = x.queue.head
        with m.State("Pop"):
            m.d.comb += [x.row.eq(x.connection), x.new_word.eq(x.word)]
            m.d.sync += x.count.eq(x.count + 1)
            with m.Switch(x.count):
                with m.Case(0):
                    m.d.sync += self.bus.read_data.eq(x.word)
                    m.d.comb += x.read_place.eq(_PLACES[1] + head)
                with m.Case(1):
                    m.d.comb += [x.writes.eq(1), x.write_place.eq(_word("EVENT_OFFSET_LO"))]
                    m.d.comb += x.read_place.eq(_PLACES[2] + head)
                with m.Case(2):
                    m.d.comb += [x.writes.eq(1), x.write_place.eq(_word("EVENT_OFFSET_HI"))]
                with m.Default():
                    queue = Signal(_Queue(), name="queue_after_pop")
                    m.d.comb += [
                        queue.head.eq(head + 1), queue.level.eq(x.queue.level - 1), queue.overflow.eq(x.queue.overflow),
                        x.writes.eq(1), x.write_place.eq(_QUEUE), x.new_word.eq(queue),
                    ]  # fmt: skip
                    m.d.sync += self.bus.ack.eq(1)
                    with m.If(x.queue.level == 1):
                        m.d.sync += self.irq.bit_select(x.connection, 1).eq(0)
                    m.next = "Choose"

    def _push(self, m, x):
        """An event enters the queue of its connection; an error also enters the registers."""
        event = x.event
        tail = x.tail
        value = Cat(event.kind, Const(0, 8 - len(event.kind)), event.detail, event.value)
        is_error = event.kind == EventKind.ERROR
        code = Array(Const(each.code, 8) for each in Cause)[event.detail[:3]]
        words = [value, event.offset[:32], event.offset[32:]]
        with m.State("Push"):
            m.d.comb += x.row.eq(x.connection)
            queue = data.View(_Queue(), x.word[:_Queue().size])
            m.d.sync += [x.queue.eq(queue), tail.eq(queue.head + queue.level), x.count.eq(0)]
            m.next = "Queue"
        with m.State("Queue"):
            full = x.queue.level == EVENTS
            after = Signal(_Queue(), name="queue_after_push")
            m.d.comb += [
                x.row.eq(x.connection),
                after.head.eq(x.queue.head), after.level.eq(x.queue.level + ~full),
                after.overflow.eq(x.queue.overflow | full),
            ]  # fmt: skip
            m.d.sync += x.count.eq(x.count + 1)
            with m.Switch(x.count):
                for n, (word, place) in enumerate(zip(words, _PLACES, strict=True)):
                    with m.Case(n):
                        m.d.comb += [x.writes.eq(~full), x.write_place.eq(place + tail), x.new_word.eq(word)]
                with m.Case(3):
                    m.d.comb += [x.writes.eq(1), x.write_place.eq(_QUEUE), x.new_word.eq(after)]
                    m.d.sync += self.irq.bit_select(x.connection, 1).eq(1)
                    with m.If(~is_error):
                        m.next = "Choose"
                error = [Cat(code, event.detail, event.value), *words[1:]]
                places = [_word(name) for name in ("ERROR", "ERROR_OFFSET_LO", "ERROR_OFFSET_HI")]
                for n, (word, place) in enumerate(zip(error, places, strict=True)):
                    with m.Case(4 + n):
                        m.d.comb += [x.writes.eq(1), x.write_place.eq(place), x.new_word.eq(word)]
                        if n == 2:
                            m.next = "Choose"
            m.d.sync += x.hosts_turn.eq(1)

    def _next_counter(self, m, x):
        """The next counter to which something must be added."""
        m.d.comb += x.todo_now.eq(Mux(x.first, Cat(step != 0 for step in x.steps), x.todo))
        for n in reversed(range(len(x.steps))):
            with m.If(x.todo_now[n]):
                m.d.comb += x.next_slot.eq(n)

    def _add(self, m, x):
        """Add to counters: a word is read in a cycle, and its sum is written in the next one."""
        high = len(x.steps) - 1
        with m.State("Add"):
            carries = x.adds & (x.slot == 0) & x.total[32]
            first = Mux(x.counted.rx, _word("RX_FPDUS"), _word("TX_FPDUS"))
            m.d.comb += [
                x.row.eq(x.connection),
                x.read_place.eq(first + Array(x.offsets)[x.next_slot]),
                x.write_place.eq(x.written),
                x.increment.eq(Array(x.steps)[x.slot]),
                x.new_word.eq(x.total),
                x.writes.eq(x.adds),
            ]
            m.d.sync += [
                x.first.eq(0),
                x.todo.eq((x.todo_now & (x.todo_now - 1)) | (carries << high)),
                x.adds.eq(x.todo_now != 0),
                x.slot.eq(x.next_slot),
                x.written.eq(x.read_place),
                x.hosts_turn.eq(1),
                x.carry.eq((x.todo_now != 0) & (x.next_slot == high)),
            ]
            with m.If((x.todo_now == 0) & ~carries):
                m.next = "Choose"

    def _wipe(self, m, x):
        """A connection is reset: its words become those after power-up. So do those of all, if the whole is reset."""
        wipes_all = Signal(init=1)
        with m.State("Wipe"):
            word = x.count[:6]
            m.d.comb += [x.row.eq(x.connection), x.write_place.eq(word), x.writes.eq(1), x.is_setting.eq(1)]
            m.d.comb += x.new_word.eq(Array(x.initial)[word])
            # The count of cycles is the sum of this word and the clock's.
            with m.If(word == _word("CYCLES_LO")):
                m.d.comb += x.new_word.eq(~x.now[:32])
                m.d.sync += x.cycles_high.eq(x.now[32:])
            with m.If(word == _word("CYCLES_HI")):
                m.d.comb += x.new_word.eq(~x.cycles_high)
            m.d.sync += x.count.eq(x.count + 1)
            with m.If(word == _WORDS - 1):
                m.d.sync += self.irq.bit_select(x.connection, 1).eq(0)
                with m.If(wipes_all & (x.connection != self.connections - 1)):
                    m.d.sync += [x.connection.eq(x.connection + 1), x.count.eq(0)]
                with m.Else():
                    m.d.sync += [wipes_all.eq(0), self.resets.eq(0)]
                    m.next = "Choose"


class _Parts:
    """The signals that the parts of :class:`SharedRegisters` share."""

    def __init__(self, registers: SharedRegisters):
        number = connection_shape(registers.connections)
        self.initial = registers._initial()

        # The memory: a word is read in a cycle, and is there in the next one.
        self.row = Signal(number)
        self.read_place = Signal(6)
        self.write_place = Signal(6)
        self.new_word = Signal(32)  # is written
        self.writes = Signal()
        self.is_setting = Signal()  # it is a setting
        self.word = Signal(32)
        self.increment = Signal(32)
        self.carry = Signal()
        self.total = Signal(33)  # ``word``, ``increment`` and ``carry``
        self.now = Signal(64)  # cycles since power-up
        self.cycles_high = Signal(32)  # the high half, when the low one was used

        # What waits to be done.
        self.page = Signal(number)  # of the host's access
        self.asks = Signal()  # the host
        self.sources = [*registers.events, *registers.counts]
        self.turn = Signal(range(len(self.sources)))  # the source that is next
        self.pending = Signal()  # a source has something
        self.was_pending = Signal()  # a cycle ago: so that no source waits for the logic of another
        self.resets = Signal()
        self.resetting = Signal(number)  # the connection that waits for its reset

        self.connection = Signal(number)  # that is served
        self.hosts_turn = Signal()
        self.count = Signal(7)
        self.queue = Signal(_Queue())
        self.tail = Signal(range(EVENTS))
        self.event = Signal(NumberedEvent(registers.connections))
        self.counted = Signal(Counted(registers.connections))

        # The counters, in the order in which something is added to them: the high half of the octets comes last.
        counted = self.counted
        self.offsets = [1, 0, 3, 4, 4 + counted.rx, 2]
        self.steps = [*(counted[name] for name in ("octets", "fpdus", "markers", "crc_errors", "stalls")), Const(0)]
        self.first = Signal()  # nothing has been added yet
        self.todo = Signal(6)  # counters to which something must be added
        self.todo_now = Signal(6)
        self.next_slot = Signal(3)
        self.adds = Signal()  # ``word`` is a counter's, to which something is added
        self.slot = Signal(3)  # which of them
        self.written = Signal(6)  # its place
