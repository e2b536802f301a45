"""ULPDUs through registers."""

import random

import pytest
from cocotb.triggers import RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source, bench, simulate, stalls
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.rtl.mpa.stream_registers import BY_NAME, ROOM
from open_rnic.rtl.mpa.stream_window import StreamWindow
from open_rnic.rtl.registers import Verdict

STATE = BY_NAME["STREAM_STATE"]


class Host:
    """The host's side of the bus."""

    def __init__(self, dut):
        self.dut = dut
        dut.bus__request.value = dut.reset.value = 0

    async def access(self, name, word=None):
        word = await access_register(self.dut, BY_NAME[f"STREAM_{name}"].address >> 2 & 0xFF, word)
        await RisingEdge(self.dut.clk)
        return word

    async def state(self):
        word = await self.access("STATE")
        return {field.name: field.get(word) for field in STATE.fields}

    async def send(self, octets):
        while not (room := (await self.state())["room"]):
            pass
        await self.access("BEGIN", len(octets))
        for at in range(0, len(octets), 4):
            while not room:
                room = (await self.state())["room"]
            await self.access("WORD", int.from_bytes(octets[at : at + 4], "little"))
            room -= 1

    async def receive(self):
        octets = b""
        while True:
            state = await self.state()
            word = await self.access("RECEIVED")
            if state["waits"]:
                octets += word.to_bytes(4, "little")[: state["octets"]]
                if state["last"]:
                    return octets, Verdict(state["verdict"])


@bench()
async def packets_pass_both_ways(dut):
    host = Host(dut)
    source, sink = Source(dut, "rx_ulpdu", stalls(0.3)), Sink(dut, "tx_ulpdu", stalls(0.5))
    for length in [0, 1, 2, 3, 4, 5, 8, 63, 64, 65, 200]:
        octets, verdict = random.randbytes(length), random.choice(list(Verdict))
        await host.send(octets)
        sent = await sink.receive()
        assert (sent.octets, sent.fields["length"]) == (octets, length)
        source.send(octets, length=length, verdict=verdict)
        assert await host.receive() == (octets, verdict)


@bench()
async def room_is_exact(dut):
    host = Host(dut)
    dut.rx_ulpdu__valid.value = dut.tx_ulpdu__ready.value = 0
    await host.access("BEGIN", 4 * (ROOM + 1))
    for written in range(ROOM + 1):
        expected = ROOM - written + (written > 0)  # a word has left the queue for its output register
        assert (await host.state())["room"] in (expected, ROOM - written)
        if written < ROOM:
            await host.access("WORD", written)


@bench()
async def a_reset_discards_what_waits(dut):
    host = Host(dut)
    dut.rx_ulpdu__valid.value = dut.tx_ulpdu__ready.value = 0
    await host.access("BEGIN", 40)
    await host.access("WORD", 1)
    dut.reset.value = 1
    await RisingEdge(dut.clk)
    dut.reset.value = 0
    await host.access("WORD", 2)  # of the packet that has been discarded
    sink = Sink(dut, "tx_ulpdu")
    await host.send(b"new")
    assert (await sink.receive()).octets == b"new"


@bench()
async def a_word_that_was_not_announced_stays(dut):
    host = Host(dut)
    source = Source(dut, "rx_ulpdu")
    dut.tx_ulpdu__ready.value = 0
    assert not (await host.state())["waits"]
    source.send(b"abcd", length=4, verdict=Verdict.GOOD)
    for _ in range(5):
        await RisingEdge(dut.clk)
    assert dut.waits.value
    assert await host.access("RECEIVED") == 0
    assert await host.receive() == (b"abcd", Verdict.GOOD)


@pytest.mark.parametrize(
    "bench",
    [packets_pass_both_ways, room_is_exact, a_reset_discards_what_waits, a_word_that_was_not_announced_stays],
)
def test_stream_window(bench):
    simulate(StreamWindow(), bench)
