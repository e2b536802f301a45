"""The TCP engine: all connections of an address, between segments and octets in order (RFC 9293)."""

from itertools import pairwise

from amaranth.hdl import Cat, Module, Mux, ShapeLike, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out, connect, flipped

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.rows import connection_shape
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.lib.turns import Turns, number
from open_rnic.rtl.net.cut_through import CutThrough
from open_rnic.rtl.sequencer.isa import ADDRESSES, PORTS, SCRATCH
from open_rnic.rtl.sequencer.sequencer import Sequencer
from open_rnic.rtl.tcp.builder import Builder
from open_rnic.rtl.tcp.config import EngineConfig
from open_rnic.rtl.tcp.loader import Loader
from open_rnic.rtl.tcp.microcode import tcp_program
from open_rnic.rtl.tcp.pieces import Pieces
from open_rnic.rtl.tcp.receive_ring import ReceiveRings, shown_octets
from open_rnic.rtl.tcp.ring_memory import ring_members
from open_rnic.rtl.tcp.send_ring import SendRings
from open_rnic.rtl.tcp.tuples import Tuples
from open_rnic.rtl.tcp.words import Command, State, port, t

__all__ = ["CommandLayout", "ConnectionView", "TcpEngine"]

HEADER = 20  # octets of a header without options


class CommandLayout(data.StructLayout):
    """A command of the host: ``kind`` is a :class:`.Command`; ``iss`` is the initial sequence number.

    ``ports`` has the port of this end in its upper half. To listen, ``address`` and the lower half are 0.
    """

    def __init__(self, connections: int):
        super().__init__({
            "kind": Command, "connection": connection_shape(connections), "ports": 32, "address": 32, "iss": 32,
        })  # fmt: skip


class ConnectionView(wiring.Signature):
    """What is shown of a connection, from the side that looks.

    Members
    -------
    show : Out
        The number of the connection.
    status : In, 16 bits
        Its :class:`.State`, or with CLOSED the :class:`.Reason`.
    peer : In, 32 bits
        The peer's address.
    ports : In, 32 bits
        The port of this end in the upper half, and that of the peer.
    """

    def __init__(self, connections: int):
        super().__init__({
            "show": Out(connection_shape(connections)), "status": In(16), "peer": In(32), "ports": In(32),
        })  # fmt: skip


class TcpEngine(wiring.Component):
    """TCP for ``connections`` connections: 1, 2, 4, 8, 16, 32 or 64.

    A program executes what happens, one event after the other; :mod:`.microcode` has its entries.

    - After a reset, which memory outlasts, each connection is forgotten, before anything else happens.
    - Segments come first, but behind three of them comes another event, and of four of these one is of the kind whose
      turn it is. Of each kind, each connection has its turn: an event waits for fewer than 24 others.
    - Each event ``output`` sends one segment, when the one before has left and the next would leave ``soon``, so that a
      received segment waits for no transmission.
    - A packet is cut through if its connection has nothing else to send: while it is stored in the ring, its octets
      are put into a frame, too. The event ``coming`` permits the segment, if the window is open, and prepares its
      header; ``depart`` sends it when the packet has been stored. After another event in between, ``coming`` repeats.

    Members
    -------
    tick : In, 1 bit; a pulse each millisecond
    segments_in, segments_out : In, Out, stream of :class:`.Packet` with ``source`` or ``destination`` (32 bits) and
        ``length`` (16 bits) on the first beat; no pauses and right checksums in, checksum 0 out
    soon : In, 1 bit; a segment that begins now would leave soon. What it acknowledges is decided when it begins
    cut_through : Out, :class:`.CutThrough`
    received : Out, stream of :class:`.Packet` with ``connection``; octets in order, in pieces of up to 1,024 octets, or
        no octets for the peer's FIN. The window opens as they are taken
    accept : In, 1 bit for each connection; its octets are taken
    shown : Out, :func:`.shown_octets`; with a ``tag``, in place of ``received`` and ``accept``: the rings themselves
    to_send : In, stream of :class:`.Packet` with ``connection``; no segment has octets of two packets. A packet of no
        octets closes this end's half, behind all octets
    room : Out, 1 bit for each connection; of :class:`.SendRings`
    command : In, stream of :class:`CommandLayout`; transferred when it has been carried out
    view : In, :class:`ConnectionView`
    changed : Out, 1 bit for each connection; pulses when the status changes
    receive_memory, receive_memory_failed, send_memory, send_memory_failed : :func:`.ring_members`
    """

    def __init__(self, connections: int = 4, config: EngineConfig | None = None, *, tag: ShapeLike | None = None):
        check_size("connections", connections, 1, 64)
        self.connections = connections
        self.config = config or EngineConfig()
        if self.config.memory is not None:
            self.config.memory.check(connections, self.config)
        self.tag = tag
        index = connection_shape(connections)
        pieces = {"received": Out(packet(1, connection=index)), "accept": In(connections)}
        super().__init__({
            "tick": In(1),
            "segments_in": In(packet(1, source=32, length=16)),
            "segments_out": Out(packet(1, destination=32, length=16)),
            "soon": In(1),
            "cut_through": Out(CutThrough()),
            **(pieces if tag is None else {"shown": Out(shown_octets(connections, self.config.receive_ring, tag))}),
            "to_send": In(packet(1, connection=index)),
            "room": Out(connections),
            "command": In(stream.Signature(CommandLayout(connections))),
            "view": In(ConnectionView(connections)),
            "changed": Out(connections),
            **ring_members(self.config.memory),
        })

        # The event that has been chosen, and has not been started.
        self._chosen = Signal()
        self._entry = Signal(range(ADDRESSES))
        self._connection = Signal(index)
        self._arguments = [Signal(32, name=f"argument{n}") for n in range(4)]
        self._left = Signal(3)  # arguments that are left to write
        self._place = Signal(range(SCRATCH.start + SCRATCH.size - 64))  # of the next argument
        self._segments_run = Signal(2)  # how many came one behind the other: after three of them comes another event
        self._time_due = Signal(init=1)  # the time has not been written; memory may have that before a reset
        # Cut-through: the latest event was ``coming``, and how many octets it permits to send.
        self._was_coming = Signal()
        self._permitted = Signal(16)

    def elaborate(self, platform):
        m = Module()
        program = tcp_program(self.config)
        m.submodules.sequencer = sequencer = Sequencer(program, self.connections)
        m.submodules.loader = loader = Loader()
        m.submodules.tuples = tuples = Tuples(self.connections)
        m.submodules.receive_rings = receive_rings = ReceiveRings(
            self.connections, self.config.receive_ring, 0 if self.tag is None else self.tag, self.config.memory
        )
        m.submodules.send_rings = send_rings = SendRings(self.connections, self.config.send_ring, self.config.memory)
        m.submodules.builder = builder = Builder(len(self.view.show))

        # Segments in: header to the sequencer, payload to the ring, octets in order to the user.
        connect(m, flipped(self.segments_in), loader.i)
        connect(m, loader.o, receive_rings.i)
        if self.tag is None:
            m.submodules.pieces = pieces = Pieces(self.connections, self.config.receive_ring)
            connect(m, receive_rings.shown, pieces.rings)
            connect(m, pieces.o, flipped(self.received))
            m.d.comb += pieces.accept.eq(self.accept)
        else:
            connect(m, receive_rings.shown, flipped(self.shown))
        if self.config.memory is not None:
            connect(m, receive_rings.memory, flipped(self.receive_memory))
            connect(m, send_rings.memory, flipped(self.send_memory))
            m.d.comb += [
                self.receive_memory_failed.eq(receive_rings.memory_failed),
                self.send_memory_failed.eq(send_rings.memory_failed),
            ]
        # Packets to the ring, octets of the ring into segments.
        connect(m, flipped(self.to_send), send_rings.i)
        connect(m, send_rings.o, builder.i)
        connect(m, builder.o, flipped(self.segments_out))
        m.d.comb += [
            tuples.look.eq(loader.look),
            tuples.address.eq(loader.source),
            tuples.ports.eq(loader.ports),
            tuples.show.eq(self.view.show),
            self.view.peer.eq(tuples.shown_address),
            self.view.ports.eq(tuples.shown_ports),
            receive_rings.has_payload.eq(loader.has_payload),
            self.room.eq(send_rings.room),
            tuples.peer_of.eq(send_rings.queued_of),
            self.cut_through.destination.eq(tuples.peer_address),
            self.cut_through.valid.eq(send_rings.stored),
            self.cut_through.beat.eq(send_rings.beat),
        ]
        connect(m, builder.read, send_rings.read)
        self._ports(m, sequencer, (tuples, receive_rings, send_rings, builder))
        wanted = self._status(m, sequencer, send_rings)
        self._events(m, program, sequencer, loader, tuples, receive_rings, send_rings, builder, wanted)
        return m

    def _ports(self, m, sequencer, blocks):
        """Connect the sequencer's ports: a block takes part in a write if it has a member of the port's name."""
        self._written = {}
        for name, place in vars(port).items():
            self._written[name] = written = Signal(name=f"{name}_written")
            m.d.comb += written.eq(sequencer.valid & (sequencer.port == place.code - PORTS.start))
            for block in blocks:
                if name in block.signature.members and block.signature.members[name].flow is In:
                    m.d.comb += getattr(block, name).eq(written)
        for block in blocks:
            m.d.comb += [block.value.eq(sequencer.value), block.connection.eq(sequencer.current)]
        _, receive_rings, _, builder = blocks
        accepted = [
            block.ready | ~Cat(self._written[name] for name in vars(port) if name in block.signature.members).any()
            for block in (receive_rings, builder)
        ]
        m.d.comb += sequencer.ready.eq(Cat(accepted).all())

    def _status(self, m, sequencer, send_rings):
        """Keep the status of each connection, and whether it wants to send."""
        wanted = Signal(self.connections)
        m.submodules.statuses = statuses = Memory(shape=16, depth=max(2, self.connections), init=[])
        write, show = statuses.write_port(), statuses.read_port(domain="comb")
        current = Signal(self.connections)
        known = Signal(self.connections)  # its status has been written since the reset, which memory outlasts
        m.d.sync += known.eq(known | self.changed)
        m.d.comb += [
            current.eq(1 << sequencer.current),
            self.changed.eq(Mux(self._written["status"], current, 0)),
            write.en.eq(self._written["status"]),
            write.addr.eq(sequencer.current),
            write.data.eq(sequencer.value),
            show.addr.eq(self.view.show),
            self.view.status.eq(Mux(known.bit_select(self.view.show, 1), show.data, 0)),
        ]
        sends = (sequencer.value & (State.ESTABLISHED | State.CLOSE_WAIT)).any()
        for at in range(self.connections):
            with m.If(self.changed[at]):
                m.d.sync += send_rings.sends[at].eq(sends)
            with m.If(self._written["want"] & current[at]):
                m.d.sync += wanted[at].eq(1)
        return wanted

    def _give(self, m, sequencer, loader):
        """Words from outside: an argument of the event, the time, the header of a segment."""
        now = Signal(32)
        with m.If(self.tick):
            m.d.sync += [now.eq(now + 1), self._time_due.eq(1)]
        with m.If(self._left != 0):
            m.d.comb += [
                sequencer.give.eq(1), sequencer.place.eq(self._place), sequencer.given.eq(self._arguments[0])
            ]  # fmt: skip
            with m.If(sequencer.given_ready):
                m.d.sync += [self._left.eq(self._left - 1), self._place.eq(self._place + 1)]
                m.d.sync += [this.eq(following) for this, following in pairwise(self._arguments)]
        with m.Elif(self._time_due):
            m.d.comb += [sequencer.give.eq(1), sequencer.place.eq(t.now.code - 64), sequencer.given.eq(now)]
            with m.If(sequencer.given_ready & ~self.tick):
                m.d.sync += self._time_due.eq(0)
        with m.Else():
            m.d.comb += [
                sequencer.give.eq(loader.give), sequencer.place.eq(loader.place), sequencer.given.eq(loader.given),
                loader.given_ready.eq(sequencer.given_ready),
            ]  # fmt: skip

    def _permit(self, m, sequencer, send_rings, builder, wanted):
        """Cut-through: return whether the packet that is in a frame departs."""
        cut_through = self.cut_through
        departs = Signal()
        m.d.comb += [
            cut_through.begin.eq(send_rings.begins & cut_through.accepts & ~wanted.any()),
            cut_through.cancel.eq(send_rings.spoilt | wanted.any()),
            cut_through.length.eq(send_rings.count + HEADER),
            departs.eq(cut_through.collected & builder.idle & (send_rings.count <= self._permitted)),
        ]
        with m.If(self._written["permit"]):
            m.d.sync += self._permitted.eq(sequencer.value)
        return departs

    def _choose(self, m, program, name, connection, *given):
        """The next event has these arguments."""
        m.d.sync += [
            self._entry.eq(program.entry(name)), self._connection.eq(connection), self._chosen.eq(1),
            self._segments_run.eq(0), self._was_coming.eq(name == "coming"), self._permitted.eq(0),
        ]  # fmt: skip
        if given:
            m.d.sync += [self._left.eq(len(given)), self._place.eq(t.argument0.code - 64)]
            m.d.sync += [argument.eq(value) for argument, value in zip(self._arguments, given, strict=False)]

    def _events(self, m, program, sequencer, loader, tuples, receive_rings, send_rings, builder, wanted):
        """Choose the next event, write its arguments, and start it."""
        self._give(m, sequencer, loader)
        departs = self._permit(m, sequencer, send_rings, builder, wanted)
        ticking = Signal(self.connections, init=-1)  # connections whose timers are to be looked at
        forgets = Signal(init=1)  # these connections are to be forgotten first
        segment = Signal()
        commanded = Signal()  # the command has been chosen
        m.submodules.ticks = ticks = Turns(self.connections)
        m.submodules.outputs = outputs = Turns(self.connections)
        m.d.comb += [
            sequencer.entry.eq(self._entry), sequencer.connection.eq(self._connection), sequencer.page.eq(~loader.page),
            segment.eq(loader.loaded & tuples.done), ticks.waits.eq(ticking), outputs.waits.eq(wanted),
        ]  # fmt: skip
        with m.If(self.tick & ~forgets):
            m.d.sync += ticking.eq(~0)
        # Segments come first, for no place would be left for the next ones; of all else, one after three of them.
        waits = {
            "coming": self.cut_through.collects & ~self._was_coming,
            "queued": send_rings.queued,
            "command": self.command.valid,
            "taken": receive_rings.taken,
            "tick": ticking.any() & ~self._time_due,
            "output": wanted.any() & builder.idle & self.soon,
        }
        m.submodules.turns = turns = Turns(len(waits), every=4)
        m.d.comb += turns.waits.eq(Cat(waits.values()))
        chooses = dict(zip(waits, turns.chosen, strict=True))

        with m.If(self._chosen):
            with m.If(sequencer.idle & (self._left == 0) & ~self._time_due):
                m.d.comb += sequencer.start.eq(1)
                m.d.sync += self._chosen.eq(0)
        with m.Elif(sequencer.idle):
            with m.If(forgets):
                m.d.comb += ticks.take.eq(1)
                self._choose(m, program, "forget", number(ticks.chosen, self.connections))
                m.d.sync += [ticking.eq(ticking & ~ticks.chosen), forgets.eq((ticking & ~ticks.chosen).any())]
            with m.Elif(commanded):
                m.d.comb += self.command.ready.eq(1)
                m.d.sync += commanded.eq(0)
            with m.Elif(segment & (self._segments_run != 3)):
                m.d.comb += loader.go.eq(1)
                self._choose(m, program, "segment", tuples.found)
                m.d.sync += self._segments_run.eq(self._segments_run + 1)
                with m.If(~tuples.hit):
                    m.d.sync += self._entry.eq(program.entry("stray"))
            with m.Elif(self.segments_in.valid & ~loader.has_payload & (self._segments_run != 3)):
                pass  # a segment will be loaded in a few cycles
            with m.Elif(turns.chosen.any()):
                m.d.comb += turns.take.eq(1)
                self._choose_from_rings(m, program, chooses, receive_rings, send_rings, departs)
                with m.If(chooses["command"]):
                    m.d.sync += commanded.eq(1)
                    self._choose_command(m, program)
                self._choose_connection(m, program, chooses, ticks, ticking, outputs, wanted)
            with m.Else():
                m.d.sync += self._segments_run.eq(0)

    def _choose_from_rings(self, m, program, chooses, receive_rings, send_rings, departs):
        """Octets are stored for transmission, or taken by the user."""
        with m.If(chooses["coming"]):
            self._choose(m, program, "coming", send_rings.queued_of)
        with m.If(chooses["queued"]):
            m.d.comb += send_rings.noted.eq(1)
            with m.If(departs):
                m.d.comb += self.cut_through.finish.eq(1)
                self._choose(m, program, "depart", send_rings.queued_of, send_rings.count)
            with m.Else():
                m.d.comb += self.cut_through.cancel.eq(1)
                self._choose(m, program, "queued", send_rings.queued_of, send_rings.count)
        with m.If(chooses["taken"]):
            m.d.comb += receive_rings.noted.eq(1)
            self._choose(m, program, "taken", receive_rings.taken_of, receive_rings.count)

    def _choose_command(self, m, program):
        command = self.command.payload
        arguments = command.kind, command.ports, command.address, command.iss
        self._choose(m, program, "command", command.connection, *arguments)

    def _choose_connection(self, m, program, chooses, ticks, ticking, outputs, wanted):
        """A connection's timers are looked at, or it wants to send."""
        with m.If(chooses["tick"]):
            m.d.comb += ticks.take.eq(1)
            self._choose(m, program, "tick", number(ticks.chosen, self.connections))
            with m.If(~self.tick):
                m.d.sync += ticking.eq(ticking & ~ticks.chosen)
        with m.If(chooses["output"]):
            m.d.comb += outputs.take.eq(1)
            self._choose(m, program, "output", number(outputs.chosen, self.connections))
            for at in range(self.connections):
                with m.If(outputs.chosen[at]):
                    m.d.sync += wanted[at].eq(0)
