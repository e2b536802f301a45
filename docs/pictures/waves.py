"""Waves of transmit, simulated: a ULPDU enters the data path, and its FPDU leaves it."""

from amaranth.sim import Simulator
from drawing import SMALL, WIDTH, Drawing

from open_rnic.rtl.mpa.tx.datapath import TxDatapath
from open_rnic.rtl.registers import Model, Role

ULPDU = b"Hello, RDMA"
CYCLES, LEFT, WIDE, ROW, TOP = 16, 94, 20, 26, 40
STREAMS = ("ulpdu", "mpa")


def simulate():
    """Return the values of both streams in each cycle: valid, ready, last, and the octets, None without a beat."""
    dut = TxDatapath(1)
    seen = []

    async def bench(ctx):
        ctx.set(dut.enable, 1)
        ctx.set(dut.maximum, 1460)
        ctx.set(dut.settings, {"role": Role.INITIATOR, "model": Model.CLIENT_SERVER, "crc": 1})
        ctx.set(dut.mpa.ready, 1)
        await ctx.tick().repeat(4)
        at = 0
        for _ in range(CYCLES):
            rest = ULPDU[at : at + 4]
            ctx.set(dut.ulpdu.valid, bool(rest))
            ctx.set(dut.ulpdu.payload, {"data": int.from_bytes(rest, "little"), "octets": len(rest),
                                        "length": len(ULPDU), "last": 0 < len(ULPDU) - at <= 4})  # fmt: skip
            taken = bool(rest) and ctx.get(dut.ulpdu.ready)
            seen.append([_state(ctx, getattr(dut, name)) for name in STREAMS])
            await ctx.tick()
            at += 4 * taken
        assert any(mpa["last"] for _, mpa in seen), "the FPDU has not left"

    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    simulator.add_testbench(bench)
    simulator.run()
    return seen


def _state(ctx, stream):
    valid, last = ctx.get(stream.valid), ctx.get(stream.payload.last)
    count = ctx.get(stream.payload.octets) if last else 4
    octets = ctx.get(stream.payload.data).to_bytes(4, "little")[:count] if valid else b""
    return {"valid": valid, "ready": ctx.get(stream.ready), "last": valid and last, "octets": octets}


def draw():
    """Return the drawing."""
    seen = simulate()
    d = Drawing("Waves of transmit: an FPDU with ULPDU_Length, PAD and CRC leaves for a ULPDU of 11 octets",
                TOP + ROW * 14 + 24)  # fmt: skip
    d.text(10, 22, "TxDatapath, 1 lane", "title")
    d.text(WIDTH - 10, 22, f"{CYCLES} cycles", "small end")
    y = TOP
    for nth, name in enumerate(STREAMS):
        y += ROW / 2 * nth
        for signal in ("valid", "ready", "last"):
            _bit(d, y, f"{name}.{signal}", [each[nth][signal] for each in seen])
            y += ROW
        for octet in range(4):
            d.text(10, y + 17, f"octet {octet}")
            for cycle, each in enumerate(seen):
                if octet < len(found := each[nth]["octets"]):
                    _octet(d, LEFT + WIDE * cycle, y, found[octet])
            y += ROW
    return d


def _bit(d, y, name, values):
    d.text(10, y + 17, name)
    points = []
    for cycle, value in enumerate(values):
        level = y + (4 if value else 20)
        points += [(LEFT + WIDE * cycle, level), (LEFT + WIDE * (cycle + 1), level)]
    d.line(*points, style="signal")


def _octet(d, x, y, value):
    d.tile(x + 1, y + 2, WIDE - 2, ROW - 4)
    d.text(x + WIDE / 2, y + SMALL + 4, f"{value:02x}", "small middle")
