"""A client breaks the rules; both ends see a Terminate."""

import asyncio

from open_rnic.host_driver import rdma
from open_rnic.host_driver.rdma import Access


async def serve(listener: rdma.Listener) -> None:
    async with await (await listener.request()).accept() as connection:
        region = connection.register(bytearray(8), Access.REMOTE_READ, to=0x1000)
        await connection.send(region.stag.to_bytes(4, "big"))
        try:
            await connection.receive()
        except rdma.TerminatedError as error:
            print("server:", error.fault, error.layer, error.type, error.code, "by", error.by)


async def use(port: int) -> None:
    async with await rdma.connect("127.0.0.1", port) as connection:
        stag = int.from_bytes((await connection.receive()).data, "big")
        try:
            await connection.read(9, stag, 0x1000)
        except rdma.TerminatedError as error:
            print("client:", error)
        try:
            await connection.send(b"more")
        except rdma.RdmaError as error:
            print("client: every later operation fails with the same:", error is connection.error)


async def main() -> None:
    async with await rdma.listen() as listener:
        await asyncio.gather(serve(listener), use(listener.address[1]))
        rejected = asyncio.create_task(rdma.connect(*listener.address[:2]))
        await (await listener.request()).reject(b"full")
        try:
            await rejected
        except rdma.RejectedError as error:
            print("client:", error, error.frame.private_data)


asyncio.run(main())
