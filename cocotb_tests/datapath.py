"""The data path in a simulation: its registers, its streams, and how to set it up."""

from collections.abc import Iterator
from typing import Any

from cocotb.triggers import RisingEdge

from cocotb_tests.harness import Sink, Source
from host_driver.device import Event
from rtl.registers import BY_NAME, EventKind


class Datapath:
    """Drives all ports of an ``MpaDatapath``. ``idle`` and ``busy`` make the pauses of the sources and the sinks."""

    def __init__(self, dut: Any, idle: Iterator[int] | None = None, busy: Iterator[int] | None = None):
        self.dut = dut
        self._edge = RisingEdge(dut.clk)
        dut.bus__request.value = 0
        self.tx_ulpdu = Source(dut, "tx_ulpdu", idle)
        self.tx_mpa = Sink(dut, "tx_mpa", busy)
        self.rx_mpa = Source(dut, "rx_mpa", idle)
        self.rx_ulpdu = Sink(dut, "rx_ulpdu", busy)

    async def _access(self, name: str, write: bool, value: int) -> int:
        self.dut.bus__address.value = BY_NAME[name].address >> 2
        self.dut.bus__write.value = write
        self.dut.bus__write_data.value = value
        self.dut.bus__request.value = 1
        await self._edge
        while not self.dut.bus__ack.value:
            await self._edge
        self.dut.bus__request.value = 0
        return self.dut.bus__read_data.value.to_unsigned()

    async def get(self, name: str) -> int:
        """Read a register."""
        return await self._access(name, False, 0)

    async def set(self, name: str, value: int) -> None:
        """Write a register."""
        await self._access(name, True, value)

    async def set_fields(self, name: str, **fields: int) -> None:
        """Write a register: these fields, and the others as after reset."""
        register = BY_NAME[name]
        word = register.reset
        for field, value in fields.items():
            word = (word & ~register[field].mask) | register[field].put(value)
        await self.set(name, word)

    async def start(self, offset: int = 0, **config: int) -> None:
        """Set CONFIG and go to MPA mode at once in both directions; default: framing alone, no RDMAP rules."""
        await self.set_fields("CONFIG", **{"rdmap": 0, **config})
        await self.set("TX_MPA_OFFSET", offset)
        await self.set("RX_MPA_OFFSET", offset)
        await self.set_fields("CONTROL", tx_enable=1, rx_enable=1)

    async def events(self) -> list[Event]:
        """Take all events that are waiting."""
        found = []
        register = BY_NAME["EVENT"]
        while word := await self.get("EVENT"):
            offset = await self.get("EVENT_OFFSET_LO") | await self.get("EVENT_OFFSET_HI") << 32
            fields = {name: register[name].get(word) for name in ("kind", "detail", "value")}
            found.append(Event(EventKind(fields.pop("kind")), **fields, offset=offset))
        return found

    def send_ulpdu(self, octets: bytes) -> None:
        """Hand over a ULPDU or a stream-mode packet."""
        self.tx_ulpdu.send(octets, length=len(octets))
