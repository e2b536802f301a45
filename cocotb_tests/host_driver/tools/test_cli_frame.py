"""``rnic frame`` and ``rnic deframe``, as a user runs them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
from collections.abc import AsyncIterator

import pytest

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.device import Device, DeviceError
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.cli.frame import deframe_lines, frame_lines


def lined(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def options(vector) -> list[str]:
    return ["--stream-offset", str(vector.stream_offset)] + ["--markers"] * vector.markers


@pytest.mark.parametrize("vector", FPDUS[:3], ids=str)
def test_vectors_frame_and_deframe(rnic, vector):
    assert rnic("frame", *options(vector), lines=[vector.ulpdu.hex()]) == (0, f"{vector.wire.hex()}\n", "")
    found = rnic("deframe", *options(vector), lines=[vector.wire[:7].hex(), "", vector.wire[7:].hex().upper()])
    assert found == (0, json.dumps({"ulpdu": vector.ulpdu.hex()}) + "\n", "")


def test_an_empty_line_is_an_empty_ulpdu_and_the_last_line_needs_no_newline(rnic):
    fpdus = [FpduFramer(markers=False, crc=True).frame(each).hex() for each in (b"", b"ab", b"", b"c")]
    assert rnic("frame", lines="\n  6162 \r\n\n63") == (0, lined(fpdus), "")


def test_without_crc_the_field_is_zero(rnic):
    assert rnic("frame", "--no-crc", lines=["61 62"]) == (0, "0002616200000000\n", "")
    assert rnic("deframe", "--no-crc", lines=["0002616201020304"]) == (0, '{"ulpdu": "6162"}\n', "")


@pytest.mark.parametrize("words", [["61 62"], ["6162"], ["61", "62"]], ids=" ".join)
def test_a_line_may_stand_behind_the_command(rnic, words):
    assert rnic("frame", "--no-crc", *words) == (0, "0002616200000000\n", "")
    assert rnic("deframe", "--no-crc", "0002 6162", "01020304") == (0, '{"ulpdu": "6162"}\n', "")
    assert rnic("frame", "6g") == (2, "", "rnic: line 1: 'g' in column 2 is not a hex digit\n")


@pytest.mark.parametrize(
    ("command", "line", "message"),
    [
        ("frame", "61g2", "line 3: 'g' in column 3 is not a hex digit"),
        ("frame", " 61 g2", "line 3: 'g' in column 5 is not a hex digit"),
        ("deframe", "ü", "line 3: 'ü' in column 1 is not a hex digit"),
        ("deframe", "616", "line 3: an odd number of hex digits, 3"),
        ("frame", "00" * 64769, "line 3: a ULPDU has at most 64768 octets, not 64769"),
    ],
)
def test_a_bad_line_is_reported_after_the_output_of_earlier_lines(rnic, command, line, message):
    good = FpduFramer(markers=False, crc=True)
    fpdus = [good.frame(each).hex() for each in (b"a", b"b")]
    ulpdus = ["61", "62"]
    given, made = (ulpdus, fpdus) if command == "frame" else (fpdus, [json.dumps({"ulpdu": each}) for each in ulpdus])
    assert rnic(command, lines=[*given, line, *given]) == (2, lined(made), f"rnic: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--stream-offset", "6"], "--stream-offset must be a multiple of 4, and at least 0, not 6"),
        (["--stream-offset", "-4"], "--stream-offset must be a multiple of 4, and at least 0, not -4"),
        (["--lanes", "3"], "a device is 1, 2, 4, 8 or 16 lanes wide, not 3"),
        (["--lanes", "four"], "Invalid value for '--lanes': 'four' is not a whole number"),
        (
            ["--device", "toaster"],
            "no device is called 'toaster'; there are software, simulated, serial:PORT[:BAUD], serial:sim:BOARD, "
            "udp:ADDRESS[:PORT] and udp:sim:BOARD[:N][:sdram|:netlist]",
        ),
    ],
)
def test_invalid_options_are_reported_in_one_line(rnic, arguments, message):
    assert rnic("frame", *arguments) == (2, "", f"rnic: {message}\n")


BIG = 10**30 * 512  # a stream may start at any offset


@pytest.mark.parametrize("stream_offset", [0, 508, 4, BIG, BIG + 16])
def test_an_error_has_its_stream_offset_and_ends_the_output(rnic, stream_offset):
    framer = FpduFramer(markers=True, crc=True, offset=stream_offset)
    first = framer.frame(b"good")
    place = framer.offset
    second = bytearray(framer.frame(bytes(600)))
    second[99] ^= 8
    third = framer.frame(b"late")
    status, out, errors = rnic(
        "deframe",
        "--markers",
        "--stream-offset",
        str(stream_offset),
        lines=[first.hex(), second.hex(), third.hex(), "this is never read"],
    )
    assert (status, errors) == (1, "")
    assert [json.loads(line) for line in out.splitlines()] == [
        {"ulpdu": b"good".hex()},
        {"error": 2, "what": "the CRC of the FPDU with ULPDU_Length 600 does not match", "offset": place},
    ]


def test_an_impossible_length_is_error_3_at_once(rnic):
    status, out, _ = rnic("deframe", lines=["ff00"])
    assert (status, json.loads(out)) == (
        1,
        {"error": 3, "what": "ULPDU_Length 65280 is over the maximum", "offset": 0},
    )


@pytest.mark.parametrize(
    ("sizes", "cut", "inside", "offset"),
    [
        ([0, 10], 5, "11 octets", 12),
        ([0, 10], 15, "1 octet", 12),
        ([502, 0], 8, "4 octets", 512),
        ([502, 0], 12, "", 0),
    ],
)
def test_a_stream_that_ends_inside_an_fpdu_is_error_1_at_its_start(rnic, sizes, cut, inside, offset):
    """Third case: a marker before an FPDU belongs to this FPDU (RFC 5044 §4.3). Fourth case: the marker is missing."""
    framer = FpduFramer(markers=True, crc=True)
    stream = b"".join(framer.frame(bytes(size)) for size in sizes)[:-cut]
    status, out, _ = rnic("deframe", "--markers", lines=[stream.hex()])
    first, *more = map(json.loads, out.splitlines())
    assert first == {"ulpdu": "00" * sizes[0]}
    expected = {"error": 1, "what": f"the stream ends inside an FPDU, {inside} after its start", "offset": offset}
    assert more == ([expected] if inside else [])
    assert status == (1 if inside else 0)


@pytest.mark.parametrize("command", ["frame", "deframe"])
def test_output_appears_while_input_arrives(command):
    fpdu = FpduFramer(markers=False, crc=True).frame(b"a").hex()
    given, made = ("61", fpdu) if command == "frame" else (fpdu, '{"ulpdu": "61"}')
    with subprocess.Popen([*RNIC, command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        for _ in range(2):
            print(given, file=process.stdin, flush=True)
            assert process.stdout.readline().strip() == made
        process.stdin.close()
        assert process.wait(HANG) == 0


def test_an_interrupted_command_exits_silently_with_130():
    with subprocess.Popen(
        [*RNIC, "frame"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        print("61", file=process.stdin, flush=True)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert (process.wait(HANG), process.stderr.read()) == (130, "")


def test_a_closed_pipe_causes_no_message():
    reading, writing = os.pipe()
    os.close(reading)
    command = [*RNIC, "frame"]
    done = subprocess.run(command, input="61\n", stdout=writing, stderr=subprocess.PIPE, text=True, timeout=HANG)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


def test_input_and_output_may_be_files(rnic, tmp_path):
    choice = random.Random(5044)
    ulpdus = [choice.randbytes(choice.randrange(3000)).hex() for _ in range(200)]
    source = tmp_path / "ulpdus"
    source.write_text("\n".join(ulpdus) + "\n")
    with source.open() as lines:
        command = [*RNIC, "frame", "--markers"]
        framed = subprocess.run(command, stdin=lines, capture_output=True, text=True, timeout=HANG)
    stream = framed.stdout.replace("\n", "")
    chunks = []
    while stream:
        size = 2 * choice.randrange(4000)
        chunks.append(stream[:size])
        stream = stream[size:]
    status, out, _ = rnic("deframe", "--markers", lines=chunks)
    assert (status, [json.loads(line)["ulpdu"] for line in out.splitlines()]) == (0, ulpdus)


async def each(*lines: bytes) -> AsyncIterator[bytes]:
    for line in lines:
        yield line


async def started(device: Device) -> Device:
    await device.set_fields("CONFIG", rdmap=0)
    await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
    return device


def test_a_line_longer_than_the_queues_is_processed():
    ulpdu = bytes(60000)
    framer = FpduFramer(markers=False, crc=True)
    chunk = b"".join(framer.frame(ulpdu) for _ in range(20)).hex().encode()

    async def main() -> list[str]:
        out: list[str] = []
        async with asyncio.timeout(HANG), await started(SoftwareDevice()) as device:
            assert await deframe_lines(each(chunk), device, out.append, markers=False, stream_offset=0)
        return out

    assert asyncio.run(main()) == [json.dumps({"ulpdu": ulpdu.hex()})] * 20


async def test_a_lost_device_ends_the_command():
    async def lines(device: Device) -> AsyncIterator[bytes]:
        yield b"61"
        await device.close()
        await asyncio.sleep(3600)

    device = await started(SoftwareDevice())
    out: list[str] = []
    with pytest.raises(DeviceError):
        await frame_lines(lines(device), device, out.append)
