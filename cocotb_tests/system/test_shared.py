# amaranth: UnusedElaboratable=no
"""Many connections over one data path: each does what it would do alone (rtl/mpa/shared_mpa.py)."""

import functools
import random

import pytest
from cocotb.triggers import gather

from open_rnic.cocotb_tests.collisions import colliding
from open_rnic.cocotb_tests.harness import Rate, bench, parameter, pauses, simulate, stalls
from open_rnic.cocotb_tests.harness.datapath import COUNTERS, _outcome, word_of
from open_rnic.cocotb_tests.harness.shared import SharedPath
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.system.test_fence import READ, RESPONSE, SEND, SUNK_READ, TERMINATE, WRITE
from open_rnic.host_driver.device import Event, Ulpdu
from open_rnic.host_driver.mpa.datapath import MpaDatapath as Twin
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.rtl.mpa.shared_mpa import RxSettings, SharedMpa, TxSettings
from open_rnic.rtl.mpa.shared_registers import EVENTS
from open_rnic.rtl.registers import MAP, EventKind, Model, Role, Rtr

LOST = {1: 2.2, 2: 3.2, 4: 3.2}  # cycles, at a change of connection, on average, by lanes
LANES = list(LOST)
FIRST = (b"", SEND, WRITE, READ, SUNK_READ, RESPONSE, TERMINATE)


def ulpdu(longest=60):
    sizes = (0, random.randrange(longest), 4 * random.randrange(longest // 4))
    return random.randbytes(random.choice(sizes))


class Life:
    """A connection from its reset on, beside a twin of its own that knows of no other connection."""

    def __init__(self, path, n):
        self.path, self.n, self.steps = path, n, []
        self.twin = Twin(lanes=parameter("lanes"), event_depth=EVENTS)

    async def write(self, name, value):
        await self.path.set(self.n, name, value)
        self.twin.write(name, value)

    async def begin(self, **config):
        """Reset the connection, and set it up at random; ``config`` fixes settings."""
        await self.path.reset(self.n)
        chosen = {
            "role": random.choice(list(Role)), "model": random.choice(list(Model)), "permissive": random.random() < 0.2,
            "rtr_send": random.choice(list(Rtr)), "rtr_accept": random.choice((7, 7, random.randrange(8))),
            **{name: random.getrandbits(1) for name in ("markers_tx", "markers_rx", "crc_tx", "crc_rx", "rdmap")},
            **config,
        }  # fmt: skip
        self.config = chosen
        await self.write("CONFIG", word_of("CONFIG", **chosen))
        offsets = [4 * random.randrange(128) for _ in range(2)]
        for name, offset in zip(("TX_MPA_OFFSET", "RX_MPA_OFFSET"), offsets, strict=True):
            await self.write(name, offset)
        self.longest = random.choice((200, 60))
        await self.write("RX_MAX_ULPDU", self.longest)
        await self.write("TX_MAX_ULPDU", self.longest)
        self.peer = FpduFramer(markers=bool(chosen["markers_rx"]), crc=bool(chosen["crc_rx"]), offset=offsets[1])
        self.tx = self.rx = False

    async def enable(self, tx=None, rx=None):
        self.steps.append(("enable", tx, rx))
        self.tx, self.rx = self.tx or bool(tx), self.rx or bool(rx)
        await self.path.enable(self.n, tx=self.tx, rx=self.rx)
        self.twin.write("CONTROL", word_of("CONTROL", tx_enable=self.tx, rx_enable=self.rx))

    def transmit(self, *ulpdus):
        self.steps.append(("transmit", [len(each) for each in ulpdus]))
        for each in ulpdus:
            self.twin.transmit(each)
            self.path.ulpdus[self.n].append((each, len(each)))

    def receive(self, *ulpdus, spoil=False):
        """Receive the ULPDUs; the last one may be spoilt."""
        self.steps.append(("receive", [each if each in FIRST else len(each) for each in ulpdus], spoil))
        for k, each in enumerate(ulpdus, 1):
            place = self.peer.offset // 4 % 128
            marked = self.config["markers_rx"] and self.peer.offset % 512 == 0
            train = self.peer.frame(each)
            if len(each) > self.longest and random.getrandbits(1):
                train = train[:8 if marked else 4]
            if spoil and k == len(ulpdus):
                train = train[:-1] + bytes([train[-1] ^ 1])
            self.twin.receive(train)
            self.path.trains[self.n].append((train, place))

    async def agree(self):
        """Wait until the RTL has sent and delivered as much as the twin, and compare everything."""
        path, n, twin = self.path, self.n, self.twin
        sent = [twin.mpa.pop() for _ in range(len(twin.mpa))]
        delivered = [twin.ulpdus.pop().octets for _ in range(len(twin.ulpdus))]
        waiting = len(twin._tx_waiting)
        await path.until(
            lambda: not path.trains[n] and len(path.ulpdus[n]) == waiting
            and len(path.sent[n]) >= len(sent) and len(path.delivered[n]) >= len(delivered),
            lambda: f"connection {n}: {len(path.ulpdus[n])} ULPDUs wait, not {waiting}; sent {len(path.sent[n])} of "
            f"{len(sent)}, delivered {len(path.delivered[n])} of {len(delivered)}; {self.config}, {self.steps}",
        )  # fmt: skip
        for _ in range(150):
            await path.edge
        events = list(iter(twin.take_event, Event(EventKind.NONE)))
        expected = _outcome(sent, [Ulpdu(each) for each in delivered], events)
        found = _outcome(path.sent[n][:], [Ulpdu(each) for each in path.delivered[n]], await path.events(n))
        for what, mine, its in zip(("sent", "delivered", "tx_events", "rx_events"), found, expected, strict=True):
            assert mine == its, f"{n}, {self.config}, {self.steps}: {what} {mine!r:.900}, in its twin {its!r:.900}"
        errors = sum(each.kind is EventKind.ERROR for each in events)
        names = ["STATE", "EVENT_STATUS", *COUNTERS]
        if errors < 2:
            names += ["ERROR", "ERROR_OFFSET_LO", "ERROR_OFFSET_HI"]
        for name in names:
            value = await path.get(n, name)
            assert value == twin.read(name), f"connection {n}: {name} is {value:#x}, {twin.read(name):#x} in its twin"
        path.sent[n].clear()
        path.delivered[n].clear()

    async def step(self):
        """Do something at random, and compare."""
        match random.choice(("transmit", "transmit", "receive", "receive", "receive", "error", "enable")):
            case "transmit":
                sizes = range(random.randint(1, 6))
                self.transmit(*(random.choice((*[ulpdu()] * 12, TERMINATE, bytes(201))) for _ in sizes))
            case "receive":
                first = random.choice(FIRST) if random.getrandbits(1) else ulpdu()
                self.receive(first, *(ulpdu() for _ in range(random.randrange(6))))
            case "error" if random.random() < 0.5:
                if random.getrandbits(1):
                    self.receive(bytes(201), ulpdu())
                else:
                    self.receive(ulpdu(), spoil=True)
            case _:
                await self.enable(tx=random.getrandbits(1), rx=True)
        await self.agree()


async def live(path, n, lives):
    for _ in range(lives):
        life = Life(path, n)
        await life.begin()
        await life.enable(tx=random.getrandbits(1), rx=True)
        await life.agree()
        for _ in range(random.randint(2, 8)):
            await life.step()
        if random.getrandbits(1):  # a reset while its octets are on their way
            life.receive(*(ulpdu() for _ in range(4)))


@bench(cycles=600_000)
async def each_connection_is_as_if_alone(dut):
    connections = parameter("connections")
    chance = random.choice((0, 0.2))
    path = SharedPath(dut, connections, pauses(chance), stalls(chance))
    await gather(*(live(path, n, parameter("lives")) for n in range(connections)))


@pytest.mark.parametrize(("connections", "lives", "lanes"), shortened(
    "all widths with all numbers of connections", 2,
    dict.fromkeys((
        (4, 8, 4), (16, 3, 1),
        (4, 4, 8), (4, 4, 16),  # above 4 lanes, receive has another queue, and more room in it
        *((connections, lives, lanes) for connections, lives in ((2, 16), (4, 8), (16, 3)) for lanes in LANES),
    )),
))  # fmt: skip
def test_each_connection_is_as_if_alone(connections, lives, lanes):
    simulate(functools.partial(colliding, SharedMpa, connections, lanes), each_connection_is_as_if_alone,
             parameters={"connections": connections, "lives": lives, "lanes": lanes})  # fmt: skip


async def opened(path, n, **config):
    """Return a life of connection ``n`` that may send and receive; without markers and errors."""
    life = Life(path, n)
    await life.begin(**{
        "role": Role.INITIATOR, "model": Model.CLIENT_SERVER, "markers_tx": 0, "markers_rx": 0, "permissive": 0,
        **config,
    })  # fmt: skip
    for name in ("RX_MAX_ULPDU", "TX_MAX_ULPDU"):
        await life.write(name, 1000)
    life.longest = 1000
    await life.enable(tx=True, rx=True)
    await life.agree()
    return life


@bench()
async def few_cycles_are_lost_at_a_change_of_connection(dut):
    connections = parameter("connections")
    path = SharedPath(dut, connections)
    lives = [await opened(path, n, markers_tx=n & 1, markers_rx=n & 1) for n in range(connections)]
    rates = Rate(dut, "tx_fpdu"), Rate(dut, "rx_fpdus")
    for size in (0, 1, 2, 3, 4, 14, 18, 21, 30, 64, 200):
        for rate in rates:
            rate.restart()
        changes = 48
        for k in range(1 + changes):
            life, octets = lives[k % connections], bytes(size)  # not a Terminate
            place = life.peer.offset // 4 % 128
            path.rx_fpdus.send(life.peer.frame(octets), place=place, connection=life.n)
            path.tx_ulpdu.send(octets, length=size, connection=life.n)
            life.twin.transmit(octets)
        await path.tx_ulpdu.drained()
        await path.rx_fpdus.drained()
        for _ in range(300):
            await path.edge
        lost = [(rate.used - rate.moved) / changes for rate in rates]
        dut._log.info("ULPDUs of %d octets: %.2f cycles lost in transmit, %.2f in receive", size, *lost)
        assert max(lost) <= LOST[parameter("lanes")], (size, lost)


@bench()
async def no_connection_waits_for_another_ones_fence_or_full_ring(dut):
    path = SharedPath(dut, parameter("connections"))
    shut = Life(path, 0)
    await shut.begin(role=Role.RESPONDER, model=Model.PEER_TO_PEER, rtr_accept=7, permissive=0, markers_rx=0)
    await shut.enable(tx=True, rx=True)
    full = Life(path, 1)
    path.dut.room.value = ~2 & (1 << path.connections) - 1
    await full.begin(role=Role.INITIATOR, model=Model.PEER_TO_PEER, rtr_send=Rtr.WRITE)
    await full.enable(tx=True, rx=True)
    shut.transmit(b"waits")
    await path.until(lambda: not path.tx_ulpdu._waiting, "a ULPDU is given to a shut fence")
    assert not path.sent[1]
    lives = [await opened(path, n) for n in range(2, path.connections)]
    for life in lives:
        life.transmit(*(ulpdu() for _ in range(5)))
        life.receive(*(ulpdu() for _ in range(5)))
        await life.agree()
    assert (path.sent[0], path.sent[1], len(path.ulpdus[0])) == ([], [], 1)
    path.dut.room.value = (1 << path.connections) - 1
    await full.agree()
    shut.receive(SUNK_READ)
    await shut.agree()


@bench()
async def a_flood_of_events_overflows_no_other_queue(dut):
    path = SharedPath(dut, parameter("connections"))
    quiet, loud = await opened(path, 0), await opened(path, 1)
    for _ in range(EVENTS + 2):
        await path._report(loud.n, EventKind.RX_MPA)
        loud.twin._emit(EventKind.RX_MPA)
    await loud.agree()
    await path.set(loud.n, "EVENT_STATUS", word_of("EVENT_STATUS", overflow=1))
    loud.twin.write("EVENT_STATUS", word_of("EVENT_STATUS", overflow=1))
    for life in (quiet, loud):
        await life.agree()
    assert int(dut.irq.value) == 0


@bench(cycles=600_000)
async def a_reset_right_behind_an_fpdu_leaves_no_count(dut):
    path = SharedPath(dut, parameter("connections"))
    for k in range(60):
        life = await opened(path, k % path.connections)
        (life.transmit if k & 1 else life.receive)(bytes(24))
        for _ in range(random.randrange(12)):
            await path.edge
        await path.reset(life.n)
        for _ in range(100):
            await path.edge
        for name in COUNTERS:
            assert await path.get(life.n, name) == 0, name


@bench()
async def pages_read_as_those_of_one_connection(dut):
    path = SharedPath(dut, parameter("connections"))
    life = await opened(path, path.connections - 1)
    for register in MAP:
        if not register.name.startswith(("CYCLES", "TX_STALLS", "RX_STALLS")):
            assert await path.get(life.n, register.name) == life.twin.read(register.name), register.name
        if register.name not in ("CONTROL", "EVENT_STATUS"):
            await life.write(register.name, 0xFFFF_FFFF)
            assert await path.get(life.n, register.name) == life.twin.read(register.name) or "CYCLES" in register.name
    dut.rx_settings__connection.value = life.n
    await path.set(life.n, "CONTROL", word_of("CONTROL", tx_enable=1))
    await path.edge
    rx = RxSettings.from_bits(dut.rx_settings__settings.value.to_unsigned())
    assert (rx.stream_octets, rx.enable, rx.markers) == (0xFFFF_FFFF, 0, 1)
    assert (rx.start, rx.maximum) == (127, 2048)
    dut.tx_settings__connection.value = life.n
    await path.edge
    tx = TxSettings.from_bits(dut.tx_settings__settings.value.to_unsigned())
    assert (tx.stream_octets, tx.enable) == (0xFFFF_FFFF, 1)
    first = await path.get(life.n, "CYCLES_LO")
    for _ in range(100):
        await path.edge
    assert 100 <= await path.get(life.n, "CYCLES_LO") - first <= 120
    assert first < 2000  # since its reset
    assert await path.get(life.n, "CYCLES_HI") == 0


@pytest.mark.parametrize("lanes", shortened("test_each_connection_is_as_if_alone has other widths", 1, [4, 1, 2]))
def test_of_four_connections(lanes):
    simulate(
        functools.partial(colliding, SharedMpa, 4, lanes),
        few_cycles_are_lost_at_a_change_of_connection, no_connection_waits_for_another_ones_fence_or_full_ring,
        a_flood_of_events_overflows_no_other_queue, a_reset_right_behind_an_fpdu_leaves_no_count,
        pages_read_as_those_of_one_connection,
        parameters={"connections": 4, "lanes": lanes},
    )  # fmt: skip


def test_parameters_are_checked():
    with pytest.raises(ValueError, match="a data path is shared by at least 2 connections, not 1"):
        SharedMpa(1)
    with pytest.raises(ValueError, match="lanes must be one of 1, 2, 4, 8, 16, not 3"):
        SharedMpa(4, 3)
    with pytest.raises(ValueError, match="store_and_forward must be a power of 2 from 128 on, not 100"):
        SharedMpa(4, store_and_forward=100)
