"""The whole RNIC of a board in Verilator, from its MAC inwards, with the shipped driver over its Ethernet cable."""

import asyncio
import contextlib
import json
import random
import struct
import subprocess
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

import pytest

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.harness.devices import answer_pings, closing
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.cocotb_tests.rtl.net.bench import BROADCAST, BROADCAST_MAC, OTHER, OTHER_MAC, ethernet, udp
from open_rnic.cocotb_tests.soaks.rnic import Rnic
from open_rnic.host_driver import rdma
from open_rnic.host_driver.connection import MpaConnectionError
from open_rnic.host_driver.device import DeviceError
from open_rnic.host_driver.devices.sim.layout import STATION
from open_rnic.host_driver.devices.sim.wire import Damage
from open_rnic.host_driver.devices.udp.board import SimulatedBoard
from open_rnic.host_driver.devices.udp.datagrams import TwinDatagrams
from open_rnic.host_driver.devices.udp.driver import MAC
from open_rnic.host_driver.devices.udp.endpoint import simulated
from open_rnic.host_driver.devices.udp.inspection import Link, inspect
from open_rnic.host_driver.devices.udp.rnic import UdpRnic
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.net.tap import TapNetwork
from open_rnic.host_driver.rdma import Access, rping
from open_rnic.host_driver.rdma.offload import OffloadStream
from open_rnic.host_driver.rdma.samples import Delivery, SampleReader, SampleWriter, SignalGenerator
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.host_driver.tools import cli
from open_rnic.rtl.host_link.protocol import VERSION
from open_rnic.rtl.mac.registers import BY_NAME as MAC_REGISTERS
from open_rnic.rtl.registers import Role
from open_rnic.rtl.tcp.words import Reason, State

BOARD, PEER = (IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2))
NAME = "ecpix5"  # has all blocks of boards with one connection
RESPONDER, INITIATOR = Config(Role.RESPONDER, timeout=HANG), Config(Role.INITIATOR, timeout=HANG)


@asynccontextmanager
async def board_and_twin(faults=None, name=NAME):
    """A board, and the TCP of a twin in its network."""
    ours, port = joined()
    async with (
        simulated(name, BOARD, faults=faults, seed=1) as board,
        Pipe(port, board.port),
        UserTcp(ours, Host(bytes.fromhex("020000000002"), PEER)) as twin,
    ):
        yield board, twin


async def connect(host, port, device, tcp, config=INITIATOR, **options):
    """Connect, as soon as the peer's board has a connection in LISTEN: it refuses while its driver gives it none."""
    async with asyncio.timeout(HANG):
        while True:
            try:
                return await rdma.connect(host, port, config, device=device, tcp=tcp, **options)
            except MpaConnectionError as error:
                if "refused" not in str(error):
                    raise
                await asyncio.sleep(0.01)


async def ping(server, server_address, client, *, passive=None, active=None):
    """Ping 3 times between two ends; returns the kind of the client's stream."""
    listening = rdma.listen(server_address, 0, RESPONDER, device=passive or rdma.software, tcp=server)
    async with await listening as listener:
        serving = asyncio.create_task(answer_pings(listener))
        place = server_address, listener.address[1]
        async with await connect(*place, active or rdma.software, client) as connection:
            kind = type(connection._stream)
            assert await rping.client(connection, count=3, validate=True) == 3
        assert await serving == 3
        return kind


@long("rping of Linux runs both ways opposite a board in `make interop-short`")
async def test_rping_runs_both_ways_over_a_cable_that_loses_frames():
    async with board_and_twin(faults=Faults(drop=0.02)) as (board, twin):
        engine = board.tcp.open_device
        assert await ping(twin, str(PEER.ip), board.tcp, active=engine) is OffloadStream
        await ping(board.tcp, str(BOARD.ip), twin, passive=engine)
        assert board.rnic.driver.exchange.repeats


@pytest.mark.parametrize("first", ["board", "peer"])
async def test_a_listener_of_a_board_with_one_connection_serves_one_peer_after_the_other(first):
    """Whichever end closes first; soon after that, the board listens again."""
    async with board_and_twin() as (board, twin):
        place = str(BOARD.ip), 7
        async with await rdma.listen(*place, RESPONDER, device=board.tcp.open_device, tcp=board.tcp) as listener:
            for n in range(3):
                async with asyncio.timeout(HANG):
                    connecting = asyncio.create_task(connect(*place, rdma.software, twin))
                    ours, theirs = await (await listener.request()).accept(), await connecting
                    await theirs.send(bytes([n]))
                    assert bytes(await ours.receive()) == bytes([n])
                    one, other = (ours, theirs) if first == "board" else (theirs, ours)
                    ending = asyncio.create_task(one.close())
                    assert await other.disconnected() is None
                    await asyncio.gather(ending, other.close())


async def test_a_program_sees_in_its_memory_what_a_peer_writes_into_that_of_the_board_without_a_send():
    async with board_and_twin() as (board, twin):
        place = str(BOARD.ip), 7
        engine = board.tcp.open_device
        async with await rdma.listen(*place, RESPONDER, device=engine, tcp=board.tcp) as listener:
            connecting = asyncio.create_task(rdma.connect(*place, INITIATOR, tcp=twin))
            ours, theirs = await (await listener.request()).accept(), await connecting
            async with closing(ours, theirs):
                memory = bytearray(100)
                region = ours.register(memory, Access.LOCAL_WRITE | Access.REMOTE_WRITE)
                await board.rnic.get("IDENTITY")  # behind the registration
                await theirs.write(b"written", region.stag, region.to + 20)
                await ours.until(lambda: memory[20:27] == b"written")


async def test_samples_of_the_boards_fabric_reach_the_memory_of_a_peer():
    count = 5000
    async with board_and_twin(Faults(drop=0.01)) as (board, twin):
        place = str(BOARD.ip), 7
        engine = board.tcp.open_device
        numbers = []

        async def read():
            async with await SampleReader.connect(*place, octets=1 << 13, config=INITIATOR, tcp=twin) as reader:
                async for block in reader:
                    numbers.extend(word for (word,) in struct.iter_unpack("<I", block.octets))

        async with await rdma.listen(*place, RESPONDER, device=engine, tcp=board.tcp) as listener:
            reading = asyncio.create_task(read())
            async with await SampleWriter.accept(await listener.request(), Delivery(drops=False)) as writer:
                generator = await SignalGenerator.open(writer.connection.device)
                await writer.start()
                await generator.start(samples=count)
                signal = await generator.finished(writer.connection)
                status = await writer.finish()
            await reading
        assert (signal.given, status.octets, status.dropped) == (count, 4 * count, 0)
        assert numbers == list(range(count))


@long("a board and the twin are in the short run")
def test_the_demonstration_verifies_what_two_boards_send(capsys):
    boards = "udp:sim:colorlight_5a75b,udp:sim:colorlight_i5"
    assert cli.run(["demo", "--device", boards, "--size", "1500"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[-1], err) == ("verified 1500 octets each way", "")


def test_the_demonstration_verifies_what_a_board_and_the_twin_send(capsys):
    assert cli.run(["demo", "--device", f"udp:sim:{NAME}", "--size", "2500", "--drop", "0.01"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[-1], err) == ("verified 2500 octets each way", "")
    assert f"the initiator with the software twin, the other with udp:sim:{NAME}" in out


async def test_damaged_frames_and_a_pulled_cable_are_counted_and_a_link_returns():
    async with board_and_twin() as (board, _):
        for damage in (Damage.FCS, Damage.ERROR, Damage.RUNT):
            board.board.send(bytes(100), damage)
        while (counters := await board.rnic.counters())["RX_RUNT"] < 1:
            pass
        assert (counters["RX_FCS"], counters["RX_ERROR"]) == (1, 1)
        board.cable.cut()
        board.board.cable(up=False)
        identity = board.rnic.read(MAC, "LINK")
        await asyncio.sleep(0.3)
        assert not identity.done()
        board.board.cable(up=True)
        board.cable.join()
        assert MAC_REGISTERS["LINK"]["changed"].get(await identity)


@needs(TAP)
async def test_linux_finds_a_board_and_operates_it_again_after_a_program_was_killed():
    def program(linux, *arguments):
        """Start ``rnic`` in the network of the board."""
        command = [*RNIC, *arguments]
        return linux.inside(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)

    async def output(process):
        text, _ = await asyncio.to_thread(process.communicate, timeout=HANG)
        assert process.returncode == 0
        return text

    board = await SimulatedBoard.open(NAME)
    host = IPv4Interface("10.0.0.1/24")
    async with TapNetwork(str(host)) as linux, Pipe(linux.port, board):
        find = "find", "--json", "--seconds", "5"  # a simulated board is slow on a busy machine
        [found] = json.loads(await output(program(linux, *find)))
        mac = "02:00:0a:00:00:02"
        assert found == {"address": str(STATION.ip), "mac": mac, "in_use": False, "link_version": VERSION}
        for _ in range(2):
            with contextlib.ExitStack() as ending:
                serving = program(linux, "rping", "-s", "-v", "--device", f"udp:{STATION.ip}")
                ending.enter_context(serving)
                ending.callback(serving.kill)
                assert await asyncio.to_thread(serving.stdout.readline) == "listening at 10.0.0.2 port 7174\n"
                [found] = json.loads(await output(program(linux, *find)))
                assert found["in_use"]
        assert "frames pass" in await output(program(linux, "inspect", f"udp:{STATION.ip}"))
    await board.close()


NAMES = shortened("one connection has fewer blocks", 1, ["ecpix5:4", "colorlight_5a75b"])


@pytest.mark.parametrize("name", NAMES)
async def test_rdma_goes_on_in_a_storm_at_line_rate_whose_frames_are_counted(name):
    """Broadcasts, frames for others and of other protocols, in bursts without a longer gap than Ethernet's."""
    storm = [
        udp(bytes(18), port=9, destination=BROADCAST, to=BROADCAST_MAC),
        udp(bytes(18), port=9, destination=OTHER, to=OTHER_MAC),
        ethernet(bytes(46), 0x86DD, bytes.fromhex("333300000001")),
    ]
    async with board_and_twin(name=name) as (board, twin):
        sent = 0

        async def rage():
            nonlocal sent
            while True:
                for _ in range(32):
                    board.board.send(random.choice(storm))
                    sent += 1
                await board.rnic.get("IDENTITY")  # behind them

        raging = asyncio.create_task(rage())
        await ping(board.tcp, str(BOARD.ip), twin, passive=board.tcp.open_device)
        raging.cancel()
        await board.rnic.get("IDENTITY")
        assert sent > 100
        assert await board.rnic.discarded() == {
            "RX_NO_ROOM": 0, "RX_CHECKSUM": 0, "RX_IGNORED": sent, "CONFLICTS": 0,
        }  # fmt: skip
        counters = await board.rnic.counters()
        assert counters["RX_FRAMES"] > sent
        assert not any(counters[name] for name in counters if name.startswith("RX_") and name != "RX_FRAMES")


async def test_a_second_host_takes_the_board_over_and_finds_it_without_connections():
    async def replaced():
        ours, port = joined()
        async with (
            simulated(NAME, BOARD) as board,
            await rdma.listen(str(BOARD.ip), 0, RESPONDER, device=board.tcp.open_device, tcp=board.tcp) as listener,
            Pipe(port, board.port),
            UserTcp(ours, Host(bytes.fromhex("020000000009"), IPv4Interface("10.9.0.9/24"))) as host,
        ):
            assert await board.rnic.get("STATUS") == State.LISTEN
            other = await UdpRnic.open(TwinDatagrams(host, BOARD.ip), pace=1e-4, latency=0.1)
            assert await other.get("STATUS") == Reason.ABORTED
            await listener.request()  # the first host has lost it

    with pytest.raises(DeviceError, match=r"10\.9\.0\.1 port 57767: another .* has taken the board"):
        await replaced()


async def test_a_board_reports_the_state_of_its_port():
    async with simulated(NAME, BOARD, seed=1) as board:
        found = await inspect(board.rnic)
        assert (found.address, found.mac) == (BOARD, b"\2\0" + BOARD.ip.packed)
        assert (found.link, found.in_band) == (Link(True, 1000, True), Link(True, 1000, True))
        assert (found.running, found.phys) == (True, ())  # no PHY is simulated
        assert found.counters["RX_FRAMES"] > 0


@pytest.mark.parametrize("name", NAMES)
def test_a_board_recovers_from_all_that_happens_to_its_connections(name):
    """A short version of ``python -m open_rnic.cocotb_tests.soaks rnic``: no cable for three retransmissions."""
    counts = Rnic("rnic-1", name, connections=6, sessions=1, out=1.6).run()
    assert counts["opened by the board"] + counts["opened by the peer"] == 6
    happened = "cable pulled", "peer rebooted", "reset after the driver was killed"
    assert [counts[each] for each in happened] == [1, 1, 1]
    assert counts["MAC: RX_FRAMES"]
