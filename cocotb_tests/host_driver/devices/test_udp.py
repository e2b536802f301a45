"""The host's end of the link to a whole RNIC, over datagrams that are lost, doubled and late."""

import asyncio
import heapq
import itertools
import random
from functools import partial
from ipaddress import IPv4Address

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_rnic.cocotb_tests.harness.rnic_model import RnicModel
from open_rnic.host_driver.device import DeviceError, Ulpdu
from open_rnic.host_driver.devices import names, open_device
from open_rnic.host_driver.devices.serial.driver import LATE
from open_rnic.host_driver.devices.serial.exchange import Exchange, LinkFailureError
from open_rnic.host_driver.devices.udp.board import parameters
from open_rnic.host_driver.devices.udp.datagrams import KernelDatagrams, datagrams
from open_rnic.host_driver.devices.udp.driver import RNIC, RnicDriver, page_of
from open_rnic.host_driver.devices.udp.finding import Found, find
from open_rnic.host_driver.devices.udp.rnic import UdpRnic
from open_rnic.rtl.host_link.protocol import VERSION
from open_rnic.rtl.registers import BY_NAME, Verdict
from open_rnic.rtl.rnic import registers as rnic_registers
from open_rnic.rtl.tcp.words import Command

PACE, LATENCY = 1e-6, 0.01
_NEVER = 1 << 30


class Network:
    """A driver, an RNIC, and datagrams between them, by a clock that goes from event to event."""

    def __init__(self, driver, rnic, rng, chance):
        self.driver, self.rnic, self.now = driver, rnic, 0.0
        self._rng, self._chance = rng, chance
        self._flying = []
        self._count = itertools.count()

    def _throw(self, to_rnic, octets):
        for _ in range((self._rng.random() >= self._chance) + (self._rng.random() < self._chance)):
            late = self._rng.random() < self._chance
            arrival = self.now + 1e-4 + late * self._rng.random() * 1e-3
            heapq.heappush(self._flying, (arrival, next(self._count), to_rnic, octets))

    def run(self, until, steps=30_000):
        for _ in range(steps):
            if until():
                return
            for each in datagrams(self.driver.to_send(self.now)):
                self._throw(True, each)
            deadline = self.driver.deadline
            assert deadline is not None or self._flying, "nothing would ever happen again"
            if self._flying and self._flying[0][0] <= (_NEVER if deadline is None else deadline):
                self.now, _, to_rnic, octets = heapq.heappop(self._flying)
                if to_rnic:
                    if answer := self.rnic.receive(octets):
                        self._throw(False, answer)
                else:
                    self.driver.receive(octets, self.now)
            else:
                self.now = max(self.now, deadline)
                self.driver.tick(self.now)
        raise AssertionError(f"not done after {steps} steps")


@settings(max_examples=30)
@given(
    seed=st.integers(0, 1 << 32),
    chance=st.sampled_from([0, 0.02, 0.2]),
    sizes=st.lists(st.integers(0, 300), min_size=1, max_size=10),
)
def test_accesses_packets_and_events_survive_lost_doubled_and_late_datagrams(seed, chance, sizes):
    rng = random.Random(seed)
    driver = RnicDriver(Exchange(rng.randrange(1, 1 << 32), PACE, LATENCY))
    driver.exchange.attempts = 1000
    driver.open(2)
    network = Network(driver, RnicModel(rng), rng, chance)
    packets = [[rng.randbytes(size) for size in sizes] for _ in driver.paths]
    words = [rng.getrandbits(32) for _ in sizes]
    reads = []
    for n, path in enumerate(driver.paths):
        for packet, word in zip(packets[n], words, strict=True):
            driver.give(path, packet)
            driver.write(page_of(n), "TX_STREAM_OCTETS", word)
            reads.append((driver.read(page_of(n), "TX_STREAM_OCTETS"), word))
    driver.curious = True
    network.run(lambda: all(len(path.ulpdus) == len(path.events) == len(sizes) for path in driver.paths))
    found = {value.access: value.value for value in driver.values}
    assert [found[key] for key, _ in reads] == [word for _, word in reads]
    for path, given_packets in zip(driver.paths, packets, strict=True):
        assert list(path.ulpdus) == [Ulpdu(packet, Verdict.STREAM) for packet in given_packets]
        assert not path.octets


def test_a_reset_discards_what_is_on_its_way_and_only_for_its_connection():
    rng = random.Random(1)
    driver = RnicDriver(Exchange(7, PACE, LATENCY))
    driver.open(2)
    network = Network(driver, RnicModel(rng), rng, 0.1)
    driver.curious = True
    one, other = driver.paths
    for _ in range(3):
        for path in driver.paths:
            driver.give(path, bytes(500))
    network.run(lambda: network.rnic.paths[0].queue)
    reset = driver.write(one.page, "CONTROL", BY_NAME["CONTROL"]["reset"].mask)
    driver.give(other, b"behind")
    network.run(lambda: any(value.access == reset for value in driver.values))
    assert (one.octets, *one.ulpdus, *one.events) == (0,)
    driver.give(one, b"new")
    network.run(lambda: one.ulpdus and len(other.ulpdus) == 4)
    assert [each.octets for each in one.ulpdus] == [b"new"]
    assert [len(each.octets) for each in other.ulpdus] == [500, 500, 500, 6]


@pytest.mark.parametrize("connections", [2, 64])
def test_an_interrupt_is_one_from_after_the_wait_began(connections):
    rng = random.Random(1)
    driver = RnicDriver(Exchange(7, PACE, LATENCY))
    driver.open(connections)
    network = Network(driver, RnicModel(rng, connections), rng, 0)
    driver.curious = True
    network.rnic.paths[-1].engine = True
    network.run(lambda: driver.engines_seen[-1])
    assert not any(driver.engines_seen[:-1])
    network.rnic.paths[-1].engine = False
    before = driver.looks
    network.run(lambda: driver.looks > before + 2)
    assert driver.engines_seen[-1] <= before


def test_a_device_that_has_nothing_to_report_but_a_change_of_its_link_is_asked_less_and_less_often():
    driver = RnicDriver(Exchange(7, PACE, LATENCY))
    driver.open(2)
    network = Network(driver, RnicModel(random.Random(1)), random.Random(1), 0)
    network.rnic.registers[RNIC.address("RNIC_PENDING") // 4] = rnic_registers.BY_NAME["RNIC_PENDING"]["mac"].mask
    driver.curious = True
    network.run(lambda: driver.looks == 100)
    assert network.now > 90 * LATE


def test_packets_pass_on_each_of_64_connections():
    rng = random.Random(1)
    driver = RnicDriver(Exchange(7, PACE, LATENCY))
    driver.open(64)
    network = Network(driver, RnicModel(rng, 64), rng, 0)
    driver.curious = True
    packets = [rng.randbytes(9) for _ in driver.paths]
    for path, packet in zip(driver.paths, packets, strict=True):
        driver.give(path, packet)
    network.run(lambda: all(path.ulpdus and path.events for path in driver.paths))
    assert [path.ulpdus[0].octets for path in driver.paths] == packets


class Way:
    """A way to a model of an RNIC in the same program."""

    place, trouble = "10.0.0.2 port 57767", ""

    def __init__(self, model):
        self._model = model
        self.receive = lambda octets: None

    def send(self, octets):
        if answer := self._model.receive(octets):
            asyncio.get_running_loop().call_soon(lambda: self.receive(answer))

    def close(self):
        self.receive = lambda octets: None


@pytest.mark.parametrize(("field", "line"), [
    ("rings", "the memory of TCP's rings has failed"),
    ("sdram", "the SDRAM does not return what is written to it: the training of its reads has failed"),
])  # fmt: skip
async def test_an_error_of_a_memory_is_reported(field, line):
    model = RnicModel(random.Random(1))
    rnic = await UdpRnic.open(Way(model))
    model.registers[RNIC.address("RNIC_PENDING") // 4] = rnic_registers.BY_NAME["RNIC_PENDING"][field].mask
    for use in rnic.interrupt, partial(UdpRnic.open, Way(model)):
        with pytest.raises(DeviceError, match=rf"^10\.0\.0\.2 port 57767: {line}$"):
            await use()


async def test_opening_an_rnic_aborts_its_connections_and_resets_their_data_paths():
    model = RnicModel(random.Random(1))
    rnic = await UdpRnic.open(Way(model))
    assert [path.resets for path in model.paths] == [1, 1]
    commands = [word & 7 for name, word in model.log if name == "COMMAND"]
    assert commands == [Command.ABORT] * 2
    octets = bytes(range(200))
    rnic.paths[1].write_memory(64, octets)
    assert await rnic.paths[1].read_memory(64, 200) == octets
    await rnic.close()


async def test_the_host_from_which_an_rnic_is_taken_gets_an_error_and_the_new_one_goes_on():
    model = RnicModel(random.Random(1))
    one, other = await UdpRnic.open(Way(model)), None
    waiting = asyncio.create_task(one.interrupt())
    other = await UdpRnic.open(Way(model))
    with pytest.raises(DeviceError, match=r"^10\.0\.0\.2 port 57767: another program or host has taken the board$"):
        await waiting
    assert await other.get("IDENTITY")
    await other.close()


async def test_an_rnic_that_was_restarted_is_reported():
    way = Way(RnicModel(random.Random(1)))
    rnic = await UdpRnic.open(way)
    way._model = RnicModel(random.Random(2))
    with pytest.raises(LinkFailureError, match=r"^10\.0\.0\.2 port 57767: the board has started anew"):
        await rnic.get("IDENTITY")


@pytest.mark.parametrize(
    ("register", "word", "message"),
    [
        ("RNIC_IDENTITY", 5, "RNIC_IDENTITY is 0x00000005, not 0x524e4931: another design"),
        ("RNIC_VERSION", rnic_registers.VERSION + (1 << 16), "the board has version 3.3 of the RNIC's registers"),
    ],
)
async def test_another_design_and_another_version_are_reported_with_the_address(register, word, message):
    model = RnicModel(random.Random(1))
    model.registers[RNIC.address(register) // 4] = word
    with pytest.raises(DeviceError, match=rf"^10\.0\.0\.2 port 57767: {message}"):
        await UdpRnic.open(Way(model))


async def test_an_address_at_which_nobody_answers_is_reported_with_the_port():
    way = await KernelDatagrams.open("127.0.0.1", 9)
    with pytest.raises(DeviceError, match=r"^127\.0\.0\.1 port 9: no answer \(Connection refused\): is this the"):
        await UdpRnic.open(way)


@pytest.mark.parametrize("spec", ["udp:10.0.0.2:", "udp:10.0.0.2:0", "udp:10.0.0.2:70000", "udp:10.0.0.2:-1"])
def test_a_port_is_a_number(spec):
    with pytest.raises(ValueError, match=f"{spec}: a UDP port is a number from 1 to 65535, not"):
        names.parse(spec)


@pytest.mark.parametrize("spec", ["udp:", "udp:board"])
def test_a_name_without_an_address_is_reported(spec):
    with pytest.raises(ValueError, match="udp: needs the IPv4 address of a board"):
        names.parse(spec)


async def test_names_of_rnics():
    address = IPv4Address("10.0.0.2")
    assert names.parse("udp:10.0.0.2") == names.UdpRnic("udp:10.0.0.2", address, 57767)
    assert names.parse("udp:10.0.0.2:5") == names.UdpRnic("udp:10.0.0.2:5", address, 5)
    assert names.parse("udp:sim:colorlight_5a75b").connections == 1
    board = names.parse("udp:sim:ecpix5:4")
    assert (board.board, board.connections, parameters(board.place)[1]) == ("ecpix5", 4, "4")
    with pytest.raises(ValueError, match=r"with N 1, 2, 4, 8, 16, 32 or 64, not 'ecpix5:3'$"):
        names.parse("udp:sim:ecpix5:3")
    with pytest.raises(ValueError, match="ulx3s has no Ethernet"):
        names.parse("udp:sim:ulx3s")
    with pytest.raises(ValueError, match=r"udp:10\.0\.0\.2 has TCP of its own"):
        await open_device("udp:10.0.0.2", lanes=1)


class Listening(asyncio.DatagramProtocol):
    """A model of an RNIC at a port of this machine."""

    def __init__(self, model):
        self._model = model

    def connection_made(self, transport):
        self._transport = transport

    def datagram_received(self, data, addr):
        if answer := self._model.receive(data):
            self._transport.sendto(answer, addr)


async def test_boards_are_found_without_a_session_and_report_whether_they_are_in_use():
    model = RnicModel(random.Random(1))
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Listening(model), local_addr=("127.0.0.1", 0))
    port = transport.get_extra_info("sockname")[1]
    here = IPv4Address("127.0.0.1")
    assert await find([here], port=port, seconds=0.1) == [Found(here, used=False, version=VERSION)]
    rnic = await UdpRnic.open(await KernelDatagrams.open("127.0.0.1", port))
    done = model.done
    assert await find([here], port=port, seconds=0.1) == [Found(here, used=True, version=VERSION)]
    assert model.done == done
    assert await rnic.get("IDENTITY")
    await rnic.close()
    transport.close()
    assert await find([here], port=port, seconds=0.1) == []
