"""Errors in FPDUs are reported with their stream offset and value: the RTL and the software side by side."""

import functools
import random

import pytest
from crc32c import crc32c

from open_rnic.cocotb_tests.harness import bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import SideBySide
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import Cause, EventKind, Role

LONGEST = 2047
TERMINATE = bytes.fromhex("4147 00000000 00000002 00000001 00000000 20020000")


def both(dut, chance=0.1):
    return SideBySide(dut, parameter("lanes"), pauses(chance), stalls(chance))


def flip(octets, bit):
    """Return ``octets`` with one bit inverted; bit 0 is the most significant bit of the first octet."""
    at, mask = bit // 8, 0x80 >> bit % 8
    return octets[:at] + bytes([octets[at] ^ mask]) + octets[at + 1:]


def remade(fpdu, at, octets):
    """Return ``fpdu`` with ``octets`` written over those at ``at``, and a correct CRC."""
    covered = fpdu[:at] + octets + fpdu[at + len(octets):-4]
    return covered + crc32c(covered).to_bytes(4, "little")


def errors(events):
    return [(each.cause, each.value, each.offset) for each in events if each.kind is EventKind.ERROR]


class Stream:
    """FPDUs that begin at a random offset of the marked stream."""

    def __init__(self, markers, *lengths):
        self.start = 4 * random.randrange(128)
        self.markers = markers
        framer = FpduFramer(markers=markers, crc=True, offset=self.start)
        self.ulpdus = [random.randbytes(length) for length in lengths]
        self.offsets, self.fpdus = [], []
        for ulpdu in self.ulpdus:
            self.offsets.append(framer.offset)
            self.fpdus.append(framer.frame(ulpdu))

    def lead(self, nth):
        """Return the octets before ULPDU_Length in the ``nth`` FPDU: 4 if it has a leading marker."""
        return 4 if self.markers and self.offsets[nth] % 512 == 0 else 0

    async def connect(self, pair, **config):
        await pair.renew(markers_rx=self.markers, **config)
        await pair.set("RX_MPA_OFFSET", self.start % 512)
        await pair.set("RX_MAX_ULPDU", LONGEST)
        await pair.set("CONTROL", tx_enable=1, rx_enable=1)


@bench(cycles=1_000_000)
async def a_single_bit_error_anywhere_is_a_crc_error(dut):
    pair = both(dut, 0)
    width = 4 * parameter("lanes")
    for turn in range(40):
        bad = random.choice([0, 1, 3])
        sizes = [0, 1, 2, 3, 4, 5, width - 2, width, 60, 128, random.randrange(1, 1500)]
        stream = Stream(turn % 2, *random.choices(sizes, k=4), LONGEST, LONGEST)
        fpdu = stream.fpdus[bad]
        length_at = 8 * stream.lead(bad)
        bit = random.randrange(8 * len(fpdu)) if turn > 10 else length_at + turn + 5  # the low bits of ULPDU_Length
        stream.fpdus[bad] = flip(fpdu, bit)
        await stream.connect(pair, role=random.choice(list(Role)))
        await pair.receive(b"".join(stream.fpdus), random.choice([30, 100, 10_000]))
        found = await pair.agree()
        assert found.delivered == stream.ulpdus[:bad]
        [(cause, _, offset)] = errors(found.rx_events)
        assert offset == stream.offsets[bad]
        over = length_at <= bit < length_at + 5  # ULPDU_Length then exceeds LONGEST
        assert cause is (Cause.RX_LENGTH if over else Cause.CRC), bit - length_at
        assert await pair.rtl.get("RX_CRC_ERRORS") == (not over)


@bench(cycles=300_000)
async def a_wrong_fpduptr_with_a_good_crc_is_error_3(dut):
    pair = both(dut)
    for turn in range(24):
        stream = Stream(1, 700, 900, random.randrange(510, 1500), 5)
        where = [at for at in range(len(stream.fpdus[2])) if (stream.offsets[2] + at) % 512 == 0]
        at = random.choice(where)
        right = int.from_bytes(stream.fpdus[2][at + 2:at + 4], "big")
        ignored = turn % 4 == 3  # change only RESERVED16 and the two low bits of FPDUPTR
        wrong = right ^ (random.randrange(1, 4) if ignored else 4 << random.randrange(14))
        marker = bytes(random.randrange(256) * ignored for _ in "ab") + wrong.to_bytes(2, "big")
        stream.fpdus[2] = remade(stream.fpdus[2], at, marker)
        if turn % 2 == 0 and at != where[-1]:  # a second error in this FPDU is not reported
            stream.fpdus[2] = remade(stream.fpdus[2], where[-1], b"\0\0\xff\xfc")
        await stream.connect(pair)
        await pair.receive(b"".join(stream.fpdus), 1000)
        found = await pair.agree()
        if ignored:
            assert found.delivered == stream.ulpdus
        else:
            assert found.delivered == stream.ulpdus[:2]
            assert errors(found.rx_events) == [(Cause.FPDUPTR, wrong, stream.offsets[2])]


@bench(cycles=300_000)
async def a_ulpdu_length_over_the_maximum_is_error_3(dut):
    pair = both(dut)
    for turn in range(16):
        over = LONGEST + 1 if turn < 8 else random.randrange(LONGEST + 1, 0x10000)
        stream = Stream(turn % 2, 0, LONGEST, 300, 20)
        at = stream.lead(2)
        stream.fpdus[2] = remade(stream.fpdus[2], at, over.to_bytes(2, "big"))
        role = Role(turn // 2 % 2)
        await stream.connect(pair, role=role)
        await pair.receive(b"".join(stream.fpdus), random.choice([9, 30, 10_000]))
        found = await pair.agree()
        assert found.delivered == stream.ulpdus[:2]
        assert errors(found.rx_events) == [(Cause.RX_LENGTH, over, stream.offsets[2])]
        # The error is found with ULPDU_Length, before the rest of the FPDU arrives.
        await stream.connect(pair, role=role)
        await pair.receive(b"".join(stream.fpdus[:2]) + stream.fpdus[2][:at + 4])
        assert errors((await pair.agree()).rx_events) == [(Cause.RX_LENGTH, over, stream.offsets[2])]


@bench(cycles=300_000)
async def the_first_ulpdu_length_can_be_over_the_maximum(dut):
    pair = both(dut)
    for config in ({"role": 1}, {"role": 1, "model": 1, "rtr_accept": 7}, {"model": 1, "rtr_send": 3},
                   {"role": 1, "model": 1, "permissive": 1}):  # fmt: skip
        for markers in (0, 1):
            stream = Stream(markers, 40, 40)
            stream.fpdus[0] = remade(stream.fpdus[0], stream.lead(0), b"\x08\0")
            await stream.connect(pair, **config)
            await pair.receive(b"".join(stream.fpdus))
            found = await pair.agree()
            assert (found.delivered, errors(found.rx_events)) == ([], [(Cause.RX_LENGTH, 2048, stream.start)])


@bench(cycles=200_000)
async def only_the_first_of_several_errors_is_reported(dut):
    pair = both(dut, 0)
    for order in ([0, 1], [1, 0], [2, 0], [0, 2], [1, 2], [2, 1]):
        stream = Stream(1, 600, 3, 600, 600, 600, 2)
        for nth, what in enumerate(order, 2):
            fpdu = stream.fpdus[nth]
            at = -stream.offsets[nth] % 512
            stream.fpdus[nth] = [
                flip(fpdu, 50),
                remade(fpdu, at, b"\0\0\x7f\0"),
                remade(fpdu, stream.lead(nth), b"\x08\0"),
            ][what]
        await stream.connect(pair)
        await pair.receive(b"".join(stream.fpdus), 10_000)
        found = await pair.agree()
        causes = [Cause.CRC, Cause.FPDUPTR, Cause.RX_LENGTH]
        assert [each[::2] for each in errors(found.rx_events)] == [(causes[order[0]], stream.offsets[2])]
        assert found.delivered == stream.ulpdus[:2]


@bench(cycles=200_000)
async def without_crc_only_the_other_errors_are_found(dut):
    pair = both(dut)
    stream = Stream(1, 100, 600, 20)
    stream.fpdus[0] = stream.fpdus[0][:-1] + b"?"
    stream.fpdus[1] = flip(stream.fpdus[1], 8 * (-stream.offsets[1] % 512) + 20)
    await stream.connect(pair, crc_rx=0)
    await pair.receive(b"".join(stream.fpdus))
    found = await pair.agree()
    assert found.delivered == stream.ulpdus[:1]
    assert [each.cause for each in found.rx_events] == [Cause.NONE, Cause.FPDUPTR]


@bench(cycles=200_000)
async def both_directions_can_fail(dut):
    pair = both(dut)
    stream = Stream(0, 40, 40)
    await stream.connect(pair)
    await pair.set("TX_MAX_ULPDU", 30)
    await pair.transmit(bytes(31), b"dropped")
    await pair.receive(stream.fpdus[0] + flip(stream.fpdus[1], 99))
    await pair.transmit(b"dropped", TERMINATE, TERMINATE)
    found = await pair.agree()
    assert len(found.sent) == 1
    assert errors(found.tx_events + found.rx_events) == [
        (Cause.TX_LENGTH, 31, 0), (Cause.CRC, 40, stream.offsets[1])
    ]  # fmt: skip


def test_errors_with_store_and_forward():
    simulate(functools.partial(MpaDatapath, 4, store_and_forward=2048), __name__, parameters={"lanes": 4})


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_errors(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, parameters={"lanes": lanes})
