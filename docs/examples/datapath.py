"""A loopback design: MpaDatapath inside an Amaranth design, in Amaranth's own simulator."""

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, Verdict
from open_rnic.rtl.registers.bus import RegisterBus


class Loopback(wiring.Component):
    """Connects transmit to receive; the three ports for the host are those of the data path."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        super().__init__({
            "tx": In(stream.Signature(TxUlpdu(lanes))),
            "rx": Out(stream.Signature(RxUlpdu(lanes))),
            "bus": In(RegisterBus()),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.mpa = mpa = MpaDatapath(self.lanes)
        wiring.connect(m, wiring.flipped(self.tx), mpa.tx_ulpdu)
        wiring.connect(m, mpa.tx_mpa, mpa.rx_mpa)
        wiring.connect(m, mpa.rx_ulpdu, wiring.flipped(self.rx))
        wiring.connect(m, wiring.flipped(self.bus), mpa.bus)
        return m


loopback = Loopback(lanes=1)


async def write(ctx, register: str, word: int) -> None:
    bus = loopback.bus
    ctx.set(bus.address, BY_NAME[register].address // 4)
    ctx.set(bus.write_data, word)
    ctx.set(bus.write, 1)
    ctx.set(bus.request, 1)
    await ctx.tick().until(bus.ack)
    ctx.set(bus.request, 0)
    await ctx.tick()


async def host(ctx) -> None:
    await write(ctx, "CONTROL", 0b011)  # tx_enable and rx_enable: an initiator of the client-server model
    beats = [b"Hell", b"o"]
    for beat in beats:
        ctx.set(loopback.tx.payload, {
            "data": int.from_bytes(beat, "little"), "octets": len(beat), "last": beat is beats[-1], "length": 5,
        })  # fmt: skip
        ctx.set(loopback.tx.valid, 1)
        await ctx.tick().until(loopback.tx.ready)
    ctx.set(loopback.tx.valid, 0)


async def application(ctx) -> None:
    ulpdu, last = b"", False
    ctx.set(loopback.rx.ready, 1)
    while not last:
        [beat] = await ctx.tick().sample(loopback.rx.payload).until(loopback.rx.valid)
        last = beat.last
        ulpdu += beat.data.to_bytes(4, "little")[: beat.octets if last else 4]
    print(ulpdu, Verdict(beat.verdict).name)


simulator = Simulator(loopback)
simulator.add_clock(1e-8)
simulator.add_testbench(host)
simulator.add_testbench(application)
simulator.run()
