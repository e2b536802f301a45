"""The RNIC in RTL, in Verilator: TCP and MPA in one device, with DDP in software."""

import asyncio
from contextlib import asynccontextmanager
from ipaddress import IPv4Interface

from open_rnic.cocotb_tests.host_driver.tcp.test_linux import run
from open_rnic.cocotb_tests.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.device import AttachedDevice
from open_rnic.host_driver.devices.simulated_rnic import opened
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.net.pipe import Faults, Pipe
from open_rnic.host_driver.rdma import rping
from open_rnic.rtl.registers import Role

ONE, OTHER = (IPv4Interface(f"10.9.0.{n}/24") for n in (1, 2))
RESPONDER, INITIATOR = Config(Role.RESPONDER, timeout=HANG), Config(Role.INITIATOR, timeout=HANG)


async def attached():
    """Return the device of a connection whose TCP is in the device."""
    return AttachedDevice()


@asynccontextmanager
async def joined(faults):
    """The TCP of two RNICs that a pipe joins."""
    async with (
        opened(bytes.fromhex("020000000001"), ONE) as (one, client),
        opened(bytes.fromhex("020000000002"), OTHER) as (other, server),
        Pipe(one, other, faults, seed=1),
    ):
        yield client, server


def test_rping_runs_over_two_rnics_that_a_lossy_pipe_joins():
    async def body():
        async with (
            joined(Faults(drop=0.01)) as (client, server),
            await rdma.listen(str(OTHER.ip), rping.PORT, RESPONDER, device=attached, tcp=server) as listener,
        ):

            async def serve():
                async with await (await listener.request()).accept() as connection:
                    return await rping.server(connection)

            serving = asyncio.create_task(serve())
            connecting = rdma.connect(str(OTHER.ip), rping.PORT, INITIATOR, device=attached, tcp=client)
            async with await connecting as connection:
                assert await rping.client(connection, count=5, size=4000, validate=True) == 5
            assert await serving == 5

    run(body())
