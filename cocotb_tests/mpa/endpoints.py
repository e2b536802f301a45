"""Both ends of an MPA stream in a simulation, and a monitor.

A driver transfers the octets. :class:`MpaSource` takes a function that sends a chunk, such as ``Source(...).send`` or
cocotbext-axi's ``AxiStreamSource(...).send_nowait``. :class:`MpaSink` and :class:`MpaMonitor` take a coroutine function
that waits for the next chunk, such as ``Sink(...).receive``, ``Monitor(...).receive``, ``AxiStreamSink(...).recv`` or
``AxiStreamMonitor(...).recv``.
"""

import random
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any

import cocotb
from cocotb.queue import Queue

from open_rnic.cocotb_tests.mpa.fpdu import Checker, Fault, Fpdu, MpaError, spoilt
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.registers import MAX_ULPDU

__all__ = ["MpaMonitor", "MpaSink", "MpaSource"]


def _octets(chunk: Any) -> bytes:
    """Return the octets of a chunk: a packet of the harness, a frame of cocotbext-axi, or ``bytes``."""
    for name in ("octets", "tdata"):
        if hasattr(chunk, name):
            return bytes(getattr(chunk, name))
    return bytes(chunk)


class MpaSource:
    """Sends ULPDUs as FPDUs with or without faults, cut into chunks anywhere.

    Parameters
    ----------
    put : function that sends a chunk
    markers, crc : whether FPDUs have markers and a CRC
    offset : stream offset of the first FPDU, a multiple of 4
    sizes : yields the number of octets of each chunk, which is independent of the ends of FPDUs; call :meth:`flush` to
        send the last octets. By default, each FPDU is a chunk, or several as requested by ``cuts`` of :meth:`send`
    seed : seed for the random choices of faults

    """

    def __init__(
        self,
        put: Callable[[bytes], Any],
        *,
        markers: bool,
        crc: bool = True,
        offset: int = 0,
        sizes: Iterator[int] | None = None,
        seed: Any = None,
    ):
        self._put = put
        self._framer = FpduFramer(markers=markers, crc=crc, offset=offset)
        self._markers = markers
        self._sizes = sizes
        self._size = next(sizes) if sizes else 0
        self._chunk = bytearray()
        self._rng = random.Random(random.getrandbits(64) if seed is None else seed)

    @property
    def offset(self) -> int:
        """The stream offset at which the next FPDU starts."""
        return self._framer.offset

    def send(
        self,
        ulpdu: bytes,
        fault: Fault | None = None,
        *,
        value: int | None = None,
        cuts: Collection[int] = (),
        ends: bool = True,
    ) -> bytes:
        """Send an FPDU, and return its octets; does not wait.

        ``fault`` and ``value`` are arguments of :func:`.spoilt`. ``cuts`` are the positions at which new chunks begin,
        in octets from the start of the FPDU. If ``ends`` is false, the next FPDU continues in the same chunk. Raises
        ValueError for a fault that this FPDU cannot have, a cut outside the FPDU, and a ULPDU that is too long for MPA.
        """
        offset = self.offset
        fpdu = self._framer.frame(ulpdu)
        if fault:
            fpdu = spoilt(fpdu, offset, fault, markers=self._markers, value=value, rng=self._rng)
        if wrong := [each for each in cuts if not 0 <= each <= len(fpdu)]:
            raise ValueError(f"an FPDU of {len(fpdu)} octets cannot be cut at {wrong[0]}")
        at = 0
        for place in sorted(cuts):
            self.send_octets(fpdu[at:place])
            at = place
        self.send_octets(fpdu[at:], ends=ends)
        return fpdu

    def send_octets(self, octets: bytes, *, ends: bool = True) -> None:
        """Send octets that need not be an FPDU, such as startup frames or random data."""
        self._chunk += octets
        while self._sizes and len(self._chunk) >= self._size:
            self._give(self._size)
            self._size = next(self._sizes)
        if ends and not self._sizes:
            self.flush()

    def flush(self) -> None:
        """Send the octets of an incomplete chunk."""
        self._give(len(self._chunk))

    def _give(self, size: int) -> None:
        if size:
            self._put(bytes(self._chunk[:size]))
            del self._chunk[:size]


class MpaSink:
    """Receives FPDUs in chunks from ``get``, and checks ULPDU_Length, markers, PAD and CRC of each.

    A fault raises :class:`.MpaError`, which reports the fault, the octets and the stream offset. Faults in ``tolerate``
    do not raise an exception, and are only in ``Fpdu.problems``. If ``packets`` is set, each chunk must be exactly one
    FPDU, as this project's transmit outputs them. ``offset`` is the stream offset of the first FPDU, a multiple of 4.
    """

    def __init__(
        self,
        get: Callable[[], Awaitable[Any]],
        *,
        markers: bool,
        crc: bool = True,
        offset: int = 0,
        max_ulpdu: int = MAX_ULPDU,
        tolerate: Collection[Fault] = (),
        packets: bool = False,
    ):
        self._get = get
        self._checker = Checker(markers=markers, crc=crc, offset=offset, max_ulpdu=max_ulpdu)
        self._tolerate = tolerate
        self._packets = packets
        self._found: list[Fpdu] = []

    @property
    def offset(self) -> int:
        """The stream offset at which the next FPDU starts."""
        return self._checker.offset

    async def receive(self) -> Fpdu:
        """Wait for the next FPDU, and return it."""
        while not self._found:
            if self._checker.ended:
                raise AssertionError(f"FPDUs behind stream offset {self.offset} cannot be found")
            chunk = _octets(await self._get())
            self._found = self._checker.feed(chunk)
            if self._packets and chunk and (len(self._found) != 1 or self._checker.held):
                raise AssertionError(f"a packet of {len(chunk)} octets before {self.offset} is not exactly one FPDU")
        fpdu = self._found.pop(0)
        for problem in fpdu.problems:
            if problem.fault not in self._tolerate:
                raise MpaError(fpdu, problem)
        return fpdu


class MpaMonitor(MpaSink):
    """Checks a stream between two other parties. A fault ends the test, even if no test code waits for an FPDU.

    :meth:`receive` returns the FPDUs; ``fpdus`` is the number of FPDUs so far.
    """

    def __init__(self, get: Callable[[], Awaitable[Any]], **options: Any):
        super().__init__(get, **options)
        self.fpdus = 0
        self._seen: Queue[Fpdu] = Queue()
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while not self._checker.ended:
            self._seen.put_nowait(await super().receive())
            self.fpdus += 1

    async def receive(self) -> Fpdu:
        """Wait for the next FPDU on the stream, and return it."""
        return await self._seen.get()
