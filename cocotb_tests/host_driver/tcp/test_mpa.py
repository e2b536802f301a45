"""MPA and RDMA over the twin's TCP, at both ends, through a pipe that loses frames."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

import pytest

from open_rnic.cocotb_tests.harness.devices import answer_pings
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.errors import MpaConnectionError
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.tcp.stack import UserTcp
from open_rnic.rtl.registers import Role

SERVER = "10.9.0.2"
FAULTS = Faults(drop=0.02, duplicate=0.02, reorder=0.02, corrupt=0.01)


@asynccontextmanager
async def two_stacks():
    """Two hosts with the twin's TCP, joined by a pipe with faults."""
    (ours, one), (theirs, other) = joined(), joined()
    hosts = [Host(bytes([2, 0, 0, 0, 0, n]), IPv4Interface(f"10.9.0.{n}/24")) for n in (1, 2)]
    async with Pipe(one, other, FAULTS, seed=1), UserTcp(ours, hosts[0]) as client, UserTcp(theirs, hosts[1]) as server:
        yield client, server


async def test_bad_addresses_are_refused_in_one_line():
    async with two_stacks() as (client, server):
        for host, what in {
            "192.0.2.1": "cannot connect to 192.0.2.1 port 7: no route to 192.0.2.1",
            "10.9.0.1": "10.9.0.1 is this host's own address",
            "name": "'name' is not a numeric IPv4 address",
        }.items():
            with pytest.raises(MpaConnectionError, match=what):
                await client.connect(host, 7, HANG, None)
        with pytest.raises(MpaConnectionError, match=r"10\.9\.0\.3 is not the address of this end, 10\.9\.0\.1"):
            await client.connect(SERVER, 7, HANG, ("10.9.0.3", 0))
        with pytest.raises(MpaConnectionError, match=r"10\.9\.0\.1 is not the address of this end"):
            await server.listen("10.9.0.1", 7)
        await server.listen(SERVER, 7)
        with pytest.raises(MpaConnectionError, match=r"port 7 of 10\.9\.0\.2 is in use"):
            await server.listen(SERVER, 7)
        assert not client.endpoint.connections


async def test_rping_survives_faults_of_the_network():
    responder, initiator = Config(Role.RESPONDER, timeout=HANG), Config(Role.INITIATOR, timeout=HANG)
    async with (
        two_stacks() as (client, server),
        await rdma.listen(SERVER, rping.PORT, responder, tcp=server) as listener,
    ):
        serving = asyncio.create_task(answer_pings(listener))
        async with await rdma.connect(SERVER, rping.PORT, initiator, tcp=client) as connection:
            assert connection.mulpdu == 1448 - 6  # RFC 5044 §4.5, without markers: a segment holds a whole FPDU
            assert await rping.client(connection, count=20, size=4000, validate=True) == 20
        assert await serving == 20
