"""PHYs on MDIO, after IEEE 802.3 §22.2.4 and §22.3.4; the rules of the wires are checked."""

import random

import cocotb
from cocotb.triggers import FallingEdge, First, RisingEdge, Timer
from cocotb.utils import get_sim_time

from open_rnic.host_driver.devices.sim.signals import level

__all__ = ["MdioPhys", "Phy"]


class Phy(list):
    """The registers of a PHY. Register 1 keeps the loss of a link until it has been read, and then is ``status``."""

    def __init__(self, registers=()):
        super().__init__([0] * 32)
        for number, word in dict(registers).items():
            self[number] = word
        self.status = self[1]

    def lose_link(self, for_good=False):
        """Lose the link; until it is read, or for good."""
        self[1] &= ~4
        if for_good:
            self.status &= ~4


class MdioPhys:
    """PHYs, by their addresses. ``reads`` and ``writes`` have the accesses to all addresses.

    ``nanosecond`` is the number of simulated steps in one.
    """

    def __init__(self, dut, phys, nanosecond=1):
        self.dut = dut
        self.phys = phys
        self.writes = []
        self.reads = []
        self.nanosecond = nanosecond
        self.driven = None
        dut.mdio_i.value = 1
        self._running = cocotb.start_soon(self._run())
        self._resets = 0  # of the core, which cut MDC
        cocotb.start_soon(self._resolve())
        cocotb.start_soon(self._watch())
        cocotb.start_soon(self._count())

    def reset(self):
        """Reset the PHYs: the access that is under way ends."""
        self._running.cancel()
        self.driven = None
        self._settle()
        self._running = cocotb.start_soon(self._run())

    async def _resolve(self):
        while True:
            await First(self.dut.mdio_o.value_change, self.dut.mdio_oe.value_change)
            self._settle()

    def _settle(self):
        """Set the level of the wire, which has a pull-up resistor."""
        mine = level(self.dut.mdio_o) if level(self.dut.mdio_oe) else None
        assert None in (mine, self.driven), "both ends drive MDIO"
        self.dut.mdio_i.value = next((each for each in (mine, self.driven) if each is not None), 1)

    async def _count(self):
        while True:
            await RisingEdge(self.dut.rst)
            self._resets += 1

    async def _watch(self):
        """MDC is 1 for at least 160 ns, and has 400 ns in a period; MDIO is stable for 10 ns after its rise."""
        rise = resets = None
        while True:
            await RisingEdge(self.dut.mdc)
            now = get_sim_time("step")
            assert resets != self._resets or now - rise >= 400 * self.nanosecond
            rise, resets = now, None if self.dut.rst.value else self._resets
            before = bool(self.dut.mdio_o.value), bool(self.dut.mdio_oe.value)
            await Timer(round(10 * self.nanosecond), "step")
            after = bool(self.dut.mdio_o.value), bool(self.dut.mdio_oe.value)
            assert resets != self._resets or before == after
            await FallingEdge(self.dut.mdc)
            assert resets != self._resets or get_sim_time("step") - rise >= 160 * self.nanosecond

    async def _bit(self, drive=None):
        """Return the bit at the next rise of MDC; from a moment after it on, drive the wire for the next one."""
        await RisingEdge(self.dut.mdc)
        bit = int(self.dut.mdio_o.value) if self.dut.mdio_oe.value else 1
        await Timer(random.randrange(1, round(300 * self.nanosecond)), "step")
        self.driven = drive
        self._settle()
        return bit

    async def _run(self):
        ones = 0
        while True:
            bit = await self._bit()
            if bit:
                ones += 1
                continue
            complete, ones = ones >= 32, 0
            assert await self._bit() == 1, "the start is 01"
            assert complete, "the preamble has 32 ones"
            fields = []
            for width in (2, 5, 5):
                value = 0
                for _ in range(width):
                    value = value << 1 | await self._bit()
                fields.append(value)
            operation, address, register = fields
            phy = self.phys.get(address)
            if operation == 0b10:
                self.reads.append((address, register))
                word = phy[register] if phy else None
                if phy and register == 1:
                    phy[1] = phy.status
                bits = [None] * 17 if word is None else [0, *(word >> 15 - index & 1 for index in range(16))]
                for bit in bits:  # nobody drives the first bit of the turnaround
                    await self._bit(drive=bit)
                    assert not self.dut.mdio_oe.value
                await self._bit()
            else:
                assert operation == 0b01
                assert (await self._bit(), await self._bit()) == (1, 0)
                word = 0
                for _ in range(16):
                    assert self.dut.mdio_oe.value
                    word = word << 1 | await self._bit()
                self.writes.append((address, register, word))
                if phy:
                    phy[register] = word
