"""The MAC between a core and a PHY; the models of PHYs and of Ethernet's FCS are those of cocotbext-eth.

Simulated time is stretched, so that periods can differ by some millionths: what cocotb calls a nanosecond is
1 / SCALE of one.
"""

import functools
import random
import warnings
from collections import Counter
from fractions import Fraction

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import ClockCycles, FallingEdge, RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotbext.eth import GmiiFrame, GmiiSink, GmiiSource, RgmiiSink, RgmiiSource

from open_rnic.cocotb_tests.harness import Sink, Source, parameter, seen
from open_rnic.host_driver.devices.sim.register_bus import access_register
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with, start_clock
from open_rnic.rtl.mac.mac import MacCounts
from open_rnic.rtl.mac.registers import BY_NAME, Speed

# cocotbext-eth 0.1.28 still calls functions that cocotb 2 has renamed.
warnings.filterwarnings("ignore", category=DeprecationWarning, module=r"cocotbext\.eth")

SCALE = 10_000
PPM = Fraction(1, 1_000_000)
COUNTS = [name for name, _ in MacCounts()]
PADDING = 2
PERIODS = {Speed.MBIT_1000: 8, Speed.MBIT_100: 40, Speed.MBIT_10: 400}  # ns, of the clocks of RGMII and MII
SIZES = (*range(14, 72), *range(1500, 1515), 127, 128, 129, 255, 256, 511, 512, 513, 1023, 1024, 1025)


def start(signal, nanoseconds, offset=0):
    """Run a clock with this period, and an offset of its frequency in millionths, from any phase."""
    half = round(nanoseconds * SCALE / (1 + offset * PPM) / 2)

    async def run():
        signal.value = 0
        await Timer(1 + random.randrange(2 * half), "step")
        start_clock(signal, 2 * half)

    cocotb.start_soon(run())


def mac_bench(microseconds=10_000):
    """Mark a cocotb test, which gets a :class:`Bench`, and fails if it takes longer.

    The parameters ``core``, ``rx`` and ``tx`` are the periods of the clocks, ``rx_offset`` and ``tx_offset`` offsets.
    """

    def mark(body):
        async def run(dut):
            dut = seen(dut)
            for name, prefix in (("core", ""), ("rx", "mac_rx_"), ("tx", "mac_tx_")):
                if hasattr(dut, f"{prefix}clk"):
                    start(getattr(dut, f"{prefix}clk"), _given(name, 8), _given(f"{name}_offset", 0))
                    getattr(dut, f"{prefix}rst").value = 0
            try:
                await with_timeout(cocotb.start_soon(body(dut)), microseconds * 1000 * SCALE, "step")
            except SimTimeoutError:
                raise AssertionError(f"not finished after {microseconds} us") from None

        functools.update_wrapper(run, body)
        return cocotb.test()(run)

    return mark


def _given(name, default):
    try:
        return parameter(name)
    except KeyError:
        return default


class _GoodFrames:
    """The frames of a sink that are not bad."""

    def __init__(self, sink):
        self._sink = sink
        self._good = Queue()
        cocotb.start_soon(self._filter())

    async def _filter(self):
        while True:
            received = await self._sink.receive()
            if not received.fields["bad"]:
                self._good.put_nowait(received)

    async def receive(self):
        return await self._good.get()

    def empty(self):
        return self._good.empty()


class Core:
    """The core's side of a MAC: it sends and receives frames, and adds up the counts.

    With ``early``, the MAC may give it bad frames.
    """

    def __init__(self, dut, idle=None, backpressure=None, *, early=None):
        self.dut = dut
        if hasattr(dut, "enable"):
            dut.enable.value = 0
            cocotb.start_soon(self._count())
        self.source = Source(dut, "tx_frames", idle)
        self.sink = Sink(dut, "rx_frames", backpressure)
        if early is not None:
            self.sink = _GoodFrames(self.sink)
        self.counts = Counter(dict.fromkeys(COUNTS, 0))

    async def _count(self):
        while True:
            await RisingEdge(self.dut.clk)
            if word := level(self.dut.counts):
                for index, name in enumerate(COUNTS):
                    self.counts[name] += word >> 2 * index & 3
            else:
                await self.dut.counts.value_change

    async def begin(self):
        """Let the MAC run, and wait until it does."""
        self.dut.enable.value = 1
        await rises_with(RisingEdge(self.dut.clk), self.dut.running)

    async def end(self):
        """Stop the MAC, and wait until it has."""
        self.dut.enable.value = 0
        await RisingEdge(self.dut.clk)
        while self.dut.running.value:
            await RisingEdge(self.dut.clk)

    async def wait(self, cycles=60):
        if cycles > 2:  # without a look at each
            await Timer(round((cycles - 1.5) * _given("core", 8) * SCALE), "step")
            cycles = 1
        await ClockCycles(self.dut.clk, cycles)

    def send(self, frame):
        self.source.send(random.randbytes(PADDING) + frame)

    async def receive(self):
        octets, fields = await self.sink.receive()
        assert not fields["bad"]
        return octets[PADDING:]

    async def receive_all(self, frames):
        """Receive these frames, and no others."""
        for frame in frames:
            assert await self.receive() == frame
        await self.wait()
        assert self.sink.empty()

    def counted(self, **expected):
        """Check all counts; those that are not named are 0."""
        assert +self.counts == +Counter(expected)


class Registers:
    """The registers of an Ethernet port."""

    def __init__(self, dut):
        self.dut = dut
        dut.bus__request.value = 0

    async def access(self, name, word=None):
        return await access_register(self.dut, BY_NAME[name].address >> 2, word)

    async def read(self, name):
        """Return the fields of a register."""
        word = await self.access(name)
        return {field.name: field.get(word) for field in BY_NAME[name].fields}

    async def write(self, name, **fields):
        """Write a register; fields that are not named get 0."""
        await self.access(name, sum(BY_NAME[name][field].put(value) for field, value in fields.items()))

    async def counted(self, **expected):
        """Check all counts; those that are not named are 0."""
        for name in COUNTS:
            assert (await self.read(name.upper()))["value"] == expected.get(name, 0), name


class _Plain:
    """A signal for a model of cocotbext-eth, which reads and writes it at a tenth of the cost."""

    def __init__(self, signal):
        self._signal = signal

    def __getattr__(self, name):
        return getattr(self._signal, name)

    def __len__(self):
        return len(self._signal)

    @property
    def value(self):
        return level(self._signal)

    @value.setter
    def value(self, value):
        drive(self._signal, value)


class Phy:
    """GMII on the MAC's own ports, at 1 Gb/s. ``gaps`` has the octets before each transmitted frame but the first."""

    def __init__(self, dut):
        dut.rx_octets__strobe.value = dut.tx_octets__strobe.value = 1
        self.dut = dut
        received = (_Plain(getattr(dut, f"rx_octets__{name}")) for name in ("data", "error", "valid"))
        self.source = GmiiSource(*received, dut.mac_rx_clk)
        self.sink = GmiiSink(_Plain(dut.tx_octets__data), None, dut.tx_octets__valid, dut.mac_tx_clk)
        self.gaps = []
        cocotb.start_soon(self._watch())

    async def _watch(self):
        valid, data = self.dut.tx_octets__valid, self.dut.tx_octets__data
        idle = 0
        edge, sent = RisingEdge(self.dut.mac_tx_clk), False
        while True:
            await edge
            if level(valid):
                if idle and sent:
                    self.gaps.append(idle)
                idle, sent = 0, True
                await FallingEdge(valid)
            else:
                assert not level(data)
                idle += 1

    async def send(self, frame, gap=12):
        """Send a frame, at least so many octets behind the one before."""
        while not self.source.empty():
            await RisingEdge(self.dut.mac_rx_clk)
        self.source.ifg = gap  # is read at the end of that one, which has begun
        await self.source.send(frame)


class Rgmii:
    """A PHY with RGMII, which delays TXC by 2 ns."""

    def __init__(self, dut):
        self.dut = dut
        self.source = RgmiiSource(_Plain(dut.rx_data), _Plain(dut.rx_ctl), dut.rx_clk)
        self.sink = RgmiiSink(_Plain(dut.tx_data), dut.tx_ctl, dut.tx_clk_late)
        cocotb.start_soon(self._delay())

    async def _delay(self):
        """Delay TXC, but let it rest between frames, when the sink does not look at it."""
        clk, late, ctl = self.dut.tx_clk, self.dut.tx_clk_late, self.dut.tx_ctl
        edge, high, quiet = clk.value_change, 0, 0
        while True:
            await (RisingEdge(ctl) if quiet > 20 and not high else edge)
            await Timer(2 * SCALE, "step")
            drive(late, high := level(clk))
            quiet = 0 if level(ctl) else quiet + 1

    def set_speed(self, speed, offset=0):
        start_clock(self.dut.rx_clk, PERIODS[speed] * SCALE + 2 * offset)
        self.source.mii_mode = self.sink.mii_mode = speed != Speed.MBIT_1000
        self.source.ifg = 12 if speed == Speed.MBIT_1000 else 24
        if hasattr(self.dut, "speed"):
            self.dut.speed.value = int(speed)

    async def report(self, up, speed, full_duplex):
        await self.source.wait()
        await Timer(50 * SCALE, "step")
        self.dut.rx_data.value = up | speed << 1 | full_duplex << 3


    async def idle_at_low_power(self, cycles):
        """Report Low Power Idle at 1 Gb/s: RX_ER without RX_DV, and 1 in RXD (IEEE 802.3 Table 35-2)."""
        await self.source.wait()
        await Timer(50 * SCALE, "step")
        data, ctl, reported = self.dut.rx_data, self.dut.rx_ctl, level(self.dut.rx_data)
        await FallingEdge(self.dut.rx_clk)
        for _ in range(cycles):
            data.value, ctl.value = 1, 0  # at the rising edge
            await RisingEdge(self.dut.rx_clk)
            data.value, ctl.value = 0, 1
            await FallingEdge(self.dut.rx_clk)
        data.value, ctl.value = reported, 0


async def frames_pass_both_ways(core, phy, sizes, preamble=7):
    frames = [random.randbytes(size) for size in sizes]
    for frame in frames:
        core.send(frame)
        phy.source.send_nowait(good(frame))
    for frame in frames:
        assert await core.receive() == frame
        assert sent_well(await phy.sink.recv(), preamble) == frame


def sent_well(received, preamble=6):
    """Check preamble, SFD and FCS of a frame that a model of a PHY has received; return it without FCS."""
    assert received.error is None
    # GmiiSink leaves out the first octet of each frame.
    assert received.get_preamble() == b"\x55" * preamble + b"\xd5"
    assert received.check_fcs()
    return bytes(received.get_payload())


def good(octets):
    """Return a frame for the MAC to receive."""
    return GmiiFrame.from_payload(octets, min_len=0)


def random_frames(sizes=SIZES):
    """Return frames of these numbers of octets, without FCS, in any order."""
    return [random.randbytes(size) for size in random.sample(sizes, len(sizes))]
