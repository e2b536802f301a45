"""How fast two simulated devices exchange ULPDUs, both ways: ``python -m cocotb_tests.system.throughput [LANES]``."""

import asyncio
import sys
import time

from host_driver.simulated import SimulatedDevice
from rtl.registers import Role

ULPDU = bytes(range(256)) * 5 + bytes(180)  # 1460 octets
COUNT = 4000


async def send(device):
    for _ in range(COUNT):
        await device.write_ulpdu(ULPDU)


async def carry(giver, taker):
    while True:
        await taker.write_mpa(await giver.read_mpa())


async def receive(device):
    for _ in range(COUNT):
        assert (await device.read_ulpdu()).octets == ULPDU


async def main(lanes):
    start = time.monotonic()
    first, second = await asyncio.gather(SimulatedDevice.open(lanes=lanes), SimulatedDevice.open(lanes=lanes))
    async with first, second:
        for device, role in ((first, Role.INITIATOR), (second, Role.RESPONDER)):
            await device.set_fields("CONFIG", role=role, permissive=1)
            await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        print(f"two devices of {lanes} lanes opened in {time.monotonic() - start:.2f} s")
        await first.write_ulpdu(ULPDU)  # opens the responder's fence
        await second.write_mpa(await first.read_mpa())
        await second.read_ulpdu()
        cycles = await first.get_wide("CYCLES")
        start = time.monotonic()
        carriers = [asyncio.create_task(carry(*pair)) for pair in ((first, second), (second, first))]
        await asyncio.gather(send(first), send(second), receive(first), receive(second))
        taken = time.monotonic() - start
        cycles = await first.get_wide("CYCLES") - cycles
        for each in carriers:
            each.cancel()
        octets = COUNT * len(ULPDU)
        print(f"{octets} octets of ULPDUs each way in {taken:.2f} s: {octets / taken:,.0f} octets a second each way")
        print(f"{cycles} cycles, {octets / cycles:.2f} octets a cycle, {cycles / taken:,.0f} cycles a second")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
