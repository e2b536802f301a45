"""The surroundings of the RTL in a simulation: rings in memory, like those that a network card shares with its host.

Python and the simulation exchange octets as whole ranges of memory (IEEE 1800-2017 §38.16, ``vpi_put_value_array``), so
that a beat needs no step of Python. Each stream has a ring of beats; a position in the ring is a count of beats modulo
2**16. An empty or full ring stalls the RTL through ``valid`` and ``ready`` of the stream.
"""

from typing import Any

from amaranth.hdl import Cat, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.layout import DEPTH
from open_rnic.rtl.mpa.datapath import MpaDatapath

MARK = data.StructLayout(layout.MARK)
NOTE = data.StructLayout(layout.NOTE)


class InRing(wiring.Component):  # type: ignore[misc]
    """Transfers beats that the host has written to memory to a stream.

    Latency: 1 cycle. Throughput: one beat per cycle.

    Members
    -------
    posted : count of the beats that the host has written
    taken : count of the beats that have been read; their places are free again
    o : the packets
    """

    def __init__(self, shape: Any):
        super().__init__({"posted": In(16), "taken": Out(16), "o": Out(stream.Signature(shape))})
        self._beats = Memory(shape=32 * shape.lanes, depth=DEPTH, init=[])
        self._marks = Memory(shape=32, depth=DEPTH, init=[])

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.shared_beats = self._beats
        m.submodules.shared_marks = self._marks
        beat, mark = self._beats.read_port(), self._marks.read_port()
        more = Signal()
        m.d.comb += [
            more.eq((self.taken != self.posted) & (self.o.ready | ~self.o.valid)),
            Cat(beat.en, mark.en).eq(more.replicate(2)),
            beat.addr.eq(self.taken),
            mark.addr.eq(self.taken),
            self.o.payload.data.eq(beat.data),
            self.o.payload.octets.eq(MARK(mark.data).octets),
            self.o.payload.last.eq(MARK(mark.data).last),
        ]
        if "length" in dict(self.o.payload.shape().members):
            m.d.comb += self.o.payload.length.eq(MARK(mark.data).length)
        if "connection" in dict(self.o.payload.shape().members):
            m.d.comb += self.o.payload.connection.eq(MARK(mark.data).length)
        with m.If(self.o.ready | ~self.o.valid):
            m.d.sync += [self.o.valid.eq(more), self.taken.eq(self.taken + more)]
        return m


class OutRing(wiring.Component):  # type: ignore[misc]
    """Writes the beats of a stream to memory, with a note for each packet.

    Throughput: one beat per cycle while there is room. The ring of notes cannot overflow before the ring of beats,
    because there are never more notes than beats.

    Members
    -------
    i : the packets
    freed : count of the beats that the host has read, with their notes
    written : count of the beats that have been written
    notes : count of the notes that have been written
    """

    def __init__(self, shape: Any):
        super().__init__({"i": In(stream.Signature(shape)), "freed": In(16), "written": Out(16), "notes": Out(16)})
        self._beats = Memory(shape=32 * shape.lanes, depth=DEPTH, init=[])
        self._notes = Memory(shape=32, depth=DEPTH, init=[])

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.shared_beats = self._beats
        m.submodules.shared_notes = self._notes
        beat, note = self._beats.write_port(), self._notes.write_port()
        moves = self.i.valid & self.i.ready
        m.d.comb += [
            self.i.ready.eq((self.written - self.freed)[:16] != DEPTH),
            beat.en.eq(moves),
            beat.addr.eq(self.written),
            beat.data.eq(self.i.payload.data),
            note.en.eq(moves & self.i.payload.last),
            note.addr.eq(self.notes),
            NOTE(note.data).octets.eq(self.i.payload.octets),
            NOTE(note.data).end.eq(self.written + 1),
        ]
        if "verdict" in dict(self.i.payload.shape().members):
            m.d.comb += NOTE(note.data).verdict.eq(self.i.payload.verdict)
        if "connection" in dict(self.i.payload.shape().members):
            m.d.comb += NOTE(note.data).verdict.eq(self.i.payload.connection)
        with m.If(moves):
            m.d.sync += [self.written.eq(self.written + 1), self.notes.eq(self.notes + self.i.payload.last)]
        return m


class SimulatedDatapath(wiring.Component):  # type: ignore[misc]
    """An ``rtl.mpa.datapath.MpaDatapath`` with a ring at each stream, and its registers in the words of ``layout``."""

    def __init__(self, datapath: Any, *, rdma: bool = False):
        self._datapath = datapath
        words = layout.device(datapath.lanes, rdma=rdma)
        super().__init__({
            "control": In(data.StructLayout(words.control)),
            "status": Out(data.StructLayout(words.status)),
        })

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.datapath = datapath = self._datapath
        tx_ulpdu = InRing(datapath.tx_ulpdu.payload.shape())
        rx_mpa = InRing(datapath.rx_mpa.payload.shape())
        tx_mpa = OutRing(datapath.tx_mpa.payload.shape())
        rx_ulpdu = OutRing(datapath.rx_ulpdu.payload.shape())
        flushed = ResetInserter(self.control.flush)
        m.submodules.tx_ulpdu, m.submodules.rx_mpa = flushed(tx_ulpdu), flushed(rx_mpa)
        m.submodules.tx_mpa, m.submodules.rx_ulpdu = flushed(tx_mpa), flushed(rx_ulpdu)
        wiring.connect(m, tx_ulpdu.o, datapath.tx_ulpdu)
        wiring.connect(m, rx_mpa.o, datapath.rx_mpa)
        wiring.connect(m, datapath.tx_mpa, tx_mpa.i)
        wiring.connect(m, datapath.rx_ulpdu, rx_ulpdu.i)

        bus = datapath.bus
        m.d.comb += [
            bus.request.eq(self.control.turn != self.status.turn),
            bus.write.eq(self.control.write),
            bus.address.eq(self.control.address),
            bus.write_data.eq(self.control.write_data),
        ]
        turn = Signal()
        read_data = Signal(32)
        with m.If(bus.request & bus.ack):
            m.d.sync += [turn.eq(self.control.turn), read_data.eq(bus.read_data)]

        m.d.comb += [
            tx_ulpdu.posted.eq(self.control.tx_ulpdu_posted),
            rx_mpa.posted.eq(self.control.rx_mpa_posted),
            tx_mpa.freed.eq(self.control.tx_mpa_freed),
            rx_ulpdu.freed.eq(self.control.rx_ulpdu_freed),
            self.status.tx_ulpdu_taken.eq(tx_ulpdu.taken),
            self.status.rx_mpa_taken.eq(rx_mpa.taken),
            self.status.tx_mpa_written.eq(tx_mpa.written),
            self.status.tx_mpa_notes.eq(tx_mpa.notes),
            self.status.rx_ulpdu_written.eq(rx_ulpdu.written),
            self.status.rx_ulpdu_notes.eq(rx_ulpdu.notes),
            self.status.turn.eq(turn),
            self.status.irq.eq(datapath.irq),
            self.status.read_data.eq(read_data),
        ]
        return m


def make(lanes: str) -> SimulatedDatapath:
    """Return a data path of ``lanes`` lanes."""
    return SimulatedDatapath(MpaDatapath(int(lanes)))
