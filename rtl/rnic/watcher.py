"""Between the rings of TCP and MPA: whole FPDUs for MPA, the octets before them for the host."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import INTERVAL, Train
from open_rnic.rtl.formats.opcodes import SENDS, UNTAGGED_OCTETS
from open_rnic.rtl.lib.counter import count_up_down
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.lib.rows import Cells, Clear, Rows, connection_shape, forget
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.lib.turns import following
from open_rnic.rtl.mpa.shared_mpa import RxSettings
from open_rnic.rtl.mpa.shared_streams import Word, Words
from open_rnic.rtl.registers import DirectionState
from open_rnic.rtl.tcp.receive_ring import shown_octets

__all__ = ["Tag", "Watcher"]


class _Kind(enum.Enum, shape=2):
    """The use of octets that are read."""

    LOOK = 0  # the first lane of an FPDU, which stays in the ring
    TRAIN = 1
    STREAM = 2
    DISCARD = 3


class Tag(data.StructLayout):
    """A read, behind the rings: ``place`` belongs to a train."""

    def __init__(self, connections: int):
        super().__init__({"kind": _Kind, "connection": connection_shape(connections), "place": range(INTERVAL)})


class _Seen(data.StructLayout):
    """What a visit has found: octets and settings, and of an FPDU whose first lane is ``known``, what decides on it.

    ``room`` is for octets of stream mode. The FPDU is ``too_long``, or ``sends`` a Send that is not an RTR.
    """

    def __init__(self, bits: int):
        super().__init__({
            "available": bits, "settings": RxSettings, "room": 32,
            "known": 1, "sends": 1, "unchecked": 1, "too_long": 1,
        })  # fmt: skip


class Watch(wiring.Signature):
    """A connection, and the state that decides on its octets.

    Members
    -------
    connection : Out
    settings : In, :class:`.RxSettings`
    unchecked : In, 1 bit
        FPDUs of it have been given, and not been checked: a Send waits for them.
    failed : In, 1 bit
        The octets of it are discarded.
    holds : In, 1 bit
        FPDUs of it with Sends wait, and all octets behind them.
    """

    def __init__(self, connections: int):
        flags = dict.fromkeys(("unchecked", "failed", "holds"), In(1))
        super().__init__({"connection": Out(connection_shape(connections)), "settings": In(RxSettings), **flags})


class Watcher(wiring.Component):
    """Reads :class:`.ReceiveRings` for MPA, which processes whole FPDUs only, connection after connection.

    Octets of stream mode (RFC 5044 §7.1) go to the host, a word at a time. After them, the watcher looks at the first
    lane of each FPDU, and reads the FPDU when all of it is there, so MPA never waits for a peer. Of an FPDU over
    ``maximum``, MPA gets the first lane alone, and the rest of the stream is discarded.

    Throughput: an FPDU of 6 beats and more takes as many cycles as it has beats, and up to 3 more: to look at the one
    behind it, and because it may begin inside a word.

    Parameters
    ----------
    connections : number of connections
    size : octets of a ring
    lanes : width of the rings' words and of trains in 32-bit lanes

    Members
    -------
    rings : In, :func:`.shown_octets` with :class:`Tag`
    accept : In, 1 bit for each connection; the host wants octets
    watch : Out, :class:`Watch`; the connection whose octets are looked at
    sends_waiting : Out, 1 bit for each connection; a whole Send waits because of ``watch.holds`` alone
    gives : Out, 1 bit; a train of ``watch.connection`` begins. For one cycle
    gives_send : Out, 1 bit; with ``gives``, it carries a Send that is not an RTR
    changed : In, 1 bit for each connection; one of its inputs, or of its settings, has changed
    clear : In, :class:`.Clear`; stream mode begins anew. Only while ``idle``
    trains : Out, stream of :class:`.Train`; an FPDU each
    enters : Out, stream of a connection's number; it enters MPA mode when this has been taken
    state_of, state : In, number of a connection; Out, its :class:`.DirectionState`
    finished : Out, 1 bit for each connection; all octets of the peer, up to its FIN, have been read
    show, octets : In, number of a connection; Out, 32 bits, how many octets of it have been read
    words : Out, :class:`.Words`
    idle : Out, 1 bit; no octet is on its way

    """

    class State(data.Struct):
        """The state of a connection."""

        lost: 1  # the FPDU that is too long has been given: no other can be found
        begun: 1  # an FPDU has been given
        place: 7  # of the next FPDU's first lane

    class Asked(data.Struct):
        """What has been asked for, and the first lanes that have been used.

        Numbers of first lanes and words for the host, modulo 2.
        """

        looks: 1
        words: 1
        used: 1

    def __init__(self, connections: int, size: int, lanes: int = 1):
        check_lanes(lanes)
        self.connections = connections
        self.size = size
        self.lanes = lanes
        index = connection_shape(connections)
        each = connections
        super().__init__({
            "rings": In(shown_octets(connections, size, Tag(connections), lanes)),
            "accept": In(each), "watch": Out(Watch(connections)), "changed": In(each), "clear": In(Clear(connections)),
            "sends_waiting": Out(each), "gives": Out(1), "gives_send": Out(1),
            "trains": Out(stream.Signature(Train(lanes, connections))),
            "enters": Out(stream.Signature(index)), "state_of": In(index), "state": Out(DirectionState),
            "finished": Out(each),
            "show": In(index), "octets": Out(32),
            "words": Out(Words(connections)),
            "idle": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        self._declare(m)
        self._count(m)
        self._give(m)
        self._choose(m)
        self._visit(m)
        self._rows.switch(m, self._next, self._leaves, self.clear)
        return m

    def _declare(self, m):
        """Declare the state of the connections, and the signals of the one that is visited."""
        each = self.connections
        self._rows = Rows(self.State, each)
        self._at = self._rows.active  # the connection that is visited
        self._next = Signal.like(self._at, name="next")
        self._leaves = Signal(name="leaves")  # ``next`` is visited now
        self._stays = Signal(name="stays")  # it is visited again
        self._quiet = Signal(name="quiet")  # no octet is on its way
        self._decides = Signal(name="decides")  # a read may begin
        self._wakes = Signal(each, name="wakes")  # a bit for each connection: a visit may find something to do

        self._passed = Signal(32, name="passed")  # octets of the connection that have been read
        self._state = Signal(2, name="direction_state")
        self._counts, self._states = (
            Cells(m, number, each, self._at, self.clear) for number in (self._passed, self._state)
        )
        self._lane = Signal(32, name="lane")  # the first lane of its FPDU, if ``known``
        self._asked = Signal(self.Asked, name="asked")
        self._all_asked = Cells(m, Value.cast(self._asked), each, self._at, self.clear)
        self._known = Signal(name="known")  # the first lane of its FPDU has come
        self._looks = Signal(name="looks_due")  # it has, or is on its way
        self._filling = Signal(name="filling")  # a word for the host is on its way

        # Of the visit.
        self._seen = Signal(_Seen(len(self.rings.available)), name="seen")
        self._lanes = Signal(15, name="lanes_of_fpdu")  # with markers
        self._kind = Signal(_Kind, name="kind")  # of the read
        self._few = Signal(4, name="few")  # octets of a read that is neither a whole FPDU nor all that there is; or 0
        self._ahead = Signal(name="ahead")  # the first lane of the FPDU behind the one that is given is read
        self._waits_for_buffer = Signal(name="waits_for_buffer")  # for nothing else
        self._then_reads = Signal(name="then_reads")  # and then this FPDU is

    def _count(self, m):
        """Count the octets that are read."""
        asked = self.rings.reads
        m.d.comb += self.octets.eq(self._counts.read(m, self.show))
        with m.If(asked.valid & asked.ready & ~asked.payload.keeps):
            self._counts.write(m, self._passed + asked.payload.octets)

    def _give(self, m):
        """Give the octets that have been read to MPA, to the host, or to nobody; keep the first lanes of FPDUs."""
        m.submodules.words = words = Memory(shape=Word, depth=self.connections, init=[])
        m.submodules.lanes = lanes = Memory(shape=32, depth=self.connections, init=[])
        read, tag = self.rings.o, self.rings.o.payload.tag
        write_word, word = words.write_port(), words.read_port(domain="comb")
        write_lane, lane = lanes.write_port(), lanes.read_port(domain="comb")
        looks, streams = (Signal(name=name) for name in ("looks", "streams"))  # an octet of this kind has come
        m.d.comb += [
            looks.eq(read.valid & (tag.kind == _Kind.LOOK)),
            streams.eq(read.valid & (tag.kind == _Kind.STREAM)),
            self.trains.valid.eq(read.valid & (tag.kind == _Kind.TRAIN)),
            read.ready.eq(self.trains.ready | (tag.kind != _Kind.TRAIN)),
            *(self.trains.payload[name].eq(read.payload[name]) for name in ("data", "octets", "last")),
            *(self.trains.payload[name].eq(tag[name]) for name in ("connection", "place")),
            *(port.addr.eq(tag.connection) for port in (write_word, write_lane)),
            write_word.data.data.eq(read.payload.data[:32]),
            write_word.data.octets.eq(read.payload.octets),
            write_word.en.eq(streams),
            write_lane.data.eq(read.payload.data[:32]),
            write_lane.en.eq(looks),
            word.addr.eq(self.words.connection),
            self.words.word.eq(word.data),
            lane.addr.eq(self._at),
            self._lane.eq(lane.data),
        ]
        m.d.sync += [
            self.words.full.eq(self.words.full & ~self.words.pop | (streams << tag.connection)),
            self._wakes.eq((self._wakes & ~(self._leaves << self._next)) | (looks << tag.connection) | self.words.pop
                           | self.changed | self.rings.changes | (self._stays << self._at)),
        ]
        came = Signal(2)  # first lanes and words for the host, modulo 2
        all_came = Cells(m, came, self.connections, tag.connection, self.clear)
        with m.If(looks | streams):
            all_came.write(m, came ^ Cat(looks, streams))
        looks_came, words_came = all_came.read(m, self._at)
        m.d.comb += [
            self._known.eq(looks_came != self._asked.used),
            self._looks.eq(self._asked.looks != self._asked.used),
            self._filling.eq(self._asked.words != words_came),
        ]
        forget(m, self.clear, self.words.full)
        outstanding = Signal(7)  # reads: a word each, at least, of those that a reader is ahead
        asked = self.rings.reads
        count_up_down(m, outstanding, asked.valid & asked.ready, read.valid & read.ready & read.payload.last)
        m.d.comb += [self._quiet.eq(outstanding == 0), self.idle.eq(self._quiet & ~self._decides)]

    def _choose(self, m):
        """The next connection: in turn, among those in which something has happened, if there is one."""
        m.d.comb += self._next.eq(following(self._at, self.connections))
        for beyond in (0, 1):
            for n in reversed(range(self.connections)):
                with m.If(self._wakes[n] & ((self._at < n) if beyond else 1)):
                    m.d.comb += self._next.eq(n)

    def _mine(self, bits):
        """The bit of the connection that is visited."""
        return bits.bit_select(self._at, 1)

    def _visit(self, m):
        """Visit a connection, and read what it has."""
        m.d.comb += [
            self.rings.look_at.eq(self._at),
            self.state.eq(self._states.read(m, self.state_of)),
            self.enters.payload.eq(self._at),
            self.watch.connection.eq(self._at),
            self.rings.reads.payload.tag.connection.eq(self._at),
        ]
        first, has_all, has_next, next_place = self._measure(m)
        some = self._few_octets(m)
        with m.FSM() as fsm:
            m.d.comb += self._decides.eq(
                fsm.ongoing("Mark") | fsm.ongoing("Decide") | fsm.ongoing("Enter") | fsm.ongoing("Read")
            )
            self._see(m)
            with m.State("Decide"):
                m.next = "Leave"
                self._finish(m)
                self._decide(m, first, some)
                with m.Else():
                    self._give_fpdu(m, first, has_all, has_next, next_place)
            self._enter(m)
            self._read(m)
            with m.State("Leave"):
                m.d.comb += self._leaves.eq(1)
                m.next = "Load"
        forget(m, self.clear, self.sends_waiting, self.finished)

    def _measure(self, m):
        """Measure the FPDU, and ask for the read that is decided, as soon as the one before is taken.

        Return the octets up to the end of its first lane, whether all of it is there, whether the first lane of the
        next one is, and the place of that lane.
        """
        seen, lanes, place = self._seen, self._lanes, self._rows.state.place
        leads = Signal()  # a marker precedes ULPDU_Length
        first = Signal(4)
        has_all = Signal()
        has_next = Signal()
        next_place = Signal(7)
        next_leads = Signal()
        next_lane = Signal(16)  # without the marker before it
        m.d.comb += [
            next_place.eq(place + lanes),
            next_leads.eq(seen.settings.markers & (next_place == 0)),
            next_lane.eq(lanes + next_leads),
            has_all.eq(seen.available[2:] >= lanes),
            has_next.eq(seen.available[2:] > next_lane),
            leads.eq(seen.settings.markers & (place == 0)),
            first.eq(Mux(leads, 8, 4)),
        ]
        asked, kind, few = self.rings.reads.payload, self._kind, self._few
        all_octets = Mux(kind == _Kind.DISCARD, seen.available, Cat(Const(0, 2), lanes))
        with m.If(~self.rings.reads.valid | self.rings.reads.ready):
            m.d.sync += [
                asked.octets.eq(Mux(few != 0, few, all_octets)),
                asked.offset.eq(Cat(Const(0, 2), Mux(self._ahead, next_lane, (kind == _Kind.LOOK) & leads))),
                asked.keeps.eq(kind == _Kind.LOOK),
                asked.tag.kind.eq(kind),
            ]
        return first, has_all, has_next, next_place

    def _few_octets(self, m):
        """Return the octets of stream mode that can be read: those that are there, as far as they fit, at most 4."""
        available, room = self._seen.available, self._seen.room
        some = Signal(3)
        some_room = Signal(3)
        m.d.comb += [
            some.eq(Mux(available[2:].any(), 4, available[:2])),
            some_room.eq(Mux(room[2:].any(), 4, room[:2])),
        ]
        return Mux(some < some_room, some, some_room)

    def _see(self, m):
        """Load what the visit decides on, and count the lanes of the FPDU."""
        rings, watched, seen, lane, state = self.rings, self.watch.settings, self._seen, self._lane, self._rows.state
        lanes = self._lanes
        announced = Signal(16)  # ULPDU_Length
        left = Signal(15)  # lanes behind the last marker that has been counted
        gap = Signal(8)  # lanes before the next marker
        beyond = Signal(signed(16))  # lanes behind it
        m.d.comb += [announced.eq(swap_octets(lane[:16])), beyond.eq(left - gap)]
        is_rtr = watched.rtr_send & ~state.begun & (announced == UNTAGGED_OCTETS)
        with m.State("Load"):
            m.d.sync += [
                seen.available.eq(rings.available),
                seen.settings.eq(watched),
                seen.room.eq(watched.stream_octets - self._passed),
                seen.known.eq(self._known),
                seen.sends.eq(~lane[23] & lane[24:28].matches(*SENDS) & (announced >= UNTAGGED_OCTETS) & ~is_rtr),
                seen.unchecked.eq(self.watch.unchecked),
                seen.too_long.eq((announced > watched.maximum) | (announced > self.size - 64)),
                lanes.eq((announced + 2 + 3 + 4)[2:]),
                left.eq((announced + 2 + 3 + 4)[2:]),
                gap.eq(Mux(state.place == 0, 0, INTERVAL - state.place)),
            ]
            with m.If(~self._mine(self.accept) | rings.begins | self.clear.now):
                m.d.comb += self._leaves.eq(1)
            with m.Elif((self._state == DirectionState.MPA) & watched.markers & self._known):
                m.next = "Mark"
            with m.Else():
                m.next = "Decide"
        with m.State("Mark"):  # RFC 5044 §4.3: a marker precedes each lane with these numbers
            with m.If(beyond > 0):
                m.d.sync += [lanes.eq(lanes + 1), left.eq(beyond), gap.eq(INTERVAL - 1)]
            with m.Else():
                m.next = "Decide"

    def _finish(self, m):
        """Report that all octets have been read, and that a Send waits for its buffer."""
        done = self._mine(self.rings.ended) & (self._seen.available == 0)
        m.d.comb += self._stays.eq(done & ~self._mine(self.finished))
        m.d.sync += [
            self.rings.reads.payload.tag.place.eq(self._rows.state.place),
            self._mine(self.sends_waiting).eq(self._waits_for_buffer),
            self._mine(self.finished).eq(done & self._quiet & ~self._mine(self.words.full)),
        ]

    def _decide(self, m, first, some):
        """Decide on a read, of anything but an FPDU whose first lane is known."""
        seen, kind, few = self._seen, self._kind, self._few
        is_mpa = self._state == DirectionState.MPA
        with m.If(self.rings.begins):
            pass
        with m.Elif(self._rows.state.lost | self.watch.failed):
            m.d.comb += kind.eq(_Kind.DISCARD)
            with m.If(seen.available != 0):
                m.next = "Read"
        with m.Elif(~is_mpa & (seen.room == 0)):
            self._states.write(m, DirectionState.WAITING)
            with m.If(seen.settings.enable):
                m.next = "Enter"
        with m.Elif(~is_mpa):
            self._states.write(m, DirectionState.STREAM)
            m.d.comb += [kind.eq(_Kind.STREAM), few.eq(some)]
            with m.If((seen.available != 0) & ~self._mine(self.words.full) & ~self._filling):
                m.next = "Read"
        with m.Elif(~seen.known):
            m.d.comb += [kind.eq(_Kind.LOOK), few.eq(4)]
            with m.If(~self._looks & (seen.available >= first)):
                m.next = "Read"

    def _give_fpdu(self, m, first, has_all, has_next, next_place):
        """Read the FPDU. The one behind it is looked at before, as this takes longer."""
        seen, state = self._seen, self._rows.state
        with m.If(seen.too_long):
            m.d.comb += [self._kind.eq(_Kind.TRAIN), self._few.eq(first)]
            m.d.sync += state.lost.eq(1)
            m.next = "Read"
        with m.Elif(has_all & seen.sends & (self.watch.holds | seen.unchecked)):
            m.d.comb += self._waits_for_buffer.eq(~seen.unchecked)
        with m.Elif(has_all):
            self._all_asked.write(m, Cat(self._asked.looks, self._asked.words, ~self._asked.used))
            m.d.sync += [state.place.eq(next_place), state.begun.eq(1)]
            m.next = "Read"
            with m.If(has_next):
                m.d.sync += self._then_reads.eq(1)
                m.d.comb += [self._kind.eq(_Kind.LOOK), self._few.eq(4), self._ahead.eq(1)]
            with m.Else():
                m.d.comb += self._kind.eq(_Kind.TRAIN)

    def _enter(self, m):
        """The connection enters MPA mode."""
        with m.State("Enter"):
            m.d.comb += [self.enters.valid.eq(1), self._stays.eq(1)]
            with m.If(self.enters.ready):
                self._states.write(m, DirectionState.MPA)
                m.d.sync += self._rows.state.place.eq(self._seen.settings.start)
                m.next = "Leave"

    def _read(self, m):
        """The read is taken."""
        reads, asked = self.rings.reads, self._asked
        tag = reads.payload.tag
        moves = Signal()
        with m.State("Read"):
            m.d.comb += [
                reads.valid.eq(~self.rings.begins),
                moves.eq(reads.valid & reads.ready),
                self.gives.eq(moves & (tag.kind == _Kind.TRAIN)),
                self.gives_send.eq(self._seen.sends),
                self._kind.eq(_Kind.TRAIN),
            ]
            with m.If(moves):
                self._all_asked.write(m, Cat(
                    asked.looks ^ reads.payload.keeps, asked.words ^ (tag.kind == _Kind.STREAM), asked.used
                ))  # fmt: skip
            with m.If(moves & self._then_reads):
                m.d.sync += self._then_reads.eq(0)
            with m.Elif(moves | self.rings.begins):
                m.d.sync += self._then_reads.eq(0)
                m.d.comb += self._leaves.eq(1)
                m.next = "Load"
