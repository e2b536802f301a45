"""The host's end of a link, without ports or clocks, over lines that flip, lose, double and insert octets."""

import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_rnic.cocotb_tests.harness.link_model import DeviceModel
from open_rnic.host_driver.device import Ulpdu
from open_rnic.host_driver.devices import names
from open_rnic.host_driver.devices.serial.driver import Driver
from open_rnic.host_driver.devices.serial.exchange import Exchange, LinkFailureError, NoAnswerError
from open_rnic.host_driver.devices.serial.frames import frame, response, unframe
from open_rnic.rtl.host_link.protocol import SIZES
from open_rnic.rtl.registers import BY_NAME, Verdict

PACE = 1e-5  # seconds an octet


def damaged(octets, rng, chance):
    """Return the octets at the end of a noisy line."""
    out = bytearray()
    for each in octets:
        if rng.random() >= chance:
            out.append(each)
            continue
        match rng.randrange(4):
            case 0:
                out.append(each ^ 1 << rng.randrange(8))
            case 1:
                out += bytes((each, each))
            case 2:
                out += bytes((each, rng.randrange(256)))
    return bytes(out)


class Line:
    """A driver, a device, and a clock that advances only while there is nothing else to do."""

    def __init__(self, driver, device, rng, chance):
        self.driver, self.device, self.now = driver, device, 0.0
        self._damage = lambda octets: damaged(octets, rng, chance)

    def run(self, until, steps=20_000):
        for _ in range(steps):
            if until():
                return
            octets = self.driver.to_send(self.now)
            answer = self._damage(self.device.receive(self._damage(octets)))
            self.now += PACE * (len(octets) + len(answer))
            if answer:
                self.driver.receive(answer, self.now)
            elif not octets:
                assert self.driver.deadline is not None, "nothing would ever happen again"
                self.now = max(self.now, self.driver.deadline)
                self.driver.tick(self.now)
        raise AssertionError(f"not done after {steps} steps")


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 32),
    chance=st.sampled_from([0, 1e-4, 3e-4]),
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=30),
    size=st.sampled_from(SIZES),
)
def test_all_octets_arrive_once_and_in_order_over_a_noisy_line(seed, chance, sizes, size):
    rng = random.Random(seed)
    driver = Driver(Exchange(rng.randrange(1, 1 << 32), PACE))
    line = Line(driver, DeviceModel(rng, size), rng, chance / (size / SIZES[0]))
    out, back = ([rng.randbytes(max(each, low)) for each in sizes] for low in (0, 1))
    words = [rng.getrandbits(32) for _ in sizes]
    reads = []
    for ulpdu, chunk, word in zip(out, back, words, strict=True):
        driver.tx_ulpdu.add(ulpdu)
        driver.rx_mpa.add(chunk)
        driver.write("TX_STREAM_OCTETS", word)
        reads.append(driver.read("TX_STREAM_OCTETS"))
    driver.curious = True
    line.run(lambda: len(driver.mpa) == len(driver.ulpdus) == len(sizes) and len(driver.values) == 2 * len(sizes))
    assert list(driver.mpa) == out
    assert list(driver.ulpdus) == [Ulpdu(each, Verdict.GOOD) for each in back]
    found = {each.access: each.value for each in driver.values}
    assert [found[key] for key in reads] == words


def test_a_request_that_is_answered_twice_is_carried_out_once():
    rng = random.Random(1)
    driver, device = Driver(Exchange(7, PACE)), DeviceModel(rng)
    driver.write("TX_MAX_ULPDU", 5)
    octets = driver.to_send(0)
    answer = device.receive(octets)
    done = device.done
    assert device.receive(octets + octets) == answer + answer
    assert device.done == done
    driver.receive(answer + answer, 0.1)
    assert [each.value for each in driver.values] == [5]


def test_a_restart_of_the_device_ends_the_session_with_an_error():
    rng = random.Random(1)
    driver = Driver(Exchange(7, PACE))
    driver.read("IDENTITY")
    driver.receive(DeviceModel(rng).receive(driver.to_send(0)), 0)
    driver.read("IDENTITY")
    with pytest.raises(LinkFailureError, match="the board has started anew, and has lost its connection"):
        driver.receive(DeviceModel(rng).receive(driver.to_send(0)), 0)


def test_a_session_of_another_program_ends_this_one_with_an_error():
    device = DeviceModel(random.Random(1))
    first, second = Driver(Exchange(7, PACE)), Driver(Exchange(8, PACE))
    for each in (first, second):
        each.read("IDENTITY")
        each.receive(device.receive(each.to_send(0)), 0)
    first.read("IDENTITY")
    with pytest.raises(LinkFailureError, match="another program or host has taken the board"):
        first.receive(device.receive(first.to_send(0)), 0)


def test_silence_ends_with_no_answer():
    driver = Driver(Exchange(7, PACE))
    driver.read("IDENTITY")
    now = 0.0
    for _ in range(19):
        assert driver.to_send(now)
        now = driver.deadline
        driver.tick(now)
    with pytest.raises(NoAnswerError, match="no answer to 20 requests"):
        driver.tick(driver.deadline)
    assert now < 10


@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("chatter", [b"[ 12.345] a console, or a wrong speed\r\n" * 9, bytes(400)])
def test_a_port_that_never_falls_silent_and_never_answers_ends_with_no_answer(opened, chatter):
    driver = Driver(Exchange(7, PACE))
    driver.read("IDENTITY")
    if opened:
        driver.receive(DeviceModel(random.Random(1)).receive(driver.to_send(0)), 0)
        driver.read("IDENTITY")

    def listen():
        for tick in range(500):
            driver.to_send(0.04 * tick)
            driver.receive(chatter, 0.04 * tick)
            driver.tick(0.04 * tick)

    with pytest.raises(NoAnswerError, match="no answer to 20 requests"):
        listen()


def test_a_port_that_echoes_is_reported():
    driver = Driver(Exchange(7, PACE))
    driver.read("IDENTITY")
    with pytest.raises(LinkFailureError, match="what is sent comes back"):
        driver.receive(driver.to_send(0), 0)


class Wire:
    """A line: each octet takes ``pace`` seconds, and octets stay in order."""

    def __init__(self, pace):
        self._pace = pace
        self._pieces = deque()

    def put(self, octets, now):
        for at in range(0, len(octets), 16):
            piece = octets[at : at + 16]
            begins = max(now, self._pieces[-1][0]) if self._pieces else now
            self._pieces.append((begins + self._pace * len(piece), piece))

    @property
    def due(self):
        return self._pieces[0][0] if self._pieces else None

    def take(self, now):
        return self._pieces.popleft()[1] if self._pieces and self.due <= now else b""


def test_a_line_much_slower_than_its_pace_is_not_filled_with_repetitions():
    pace, slowness, now = 2e-4, 12, 0.0
    rng = random.Random(5)
    driver, device = Driver(Exchange(7, pace)), DeviceModel(rng)
    there, back = Wire(slowness * pace), Wire(slowness * pace)
    ulpdus = [rng.randbytes(rng.randrange(300)) for _ in range(60)]
    for each in ulpdus:
        driver.tx_ulpdu.add(each)
    driver.curious = True
    while len(driver.mpa) < len(ulpdus):
        there.put(driver.to_send(now), now)
        now = max(now, min(each for each in (driver.deadline, there.due, back.due) if each is not None))
        back.put(device.receive(there.take(now)), now)
        if octets := back.take(now):
            driver.receive(octets, now)
        driver.tick(now)
    assert list(driver.mpa) == ulpdus
    assert driver.exchange.repeats < 10


def test_a_reset_drops_octets_under_way():
    rng = random.Random(3)
    driver = Driver(Exchange(7, PACE))
    line = Line(driver, DeviceModel(rng), rng, 0)
    driver.tx_ulpdu.add(bytes(2000))
    key = driver.write("CONTROL", BY_NAME["CONTROL"]["reset"].mask)
    line.run(lambda: any(each.access == key for each in driver.values))
    assert not driver.tx_ulpdu.octets
    assert not driver.mpa


@settings(max_examples=200)
@given(st.binary(max_size=60))
def test_random_octets_raise_no_exception_as_a_response(octets):
    response(octets)  # raises no exception
    assert unframe(octets.replace(b"\0", b"\1")) is None or len(octets) > 4
    assert unframe(frame(octets)[:-1]) == octets


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("serial:", "serial: needs the name of a port"),
        ("serial:/dev/ttyUSB0:0", "a baud rate is not 0"),
        ("serial:sim:", "no board is called ''"),
        ("usb", "no device is called 'usb'; there are software, simulated, serial:PORT"),
    ],
)
def test_unknown_device_names_are_refused(spec, message):
    with pytest.raises(ValueError, match=message):
        names.parse(spec)
