"""The base of all tests of the RTL: it runs simulations from pytest, and provides stream drivers inside simulations.

A test file holds both sides. pytest runs the functions called ``test_…``, which call :func:`simulate`. The simulation
imports the same file, and runs the benches that :func:`simulate` is given: functions that are marked with
:func:`bench`. A bench that no test runs is an error when pytest collects the tests (:mod:`.collected`)::

    @bench(cycles=1000)
    async def passes_packets(dut):
        source, sink = Source(dut, "i"), Sink(dut, "o", stalls(0.5))
        source.send(b"octets")
        assert (await sink.receive()).octets == b"octets"

    @pytest.mark.parametrize("lanes", LANES)
    def test_fifo(lanes):
        simulate(PacketFifo(lanes), passes_packets, parameters={"lanes": lanes})
"""

import functools
import importlib
import inspect
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4
from xml.etree import ElementTree

import cocotb
from cocotb.queue import Queue
from cocotb.regression import TestGenerator
from cocotb.triggers import Event, RisingEdge, SimTimeoutError, Timer, with_timeout
from cocotb.utils import get_sim_time

from open_rnic.cocotb_tests import coverage
from open_rnic.cocotb_tests.lengths import beside
from open_rnic.cocotb_tests.limits import HANG
from open_rnic.host_driver import ledger
from open_rnic.host_driver.build_folders import built
from open_rnic.host_driver.devices.sim.build import build, environment
from open_rnic.host_driver.devices.sim.look import look
from open_rnic.host_driver.devices.sim.signals import drive, level, rises_with, start_clock
from open_rnic.rtl.lib.lanes import LANES

PERIOD = 10  # ns
UNTIL_VALID = -1  # in a sink's ``backpressure``: ``ready`` is 0 until ``valid`` is 1
# Extra fields that are valid on the first beat of a packet; all others are valid on the last.
EVERY_BEAT_FIELDS = frozenset({"connection"})
FIRST_BEAT_FIELDS = frozenset({"length", "place", "source", "destination", "source_port", "destination_port"})


# --- outside the simulation ---------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A block in a simulation that has others beside it, which is faster to build than one simulation for each.

    ``make(key)`` makes the block for each of ``keys``, such as numbers of lanes; the part is that of ``key``. A bench
    sees the ports of the part alone, under their own names, with ``clk`` and ``rst``.
    """

    make: Callable[[Any], Any]
    key: Any
    keys: tuple[Any, ...]

    @property
    def name(self) -> str:
        """What the names of the ports begin with."""
        return f"part_{self.keys.index(self.key)}"

    @property
    def alone(self) -> functools.partial[Any]:
        """The maker of the block without the others."""
        return functools.partial(self.make, self.key)

    @property
    def together(self) -> functools.partial[Any]:
        """The maker of all blocks."""
        return functools.partial(_beside, self.make, self.keys)


def _beside(make: Callable[[Any], Any], keys: tuple[Any, ...]) -> Any:
    from open_rnic.cocotb_tests.rtl.together import Together  # not in simulations, which need no Amaranth

    return Together(**{Part(make, key, keys).name: make(key) for key in keys})


def at_width(make: Callable[[int], Any], lanes: int, among: Sequence[int] = LANES) -> Part:
    """Return the block ``make(lanes)`` beside those of the other widths ``among`` that the same run has."""
    return Part(make, lanes, beside(lanes, among))


def simulate(
    component: Any,
    *benches: Any,
    parameters: dict[str, Any] | None = None,
    seed: int | None = None,
    waves: bool = False,
    collects: bool = False,
    seconds: float = HANG,
) -> None:
    """Run benches of one module on an Amaranth component; raise AssertionError unless all of them run and pass.

    ``component`` may also be a ``functools.partial`` that makes the component; it is called only if there is no build
    of the component yet; or it is a :class:`Part`. ``__name__`` instead of benches means all of that module. Inside
    the simulation, :func:`parameter` returns the ``parameters``. ``seed``, or else the environment variable
    COCOTB_RANDOM_SEED, repeats a run; every failure reports its seed. After a failure the working folder is kept, with
    the log and, if ``waves`` is set, an FST file. ``collects`` enables functional coverage of an ``MpaDatapath``
    (:mod:`.coverage`), which increases the run time by half. ``seconds`` limits the wall time, to end a simulation in
    which time does not advance; :func:`bench` limits the number of cycles.
    """
    __tracebackhide__ = True
    test_module, names = chosen(benches)
    part = f"{component.name}__" if isinstance(component, Part) else ""
    component = component.together if isinstance(component, Part) else component
    simulation = build(component, waves=waves)
    streams = look(component, _streams) if isinstance(component, functools.partial) else _streams(component)
    streams = {name.removeprefix(part): each for name, each in streams.items() if name.startswith(part)}
    # One folder per test, so that old results of failed tests do not accumulate.
    test = os.environ.get("PYTEST_CURRENT_TEST", test_module).rpartition("/")[2].removesuffix(" (call)")
    if "PYTEST_CURRENT_TEST" not in os.environ:
        test += f"-{os.getpid()}"  # programs outside pytest may run several at once
    folder = built("tests") / re.sub(r"[^\w.-]+", "-", test)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if seed is None:
        seed = int(os.environ.get("COCOTB_RANDOM_SEED") or random.SystemRandom().getrandbits(32))
    variables = environment(test_module) | {
        "COCOTB_RESULTS_FILE": str(folder / "results.xml"),
        "COCOTB_RANDOM_SEED": str(seed),
        "COCOTB_TEST_FILTER": rf"^{re.escape(test_module)}\.({'|'.join(map(re.escape, names))})(/|$)",
        "COCOTB_TESTCASE": "",
        "PYTHONWARNINGS": "error",
        "BENCH": json.dumps({
            "parameters": parameters or {}, "streams": streams, "collects": collects, "part": part
        }),
    }
    began = ledger.started()
    with open(folder / "log", "w") as log:
        try:
            command = simulation.command(folder / "waves.fst" if waves else None)
            code = subprocess.run(
                command, cwd=folder, env=variables, stdout=log, stderr=log, timeout=seconds, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    ledger.note("simulation", simulation.folder.name, model=ledger.started() - began)
    problems = _problems(folder / "results.xml", names)
    if code is None:
        problems.append(f"not finished after {seconds} s")
    elif code:
        problems.append(f"exit code {code}")
    if problems:
        tail = (folder / "log").read_text(errors="replace")[-6000:]
        raise AssertionError("\n".join([tail, *problems, f"seed {seed}, log in {folder}"]))
    if not waves:
        shutil.rmtree(folder)


def benches_of(module: Any) -> list[Any]:
    """Return the benches that a module defines."""
    found = (each for each in vars(module).values() if isinstance(each, TestGenerator))
    return [each for each in found if each.module == module.__name__]


def chosen(benches: tuple[Any, ...]) -> tuple[str, list[str]]:
    """Return the module, as the simulation imports it, and the names of the ``benches`` of :func:`simulate`."""
    if len(benches) == 1 and isinstance(benches[0], str):
        benches = tuple(benches_of(importlib.import_module(benches[0])))
    modules = {each.module for each in benches}
    if len(modules) != 1:
        raise ValueError(f"benches of one module are needed, not of {sorted(modules) or 'none'}")
    (module,) = modules
    if module == "__main__":
        module = sys.modules[module].__spec__.name  # type: ignore[union-attr]
    return module, [each.name for each in benches]


def _streams(component: Any) -> dict[str, dict[str, tuple[int, int]]]:
    """Return the fields of each packet stream among the ports: their least significant bits and widths."""
    return {
        "__".join(map(str, path[:-1])): {key: (field.offset, field.width) for key, field in member.shape}
        for path, member, _ in component.signature.flatten(component)
        if path[-1] == "payload" and hasattr(member.shape, "members")
    }


def _problems(results: Path, benches: Iterable[str] = ()) -> list[str]:
    if not results.is_file():
        return ["the simulation left no results"]
    cases = list(ElementTree.parse(results).iter("testcase"))
    failures = [
        f"{case.get('name')}: {each.get('message') or each.get('error_msg') or each.tag}"
        for case in cases
        for each in case
        if each.tag in ("failure", "error")
    ]
    # A bench with parameters has a case for each of their values: "name/parameter=value".
    ran = {str(case.get("name")).partition("/")[0] for case in cases if case.find("skipped") is None}
    return failures + [f"the bench {each} did not run" for each in benches if each not in ran]


# --- inside the simulation ----------------------------------------------------------------------


@functools.cache
def _bench() -> dict[str, Any]:
    return json.loads(os.environ["BENCH"])


def parameter(name: str) -> Any:
    """Return an entry of the ``parameters`` of :func:`simulate`."""
    return _bench()["parameters"][name]


class Within:
    """The ports whose names begin with ``prefix``, under the rest of their names; all others under their own."""

    def __init__(self, dut: Any, prefix: str):
        self._dut, self._prefix = dut, prefix

    def __getattr__(self, name: str) -> Any:
        inside = getattr(self._dut, self._prefix + name, None)
        found = getattr(self._dut, name) if inside is None else inside
        setattr(self, name, found)  # so that it is not looked up again
        return found

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def seen(dut: Any) -> Any:
    """Return the ports that a bench sees: those of its :class:`Part`, or all."""
    part = _bench()["part"]
    return Within(dut, part) if part else dut


def bench(cycles: int = 100_000, **options: Any) -> Callable[[Callable[..., Awaitable[None]]], Any]:
    """Mark a coroutine function as a cocotb test that starts after reset, and fails if it takes more than ``cycles``.

    ``options`` are passed to ``cocotb.test``.
    """

    def mark(body: Callable[..., Awaitable[None]]) -> Any:
        async def run(dut: Any, **arguments: Any) -> None:
            dut = seen(dut)
            if hasattr(dut, "clk"):
                start_clock(dut.clk, PERIOD)
                dut.rst.value = 1
                await RisingEdge(dut.clk)
                await RisingEdge(dut.clk)
                dut.rst.value = 0
            finish = _collect(dut)
            try:
                await with_timeout(cocotb.start_soon(body(dut, **arguments)), cycles * PERIOD, "ns")
            except SimTimeoutError:
                raise AssertionError(f"not finished after {cycles} cycles") from None
            finish()

        functools.update_wrapper(run, body)
        run.__signature__ = inspect.signature(body)  # type: ignore[attr-defined]
        return cocotb.test(**options)(run)

    return mark


def _collect(dut: Any) -> Callable[[], None]:
    """Start to collect functional coverage if it is enabled; returns a function that ends the collection."""
    folder = coverage.folder()
    if folder is None or not _bench()["collects"]:
        return lambda: None
    from open_rnic.cocotb_tests.collector import Collector

    collector = Collector(dut)
    cocotb.start_soon(collector.run())

    def finish() -> None:
        collector.close()
        coverage.write(folder / f"{uuid4().hex}.json", coverage.numbers(collector.seen))

    return finish


async def cycles(dut: Any, count: int) -> None:
    """Wait for ``count`` rising clock edges, without looking at each; begins right after one of them."""
    if count > 0:
        await Timer(count * PERIOD - PERIOD // 2, "ns")
        await RisingEdge(dut.clk)


def pauses(chance: float = 0.3, longest: int = 4, seed: Any = None) -> Iterator[int]:
    """Yield numbers of cycles to wait before each beat: 1 to ``longest`` with probability ``chance``, otherwise 0."""
    rng = random.Random(random.getrandbits(64) if seed is None else seed)
    while True:
        yield rng.randint(1, longest) if rng.random() < chance else 0


def stalls(chance: float = 0.3, longest: int = 4, seed: Any = None) -> Iterator[int]:
    """Yield stalls before each beat: with probability ``chance``, for 1 to ``longest`` cycles, or until ``valid`` is 1.

    Only the latter detects a block whose ``valid`` waits for ``ready``, which ``rtl.lib.stream`` forbids.
    """
    rng = random.Random(random.getrandbits(64) if seed is None else seed)
    for pause in pauses(chance, longest, rng.random()):
        yield UNTIL_VALID if pause and rng.random() < 0.5 else pause


def never() -> Iterator[int]:
    """Yield zeros: no waiting, one beat per cycle."""
    while True:
        yield 0


class Received(NamedTuple):
    """A received packet: its octets, and its extra fields."""

    octets: bytes
    fields: dict[str, int]


class _Driver:
    def __init__(self, dut: Any, prefix: str):
        self.name = prefix
        fields: dict[str, tuple[int, int]] = dict(_bench()["streams"][prefix])
        self.octets_per_beat = fields["data"][1] // 8
        self._octets = fields["octets"]
        self._last = fields["last"][0]
        self._extra = {name: where for name, where in fields.items() if name not in ("data", "octets", "last")}
        self._payload = getattr(dut, f"{prefix}__payload")
        self._valid = getattr(dut, f"{prefix}__valid")
        self._ready = getattr(dut, f"{prefix}__ready")
        self._edge = RisingEdge(dut.clk)

    def beats(self, octets: int) -> int:
        """Return the number of beats in a packet of ``octets`` octets."""
        return max(1, -(-octets // self.octets_per_beat))


class Source(_Driver):
    """Sends packets on the stream whose ports begin with ``prefix``; ``idle`` yields cycles to wait before each beat.

    Everything that is not valid is driven with random values: unused octets, fields in beats in which they are not
    valid, and the payload while ``valid`` is 0.
    """

    def __init__(self, dut: Any, prefix: str, idle: Iterator[int] | None = None):
        super().__init__(dut, prefix)
        self._idle = idle or never()
        self._queue: Queue[tuple[bytes, dict[str, int]]] = Queue()
        self.transfers = 0  # beats that have been transferred
        self._waiting = 0
        self._drained = Event()
        self._rng = random.Random(random.getrandbits(64))
        drive(self._valid, 0)
        cocotb.start_soon(self._run())

    def send(self, octets: bytes, **fields: int) -> None:
        """Queue a packet; does not wait."""
        if fields.keys() != self._extra.keys():
            raise ValueError(f"{self.name} has the fields {sorted(self._extra)}, not {sorted(fields)}")
        self._waiting += 1
        self._drained.clear()
        self._queue.put_nowait((octets, fields))

    async def drained(self) -> None:
        """Wait until all queued packets have been transferred."""
        while self._waiting:
            await self._drained.wait()

    def _beats(self, octets: bytes, fields: dict[str, int]) -> Iterator[int]:
        size, (octets_lsb, octets_width) = self.octets_per_beat, self._octets
        count = self.beats(len(octets))
        for index in range(count):
            first, last = index == 0, index == count - 1
            chunk = octets[index * size : (index + 1) * size]
            word = int.from_bytes(chunk + self._rng.randbytes(size - len(chunk)), "little") | last << self._last
            word |= (len(chunk) if last else self._rng.getrandbits(octets_width)) << octets_lsb
            for name, (lsb, width) in self._extra.items():
                meant = first if name in FIRST_BEAT_FIELDS else last or name in EVERY_BEAT_FIELDS
                word |= (fields[name] if meant else self._rng.getrandbits(width)) << lsb
            yield word

    async def _run(self) -> None:
        width = len(self._payload)
        while True:
            if self._queue.empty():
                drive(self._valid, 0)
                drive(self._payload, self._rng.getrandbits(width))
                packet = await self._queue.get()
                await self._edge
            else:
                packet = self._queue.get_nowait()
            for word in self._beats(*packet):
                if pause := next(self._idle):
                    drive(self._valid, 0)
                    drive(self._payload, self._rng.getrandbits(width))
                    for _ in range(pause):
                        await self._edge
                drive(self._valid, 1)
                drive(self._payload, word)
                await rises_with(self._edge, self._ready)
                self.transfers += 1
            self._waiting -= 1
            if not self._waiting:
                self._drained.set()


class Beats:
    """Takes single beats from the stream whose ports begin with ``prefix``, whatever its payload is.

    ``backpressure`` yields the number of cycles to stall before each beat, or UNTIL_VALID: see :func:`stalls`. The
    transfer rules of ``rtl.lib.stream`` are checked: AssertionError is raised if they are violated. While ``resets`` is
    set, a reset may withdraw a beat.
    """

    def __init__(self, dut: Any, prefix: str, backpressure: Iterator[int] | None = None):
        self.name = prefix
        self._payload = getattr(dut, f"{prefix}__payload")
        self._valid = getattr(dut, f"{prefix}__valid")
        self._ready = getattr(dut, f"{prefix}__ready")
        self._edge = RisingEdge(dut.clk)
        self._pauses = backpressure or never()
        self.transfers = 0
        self.resets = False
        drive(self._ready, 0)

    async def take(self) -> int:
        """Wait for the next beat, and return its payload."""
        held = None
        if pause := next(self._pauses):
            drive(self._ready, 0)
        if pause == UNTIL_VALID:
            await rises_with(self._edge, self._valid)
            held = self._check(None)
        for _ in range(pause):
            await self._edge
            held = self._check(held)
        drive(self._ready, 1)
        if held is not None:
            await self._edge
            held = self._check(held)
        if held is None:  # also if a reset has withdrawn it
            await rises_with(self._edge, self._valid)
            held = self._check(None)
        self.transfers += 1
        return held

    def _check(self, held: int | None) -> int | None:
        """Return the payload if ``valid`` is set; a payload that was ``held`` must not have changed."""
        word = level(self._payload) if level(self._valid) else None
        assert self.resets or held in (None, word), f"{self.name}: a beat was changed or withdrawn before its transfer"
        return word


class Sink(_Driver):
    """Receives packets from the stream whose ports begin with ``prefix``, and checks the rules of packet streams.

    ``backpressure`` and the other checks: see :class:`Beats`.
    """

    def __init__(self, dut: Any, prefix: str, backpressure: Iterator[int] | None = None):
        super().__init__(dut, prefix)
        self.port = Beats(dut, prefix, backpressure)
        self._packets: Queue[Received] = Queue()
        self._task = cocotb.start_soon(self._run())

    async def receive(self) -> Received:
        """Wait for the next packet, and return it."""
        return await self._packets.get()

    @property
    def transfers(self) -> int:
        """The number of beats that have been transferred."""
        return self.port.transfers

    def restart(self) -> None:
        """Forget all packets that have been received, and what has come of the next one."""
        self._task.cancel()
        self._packets = Queue()
        self._task = cocotb.start_soon(self._run())

    def empty(self) -> bool:
        """Whether no packet is waiting to be received."""
        return self._packets.empty()

    async def _run(self) -> None:
        size, (octets_lsb, octets_width) = self.octets_per_beat, self._octets
        data, octets_mask = (1 << 8 * size) - 1, (1 << octets_width) - 1
        while True:
            packet, fields, last, first = bytearray(), dict.fromkeys(self._extra, 0), 0, True
            while not last:
                word = await self.port.take()
                last = word >> self._last & 1
                count = word >> octets_lsb & octets_mask if last else size
                assert (0 if first else 1) <= count <= size, f"{self.name}: octets is {count} in a last beat"
                packet += (word & data).to_bytes(size, "little")[:count]
                for name, (lsb, width) in self._extra.items():
                    if first if name in FIRST_BEAT_FIELDS else last:
                        fields[name] = word >> lsb & ((1 << width) - 1)
                first = False
            self._packets.put_nowait(Received(bytes(packet), fields))


class Beat(NamedTuple):
    """A beat of a stream: its valid octets, whether it is the last one of a packet, and its other fields."""

    octets: bytes
    last: bool
    fields: dict[str, int]


class Probe(_Driver):
    """Observes a stream between two other parties, without driving anything."""

    def offered(self) -> bool:
        """Whether ``valid`` is set in this cycle, with or without a transfer."""
        return bool(level(self._valid))

    def moved(self) -> Beat | None:
        """Return the beat that is transferred in this cycle, if any; to be called right after a rising clock edge."""
        if not (level(self._valid) and level(self._ready)):
            return None
        word = level(self._payload)
        last = word >> self._last & 1
        lsb, width = self._octets
        count = word >> lsb & ((1 << width) - 1) if last else self.octets_per_beat
        octets = (word & ((1 << 8 * self.octets_per_beat) - 1)).to_bytes(self.octets_per_beat, "little")[:count]
        fields = {name: word >> lsb & ((1 << width) - 1) for name, (lsb, width) in self._extra.items()}
        return Beat(octets, bool(last), fields)


class Monitor(Probe):
    """Collects the packets of a stream between two other parties."""

    def __init__(self, dut: Any, prefix: str):
        super().__init__(dut, prefix)
        self._packets: Queue[Received] = Queue()
        cocotb.start_soon(self._run())

    async def receive(self) -> Received:
        """Wait for the next packet, and return it."""
        return await self._packets.get()

    async def _run(self) -> None:
        packet, first = bytearray(), {}
        while True:
            await rises_with(self._edge, self._valid)
            if beat := self.moved():
                first = first or {name: value for name, value in beat.fields.items() if name in FIRST_BEAT_FIELDS}
                packet += beat.octets
                if beat.last:
                    self._packets.put_nowait(Received(bytes(packet), beat.fields | first))
                    packet, first = bytearray(), {}


class Rate(_Driver):
    """Counts transferred beats (``moved``), and the cycles from the first to the last of them, inclusive (``used``)."""

    def __init__(self, dut: Any, prefix: str):
        super().__init__(dut, prefix)
        self.moved = self.used = 0
        cocotb.start_soon(self._run())

    async def _run(self) -> None:
        while True:
            await rises_with(self._edge, self._valid)
            if level(self._ready):
                now = int(get_sim_time("ns"))
                if not self.moved:
                    began = now
                self.moved += 1
                self.used = (now - began) // PERIOD + 1

    def restart(self) -> None:
        """Restart the counts: the next beat is the first one."""
        self.moved = self.used = 0
