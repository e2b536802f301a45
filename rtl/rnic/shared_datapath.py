"""The data path of many connections: from the rings of TCP to memory."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu, packet
from open_rnic.rtl.lib.ports import expose
from open_rnic.rtl.lib.rows import Cells, connection_shape, forget
from open_rnic.rtl.lib.stream import Fifo, ReadyBuffer
from open_rnic.rtl.mpa.shared_mpa import SharedMpa
from open_rnic.rtl.mpa.shared_streams import SharedStreams
from open_rnic.rtl.mpa.stream_registers import STREAM_MAP
from open_rnic.rtl.rdma.block_ram_datapath import WINDOW_PAGE
from open_rnic.rtl.rdma.datapath import ENGINE_PAGE
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.fabric import FABRIC_PORTS, Fabric, fabric_members
from open_rnic.rtl.rdma.memory import add_memory, check_memory, memory_members
from open_rnic.rtl.rdma.memory_window import MemoryWindow
from open_rnic.rtl.rdma.sampling import Sampler, is_of_samples
from open_rnic.rtl.rdma.work_port import WorkPort
from open_rnic.rtl.registers import EventKind
from open_rnic.rtl.registers.bus import connect_pages, paged_bus
from open_rnic.rtl.rnic.watcher import Tag, Watcher
from open_rnic.rtl.tcp.receive_ring import shown_octets

__all__ = ["SharedDatapath"]


class SharedDatapath(wiring.Component):
    """MPA, RDMA and memory for many connections, with a page of registers for each.

    ::

        rings ▸ Watcher ▸ SharedMpa ▸ RdmaEngine ◂▸ Sampler ◂▸ MemoryWindow ◂▸ BlockMemory
                   ▾                      ▴ ▾
                  SharedStreams, which has the octets of stream mode and a few ULPDUs for the host
                   ▾                      ▾
        to_send ◂──┴──── SharedMpa ◂──────┘

    Nothing of a connection waits for a peer, or for another connection, longer than for a packet that has begun.

    Parameters
    ----------
    connections : number of connections, a power of 2 from 2 to 64
    ring : octets of a connection's ring for received octets
    memory : octets of the memory, which serves all connections, a power of 2
    outside : the memory is no block RAM, but lies behind the port ``memory``
    lanes : width of the rings, of all streams and of memory in 32-bit lanes
    fabric : the logic beside the engine
    options : the sizes of :class:`.RdmaEngine`

    Members
    -------
    rings : In, :func:`.shown_octets` with :class:`.Tag`
    to_send, room : Out, stream of :class:`.Packet` with ``connection``; In; of :class:`.NetworkPath`
    accept : In, 1 bit for each connection; the host wants octets
    show : In, number of the connection of ``packets``, ``octets`` and ``finished``
    packets, octets, finished : Out, 32, 32 bits, 1 bit; what it has sent, received, whether all: :class:`.PathControl`
    ends : Out, 1 bit for each connection; the last octet has been taken, in this cycle
    bus : In, :class:`.RegisterBus`; the number of the connection is above the 8 bits of a register's address
    irq, rdma_irq, waits : Out, 1 bit for each connection; interrupts of MPA, of the engine; a word waits for the host
    samples, tick, work, work_reports : see :class:`.Sampler` and :class:`.WorkPort`; those of ``fabric``
    memory : Out, :class:`.MemoryPort`; the memory, if it is outside

    """

    def __init__(self, connections: int, ring: int, memory: int, lanes: int = 1, fabric: Fabric = Fabric.NONE,
                 outside: bool = False, **options: int):  # fmt: skip
        self.connections = connections
        self.lanes = lanes
        self.mpa = SharedMpa(connections, lanes, store_and_forward=2048, keep_terminates=True)
        self.engine = RdmaEngine(lanes, connections=connections, fabric=fabric is not Fabric.NONE, **options)
        self.sampler, self.work_port = None, None
        if fabric is Fabric.WORK:
            self.work_port = WorkPort(self.engine.work, connections)
        elif fabric.is_sampler:
            self.sampler = Sampler(lanes, generates=fabric is Fabric.GENERATOR, connections=connections)
        beside = self.sampler or self.work_port
        check_memory(lanes, memory)
        self.memory_octets = memory
        self.watcher = Watcher(connections, ring, lanes)
        number, each = connection_shape(connections), connections
        super().__init__({
            "rings": In(shown_octets(connections, ring, Tag(connections), lanes)),
            "to_send": Out(packet(lanes, connection=number)), "room": In(each), "accept": In(each),
            "show": In(number), "packets": Out(32), "octets": Out(32), "finished": Out(1), "ends": Out(each),
            "bus": In(paged_bus(connections)),
            "irq": Out(each), "rdma_irq": Out(each), "waits": Out(each),
            **(fabric_members(beside) if beside else {}),
            **({"tick": In(1)} if self.sampler else {}),
            **memory_members(lanes, outside),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.mpa = mpa = self.mpa
        m.submodules.engine = engine = self.engine
        m.submodules.window = window = MemoryWindow(self.lanes, self.memory_octets, self.connections)
        m.submodules.watcher = self.watcher
        m.submodules.streams = streams = SharedStreams(self.connections, self.lanes)
        wiring.connect(m, self._sample(m) if self.sampler else engine.memory, window.port)
        if self.work_port:
            m.submodules.work_port = port = self.work_port
            port.serve(m, engine, mpa.clear)
            expose(m, port, self, FABRIC_PORTS)
        add_memory(m, self, window.main, self.memory_octets)
        m.d.comb += [self.irq.eq(mpa.irq), self.rdma_irq.eq(engine.irq), self.waits.eq(streams.waits)]
        self._report(m, streams)
        self._receive(m, streams)
        idle = self._send(m, streams)
        m.d.comb += mpa.idle.eq(idle & self.watcher.idle & engine.idle & streams.idle)
        self._pages(m, window, streams)
        return m

    def _sample(self, m):
        """Put the sampler beside the engine; return its side to the main memory."""
        m.submodules.sampler = sampler = self.sampler
        engine = self.engine
        wiring.connect(m, engine.memory, sampler.port)
        wiring.connect(m, sampler.words, engine.fabric)
        expose(m, sampler, self, ("samples", "tick"))
        m.d.comb += [
            engine.fabric_connection.eq(sampler.connection),
            sampler.done.eq(engine.fabric_done),
            Value.cast(sampler.clear).eq(self.mpa.clear),
        ]
        return sampler.main

    def _report(self, m, streams):
        """Report changes of mode to the host, before anything that follows from them; and show the states."""
        mpa, entered, event = self.mpa, self.watcher.enters, self.mpa.stream_event
        m.d.comb += [
            event.valid.eq(streams.event.valid | entered.valid),
            streams.event.ready.eq(event.ready),
            entered.ready.eq(event.ready & ~streams.event.valid),
            streams.state_of.eq(mpa.directions.connection),
            self.watcher.state_of.eq(mpa.directions.connection),
            mpa.directions.tx.eq(streams.state),
            mpa.directions.rx.eq(self.watcher.state),
        ]
        with m.If(streams.event.valid):
            m.d.comb += event.payload.eq(streams.event.payload)
        with m.Else():
            m.d.comb += [event.payload.kind.eq(EventKind.RX_MPA), event.payload.connection.eq(entered.payload)]

    def _receive(self, m, streams):
        """From the rings to the engine, and what the host reads of it."""
        mpa, engine, watcher = self.mpa, self.engine, self.watcher
        connect, flipped = wiring.connect, wiring.flipped
        connect(m, flipped(self.rings), watcher.rings)
        connect(m, watcher.trains, mpa.rx_fpdus)
        # Octets leave the store's block RAM late in the cycle; the engine reads a header from them.
        m.submodules.rx_buffer = rx_buffer = ReadyBuffer(RxUlpdu(self.lanes, self.connections))
        connect(m, mpa.rx_ulpdu, rx_buffer.i)
        connect(m, rx_buffer.o, engine.rx_ulpdu)
        connect(m, engine.host_rx, streams.passed)
        connect(m, mpa.rtr, engine.rtr)
        connect(m, watcher.words, streams.words)
        self._watch(m, streams, self._account(m))
        m.d.comb += [
            watcher.show.eq(self.show),
            self.octets.eq(watcher.octets),
            self.finished.eq(watcher.finished.bit_select(self.show, 1)),
            engine.resets.eq(mpa.resets),
            Value.cast(engine.clear).eq(mpa.clear),
        ]
        finished = Signal(self.connections)
        m.d.sync += finished.eq(watcher.finished)
        m.d.comb += self.ends.eq(watcher.finished & ~finished)

    def _account(self, m):
        """Count the FPDUs of each connection that the watcher has given, and what became of them.

        A Send waits until that is known of all before it. Returns a bit for each connection: something became known.
        """
        mpa, engine, watcher, reports = self.mpa, self.engine, self.watcher, self.engine.processed
        given = Signal(8)
        counts = [Cells(m, given, self.connections, watcher.watch.connection, mpa.clear)]
        counts[0].count(m, watcher.gives)
        processed = Signal(self.connections)
        for name, happens, connection in (
            ("checked", reports.checked, reports.checked_of), ("dropped", reports.dropped, reports.dropped_of),
            ("consumed", mpa.reports.consumed, mpa.reports.received_of),
        ):  # fmt: skip
            counts.append(Cells(m, Signal(8, name=name), self.connections, connection, mpa.clear))
            counts[-1].count(m, happens)
        ends = [each.read(m, watcher.watch.connection) for each in counts[1:]]
        unchecked = Signal()
        m.d.comb += [
            processed.eq((reports.checked << reports.checked_of) | (reports.dropped << reports.dropped_of)
                    | (mpa.reports.consumed << mpa.reports.received_of)),
            unchecked.eq(given != (ends[0] + ends[1] + ends[2])[:8]),
            watcher.watch.unchecked.eq(unchecked),
        ]  # fmt: skip
        m.d.sync += engine.sends.coming.eq(
            (engine.sends.coming & ~processed) | ((watcher.gives & watcher.gives_send) << watcher.watch.connection)
        )
        forget(m, mpa.clear, engine.sends.coming)
        return processed

    def _watch(self, m, streams, processed):
        """What the watcher must know of a connection to give its octets, and when it visits one again."""
        mpa, engine, watcher = self.mpa, self.engine, self.watcher
        m.d.comb += [
            watcher.watch.settings.eq(mpa.rx_settings.settings),
            mpa.rx_settings.connection.eq(watcher.watch.connection),
            watcher.watch.failed.eq(mpa.rx_settings.failed),
            engine.sends.connection.eq(watcher.watch.connection),
            watcher.watch.holds.eq(engine.sends.blocked),
            Value.cast(watcher.clear).eq(mpa.clear),
            watcher.accept.eq(Mux(mpa.resets, 0, self.accept & ~streams.has_ulpdu)),
            engine.sends.waiting.eq(watcher.sends_waiting),
        ]
        # The watcher visits a connection again when something about it has changed.
        accepted = Signal(self.connections)
        returned = Signal(self.connections)
        m.d.sync += [
            accepted.eq(watcher.accept),
            returned.eq(engine.sends.returns),
            watcher.changed.eq(
                (watcher.accept ^ accepted) | (engine.sends.returns ^ returned) | processed
                | (mpa.reports.fails << mpa.reports.received_of)
                | ((self.bus.ack & self.bus.write) << self.bus.address[8:])
            ),
        ]

    def _send(self, m, streams):
        """Return whether nothing is on its way."""
        mpa, engine = self.mpa, self.engine
        connect = wiring.connect
        # The engine gives no beat in the first cycle of a ULPDU, and MPA takes none while it inserts a CRC.
        m.submodules.tx_queue = queue = Fifo(TxUlpdu(self.lanes, self.connections), 4)
        connect(m, streams.tx_ulpdu, engine.host_tx)
        connect(m, engine.tx_ulpdu, queue.i)
        connect(m, queue.o, mpa.tx_ulpdu)

        has_room = self._has_room(m, queue)
        gate = engine.transmit_gate
        m.d.comb += [
            mpa.room.eq(self.room),
            mpa.tx_mpa.eq(streams.is_mpa),
            gate.room.eq(has_room(gate.connection) & streams.is_mpa.bit_select(gate.connection, 1)),
            streams.room.eq(has_room(streams.connection)),
            mpa.passable[0].connection.eq(gate.connection),
            gate.opens.eq(mpa.passable[0].passes),
            mpa.passable[1].connection.eq(streams.connection),
            streams.passable.eq(mpa.passable[1].passes),
            mpa.tx_settings.connection.eq(streams.connection),
            streams.settings.eq(mpa.tx_settings.settings),
            streams.resets.eq(mpa.resets),
            Value.cast(streams.clear).eq(mpa.clear),
        ]
        return self._give(m, streams) & ~queue.o.valid

    def _has_room(self, m, queue):
        """Return a function: whether there is room in the ring of a connection, and nothing is on its way there."""
        mpa = self.mpa
        inside = Signal()  # a ULPDU of the engine has begun
        moves = queue.i.valid & queue.i.ready
        with m.If(moves):
            m.d.sync += inside.eq(~queue.i.payload.last)
        leaves = mpa.tx_fpdu.valid & mpa.tx_fpdu.ready & mpa.tx_fpdu.payload.last
        ulpdus, made, left = counts = [
            Cells(m, Signal(3, name=name), self.connections, of, mpa.clear) for name, of in (
                ("given_ulpdus", queue.i.payload.connection), ("made_fpdus", mpa.reports.made_of),
                ("left_fpdus", mpa.tx_fpdu.payload.connection),
            )
        ]  # fmt: skip
        for count, happens in zip(counts, (moves & ~inside, mpa.reports.made, leaves), strict=True):
            count.count(m, happens)

        def has_room(at):
            under_way = (ulpdus.read(m, at) + made.read(m, at) - left.read(m, at))[:3]
            return self.room.bit_select(at, 1) & (under_way == 0)

        return has_room

    def _give(self, m, streams):
        """FPDUs and packets of stream mode, whole, in turn; return whether none is on its way."""
        mpa = self.mpa
        to, fpdus, packets = self.to_send, mpa.tx_fpdu, streams.packets
        begun = Signal()
        is_fpdu = Signal()  # the last one that has begun
        chosen = Signal()
        moved = Signal()
        m.d.comb += [
            chosen.eq(Mux(begun, is_fpdu, fpdus.valid & ~(is_fpdu & packets.valid))),  # in turn
            to.valid.eq(Mux(chosen, fpdus.valid, packets.valid)),
            to.payload.eq(Mux(chosen, fpdus.payload.as_value(), packets.payload.as_value())),
            fpdus.ready.eq(chosen & to.ready),
            packets.ready.eq(~chosen & to.ready),
            moved.eq(to.valid & to.ready & to.payload.last),
        ]
        with m.If(to.valid):
            m.d.sync += [begun.eq(~moved), is_fpdu.eq(chosen)]
        sent = Signal(32, name="packets_sent")
        all_sent = Cells(m, sent, self.connections, to.payload.connection, mpa.clear)
        with m.If(moved):
            all_sent.write(m, sent + 1)
        m.d.comb += self.packets.eq(all_sent.read(m, self.show))
        return ~begun & ~to.valid

    def _pages(self, m, window, streams):
        """Give each access to its block: address bits 7:0 are those of the page of a connection."""
        place = self.bus.address[:8]
        of_streams = place[2:] == STREAM_MAP[0].address >> 4
        of_window = place[4:] == WINDOW_PAGE >> 6
        of_samples = is_of_samples(place) if self.sampler else Const(0)
        of_engine = place[ENGINE_PAGE.bit_length() - 3] & ~of_window & ~of_samples
        connect_pages(m, self.bus, (
            *([(self.sampler.bus, of_samples)] if self.sampler else []),
            (streams.bus, of_streams),
            (window.bus, of_window),
            (self.engine.bus, of_engine),
            (self.mpa.bus, ~(of_streams | of_window | of_samples | of_engine)),
        ))  # fmt: skip
