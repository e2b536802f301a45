"""The STag table."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.late_read import late_read
from open_rnic.rtl.lib.rows import Clear, connection_field, forget, only_many
from open_rnic.rtl.lib.sizes import check_size
from open_rnic.rtl.rdma.layouts import ADDRESS_BITS

__all__ = [
    "MAX_REGIONS", "MAY_INVALIDATE", "RIGHTS", "Access", "Answer", "Found", "RegionTable", "Request", "RowWrite",
    "still_live",
]  # fmt: skip

MAX_REGIONS = 1 << 16  # a command has 16 bits for the number of a row
MAY_INVALIDATE = 3  # the bit of the rights behind those of Right: the peer's Sends may invalidate the STag
RIGHTS = MAY_INVALIDATE + 1


class Access(data.StructLayout):
    """The octets that a message of ``connection`` wants to access."""

    def __init__(self, connections: int = 1):
        super().__init__({"stag": 32, "to": 64, "octets": 32, **connection_field(connections)})


class Found(data.StructLayout):
    """The result of a lookup.

    Members
    -------
    live : 1 bit
        The table had the STag, and has it still.
    fits : 1 bit
        All octets are in the region.
    room : 32 bits
        If they are, the number of octets behind them in the region.
    rights : 4 bits
    offset, end : 32 bits
        The distances of the first octet, and of the octet behind the last one, from the region's first.
    address : 32 bits
        Its address in memory.
    row : bits of a row's number
    """

    def __init__(self, rows: int):
        super().__init__({
            "live": 1, "fits": 1, "room": 32, "rights": RIGHTS,
            "offset": 32, "end": 32, "address": ADDRESS_BITS, "row": range(rows),
        })  # fmt: skip


class RowWrite(wiring.Signature):
    """Words for row ``row`` of the table; ``fields`` says which one ``word`` is.

    Writing ``key``, the STag, makes the region valid.
    """

    NAMES = ("address", "octets", "to_low", "to_high", "key")

    def __init__(self, rows: int):
        super().__init__({
            "row": Out(range(rows)), "word": Out(32), "rights": Out(RIGHTS),
            "fields": Out(data.StructLayout(dict.fromkeys(self.NAMES, 1))),
        })  # fmt: skip


class Request(wiring.Signature):
    """A request for a lookup, in the rows of the connection of ``access``; ``granted`` in the same cycle."""

    def __init__(self, connections: int = 1):
        super().__init__({"valid": Out(1), "access": Out(Access(connections)), "granted": In(1)})


class Answer(wiring.Signature):
    """What a :class:`RegionTable` says to the blocks that look regions up.

    Members
    -------
    found : Out, :class:`Found`
        The result of the lookup that was granted 3 steps before.
    revokes : Out, 1 bit
    revoked_row : Out
        The region in this row goes in this cycle: see :func:`still_live`.
    """

    def __init__(self, rows: int):
        super().__init__({"found": Out(Found(rows)), "revokes": Out(1), "revoked_row": Out(range(rows))})


def still_live(live, row, answer):
    """``live`` for the next cycle: the region in row ``row`` is not revoked in this one."""
    return live & ~(answer.revokes & (answer.revoked_row == row))


class RegionTable(wiring.Component):
    """The regions that the peer's messages may access (RFC 5041 §8.2), and their lookup.

    A lookup takes 3 cycles; one starts per cycle. The table stalls as a whole while ``step`` is 0. A lookup that is
    under way when its region is revoked finds nothing, even if another region has come into the row.

    After a reset the table is cleared, which takes a cycle for each row; until then nothing is found.

    With many connections, each has ``rows`` rows. The number of the connection is above the row's number in all
    numbers of rows, so an STag of one connection is unknown to another.

    Members
    -------
    write : In, :class:`RowWrite`
    revoke : In, 1 bit
        No octet of the region in row ``write.row`` is found from this cycle on.
    invalidate : In, 1 bit
        The same for row ``invalidate_row``. While it is 1, ``revoke`` and ``write`` wait: see ``free``.
    invalidate_row : In, number of a row
    free : Out, 1 bit
        ``revoke`` and ``write`` take effect.
    ready : Out, 1 bit
        The table is clear.
    receive, transmit : In, :class:`Request`
        Requests for lookups; ``receive`` comes first.
    answer : Out, :class:`Answer`
    step : In, 1 bit

    With many connections, ``ready`` has a bit for each, and

    clear : In, :class:`.Clear`
        The rows of the connection are cleared from now on.
    """

    def __init__(self, rows: int, connections: int = 1):
        check_size("regions", rows, 2, MAX_REGIONS)
        self.rows = rows
        self.connections = connections
        self.row_bits = (rows - 1).bit_length()
        self.all_rows = rows * connections
        row = range(self.all_rows)
        super().__init__({
            "write": In(RowWrite(self.all_rows)),
            "revoke": In(1), "invalidate": In(1), "invalidate_row": In(row),
            "free": Out(1), "ready": Out(connections),
            "receive": In(Request(connections)), "transmit": In(Request(connections)),
            "answer": Out(Answer(self.all_rows)), "step": In(1),
            **only_many(connections, {"clear": In(Clear(connections))}),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        row = Signal(range(self.all_rows))
        access = Signal(Access(self.connections))
        m.d.comb += [
            access.eq(Mux(self.receive.valid, self.receive.access, self.transmit.access)),
            row.eq(Cat(access.stag[:self.row_bits], access.connection)),
            self.receive.granted.eq(self.step),
            self.transmit.granted.eq(self.step & ~self.receive.valid),
        ]
        self._compare(m, access, row, self._memories(m, row))
        return m

    def _is_ready(self, row):
        """Whether the rows of the connection of ``row`` are clear."""
        return self.ready.bit_select(row[self.row_bits:], 1)

    def _compare(self, m, access, row, words):
        """Compare the access with the words of its row."""
        bits = range(self.all_rows)
        # Cycle 1: compare the STag, and find the distance from the region's first TO.
        asked = Signal(access.shape(), reset_less=True)
        asked_row = Signal(bits, reset_less=True)
        asked_live = Signal()
        distance = Signal(64)
        has_stag = Signal()  # the low bits of the STag are the row
        key = words["key"]
        m.d.comb += has_stag.eq(key.valid & (key.high == asked.stag[self.row_bits:]))
        m.d.comb += distance.eq(asked.to - Cat(words["to_low"], words["to_high"]))
        # Cycle 2: compare with the length.
        offset = Signal(32, reset_less=True)
        far = Signal(32, reset_less=True)  # the high half of the distance
        octets = Signal(32, reset_less=True)
        length = Signal(32, reset_less=True)
        address = Signal(ADDRESS_BITS, reset_less=True)
        rights = Signal(RIGHTS, reset_less=True)
        near_row = Signal(bits, reset_less=True)
        end = Signal(33)
        room = Signal(34)  # negative if the octets do not fit
        m.d.comb += [end.eq(offset + octets), room.eq(length - end)]
        near_live = Signal()
        found_live = Signal()
        with m.If(self.step):
            m.d.sync += [
                asked.eq(access),
                asked_row.eq(row),
                asked_live.eq(still_live(self._is_ready(row), row, self.answer)),
                Cat(offset, far).eq(distance),
                octets.eq(asked.octets),
                length.eq(words["octets"]),
                address.eq(words["address"]),
                rights.eq(words["key"].rights),
                near_row.eq(asked_row),
                near_live.eq(still_live(asked_live & has_stag, asked_row, self.answer)),
                found_live.eq(still_live(near_live, near_row, self.answer)),
                self.answer.found.fits.eq((far == 0) & ~room[-1]),
                self.answer.found.room.eq(room),
                self.answer.found.offset.eq(offset),
                self.answer.found.end.eq(end),
                self.answer.found.address.eq(address + offset),
                self.answer.found.rights.eq(rights),
                self.answer.found.row.eq(near_row),
            ]
        with m.Else():
            m.d.sync += [
                asked_live.eq(still_live(asked_live, asked_row, self.answer)),
                near_live.eq(still_live(near_live, near_row, self.answer)),
                found_live.eq(still_live(found_live, self.answer.found.row, self.answer)),
            ]
        m.d.comb += self.answer.found.live.eq(found_live)

    def _memories(self, m, row):
        """The words of the row that was read in the last cycle."""
        words = {}
        for name in RowWrite.NAMES:
            shape = self._key_shape() if name == "key" else 32
            # A row that is written while it is read is found only if it has been live for a while: see ``revokes``.
            memory = Memory(shape=shape, depth=self.all_rows, init=[])
            m.submodules[name] = memory
            write, read = memory.write_port(), late_read(m, memory, name=f"{name}_read")
            m.d.comb += [read.addr.eq(row), read.en.eq(self.step)]
            words[name] = read.data
            if name == "key":
                self._write_key(m, write)
            else:
                m.d.comb += [
                    write.addr.eq(self.write.row),
                    write.data.eq(self.write.word),
                    write.en.eq(self.write.fields[name]),
                ]
        return words

    def _key_shape(self):
        """The key of a region: the STag without the bits that are the row, the rights, and whether there is one."""
        return data.StructLayout({"high": 32 - self.row_bits, "rights": RIGHTS, "valid": 1})

    def _write_key(self, m, write):
        """Write the key of a region, or clear it: when it is revoked, and after a reset of its connection.

        The rows of one connection after another are visited, and cleared unless they are clear.
        """
        visited = Signal(range(self.all_rows))
        connection = visited[self.row_bits:]
        ready = self.ready.bit_select(connection, 1)
        clears = Signal()
        m.d.comb += [
            self.free.eq(self._is_ready(self.write.row) & ~self.invalidate),
            self.answer.revokes.eq(self.invalidate | (self.free & (self.revoke | self.write.fields.key))),
            self.answer.revoked_row.eq(Mux(self.invalidate, self.invalidate_row, self.write.row)),
            clears.eq(~ready & ~self.answer.revokes),
            write.data.high.eq(self.write.word[self.row_bits:]),
            write.data.rights.eq(self.write.rights),
            write.data.valid.eq(self.free & self.write.fields.key),
            write.en.eq(clears | self.answer.revokes),
            write.addr.eq(Mux(self.answer.revokes, self.answer.revoked_row, visited)),
        ]
        with m.If(clears):
            m.d.sync += visited.eq(visited + 1)
            with m.If(visited[:self.row_bits].all()):
                m.d.sync += ready.eq(1)
        with m.Elif(ready):
            m.d.sync += connection.eq(connection + 1)
        if self.connections > 1:
            forget(m, self.clear, self.ready)
            with m.If(self.clear.now):
                m.d.sync += visited[:self.row_bits].eq(0)
