"""Three errors, and how the caller sees them."""

import asyncio

from open_rnic.host_driver.connection import Listener, MpaConnectionError, RejectedError, initiate, listen
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.rtl.registers import Role


async def refuse(listener: Listener) -> None:
    async with await open_device("software", lanes=4) as device:
        request = await listener.request(device, Config(Role.RESPONDER))
        await request.reject(private_data=b"not today")


async def main() -> None:
    async with await open_device("software", lanes=4) as device:
        try:
            await initiate("127.0.0.1", 1, device, Config(Role.INITIATOR))
        except MpaConnectionError as error:
            print(error.reason.name, "-", error)

        async with await listen() as listener, asyncio.TaskGroup() as group:
            group.create_task(refuse(listener))
            try:
                await initiate(*listener.address, device, Config(Role.INITIATOR))
            except RejectedError as error:
                print(error, "-", error.frame.private_data)

        await device.set_fields("CONTROL", reset=1)
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        await device.write_mpa(bytes.fromhex("000568656c6c6f009fd73e49"))  # a wrong CRC: its last octet should be 48
        while not (event := await device.next_event()).cause:
            pass
        print(event)


asyncio.run(main())
