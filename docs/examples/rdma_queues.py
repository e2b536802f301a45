"""Work requests in batches: a client fetches records in pieces, and returns each with a fenced Send."""

import asyncio
import sys
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.rdma import Access, ReceiveRequest, WorkRequest

RECORDS = 3


async def serve(listener: rdma.Listener) -> list[str]:
    cq = rdma.CompletionQueue(depth=16)
    options = rdma.Options(send_cq=cq, receive_cq=cq, receiver_waits=False)
    buffers = [ReceiveRequest(bytearray(16), wr_id=number) for number in range(RECORDS)]
    request = await listener.request()
    async with await request.accept(options=options, receives=buffers) as connection:  # before anything can arrive
        parts = bytearray(b"headhead"), bytearray(b"a longer body")  # one region of two buffers
        region = connection.register(parts, Access.REMOTE_READ)
        connection.post(WorkRequest.send(region.stag.to_bytes(4, "big"), wr_id="offer"))
        lines: list[str] = []
        while len(lines) < 1 + RECORDS:
            for done in await cq.wait():  # a batch: all available completions, at least one
                match done:
                    case rdma.Received():
                        lines.append(f"server: buffer {done.wr_id} has {bytes(done)!r}")
                    case _:
                        lines.append(f"server: {done.wr_id}, {done.status.value}")
        await connection.disconnected()
    return lines


async def use(port: int, device: rdma.OpenDevice) -> None:
    cq = rdma.CompletionQueue()
    options = rdma.Options(send_cq=cq)
    async with await rdma.connect(
        "127.0.0.1", port, options=options, device=device, local_addr=("127.0.0.1", 0)
    ) as connection:
        stag = int.from_bytes((await connection.receive()).data, "big")
        number = connection.register(bytearray(b"012"), Access(0))
        for record in range(RECORDS):
            head, body = bytearray(8), bytearray(13)
            connection.post(
                WorkRequest.read([head, body], stag, wr_id=(head, body)),
                WorkRequest.send([b"done with ", number[record : record + 1]], fence=True, signaled=False),
            )
        done = []
        while len(done) < RECORDS:
            done += await cq.wait()
        print("client:", [b" ".join(each.wr_id) for each in done][-1], "and", len(done), "completions")
        connection.post(WorkRequest.read(bytearray(100), stag, wr_id="too much"))
        [failed] = await cq.wait()
        print(f"client: {failed.wr_id}, {failed.status.value}: {failed.error}")


async def main(name: str) -> None:
    device = partial(open_device, name, lanes=4)
    async with await rdma.listen(device=device) as listener:
        serving = asyncio.create_task(serve(listener))
        await use(listener.address[1], device)
        print(*await serving, sep="\n")


asyncio.run(main(*sys.argv[1:] or ["software"]))
