"""Measure the cost of each stage on this machine's processor: compile ``kernels.c``, compare it with Python, time it.

All results are in clock cycles: nanoseconds times the clock frequency. The frequency is measured before and after each
sample by a chain of instructions that take one cycle each. If the two differ, something else was running, and the
sample is discarded. The result is the first quartile of the samples: interruptions only add time, but a change of the
clock can shift a sample in either direction.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import hashlib
import os
import platform
import random
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import as_file, files
from pathlib import Path
from statistics import quantiles

from crc32c import crc32c

from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.bench.rtl.store import folder
from open_rnic.host_driver.tools.split.profile import Calls, Copies, Cost, Figure, Host, Placement, Rate, dump, read

__all__ = ["SIZES", "Kernels", "MeasureError", "measure", "this_host"]

SIZES = (64, 128, 256, 512, 1024, 1428, 4096, 8880)  #: octets of the FPDUs to which costs are fitted
ROUNDS = 150
CONNECTIONS = 100
CALLS = (1024, 4096, 16384, 65536)  #: octets of the calls of TCP to which costs are fitted
COMMAND = "rnic split --measure"
_TCP_ROUNDS = 31
_TCP_OCTETS = 4 << 20  # in a sample, but at most _TCP_CALLS calls
_TCP_CALLS = 3000
_MSS = 1460  # octets
_CACHED = 16384  # octets to read, and as many to write: both fit into a first-level cache
_SPARE = 2 * 65536 + (256 << 10)  # scatter writes within 256 KiB
_MEMORY = 192 << 20  # octets, more than fit into caches
_LARGE = 65536  # octets of a copy from memory
_PIECE = 128  # octets
_CLOCK = 20000  # instructions
_ENOUGH = 20  # smallest number of valid samples
_BURST = 60000.0  # nanoseconds that a sample should take: less than a time slice of the scheduler
_OPTIONS = ("-O3", "-shared", "-fPIC", "-fvisibility=hidden", "-std=gnu11")


class MeasureError(Exception):
    """A measurement is not possible on this machine; the message is one line with the reason."""


class Kernels:
    """The functions of ``kernels.c``, compiled by the system's C compiler; raises MeasureError if it is missing."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(_compiled()))
        declared = {
            "kernel_name": (ctypes.c_char_p, [ctypes.c_size_t]),
            "nanoseconds": (ctypes.c_double, [ctypes.c_size_t, ctypes.c_void_p, *[ctypes.c_size_t] * 3, ctypes.c_long]),
            "clock_ghz": (ctypes.c_double, [ctypes.c_long]),
            "counter_ghz": (ctypes.c_double, [ctypes.c_long]),
            "insert_markers": (ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_size_t] * 2]),
            "remove_markers": (ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_size_t] * 2]),
            "tcp_send": (ctypes.c_double, [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_long]),
            "tcp_receive": (
                ctypes.c_double,
                [ctypes.c_int, ctypes.c_char_p, *[ctypes.c_size_t] * 2, ctypes.c_long],
            ),
        }
        for name, (result, arguments) in declared.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments

    @cached_property
    def names(self) -> dict[str, int]:
        """The kernels that this processor can run, by name, with their numbers."""
        found: dict[str, int] = {}
        while (name := self._library.kernel_name(nth := len(found))) is not None:
            found[name.decode() or f"not here {nth}"] = nth
        return {name: nth for name, nth in found.items() if not name.startswith("not here")}

    @property
    def tiers(self) -> list[str]:
        """The available methods to compute a CRC-32C."""
        return [name.removeprefix("crc-") for name in self.names if name.startswith("crc-")]

    def crc(self, tier: str, octets: bytes) -> int:
        """Return the CRC-32C of ``octets``, computed by method ``tier``."""
        function = getattr(self._library, f"crc_{tier}")
        function.restype, function.argtypes = ctypes.c_uint32, [ctypes.c_char_p, ctypes.c_size_t]
        return int(function(octets, len(octets)))

    def insert_markers(self, covered: bytes, place: int) -> bytes:
        """Insert markers into an FPDU without its CRC, which begins ``place`` octets behind the start of a marker."""
        return self._copied(self._library.insert_markers, covered, place)

    def remove_markers(self, marked: bytes, place: int) -> bytes:
        """Remove the markers again; returns no octets if an FPDUPTR is wrong."""
        return self._copied(self._library.remove_markers, marked, place)

    @staticmethod
    def _copied(function: Callable[..., int], octets: bytes, place: int) -> bytes:
        to = ctypes.create_string_buffer(len(octets) + len(octets) // 64 + 64)
        written = function(to, octets, len(octets), place)
        return to.raw[:written]

    def clock_ghz(self) -> float:
        """Return the current clock frequency, in cycles per nanosecond."""
        return float(self._library.clock_ghz(_CLOCK))

    def counter_ghz(self) -> float:
        """Return the frequency of the processor's time stamp counter in GHz, or 0 if there is none."""
        return float(self._library.counter_ghz(10_000_000))

    def nanoseconds(self, name: str, room: ctypes.Array[ctypes.c_char], octets: int, calls: int) -> float:
        """Return the time of one of ``calls`` calls. ``room`` holds source octets, as many to write, and ``_SPARE``."""
        span = (len(room) - _SPARE) // 2
        return float(self._library.nanoseconds(self.names[name], room, span, octets, _PIECE, calls))


    def tcp(self, octets: int, calls: int) -> tuple[float, float]:
        """Return the processor time of both ends of TCP over loopback, in nanoseconds for each call of send."""
        room = ctypes.create_string_buffer(CALLS[-1])
        with _pair() as (one, other), ThreadPoolExecutor(1) as thread:
            there = thread.submit(self._library.tcp_receive, other.fileno(), room, len(room), octets, calls)
            here = self._library.tcp_send(one.fileno(), bytes(octets), octets, calls)
            return float(here), float(there.result())


@contextlib.contextmanager
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two ends of a TCP connection over loopback, whose MSS is that of Ethernet."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        one = stack.enter_context(socket.socket())
        for each in (listener, one):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, _MSS)
        one.connect(listener.getsockname())
        other = stack.enter_context(listener.accept()[0])
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield one, other


def check(kernels: Kernels) -> None:
    """Compare the kernels with the software data path; raises MeasureError if they differ."""
    rng = random.Random(1)
    octets = rng.randbytes(100_001)
    for tier in kernels.tiers:
        for length in (*range(600), 1428, 4096, 8880, 65535, len(octets)):
            if kernels.crc(tier, octets[:length]) != crc32c(octets[:length]):
                raise MeasureError(f"the CRC-32C of {length} octets, done by {tier}, is wrong")
    for _ in range(300):
        ulpdu, place = rng.randbytes(rng.randrange(3000)), 4 * rng.randrange(128)
        covered, marked = (
            FpduFramer(markers=markers, crc=False, offset=place).frame(ulpdu)[:-4] for markers in (False, True)
        )
        if kernels.insert_markers(covered, place) != marked or kernels.remove_markers(marked, place) != covered:
            raise MeasureError(f"the markers of a ULPDU of {len(ulpdu)} octets at place {place} are wrong")


@dataclass(frozen=True)
class _Case:
    name: str
    octets: int
    from_memory: bool = False


def measure(progress: Callable[[int, int], None] = lambda done, total: None) -> Host:
    """Measure this machine. Takes a few seconds, or longer if the machine is busy. Raises MeasureError.

    ``progress`` is called with the number of steps done and the total number of steps.
    """
    kernels = Kernels()
    check(kernels)
    fitted = ["copies", "marker-insertion", "marker-removal", *(f"crc-{tier}" for tier in kernels.tiers)]
    fixed = ["nothing", "framing-transmit", "framing-receive", "fence", "rtr-detection",
             "placement-transmit", "placement-receive"]  # fmt: skip
    cases = [_Case(name, octets) for name in fitted for octets in SIZES]
    cases += [_Case(name, 1428) for name in fixed] + [_Case("scatter", octets) for octets in (1024, 2048)]
    cases += [_Case("copies", _LARGE, from_memory=True)]
    taken, ghz = _cycles(kernels, cases, lambda done: progress(done, ROUNDS + 2))
    transmit, receive = _tcp(kernels)
    progress(ROUNDS + 1, ROUNDS + 2)
    startup = asyncio.run(_startup())
    progress(ROUNDS + 2, ROUNDS + 2)
    loop = taken[_Case("nothing", 1428)]

    def fixed_cost(name: str) -> Figure:
        return Figure(round(max(taken[_Case(name, 1428)] - loop, 0.0), 2), f"{COMMAND}: {name}, less an empty call")

    def fit(name: str) -> Cost:
        points = [(octets, max(taken[_Case(name, octets)] - loop, 0.1)) for octets in SIZES]
        fixed, each, worst = _line(points)
        source = f"{COMMAND}: {name}, fit to FPDUs of {SIZES[0]} to {SIZES[-1]} octets, at most {worst:.0%} off"
        return Cost(Figure(round(each, 4), source), Figure(round(fixed, 1), source))

    def nothing_more(name: str) -> Cost:
        return Cost(Figure(0.0, "by definition: the stage does not read the octets of the ULPDU"), fixed_cost(name))

    pieces = (2048 - 1024) // _PIECE
    piece = (taken[_Case("scatter", 2048)] - taken[_Case("scatter", 1024)]) / pieces
    copies = fit("copies")
    per_piece = Figure(
        round(max(piece - _PIECE * copies.per_octet.value, 0.0), 2),
        f"{COMMAND}: scatter, pieces of {_PIECE} octets anywhere in 256 KiB, less a copy of as many octets",
    )
    memory = taken[_Case("copies", _LARGE, from_memory=True)] / _LARGE
    nowhere = Figure(0.0, "by definition: the corresponding gather is counted on receive")
    return Host(
        title=f"{_processor()}, measured",
        clock_hz=Rate(round(ghz * 1e9, -7), f"{COMMAND}: a chain of XORs, of one cycle each, at its fastest; "
                      f"the time stamp counter counts {kernels.counter_ghz():.2f} GHz"),
        startup_cycles=Figure(
            round(startup * ghz * 1e9, -3),
            f"{COMMAND}: processor time of both ends of a connection over loopback until it is closed, in Python, "
            f"median of 3 times {CONNECTIONS}, as rnic bench host measures it, times the clock",
        ),
        crc={tier: fit(f"crc-{tier}") for tier in kernels.tiers},
        marker_insertion=fit("marker-insertion"),
        marker_removal=fit("marker-removal"),
        framing_transmit=nothing_more("framing-transmit"),
        framing_receive=nothing_more("framing-receive"),
        fence=nothing_more("fence"),
        rtr_detection=nothing_more("rtr-detection"),
        placement_transmit=Placement(fixed_cost("placement-transmit"), nowhere),
        placement_receive=Placement(fixed_cost("placement-receive"), per_piece),
        copies=Copies(
            copies.per_octet,
            Figure(round(memory, 4), f"{COMMAND}: copies of {_LARGE} octets, each from and to another place of "
                   f"{_large() >> 20} MiB"),
            copies.per_fpdu,
            _cache(),
        ),
        tcp_transmit=transmit,
        tcp_receive=receive,
    )  # fmt: skip


def this_host(progress: Callable[[int, int], None] = lambda done, total: None, *, anew: bool = False) -> Host:
    """Return this machine's figures: kept ones of the same kernels and processor, or new ones if there are none."""
    sources = (files(__package__) / "kernels.c").read_bytes() + Path(__file__).read_bytes()
    digest = hashlib.sha256(sources + _processor().encode()).hexdigest()[:16]
    path = folder() / f"host-{digest}.toml"
    if not anew and path.exists():
        return read(Host, path.read_text(), str(path))
    host = measure(progress)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(dump(host))
    fresh.replace(path)
    return host


def _cycles(
    kernels: Kernels, cases: Sequence[_Case], progress: Callable[[int], None]
) -> tuple[dict[_Case, float], float]:
    """Return the clock cycles of one call of each case, and the fastest clock in GHz."""
    rooms = {False: _room(_CACHED), True: _room(_large())}
    calls = {}
    for case in cases:
        once = min(kernels.nanoseconds(case.name, rooms[case.from_memory], case.octets, 10) for _ in range(5))
        calls[case] = max(3, int(_BURST / max(once, 1.0)))
    samples: dict[_Case, list[float]] = {case: [] for case in cases}
    fastest = 0.0
    for nth in range(20 * ROUNDS):
        if nth >= ROUNDS and min(map(len, samples.values())) >= _ENOUGH:
            break
        for case in cases:
            before = kernels.clock_ghz()
            spent = kernels.nanoseconds(case.name, rooms[case.from_memory], case.octets, calls[case])
            after = kernels.clock_ghz()
            if abs(before - after) < 0.01 * before:
                fastest = max(fastest, before, after)
                samples[case].append(spent * (before + after) / 2)
        progress(min(nth + 1, ROUNDS))
    if min(map(len, samples.values())) < _ENOUGH:
        raise MeasureError("this machine is too busy to measure: its clock frequency never stays the same")
    return {case: quantiles(found, n=4)[0] for case, found in samples.items()}, fastest


def _tcp(kernels: Kernels) -> tuple[Calls, Calls]:
    """Return the cost of TCP at both ends. Over loopback, the sender's thread also does what a packet causes."""
    samples: dict[int, list[tuple[float, float]]] = {octets: [] for octets in CALLS}
    for _ in range(_TCP_ROUNDS):
        for octets, found in samples.items():
            before = kernels.clock_ghz()
            times = kernels.tcp(octets, max(min(_TCP_OCTETS // octets, _TCP_CALLS), 16))
            ghz = (before + kernels.clock_ghz()) / 2
            if min(times) < 0:
                raise MeasureError("TCP over loopback failed")
            found.append((times[0] * ghz, times[1] * ghz))
    fitted = []
    for end, name in enumerate(("send", "receive")):
        points = [(octets, quantiles([each[end] for each in found], n=4)[0]) for octets, found in samples.items()]
        fixed, each, worst = _line(points)
        source = (f"{COMMAND}: processor time of the thread that {name}s over loopback, MSS {_MSS:,}, where the one "
                  f"that sends also does what arrives; fit to calls of {CALLS[0]} to {CALLS[-1]} octets, at most "
                  f"{worst:.0%} off")  # fmt: skip
        fitted.append(Calls(Figure(round(each, 4), source), Figure(round(fixed, 1), source)))
    return fitted[0], fitted[1]


def _room(span: int) -> ctypes.Array[ctypes.c_char]:
    room = ctypes.create_string_buffer(2 * span + _SPARE)
    ctypes.memset(room, 1, len(room))
    return room


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float, float]:
    """Fit a fixed cost and a cost per octet, neither negative, by least squares of relative errors.

    Returns both, and the largest relative error.
    """

    def worst(fixed: float, each: float) -> float:
        return max(abs(fixed + each * octets - cycles) / cycles for octets, cycles in points)

    scaled = [(1 / cycles, octets / cycles) for octets, cycles in points]  # ideally, fixed * u + each * v is 1
    u, v = (sum(column) for column in zip(*scaled, strict=True))
    uu, uv, vv = (sum(a * b for a, b in pairs) for pairs in (
        [(p, p) for p, _ in scaled], scaled, [(q, q) for _, q in scaled]))  # fmt: skip
    fixed, each = (u * vv - v * uv) / (uu * vv - uv * uv), (uu * v - uv * u) / (uu * vv - uv * uv)
    if fixed < 0:
        fixed, each = 0.0, v / vv
    elif each < 0:
        fixed, each = u / uu, 0.0
    return fixed, each, worst(fixed, each)


async def _startup() -> float:
    """Return the processor time of a connection in seconds, both ends together."""
    from open_rnic.host_driver.tools.bench.connections import rate, responder

    async with responder(CONNECTIONS) as other:
        found = await rate(other, CONNECTIONS, 3, lambda what, total: None)
    return found.initiator_cpu_s + found.responder_cpu_s


def _compiled() -> Path:
    compiler = os.environ.get("CC") or "cc"
    if shutil.which(compiler) is None:
        raise MeasureError(f"{compiler} is missing, but measuring needs a C compiler: install the Debian package gcc")
    with as_file(files(__package__) / "kernels.c") as source:
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout
        digest = hashlib.sha256(source.read_bytes() + version.encode() + repr(_OPTIONS).encode()).hexdigest()[:16]
        library = folder() / f"kernels-{digest}.so"
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            fresh = library.with_suffix(f".{os.getpid()}")
            command = [compiler, *_OPTIONS, "-o", str(fresh), str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise MeasureError(f"{compiler} cannot compile the kernels: {done.stderr.strip().splitlines()[-1]}")
            fresh.replace(library)
    return library


def _processor() -> str:
    """Return the name of the processor, and its features that matter here."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    name = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    known = set(flags[1].split()) if flags else set()
    features = [each for each in ("sse4_2", "pclmulqdq", "avx512f", "vpclmulqdq", "crc32", "pmull") if each in known]
    return f"{name[1] if name else platform.machine()} ({', '.join(features) or 'no CRC instruction'})"


def _large() -> int:
    """Return the size of a large source in octets: more than fits into caches, and much less than the memory."""
    return min(_MEMORY, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)


def _cache() -> Figure:
    path = Path("/sys/devices/system/cpu/cpu0/cache/index2/size")
    try:
        return Figure(1024 * int(path.read_text().strip().removesuffix("K")), f"second-level cache, as {path} says")
    except (OSError, ValueError):
        return Figure(512 << 10, "estimate: the system does not say how large its second-level cache is")
