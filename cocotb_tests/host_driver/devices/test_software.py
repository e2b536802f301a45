"""The data path in software: stream mode, the fence, RTRs, errors, events, registers, queues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from open_rnic.cocotb_tests.harness.devices import drains_when_all_ulpdus_and_events_are_read
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.host_driver.device import DeviceError, Event, Ulpdu
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.datapath import MpaDatapath
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_kind, rtr_ulpdu
from open_rnic.rtl.registers import BY_NAME, IDENTITY, MAP, Cause, DirectionState, EventKind, Model, Role, Rtr, Verdict

TERMINATE = next(each.ulpdu for each in FPDUS if each.source.startswith("Terminate"))
SEND = bytes.fromhex("414300000000 00000000 00000001 00000000")
WRITE = bytes.fromhex("c140 00000001 0000000000000000")
READ = bytes.fromhex("414100000000 00000001 00000001 00000000" + 16 * "00" + "00000001 0000000000000000")
RESPONSE = bytes.fromhex("c142 00000000 0000000000000000")
RTRS = [(Rtr.SEND, SEND), (Rtr.WRITE, WRITE), (Rtr.READ, READ)]


def fields(register: str, **values: int) -> int:
    """Return a register's word with these fields; all others have their reset values."""
    word = BY_NAME[register].reset
    for name, value in values.items():
        one = BY_NAME[register][name]
        word = word & ~one.mask | one.put(value)
    return word


def connected(role: Role = Role.INITIATOR, model: Model = Model.CLIENT_SERVER, **config: int) -> MpaDatapath:
    """Return a data path in MPA mode in both directions."""
    path = MpaDatapath(lanes=4)
    path.write("CONFIG", fields("CONFIG", role=role, model=model, **config))
    path.write("CONTROL", fields("CONTROL", tx_enable=1, rx_enable=1))
    return path


def fpdus(*ulpdus: bytes) -> bytes:
    framer = FpduFramer(markers=False, crc=True)
    return b"".join(framer.frame(each) for each in ulpdus)


def sent(path: MpaDatapath) -> list[bytes]:
    return [path.mpa.pop() for _ in range(len(path.mpa))]


def delivered(path: MpaDatapath) -> list[bytes]:
    return [path.ulpdus.pop().octets for _ in range(len(path.ulpdus))]


def kinds(path: MpaDatapath) -> list[EventKind]:
    found = []
    while (event := path.take_event()).kind is not EventKind.NONE:
        found.append(event.kind)
    return found


def error(path: MpaDatapath) -> Event:
    while (event := path.take_event()).kind is not EventKind.ERROR:
        assert event.kind is not EventKind.NONE, "there was no error"
    return event


def states(path: MpaDatapath) -> tuple[int, int, int]:
    word = path.read("STATE")
    return tuple(BY_NAME["STATE"][name].get(word) for name in ("tx", "rx", "fence_open"))


STREAM, WAITING, MPA, STOPPED = DirectionState


# The fence.


def test_an_initiators_fence_opens_when_mpa_is_enabled():
    path = MpaDatapath(lanes=4)
    path.transmit(b"one")
    assert (sent(path), states(path)) == ([], (WAITING, WAITING, 0))
    path.write("CONTROL", fields("CONTROL", tx_enable=1))
    assert sent(path) == [fpdus(b"one")]
    assert (kinds(path), states(path)) == ([EventKind.TX_MPA, EventKind.FENCE_OPEN], (MPA, WAITING, 1))


@pytest.mark.parametrize(("kind", "ulpdu"), RTRS)
def test_a_peer_to_peer_initiators_rtr_leaves_first(kind, ulpdu):
    path = MpaDatapath(lanes=4)
    path.transmit(b"one")
    path.write("CONFIG", fields("CONFIG", model=Model.PEER_TO_PEER, rtr_send=kind))
    path.write("CONTROL", fields("CONTROL", tx_enable=1))
    assert b"".join(sent(path)) == fpdus(ulpdu, b"one")
    assert kinds(path) == [EventKind.TX_MPA, EventKind.RTR_SENT, EventKind.FENCE_OPEN]


def test_a_responders_fence_opens_with_the_first_valid_fpdu():
    path = connected(Role.RESPONDER)
    path.transmit(b"one")
    first = fpdus(b"first")
    path.receive(first[:-1])
    assert sent(path) == []
    path.receive(first[-1:])
    assert (sent(path), delivered(path)) == ([fpdus(b"one")], [b"first"])


@pytest.mark.parametrize(("kind", "ulpdu"), [*RTRS, (Rtr.SEND, b"")])
def test_a_peer_to_peer_responders_fence_opens_with_a_negotiated_rtr_which_is_not_delivered(kind, ulpdu):
    path = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=kind.bit)
    path.transmit(b"one")
    assert (sent(path), states(path)[2]) == ([], 0)
    path.receive(fpdus(ulpdu, b"next"))
    assert delivered(path) == [b"next"]
    assert b"".join(sent(path)) == fpdus(*[RESPONSE] * (kind is Rtr.READ), b"one")
    events = [path.take_event() for _ in range(3)]
    assert events[2] == Event(EventKind.RTR_RECEIVED, kind, len(ulpdu), 0)
    assert kinds(path) == [EventKind.RESPONSE_SENT] * (kind is Rtr.READ) + [EventKind.FENCE_OPEN]


def test_a_read_rtr_is_answered_to_its_sink_and_the_initiator_takes_the_answer():
    initiator = connected(model=Model.PEER_TO_PEER, rtr_send=Rtr.READ)
    responder = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=Rtr.READ.bit)
    responder.transmit(b"one")
    request = READ[:18] + bytes.fromhex("1234567889abcdef01234567") + READ[30:]
    responder.receive(fpdus(request))
    answer = sent(responder)
    assert answer[0] == fpdus(bytes.fromhex("c1421234567889abcdef01234567"))
    initiator.receive(b"".join(answer) + fpdus(RESPONSE))
    assert delivered(initiator) == [b"one", RESPONSE]  # only the first response is the device's
    assert EventKind.RESPONSE_RECEIVED in kinds(initiator)


def test_read_responses_are_delivered_to_an_initiator_that_sent_no_read_rtr():
    path = connected(model=Model.PEER_TO_PEER, rtr_send=Rtr.WRITE)
    path.receive(fpdus(RESPONSE))
    assert delivered(path) == [RESPONSE]


def test_a_read_rtr_that_comes_before_transmit_is_enabled_is_answered_then():
    path = MpaDatapath(lanes=4)
    path.write("CONFIG", fields("CONFIG", role=Role.RESPONDER, model=Model.PEER_TO_PEER, rtr_accept=4))
    path.write("CONTROL", fields("CONTROL", rx_enable=1))
    path.transmit(b"one")
    path.receive(fpdus(READ))
    assert sent(path) == []
    path.write("CONTROL", fields("CONTROL", rx_enable=1, tx_enable=1))
    assert b"".join(sent(path)) == fpdus(RESPONSE, b"one")


@pytest.mark.parametrize(("kind", "ulpdu"), RTRS)
def test_an_rtr_is_known_by_its_header_alone(kind, ulpdu):
    assert rtr_ulpdu(kind) == ulpdu
    reserved = bytes([ulpdu[0] | 0x3C, ulpdu[1] | 0x30])
    stag_and_to = bytes.fromhex("ffffffff 0123456789abcdef")
    assert rtr_kind(reserved + ulpdu[2:]) is kind
    if kind is Rtr.WRITE:
        assert rtr_kind(ulpdu[:2] + stag_and_to) is kind
    if kind is Rtr.READ:
        assert rtr_kind(ulpdu[:18] + stag_and_to + bytes(4) + stag_and_to) is kind
    for bit in (0x80, 0x40, 0x02, 0x01):  # T, L, DV
        assert rtr_kind(bytes([ulpdu[0] ^ bit]) + ulpdu[1:]) is Rtr.NONE
    for bit in (0x80, 0x40, 0x08, 0x04, 0x02, 0x01):  # RV, Opcode
        assert rtr_kind(ulpdu[:1] + bytes([ulpdu[1] ^ bit]) + ulpdu[2:]) is Rtr.NONE
    assert rtr_kind(ulpdu + b"\0") is Rtr.NONE
    if kind is not Rtr.WRITE:
        assert rtr_kind(ulpdu[:9] + b"\7" + ulpdu[10:]) is Rtr.NONE  # QN
    if kind is Rtr.READ:
        assert rtr_kind(ulpdu[:33] + b"\1" + ulpdu[34:]) is Rtr.NONE  # RDMARDSZ


@pytest.mark.parametrize("bit", range(64))
def test_msn_and_mo_of_an_rtr_are_checked_where_it_carries_octets(bit):
    """RFC 5041 §7.1: they are checked in a Read Request, which has 28 octets, and not in a Send of no octets."""
    flip = (1 << bit).to_bytes(8, "big")
    read, send = (
        ulpdu[:10] + bytes(a ^ b for a, b in zip(ulpdu[10:18], flip, strict=True)) + ulpdu[18:]
        for ulpdu in (READ, SEND)
    )
    assert rtr_kind(read) is Rtr.NONE
    assert rtr_kind(send) is Rtr.SEND


@pytest.mark.parametrize("first", [b"hello", WRITE, b""])
def test_a_first_fpdu_that_is_no_negotiated_rtr_is_an_error(first):
    path = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=Rtr.READ.bit)
    path.transmit(b"one")
    path.receive(fpdus(first, READ))
    assert error(path) == Event(EventKind.ERROR, Cause.NOT_RTR, len(first), 0)
    assert (sent(path), delivered(path), states(path)) == ([], [], (MPA, STOPPED, 0))


@pytest.mark.parametrize(("first", "given"), [(b"hello", [b"hello"]), (WRITE, []), (READ, [])])
def test_a_permissive_responder_takes_any_first_fpdu(first, given):
    path = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=Rtr.SEND.bit, permissive=1)
    path.transmit(b"one")
    path.receive(fpdus(first))
    assert delivered(path) == given
    assert b"".join(sent(path)) == fpdus(*[RESPONSE] * (first == READ), b"one")


@pytest.mark.parametrize("permissive", [0, 1])
@pytest.mark.parametrize("first", [TERMINATE, b"\x7d\x77" + TERMINATE[2:], b"\x01" + TERMINATE[1:10]])
def test_a_terminate_instead_of_the_rtr_is_delivered_and_leaves_the_fence_shut(first, permissive):
    path = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=Rtr.SEND.bit, permissive=permissive)
    path.transmit(b"one")
    path.receive(fpdus(first, first))
    assert (delivered(path), sent(path), states(path)) == ([first, first], [], (MPA, MPA, 0))
    assert kinds(path) == [EventKind.TX_MPA, EventKind.RX_MPA]
    path.receive(fpdus(first, first, SEND, b"next")[len(fpdus(first, first)) :])  # must be treated like a first FPDU
    assert (delivered(path), sent(path), path.read("RX_FPDUS")) == ([b"next"], [fpdus(b"one")], 4)
    assert kinds(path) == [EventKind.RTR_RECEIVED, EventKind.FENCE_OPEN]


@pytest.mark.parametrize("at", [0, 1, 9])
def test_a_malformed_terminate_is_not_an_rtr(at):
    for bit in {0: (0x80, 0x02, 0x01), 1: (0x80, 0x40, 0x08, 0x04, 0x02, 0x01), 9: (1,)}[at]:  # T DV, RV Opcode, QN
        first = TERMINATE[:at] + bytes([TERMINATE[at] ^ bit]) + TERMINATE[at + 1 :]
        path = connected(Role.RESPONDER, Model.PEER_TO_PEER, rtr_accept=Rtr.SEND.bit)
        path.receive(fpdus(first))
        assert (error(path).cause, delivered(path)) == (Cause.NOT_RTR, [])


def test_a_client_server_responder_takes_a_terminate_as_any_first_fpdu():
    path = connected(Role.RESPONDER)
    path.receive(fpdus(TERMINATE))
    assert (delivered(path), states(path)) == ([TERMINATE], (MPA, MPA, 1))


# Stream mode.


def test_stream_octets_pass_and_mpa_starts_at_the_exact_octet():
    path = MpaDatapath(lanes=4)
    path.write("TX_STREAM_OCTETS", 5)
    path.write("RX_STREAM_OCTETS", 3)
    path.write("CONTROL", fields("CONTROL", tx_enable=1, rx_enable=1))
    assert states(path)[:2] == (STREAM, STREAM)
    path.receive(b"ab")
    path.receive(b"c" + fpdus(b"first"))
    for packet in (b"st", b"", b"art", b"one"):
        path.transmit(packet)
    assert sent(path) == [b"st", b"art", fpdus(b"one")]
    found = [path.ulpdus.pop() for _ in range(3)]
    assert found == [Ulpdu(b"ab", Verdict.STREAM), Ulpdu(b"c", Verdict.STREAM), Ulpdu(b"first")]


def test_octets_past_the_stream_count_are_held_until_it_is_raised_or_mpa_is_enabled():
    path = MpaDatapath(lanes=4)
    path.write("RX_STREAM_OCTETS", 4)
    path.receive(b"headbody" + fpdus(b"first"))
    assert delivered(path) == [b"head"]
    path.write("RX_STREAM_OCTETS", 8)
    assert (delivered(path), states(path)[1]) == ([b"body"], WAITING)
    path.write("CONTROL", fields("CONTROL", rx_enable=1))
    assert delivered(path) == [b"first"]


def test_a_stream_packet_that_runs_into_mpa_is_refused():
    path = MpaDatapath(lanes=4)
    path.write("TX_STREAM_OCTETS", 4)
    path.transmit(b"start1")
    assert error(path) == Event(EventKind.ERROR, Cause.TX_STREAM, 2, 0)
    path.transmit(b"more")
    assert (sent(path), states(path)[0]) == ([], STOPPED)


# Errors and Terminates.


def broken(*before: bytes) -> bytes:
    octets = bytearray(fpdus(*before, b"broken"))
    octets[-5] ^= 1
    return bytes(octets)


def test_after_a_receive_error_nothing_is_delivered_and_one_terminate_leaves():
    path = connected(Role.RESPONDER)
    path.transmit(b"one")  # the fence is shut, and stays so
    path.receive(broken())
    path.receive(fpdus(b"late"))
    for ulpdu in (b"second", TERMINATE, TERMINATE, b"third"):
        path.transmit(ulpdu)
    assert (sent(path), delivered(path), states(path)) == ([fpdus(TERMINATE)], [], (STOPPED, STOPPED, 0))
    assert kinds(path)[-2:] == [EventKind.ERROR, EventKind.TERMINATE_SENT]


def test_a_terminate_that_waited_behind_the_fence_leaves_after_an_error():
    path = connected(Role.RESPONDER)
    path.transmit(TERMINATE)
    assert sent(path) == []
    path.receive(broken())
    assert sent(path) == [fpdus(TERMINATE)]


def test_an_initiator_that_fails_before_mpa_sends_its_terminate_and_no_rtr():
    path = MpaDatapath(lanes=4)
    path.write("TX_STREAM_OCTETS", 5)
    path.write("CONFIG", fields("CONFIG", model=Model.PEER_TO_PEER, rtr_send=Rtr.READ))
    path.write("CONTROL", fields("CONTROL", tx_enable=1, rx_enable=1))
    path.receive(broken())
    for packet in (b"start", b"one", TERMINATE):
        path.transmit(packet)
    assert sent(path) == [b"start", fpdus(TERMINATE)]


def test_nothing_leaves_after_a_terminate():
    path = connected()
    for ulpdu in (b"one", TERMINATE, b"second"):
        path.transmit(ulpdu)
    assert b"".join(sent(path)) == fpdus(b"one", TERMINATE)
    assert states(path) == (STOPPED, MPA, 1)


def test_without_rdmap_a_receive_error_leaves_transmit_alone_and_terminates_are_nothing_special():
    path = connected(rdmap=0)
    path.receive(broken(b"good"))
    for ulpdu in (b"one", TERMINATE, b"second"):
        path.transmit(ulpdu)
    assert b"".join(sent(path)) == fpdus(b"one", TERMINATE, b"second")
    assert (delivered(path), states(path)) == ([b"good"], (MPA, STOPPED, 1))


@pytest.mark.parametrize(("rdmap", "after"), [(0, []), (1, [TERMINATE])])
def test_a_ulpdu_over_the_maximum_is_refused_whole(rdmap, after):
    path = connected(rdmap=rdmap)
    path.write("TX_MAX_ULPDU", 22)
    for ulpdu in (b"one", bytes(23), b"second", TERMINATE):
        path.transmit(ulpdu)
    assert b"".join(sent(path)) == fpdus(b"one", *after)
    assert error(path) == Event(EventKind.ERROR, Cause.TX_LENGTH, 23)
    assert states(path)[0] == STOPPED  # once nothing more may leave


def test_the_error_registers_keep_the_error():
    path = connected()
    path.write("RX_MAX_ULPDU", 9)
    path.receive(fpdus(b"good", bytes(10)))
    assert kinds(path)[-1] is EventKind.ERROR
    assert path.read("ERROR") == 3 | Cause.RX_LENGTH << 8 | 10 << 16
    assert (path.read("ERROR_OFFSET_LO"), path.read("ERROR_OFFSET_HI")) == (12, 0)


ONE_BY_ONE = [b"one", bytes(30), b"", TERMINATE, b"second"]


@pytest.mark.parametrize("max_ulpdu", [29, 30])
@pytest.mark.parametrize("rdmap", [0, 1])
@pytest.mark.parametrize("role", Role)
def test_packets_handed_over_together_are_treated_like_single_ones(role, rdmap, max_ulpdu):
    results = []
    for at_once in (True, False):
        path = connected(role, rdmap=rdmap)
        path.write("TX_MAX_ULPDU", max_ulpdu)
        path.transmit_all(ONE_BY_ONE[:1])
        if role is Role.RESPONDER:
            assert sent(path) == []
            path.receive(fpdus(b"first"))
        if at_once:
            path.transmit_all(ONE_BY_ONE[1:])
        else:
            for each in ONE_BY_ONE[1:]:
                path.transmit(each)
        results.append((path.tx_octets, sent(path), kinds(path), states(path), path.read("TX_FPDUS")))
    assert results[0] == results[1]
    assert results[0][1]


def test_a_message_handed_over_at_once_is_framed_and_counted():
    path = connected()
    path.transmit_all([b"one", b"second"])
    assert path.tx_octets >= len(fpdus(b"one", b"second"))
    assert b"".join(sent(path)) == fpdus(b"one", b"second")
    assert path.tx_octets == 0


# Registers and events.


def test_registers_have_their_reset_values_and_hold_what_may_be_written():
    path = MpaDatapath(lanes=8)
    for register in MAP:
        if register.name not in ("CAPABILITIES", "STATE"):
            assert path.read(register.name) == register.reset, register.name
    assert path.read("IDENTITY") == IDENTITY
    assert BY_NAME["CAPABILITIES"]["lanes"].get(path.read("CAPABILITIES")) == 8
    for register in MAP:
        path.write(register.name, 0xFFFF_FFFF - (4 if register.name == "CONTROL" else 0))  # no reset
    assert path.read("IDENTITY") == IDENTITY
    assert path.read("TX_MPA_OFFSET") == 511
    assert path.read("CONTROL") == 3


@pytest.mark.parametrize("name", ["CONFIG", "NOTHING"])
def test_bad_register_accesses_are_refused_by_name(name):
    with pytest.raises(ValueError, match=name):
        MpaDatapath(lanes=4).write(name, 1 << 32)


def test_reading_event_pops_it_and_gives_its_offset():
    path = MpaDatapath(lanes=4)
    path.write("RX_MPA_OFFSET", 20)
    path.write("CONTROL", fields("CONTROL", rx_enable=1))
    path.receive(broken(b"good"))
    assert path.read("EVENT_STATUS") == 2
    assert (path.read("EVENT"), path.read("EVENT_OFFSET_LO")) == (EventKind.RX_MPA, 0)
    assert path.read("EVENT") == EventKind.ERROR | Cause.CRC << 8 | len(b"broken") << 16
    assert path.read("EVENT_OFFSET_LO") == 20 + len(fpdus(b"good"))
    assert path.read("EVENT") == 0


def test_an_event_fifo_that_overflows_keeps_the_oldest_and_reports_it():
    path = MpaDatapath(lanes=4, event_depth=1)
    path.write("CONTROL", fields("CONTROL", tx_enable=1))
    assert path.read("EVENT_STATUS") == 1 | 1 << 8
    assert kinds(path) == [EventKind.TX_MPA]
    assert path.read("EVENT_STATUS") == 1 << 8
    path.write("EVENT_STATUS", 1 << 8)
    assert path.read("EVENT_STATUS") == 0


@pytest.mark.parametrize("markers", [0, 1])
def test_counters_count_both_ways(markers):
    path = connected(markers_tx=markers, markers_rx=markers)
    for _ in range(3):
        path.transmit(bytes(500))
    stream = b"".join(sent(path))
    path.receive(stream)
    assert [path.read(f"{way}_FPDUS") for way in ("TX", "RX")] == [3, 3]
    assert [path.read(f"{way}_OCTETS_LO") for way in ("TX", "RX")] == [len(stream)] * 2
    assert [path.read(f"{way}_MARKERS") for way in ("TX", "RX")] == [3 * markers] * 2
    path.receive(bytes([0, 1]) + bytes(600))
    assert path.read("RX_CRC_ERRORS") == 1
    assert path.read("RX_FPDUS") == 3


def test_reset_forgets_the_connection_and_what_the_host_wrote():
    path = connected(permissive=1)
    path.transmit(b"one")
    path.receive(broken(b"good"))
    path.write("CONTROL", fields("CONTROL", reset=1))
    assert (sent(path), delivered(path), kinds(path), states(path)) == ([], [], [], (WAITING, WAITING, 0))
    assert [path.read(name) for name in ("ERROR", "TX_FPDUS", "RX_FPDUS", "RX_CRC_ERRORS", "CONTROL")] == [0] * 5
    assert path.read("CONFIG") == fields("CONFIG")
    path.write("CONTROL", fields("CONTROL", tx_enable=1, rx_enable=1))
    path.receive(fpdus(b"again"))
    assert delivered(path) == [b"again"]


# The asynchronous device around it.


async def taken(write: Callable[[bytes], Awaitable[None]], octets: bytes, limit: int) -> int:
    """Return how often ``write`` took the octets before it blocked."""
    for count in range(limit):
        try:
            await asyncio.wait_for(write(octets), 0.05)
        except TimeoutError:
            return count
    return limit


async def start(device: SoftwareDevice, **config: int) -> None:
    await device.set_fields("CONFIG", **config)
    await device.set_fields("CONTROL", tx_enable=1, rx_enable=1)


async def test_two_devices_carry_everything_both_ways_over_a_stream_that_is_cut_anywhere():
    choice = random.Random(6581)
    messages = [choice.randbytes(choice.choice([0, 1, 100, 1442, 8882, 64768])) for _ in range(60)]

    async def wire(source: SoftwareDevice, sink: SoftwareDevice) -> None:
        while True:
            octets = await source.read_mpa()
            at = choice.randrange(len(octets) + 1)
            await sink.write_mpa(octets[:at])
            await sink.write_mpa(octets[at:])

    async def speak(device: SoftwareDevice) -> None:
        for message in messages:
            await device.write_ulpdu(message)

    async def listen(device: SoftwareDevice) -> None:
        assert [(await device.read_ulpdu()).octets for _ in messages] == messages

    async with SoftwareDevice() as a, SoftwareDevice() as b:
        wires = [asyncio.create_task(wire(a, b)), asyncio.create_task(wire(b, a))]
        common = {"model": Model.PEER_TO_PEER, "markers_tx": 1, "markers_rx": 1, "rdmap": 0}
        await start(a, rtr_send=Rtr.READ, **common)
        await start(b, role=Role.RESPONDER, rtr_accept=Rtr.READ.bit, **common)
        await asyncio.gather(speak(a), speak(b), listen(a), listen(b))
        for each in wires:
            each.cancel()
        await asyncio.gather(*wires, return_exceptions=True)
        assert await a.get_wide("TX_OCTETS") == await b.get_wide("RX_OCTETS")


async def test_all_waiting_entries_are_read_at_once_and_writers_continue():
    ulpdus = [b"one", bytes(3000), b"second"]
    async with SoftwareDevice() as device:
        await start(device)
        await device.write_ulpdus(ulpdus)
        assert await device.read_fpdus() == [fpdus(*ulpdus[: n + 1])[len(fpdus(*ulpdus[:n])) :] for n in range(3)]
        reading = asyncio.create_task(device.read_ulpdus())
        await asyncio.sleep(0)
        assert not reading.done()
        await device.write_mpa(fpdus(*ulpdus))
        assert await reading == ulpdus
        await device.write_ulpdus([bytes(64000)] * 5)
        writing = asyncio.create_task(device.write_ulpdus([b"late"]))
        await asyncio.sleep(0)
        assert not writing.done()
        assert len(await device.read_fpdus()) == 5
        await writing


async def test_writers_wait_while_nobody_takes_what_they_wrote():
    async with SoftwareDevice() as device:
        await start(device)
        for write, octets, read in (
            (device.write_ulpdu, bytes(64000), device.read_mpa),
            (device.write_mpa, fpdus(bytes(64000)), device.read_ulpdu),
        ):
            assert 1 <= await taken(write, octets, 100) <= 6
            writing = asyncio.create_task(write(octets))
            await asyncio.sleep(0)
            assert not writing.done()
            await read()
            await writing


async def test_ulpdus_behind_a_shut_fence_are_bounded():
    async with SoftwareDevice() as device:
        await start(device, role=Role.RESPONDER)
        assert await taken(device.write_ulpdu, b"", 100_000) < 100_000


async def test_a_device_drains_when_all_ulpdus_and_events_are_read():
    async with SoftwareDevice() as device:
        await drains_when_all_ulpdus_and_events_are_read(device)


async def test_next_event_waits_for_one():
    async with SoftwareDevice() as device:
        waiting = asyncio.create_task(device.next_event())
        await asyncio.sleep(0)
        assert not waiting.done()
        await start(device)
        assert await waiting == Event(EventKind.TX_MPA)


async def test_close_wakes_every_waiter_with_an_error():
    device = SoftwareDevice()
    waiting = [asyncio.create_task(each()) for each in (device.next_event, device.read_ulpdu, device.read_mpa)]
    await asyncio.sleep(0)
    await device.close()
    await device.close()
    for each in [*waiting, device.write_ulpdu(b""), device.write_mpa(b""), device.get("STATE")]:
        with pytest.raises(DeviceError, match="closed"):
            await each


@pytest.mark.parametrize(
    ("name", "lanes", "line"),
    [
        ("software", 3, "a device is 1, 2, 4, 8 or 16 lanes wide, not 3"),
        ("board", 4, "no device is called 'board'; there are software, simulated, serial:PORT"),
    ],
)
def test_an_unknown_device_is_refused_by_name(name, lanes, line):
    with pytest.raises(ValueError, match=line):
        asyncio.run(open_device(name, lanes=lanes))
