"""The fence and RTRs: the RTL and the software side by side."""

import functools
import random

import pytest

from open_rnic.cocotb_tests.harness import bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import SideBySide
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import MAX_ULPDU, Cause, EventKind, Model, Role, Rtr

SEND, WRITE, READ, RESPONSE, TERMINATE = (
    next(each.ulpdu for each in FPDUS if each.source.startswith(start))
    for start in ("zero-length Send", "zero-length RDMA Write", "zero-length RDMA Read Request",
                  "zero-length RDMA Read Resp", "Terminate")
)  # fmt: skip
RTRS = {Rtr.SEND: SEND, Rtr.WRITE: WRITE, Rtr.READ: READ}
ANY = 7  # all kinds of RTR
INITIATOR, RESPONDER = Role
CLIENT_SERVER, PEER_TO_PEER = Model
SINK = bytes.fromhex("12345678 89abcdef01234567")
SUNK_READ = READ[:18] + SINK + READ[30:]


def fpdus(*ulpdus):
    framer = FpduFramer(markers=False, crc=True)
    return b"".join(map(framer.frame, ulpdus))


def spoilt(ulpdu):
    """Return the FPDU of a ULPDU with one bit error in its CRC."""
    fpdu = fpdus(ulpdu)
    return fpdu[:-1] + bytes([fpdu[-1] ^ 1])


def kinds(events):
    return [each.kind for each in events]


def both(dut, chance=0.2):
    return SideBySide(dut, parameter("lanes"), pauses(chance), stalls(chance))


def awaits_rtr(**config):
    return {"role": RESPONDER, "model": PEER_TO_PEER, "rtr_accept": ANY} | config


# --- conditions under which the fence opens


@bench()
async def an_initiators_fence_opens_with_mpa_mode(dut):
    pair = both(dut)
    await pair.renew(role=INITIATOR, model=CLIENT_SERVER)
    await pair.set("TX_STREAM_OCTETS", 5)
    await pair.transmit(b"start", b"one")
    assert (await pair.agree()).sent == [b"start"]
    await pair.set("CONTROL", tx_enable=1)
    found = await pair.agree()
    assert found.sent == [fpdus(b"one")]
    assert kinds(found.tx_events) == [EventKind.TX_MPA, EventKind.FENCE_OPEN]


@bench()
async def a_peer_to_peer_initiators_rtr_leaves_first(dut):
    pair = both(dut)
    for kind, ulpdu in RTRS.items():
        await pair.renew(role=INITIATOR, model=PEER_TO_PEER, rtr_send=kind)
        await pair.transmit(b"one", b"")
        assert not (await pair.agree()).sent
        await pair.set("CONTROL", tx_enable=1)
        found = await pair.agree()
        assert found.sent == [fpdus(ulpdu), fpdus(b"one"), fpdus(b"")], kind
        assert kinds(found.tx_events) == [EventKind.TX_MPA, EventKind.RTR_SENT, EventKind.FENCE_OPEN]
        assert found.tx_events[1].detail == kind


@bench()
async def a_peer_to_peer_initiator_without_an_rtr_sends_nothing(dut):
    pair = both(dut)
    await pair.connect(role=INITIATOR, model=PEER_TO_PEER)
    await pair.transmit(b"one")
    await pair.receive(fpdus(b"in"))
    found = await pair.agree()
    assert (found.sent, found.delivered) == ([], [b"in"])


@bench()
async def a_responders_fence_opens_after_a_good_fpdu(dut):
    pair = both(dut)
    for first in (b"first", b"", TERMINATE, bytes(300)):
        await pair.connect(role=RESPONDER, model=CLIENT_SERVER)
        await pair.transmit(b"one", b"second")
        octets = fpdus(first, b"next")
        await pair.receive(octets[:len(fpdus(first)) - 1])
        assert not (await pair.agree()).sent
        await pair.receive(octets[len(fpdus(first)) - 1:])
        found = await pair.agree()
        assert (found.sent, found.delivered) == ([fpdus(b"one"), fpdus(b"second")], [first, b"next"])
        assert kinds(found.tx_events) == [EventKind.FENCE_OPEN]


@bench()
async def a_peer_to_peer_responders_fence_opens_after_a_negotiated_rtr_which_is_not_delivered(dut):
    pair = both(dut)
    for kind, ulpdu in [*RTRS.items(), (Rtr.SEND, b""), (Rtr.READ, SUNK_READ)]:
        for behind in ([], [b"next", b"", RESPONSE, SEND]):  # in the same chunk
            await pair.connect(**awaits_rtr(rtr_accept=kind.bit))
            await pair.transmit(b"one")
            await pair.receive(fpdus(ulpdu, *behind), longest=random.choice([1, 5, 1000]))
            found = await pair.agree()
            answer = [fpdus(RESPONSE[:2] + ulpdu[18:30])] * (kind is Rtr.READ)
            assert (found.sent, found.delivered) == ([*answer, fpdus(b"one")], behind), kind
            assert (found.rx_events[-1].detail, found.rx_events[-1].value) == (kind, len(ulpdu))


@bench()
async def an_rtr_is_remembered_until_transmit_is_enabled(dut):
    pair = both(dut)
    for ulpdu in (WRITE, SUNK_READ):
        await pair.renew(**awaits_rtr())
        await pair.transmit(b"one")
        await pair.set("CONTROL", rx_enable=1)
        await pair.receive(fpdus(ulpdu, b"next"))
        found = await pair.agree()
        assert (found.sent, found.delivered) == ([], [b"next"])
        await pair.set("CONTROL", rx_enable=1, tx_enable=1)
        found = await pair.agree()
        assert found.sent[-1] == fpdus(b"one")
        assert len(found.sent) == 1 + (ulpdu is SUNK_READ)


# --- recognition of RTRs


@bench()
async def an_rtr_is_recognised_by_its_header_only(dut):
    pair = both(dut, 0)
    lookalikes = [(ulpdu, True) for ulpdu in (SUNK_READ, WRITE[:2] + SINK, SEND[:10] + random.randbytes(8))]
    for kind, ulpdu in RTRS.items():
        lookalikes.append((bytes([ulpdu[0] | 0x3C, ulpdu[1] | 0x30]) + ulpdu[2:], True))  # reserved bits
        places = {0: 0xC3, 1: 0xCF}  # T, L and DV; RV and Opcode
        if kind is not Rtr.WRITE:
            places |= dict.fromkeys(range(6, 10), 0xFF)  # QN
        if kind is Rtr.READ:
            places |= dict.fromkeys([*range(10, 18), *range(30, 34)], 0xFF)  # MSN, MO, RDMARDSZ
        for place, mask in places.items():
            bits = [1 << n for n in range(8) if mask >> n & 1]
            for bit in bits if place < 2 else random.sample(bits, 1):
                lookalikes.append((ulpdu[:place] + bytes([ulpdu[place] ^ bit]) + ulpdu[place + 1:], False))
        lookalikes += [(ulpdu + b"\0", False), (ulpdu[:-1], False)]
    for ulpdu, is_rtr in lookalikes:
        await pair.connect(**awaits_rtr())
        await pair.receive(fpdus(ulpdu))
        found = await pair.agree()
        expected = EventKind.RTR_RECEIVED if is_rtr else EventKind.ERROR
        assert kinds(found.rx_events)[-1] is expected, ulpdu.hex()
        assert not found.delivered


@bench()
async def a_first_fpdu_other_than_a_negotiated_rtr_is_an_error(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    others = [b"hello", bytes(47), bytes(48), bytes(49), bytes(64), bytes(65), bytes(12 * width + 1), bytes(600)]
    refused = [(ulpdu, ANY ^ kind.bit) for kind, ulpdu in RTRS.items()]
    for first, accept in [*refused, (b"", ANY ^ Rtr.SEND.bit), *((other, ANY) for other in others)]:
        await pair.connect(**awaits_rtr(rtr_accept=accept))
        await pair.transmit(b"one")
        await pair.receive(fpdus(first, READ, b"next"))
        found = await pair.agree()
        assert (found.sent, found.delivered) == ([], []), first
        assert (found.rx_events[-1].cause, found.rx_events[-1].value) == (Cause.NOT_RTR, len(first))
        await pair.transmit(TERMINATE, b"late")
        assert (await pair.agree()).sent == [fpdus(TERMINATE)]


@bench()
async def a_terminate_instead_of_an_rtr_is_recognised_by_its_header(dut):
    pair = both(dut, 0)
    lookalikes = [(TERMINATE, True), (bytes([TERMINATE[0] ^ 0x40]) + TERMINATE[1:], True)]  # or its first segment
    for place, mask in {0: 0x83, 1: 0xCF, **dict.fromkeys(range(6, 10), 0xFF)}.items():  # T, DV; RV, Opcode; QN
        for bit in (1 << n for n in range(8) if mask >> n & 1):
            lookalikes.append((TERMINATE[:place] + bytes([TERMINATE[place] ^ bit]) + TERMINATE[place + 1:], False))
    for first, is_terminate in lookalikes:
        await pair.connect(**awaits_rtr())
        await pair.receive(fpdus(first))
        found = await pair.agree()
        assert found.delivered == [first] * is_terminate, first.hex()
        assert (kinds(found.rx_events)[-1] is EventKind.ERROR) != is_terminate, first.hex()


@bench()
async def a_permissive_responder_takes_any_first_fpdu(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    deliverable = [b"hello", bytes(47), bytes(48), bytes(49), bytes(12 * width + 1), random.randbytes(2000), TERMINATE]
    deliverable += [READ[:13] + b"\2" + READ[14:], READ[:17] + b"\4" + READ[18:]]  # MSN 2; MO 4
    for first in [*RTRS.values(), b"", READ[:-13] + b"\1" + READ[-12:], *deliverable]:
        await pair.connect(**awaits_rtr(rtr_accept=0, permissive=1))
        await pair.transmit(b"one")
        await pair.receive(fpdus(first, b"next"))
        found = await pair.agree()
        consumed = first in (b"", *RTRS.values())
        assert found.delivered == [first] * (not consumed) + [b"next"], first
        assert found.sent[-1] == fpdus(b"one")


@bench()
async def a_first_fpdu_with_a_wrong_crc_does_not_open_the_fence(dut):
    pair = both(dut)
    for first in (*RTRS.values(), b"", b"other", bytes(500)):
        for permissive in (0, 1):
            await pair.connect(**awaits_rtr(permissive=permissive))
            await pair.transmit(b"one")
            await pair.receive(spoilt(first) + fpdus(WRITE))
            assert pair.rtl.rx_ulpdu.empty() or (permissive and len(first) == 500)  # too long to be held back
            found = await pair.agree()
            assert (found.sent, found.delivered) == ([], [])
            assert found.rx_events[-1].cause is Cause.CRC
            await pair.transmit(TERMINATE, b"late")
            assert (await pair.agree()).sent == [fpdus(TERMINATE)]


@bench()
async def an_initiator_consumes_one_response_to_its_read_rtr(dut):
    pair = both(dut)
    await pair.connect(role=INITIATOR, model=PEER_TO_PEER, rtr_send=Rtr.READ)
    await pair.receive(fpdus(b"odd", bytes(100), RESPONSE, b"next", RESPONSE))
    found = await pair.agree()
    assert found.delivered == [b"odd", bytes(100), b"next", RESPONSE]
    assert kinds(found.rx_events) == [EventKind.RX_MPA, EventKind.RESPONSE_RECEIVED]
    await pair.connect(role=INITIATOR, model=PEER_TO_PEER, rtr_send=Rtr.READ)
    await pair.receive(fpdus(*[b"odd"] * 9, RESPONSE, RESPONSE))
    assert (await pair.agree()).delivered == [*[b"odd"] * 9, RESPONSE]
    await pair.connect(role=INITIATOR, model=PEER_TO_PEER, rtr_send=Rtr.READ)
    await pair.receive(spoilt(RESPONSE) + fpdus(RESPONSE))
    assert pair.rtl.rx_ulpdu.empty()
    found = await pair.agree()
    assert (found.delivered, found.rx_events[-1].cause) == ([], Cause.CRC)
    for kind in (Rtr.SEND, Rtr.WRITE):
        await pair.connect(role=INITIATOR, model=PEER_TO_PEER, rtr_send=kind)
        await pair.receive(fpdus(RESPONSE))
        assert (await pair.agree()).delivered == [RESPONSE]


# --- Terminates and rejected ULPDUs


@bench()
async def only_one_terminate_leaves_after_an_error(dut):
    pair = both(dut)
    for role in Role:
        for rdmap in (0, 1):
            await pair.connect(role=role, rdmap=rdmap)
            await pair.transmit(b"one")
            await pair.receive(fpdus(b"") * (role is INITIATOR) + spoilt(b"first") + fpdus(b"late"))
            await pair.transmit(b"second", TERMINATE, TERMINATE, b"third")
            found = await pair.agree()
            assert not rdmap or found.sent[-1] == fpdus(TERMINATE)
            assert len(found.sent) == (1 + (role is INITIATOR) if rdmap else 5 * (role is INITIATOR))


@bench()
async def an_error_before_mpa_mode_keeps_the_fence_closed(dut):
    pair = both(dut)
    for config in ({"role": INITIATOR}, {"role": INITIATOR, "model": PEER_TO_PEER, "rtr_send": Rtr.READ}, awaits_rtr(),
                   {"role": RESPONDER}):  # fmt: skip
        await pair.renew(**config)
        await pair.set("TX_STREAM_OCTETS", 5)
        await pair.set("CONTROL", tx_enable=1, rx_enable=1)
        await pair.receive(fpdus(SUNK_READ) + spoilt(b"bad"))
        await pair.transmit(b"start", b"one", TERMINATE, b"late")
        found = await pair.agree()
        assert found.sent == [b"start", fpdus(TERMINATE)]
        assert kinds(found.tx_events) == [EventKind.TX_MPA, EventKind.TERMINATE_SENT]


@bench()
async def nothing_leaves_after_a_terminate_if_rdmap_is_set(dut):
    pair = both(dut)
    for rdmap in (0, 1):
        await pair.connect(rdmap=rdmap)
        await pair.transmit(b"one", TERMINATE, b"second", TERMINATE)
        assert len((await pair.agree()).sent) == (2 if rdmap else 4)


@bench(cycles=500_000)
async def a_ulpdu_over_the_maximum_is_rejected_completely(dut):
    pair = both(dut, 0)
    for maximum, length in [(22, 23), (100, 101), (22, 500), (0, 1)]:
        for rdmap in (0, 1):
            await pair.connect(rdmap=rdmap)
            await pair.set("TX_MAX_ULPDU", maximum)
            await pair.transmit(bytes(maximum), bytes(length), b"", bytes(length), TERMINATE)
            found = await pair.agree()
            assert found.sent[0] == fpdus(bytes(maximum))
            assert (found.tx_events[-1].cause, found.tx_events[-1].value) == (Cause.TX_LENGTH, length) or rdmap
    if parameter("lanes") > 4:
        await pair.connect()
        await pair.set("TX_MAX_ULPDU", 0xFFFF)  # above the limit of RFC 5044 §3
        await pair.transmit(bytes(MAX_ULPDU), bytes(MAX_ULPDU + 1))
        assert [len(each) for each in (await pair.agree()).sent] == [MAX_ULPDU + 8]


@bench()
async def a_ulpdu_that_differs_from_its_announced_length_is_sent_as_a_bad_fpdu(dut):
    pair = both(dut)
    width = 4 * parameter("lanes")
    lengths = [(4, 5), (0, 1), (width, 2 * width), (100, 101), (100, 3)]
    for announced, length in [*lengths, *(each[::-1] for each in lengths)]:
        await pair.connect()
        await pair.transmit(b"one")
        pair.rtl.send_ulpdu(bytes(length), announced)
        for each in (b"second", TERMINATE, b"third"):
            pair.rtl.send_ulpdu(each)
        first, bad, last = [(await pair.rtl.tx_mpa.receive()).octets for _ in range(3)]
        assert (first, last) == (fpdus(b"one"), fpdus(TERMINATE))
        await pair.rtl.cycles(200)
        errors = [each for each in await pair.rtl.events() if each.kind is EventKind.ERROR]
        assert [(each.cause, each.value) for each in errors] == [(Cause.TX_MISMATCH, announced)]
        assert pair.rtl.tx_mpa.empty()
        pair.software.receive(bad + bytes(200))  # as the peer does
        assert not pair.software.ulpdus


@bench()
async def nothing_follows_a_bad_fpdu_without_crc(dut):
    pair = both(dut)
    for announced, length in [(100, 101), (100, 99), (100, 3), (3, 100)]:
        await pair.connect(crc_tx=0)
        pair.rtl.send_ulpdu(bytes(length), announced)
        for each in (b"second", TERMINATE, b"third"):
            pair.rtl.send_ulpdu(each)
        bad = (await pair.rtl.tx_mpa.receive()).octets
        assert len(bad) == -(-(2 + length) // 4) * 4  # without 4 octets of the end
        await pair.rtl.cycles(200)
        errors = [each for each in await pair.rtl.events() if each.kind is EventKind.ERROR]
        assert [(each.cause, each.value) for each in errors] == [(Cause.TX_MISMATCH, announced)]
        assert pair.rtl.tx_mpa.empty()


# --- random sequences


@bench(cycles=1_000_000)
async def rtl_and_software_agree_on_random_sequences(dut):
    pair = both(dut, 0.1)
    known = [*RTRS.values(), SUNK_READ, RESPONSE, TERMINATE, b"", b"one", bytes(47), random.randbytes(200)]
    for _ in range(40):
        await pair.renew(
            role=random.randrange(2), model=random.randrange(2), rtr_send=random.randrange(4),
            rtr_accept=random.randrange(8), permissive=random.random() < 0.3, rdmap=random.random() < 0.7,
            markers_tx=random.randrange(2), markers_rx=(markers := random.randrange(2)),
        )  # fmt: skip
        await pair.set("TX_MAX_ULPDU", random.choice([MAX_ULPDU, 100]))
        await pair.set("RX_MAX_ULPDU", random.choice([MAX_ULPDU, 100]))
        await pair.set("TX_STREAM_OCTETS", random.choice([0, 3, 10]))
        framer, enabled = FpduFramer(markers=bool(markers), crc=True), 0
        for _ in range(random.randrange(3, 9)):
            match random.randrange(5):
                case 0:
                    enabled |= random.randrange(1, 4)
                    await pair.set("CONTROL", enabled)
                case 1 | 2:
                    await pair.transmit(*random.choices(known, k=random.randrange(4)))
                case _ if enabled & 2:  # one by one: the time between a good and a bad FPDU matters
                    octets = framer.frame(random.choice(known))
                    if random.random() < 0.1:
                        at = random.randrange(len(octets))
                        octets = octets[:at] + bytes([octets[at] ^ 1 << random.randrange(8)]) + octets[at + 1:]
                    await pair.receive(octets, random.choice([5, 50, 1000]))
            await pair.agree()


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_fence(lanes):
    simulate(functools.partial(MpaDatapath, lanes), __name__, parameters={"lanes": lanes})
