"""The whole RNIC at the frames of its Ethernet port and at its UART; dpkt makes the frames, not this project."""

import random
from functools import partial

import cocotb
import dpkt
from cocotb.triggers import ClockCycles, RisingEdge

from open_rnic.cocotb_tests.harness import Sink, Source, bench, simulate, stalls
from open_rnic.cocotb_tests.rtl.net.bench import (
    BROADCAST,
    BROADCAST_MAC,
    INTERFACE,
    MAC,
    OTHER,
    OTHER_MAC,
    OURS,
    PEER,
    PEER_MAC,
    REQUEST,
    arp,
    ethernet,
    udp,
)
from open_rnic.host_driver.devices.serial.frames import ZERO, Request, response, unframe
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.rtl.host_link.protocol import LINK_PORT, Ask, Status
from open_rnic.rtl.rdma.fabric import Fabric
from open_rnic.rtl.rdma.registers import IDENTITY as RDMA
from open_rnic.rtl.rdma.sample_registers import BY_NAME as SAMPLES
from open_rnic.rtl.rdma.sample_registers import IDENTITY as SAMPLER
from open_rnic.rtl.rdma.signal_registers import BY_NAME as SIGNAL
from open_rnic.rtl.registers import IDENTITY as MPA
from open_rnic.rtl.rnic.linked_rnic import LinkedRnic
from open_rnic.rtl.rnic.registers import IDENTITY as RNIC
from open_rnic.rtl.rnic.registers import MAC_PAGE, RNIC_PAGE
from open_rnic.rtl.tcp.config import Station
from open_rnic.rtl.tcp.registers import BY_NAME as PATH
from open_rnic.rtl.tcp.registers import IDENTITY as TCP

PERIOD = 8  # cycles in a bit of the UART
MEMORY = 4096
STATION = Station(int.from_bytes(MAC, "big"), int(OURS), int(INTERFACE.netmask))
SESSION = 0x12345678
SAMPLE_BUFFER = 4096  # octets


class Board:
    """An RNIC whose Ethernet port is this bench."""

    def __init__(self, dut):
        self.dut = dut
        dut.mac_bus__ack.value = dut.tick.value = dut.mac_irq.value = 0
        dut.rx.value = 1
        dut.samples__valid.value = dut.bus__request.value = 0
        self.frames = Source(dut, "rx_frames")
        self.sink = Sink(dut, "tx_frames", stalls(0.1))
        self.accesses = []  # to the page of the MAC
        cocotb.start_soon(self._mac())

    async def _mac(self):
        bus = self.dut
        while True:
            await RisingEdge(bus.clk)
            bus.mac_bus__ack.value = 0
            if bus.mac_bus__request.value and not bus.mac_bus__ack.value:
                self.accesses.append(int(bus.mac_bus__address.value))
                bus.mac_bus__read_data.value = 0x4D4143
                bus.mac_bus__ack.value = 1

    def give(self, frame):
        self.frames.send(random.randbytes(2) + frame.ljust(60, b"\0"), bad=0)

    async def meet(self, mac=PEER_MAC, address=PEER):
        """Let the RNIC learn a MAC, as from a host that wants to send to it."""
        self.give(arp(REQUEST, mac, address, OURS))
        await self.sink.receive()

    async def datagram(self):
        """Return the next frame with a datagram."""
        while True:
            frame = dpkt.ethernet.Ethernet((await self.sink.receive()).octets[2:])
            if frame.type == dpkt.ethernet.ETH_TYPE_IP:
                return frame

    async def ask(self, sequence, request, ask=0, session=SESSION, **addresses):
        """Send a request in a datagram, and return the response to it."""
        self.give(udp(request.encode(sequence, session, ask), port=LINK_PORT, **addresses))
        return answer((await self.datagram()).ip.udp.data)


def answer(octets):
    assert octets[-1:] == ZERO
    return response(unframe(octets[:-1]))


def reads(*addresses):
    request = Request(1024)
    for address in addresses:
        request.read(address)
    return request


def place(page, address=0):
    return page << 10 | address


@bench()
async def every_page_is_read_over_udp(dut):
    board = Board(dut)
    await board.meet()
    pages = [place(0), place(1), place(2), place(1, 0x200), place(RNIC_PAGE), place(RNIC_PAGE, 8), place(MAC_PAGE, 12)]
    pages += [place(1, 0x2C0), place(2, 0x2C0), place(77)]
    found = await board.ask(0, reads(*pages), Ask.OPEN)
    shared = 1 << 16 | (MEMORY.bit_length() - 1) << 8 | 2  # CAPABILITIES
    assert found.values == [TCP, MPA, MPA, RDMA, RNIC, shared, 0x4D4143, MEMORY, MEMORY, 0]
    assert board.accesses == [3]
    assert found.sequence == 0
    assert found.session == SESSION


@bench()
async def responses_go_to_the_host_that_asked(dut):
    board = Board(dut)
    await board.meet()
    await board.meet(OTHER_MAC, OTHER)
    for sequence in range(20):
        source, port = random.choice([PEER, OTHER]), random.randrange(1 << 16)
        request = reads(*[place(0)] * random.randrange(1, 60))
        octets = request.encode(sequence % 16, SESSION, Ask.OPEN)
        board.give(udp(octets, port=LINK_PORT, source=source, source_port=port))
        frame = await board.datagram()
        assert (frame.ip.dst, frame.ip.udp.dport, frame.ip.udp.sport) == (source.packed, port, LINK_PORT)
        assert set(answer(frame.ip.udp.data).values) == {TCP}


@bench()
async def a_stranger_is_refused_and_found_by_broadcast(dut):
    board = Board(dut)
    await board.meet()
    await board.meet(OTHER_MAC, OTHER)
    broadcast = {"source": OTHER, "destination": BROADCAST, "to": BROADCAST_MAC}
    found = await board.ask(3, reads(), session=1, **broadcast)
    assert found.status & (Status.REFUSED | Status.FRESH) == Status.REFUSED | Status.FRESH
    await board.ask(0, reads(), Ask.OPEN)
    found = await board.ask(3, reads(place(0)), session=1, **broadcast)
    assert found.status & (Status.REFUSED | Status.FRESH) == Status.REFUSED
    assert found.values == []
    assert (await board.ask(1, reads(place(0)))).values == [TCP]


@bench()
async def memory_is_written_and_read(dut):
    board = Board(dut)
    await board.meet()
    words = [(connection, [random.getrandbits(32) for _ in range(40)]) for connection in (0, 1)]
    sequence = 0
    for connection, each in words:
        request = Request(1024)
        request.write(place(1 + connection, 0x2C4), 1024 * connection)
        for word in each:
            request.write(place(1 + connection, 0x2CC), word)
        await board.ask(sequence, request, Ask.OPEN)
        sequence += 1
    for connection, each in ((1 - connection, each) for connection, each in words):  # all have the same memory
        request = Request(1024)
        request.write(place(1 + connection, 0x2C4), 1024 * (1 - connection))
        for _ in each:
            request.read(place(1 + connection, 0x2D0))
        assert (await board.ask(sequence, request)).values == each
        sequence += 1


@bench()
async def two_requests_at_once_are_both_answered(dut):
    board = Board(dut)
    await board.meet()
    for sequence in range(0, 16, 2):
        for each in (0, 1):
            board.give(udp(reads(*[place(0)] * 50).encode(sequence + each, SESSION, Ask.OPEN), port=LINK_PORT))
        for each in (0, 1):
            found = answer((await board.datagram()).ip.udp.data)
            assert (found.sequence, len(found.values)) == (sequence + each, 50)


@bench()
async def the_uart_answers_what_came_through_it(dut):
    board = Board(dut)
    await board.meet()

    async def cycles(count):
        for _ in range(count):
            await RisingEdge(dut.clk)

    async def listen():
        octets = bytearray()
        while not octets.endswith(ZERO):
            while dut.tx.value:
                await RisingEdge(dut.clk)
            await cycles(PERIOD + PERIOD // 2)
            octet = 0
            for bit in range(8):
                octet |= int(dut.tx.value) << bit
                await cycles(PERIOD)
            octets.append(octet)
        return bytes(octets)

    for sequence in (0, 2):
        heard = cocotb.start_soon(listen())
        for octet in reads(place(0)).encode(sequence, SESSION, Ask.OPEN):
            for bit in (0, *(octet >> n & 1 for n in range(8)), 1):
                dut.rx.value = bit
                await cycles(PERIOD)
        assert answer(await heard).values == [TCP]
        assert (await board.ask(sequence + 1, reads(place(1)))).values == [MPA]


@bench()
async def a_storm_at_line_rate_is_counted_and_the_link_stays(dut):
    """A frame of 64 octets takes 33.6 cycles of the core at 1 Gb/s and 50 MHz."""
    board = Board(dut)
    await board.meet()
    storm = [
        udp(bytes(18), port=9, destination=BROADCAST, to=BROADCAST_MAC),
        udp(bytes(18), port=9, destination=OTHER, to=OTHER_MAC),
        ethernet(bytes(46), 0x86DD, bytes.fromhex("333300000001")),
    ]
    count = 0

    async def rage():
        nonlocal count
        while True:
            board.give(random.choice(storm))
            count += 1
            await ClockCycles(dut.clk, 33)

    raging = cocotb.start_soon(rage())
    for sequence in range(8):
        assert (await board.ask(sequence, reads(place(0)), Ask.OPEN)).values == [TCP]
    raging.cancel()
    await board.frames.drained()
    names = "RX_NO_ROOM", "RX_CHECKSUM", "RX_IGNORED", "CONFLICTS"
    found = await board.ask(8, reads(*(PATH[name].address for name in names)))
    assert count > 50
    assert found.values == [0, 0, count, 0]


@bench()
async def samples_of_the_fabric_reach_the_connection_that_has_the_sample_writer(dut):
    """The ring of the peer has no room, so what does not fit into the writer's buffer is dropped."""
    board = Board(dut)
    await board.meet()

    def at(page, name):
        return place(page, (SAMPLES | SIGNAL)[name].address)

    enable = Request(1024)
    for page in (2, 1):  # the first takes it
        enable.write(at(page, "SAMPLE_RING_STAG"), page)
        enable.write(at(page, "SAMPLE_CONTROL"), 0b11)
    assert len((await board.ask(0, enable, Ask.OPEN)).values) == 0
    dut.samples__valid.value = 1
    await ClockCycles(dut.clk, 3000)
    dut.samples__valid.value = 0
    names = "SAMPLE_IDENTITY", "SAMPLE_STATUS", "SAMPLE_RING_STAG", "SAMPLE_DROPPED_LO", "SIGNAL_IDENTITY"
    found = await board.ask(1, reads(*(at(page, name) for page in (1, 2) for name in names)))
    taken, pending = SAMPLES["SAMPLE_STATUS"]["taken"].mask, 0b1010
    assert found.values == [SAMPLER, taken, 0, 0, 0, SAMPLER, pending, 2, 3000 - SAMPLE_BUFFER // 4, 0]


@bench()
async def a_bus_of_the_design_around_has_the_registers_while_a_host_has_them(dut):
    board = Board(dut)
    await board.meet()
    accesses = 0

    async def access():
        nonlocal accesses
        while True:
            for page, identity in (0, TCP), (1, MPA), (RNIC_PAGE, RNIC), (77, 0):
                assert await access_register(dut, place(page) // 4) == identity
                accesses += 1

    accessing = cocotb.start_soon(access())
    for sequence in range(4):
        assert (await board.ask(sequence, reads(place(2), place(MAC_PAGE)), Ask.OPEN)).values == [MPA, 0x4D4143]
    accessing.cancel()
    await RisingEdge(dut.clk)
    assert accesses > 100


def test_linked_rnic():
    top = partial(
        LinkedRnic, 2, memory=MEMORY, period=PERIOD, fabric=Fabric.SAMPLES, station=STATION, registers=True
    )  # fmt: skip
    simulate(top, __name__)
