"""The registers, events and counters of the RTL, compared with the register map and with the software."""

import functools
import random

import pytest

from open_rnic.cocotb_tests.harness import bench, ice40, never, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import COUNTERS, SideBySide, word_of
from open_rnic.host_driver.mpa.datapath import MpaDatapath as Software
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, MAP, Access, Cause, EventKind

TERMINATE = bytes.fromhex("4147 00000000 00000002 00000001 00000000 20020000")
LIVE = ("CYCLES_LO", "CYCLES_HI", "RX_STALLS", "TX_STALLS")
DEPTH = 16


def both(dut, chance=0.2):
    return SideBySide(dut, parameter("lanes"), pauses(chance), stalls(chance))


def writable(register):
    return sum(each.mask for each in register.fields if each.access is Access.RW)


@bench()
async def registers_have_their_reset_values(dut):
    pair = both(dut)
    for register in MAP:
        value = await pair.rtl.get(register.name)
        if register.name == "CAPABILITIES":
            assert value == word_of("CAPABILITIES", lanes=parameter("lanes"), event_depth=DEPTH)
        elif register.name not in LIVE:
            state = {"tx": 1, "rx": 1} if register.name == "STATE" else {}  # stream mode of no octets
            assert value == (word_of("STATE", **state) if state else register.reset), register.name


@bench()
async def a_write_changes_only_writable_fields(dut):
    pair = both(dut)
    before = {each.name: await pair.rtl.get(each.name) for each in MAP}
    for pattern in (0xFFFF_FFFF, random.getrandbits(32), 0):
        for register in MAP:
            word = pattern & ~BY_NAME["CONTROL"]["reset"].mask if register.name == "CONTROL" else pattern
            if register.name == "CONTROL":
                word = 0  # MPA mode would change other registers
            await pair.rtl.set(register.name, word)
        for register in MAP:
            mask = writable(register) if register.name != "CONTROL" else 0
            if register.name not in (*LIVE, "STATE"):
                expected = before[register.name] & ~mask | pattern & mask
                assert await pair.rtl.get(register.name) == expected, (register.name, hex(pattern))


@bench()
async def a_write_to_event_does_not_pop(dut):
    pair = both(dut)
    await pair.connect()
    for value in (0, 0xFFFF_FFFF):
        await pair.set("EVENT", value)
    assert await pair.rtl.get("EVENT_STATUS") == BY_NAME["EVENT_STATUS"]["level"].put(3)
    kinds = [each.kind for each in await pair.rtl.events()]
    assert sorted(kinds) == [EventKind.TX_MPA, EventKind.RX_MPA, EventKind.FENCE_OPEN]


@bench()
async def addresses_without_a_register_read_zero(dut):
    pair = both(dut)
    used = {each.address >> 2 for each in MAP}
    for address in set(range(256)) - used:
        for write in (1, 0):
            dut.bus__address.value, dut.bus__write.value, dut.bus__write_data.value = address, write, 0xFFFF_FFFF
            dut.bus__request.value = 1
            while True:
                await pair.rtl.cycles(1)
                if dut.bus__ack.value:
                    break
            dut.bus__request.value = 0
            await pair.rtl.cycles(1)
        assert dut.bus__read_data.value == 0
    for name in ("CONTROL", "CONFIG", "TX_STREAM_OCTETS"):
        assert await pair.rtl.get(name) == BY_NAME[name].reset


@bench(cycles=300_000)
async def counters_count_fpdus_octets_and_markers(dut):
    pair = both(dut)
    for markers in (0, 1):
        for crc in (0, 1):
            offset = 4 * random.randrange(128)
            await pair.renew(markers_tx=markers, markers_rx=markers, crc_tx=crc, crc_rx=crc, rdmap=0)
            await pair.set("TX_MPA_OFFSET", offset)
            await pair.set("RX_MPA_OFFSET", offset)
            await pair.set("CONTROL", tx_enable=1, rx_enable=1)
            ulpdus = [random.randbytes(random.choice([0, 5, 500, 508, 1400])) for _ in range(8)]
            await pair.transmit(*ulpdus)
            found = await pair.agree()
            stream = b"".join(found.sent)
            await pair.receive(stream, 700)
            found = await pair.agree()
            assert found.delivered == ulpdus
            numbers = {name: await pair.rtl.get(name) for name in COUNTERS}
            assert numbers["TX_FPDUS"] == numbers["RX_FPDUS"] == len(ulpdus)
            assert numbers["TX_OCTETS_LO"] == numbers["RX_OCTETS_LO"] == len(stream)
            assert numbers["TX_MARKERS"] == numbers["RX_MARKERS"]
            assert (numbers["TX_MARKERS"] > 0) == markers
            if crc:  # a bad FPDU and the octets behind it are not counted
                await pair.receive(bytes([0, 1]) + random.randbytes(1100))
                await pair.agree()


@bench()
async def stalls_are_counted(dut):
    held = iter([0, 0, 7, 0, 3] + [0] * 1000)  # the first two are before the first beat
    pair = SideBySide(dut, parameter("lanes"), never(), held)
    await pair.rtl.start()
    stalls = await pair.rtl.get("TX_STALLS")
    pair.rtl.send_ulpdu(bytes(3 * 4 * parameter("lanes")))
    await pair.rtl.tx_mpa.receive()
    assert await pair.rtl.get("TX_STALLS") - stalls in range(8, 11)
    cycles = await pair.rtl.get("CYCLES_LO")
    await pair.rtl.cycles(100)
    assert await pair.rtl.get("CYCLES_LO") - cycles in range(100, 110)
    # Octets behind the end of stream mode are stalled.
    await pair.rtl.renew()
    pair.rtl.rx_mpa.send(bytes(4 * 4 * parameter("lanes")))
    await pair.rtl.cycles(50)
    assert await pair.rtl.get("RX_STALLS") > 30
    await pair.rtl.renew()


@bench()
async def an_overflowing_event_fifo_keeps_the_oldest_events_and_sets_the_flag(dut):
    pair = both(dut)
    await pair.connect()
    await pair.set("TX_MAX_ULPDU", 1)
    for length in range(DEPTH + 10):
        await pair.transmit(TERMINATE + bytes(length))  # each one is an error
    status = BY_NAME["EVENT_STATUS"]
    assert await pair.rtl.get("EVENT_STATUS") == status["level"].put(DEPTH) | status["overflow"].mask
    found = await pair.agree()
    assert len(found.tx_events + found.rx_events) == DEPTH
    assert BY_NAME["ERROR"]["value"].get(await pair.rtl.get("ERROR")) == 22 + DEPTH + 9  # updated without an event, too
    await pair.set("EVENT_STATUS", 0)
    assert await pair.rtl.get("EVENT_STATUS") == status["overflow"].mask
    await pair.set("EVENT_STATUS", status["overflow"].mask)
    assert await pair.rtl.get("EVENT_STATUS") == 0
    await pair.transmit(TERMINATE)
    assert len((await pair.agree()).tx_events) == 1


@bench()
async def event_offset_belongs_to_the_event_read_last(dut):
    pair = both(dut)
    await pair.connect(role=1, model=1, permissive=1, rtr_accept=7)
    await pair.set("RX_MAX_ULPDU", 50)
    framer = FpduFramer(markers=False, crc=True)
    await pair.receive(framer.frame(bytes(20)) + framer.frame(bytes(51)))
    seen = []
    for _ in range(6):
        words = [await pair.rtl.get(name) for name in ("EVENT", "EVENT_OFFSET_LO", "EVENT_OFFSET_HI")]
        seen.append((EventKind(words[0] & 0xFF), words[1] | words[2] << 32))
    kinds = [each for each, _ in seen]
    assert set(kinds[:2]) == {EventKind.TX_MPA, EventKind.RX_MPA}  # in either order
    assert (EventKind.ERROR, 28) in seen
    assert seen[-1] == (EventKind.NONE, seen[kinds.index(EventKind.NONE) - 1][1])
    assert dut.irq.value == 0


@bench(cycles=200_000)
async def a_reset_during_traffic_clears_all_state(dut):
    pair = SideBySide(dut, parameter("lanes"), pauses(0.3), never())
    framer = FpduFramer(markers=True, crc=True)
    for _ in range(12):
        await pair.rtl.set_fields("CONFIG", role=1, markers_tx=1, markers_rx=1, rdmap=0)
        await pair.rtl.set("RX_STREAM_OCTETS", 3)
        await pair.rtl.set_fields("CONTROL", tx_enable=1, rx_enable=1)
        for size in random.choices(range(700), k=6):
            pair.rtl.send_ulpdu(bytes(size))
            pair.rtl.rx_mpa.send(b"abc"[:size] + framer.frame(bytes(size)))
        await pair.rtl.cycles(random.randrange(1, 300))
        await pair.rtl.set("CONTROL", 7)
        for register in MAP:
            mask = writable(register)
            assert await pair.rtl.get(register.name) & mask == register.reset & mask, register.name
        assert await pair.rtl.get("EVENT") == 0
        await pair.connect(role=1, markers_tx=1, markers_rx=1, rdmap=0)
        fresh = FpduFramer(markers=True, crc=True)
        ulpdus = [random.randbytes(each) for each in (30, 600, 0)]
        await pair.receive(b"".join(map(fresh.frame, ulpdus)))
        await pair.transmit(*ulpdus)
        found = await pair.agree()
        assert found.delivered == ulpdus
        assert len(found.sent) == 3


def test_a_reset_of_the_software_restores_all_registers():
    path = Software(lanes=4)
    for register in MAP:
        path.write(register.name, 0xFFFF_FFFB)
    path.write("CONTROL", 7)
    assert [path.read(each.name) & writable(each) for each in MAP] == [each.reset & writable(each) for each in MAP]
    assert path.take_event().cause is Cause.NONE


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_registers(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, parameters={"lanes": lanes})


def test_registers_of_an_ice40():
    simulate(functools.partial(ice40.datapath, 2), __name__, parameters={"lanes": 2})
