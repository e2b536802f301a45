"""Two endpoints in one process connect over loopback; the initiator sends a ULPDU, the responder answers."""

import asyncio
import sys

from open_rnic.host_driver.connection import Listener, initiate, listen
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.rtl.registers import Role


async def respond(name: str, listener: Listener) -> None:
    async with await open_device(name, lanes=4) as device:
        request = await listener.request(device, Config(Role.RESPONDER))
        print("responder: the Request's private data is", request.frame.private_data)
        async with await request.accept(private_data=b"welcome") as connection:
            while (ulpdu := await connection.receive_ulpdu()) is not None:
                await connection.send_ulpdu(ulpdu.upper())
            await connection.finish()


async def begin(name: str, port: int) -> None:
    async with await open_device(name, lanes=4) as device:
        config = Config(Role.INITIATOR, private_data=b"hello")
        async with await initiate("127.0.0.1", port, device, config) as connection:
            agreed = connection.negotiated
            print("initiator: the Reply's private data is", agreed.private_data)
            print(f"initiator: {agreed.model.name}, RTR {agreed.rtr_send.name}, CRC {agreed.crc}")
            await connection.send_ulpdu(b"a ulpdu")
            print("initiator: received", await connection.receive_ulpdu())
            await connection.finish()
            assert await connection.receive_ulpdu() is None  # the responder has closed, too


async def main(name: str) -> None:
    async with await listen() as listener, asyncio.TaskGroup() as group:
        group.create_task(respond(name, listener))
        group.create_task(begin(name, listener.address[1]))


asyncio.run(main(*sys.argv[1:] or ["software"]))
