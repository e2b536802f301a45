"""TCP in RTL, in Verilator, against this machine's TCP, over a TAP device and a frame pipe with faults."""

import asyncio
from ipaddress import IPv4Interface

import pytest

from open_rnic.cocotb_tests.harness.devices import answer_pings
from open_rnic.cocotb_tests.host_driver.tcp.linux import (
    LINUX,
    MAC,
    PORT,
    TWIN,
    both_ways,
    connected,
    hold_both_windows_shut,
    linux_sends_with_its_window_shut,
    rtl_network,
)
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.soaks.tcp import TcpRtl
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices.simulated_path import opened
from open_rnic.host_driver.errors import MpaConnectionError
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.pipe import Faults, Pipe
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.tcp.engine import EngineTcp
from open_rnic.host_driver.tcp.ports import EPHEMERAL
from open_rnic.rtl.registers import Role

PLANS = {
    "clean": Faults(),
    "1 % lost": Faults(drop=0.01),
    "reordered": Faults(reorder=0.05, reorder_by=0.005, duplicate=0.02),
    "corrupted": Faults(corrupt=0.02, truncate=0.01),
}


@pytest.mark.parametrize("active", [False, True], ids=["passive", "active"])
@pytest.mark.parametrize("plan", PLANS)
async def test_octets_arrive_both_ways(plan, active):
    async with rtl_network(PLANS[plan]) as (linux, tcp):
        ours, theirs = await connected(linux, tcp, active=active)
        await both_ways(ours, theirs, 100_000)
        theirs.close()


async def test_windows_that_stay_shut_open_again():
    async with rtl_network() as (linux, tcp):
        ours, theirs = await connected(linux, tcp, active=True, buffer=20_000)
        await hold_both_windows_shut(ours, theirs, 2, 400_000)
        theirs.close()


async def test_linux_may_send_with_its_window_shut():
    async with rtl_network() as (linux, tcp):
        ours, theirs = await connected(linux, tcp, active=True, buffer=20_000)
        await linux_sends_with_its_window_shut(ours, theirs, 400_000)
        theirs.close()


async def test_two_connections_to_the_same_peer_have_different_ports(monkeypatch):
    monkeypatch.setattr("secrets.randbelow", lambda _: 0)
    async with rtl_network() as (linux, tcp):
        pairs = [await connected(linux, tcp, active=True) for _ in range(3)]
        first = pairs[0][0].local
        assert [ours.local[1] for ours, _ in pairs] == [*EPHEMERAL[:3]]
        with pytest.raises(MpaConnectionError, match=f"port {EPHEMERAL[0]} of {TWIN} is in use"):
            await tcp.connect(LINUX, PORT, HANG, first)
        await asyncio.gather(*(both_ways(ours, theirs, 5000) for ours, theirs in pairs))
        for _, theirs in pairs:
            theirs.close()


async def test_connections_one_after_the_other_and_some_at_once():
    async with rtl_network() as (linux, tcp):
        for _ in range(3):
            pairs = [await connected(linux, tcp, active=active) for active in (True, False, True)]
            await asyncio.gather(*(both_ways(ours, theirs, 5000) for ours, theirs in pairs))
            for ours, theirs in pairs:
                ours.close(reset=False)
                theirs.close()


def test_random_mutated_and_forged_frames_do_no_harm():
    outcomes = TcpRtl("tcp-rtl-1", frames=1000).run()
    assert outcomes.total() >= 1000
    assert outcomes.keys() >= {"random", "mutated", "forged"}


async def test_a_port_without_a_listener_refuses():
    async with rtl_network() as (linux, tcp):
        with pytest.raises(MpaConnectionError, match="refused"):
            await tcp.connect(LINUX, PORT, HANG, None)
        with linux.socket() as client, pytest.raises(ConnectionRefusedError):
            await asyncio.get_running_loop().sock_connect(client, (TWIN, PORT))


async def test_rping_runs_over_two_paths_that_a_lossy_pipe_joins():
    addresses = [IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2)]
    responder, initiator = Config(Role.RESPONDER, timeout=HANG), Config(Role.INITIATOR, timeout=HANG)
    async with (
        opened(bytes.fromhex("020000000001"), addresses[0]) as one,
        opened(MAC, addresses[1]) as other,
        Pipe(one, other, Faults(drop=0.01), seed=1),
        EngineTcp(one, addresses[0].ip) as client,
        EngineTcp(other, addresses[1].ip) as server,
        await rdma.listen(TWIN, rping.PORT, responder, tcp=server) as listener,
    ):
        serving = asyncio.create_task(answer_pings(listener))
        async with await rdma.connect(TWIN, rping.PORT, initiator, tcp=client) as connection:
            assert await rping.client(connection, count=5, size=4000, validate=True) == 5
        assert await serving == 5
