"""A DDP stream session over a socket that preserves messages: requested, accepted, used both ways, and ended."""

import asyncio
import socket

from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.sctp.transport import Link, MessageLink, open_session, request
from open_rnic.rtl.registers import Role


async def passive(link: Link) -> None:
    asked = await request(link, Config(Role.RESPONDER, ird=4, max_ird=4))
    print("passive:", asked.control.function, "asks for", asked.model.name, "with", asked.control.private_data)
    async with await asked.accept(b"welcome") as session:
        while (segment := await session.receive()) is not None:
            await session.send(segment.upper())
        await session.terminate()


async def active(link: Link) -> None:
    async with await open_session(link, Config(Role.INITIATOR, private_data=b"hello")) as session:
        print("active:", session.negotiated.private_data, "- ORD", session.negotiated.ord)
        await session.send(b"a ddp segment")
        print("active: received", await session.receive())
        await session.terminate()
        assert await session.receive() is None  # the passive side has terminated, too


async def main() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    await asyncio.gather(active(MessageLink(ours)), passive(MessageLink(theirs)))


asyncio.run(main())
