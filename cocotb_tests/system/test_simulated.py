"""The simulated device: its process, the queues between it and the application, and its end."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import pywellen

from open_rnic.cocotb_tests.harness.devices import (
    collect,
    drains_when_all_ulpdus_and_events_are_read,
    pass_stream_octets_both_ways,
    running,
    stalled,
    stream,
    stream_octets,
)
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs_waves
from open_rnic.host_driver.connection import initiate, listen
from open_rnic.host_driver.device import DeviceError, Ulpdu
from open_rnic.host_driver.devices.sim.wire import WINDOW
from open_rnic.host_driver.devices.simulated import SimulatedDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.rtl.registers import IDENTITY, EventKind, Role


async def open_streaming(lanes=4):
    """Open a device that passes octets unchanged in both directions."""
    return await stream(await SimulatedDevice.open(lanes=lanes))


async def test_registers_are_those_of_the_rtl():
    async with await SimulatedDevice.open(lanes=4) as device:
        assert await device.get("IDENTITY") == IDENTITY
        assert await device.get("CAPABILITIES") & 0xFF == 4
        await device.set("TX_MAX_ULPDU", 1234)
        await device.set("RX_MAX_ULPDU", 4321)
        assert await asyncio.gather(*map(device.get, ("TX_MAX_ULPDU", "RX_MAX_ULPDU"))) == [1234, 4321]
        with pytest.raises(ValueError, match="no register is called SPEED"):
            await device.get("SPEED")
        with pytest.raises(ValueError, match="holds 32 bits, not 4294967296"):
            await device.set("CONTROL", 1 << 32)


@pytest.mark.parametrize("lanes", shortened("test_stream_mode has the RTL at 1 lane", 1, [4, 1]))
async def test_stream_octets_pass_both_ways(lanes):
    sizes = [1, 4 * lanes - 1, 4 * lanes, 4 * lanes + 1, 20_000, *(random.randrange(1, 300) for _ in range(200))]
    async with await open_streaming(lanes) as device:
        await pass_stream_octets_both_ways(device, sizes)


async def test_ulpdus_and_events_pass_between_two_devices():
    first, second = await asyncio.gather(SimulatedDevice.open(lanes=4), SimulatedDevice.open(lanes=4))
    async with first, second:
        for device, role in ((first, 0), (second, 1)):
            await device.set_fields("CONFIG", role=role, rdmap=0)  # random octets may look like a Terminate
            await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
            kinds = [EventKind.TX_MPA, EventKind.RX_MPA, *[EventKind.FENCE_OPEN] * (role == 0)]
            assert sorted([(await device.next_event()).kind for _ in kinds]) == kinds
        sent = [random.randbytes(size) for size in (0, 1, 1460, 64_768)]
        for each in sent:
            await first.write_ulpdu(each)
        for each in sent:
            await second.write_mpa(await first.read_mpa())
            assert await second.read_ulpdu() == Ulpdu(each)
        await second.write_mpa(b"\0\4abcd\0\0\0\0\0\0")  # a wrong CRC causes an event, and no ULPDU
        while (event := await second.next_event()).kind is not EventKind.ERROR:
            pass
        assert event.cause.name == "CRC"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(second.read_ulpdu(), 0.2)


@pytest.mark.parametrize("lanes", shortened("test_stream_mode has the RTL at 1 lane", 1, [4, 1]))
async def test_a_device_drains_when_all_ulpdus_and_events_are_read(lanes):
    async with await SimulatedDevice.open(lanes=lanes) as device:
        await drains_when_all_ulpdus_and_events_are_read(device)


async def test_a_device_drains_while_it_transmits():
    async with await SimulatedDevice.open(lanes=4) as device:
        await device.set_fields("CONFIG", rdmap=0)
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)

        async def give():
            while True:
                await device.write_ulpdu(bytes(1000))

        async def take(read):
            while True:
                await read()

        tasks = [asyncio.create_task(each) for each in (give(), take(device.read_fpdus), take(device.next_event))]
        await device.drained()
        for each in tasks:
            each.cancel()


async def test_a_slow_reader_stalls_only_its_writer():
    async with await open_streaming() as device:
        packet, given = bytes(1000), 0

        async def give():
            nonlocal given
            while True:
                await device.write_ulpdu(packet)
                given += 1

        writer = asyncio.create_task(give())
        assert WINDOW <= await stalled(lambda: given) * len(packet) <= 3 * WINDOW
        # Registers and the other direction still work, ...
        assert await device.get("IDENTITY") == IDENTITY
        await device.write_mpa(b"other")
        assert (await device.read_ulpdu()).octets == b"other"
        # ... simulated time does not advance meanwhile, ...
        before = await device.get_wide("CYCLES")
        await asyncio.sleep(0.3)
        assert await device.get_wide("CYCLES") - before < 1000
        # ... and nothing is lost when the reader continues.
        writer.cancel()
        assert len(await collect(device.read_mpa, given * len(packet))) == given * len(packet)


async def test_closing_ends_the_process_and_every_pending_call(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    device = await open_streaming()
    waits = [asyncio.create_task(wait()) for wait in (device.read_ulpdu, device.read_mpa, device.next_event)]
    await asyncio.sleep(0)
    process = device.process
    await device.close()
    await device.close()
    assert not running(process)
    assert not list(tmp_path.iterdir())
    for each in (*waits, device.get("STATE"), device.write_ulpdu(b"x")):
        with pytest.raises(DeviceError, match="has been closed"):
            await each


async def test_a_killed_simulation_is_an_error_that_names_the_log(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with await open_streaming() as device:
        wait = asyncio.create_task(device.read_mpa())
        await asyncio.sleep(0)
        os.kill(device.process, signal.SIGKILL)
        with pytest.raises(DeviceError, match=rf"the simulation ended \(SIGKILL\): see {tmp_path}/.*/log"):
            await wait
    assert len(list(tmp_path.glob("*/log"))) == 1


def test_a_killed_program_ends_its_simulation(tmp_path):
    program = f"""if True:
        import asyncio
        from {__name__} import open_streaming
        async def main():
            device = await open_streaming()
            print(device.process, flush=True)
            while True:
                await device.write_ulpdu(bytes(1000))
                await device.read_mpa()
        asyncio.run(main())"""
    variables = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=variables) as parent:
        simulation = int(parent.stdout.readline())
        assert running(simulation)
        parent.kill()
    end = time.monotonic() + HANG
    while running(simulation):  # the simulation notices that its parent has ended
        assert time.monotonic() < end
        time.sleep(0.01)


@needs_waves
async def test_waves_are_a_file_per_device_and_contain_all_signals_of_the_views(tmp_path):
    for _ in range(2):
        async with await SimulatedDevice.open(lanes=1, waves=tmp_path) as device:
            await device.get("IDENTITY")
    with pytest.raises(DeviceError, match="no waves can be written to /dev/null"):
        await SimulatedDevice.open(lanes=1, waves="/dev/null")
    for name in ("device1", "device2"):
        bits = {each.full_name: each.bitwidth for each in pywellen.Waveform(str(tmp_path / f"{name}.fst")).all_vars()}
        parts = {part for each in bits for part in each.split(".")}
        assert not [part for part in parts if re.match(r"_\d|\$(?!rootio)", part)]
        assert {"fence", "framer", "inserter", "detector", "registers"} <= parts
        view = re.findall(r"^(top[\w.]+)(?:\[(\d+):0\])?$", (tmp_path / f"{name}.gtkw").read_text(), re.MULTILINE)
        surfer = re.findall("^variable_add (.*)$", (tmp_path / f"{name}.sucl").read_text(), re.MULTILINE)
        assert {each: int(high or 0) + 1 for each, high in view}.items() <= bits.items()
        assert set(surfer) <= bits.keys()
        assert {each.replace("__payload.", "__payload ").split()[0] for each, _ in view} == set(surfer)
        assert (len(view), len(surfer)) == (29, 19)


async def test_a_missing_compiler_is_named_with_its_package(monkeypatch, tmp_path):
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DeviceError, match=r"c\+\+ is missing.*Debian package g\+\+"):
        await SimulatedDevice.open(lanes=1)


def builders():
    """Return the child processes that build a simulation."""
    started = [int(each) for task in Path("/proc/self/task").glob("*/children") for each in task.read_text().split()]
    return [each for each in started if b"sim.prepare" in Path(f"/proc/{each}/cmdline").read_bytes()]


async def test_a_killed_builder_is_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path))
    building = asyncio.create_task(SimulatedDevice.open(lanes=1))
    while not (found := builders()):
        await asyncio.sleep(0.01)
    os.kill(found[0], signal.SIGKILL)
    with pytest.raises(DeviceError, match=r"^the simulation cannot be built: SIGKILL$"):
        await building


async def test_a_reset_discards_all_data_and_leaves_a_usable_device():
    old, new = b"\1" * (WINDOW // 4), b"\2" * 100
    async with await SimulatedDevice.open(lanes=4) as device:
        for _ in range(6):  # four of these would fill the windows
            await stream(device)
            await device.write_ulpdu(old)
            await device.write_mpa(old)
            await device.write_mpa(b"\1")
            await device.set_fields("CONTROL", tx_enable=1)  # an event
            await device.set_fields("CONTROL", reset=1)
            assert await device.get("TX_STREAM_OCTETS") == 0
            await device.set("TX_STREAM_OCTETS", 100)
            await device.set("RX_STREAM_OCTETS", 100)
            await device.write_ulpdu(new)
            await device.write_mpa(new)
            assert await device.read_mpa() == new
            assert (await collect(lambda: stream_octets(device), 100)) == new
            await device.set_fields("CONTROL", rx_enable=1)
            assert (await device.next_event()).kind is EventKind.RX_MPA
            await device.set_fields("CONTROL", reset=1)


async def test_a_device_serves_one_connection_after_another():
    one, other = await asyncio.gather(SimulatedDevice.open(lanes=4), SimulatedDevice.open(lanes=4))
    async with one, other, await listen() as listener:
        for number in range(3):
            accepting = asyncio.create_task(listener.accept(other, Config(Role.RESPONDER)))
            async with (
                await initiate(*listener.address[:2], one, Config(Role.INITIATOR)) as ours,
                await accepting as theirs,
            ):
                for size in range(1, 40):  # more ULPDUs than the connection prefetches
                    await ours.send_ulpdu(bytes([number]) * size)
                assert await theirs.receive_ulpdu() == bytes([number])
