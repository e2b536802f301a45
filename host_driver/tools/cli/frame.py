"""``rnic frame`` and ``rnic deframe``: framing alone, with any device, line by line."""

from __future__ import annotations

import asyncio
import binascii
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from open_rnic.host_driver.tools.cli.common import (
    DeviceOption,
    LanesOption,
    UsageError,
    interruptible,
    number,
    open_device,
    with_options,
)
from open_rnic.rtl.registers import MAX_ULPDU, EventKind, Verdict

if TYPE_CHECKING:
    from open_rnic.host_driver.device import Device, Event

_STDIN = 0

MarkersOption = Annotated[bool, typer.Option("--markers", help="The stream has markers (RFC 5044 §4.3).")]
NoCrcOption = Annotated[bool, typer.Option("--no-crc", help="Send the CRC field as zero, and do not check it.")]
HexArgument = Annotated[
    list[str] | None, typer.Argument(metavar="HEX", help="The one line of input; default: standard input.")
]
OffsetOption = Annotated[
    int, number("--stream-offset", help="The offset in the marked stream at which the input starts; a multiple of 4.")
]


@dataclass(frozen=True, kw_only=True)
class FramingOptions:
    """The options that both commands share."""

    device: DeviceOption = "software"
    lanes: LanesOption = 4
    markers: MarkersOption = False
    no_crc: NoCrcOption = False
    stream_offset: OffsetOption = 0

    async def open(self) -> Device:
        """Open a device in MPA mode in both directions; the fence is open, and RTR and RDMAP rules are disabled."""
        if self.stream_offset < 0 or self.stream_offset % 4:
            raise UsageError(f"--stream-offset must be a multiple of 4, and at least 0, not {self.stream_offset}")
        crc = not self.no_crc
        device = await open_device(self.device, self.lanes)
        for direction in ("TX", "RX"):
            await device.set(f"{direction}_STREAM_OCTETS", 0)
            await device.set(f"{direction}_MPA_OFFSET", self.stream_offset % 512)
        await device.set_fields(
            "CONFIG", markers_tx=self.markers, markers_rx=self.markers, crc_tx=crc, crc_rx=crc, rdmap=0
        )
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        return device


@with_options
def frame(options: FramingOptions, line: HexArgument = None) -> None:
    """Make FPDUs of ULPDUs, both in hex.

    Each line of input is a ULPDU, each line of output its FPDU. An empty line is a ULPDU of no octets. The input may
    have spaces, as in 00 11 22.
    """

    async def run() -> None:
        lines = _input(line)
        async with await options.open() as opened:
            await frame_lines(lines, opened, _write)

    interruptible(run())


@with_options
def deframe(options: FramingOptions, line: HexArgument = None) -> None:
    """Extract ULPDUs from an MPA stream in hex.

    Each line of input is a chunk of the stream, cut anywhere. Each line of output is a JSON object: {"ulpdu": "<hex>"}.
    After an error, the last line is {"error": <MPA error code>, "what": "...", "offset": <stream offset of the FPDU>},
    and the exit status is 1.
    """

    async def run() -> bool:
        lines = _input(line)
        async with await options.open() as opened:
            return await deframe_lines(
                lines, opened, _write, markers=options.markers, stream_offset=options.stream_offset
            )

    if not interruptible(run()):
        raise typer.Exit(1)


async def frame_lines(lines: AsyncIterator[bytes], device: Device, write: Callable[[str], None]) -> None:
    """Send each line through ``device``, and ``write`` its FPDU as soon as it is complete.

    Raises UsageError for a line that is not a ULPDU, after everything before it has been written.
    """
    due: asyncio.Queue[bool] = asyncio.Queue()  # True: one more FPDU will come; False: end of the input

    async def feed() -> None:
        try:
            async for number, ulpdu in _from_hex(lines):
                if len(ulpdu) > MAX_ULPDU:
                    raise UsageError(f"line {number}: a ULPDU has at most {MAX_ULPDU} octets, not {len(ulpdu)}")
                due.put_nowait(True)
                await device.write_ulpdu(ulpdu)
        finally:
            due.put_nowait(False)

    feeding = asyncio.create_task(feed())
    try:
        while await due.get():
            write((await device.read_mpa()).hex())
        await feeding
    finally:
        await _cancel(feeding)


async def deframe_lines(
    lines: AsyncIterator[bytes],
    device: Device,
    write: Callable[[str], None],
    *,
    markers: bool,
    stream_offset: int,
) -> bool:
    """Send each line through ``device``, and ``write`` the results; returns False after an error.

    A device does not report when it is idle. This function therefore follows each ULPDU_Length itself: every complete
    FPDU must give a ULPDU or an error, and octets left over at the end are an FPDU cut short. Raises UsageError for a
    line that is not hex, after the results of all earlier lines have been written.
    """
    from open_rnic.host_driver.mpa.fpdu import FpduDelineator

    walk = FpduDelineator(markers=markers, crc=False, offset=stream_offset)
    due: asyncio.Queue[int | None] = asyncio.Queue()  # offset of each complete FPDU; None: end of the input

    async def feed() -> None:
        try:
            async for _, chunk in _from_hex(lines):
                walk.feed(chunk)
                start = walk.offset
                while walk.next() is not None:
                    due.put_nowait(start)
                    start = walk.offset
                if walk.error:  # the device detects this error, if no earlier one
                    due.put_nowait(start)
                await device.write_mpa(chunk)
                if walk.error:  # further octets have no effect, but hardware may need some to report the error
                    await device.write_mpa(bytes(256))
                    return
        finally:
            due.put_nowait(None)

    async def failure() -> Event:
        while True:
            event = await device.next_event()
            if event.kind is EventKind.ERROR:
                return event

    def absolute(offset: int) -> int:  # the device has the offset modulo 512
        return stream_offset - stream_offset % 512 + offset

    feeding, failing = asyncio.create_task(feed()), asyncio.create_task(failure())
    try:
        while (start := await due.get()) is not None:
            reading = asyncio.create_task(device.read_ulpdu())
            try:
                await asyncio.wait({reading, failing}, return_when=asyncio.FIRST_COMPLETED)
                if not failing.done() or start < absolute(failing.result().offset):
                    ulpdu = await reading
                    if ulpdu.verdict is Verdict.GOOD:
                        write(json.dumps({"ulpdu": ulpdu.octets.hex()}))
                        continue
                event = await failing
            finally:
                await _cancel(reading)
            write(_error(event.cause.code, event.what, absolute(event.offset)))
            return False
        await feeding
    finally:
        await _cancel(feeding, failing)
    if walk.held:
        octets = f"{walk.held} octet{'s' * (walk.held > 1)}"
        write(_error(1, f"the stream ends inside an FPDU, {octets} after its start", walk.offset))
    return not walk.held


def _input(line: list[str] | None) -> AsyncIterator[bytes]:
    """Return the lines of input: the words of the command line as one, or those of standard input."""
    if line:
        return _one(" ".join(line).encode())
    if sys.stdin is None:
        raise UsageError("standard input is closed")
    return read_lines(_STDIN)


async def _one(line: bytes) -> AsyncIterator[bytes]:
    yield line


async def read_lines(fd: int) -> AsyncIterator[bytes]:
    """Yield the lines of an open file as they arrive, without line ends; other tasks can run meanwhile."""
    line = bytearray()
    while True:
        await _readable(fd)
        octets = os.read(fd, 1 << 16)
        if not octets:
            break
        first, *rest = octets.split(b"\n")
        line += first
        for each in rest:
            yield bytes(line)
            line[:] = each
    if line:
        yield bytes(line)


async def _readable(fd: int) -> None:
    """Wait until a read does not block; returns at once for a file on disk, which cannot be polled."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(fd, ready.set)
    except PermissionError:
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _from_hex(lines: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Yield the number, from 1, and the octets of each line; raises UsageError for a line that is not hex."""
    number = 0
    async for line in lines:
        number += 1
        digits = b"".join(line.split())
        try:
            octets = binascii.unhexlify(digits)
        except ValueError:
            text = line.decode(errors="replace").rstrip()
            if bad := re.search(r"[^0-9a-fA-F\s]", text.lstrip()):
                column = len(text) - len(text.lstrip()) + bad.start() + 1
                raise UsageError(f"line {number}: {bad[0]!r} in column {column} is not a hex digit") from None
            raise UsageError(f"line {number}: an odd number of hex digits, {len(digits)}") from None
        yield number, octets


def _error(code: int, what: str, offset: int) -> str:
    return json.dumps({"error": code, "what": what, "offset": offset})


def _write(line: str) -> None:
    print(line, flush=True)


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
