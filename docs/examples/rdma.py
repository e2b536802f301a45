"""A server offers memory; a client writes to it, reads from it, and revokes it with its last Send."""

import asyncio
import struct
import sys
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.rdma import Access

OFFER = struct.Struct(">IQI")  # STag, TO, octets: the ULP chooses the format of this message


async def serve(listener: rdma.Listener) -> None:
    request = await listener.request()
    print("server: asked with", request.private_data, "for", request.model.name)
    async with await request.accept(b"welcome") as connection:
        memory = bytearray(64)
        region = connection.register(memory, Access.REMOTE_READ | Access.REMOTE_WRITE)
        await connection.send(OFFER.pack(region.stag, region.to, len(region)))
        received = await connection.receive()
        print("server: received", bytes(received), "and the memory holds", bytes(memory[:12]))
        print("server: revoked by the client:", received.invalidated == region.stag and not region.valid)
        print("server: the client has closed, error:", await connection.disconnected())


async def use(port: int, device: rdma.OpenDevice) -> None:
    config = rdma.Config(rdma.Role.INITIATOR, ord=4, private_data=b"hello")
    async with await rdma.connect("127.0.0.1", port, config, device=device) as connection:
        print("client: IRD", connection.negotiated.ird, "ORD", connection.negotiated.ord, "RTR", connection.rtr.name)
        stag, to, octets = OFFER.unpack((await connection.receive()).data)
        await connection.write(b"Hello, world", stag, to)
        print("client: read back", await connection.read(5, stag, to + 7))
        sink = connection.register(bytearray(octets), Access.LOCAL_WRITE)
        reads = [connection.post_read(sink, 1, stag, to + n, offset=n) for n in range(12)]  # 4 at a time
        print("client:", sum(done.octets for done in await asyncio.gather(*reads)), "octets:", bytes(sink.view[:12]))
        await connection.send(b"done", invalidate=stag)


async def main(name: str) -> None:
    device = partial(open_device, name, lanes=4)
    async with await rdma.listen(device=device) as listener:
        await asyncio.gather(serve(listener), use(listener.address[1], device))


asyncio.run(main(*sys.argv[1:] or ["software"]))
