"""The RNIC in RTL, in Verilator: TCP and MPA in one device. The peers are another one, or the twin's TCP."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

import pytest

from open_rnic.cocotb_tests.harness.devices import answer_pings
from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import exercise
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.connection import MpaConnectionError, RejectedError, initiate, listen
from open_rnic.host_driver.device import AttachedDevice, DeviceError
from open_rnic.host_driver.devices.simulated_rnic import opened
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe
from open_rnic.host_driver.net.pipe import joined as two_ports
from open_rnic.host_driver.observer import Counted, Direction, Octets
from open_rnic.host_driver.rdma import Access, rping
from open_rnic.host_driver.rdma.offload import OffloadStream
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.rtl.registers import Role
from open_rnic.rtl.tcp.words import State

ONE, OTHER = (IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2))
MACS = bytes.fromhex("020000000001"), bytes.fromhex("020000000002")
RESPONDER, INITIATOR = Config(Role.RESPONDER, timeout=HANG), Config(Role.INITIATOR, timeout=HANG)
ULPDUS = [b"\x41\x43" + bytes([n]) * 1000 for n in range(20)]  # Sends


@asynccontextmanager
async def two_rnics(faults):
    """The TCP of two RNICs with RDMA engines that a pipe joins."""
    async with (
        opened(MACS[0], ONE, connections=1, offload=True) as (one, client),
        opened(MACS[1], OTHER, connections=1, offload=True) as (other, server),
        Pipe(one, other, faults, seed=1),
    ):
        yield client, server


@asynccontextmanager
async def rnic_and_twin():
    """The TCP of an RNIC of 4 connections, and the twin's."""
    ours, port = two_ports()
    async with (
        opened(MACS[0], ONE) as (rnic, tcp),
        Pipe(rnic, port),
        UserTcp(ours, Host(MACS[1], OTHER)) as twin,
    ):
        yield tcp, twin


@asynccontextmanager
async def connected(active_tcp, passive_tcp, host, devices, observer=lambda seen: None):
    """Two connections of MPA, of the initiator and of the responder."""
    async with await listen(host, tcp=passive_tcp) as listener:
        accepting = asyncio.create_task(listener.accept(devices[1], RESPONDER))
        initiating = initiate(host, listener.address[1], devices[0], INITIATOR, observer, tcp=active_tcp)
        async with await initiating as one, await accepting as other:
            yield one, other


@long("test_whole has RNICs with engines, and their MAC")
async def test_rping_runs_over_two_rnics_that_a_lossy_pipe_joins():
    async with (
        two_rnics(Faults(drop=0.01)) as (client, server),
        await rdma.listen(str(OTHER.ip), rping.PORT, RESPONDER, device=server.open_device, tcp=server) as listener,
    ):
        serving = asyncio.create_task(answer_pings(listener))
        connecting = rdma.connect(str(OTHER.ip), rping.PORT, INITIATOR, device=client.open_device, tcp=client)
        async with await connecting as connection:
            assert isinstance(connection._stream, OffloadStream)
            assert await rping.client(connection, count=5, size=4000, validate=True) == 5
        assert await serving == 5


@long("test_whole has connections that end in the middle")
async def test_engines_forget_a_connection_that_ends_in_the_middle_of_messages():
    """Words that they have asked for come before those of the next connection."""
    async with (
        two_rnics(Faults()) as (client, server),
        await rdma.listen(str(OTHER.ip), 7174, RESPONDER, device=server.open_device, tcp=server) as listener,
    ):

        async def accept():
            return await (await listener.request()).accept()

        for last in (False, False, True):
            accepting = asyncio.create_task(accept())
            ours = await rdma.connect(str(OTHER.ip), 7174, INITIATOR, device=client.open_device, tcp=client)
            theirs = await accepting
            if last:
                await asyncio.gather(exercise(ours, theirs), exercise(theirs, ours))
                assert theirs.device.memory is server.paths[0].memory
                await asyncio.gather(ours.close(), theirs.close())
                assert not len(server.paths[0].memory)
                return
            memory = theirs.register(bytearray(1 << 20), Access.REMOTE_WRITE | Access.REMOTE_READ)
            ours.post_write(bytes(1 << 20), memory.stag)
            ours.post_read(bytearray(1 << 20), stag=memory.stag)
            while not await ours.device.get("TX_FPDUS"):
                await asyncio.sleep(0)
            await asyncio.gather(ours.abort(), theirs.abort())
            while not (client.ended(client.rows[0]) and server.status(server.rows[0]) == State.LISTEN):
                await asyncio.sleep(0.01)


async def test_connections_follow_each_other_and_end_in_order():
    async with rnic_and_twin() as (tcp, twin):
        for round_ in range(6):
            ways = [(tcp, twin, str(OTHER.ip)), (twin, tcp, str(ONE.ip))]
            active, passive, host = ways[round_ % 2]
            devices = AttachedDevice(), SoftwareDevice(lanes=4)
            pair = devices if round_ % 2 == 0 else devices[::-1]
            async with connected(active, passive, host, pair) as (one, other):
                for end in (one, other):
                    await end.ready()
                await asyncio.gather(one.send_ulpdus(ULPDUS), other.send_ulpdus(ULPDUS))
                for end in (one, other):
                    assert [await end.receive_ulpdu() for _ in ULPDUS] == ULPDUS
                await asyncio.gather(one.finish(), other.finish())
                assert [await one.receive_ulpdu(), await other.receive_ulpdu()] == [None, None]


async def test_four_connections_at_once():
    async with rnic_and_twin() as (tcp, twin), await listen(str(ONE.ip), tcp=tcp) as listener:

        async def serve():
            async with await listener.accept(AttachedDevice(), RESPONDER) as connection:
                await connection.ready()
                for _ in range(5):
                    await connection.send_ulpdu(await connection.receive_ulpdu())
                await connection.finish()
                assert await connection.receive_ulpdu() is None

        async def ask(n):
            device = SoftwareDevice(lanes=4)
            async with await initiate(str(ONE.ip), listener.address[1], device, INITIATOR, tcp=twin) as connection:
                await connection.ready()
                for size in (1, 100, 1400, 3000, 7):
                    await connection.send_ulpdu(bytes([n]) * size)
                    assert await connection.receive_ulpdu() == bytes([n]) * size
                assert await connection.receive_ulpdu() is None
                await connection.finish()

        await asyncio.gather(*(serve() for _ in range(4)), *(ask(n) for n in range(4)))


async def test_a_bad_crc_is_answered_with_a_terminate():
    async with rnic_and_twin() as (tcp, twin):

        class Spoiling(SoftwareDevice):
            async def read_fpdus(self):
                return [fpdu.replace(b"spoil", b"spoilt"[1:]) for fpdu in await super().read_fpdus()]

        async with connected(twin, tcp, str(ONE.ip), (Spoiling(lanes=4), AttachedDevice())) as (one, other):
            await one.send_ulpdu(b"spoil")
            with pytest.raises(MpaConnectionError, match="the CRC of the FPDU with ULPDU_Length 5 does not match"):
                await other.receive_ulpdu()
            await other.terminate(other.error.reason.code)
            terminate = await one.receive_ulpdu()
            assert terminate[1] == 0x47  # RDMAP version 1, Terminate
            await one.close()


async def test_the_peers_reset_is_reported():
    async with rnic_and_twin() as (tcp, twin):
        devices = AttachedDevice(), SoftwareDevice(lanes=4)
        async with connected(tcp, twin, str(OTHER.ip), devices) as (one, other):
            await one.ready()
            await other.close(reset=True)
            with pytest.raises(MpaConnectionError, match="Connection reset by peer"):
                await one.receive_ulpdu()


async def test_either_end_can_reject():
    async with rnic_and_twin() as (tcp, twin):
        ways = [(tcp, twin, str(OTHER.ip)), (twin, tcp, str(ONE.ip))]
        for active, passive, host in ways:
            devices = [AttachedDevice(), SoftwareDevice(lanes=4)]
            if active is twin:
                devices.reverse()
            async with await listen(host, tcp=passive) as listener:

                async def refuse(listener=listener, device=devices[1]):
                    await (await listener.request(device, RESPONDER)).reject(b"no")

                refusing = asyncio.create_task(refuse())
                with pytest.raises(RejectedError):
                    await initiate(host, listener.address[1], devices[0], INITIATOR, tcp=active)
                await refusing


async def test_octets_of_a_connection_do_not_pass_the_host():
    async with rnic_and_twin() as (tcp, twin):
        seen = []
        devices = AttachedDevice(), SoftwareDevice(lanes=4)
        async with connected(tcp, twin, str(OTHER.ip), devices, seen.append) as (one, other):
            await one.ready()
            await other.send_ulpdu(b"octets")
            assert await one.receive_ulpdu() == b"octets"
        assert not [each for each in seen if isinstance(each, Octets)]
        assert {each.direction for each in seen if isinstance(each, Counted)} == set(Direction)


async def test_a_device_without_a_connection_says_so():
    with pytest.raises(DeviceError, match="no connection is attached to it"):
        await AttachedDevice().get("CYCLES")
    async with rnic_and_twin() as (tcp, twin), await listen(str(OTHER.ip), tcp=twin) as listener:
        with pytest.raises(MpaConnectionError, match="uses the data path of that device"):
            await initiate(str(OTHER.ip), listener.address[1], SoftwareDevice(lanes=4), INITIATOR, tcp=tcp)
