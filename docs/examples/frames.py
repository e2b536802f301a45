"""Twenty frames cross a segment that loses some of them and repeats others."""

import asyncio

from open_rnic.host_driver.net.pipe import Faults, Pipe, joined

HEADER = bytes.fromhex("020000000002 020000000001 88b5")  # destination, source, an EtherType for experiments


async def main() -> None:
    (here, one), (there, other) = joined(), joined()
    async with Pipe(one, other, Faults(drop=0.2, duplicate=0.1), seed=5) as pipe:
        arrived: list[int] = []
        there.receive = lambda frame: arrived.append(frame[-1])
        for number in range(20):
            here.send(HEADER + bytes([number]))
        while pipe.directions[0].flying:
            await asyncio.sleep(0)
    print("arrived:", *arrived)
    for fault in pipe.directions[0].log:
        print("frame", fault.number, fault.kind)


asyncio.run(main())
