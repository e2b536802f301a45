"""A stream of octets over RDMA."""

import asyncio

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import rsocket


async def serve(listener: rdma.Listener) -> None:
    async with await rsocket.accept(await listener.request()) as peer:
        while octets := await peer.recv():
            await peer.send(octets.upper())


async def main() -> None:
    async with await rdma.listen() as listener, asyncio.TaskGroup() as group:
        group.create_task(serve(listener))
        async with await rsocket.connect("127.0.0.1", listener.address[1]) as peer:
            await peer.send(b"hello, ")
            await peer.send(b"world")
            print(await peer.recv_exactly(12))


asyncio.run(main())
