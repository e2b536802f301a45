"""The host's access to the streams of many connections: octets of stream mode, and a few ULPDUs."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu, packet
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Cells, Clear, Rows, connection_shape, forget
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.mpa.shared_mpa import TxSettings
from open_rnic.rtl.mpa.shared_registers import NumberedEvent
from open_rnic.rtl.mpa.stream_registers import STREAM_MAP
from open_rnic.rtl.registers import Cause, DirectionState, EventKind, Verdict
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import paged_bus

__all__ = ["LONGEST", "SharedStreams", "Word", "Words"]

_ENTRIES = 64  # of a connection, that wait to be sent: a word each, and one for the length of each packet
_ENOUGH = 32  # entries with which a packet of stream mode is not waited for any longer
_WORDS = 32  # of a ULPDU that the engine has passed to the host
LONGEST = 4 * (_ENTRIES // 2 - 1)  # octets of a ULPDU from the host


class Word(data.Struct):
    """Octets of stream mode."""

    data: 32
    octets: 3


class Words(wiring.Signature):
    """The octets of stream mode, from a :class:`.Watcher` to the host.

    Members
    -------
    connection : In, the number of a connection
    word : Out, :class:`Word`
        The octets of ``connection``, if its bit of ``full`` is 1.
    full : Out, 1 bit for each connection
    pop : In, 1 bit for each connection
        The host has read the word.
    """

    def __init__(self, connections: int):
        super().__init__({
            "connection": In(connection_shape(connections)), "word": Out(Word),
            "full": Out(connections), "pop": In(connections),
        })  # fmt: skip


class SharedStreams(wiring.Component):
    """Passes packets of many connections through registers, a page of :data:`.STREAM_MAP` for each.

    Until a connection is in MPA mode, its packets go to TCP as they are (RFC 5044 §7.1); if one exceeds
    TX_STREAM_OCTETS, it is discarded as a whole, and so are all later ones, with the error TX_STREAM. Such a packet may
    be of any length: it leaves in several, if the host does not write it at once. In MPA mode, the packets are ULPDUs,
    of :data:`LONGEST` octets at most; a longer one is the error TX_LENGTH. The host receives octets of stream mode a
    word at a time, and then the one ULPDU that the engine passes, of which the first 128 octets.

    Throughput: a word of 32 bits in 2 cycles, besides some 5 for each packet.

    Parameters
    ----------
    connections : number of pages
    lanes : width of the streams of packets in 32-bit lanes; registers have words of 32 bits

    Members
    -------
    bus : In, :class:`.RegisterBus`; the number of the connection is above the 8 bits of a register's address
    waits : Out, 1 bit for each connection; a received word waits
    has_ulpdu : Out, 1 bit for each connection; it is one of a ULPDU
    words : In, :class:`Words`
    passed : In, stream of :class:`.RxUlpdu`; what the engine passes to the host. Never stalls
    packets : Out, stream of :class:`.Packet` with ``connection``; octets of stream mode
    tx_ulpdu : Out, stream of :class:`.TxUlpdu`
    connection, settings : Out, number of the connection that is served; In, its :class:`.TxSettings`
    room, passable : In, 1 bit; a packet of ``connection`` does not stall; its ULPDUs pass the fence
    is_mpa : Out, 1 bit for each connection; it is in MPA mode: stream mode's octets have left, and the host knows
    state_of, state : In, number of a connection; Out, :class:`.DirectionState` of its transmit
    event : Out, stream of :class:`.NumberedEvent`; TX_MPA, and errors
    resets : In, 1 bit; begin no packet
    idle : Out, 1 bit; no packet is on its way, and no access of the host
    clear : In, :class:`.Clear`

    """

    class State(data.Struct):
        """The state of a connection's transmit."""

        passed: 32  # octets of stream mode
        left: 16  # octets of the packet that has begun

    def __init__(self, connections: int, lanes: int = 1):
        check_lanes(lanes)
        self.connections = connections
        self.lanes = lanes
        number, each = connection_shape(connections), connections
        super().__init__({
            "bus": In(paged_bus(connections)), "waits": Out(each), "has_ulpdu": Out(each),
            "words": In(Words(connections)),
            "passed": In(stream.Signature(RxUlpdu(lanes, connections))),
            "packets": Out(packet(lanes, connection=number)),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(lanes, connections))),
            "room": In(1), "passable": In(1),
            "connection": Out(number), "settings": In(TxSettings),
            "is_mpa": Out(each), "state_of": In(number), "state": Out(DirectionState),
            "event": Out(stream.Signature(NumberedEvent(connections))),
            "resets": In(1), "idle": Out(1), "clear": In(Clear(connections)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = RegisterBank(STREAM_MAP)
        page = Signal(connection_shape(self.connections))
        bus = self.bus
        accessing = Signal()
        m.d.sync += accessing.eq(bank.bus.request & ~bank.bus.ack)
        m.d.comb += [
            page.eq(bus.address[8:]),
            bank.bus.request.eq(bus.request & (accessing | ~(self.clear.now | (self.resets & self.idle)))),
            bank.bus.write.eq(bus.write),
            bank.bus.write_data.eq(bus.write_data),
            bank.bus.address.eq(bus.address[:8]),
            bus.ack.eq(bank.bus.ack),
            bus.read_data.eq(bank.bus.read_data),
        ]
        self._send(m, bank, page, accessing)
        self._receive(m, bank, page)
        return m

    def _send(self, m, bank, page, accessing):
        """Send packets of each connection in turn."""
        x = _Visit(m, self)
        m.submodules.entries = memory = Memory(shape=32, depth=_ENTRIES * self.connections, init=[])
        tails = self._enter(m, bank, page, memory.write_port(), x.heads)
        read = late_read(m, memory)  # an entry is used if it was there when the visit began
        m.d.comb += [
            self.connection.eq(x.at),
            self.state.eq(x.states.read(m, self.state_of)),
            self.event.payload.connection.eq(x.at),
            x.passes.eq(self.room & (~x.is_mpa | self.passable)),
            x.words.eq((x.state.left + 3)[2:]),
            read.addr.eq(Cat(x.head, x.at)),
        ]
        offered = self._offer(m, x, read.data)
        with m.FSM() as fsm:
            m.d.comb += [self.idle.eq(fsm.ongoing("Visit") & ~accessing), read.en.eq(~fsm.ongoing("Give"))]
            self._look(m, x, tails)
            self._begin(m, x, read.data)
            self._report(m, x)
            self._give(m, x, *offered)
            with m.State("Leave"):
                m.d.comb += x.leaves.eq(1)
                m.next = "Visit"
        forget(m, self.clear, self.is_mpa)
        x.rows.switch(m, following(x.at, self.connections), x.leaves, self.clear)

    def _enter(self, m, bank, page, write, heads):
        """The host writes entries: the length of a packet, then its words. Return the ends of the queues."""
        tail = Signal(range(_ENTRIES))
        tails = Cells(m, tail, self.connections, page, self.clear)
        used = Signal.like(tail)
        writes = Signal()
        m.d.comb += [
            used.eq(tail - heads.read(m, page)),
            # Each word may begin a packet.
            bank.STATE.room.eq((_ENTRIES - 2 - used)[1:]),
            writes.eq((bank.BEGIN.push | bank.WORD.push) & (used != _ENTRIES - 1)),
            write.addr.eq(Cat(tail, page)),
            write.data.eq(Mux(bank.BEGIN.push, bank.BEGIN.octets, bank.WORD.value)),
            write.en.eq(writes),
        ]
        with m.If(writes):
            tails.write(m, tail + 1)
        return tails

    def _look(self, m, x, tails):
        """Find what the connection can send. The word at the head of its queue is there one cycle later."""
        level = Signal.like(x.head)  # entries
        is_open = ~x.is_mpa & ~x.stopped
        with m.State("Visit"):
            m.d.sync += [
                level.eq(tails.read(m, x.at) - x.head),
                x.room.eq(self.settings.stream_octets - x.state.passed),
            ]
            with m.If(self.resets | self.clear.now):
                m.d.comb += x.leaves.eq(1)
            with m.Else():
                m.next = "Look"
        with m.State("Look"):
            with m.If(is_open):
                x.states.write(m, Mux(x.room == 0, DirectionState.WAITING, DirectionState.STREAM))
            m.d.sync += [
                x.enough.eq((level >= x.words) | (~x.is_mpa & (level >= _ENOUGH))),
                x.ends.eq(level >= x.words),
                x.count.eq(Mux(level >= x.words, x.words, level)),
            ]
            with m.If(x.state.left != 0):
                m.next = "Choose"
            with m.Elif(is_open & (x.room == 0) & self.settings.enable):
                self._raise(m, EventKind.TX_MPA)
            with m.Elif(level == 0):
                m.next = "Leave"
            with m.Else():
                m.next = "Begin"

    def _begin(self, m, x, entry):
        """Begin the next packet, or refuse it."""
        length = Signal(16)
        m.d.comb += length.eq(entry)
        with m.State("Begin"):
            m.next = "Leave"
            with m.If((length == 0) & x.is_mpa & ~x.stopped):
                with m.If(x.passes):
                    m.next = "Empty"
            with m.Else():
                x.heads.write(m, x.head + 1)
                m.d.sync += x.state.left.eq(length)
            with m.If(~x.stopped & Mux(x.is_mpa, length > LONGEST, length > x.room)):
                value = Mux(x.is_mpa, length, length - x.room)
                self._raise(m, EventKind.ERROR, value, Mux(x.is_mpa, Cause.TX_LENGTH, Cause.TX_STREAM))

    def _raise(self, m, kind, value=0, detail=0):
        event = self.event.payload
        m.d.sync += [event.kind.eq(kind), event.value.eq(value), event.detail.eq(detail), self.event.valid.eq(1)]
        m.next = "Report"

    def _report(self, m, x):
        """Offer the event until it is taken, then change the state of the connection."""
        with m.State("Report"), m.If(self.event.ready):
            m.d.sync += self.event.valid.eq(0)
            with m.If(self.event.payload.kind == EventKind.ERROR):
                x.states.write(m, DirectionState.STOPPED)
            with m.Else():
                x.states.write(m, DirectionState.MPA)
                m.d.sync += self.is_mpa.bit_select(x.at, 1).eq(1)
            m.next = "Leave"

    def _offer(self, m, x, word):
        """The beat of a word of the packet. Return whether it is complete, and whether the word is taken."""
        taken = Signal()
        beat, beat_octets, completes = self._assemble(m, word, x.octets, x.last, x.gives)
        m.d.comb += [
            x.last.eq(x.count == 1),
            x.octets.eq(Mux(x.last & x.ends & (x.state.left < 4), x.state.left, 4)),
            taken.eq(Mux(x.is_mpa, self.tx_ulpdu.ready, self.packets.ready) | x.stopped | ~completes),
            *(each.payload[name].eq(value) for each in (self.packets, self.tx_ulpdu) for name, value in (
                ("data", beat), ("octets", beat_octets), ("last", x.last), ("connection", x.at),
            )),
        ]  # fmt: skip
        return completes, taken

    def _give(self, m, x, completes, taken):
        """Send words of the packet that has begun, or discard them."""
        state, is_mpa, stopped, ulpdu = x.state, x.is_mpa, x.stopped, self.tx_ulpdu
        announced = Signal(16)  # length of the ULPDU, which is sent as a whole
        m.d.comb += ulpdu.payload.length.eq(announced)
        with m.State("Choose"):
            m.d.sync += announced.eq(state.left)
            m.next = "Leave"
            with m.If(Mux(stopped, x.count != 0, x.enough & x.passes)):
                m.next = "Give"
        with m.State("Give"):
            m.d.comb += [
                self.packets.valid.eq(~is_mpa & ~stopped & completes),
                ulpdu.valid.eq(is_mpa & ~stopped & completes),
            ]
            with m.If(taken):
                m.d.comb += x.gives.eq(1)
                x.heads.write(m, x.head + 1)
                m.d.sync += [
                    state.left.eq(state.left - x.octets),
                    state.passed.eq(Mux(is_mpa, state.passed, state.passed + x.octets)),
                    x.count.eq(x.count - 1),
                ]
                m.next = "Fetch"
                with m.If(x.last):
                    m.next = "Leave"
        with m.State("Fetch"):
            m.next = "Give"
        with m.State("Empty"):
            m.d.comb += [ulpdu.valid.eq(1), *(ulpdu.payload[name].eq(0) for name in ("length", "octets"))]
            m.d.comb += ulpdu.payload.last.eq(1)
            with m.If(ulpdu.ready):
                x.heads.write(m, x.head + 1)
                m.next = "Leave"

    def _assemble(self, m, word, octets, last, moves):
        """The beat that ends with ``word``, its octets, and whether it is complete; ``moves``: the word is taken."""
        if self.lanes == 1:
            return word, octets, Const(1)
        number = Signal(range(self.lanes))  # of the word
        before = Signal(32 * self.lanes, reset_less=True)  # words of the beat that have been taken
        completes = Signal()
        m.d.comb += completes.eq(last | number.all())
        with m.If(moves):
            m.d.sync += [number.eq(Mux(last, 0, number + 1)), before.word_select(number, 32).eq(word)]
        beat = Cat(Mux(number == n, word, before.word_select(n, 32)) for n in range(self.lanes))
        return beat, Cat(Const(0, 2), number) + octets, completes

    def _receive(self, m, bank, page):
        """Keep the one ULPDU that the engine passes to the host, as far as there is memory for it."""
        lanes = self.lanes
        lane_bits = (lanes - 1).bit_length()
        m.submodules.ulpdus = memory = Memory(shape=32 * lanes, depth=_WORDS // lanes * self.connections, init=[])
        write, read = memory.write_port(), late_read(m, memory)  # of a ULPDU that has been stored
        given, beat = self.passed, self.passed.payload
        connection = beat.connection
        place = Signal(range(_WORDS // lanes + 1))  # of the next beat
        finding = Signal(data.StructLayout({"octets": range(4 * _WORDS + 1), "verdict": Verdict}))
        entered = Value.cast(finding)
        before = Signal.like(entered, name="ulpdu")
        findings = Cells(m, before, self.connections, connection, self.clear)
        stores = Signal()
        cut = place == _WORDS // lanes
        m.d.comb += [
            given.ready.eq(1),
            stores.eq(given.valid & ~cut & ~self.has_ulpdu.bit_select(connection, 1)),
            write.addr.eq(Cat(place[:-1], connection)), write.data.eq(beat.data), write.en.eq(stores),
            finding.octets.eq(Mux(cut, 4 * _WORDS, Cat(Const(0, 2 + lane_bits), place) + beat.octets)),
            finding.verdict.eq(beat.verdict),
        ]  # fmt: skip
        with m.If(given.valid):
            m.d.sync += place.eq(Mux(beat.last, 0, Mux(cut, place, place + 1)))
            with m.If(beat.last & ~self.has_ulpdu.bit_select(connection, 1)):
                findings.write(m, entered)
                m.d.sync += self.has_ulpdu.bit_select(connection, 1).eq(1)
        self._show(m, bank, page, read, data.View(finding.shape(), findings.read(m, page)))
        forget(m, self.clear, self.has_ulpdu)

    def _show(self, m, bank, page, read, shown):
        """The host reads a word behind STATE, which announces it. ``shown``: what is known of the ULPDU."""
        lane_bits = (self.lanes - 1).bit_length()
        number = Signal(range(_WORDS))  # of the ULPDU's next word
        numbers = Cells(m, number, self.connections, page, self.clear)
        announced = Signal()
        all_announced = Cells(m, announced, self.connections, page, self.clear)
        left = Signal(range(4 * _WORDS + 1))  # octets of the ULPDU
        in_stream, has = self.words.full.bit_select(page, 1), self.has_ulpdu.bit_select(page, 1)
        state, pops = bank.STATE, Signal()
        lane = Signal(lane_bits)  # of the word that is read
        m.d.sync += lane.eq(number)
        m.d.comb += [
            self.waits.eq(self.words.full | self.has_ulpdu),
            self.words.connection.eq(page),
            read.addr.eq(Cat(number[lane_bits:], page)),
            left.eq(shown.octets - Cat(0, 0, number)),
            state.waits.eq(in_stream | has),
            state.last.eq(in_stream | (left <= 4)),
            state.octets.eq(Mux(in_stream, self.words.word.octets, Mux(left <= 4, left, 4))),
            state.verdict.eq(Mux(in_stream, Verdict.STREAM, shown.verdict)),
            pops.eq(bank.RECEIVED.pop & announced),
            bank.RECEIVED.value.eq(
                Mux(announced, Mux(in_stream, self.words.word.data, read.data.word_select(lane, 32)), 0)
            ),
            self.words.pop.eq((pops & in_stream) << page),
        ]
        with m.If(bank.RECEIVED.pop):
            all_announced.write(m, 0)
        with m.Elif(state.pop):
            all_announced.write(m, in_stream | has)
        with m.If(pops & ~in_stream):
            numbers.write(m, Mux(left <= 4, 0, number + 1))
            with m.If(left <= 4):
                m.d.sync += self.has_ulpdu.bit_select(page, 1).eq(0)


class _Visit:
    """The connection whose packets are sent, and how much it can send."""

    def __init__(self, m, streams: SharedStreams):
        self.rows = rows = Rows(streams.State, streams.connections)
        self.state, self.at = rows.state, rows.active
        now = Signal(2, name="state_now")
        self.states = Cells(m, now, streams.connections, rows.active, streams.clear)
        self.is_mpa = now == DirectionState.MPA
        self.stopped = now == DirectionState.STOPPED
        self.head = Signal(range(_ENTRIES))  # of its queue
        self.heads = Cells(m, self.head, streams.connections, rows.active, streams.clear)
        self.room = Signal(32)  # octets that may still pass in stream mode
        self.words = Signal(15)  # that are left of the packet
        self.count = Signal.like(self.head, name="count")  # words that are sent now
        self.ends = Signal()  # the packet ends with them
        self.enough = Signal()
        self.passes = Signal()  # what is sent now does not stall
        self.octets = Signal(3)  # of a word
        self.last = Signal()  # it is the last one of those that are sent now
        self.gives = Signal()  # it is given
        self.leaves = Signal()
