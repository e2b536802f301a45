"""An observer prints what a connection does at the initiator; both ends are captured for Wireshark."""

import asyncio
from pathlib import Path

from open_rnic.host_driver.connection import initiate, listen
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.observer import Frame, Reported, Seen, tee
from open_rnic.host_driver.tools.pcap import Capture
from open_rnic.rtl.registers import Role


def narrate(seen: Seen) -> None:
    match seen:
        case Frame(direction, frame):
            print(direction.value, frame.kind.name, "of", len(frame.encode()), "octets")
        case Reported(event):
            print(event)


async def main() -> None:
    with Path("connection.pcapng").open("wb") as file:
        capture = Capture(file)
        async with (
            await open_device("software", lanes=4) as ours,
            await open_device("software", lanes=4) as theirs,
            await listen() as listener,
        ):
            accepting = asyncio.create_task(
                listener.accept(theirs, Config(Role.RESPONDER), capture.end(Role.RESPONDER))
            )
            config, observer = Config(Role.INITIATOR), tee(capture.end(Role.INITIATOR), narrate)
            async with await initiate(*listener.address, ours, config, observer) as one, await accepting as other:
                await one.finish()
                assert await other.receive_ulpdu() is None


asyncio.run(main())
