"""A complete board in simulation, including its UART pins, behind a pseudo-terminal, driven by the serial device."""

import asyncio
import json
import os
import pty
import random
import re
import signal
import subprocess
import tempfile
from collections import deque
from fractions import Fraction

import pytest

from open_rnic.boards import find
from open_rnic.boards.link_size import measure
from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.harness.devices import (
    STREAM_ONLY,
    collect,
    drains_when_all_ulpdus_and_events_are_read,
    pass_stream_octets_both_ways,
    running,
    stream,
    stream_octets,
)
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver.device import DeviceError, Ulpdu
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.serial import device as serial_device
from open_rnic.host_driver.devices.serial.device import SerialDevice
from open_rnic.host_driver.devices.serial.simulated import Noise, SimulatedBoardDevice
from open_rnic.host_driver.tools import cli
from open_rnic.rtl.registers import IDENTITY, EventKind

BOARD = "serial:sim:colorlight_5a75b"
FAST = Fraction(4)  # clock cycles in a bit: the minimum of the UART
PARTS = 4  # the operations on a noisy line are divided into parts with different noise, which run in parallel
OPERATIONS = 4_000 // PARTS


async def open_fast(noise=None, lanes=1, size=512):
    return await SimulatedBoardDevice.open_top(lanes, FAST, size, noise)


async def test_registers_ulpdus_and_events_cross_the_line():
    async with await open_device(BOARD, lanes=4) as device:
        assert device.lanes == find("colorlight_5a75b").lanes  # the board's width, not the requested one
        assert await device.get("IDENTITY") == IDENTITY
        await device.set_fields("CONFIG", rdmap=0)
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        kinds = [(await device.next_event()).kind for _ in range(3)]
        assert sorted(kinds) == [EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN]
        sent = [random.randbytes(size) for size in (0, 1, 7, 8, 9, 1460, 5000)]
        for each in sent:
            await device.write_ulpdu(each)
        for each in sent:
            await device.write_mpa(await device.read_mpa())
            assert await device.read_ulpdu() == Ulpdu(each)
        await device.write_mpa(b"\0\4abcd\0\0\0\0\0\0")  # a wrong CRC causes an event, and no ULPDU
        event = await device.next_event()
        assert (event.kind, event.cause.name) == (EventKind.ERROR, "CRC")
        assert event.offset == sum(-(-(len(each) + 2) // 4) * 4 + 4 for each in sent)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(device.read_ulpdu(), 0.2)
        with pytest.raises(ValueError, match="no register is called SPEED"):
            await device.get("SPEED")


async def test_a_board_drains_when_all_ulpdus_and_events_are_read():
    async with await open_fast() as device:
        await drains_when_all_ulpdus_and_events_are_read(device)


@pytest.mark.parametrize(("lanes", "size"), shortened("a larger link", 1, [(1, 512), (2, 2048)]))
async def test_stream_octets_pass_both_ways(lanes, size):
    sizes = [1, 4 * lanes, 4 * lanes + 1, 9_000, *(random.randrange(1, 300) for _ in range(40))]
    async with await open_fast(lanes=lanes, size=size) as device:
        await pass_stream_octets_both_ways(await stream(device), sizes)


async def test_a_stalled_stream_does_not_block_other_operations_and_loses_nothing():
    async with await open_fast() as device:
        await device.set("RX_STREAM_OCTETS", STREAM_ONLY)
        octets = random.randbytes(3000)
        await device.write_ulpdu(octets)  # TX_STREAM_OCTETS is 0, so the device accepts only one beat
        for n in range(20):
            await device.set("TX_MAX_ULPDU", n)
            assert await device.get("TX_MAX_ULPDU") == n
            await device.write_mpa(bytes([n]) * 100)
            assert await collect(lambda: stream_octets(device), 100) == bytes([n]) * 100
        await device.set("TX_STREAM_OCTETS", 3000)
        assert await device.read_mpa() == octets
        await device.write_ulpdu(b"too early")
        await device.set_fields("CONTROL", reset=1)  # discards the packet
        await device.set("TX_STREAM_OCTETS", 5)
        await device.write_ulpdu(b"fresh")
        assert await device.read_mpa() == b"fresh"


@pytest.mark.parametrize("part", shortened("more operations", 1, range(PARTS)))
async def test_operations_on_a_noisy_line_give_correct_results(part):
    seed = part + int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))
    print("COCOTB_RANDOM_SEED", seed)
    rng = random.Random(seed)
    async with await open_fast(Noise(seed, 9e-4)) as device:
        await device.set_fields("CONFIG", rdmap=0)
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        done, sent = 0, deque()
        ulpdus = OPERATIONS * 18 // 100

        async def write():
            nonlocal done
            for _ in range(ulpdus):
                sent.append(rng.randbytes(rng.choice([0, 1, rng.randrange(20), rng.randrange(200)])))
                await device.write_ulpdu(sent[-1])
                done += 1

        async def loop():
            nonlocal done
            for _ in range(ulpdus):
                await device.write_mpa(await device.read_mpa())
                done += 2

        async def read():
            nonlocal done
            for _ in range(ulpdus):
                assert (await device.read_ulpdu()).octets == sent.popleft()
                done += 1

        async def registers(name):
            nonlocal done
            for _ in range((OPERATIONS - 4 * ulpdus) // 4 // 2):
                value = rng.getrandbits(32 if "OCTETS" in name else 9)
                await device.set(name, value)
                assert await device.get(name) == value
                done += 2

        # These registers have no effect in MPA mode.
        names = "TX_STREAM_OCTETS", "RX_STREAM_OCTETS", "TX_MPA_OFFSET", "RX_MPA_OFFSET"
        await asyncio.gather(write(), loop(), read(), *map(registers, names))
        assert done == OPERATIONS
        kinds = [(await device.next_event()).kind for _ in range(3)]
        assert sorted(kinds) == [EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN]
        assert [await device.get(name) for name in ("TX_FPDUS", "RX_FPDUS")] == [ulpdus] * 2
        assert await device.get("RX_CRC_ERRORS") == await device.get("ERROR") == 0
        line = device.driver.exchange
        print("damaged", line.damaged, "and", line.received_damaged, "repeats", line.repeats)
        assert min(line.damaged, line.received_damaged, line.repeats) > 3  # the noise has had an effect


async def test_a_disconnected_board_is_reported_in_one_line():
    master, slave = pty.openpty()
    opening = asyncio.create_task(SerialDevice.open(os.ttyname(slave)))
    await asyncio.sleep(0.05)
    os.close(master)
    os.close(slave)
    with pytest.raises(DeviceError, match=r"^/dev/pts/\d+ has gone away.*: was the board unplugged\?$"):
        await opening


async def test_a_killed_simulation_of_a_board_is_reported_to_every_pending_call(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    message = rf"^the simulation ended \(SIGKILL\): see {tmp_path}/.*/log$"
    async with await open_fast() as device:
        waits = [asyncio.create_task(wait()) for wait in (device.read_ulpdu, device.read_mpa, device.next_event)]
        await asyncio.sleep(0.05)
        os.kill(device.process.pid, signal.SIGKILL)
        for each in waits:
            with pytest.raises(DeviceError, match=message):
                await each
        with pytest.raises(DeviceError, match=message):
            await device.get("STATE")
    assert len(list(tmp_path.glob("*/log"))) == 1


async def test_a_failed_simulation_of_a_board_is_reported_with_its_error(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    why = r"ValueError: invalid literal for int\(\) with base 10: 'much'"
    with pytest.raises(DeviceError, match=rf"^the simulation ended \(exit code 0\): {why}: see {tmp_path}/.*/log$"):
        await open_fast(Noise("much", 1))


async def test_closing_ends_the_simulation_and_every_pending_call():
    device = await open_fast()
    waits = [asyncio.create_task(wait()) for wait in (device.read_ulpdu, device.read_mpa, device.next_event)]
    await asyncio.sleep(0.05)
    await device.close()
    await device.close()
    assert not running(device.process.pid)
    for each in (*waits, device.get("STATE"), device.write_ulpdu(b"x")):
        with pytest.raises(DeviceError, match="has been closed"):
            await each


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("IDENTITY", 0x12345678, r"IDENTITY is 0x4d504131, not 0x12345678: another design"),
        ("VERSION", 0x0002_0000, r"version 1\.\d+ of the registers, this program needs 2\.0: build and program"),
    ],
)
async def test_another_design_is_recognised_by_its_registers(monkeypatch, name, value, message):
    monkeypatch.setattr(serial_device, name, value)
    with pytest.raises(DeviceError, match=message):
        await open_fast()


async def test_errors_of_ports_are_distinguished(tmp_path, monkeypatch):

    def forbidden(name, *_, **__):
        raise PermissionError(13, "Permission denied", name)

    master, slave = pty.openpty()
    port = os.ttyname(slave)
    opening = asyncio.create_task(SerialDevice.open(port, 115_200))
    await asyncio.sleep(0.1)
    with pytest.raises(DeviceError, match=f"{port} is in use by another program"):
        await SerialDevice.open(port)
    with pytest.raises(DeviceError, match=f"{port}: no answer at 115200 baud: .* is the board programmed"):
        await opening
    with pytest.raises(DeviceError, match=f"{port} cannot be set to 99999999999 baud"):
        await SerialDevice.open(port, 99_999_999_999)
    os.close(master)
    os.close(slave)
    with pytest.raises(DeviceError, match=f"{tmp_path} cannot be opened as a serial port: Is a directory$"):
        await SerialDevice.open(str(tmp_path))
    with pytest.raises(DeviceError, match=f"there is no serial port {tmp_path}/none"):
        await SerialDevice.open(f"{tmp_path}/none")
    (tmp_path / "file").write_text("")
    with pytest.raises(DeviceError, match=f"{tmp_path}/file cannot be opened as a serial port: Inapprop"):
        await SerialDevice.open(f"{tmp_path}/file")
    monkeypatch.setattr(os, "open", forbidden)
    with pytest.raises(DeviceError, match="no permission for /dev/ttyUSB0: its group must have you as a member"):
        await SerialDevice.open("/dev/ttyUSB0")


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["demo", "--device", "serial:sim:toaster"], 2, "no board is called 'toaster'; there are arty_a7"),
        (["rping", "-s", "--device", "serial:"], 2, "serial: needs the name of a port, as in serial:/dev/ttyUSB0"),
        (["demo", "--device", "serial:/dev/none,software"], 1, "there is no serial port /dev/none"),
    ],
)
def test_a_command_reports_errors_of_its_board(capsys, arguments, status, message):
    assert cli.run(arguments) == status
    assert message in capsys.readouterr().err


@long("rping runs through a board in the short run")
def test_the_demo_runs_through_two_boards(capsys):
    assert cli.run(["demo", "--device", f"{BOARD},{BOARD}", "--size", "3000", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["verified"]
    assert [shown[end]["octets_received"] for end in ("initiator", "responder")] == [3000, 3000]


def test_rping_runs_through_a_board():
    command = [*RNIC, "rping", "-s", "-v", "-p", "0", "--device", BOARD]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        port = re.search(r"port (\d+)", server.stdout.readline())[1]
        client = subprocess.run(
            [*RNIC, "rping", "-c", "-a", "127.0.0.1", "-p", port, "-C", "3", "-S", "100", "-V", "-v"],
            capture_output=True, text=True, timeout=HANG, check=False,
        )  # fmt: skip
        assert client.returncode == 0, client.stderr
        assert client.stdout.count("ping data") == 3
        assert server.wait(60) == 0
    finally:
        server.kill()
        server.communicate()


@long("place and route of a block that rarely grows")
def test_the_link_and_the_registers_are_small():
    cells, clock = measure(find("colorlight_5a75b").lanes)
    assert cells["TRELLIS_COMB"] < 1250
    assert clock > 50
