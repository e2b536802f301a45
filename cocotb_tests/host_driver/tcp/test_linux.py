"""The twin against this machine's TCP, over a TAP device and a frame pipe with faults."""

import asyncio
import errno
import random
import socket

import pytest

from open_rnic.cocotb_tests.host_driver.tcp.linux import (
    LINUX,
    PLANS,
    PORT,
    TWIN,
    both_ways,
    close_linux_half_first,
    close_twin_half_first,
    connected,
    connections_in_turn,
    digest,
    hold_linux_window_shut,
    hold_twin_window_shut,
    linux_sends_with_its_window_shut,
    network,
    send,
    sha256,
)
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.host_driver import rdma
from open_rnic.host_driver.lib.keep_alive import KeepAlive
from open_rnic.host_driver.net.pipe import Faults
from open_rnic.host_driver.sockets import TcpSocket
from open_rnic.host_driver.tcp.config import TcpConfig
from open_rnic.host_driver.tcp.connection import End
from open_rnic.host_driver.tcp.states import State

pytestmark = needs(TAP)
HOLD = 3.0  # seconds of a zero window; the command of linux.py holds it for a minute
SMALL = 20_000  # octets of Linux's receive buffer


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("plan", PLANS)
async def test_octets_arrive_intact_both_ways_at_once(plan, active):
    async with network(PLANS[plan]) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=active)
        await both_ways(ours, theirs, 1_000_000)
        theirs.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"tcp_sack": 0},
        {"tcp_timestamps": 0},
        {"tcp_window_scaling": 0},
        dict.fromkeys(("tcp_sack", "tcp_timestamps"), 0),
    ],
)
async def test_linux_may_lack_options(settings):
    async with network(Faults(drop=0.02)) as (linux, twin, _):
        for name, value in settings.items():
            linux.sysctl(f"net.ipv4.{name}", value)
        ours, theirs = await connected(linux, twin, active=True)
        await both_ways(ours, theirs, 500_000)
        theirs.close()


@pytest.mark.parametrize(
    "config", [TcpConfig(sack=False), TcpConfig(timestamps=False, scaling=False), TcpConfig(receive_ring=2000)]
)
async def test_the_twin_may_lack_options(config):
    async with network(Faults(drop=0.02), config=config) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=True)
        await both_ways(ours, theirs, 200_000)
        theirs.close()


@pytest.mark.parametrize("iss", [2**32 - 1, 2**32 - 100_000])
async def test_sequence_numbers_wrap(iss):
    async with network(Faults(drop=0.01), iss=iss) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=True)
        await both_ways(ours, theirs, 500_000)
        theirs.close()


async def test_a_port_without_a_listener_refuses():
    async with network() as (linux, twin, _):
        sock = linux.socket()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().sock_connect(sock, (TWIN, 9))
        sock.close()
        with pytest.raises(rdma.MpaConnectionError, match="Connection refused"):
            await twin.connect(LINUX, 9, HANG, None)


@pytest.mark.parametrize("active", [True, False])
async def test_a_thousand_connections_one_after_the_other_leave_nothing_behind(active):
    async with network(config=TcpConfig(time_wait=1)) as (linux, twin, _):
        await connections_in_turn(linux, twin, 1000, active=active)


async def test_linux_may_hold_its_window_shut():
    async with network(Faults(drop=0.01)) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=True, buffer=SMALL)
        with theirs:
            assert await hold_linux_window_shut(ours, theirs, HOLD) >= 2


async def test_the_twin_may_hold_its_window_shut():
    async with network(Faults(drop=0.01)) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=False)
        with theirs:
            await hold_twin_window_shut(ours, theirs, HOLD)


async def test_linux_may_send_with_its_window_shut():
    async with network() as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=True, buffer=SMALL)
        with theirs:
            await linux_sends_with_its_window_shut(ours, theirs, 2_000_000)


@pytest.mark.parametrize("scenario", [close_twin_half_first, close_linux_half_first])
@pytest.mark.parametrize("active", [True, False])
async def test_octets_flow_after_the_other_half_has_closed(scenario, active):
    async with network(Faults(drop=0.01)) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=active)
        with theirs:
            await scenario(ours, theirs, 300_000)


async def test_a_window_of_one_octet_lets_octets_through():
    octets = random.randbytes(20)
    async with network(config=TcpConfig(receive_ring=1)) as (linux, twin, _):
        ours, theirs = await connected(linux, twin, active=True)
        with theirs:
            await asyncio.get_running_loop().sock_sendall(theirs, octets)
            theirs.shutdown(socket.SHUT_WR)
            assert await digest(ours.receive) == sha256(octets)


IMPATIENT = TcpConfig(give_up=1500, syn_tries=3, initial_rto=200, fin_wait_2=1000)


async def timed_out(twin, connection):
    """Wait for a connection's end, which is a timeout and leaves nothing."""
    await twin.gate.until(lambda: connection.end is not None)
    assert connection.end is End.TIMED_OUT
    assert not twin.endpoint.connections
    assert twin.endpoint.deadline is None


async def test_a_peer_that_vanishes_under_octets_times_out():
    async with network(config=IMPATIENT) as (linux, twin, pipe):
        ours, theirs = await connected(linux, twin, active=True)
        with theirs:
            pipe.cut()
            await ours.send(b"octets")
            await timed_out(twin, ours.connection)
            for use in (ours.receive(), ours.send(b"more")):
                with pytest.raises(TimeoutError):  # ETIMEDOUT
                    await use


async def test_a_peer_that_vanishes_behind_a_zero_window_times_out():
    async with network(config=IMPATIENT) as (linux, twin, pipe):
        ours, theirs = await connected(linux, twin, active=True, buffer=SMALL)
        with theirs:
            sending = asyncio.create_task(send(ours, bytes(1_000_000)))
            await twin.gate.until(lambda: ours.connection.sender.shut)
            pipe.cut()
            await timed_out(twin, ours.connection)
            with pytest.raises(TimeoutError):
                await sending


async def test_an_idle_linux_answers_probes_and_is_given_up_when_it_has_vanished():
    async with network() as (linux, twin, pipe):
        ours, theirs = await connected(linux, twin, active=True)
        with theirs:
            ours.keep_alive(KeepAlive(idle=1, interval=1, probes=2))
            await asyncio.sleep(3.5)
            assert ours.connection.end is None
            pipe.cut()
            await timed_out(twin, ours.connection)


async def test_linux_probes_the_twin_which_answers():
    async with network() as (linux, twin, pipe):
        _, theirs = await connected(linux, twin, active=True)
        with theirs:
            TcpSocket(theirs, theirs.getpeername()).keep_alive(KeepAlive(idle=1, interval=1, probes=1))
            await asyncio.sleep(3.5)
            assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            pipe.cut()
            await asyncio.sleep(3)
            assert theirs.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ETIMEDOUT


async def test_a_peer_that_vanishes_before_it_answers_times_out():
    async with network(config=IMPATIENT) as (_, twin, pipe):
        pipe.cut()
        with pytest.raises(rdma.MpaConnectionError, match="Connection timed out"):
            await twin.connect(LINUX, PORT, HANG, None)
        assert not twin.endpoint.connections


async def test_a_peer_that_vanishes_before_it_closes_its_half_is_forgotten():
    async with network(config=IMPATIENT) as (linux, twin, pipe):
        ours, theirs = await connected(linux, twin, active=True)
        with theirs:
            ours.close(reset=False)
            await twin.gate.until(lambda: ours.connection.state is State.FIN_WAIT_2)
            pipe.cut()
            await twin.gate.until(lambda: not twin.endpoint.connections)
            assert ours.connection.end is End.CLOSED
