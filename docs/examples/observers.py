"""What a connection does, told by an observer at the initiator, and captured for Wireshark from both ends."""

import asyncio
from pathlib import Path

from open_rnic.host_driver.connection import Direction, initiate, listen
from open_rnic.host_driver.device import Event
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup import StartupFrame
from open_rnic.host_driver.tools.pcap import Capture, CaptureEnd
from open_rnic.rtl.registers import Role


class Narrator(CaptureEnd):  # an observer that captures nothing derives from host_driver.connection.Silent
    """Prints what its end sees, besides capturing what it sends."""

    def frame(self, direction: Direction, frame: StartupFrame) -> None:
        print(direction.value, frame.kind.name, "of", len(frame.encode()), "octets")

    def event(self, event: Event) -> None:
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
            config, narrator = Config(Role.INITIATOR), Narrator(capture, Role.INITIATOR)
            async with await initiate(*listener.address, ours, config, narrator) as one, await accepting as other:
                await one.finish()
                assert await other.receive_ulpdu() is None


asyncio.run(main())
