"""One device turns a ULPDU into an FPDU, and the FPDU back into a ULPDU."""

import asyncio
import sys

from open_rnic.host_driver.devices import open_device


async def main(name: str) -> None:
    async with await open_device(name, lanes=4) as device:
        await device.set_fields("CONFIG", rdmap=0)  # initiator, client-server: the fence opens at once
        await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        await device.write_ulpdu(b"hello")
        fpdu = await device.read_mpa()
        print(fpdu.hex())
        await device.write_mpa(fpdu)
        print(await device.read_ulpdu())
        print(await device.get("RX_FPDUS"), "good FPDU")


asyncio.run(main(*sys.argv[1:] or ["software"]))
