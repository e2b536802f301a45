"""A PHY with RMII, after RMII 1.2: cocotbext-eth has none."""

import random

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import RisingEdge
from cocotbext.eth import GmiiFrame

__all__ = ["RmiiSink", "RmiiSource"]


def dibits(octets):
    """Return pairs of bits, the low bits of each octet first."""
    return [octet >> shift & 3 for octet in octets for shift in (0, 2, 4, 6)]


class RmiiSource:
    """Sends frames on RXD and CRS_DV; at 10 Mb/s, each pair of bits for 10 cycles (§5.3).

    The carrier comes any time before the preamble, of which a part may be missing (§5.3.1: 00 until then). It goes any
    time before the last bits: CRS_DV is then 0 in the first half of each nibble (§5.2).
    """

    def __init__(self, dut, slower=1):
        self.dut = dut
        self.slower = slower
        self.queue = Queue()
        self.busy = False
        dut.rx_crs_dv.value = dut.rx_er.value = dut.rx_data.value = 0
        cocotb.start_soon(self._run())

    def send(self, frame, gap=12, false_carrier=False):
        self.queue.put_nowait((frame, gap, false_carrier))
        self.busy = True

    async def wait(self):
        while self.busy:
            await RisingEdge(self.dut.mac_rx_clk)

    async def _put(self, crs_dv, data, error=0):
        self.dut.rx_crs_dv.value, self.dut.rx_data.value, self.dut.rx_er.value = crs_dv, data, error
        for _ in range(self.slower):
            await RisingEdge(self.dut.mac_rx_clk)

    async def _run(self):
        while True:
            self.busy = not self.queue.empty()
            if not self.busy:
                await RisingEdge(self.dut.mac_rx_clk)
                continue
            frame, gap, false_carrier = self.queue.get_nowait()
            for _ in range(2 * random.randrange(4)):
                await self._put(1, 0b00)
            if false_carrier:
                for _ in range(random.randrange(1, 100)):
                    await self._put(1, 0b10)
            frame.normalize()
            bits = dibits(frame.data)
            errors = [error for error in frame.error for _ in range(4)]
            without_carrier = random.randrange(12)  # nibbles
            skipped = 0 if false_carrier else 2 * random.randrange(10)
            for index in range(skipped, len(bits)):
                left = len(bits) - index
                await self._put(not (left % 2 == 0 and left <= 2 * without_carrier), bits[index], errors[index])
            for _ in range(4 * gap):
                await self._put(0, 0)


class RmiiSink:
    """Receives frames from TXD and TX_EN."""

    def __init__(self, dut, slower=1):
        self.dut = dut
        self.slower = slower
        self.queue = Queue()
        cocotb.start_soon(self._run())

    async def recv(self):
        return await self.queue.get()

    async def _run(self):
        bits = []
        while True:
            await RisingEdge(self.dut.mac_tx_clk)
            if self.dut.tx_en.value:
                bits.append(self.dut.tx_data.value.to_unsigned())
            elif bits:
                assert len(bits) % (4 * self.slower) == 0
                held = [bits[at : at + self.slower] for at in range(0, len(bits), self.slower)]
                assert all(len(set(each)) == 1 for each in held)
                pairs = [each[0] for each in held]
                octets = bytes(
                    sum(pair << 2 * place for place, pair in enumerate(pairs[at : at + 4]))
                    for at in range(0, len(pairs), 4)
                )
                self.queue.put_nowait(GmiiFrame(octets))
                bits = []
