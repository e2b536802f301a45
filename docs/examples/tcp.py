"""Two hosts with the twin's TCP, joined by a segment that loses frames."""

import asyncio
from ipaddress import IPv4Interface

from open_rnic.host_driver.net.host import Host
from open_rnic.host_driver.net.pipe import Faults, Pipe, joined
from open_rnic.host_driver.tcp.stack import UserTcp


async def main() -> None:
    (ours, one), (theirs, other) = joined(), joined()
    client_host = Host(bytes([2, 0, 0, 0, 0, 1]), IPv4Interface("10.9.0.1/24"))
    server_host = Host(bytes([2, 0, 0, 0, 0, 2]), IPv4Interface("10.9.0.2/24"))
    async with (
        Pipe(one, other, Faults(drop=0.05), seed=4),
        UserTcp(ours, client_host) as client,
        UserTcp(theirs, server_host) as server,
    ):
        listener = await server.listen("10.9.0.2", 7)
        sender, receiver = await asyncio.gather(client.connect("10.9.0.2", 7, 60.0, None), listener.accept())
        await sender.send(bytes(100_000))
        sender.shut()
        octets = 0
        while part := await receiver.receive():
            octets += len(part)
        receiver.shut()
        print(octets, "octets arrived from", sender.local[0])


asyncio.run(main())
