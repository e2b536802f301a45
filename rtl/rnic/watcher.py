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
from open_rnic.rtl.mpa.shared import Watched
from open_rnic.rtl.mpa.shared_streams import Word
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


class Watcher(wiring.Component):
    """Reads :class:`.ReceiveRings` for MPA, which processes whole FPDUs only, connection after connection.

    Octets of stream mode (RFC 5044 §7.1) go to the host, a word at a time. After them, the watcher looks at the first
    lane of each FPDU, and reads the FPDU when all of it is there. Of an FPDU over ``maximum``, MPA gets the first lane
    alone, and the rest of the stream is discarded. So MPA never waits for a peer, and no connection for another one.

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
    accept : In, 1 bit for each connection
        The host wants octets.
    watch : Out
    watched : In, :class:`.Watched`
        The settings of the connection ``watch``.
    unchecked : In, 1 bit
        FPDUs of it have been given, and not been checked: a Send waits for them.
    failed : In, 1 bit
        The octets of it are discarded.
    holds : In, 1 bit
        FPDUs of it with Sends wait, and all octets behind them.
    sends_waiting : Out, 1 bit for each connection
        A Send, of which all octets are there, waits because of ``holds`` alone.
    gives : Out, 1 bit
        A train of connection ``watch`` begins. For one cycle.
    gives_send : Out, 1 bit
        With ``gives``, it carries a Send that is not an RTR.
    stirs : In, 1 bit for each connection
        One of its inputs, or of its settings, has changed.
    clear : In, :class:`.Clear`
        The connection is in stream mode again, and no octet has passed. Only while ``idle``.
    trains : Out, stream of :class:`.Train`
        An FPDU each.
    enters : Out, stream of the number of a connection
        All octets of stream mode have passed: it enters MPA mode when this has been taken.
    state_of : In, the number of a connection
    state : Out, :class:`.DirectionState`
        The state of this connection.
    finished : Out, 1 bit for each connection
        All octets of the peer, up to its FIN, have been read.
    show : In
    octets : Out, 32 bits
        The number of octets of the connection ``show`` that have been read.
    word_of : In
    word : Out, ``data`` (32 bits) and ``octets`` (3 bits)
        The octets of stream mode of ``word_of``, if its bit of ``full`` is 1.
    full : Out, 1 bit for each connection
    pop : In, 1 bit for each connection
        The host has read the word.
    idle : Out, 1 bit
        No octet is on its way.

    """

    class State(data.Struct):
        """The state of a connection."""

        lost: 1  # the FPDU that is too long has been given: no other can be found
        begun: 1  # an FPDU has been given
        place: 7  # of the next FPDU's first lane

    def __init__(self, connections: int, size: int, lanes: int = 1):
        check_lanes(lanes)
        self.connections = connections
        self.size = size
        self.lanes = lanes
        index = connection_shape(connections)
        each = connections
        super().__init__({
            "rings": In(shown_octets(connections, size, Tag(connections), lanes)),
            "accept": In(each), "watch": Out(index), "watched": In(Watched), "unchecked": In(1),
            "failed": In(1), "holds": In(1), "stirs": In(each), "clear": In(Clear(connections)),
            "sends_waiting": Out(each), "gives": Out(1), "gives_send": Out(1),
            "trains": Out(stream.Signature(Train(lanes, connections))),
            "enters": Out(stream.Signature(index)), "state_of": In(index), "state": Out(DirectionState),
            "finished": Out(each),
            "show": In(index), "octets": Out(32),
            "word_of": In(index), "word": Out(Word), "full": Out(each), "pop": In(each),
            "idle": Out(1),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self, m)
        self._count(m, x)
        self._give(m, x)
        self._choose(m, x)
        self._visit(m, x)
        x.rows.switch(m, x.next, x.leaves, self.clear)
        return m

    def _count(self, m, x):
        """Count the octets that are read."""
        asked = self.rings.reads
        m.d.comb += self.octets.eq(x.counts.read(m, self.show))
        with m.If(asked.valid & asked.ready & ~asked.payload.keeps):
            x.counts.write(m, x.passed + asked.payload.octets)

    def _give(self, m, x):
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
            word.addr.eq(self.word_of),
            self.word.eq(word.data),
            lane.addr.eq(x.at),
            x.lane.eq(lane.data),
        ]
        m.d.sync += [
            self.full.eq(self.full & ~self.pop | (streams << tag.connection)),
            x.wakes.eq((x.wakes & ~(x.leaves << x.next)) | (looks << tag.connection) | self.pop | self.stirs
                       | self.rings.changes | (x.stays << x.at)),
        ]
        came = Signal(2)  # first lanes and words for the host, modulo 2
        all_came = Cells(m, came, self.connections, tag.connection, self.clear)
        with m.If(looks | streams):
            all_came.write(m, came ^ Cat(looks, streams))
        looks_came, words_came = all_came.read(m, x.at)
        m.d.comb += [
            x.known.eq(looks_came != x.asked.used),
            x.looks.eq(x.asked.looks != x.asked.used),
            x.filling.eq(x.asked.words != words_came),
        ]
        forget(m, self.clear, self.full)
        outstanding = Signal(7)  # reads: a word each, at least, of those that a reader is ahead
        asked = self.rings.reads
        count_up_down(m, outstanding, asked.valid & asked.ready, read.valid & read.ready & read.payload.last)
        m.d.comb += [x.quiet.eq(outstanding == 0), self.idle.eq(x.quiet & ~x.decides)]

    def _choose(self, m, x):
        """The next connection: in turn, among those in which something has happened, if there is one."""
        m.d.comb += x.next.eq(Mux(x.at == self.connections - 1, 0, x.at + 1))
        for beyond in (0, 1):
            for n in reversed(range(self.connections)):
                with m.If(x.wakes[n] & ((x.at < n) if beyond else 1)):
                    m.d.comb += x.next.eq(n)

    def _visit(self, m, x):
        """Visit a connection, and read what it has."""
        rings, state = self.rings, x.rows.state
        asked, tag = rings.reads.payload, rings.reads.payload.tag

        def mine(bits):
            return bits.bit_select(x.at, 1)

        available = Signal.like(rings.available, name="seen")
        settings = Signal(Watched)
        room = Signal(32)
        known = Signal()  # the first lane of the FPDU, of which the following are
        announced = Signal(16)  # its ULPDU_Length
        sends = Signal()  # the FPDU carries a Send that is not an RTR
        unchecked = Signal()
        waits_for_buffer = Signal()
        too_long = Signal()
        leads = Signal()  # a marker precedes ULPDU_Length
        is_mpa = Signal()
        lanes = Signal(15)  # of the FPDU, with markers
        left = Signal(15)  # lanes behind the last marker that has been counted
        gap = Signal(8)  # lanes before the next marker
        beyond = Signal(signed(16))  # lanes behind it
        kind = Signal(_Kind)  # of the read
        few = Signal(4)  # octets of a read that is neither of a whole FPDU nor of all that there is; or 0
        ahead = Signal()  # the first lane of the FPDU behind the one that is given is read
        next_place = Signal(7)
        has_all = Signal()
        next_leads = Signal()
        next_lane = Signal(16)  # the first one of the FPDU behind this one, without the marker before it
        has_next = Signal()  # the first lane of the FPDU behind it is there, too
        first = Signal(4)  # octets up to the end of the FPDU's first lane
        some = Signal(3)  # ``available``, but at most 4
        some_room = Signal(3)  # ``room``, but at most 4
        m.d.comb += [
            beyond.eq(left - gap),
            some.eq(Mux(available[2:].any(), 4, available[:2])),
            some_room.eq(Mux(room[2:].any(), 4, room[:2])),
            rings.look_at.eq(x.at),
            is_mpa.eq(x.state == DirectionState.MPA),
            self.state.eq(x.states.read(m, self.state_of)),
            self.enters.payload.eq(x.at),
            self.watch.eq(x.at),
            tag.connection.eq(x.at),
            announced.eq(swap_octets(x.lane[:16])),
            next_place.eq(state.place + lanes),
            next_leads.eq(settings.markers & (next_place == 0)),
            next_lane.eq(lanes + next_leads),
            has_all.eq(available[2:] >= lanes),
            has_next.eq(available[2:] > next_lane),
            leads.eq(settings.markers & (state.place == 0)),
            first.eq(Mux(leads, 8, 4)),
        ]
        with m.FSM() as fsm:
            m.d.comb += x.decides.eq(
                fsm.ongoing("Mark") | fsm.ongoing("Decide") | fsm.ongoing("Enter") | fsm.ongoing("Read")
            )
            with m.State("Load"):
                m.d.sync += [
                    available.eq(rings.available),
                    settings.eq(self.watched),
                    room.eq(self.watched.stream_octets - x.passed),
                    known.eq(x.known),
                    sends.eq(~x.lane[23] & x.lane[24:28].matches(*SENDS) & (announced >= UNTAGGED_OCTETS)
                             & ~(self.watched.rtr_send & ~state.begun & (announced == UNTAGGED_OCTETS))),
                    unchecked.eq(self.unchecked),
                    too_long.eq((announced > self.watched.maximum) | (announced > self.size - 64)),
                    lanes.eq((announced + 2 + 3 + 4)[2:]),
                    left.eq((announced + 2 + 3 + 4)[2:]),
                    gap.eq(Mux(state.place == 0, 0, INTERVAL - state.place)),
                ]
                with m.If(~mine(self.accept) | rings.begins | self.clear.now):
                    m.d.comb += x.leaves.eq(1)
                with m.Elif(is_mpa & self.watched.markers & x.known):
                    m.next = "Mark"
                with m.Else():
                    m.next = "Decide"
            with m.State("Mark"):  # RFC 5044 §4.3: a marker precedes each lane with these numbers
                with m.If(beyond > 0):
                    m.d.sync += [lanes.eq(lanes + 1), left.eq(beyond), gap.eq(INTERVAL - 1)]
                with m.Else():
                    m.next = "Decide"
            with m.State("Decide"):
                m.next = "Leave"
                m.d.sync += [
                    tag.place.eq(state.place),
                    self.sends_waiting.bit_select(x.at, 1).eq(waits_for_buffer),
                ]
                done = mine(rings.ended) & (available == 0)
                m.d.sync += self.finished.bit_select(x.at, 1).eq(done & x.quiet & ~mine(self.full))
                m.d.comb += x.stays.eq(done & ~mine(self.finished))
                with m.If(rings.begins):
                    pass
                with m.Elif(state.lost | self.failed):
                    m.d.comb += kind.eq(_Kind.DISCARD)
                    with m.If(available != 0):
                        m.next = "Read"
                with m.Elif(~is_mpa & (room == 0)):
                    x.states.write(m, DirectionState.WAITING)
                    with m.If(settings.enable):
                        m.next = "Enter"
                with m.Elif(~is_mpa):
                    x.states.write(m, DirectionState.STREAM)
                    m.d.comb += [kind.eq(_Kind.STREAM), few.eq(Mux(some < some_room, some, some_room))]
                    with m.If((available != 0) & ~mine(self.full) & ~x.filling):
                        m.next = "Read"
                with m.Elif(~known):
                    m.d.comb += [kind.eq(_Kind.LOOK), few.eq(4)]
                    with m.If(~x.looks & (available >= first)):
                        m.next = "Read"
                with m.Elif(too_long):
                    m.d.comb += [kind.eq(_Kind.TRAIN), few.eq(first)]
                    m.d.sync += state.lost.eq(1)
                    m.next = "Read"
                with m.Elif(has_all & sends & (self.holds | unchecked)):
                    m.d.comb += waits_for_buffer.eq(~unchecked)
                with m.Elif(has_all):
                    x.all_asked.write(m, Cat(x.asked.looks, x.asked.words, ~x.asked.used))
                    m.d.sync += [state.place.eq(next_place), state.begun.eq(1)]
                    m.next = "Read"
                    with m.If(has_next):  # it is looked at before this FPDU is read, which takes longer
                        m.d.sync += x.then_reads.eq(1)
                        m.d.comb += [kind.eq(_Kind.LOOK), few.eq(4), ahead.eq(1)]
                    with m.Else():
                        m.d.comb += kind.eq(_Kind.TRAIN)
            with m.State("Enter"):
                m.d.comb += [self.enters.valid.eq(1), x.stays.eq(1)]
                with m.If(self.enters.ready):
                    x.states.write(m, DirectionState.MPA)
                    m.d.sync += state.place.eq(settings.start)
                    m.next = "Leave"
            with m.State("Read"):
                m.d.comb += rings.reads.valid.eq(~rings.begins)
                moves = Signal()
                m.d.comb += [
                    moves.eq(rings.reads.valid & rings.reads.ready),
                    self.gives.eq(moves & (tag.kind == _Kind.TRAIN)),
                    self.gives_send.eq(sends),
                ]
                with m.If(moves):
                    x.all_asked.write(m, Cat(
                        x.asked.looks ^ asked.keeps, x.asked.words ^ (tag.kind == _Kind.STREAM), x.asked.used
                    ))  # fmt: skip
                m.d.comb += kind.eq(_Kind.TRAIN)
                with m.If(moves & x.then_reads):
                    m.d.sync += x.then_reads.eq(0)
                with m.Elif(moves | rings.begins):
                    m.d.sync += x.then_reads.eq(0)
                    m.d.comb += x.leaves.eq(1)
                    m.next = "Load"
            with m.State("Leave"):
                m.d.comb += x.leaves.eq(1)
                m.next = "Load"
        forget(m, self.clear, self.sends_waiting, self.finished)
        # The read that follows, once one is decided, or the one before is taken.
        asked = rings.reads.payload
        with m.If(~rings.reads.valid | rings.reads.ready):
            m.d.sync += [
                asked.octets.eq(Mux(few != 0, few, Mux(kind == _Kind.DISCARD, available, Cat(Const(0, 2), lanes)))),
                asked.offset.eq(Cat(Const(0, 2), Mux(ahead, next_lane, (kind == _Kind.LOOK) & leads))),
                asked.keeps.eq(kind == _Kind.LOOK),
                asked.tag.kind.eq(kind),
            ]


class _Parts:
    """The signals that the parts of a :class:`Watcher` share."""

    class Asked(data.Struct):
        """What has been asked for, and the first lanes that have been used."""

        looks: 1
        words: 1
        used: 1

    def __init__(self, watcher: Watcher, m: Module):
        each = watcher.connections
        self.rows = Rows(watcher.State, each)
        self.at = self.rows.active  # the connection that is visited
        self.next = Signal.like(self.at)
        self.leaves = Signal()  # ``next`` is visited now
        self.stays = Signal()  # it is visited again
        self.quiet = Signal()  # no octet is on its way
        self.decides = Signal()  # a read may begin

        self.passed = Signal(32)  # octets of the connection that have been read
        self.state = Signal(2)
        self.counts, self.states = (
            Cells(m, number, each, self.at, watcher.clear) for number in (self.passed, self.state)
        )
        self.lane = Signal(32)  # the first lane of its FPDU, if ``known``

        # Of the connection: numbers of first lanes and words for the host, modulo 2.
        self.asked = Signal(self.Asked)
        self.all_asked = Cells(m, Value.cast(self.asked), each, self.at, watcher.clear)
        self.known = Signal()  # the first lane of its FPDU has come
        self.looks = Signal()  # it has, or is on its way
        self.filling = Signal()  # a word for the host is on its way

        self.wakes = Signal(each)  # a bit for each connection: a visit may find something to do
        self.then_reads = Signal()  # the FPDU is read behind the first lane of the next one
