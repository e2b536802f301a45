"""The surroundings of the RTL in a simulation: rings in memory, like those that a network card shares with its host.

Python and the simulation exchange octets as whole ranges of memory (IEEE 1800-2017 §38.16, ``vpi_put_value_array``), so
that a beat needs no step of Python. Each stream has a ring of beats; a position in the ring is a count of beats modulo
2**16. An empty or full ring stalls the RTL through ``valid`` and ``ready`` of the stream.
"""

from typing import Any

from amaranth.hdl import Const, Module, ResetInserter, Signal, Value, ValueLike
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.host_driver.devices.sim import layout
from open_rnic.host_driver.devices.sim.layout import DEPTH
from open_rnic.rtl.mpa.datapath import MpaDatapath

MARK, NOTE, PLACE = map(data.StructLayout, (layout.MARK, layout.NOTE, layout.PLACE))
_NEVER = Const(0)
_LEAST = 32  # bits of a word, as Verilator's vpi_get_value_array provides no room for fewer than two octets


class InRing(wiring.Component):  # type: ignore[misc]
    """Transfers beats that the host has written to memory to a stream, of packets or of plain words.

    Latency: 1 cycle. Throughput: one beat per cycle.

    Members
    -------
    posted : count of the beats that the host has written
    taken : count of the beats that have been read; their places are free again
    o : the beats
    """

    def __init__(self, shape: Any):
        super().__init__({"posted": In(16), "taken": Out(16), "o": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        room = self.o.ready | ~self.o.valid
        more = Signal()
        m.d.comb += more.eq((self.taken != self.posted) & room)
        with m.If(room):
            m.d.sync += [self.o.valid.eq(more), self.taken.eq(self.taken + more)]

        def read(name: str, bits: int) -> Value:
            m.submodules[f"shared_{name}"] = memory = Memory(shape=max(bits, _LEAST), depth=DEPTH, init=[])
            port = memory.read_port()
            m.d.comb += [port.en.eq(more), port.addr.eq(self.taken)]
            return port.data

        beat = self.o.payload
        if fields := _fields(beat):
            mark = MARK(read("marks", MARK.size))
            m.d.comb += [beat.octets.eq(mark.octets), beat.last.eq(mark.last)]
            m.d.comb += beat.data.eq(read("beats", len(beat.data)))
            m.d.comb += [beat[name].eq(mark.length) for name in ("length", "connection") if name in fields]
        else:
            m.d.comb += beat.eq(read("beats", len(beat)))
        return m


class OutRing(wiring.Component):  # type: ignore[misc]
    """Writes the beats of a stream to memory: packets with a note for each, words with their places, or plain words.

    Throughput: one beat per cycle while there is room. The ring of notes cannot overflow before the ring of beats,
    because there are never more notes than beats.

    Members
    -------
    i : the beats
    freed : count of the beats that the host has read, with their notes
    written : count of the beats that have been written
    notes : count of the notes that have been written
    """

    def __init__(self, shape: Any):
        super().__init__({"i": In(stream.Signature(shape)), "freed": In(16), "written": Out(16), "notes": Out(16)})

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        moves = self.i.valid & self.i.ready
        m.d.comb += self.i.ready.eq((self.written - self.freed)[:16] != DEPTH)
        with m.If(moves):
            m.d.sync += self.written.eq(self.written + 1)

        def write(name: str, value: Any, at: Value = self.written, when: Value = moves) -> None:
            bits = len(Value.cast(value))
            m.submodules[f"shared_{name}"] = memory = Memory(shape=max(bits, _LEAST), depth=DEPTH, init=[])
            port = memory.write_port()
            m.d.comb += [port.en.eq(when), port.addr.eq(at), port.data.eq(value)]

        beat = self.i.payload
        fields = _fields(beat)
        write("beats", beat.data if fields else beat)
        if "address" in fields:
            place = Signal(PLACE)
            m.d.comb += [place.word.eq(beat.address), place.mask.eq(beat.mask)]
            write("places", place)
        elif fields:
            note = Signal(NOTE)
            m.d.comb += [note.octets.eq(beat.octets), note.end.eq(self.written + 1)]
            # A ULPDU of the only connection has both, and a connection's number of no bits.
            m.d.comb += [note.verdict.eq(beat[name]) for name in ("connection", "verdict") if name in fields]
            write("notes", note, self.notes, moves & beat.last)
            with m.If(moves & beat.last):
                m.d.sync += self.notes.eq(self.notes + 1)
        return m


def _fields(beat: Any) -> dict[str, Any]:
    """Return the fields of a beat; there are none in a plain word."""
    return dict(beat.shape().members) if isinstance(beat, data.View) else {}


class Simulated(wiring.Component):  # type: ignore[misc]
    """RTL with its surroundings, and the words of its layout, ``control`` and ``status``."""

    def __init__(self, words: layout.Layout):
        self.words = words
        control, status = data.StructLayout(words.control), data.StructLayout(words.status)
        super().__init__({"control": In(control), "status": Out(status)})

    def ring_in(self, m: Module, name: str, to: wiring.PureInterface, flush: Value = _NEVER) -> None:
        """Put a ring before a stream."""
        ring = InRing(to.payload.shape())
        m.submodules[name] = ResetInserter(flush)(ring)
        wiring.connect(m, ring.o, to)
        m.d.comb += [ring.posted.eq(self.control[f"{name}_posted"]), self.status[f"{name}_taken"].eq(ring.taken)]

    def ring_out(self, m: Module, name: str, of: wiring.PureInterface, flush: Value = _NEVER) -> None:
        """Put a ring behind a stream."""
        ring = OutRing(of.payload.shape())
        m.submodules[name] = ResetInserter(flush)(ring)
        wiring.connect(m, of, ring.i)
        m.d.comb += [ring.freed.eq(self.control[f"{name}_freed"]), self.status[f"{name}_written"].eq(ring.written)]
        if f"{name}_notes" in self.words.status:
            m.d.comb += self.status[f"{name}_notes"].eq(ring.notes)

    def memory_rings(self, m: Module, memory: wiring.PureInterface, suffix: str = "") -> None:
        """Put rings at a memory port. Nothing flushes them: a reset of the engine leaves its accesses as they are."""
        self.ring_in(m, f"words{suffix}", memory.words)
        self.ring_out(m, f"writes{suffix}", memory.write)
        self.ring_out(m, f"reads{suffix}", memory.read)

    def registers(self, m: Module, bus: wiring.PureInterface, irq: ValueLike) -> None:
        """Connect a register bus and its interrupts."""
        m.d.comb += [bus.request.eq(self.control.turn != self.status.turn), self.status.irq.eq(irq)]
        m.d.comb += [getattr(bus, name).eq(self.control[name]) for name in ("write", "address", "write_data")]
        turn, read_data = Signal(), Signal(32)
        m.d.comb += [self.status.turn.eq(turn), self.status.read_data.eq(read_data)]
        with m.If(bus.request & bus.ack):
            m.d.sync += [turn.eq(self.control.turn), read_data.eq(bus.read_data)]

    def active(self, m: Module, moves: ValueLike, cycles: int) -> None:
        """Show that the RTL is active until nothing has moved for so many cycles, a power of two."""
        quiet = Signal(range(cycles))
        with m.If(moves):
            m.d.sync += quiet.eq(0)
        with m.Elif(~quiet.all()):
            m.d.sync += quiet.eq(quiet + 1)
        m.d.comb += self.status.active.eq(~quiet.all())


class SimulatedDatapath(Simulated):
    """An ``rtl.mpa.datapath.MpaDatapath``."""

    def __init__(self, datapath: Any, *, rdma: bool = False):
        self._datapath = datapath
        super().__init__(layout.device(datapath.lanes, rdma=rdma))

    def elaborate(self, platform: object) -> Module:  # noqa: D102
        m = Module()
        m.submodules.datapath = datapath = self._datapath
        for name in ("tx_ulpdu", "rx_mpa"):
            self.ring_in(m, name, getattr(datapath, name), self.control.flush)
        for name in ("tx_mpa", "rx_ulpdu"):
            self.ring_out(m, name, getattr(datapath, name), self.control.flush)
        self.registers(m, datapath.bus, datapath.irq)
        return m


def make(lanes: str) -> SimulatedDatapath:
    """Return a data path of ``lanes`` lanes."""
    return SimulatedDatapath(MpaDatapath(int(lanes)))
