# amaranth: UnusedElaboratable=no
"""The blocks of the link, each alone: the UART, the link, COBS compared with a library, and invalid parameters."""

import random
from fractions import Fraction

import cocotb
import pytest
from cobs import cobs
from cocotb.triggers import FallingEdge, RisingEdge, Timer

from open_rnic.cocotb_tests.harness import PERIOD, Part, Source, bench, parameter, pauses, simulate
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.together import Together
from open_rnic.host_driver.devices.serial.frames import frame as framed
from open_rnic.host_driver.devices.serial.frames import unframe
from open_rnic.rtl.host_link.cobs import CobsDecoder
from open_rnic.rtl.host_link.crc import FrameCrc
from open_rnic.rtl.host_link.link import Link
from open_rnic.rtl.host_link.protocol import HEADER, Ask, Op, Status, op
from open_rnic.rtl.host_link.responses import APART, Responses
from open_rnic.rtl.host_link.uart import Uart, UartRx, UartTx

SIZE = 2048
PERIODS = (Fraction(4), Fraction(25, 3), Fraction(16), Fraction(25_000_000, 115_200))
BLOCKS = (*PERIODS, "link", "COBS")


def block(name):
    match name:
        case "link":
            return Link(1, size=512)
        case "COBS":
            return Together(decoder=CobsDecoder(), responses=Responses(SIZE, 64))
        case period:
            return Uart(period)


# --- the UART


def bit_edges(bits, length):
    """Return the times in ns at which the bits end, if the first one begins at 0; ``length`` is that of a bit in ns."""
    return [round((n + 1) * length) for n in range(bits)]


async def send_bits(wire, octet, length):
    """Send an octet as a UART does, with bits of ``length`` ns."""
    now = 0
    for bit, end in zip([0, *(octet >> n & 1 for n in range(8)), 1], bit_edges(10, length), strict=True):
        wire.value = bit
        await Timer(end - now, "ns")
        now = end


def listen(dut):
    """Return a list to which received octets are appended."""
    received = []

    async def take():
        while True:
            await RisingEdge(dut.clk)
            if dut.o__valid.value:
                received.append(int(dut.o__payload.value))

    cocotb.start_soon(take())
    return received


@bench(cycles=500_000)
async def octets_of_a_sender_with_a_rate_error_of_two_percent_are_received(dut):
    dut.rx.value = 1
    await Timer(round(12 * parameter("period") * PERIOD), "ns")  # the wire was 0 before, which looked like an octet
    for error in (-0.02, 0, 0.02):
        length = parameter("period") * PERIOD * (1 + error)
        octets = random.randbytes(40)
        received = []

        async def listen(received=received, octets=octets):
            while len(received) < len(octets):
                await RisingEdge(dut.clk)
                if dut.o__valid.value:
                    received.append(int(dut.o__payload.value))

        listening = cocotb.start_soon(listen())
        await Timer(random.randrange(1, 20), "ns")
        for each in octets:
            await send_bits(dut.rx, each, length)
            if random.random() < 0.3:
                await Timer(random.randrange(1, 2000), "ns")
        await listening
        assert bytes(received) == octets


@bench(cycles=500_000)
async def an_octet_without_a_stop_bit_is_discarded_and_the_next_one_is_received(dut):
    length = parameter("period") * PERIOD
    dut.rx.value = 0
    await Timer(round(14 * length), "ns")  # a break
    dut.rx.value = 1
    await Timer(round(2 * length), "ns")
    sending = cocotb.start_soon(send_bits(dut.rx, 0xA5, length))
    while not dut.o__valid.value:
        await RisingEdge(dut.clk)
    assert int(dut.o__payload.value) == 0xA5
    await sending


@bench(cycles=500_000)
async def octets_survive_a_glitch_of_one_sample_in_every_bit(dut):
    length = parameter("period") * PERIOD
    dut.rx.value = 1
    await Timer(round(12 * length), "ns")
    received = listen(dut)
    octets = random.randbytes(40)
    bits = [bit for octet in octets for bit in (1, 0, *(octet >> n & 1 for n in range(8)), 1)]  # after an idle bit
    for before, bit, after in zip([1, *bits], bits, [*bits[1:], 1], strict=False):
        wrong = random.randrange(round(length / 2) - PERIOD, round(length / 2))
        # If a bit has only 4 samples, a glitch may move an adjacent edge, so only bits without an edge have a glitch.
        glitch = 1 - bit if length >= 8 * PERIOD or before == bit == after else bit
        for level, time in ((bit, wrong), (glitch, PERIOD), (bit, round(length) - wrong - PERIOD)):
            dut.rx.value = level
            await Timer(time, "ns")
    await Timer(round(2 * length), "ns")
    assert bytes(received) == octets


@bench(cycles=500_000)
async def a_glitch_is_not_a_start_bit(dut):
    length = parameter("period") * PERIOD
    dut.rx.value = 1
    await Timer(round(12 * length), "ns")
    received = listen(dut)
    dut.rx.value = 0
    await Timer(max(round(0.3 * length), PERIOD), "ns")
    dut.rx.value = 1
    # If bits were timed from the glitch, they would be sampled at 9/10 of their length, and later with each bit.
    await Timer(round(2.3 * length), "ns")
    await send_bits(dut.rx, 0xA5, length * (0.98 if parameter("period") >= 16 else 1))
    await Timer(round(2 * length), "ns")
    assert received == [0xA5]


@bench(cycles=500_000)
async def octets_are_sent_without_gaps_and_with_bits_of_the_right_length(dut):
    length = parameter("period") * PERIOD
    octets = random.randbytes(20)
    async def give():
        for each in octets:
            dut.i__payload.value, dut.i__valid.value = each, 1
            await RisingEdge(dut.clk)
            while not dut.i__ready.value:
                await RisingEdge(dut.clk)
        dut.i__valid.value = 0

    cocotb.start_soon(give())
    await FallingEdge(dut.tx)
    now = 0
    for nth, octet in enumerate(octets):
        for n, bit in enumerate([0, *(octet >> n & 1 for n in range(8)), 1]):
            middle = round((10 * nth + n + 0.5) * length)  # without a gap or drift in 20 octets
            await Timer(middle - now, "ns")
            now = middle
            assert dut.tx.value == bit, f"bit {n} of octet {nth}"


@bench(cycles=500_000)
async def octets_are_sent_immediately_if_the_wire_is_idle(dut):
    bit = round(parameter("period") * PERIOD)
    for _ in range(20):
        await Timer(12 * bit + random.randrange(20 * bit), "ns")
        await RisingEdge(dut.clk)
        dut.i__payload.value, dut.i__valid.value = random.getrandbits(8), 1
        await RisingEdge(dut.clk)
        assert dut.i__ready.value
        dut.i__valid.value = 0
        await RisingEdge(dut.clk)
        assert not dut.tx.value


@pytest.mark.parametrize("period", shortened("more rates of the line", 2, PERIODS), ids=str)
def test_uart(period):
    simulate(
        Part(block, period, BLOCKS),
        octets_of_a_sender_with_a_rate_error_of_two_percent_are_received,
        an_octet_without_a_stop_bit_is_discarded_and_the_next_one_is_received,
        octets_survive_a_glitch_of_one_sample_in_every_bit,
        a_glitch_is_not_a_start_bit,
        octets_are_sent_without_gaps_and_with_bits_of_the_right_length,
        octets_are_sent_immediately_if_the_wire_is_idle,
        parameters={"period": float(period)},
    )


# --- the link


def request(sequence, session, ask=0, *, writes=True):
    """Return the frame of a request that writes a register, or has no operation."""
    write = bytes((op(Op.WRITE), *random.randbytes(4), 7, 0)) if writes else b""
    return framed(bytes((sequence | ask,)) + session.to_bytes(4, "little") + write + bytes((op(Op.END),)))


def quiet(dut):
    """Drive all inputs: the streams are idle, accesses to registers complete, and the line accepts octets."""
    for port in ("i__valid", "tx_mpa__valid", "rx_ulpdu__valid", "tx_ulpdu__ready", "rx_mpa__ready", "irq"):
        getattr(dut, port).value = 0
    dut.bus__ack.value = dut.o__ready.value = 1


async def send(dut, octets):
    dut.i__valid.value = 1
    for each in octets:
        dut.i__payload.value = each
        await RisingEdge(dut.clk)
    dut.i__valid.value = 0


async def receive(dut):
    """Wait for the next response, and return its sequence number, session and records."""
    dut.o__ready.value = 1
    found = bytearray()
    while not found.endswith(b"\0"):
        await RisingEdge(dut.clk)
        if dut.o__valid.value:
            found.append(int(dut.o__payload.value))
            length = int(dut.length.value)
    assert length == len(found)
    body = unframe(bytes(found[:-1]))
    assert body is not None, "the response is damaged"
    return body[0] & 15, int.from_bytes(body[1:HEADER], "little"), body[HEADER:-3]


@bench(cycles=200_000)
async def the_link_opens_several_sessions_in_turn(dut):
    quiet(dut)
    for session in random.sample(range(1, 1 << 32), 4):
        for sequence in range(random.randint(2, 5)):
            await send(dut, request(sequence, session, 0 if sequence else Ask.OPEN))
            assert (await receive(dut))[:2] == (sequence, session)


@bench(cycles=200_000)
async def the_link_does_not_overwrite_a_response_while_it_is_sent(dut):
    quiet(dut)
    dut.o__ready.value = 0
    sessions = random.sample(range(1, 1 << 32), 2)
    for session in sessions:
        await send(dut, request(0, session, Ask.OPEN))
        while not dut.o__valid.value:
            await RisingEdge(dut.clk)
    for _ in range(2000):
        await RisingEdge(dut.clk)
    for session in sessions:
        assert (await receive(dut))[:2] == (0, session)


@bench(cycles=200_000)
async def the_link_puts_beats_with_short_gaps_into_one_record(dut):
    quiet(dut)
    octets = random.randbytes(100)
    Source(dut, "tx_mpa", pauses(1, longest=4)).send(octets)
    await send(dut, request(0, 1, Ask.OPEN | Ask.MPA, writes=False))
    *_, records = await receive(dut)
    assert records[:-2] == octets
    assert records[-2] == len(octets)


@bench(cycles=200_000)
async def the_link_refuses_unknown_sessions_and_counts_only_damaged_frames(dut):
    quiet(dut)
    writes = 0

    async def exchange(octets):
        """Send a frame; return the status, the count of damaged frames and the number of writes.

        Return None if there is no response.
        """
        nonlocal writes
        await send(dut, octets)
        found, silent, before = bytearray(), 0, writes
        while silent < 5:  # long enough for a frame to set ``active``
            await RisingEdge(dut.clk)
            silent = 0 if dut.active.value else silent + 1
            writes += int(dut.bus__request.value and dut.bus__write.value)
            if dut.o__valid.value:
                found.append(int(dut.o__payload.value))
        if not found:
            assert writes == before
            return None
        body = unframe(bytes(found[:-1]))
        return Status(body[-3]), body[-2], writes - before

    known, unknown = random.sample(range(1, 1 << 32), 2)
    assert await exchange(request(0, known)) == (Status.REFUSED | Status.FRESH, 0, 0)
    assert await exchange(request(0, known, Ask.OPEN)) == (Status(0), 0, 1)
    assert await exchange(request(1, unknown)) == (Status.REFUSED, 0, 0)
    second = request(1, known)
    assert await exchange(second) == (Status(0), 0, 1)
    assert await exchange(request(1, unknown)) == (Status.REFUSED, 0, 0)
    assert await exchange(second) == (Status(0), 0, 0)  # the same response again
    assert await exchange(request(12, known)) is None  # its response is not stored any more
    assert await exchange(bytes(3)) is None  # empty frames
    assert await exchange(request(2, known)) == (Status(0), 0, 1)
    damaged = 20
    for _ in range(damaged):
        spoilt = bytearray(cobs.decode(request(3, known, Ask.OPEN)[:-1]))
        spoilt[random.randrange(len(spoilt))] ^= random.randrange(1, 256)
        assert await exchange(cobs.encode(bytes(spoilt)) + b"\0") is None
    assert await exchange(request(3, known)) == (Status(0), damaged, 1)
    for session in (known, 1):  # a device that has been reset knows no session
        dut.rst.value = 1
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        assert await exchange(request(0, session)) == (Status.REFUSED | Status.FRESH, 0, 0)


def test_link():
    simulate(
        Part(block, "link", BLOCKS),
        the_link_opens_several_sessions_in_turn,
        the_link_does_not_overwrite_a_response_while_it_is_sent,
        the_link_puts_beats_with_short_gaps_into_one_record,
        the_link_refuses_unknown_sessions_and_counts_only_damaged_frames,
    )


# --- COBS


def frames():
    """Yield frames with boundary cases of COBS, then random ones."""
    yield from (b"\0", b"\0\0", bytes(300), b"\1" * 253, b"\1" * 254, b"\1" * 255, b"\1" * 254 + b"\0", b"\xff" * 1000)
    for _ in range(60):
        yield bytes(random.choices((0, *range(256)), [random.choice((0, 1, 50)), *[1] * 256], k=random.randint(1, 900)))


@bench(cycles=2_000_000)
async def the_decoder_decodes_frames_of_the_library(dut):
    await RisingEdge(dut.clk)
    found, ended = bytearray(), 0

    async def give(octet, valid):
        nonlocal ended
        dut.decoder__i__payload.value, dut.decoder__i__valid.value = octet, valid
        await FallingEdge(dut.clk)
        if dut.decoder__valid.value:
            found.append(int(dut.decoder__octet.value))
        ended += int(dut.decoder__end.value)
        await RisingEdge(dut.clk)

    for frame in frames():
        cut_off = cobs.encode(b"cut off")[:-random.randrange(1, 5)]
        for octet in b"\0" + cut_off + b"\0":
            await give(octet, 1)
        found.clear()
        ended = 0
        for octet in cobs.encode(frame) + b"\0":
            if random.random() < 0.1:
                await give(random.choice([0, octet]), 0)  # ``valid`` is 0, so this is not an octet
            await give(octet, 1)
        dut.decoder__i__valid.value = 0
        assert (bytes(found), ended) == (frame, 1)


async def store(dut, frame):
    """Write a response into the place that is chosen."""
    dut.responses__i__valid.value = 1
    for word in (*frame, 0x100 | random.getrandbits(8)):  # the end has no octet
        dut.responses__i__payload.value = word
        await FallingEdge(dut.clk)
        while not dut.responses__i__ready.value:
            await FallingEdge(dut.clk)
        await RisingEdge(dut.clk)
    dut.responses__i__valid.value = dut.responses__i__payload.value = 0
    await RisingEdge(dut.clk)  # the zero is written


async def sent_response(dut, patient):
    """Return the response in the place that is chosen, with its zero; ``patient``: ``ready`` waits for ``valid``."""
    dut.responses__send.value = 1
    await RisingEdge(dut.clk)
    dut.responses__send.value = 0
    sent = bytearray()
    while not sent.endswith(b"\0"):
        dut.responses__o__ready.value = int(dut.responses__o__valid.value) if patient else random.getrandbits(1)
        await FallingEdge(dut.clk)
        if dut.responses__o__valid.value and dut.responses__o__ready.value:
            sent.append(int(dut.responses__o__payload.value))
            length = int(dut.responses__length.value)
        await RisingEdge(dut.clk)
    dut.responses__o__ready.value = 0
    assert length == len(sent)
    await FallingEdge(dut.clk)
    while dut.responses__sending.value:
        await FallingEdge(dut.clk)
    return bytes(sent)


@bench(cycles=2_000_000)
async def the_library_decodes_responses_which_can_be_sent_twice(dut):
    for nth, frame in enumerate(frames()):
        await RisingEdge(dut.clk)
        dut.responses__half.value = nth % 2
        await store(dut, frame)
        for _ in range(2):
            assert cobs.decode((await sent_response(dut, patient=nth % 4 >= 2))[:-1]) == frame


@bench()
async def a_response_apart_replaces_none_of_the_two(dut):
    frames = {2: random.randbytes(APART - 2), 0: random.randbytes(40), 1: random.randbytes(50)}

    def choose(place):
        dut.responses__half.value, dut.responses__apart.value = place % 2, place // 2

    for place, frame in frames.items():
        choose(place)
        await RisingEdge(dut.clk)
        await store(dut, frame)
    for place in (2, 0, 1, 2):
        choose(place)
        sending = cocotb.start_soon(sent_response(dut, patient=False))
        for other in (place, 0, 1, 2, place):
            choose(other)
            await FallingEdge(dut.clk)
            await FallingEdge(dut.clk)
            assert dut.responses__conflict.value == (other == place)
        assert cobs.decode((await sending)[:-1]) == frames[place]


def test_cobs():
    simulate(
        Part(block, "COBS", BLOCKS),
        the_decoder_decodes_frames_of_the_library,
        the_library_decodes_responses_which_can_be_sent_twice,
        a_response_apart_replaces_none_of_the_two,
    )


# --- invalid parameters


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UartRx(3), "a bit must take at least 4 clock cycles, not 3.00"),
        (lambda: UartTx(Fraction(7, 2)), "a bit must take at least 4 clock cycles, not 3.50"),
        (lambda: Link(3), "lanes must be one of 1, 2, 4, 8, 16, not 3"),
        (lambda: Link(2, size=1000), "size must be one of 512, 1024, 2048, 4096, not 1000"),
        (lambda: FrameCrc(8), "bits must be 1, 2 or 4, not 8"),
    ],
)
def test_invalid_parameters_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()
