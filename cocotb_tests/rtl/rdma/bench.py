"""A bench for the RDMA engine: memory, the streams of ULPDUs, and its registers."""

import functools
import random
from collections import deque
from collections.abc import Iterator
from typing import Any

import cocotb
from cocotb.triggers import ClockCycles, Event, RisingEdge

from open_rnic.cocotb_tests.harness import Beats, Part, Received, Sink, Source, at_width, never
from open_rnic.cocotb_tests.harness.benches import given
from open_rnic.cocotb_tests.harness.datapath import taken, word_of
from open_rnic.host_driver.ddp import Opcode, ReadRequest, Tagged, Untagged, decode
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.devices.sim.signals import drive, rises_with
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.rtl import registers
from open_rnic.rtl.formats.opcodes import INVALIDATES
from open_rnic.rtl.rdma.engine import RdmaEngine
from open_rnic.rtl.rdma.registers import BY_NAME, HEADER_WORDS, REQUEST_WORDS, Command, Right
from open_rnic.rtl.registers import Rtr, Verdict

OCTETS = 1 << 16  # of memory
MAY_INVALIDATE = 8  # beside the rights: the peer's Sends may invalidate the STag
ALL_RIGHTS = Right.LOCAL_WRITE | Right.REMOTE_WRITE | Right.REMOTE_READ
REST = ("ULPDUS", "RX_SEND_MSN", "RX_READ_MSN", "RX_MO")


SIZES = {"regions": 16, "buffers": 4, "work": 8, "reads": 4}  # few rows and queues, so that tests fill them


def engine(lanes: int) -> Part:
    """Return an engine for ``simulate``, beside those of the other widths of the run."""
    return at_width(functools.partial(RdmaEngine, **SIZES), lanes)


class Memory:
    """Memory behind the port ``memory`` of the engine.

    ``octets`` has all octets that were written. Reads return octets of a run only after the beat with ``last``, and the
    old ones before. ``touched`` collects the addresses that were written. ``idle`` yields cycles before each word that
    is read, ``busy`` stalls before each address and each write. Words at the addresses in ``faulty`` cannot be read.
    While it is ``silent``, no word comes. ``parts`` counts the transfers of each part of OCTETS octets, of which there
    is one for each connection.
    """

    def __init__(self, dut: Any, idle: Iterator[int] | None = None, busy: Iterator[int] | None = None, parts: int = 1):
        self.octets = bytearray(random.randbytes(parts * OCTETS))
        self.touched: set[int] = set()
        self.transfers = self.reads = 0
        self.parts = [0] * parts
        self.outstanding: deque[tuple[int, bool]] = deque()
        self.faulty: set[int] = set()
        self._silent = False
        self._asked = Event()  # for a word, or it is no longer silent
        self._visible = bytearray(self.octets)
        self._fields = dict(given()["streams"]["memory__write"])
        self._width = self._fields["data"][1] // 8
        self._idle = idle or never()
        self._dut = dut
        self._edge = RisingEdge(dut.clk)
        dut.memory__words__valid.value = 0
        dut.memory__write_fault.value = 0
        self.ports = Beats(dut, "memory__write", busy), Beats(dut, "memory__read", busy)
        cocotb.start_soon(self._write(self.ports[0]))
        cocotb.start_soon(self._read(self.ports[1]))
        cocotb.start_soon(self._words())

    @property
    def silent(self) -> bool:
        return self._silent

    @silent.setter
    def silent(self, silent: bool) -> None:
        self._silent = silent
        self._asked.set()

    def put(self, address: int, octets: bytes) -> None:
        """Write octets from the host's side."""
        self.octets[address : address + len(octets)] = octets
        self._visible[address : address + len(octets)] = octets

    def get(self, address: int, octets: int) -> bytes:
        """Read octets from the host's side."""
        return bytes(self.octets[address : address + octets])

    async def _write(self, beats: Beats) -> None:
        while True:
            beat = await beats.take()
            word = {name: beat >> lsb & ((1 << width) - 1) for name, (lsb, width) in self._fields.items()}
            start = word["address"] * self._width
            assert start < len(self.octets) or not word["mask"], f"a write at {start:#x}"
            for n in range(self._width):
                if word["mask"] >> n & 1:
                    self.octets[start + n] = word["data"] >> 8 * n & 0xFF
                    self.touched.add(start + n)
            if word["last"]:
                self._visible[:] = self.octets
            self._count(start)

    async def _read(self, beats: Beats) -> None:
        while True:
            start = await beats.take() * self._width
            assert start < len(self.octets), f"a read at {start:#x}"
            self.reads += 1
            if faulty := start in self.faulty:
                word = random.getrandbits(8 * self._width)
            else:
                word = int.from_bytes(self._visible[start : start + self._width], "little")
            self.outstanding.append((word, faulty))
            self._asked.set()
            self._count(start)

    def _count(self, address: int) -> None:
        self.transfers += 1
        self.parts[address // OCTETS % len(self.parts)] += 1

    async def _words(self) -> None:
        valid, word, ready = (getattr(self._dut, f"memory__words__{each}") for each in ("valid", "payload", "ready"))
        fault = self._dut.memory__fault
        while True:
            if self.silent or not self.outstanding:
                drive(valid, 0)
                drive(word, random.getrandbits(8 * self._width))
                drive(fault, random.getrandbits(1))
            while self.silent or not self.outstanding:
                self._asked.clear()
                await self._asked.wait()
            if pause := next(self._idle):
                drive(valid, 0)
                for _ in range(pause):
                    await self._edge
            drive(valid, 1)
            octets, is_faulty = self.outstanding.popleft()
            drive(word, octets)
            drive(fault, is_faulty)
            await rises_with(self._edge, ready)
            self.transfers += 1


class Engine:
    """Drives all ports of an ``RdmaEngine``. ``idle`` and ``busy`` as in the drivers of the streams."""

    STREAMS = "rx_ulpdu", "tx_ulpdu", "host_tx", "host_rx"

    def __init__(
        self,
        dut: Any,
        idle: Iterator[int] | None = None,
        busy: Iterator[int] | None = None,
    ):
        self.dut = dut
        self._edge = RisingEdge(dut.clk)
        for name in ("bus__request", "reset", "rtr__sends", "rtr__received", "rtr__answered", "fabric__valid"):
            if hasattr(dut, name):
                getattr(dut, name).value = 0
        self.memory = Memory(dut, idle, busy)
        rx, tx, host_tx, host_rx = self.STREAMS
        self.rx = Source(dut, rx, idle)
        self.tx = Sink(dut, tx, busy)
        self.host_tx = Source(dut, host_tx, idle)
        self.host_rx = Sink(dut, host_rx, busy)
        self.sent: list[bytes] = []  # ULPDUs that ``settle`` has collected
        self.gives_up = False  # it may end ULPDUs at another length than they said: ``given_up``
        self.given_up: list[bytes] = []
        self.passed: list[bytes] = []

    # --- registers

    async def access(self, name: str, value: int | None = None) -> int:
        """Write a register of the engine, or read it."""
        register = BY_NAME[f"RDMA_{name}"]
        return await self._access(register, value)

    async def _access(self, register: registers.Register, value: int | None) -> int:
        return await access_register(self.dut, register.address >> 2 & 0xFF, value)

    async def field(self, name: str) -> int:
        """Read a field of STATUS, DONE or ULPDUS, by its name."""
        for register in ("STATUS", "DONE", "ULPDUS"):
            for field in BY_NAME[f"RDMA_{register}"].fields:
                if field.name == name:
                    return field.get(await self.access(register))
        raise KeyError(name)

    async def control(self, **flags: int) -> None:
        """Write CONTROL; ``enable`` and ``waits`` are set unless they are given."""
        await self.access("CONTROL", _word("CONTROL", **({"enable": 1, "waits": 1} | flags)))

    async def limits(self, mulpdu: int, ird: int, ord: int) -> None:  # noqa: A002
        """Write LIMITS."""
        await self.access("LIMITS", _word("LIMITS", mulpdu=mulpdu, ird=ird, ord=ord))

    async def start(self, mulpdu: int = 200, ird: int = 4, ord: int = 4, **flags: int) -> None:  # noqa: A002
        """Wait until the engine is ready, and enable it."""
        while not await self.field("ready"):
            pass
        await self.limits(mulpdu, ird, ord)
        await self.control(**flags)

    # --- commands

    async def command(self, *words: int) -> None:
        """Write the words of a command."""
        for word in words:
            await self.access("COMMAND", word)

    async def region(self, stag: int, address: int, octets: int, *, to: int = 0, rights: int = ALL_RIGHTS) -> None:
        """Put a region into the STag table."""
        await self.command(
            Command.REGION << 28 | (stag & 0xFFFF) << 8 | rights, address, octets, to & 0xFFFF_FFFF, to >> 32, stag
        )

    async def revoke(self, stag: int) -> None:
        """Revoke a region."""
        await self.command(Command.REVOKE << 28, stag)

    async def buffer(self, address: int, octets: int) -> None:
        """Post a buffer for a Send."""
        await self.command(Command.BUFFER << 28, address, octets)

    async def withdraw(self, number: int) -> None:
        """Withdraw the buffer that was posted as this one, from 0 on."""
        await self.command(Command.WITHDRAW << 28, number)

    async def work(
        self, opcode: Opcode, *pieces: tuple[int, int], stag: int = 0, to: int = 0, fence: bool = False
    ) -> None:
        """Post a Send or an RDMA Write of these pieces, each an address and octets."""
        octets = sum(size for _, size in pieces)
        await self.command(
            Command.WORK << 28 | len(pieces) << 8 | fence << 4 | opcode, octets, stag, to & 0xFFFF_FFFF, to >> 32,
            *(word for piece in pieces for word in piece),
        )  # fmt: skip

    async def read(
        self, octets: int, stag: int, to: int, *, sink: int, address: int, fence: bool = False
    ) -> None:
        """Post an RDMA Read from the peer's ``stag`` and ``to`` to ``address``, where the STag ``sink`` is valid."""
        await self.command(
            Command.WORK << 28 | 1 << 8 | fence << 4 | Opcode.RDMA_READ_REQUEST, octets, stag,
            to & 0xFFFF_FFFF, to >> 32, address, sink,
        )  # fmt: skip

    # --- ULPDUs

    def receive(self, *ulpdus: bytes | Tagged | Untagged) -> None:
        """Give the engine ULPDUs of the peer; does not wait."""
        for each in ulpdus:
            octets = each if isinstance(each, bytes) else each.encode()
            self.rx.send(octets, length=len(octets), verdict=Verdict.GOOD)

    def host_sends(self, ulpdu: bytes) -> None:
        """Send a ULPDU of the host; does not wait."""
        self.host_tx.send(ulpdu, length=len(ulpdu))

    async def cycles(self, count: int) -> None:
        """Wait for ``count`` cycles."""
        await ClockCycles(self.dut.clk, count)

    async def settle(self, quiet: int = 60, most: int = 50_000) -> None:
        """Wait until no octet has moved for ``quiet`` cycles; collect the ULPDUs that were sent."""
        before: Any = None
        for _ in range(most // quiet):
            await self.cycles(quiet)
            self.sent += self._ulpdus(await taken(self.tx))
            for each in await taken(self.host_rx):
                self.passed.append(each.octets)
            now = [each.transfers for each in (self.rx, self.tx, self.host_tx, self.host_rx, self.memory)]
            if now == before:
                return
            before = now
        raise AssertionError(f"octets still move after {most} cycles")

    def _ulpdus(self, packets: list[Received]) -> list[bytes]:
        whole = []
        for each in packets:
            length, octets = each.fields["length"], len(each.octets)
            assert length == octets or self.gives_up, "a ULPDU of another length than it said"
            assert -(-length // 4) == -(-octets // 4), "and in another number of lanes"
            (whole if length == octets else self.given_up).append(each.octets)
        return whole

    async def segments(self) -> list[Tagged | Untagged]:
        """Wait until the engine has settled, and return the segments that it has sent since the last call."""
        await self.settle()
        found = [_plain(decode(each)) for each in self.sent]
        self.sent.clear()
        return found

    async def received(self) -> list[tuple[Opcode, int, int | None] | None]:
        """Take all completed Sends: their Opcode, their length, and the STag that they have invalidated, or None.

        A buffer that was withdrawn is None.
        """
        found: list[tuple[Opcode, int, int | None] | None] = []
        while (word := await self.access("RECEIVED")) & 1:
            if not word >> 4:
                found.append(None)
                continue
            opcode = Opcode(word >> 4)
            octets, stag = await self.access("RECEIVED_OCTETS"), await self.access("RECEIVED_STAG")
            found.append((opcode, octets, stag if opcode in INVALIDATES else None))
        assert not word
        return found

    async def done(self) -> tuple[int, int]:
        """Return the number of Sends and RDMA Writes, and of RDMA Reads, that are done."""
        word = await self.access("DONE")
        return word & 0xFFFF, word >> 16

    async def refused(self) -> tuple[bytes, int] | None:
        """Return the header of the refused ULPDU and its length, or None if none was refused."""
        status = await self.access("STATUS")
        if not status >> 1 & 1 or status >> 3 & 1:
            return None
        words = [await self.access(f"REFUSED_{n}") for n in range(HEADER_WORDS)]
        return b"".join(each.to_bytes(4, "big") for each in words), await self.access("REFUSED_LENGTH")

    async def source(self) -> ReadRequest:
        """Return the RDMA Read Request whose source must not be read; once."""
        words = [await self.access("SOURCE") for _ in range(REQUEST_WORDS)]
        return ReadRequest.decode(b"".join(each.to_bytes(4, "big") for each in words))

    async def expect_refused(self, ulpdu: bytes | Tagged | Untagged) -> None:
        """Assert that this ULPDU is the refused one, and that the engine has come to rest."""
        octets = ulpdu if isinstance(ulpdu, bytes) else ulpdu.encode()
        meant = 14 if octets[0] & 0x80 else 18
        found = await self.refused()
        assert found is not None, "nothing was refused"
        assert (found[0][:meant], found[1]) == (octets[:meant], len(octets))
        assert not await self.field("placing")
        assert not await self.field("sending")

    def restart_sinks(self) -> None:
        """Discard a ULPDU that a reset has cut off."""
        self.tx.restart()
        self.sent.clear()

    async def reset(self) -> None:
        """Reset the connection, as CONTROL.reset of the data path does."""
        ports = *self.memory.ports, self.tx.port, self.host_rx.port
        self.dut.reset.value = 1
        for port in ports:
            port.resets = True
        await self.cycles(1)
        self.dut.reset.value = 0
        await self.cycles(2)
        for port in ports:
            port.resets = False


class OnDatapath(Engine):
    """Drives all ports of an ``RdmaDatapath``."""

    STREAMS = "rx_mpa", "tx_mpa", "tx_ulpdu", "rx_ulpdu"

    def __init__(self, dut: Any, idle: Iterator[int] | None = None, busy: Iterator[int] | None = None):
        super().__init__(dut, idle, busy)
        self._framer = FpduFramer(markers=False, crc=True)
        self._delineator = FpduDelineator(markers=False, crc=True)

    async def start(self, mulpdu: int = 200, ird: int = 4, ord: int = 4, **flags: int) -> None:  # noqa: A002
        """Enable the engine, and then MPA mode; ``receive`` and ``sent`` are ULPDUs as for the engine alone."""
        await super().start(mulpdu, ird, ord, **flags)
        for name, fields in (("CONFIG", {"rdmap": 0}), ("CONTROL", {"tx_enable": 1, "rx_enable": 1})):
            await self._access(registers.BY_NAME[name], word_of(name, **fields))

    def receive(self, *ulpdus: bytes | Tagged | Untagged) -> None:
        """Give the data path FPDUs of the peer, one in each packet; does not wait."""
        for each in ulpdus:
            self.rx.send(self._framer.frame(each if isinstance(each, bytes) else each.encode()))

    def _ulpdus(self, packets: list[Received]) -> list[bytes]:
        self._delineator.feed(b"".join(each.octets for each in packets))
        return self._delineator.take()


def _word(name: str, **fields: int) -> int:
    register = BY_NAME[f"RDMA_{name}"]
    return sum(register[each].put(value) for each, value in fields.items())


def _plain(segment: Tagged | Untagged) -> Tagged | Untagged:
    return segment._replace(payload=bytes(segment.payload))


def cut_send(
    opcode: Opcode, msn: int, message: bytes, sizes: int | list[int], stag: int = 0
) -> list[Untagged]:
    """Return the segments of a Send, of these sizes; a number is the size of each."""
    return [
        Untagged(opcode, 0, msn, at, last, piece, stag) for at, piece, last in _cut(message, sizes)
    ]


def cut_tagged(opcode: Opcode, stag: int, to: int, message: bytes, sizes: int | list[int]) -> list[Tagged]:
    """Return the segments of an RDMA Write or a Read Response, of these sizes; a number is the size of each."""
    return [Tagged(opcode, stag, to + at, last, piece) for at, piece, last in _cut(message, sizes)]


def _cut(message: bytes, sizes: int | list[int]) -> Iterator[tuple[int, bytes, bool]]:
    if isinstance(sizes, int):
        sizes = [sizes] * max(1, -(-len(message) // sizes))
    at = 0
    for n, size in enumerate(sizes):
        yield at, message[at : at + size], n == len(sizes) - 1
        at += size
    assert at >= len(message)


def request(msn: int, asked: ReadRequest) -> Untagged:
    """Return an RDMA Read Request of the peer."""
    return Untagged(Opcode.RDMA_READ_REQUEST, 1, msn, 0, True, asked.encode())


__all__ = [
    "ALL_RIGHTS", "MAY_INVALIDATE", "OCTETS", "REST", "Engine", "Memory", "OnDatapath", "Rtr",
    "cut_send", "cut_tagged", "engine", "request",
]  # fmt: skip
