"""Rows of state: a row for each connection, of which the active connection's is in flip-flops."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import data
from amaranth.lib.memory import Memory

__all__ = [
    "Cells", "Clear", "InFlight", "Rows", "block_ram", "connection_field", "connection_shape", "forget", "only_many",
]  # fmt: skip


_LUT_RAM = 16  # words of the smallest LUT RAM: synthesis would make flip-flops of a smaller memory


def connection_shape(connections: int) -> range:
    """The shape of a connection's number."""
    return range(max(2, connections))


def connection_field(connections: int) -> dict[str, range]:
    """The field of a connection's number in a payload; that of the only connection has no bits."""
    return {"connection": range(connections)}


def only_many(connections: int, members: dict) -> dict:
    """Return ``members``, of which a single connection has no need, for several."""
    return members if connections > 1 else {}


class Clear(data.StructLayout):
    """The order to clear the state of ``connection``, while ``now`` is 1."""

    def __init__(self, connections: int):
        super().__init__({"now": 1, "connection": connection_shape(connections)})


def block_ram(connections: int) -> dict[str, str]:
    """The attributes of a memory that has few words for each connection.

    It is in block RAM for more than four connections; a board for a few has none to spare.
    """
    return {"ram_style": "block"} if connections > 4 else {}


def forget(m: Module, clear, *flags: Value) -> None:
    """Clear the bit of a connection in ``flags``, which have one for each, as ``clear`` says."""
    with m.If(clear.now):
        m.d.sync += [each.bit_select(clear.connection, 1).eq(0) for each in flags]


class Cells:
    """A number for each connection: with one connection a register, with many LUT RAM.

    Unlike :class:`Rows`, no number is in flip-flops, so a change of connection takes no time.

    Parameters
    ----------
    signal : the number of connection ``at``; with one connection, the register itself
    at : the connection whose number may be written
    clear : a :class:`Clear`: the number becomes 0. Nothing is written in the same cycle. Many connections need
        it; one may have a reset instead
    value : all that is ever written, if that is the same everywhere. It saves a look-up table for each bit.

    """

    def __init__(self, m: Module, signal: Signal, connections: int = 1, at: ValueLike = 0, clear=None, value=None):
        self.signal = signal
        self._at = at
        self._memory = None
        self._value = value
        if connections > 1:
            m.submodules[f"{signal.name}_cells"] = self._memory = Memory(
                shape=len(signal), depth=max(_LUT_RAM, connections), init=[]
            )
            self._port = self._memory.write_port()
            m.d.comb += [self._port.addr.eq(Mux(clear.now, clear.connection, at)), self._port.en.eq(clear.now)]
            m.d.comb += signal.eq(self._read(m, at))
            if value is not None:
                m.d.comb += self._port.data.eq(Mux(clear.now, 0, value))
        elif clear is not None:
            with m.If(clear.now):
                m.d.sync += signal.eq(0)

    def read(self, m: Module, at: ValueLike) -> Value:
        """Return the number of connection ``at``."""
        return self.signal if self._memory is None or at is self._at else self._read(m, at)

    def _read(self, m, at):
        port = self._memory.read_port(domain="comb")
        m.d.comb += port.addr.eq(at)
        return port.data

    def write(self, m: Module, value: ValueLike | None = None) -> None:
        """Write the number, under the conditions of ``m``; it is there in the next cycle."""
        if value is None:
            value = self._value
        if self._memory is None:
            m.d.sync += self.signal.eq(value)
        elif value is self._value:
            m.d.comb += self._port.en.eq(1)
        else:
            m.d.comb += [self._port.data.eq(value), self._port.en.eq(1)]

    def count(self, m: Module, when: ValueLike) -> None:
        """Add 1 to the number, which has few bits, in a cycle in which ``when`` is 1."""
        with m.If(when):
            self.write(m, self.signal ^ Cat(self.signal[:n].all() for n in range(len(self.signal))))


class InFlight:
    """What has begun and not ended of each of many connections: the difference of the counts ``begun`` and ``ended``.

    Each is :class:`Cells`, so one connection's may begin in the cycle in which another's ends.

    Parameters
    ----------
    shape : of the counts, in which the largest difference fits
    begins_of, ends_of : the connections of what begins and of what ends
    clear : a :class:`Clear`

    """

    def __init__(self, m: Module, name: str, shape, connections: int, begins_of, ends_of, clear):
        self.begun, self.ended = (
            Cells(m, Signal(shape, name=f"{name}_{which}"), connections, at, clear)
            for which, at in (("begun", begins_of), ("ended", ends_of))
        )

    def number(self, m: Module, at: ValueLike) -> Value:
        """Return how many of connection ``at`` have begun, and not ended."""
        return (self.begun.read(m, at) - self.ended.read(m, at))[: len(self.begun.signal)]

    def any(self, m: Module, at: ValueLike) -> Value:
        """Return whether any has."""
        return self.begun.read(m, at) != self.ended.read(m, at)


class Rows:
    """The state of many connections, of which a block needs one connection's at a time.

    :attr:`state` is the row of the active connection: a block reads it, and assigns to its fields, as if there were no
    other connection. The other rows are in memory with an asynchronous read port (LUT RAM). The active
    row is stored in every cycle, and :meth:`switch` loads another one in one cycle. Each row is cleared after power-up,
    and when its connection is reset. With one connection, the row is all that there is.

    Parameters
    ----------
    layout : the struct of a row
    connections : the number of rows

    Attributes
    ----------
    state : ``layout``
        The row of the active connection.
    active : range(``connections``)
        The active connection.

    """

    def __init__(self, layout, connections: int = 1):
        if connections < 1:
            raise ValueError(f"connections must be at least 1, not {connections!r}")
        self.connections = connections
        self.state = Signal(layout, name="state")
        self.active = Signal(connection_shape(connections))

    def are_of(self, connection: ValueLike) -> Value:
        """Whether the active row is that of ``connection``."""
        return Const(1) if self.connections == 1 else self.active == connection

    def switch(self, m: Module, to: ValueLike, when: ValueLike, clear=None) -> None:
        """Make ``to`` the active connection in cycles in which ``when`` is 1.

        ``clear`` is a :class:`Clear`: this connection becomes the active one, and its row the initial value. One
        connection may have a reset instead. Both take precedence over what the block assigns in the same cycle, so the
        call comes after all statements that assign.
        """
        row = Value.cast(self.state)
        if self.connections == 1:
            if clear is not None:
                with m.If(clear.now):
                    m.d.sync += row.eq(row.init)
            return
        m.submodules.rows = memory = Memory(shape=len(row), depth=self.connections, init=[])
        store, load = memory.write_port(), memory.read_port(domain="comb")
        # Stored in every cycle, the row needs no multiplexer.
        m.d.comb += [store.addr.eq(self.active), store.data.eq(row), store.en.eq(1), load.addr.eq(to)]
        with m.If(clear.now):
            m.d.sync += [self.active.eq(clear.connection), row.eq(row.init)]
        with m.Elif(when & ~self.are_of(to)):
            m.d.sync += [self.active.eq(to), row.eq(load.data)]
