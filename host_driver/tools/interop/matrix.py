"""Run the matrix one case at a time, in the same guest until a case has killed or changed it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import traceback
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from open_rnic.host_driver.connection import MpaConnectionError
from open_rnic.host_driver.device import AttachedDevice, Device, DeviceError
from open_rnic.host_driver.devices import names, open_device
from open_rnic.host_driver.devices.simulated_rnic import SimulatedRnic
from open_rnic.host_driver.devices.udp.board import SimulatedBoard
from open_rnic.host_driver.rdma import RdmaError
from open_rnic.host_driver.rdma.connection import OpenDevice
from open_rnic.host_driver.rdma.rping import RpingError
from open_rnic.host_driver.tcp.attached import AttachedTcp
from open_rnic.host_driver.tools.interop import judge
from open_rnic.host_driver.tools.interop.cable import Plan
from open_rnic.host_driver.tools.interop.capture import Traffic, extract
from open_rnic.host_driver.tools.interop.case import Case, Finding, Mismatch, Setting, Transfer
from open_rnic.host_driver.tools.interop.errors import InteropError
from open_rnic.host_driver.tools.interop.qemu import Guest, Image

LANES = 4
TRIES = 3  # of a row in which the network cuts a CRC
OVERLOOKED = "siw overlooked FPDUs that arrived right behind its Reply until more octets arrived"
_log = logging.getLogger(__name__)


@dataclass
class Row:
    """The result of a case with one device. ``wrong`` is empty if it passed."""

    case: Case
    device: str
    finding: Finding | None
    wrong: list[str]
    judged: str  # short description of tshark's result
    transfer: Transfer
    seconds: float
    capture: Path
    commands: list[tuple[str, str]]  # commands run in the guest, and their output
    split: bool = False  # whether it failed because the network cut a CRC, which siw refuses

    @property
    def passed(self) -> bool:
        """Whether the case passed."""
        return not self.wrong

    @property
    def verdict(self) -> str:
        """The result for the table."""
        if not self.passed:
            return "FAIL"
        return "pass, siw departs" if self.finding and self.finding.departs else "pass"


@dataclass
class Bench:
    """Keeps a guest for the next case, and boots another one if necessary."""

    image: Image
    folder: Path  # for captures and the console
    plan: Plan | None = None  # of a cable; None: QEMU's own network
    guest: Guest | None = None
    boots: int = 0

    async def ready(self, variant: str) -> Guest:
        """Return a guest with this variant of siw; raises InteropError if even a new guest does not start."""
        if self.guest:
            try:
                await self.guest.load(variant)
            except InteropError as error:
                _log.info("%s; booting another guest", error)
                await self.drop()
            else:
                return self.guest
        self.boots += 1
        self.guest = await Guest.start(self.image, self.folder / f"console-{self.boots}.log", self.plan)
        await self.guest.load(variant)
        return self.guest

    async def device(self) -> Device:
        """Open a device of the guest's TCP, which has data paths for its connections."""
        assert self.guest
        assert isinstance(self.guest.tcp, AttachedTcp)
        return await self.guest.tcp.open_device()

    async def drop(self) -> None:
        """End the guest."""
        guest, self.guest = self.guest, None
        if guest:
            await guest.kill()


def fitting(cases: Sequence[Case], name: str, plan: Plan | None = None, *, offload: bool | None = None) -> list[Case]:
    """Return the cases as they run with this device, without those that need a part that it has not."""
    device = names.parse(name)
    board = isinstance(device, names.SimulatedRnic)
    most = device.connections if isinstance(device, names.SimulatedRnic) else 0
    attached = _attached(device, plan)
    fit = []
    for case in cases:
        if attached and (case.octets or (case.samples and not board)):
            continue
        if case.sdram and not (isinstance(device, names.SimulatedRnic) and device.in_sdram):
            continue
        if board and (case.large or case.connections > most):
            continue
        if board and case.smaller:
            case = case.smaller
        if most > 1 and not case.offloads:
            continue  # the data path that connections share leaves DDP to its engine
        if case.samples and (offload is False or not device.samples):
            continue
        fit.append(case)
    return fit


def one_of_each(cases: Mapping[str, Sequence[Case]]) -> dict[str, list[Case]]:
    """Return one case of each kind for each device, in the order of the matrix.

    The first device has the first case of a kind, the next one the second, and so on, so that together they have more.
    """
    chosen = {}
    for nth, (name, fit) in enumerate(cases.items()):
        kinds: dict[object, list[Case]] = {}
        for case in fit:
            kinds.setdefault(case.kind, []).append(case)
        taken = {same[nth % len(same)].name for same in kinds.values()}
        chosen[name] = [case for case in fit if case.name in taken]
    return chosen


def _attached(name: names.DeviceName, plan: Plan | None) -> bool:
    """Whether the device has the TCP of the RTL."""
    return isinstance(name, names.Rnic) or (plan is not None and plan.rtl and name.text == "simulated")


async def run(
    image: Image,
    folder: Path,
    cases: Mapping[str, Sequence[Case]],
    plan: Plan | None = None,
    *,
    offload: bool | None = None,
) -> AsyncIterator[Row]:
    """Run each device's cases, those of :func:`fitting`, and yield each row when it is complete. Raises InteropError.

    With ``plan``, over the TCP of the twin or the RTL and a cable with these faults. The simulated device then has
    the TCP of the RTL in the same simulation; a whole RNIC always has. ``offload`` is that of ``open_device``. A case
    runs again, and at most TRIES times, only if its capture proves that it failed because the network had cut one of
    our CRCs.

    Captures go to ``folder`` and ``folder/aligned``. Earlier captures of the same rows are deleted first, so that a row
    that did not finish has none.
    """
    (folder / "aligned").mkdir(parents=True, exist_ok=True)
    for name, fit in cases.items():
        for old in chain.from_iterable(_files(folder, case, name) for case in fit):
            old.unlink(missing_ok=True)
    bench = Bench(image, folder.resolve(), plan)
    try:
        for name, fit in cases.items():
            # Each simulation is built first, so that no case's time includes the build.
            plain: OpenDevice = partial(open_device, name, lanes=LANES)
            device: OpenDevice = partial(open_device, name, lanes=LANES, offload=offload)
            parsed = names.parse(name)
            board = parsed.place if isinstance(parsed, names.SimulatedRnic) else ""
            attached = _attached(parsed, plan)
            if plan and (attached, board) != (plan.attached, plan.board):
                await bench.drop()
                bench.plan = plan = replace(plan, attached=attached, offload=offload is not False, board=board)
            if attached:
                if board:
                    await (await SimulatedBoard.open(board)).close()
                else:
                    await (await SimulatedRnic.open(offload=offload is not False)).close()
                plain = AttachedDevice.open
                device = plain if board and offload is False else bench.device
            else:
                await (await device()).close()
            for case in fit:
                for _ in range(TRIES):
                    row = await _row(bench, case, name, device if case.offloads else plain)
                    if not row.split:
                        break
                    _log.warning("%s: siw refused a CRC that the network had cut", case.name)
                yield row
    finally:
        await bench.drop()


def _files(folder: Path, case: Case, device: str) -> tuple[Path, Path, Path]:
    """Return the files of a row: the raw capture, its packets alone, and the copy for tshark."""
    name = f"{case.name}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', device)}"
    return folder / f"{name}.pcap", folder / f"{name}.pcapng", folder / "aligned" / f"{name}.pcapng"


async def _row(bench: Bench, case: Case, name: str, device: OpenDevice) -> Row:
    began = time.perf_counter()
    guest = await bench.ready(case.variant)
    raw, capture, aligned = _files(bench.folder, case, name)
    setting, wrong, finding, judged, split = Setting(guest, device), [], None, "nothing", False
    try:
        async with guest.captured(raw):
            try:
                async with asyncio.timeout(case.timeout), setting:
                    finding = await case.act(setting)
            except TimeoutError:
                wrong.append(f"not finished within {case.timeout:g} s")
            except Exception as error:  # any error fails this row only, and the other rows run
                wrong.append(_line(error))
            if not case.kills or guest.alive:
                await _quiet(raw)
        if (fault := guest.fault) and not case.kills:
            wrong.append(f"error of the guest's kernel: {fault}")
    except Exception as error:
        wrong.append(_line(error))
    clear = None if case.kills else asyncio.create_task(guest.clear())  # while the capture is checked
    try:
        traffic = extract(raw, capture, aligned, setting.ports)
        raw.unlink()
        dissection = await judge.dissect(aligned)
        judged = judge.summary(dissection)
        expected = case.expected
        if bench.plan and any(each.startswith("siw") for each in expected.terminates):
            # Octets that still waited in this end's TCP when siw ended the connection have not left.
            expected = replace(expected, whole=False)
        wrong += judge.verdict(dissection, traffic.octets, expected, setting.fpdus)
        wrong += judge.streams(traffic, case.expected)
        if finding:
            finding = _seen_in(traffic, setting, case, finding, wrong)
        refused = judge.BAD_CRC in dissection.siw.terminates and not dissection.ours.bad
        if wrong and refused and (at := judge.split(traffic)) is not None:
            wrong.append(f"the network cut the CRC of our FPDU at octet {at}, and siw refuses such a CRC")
            split = True
    except Exception as error:
        wrong.append(f"the capture could not be checked: {_line(error)}")
    if clear is None or not await clear:
        if clear:
            _log.info("%s: the guest is not in its initial state; booting another one", case.name)
        await bench.drop()
    commands = [(command, printed.decode(errors="replace")) for command, printed in setting.commands]
    seconds = time.perf_counter() - began
    return Row(case, name, finding, wrong, judged, setting.transfer, seconds, capture, commands, split)


def _seen_in(traffic: Traffic, setting: Setting, case: Case, finding: Finding, wrong: list[str]) -> Finding:
    """Return the finding with facts from the capture; errors in the capture are added to ``wrong``."""
    small, inside = case.expected.small, case.expected.inside
    if any((*small, *inside)):
        got = judge.pieces(traffic, setting.first.pieces)
        finding = replace(finding, siw=f"{finding.siw}; received {got[0]}", ours=f"{finding.ours}; received {got[1]}")
        for who, pieces, least in zip(("siw", "our end"), got, zip(small, inside, strict=True), strict=True):
            if pieces.small < least[0] or pieces.inside < least[1]:
                wrong.append(f"{who} received {pieces}; expected at least {least[0]} and {least[1]}")
    if setting.nudges:
        ours = judge.overlooked(traffic, setting.nudges)
        wrong += ours
        if not ours:
            finding = replace(finding, departs="; ".join(filter(None, (finding.departs, OVERLOOKED))))
    return finding


def _line(error: Exception) -> str:
    """Return an error as one line, with its place in the source unless the message is complete."""
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, (Mismatch, RpingError, RdmaError, MpaConnectionError, DeviceError, InteropError, OSError)):
        return said
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{said} ({Path(where.filename).name}:{where.lineno})"


async def _quiet(raw: Path, still: float = 0.1, at_most: float = 2.0) -> None:
    """Wait until the capture stops growing, so that it includes the last packets."""
    size = -1
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most):
            while size != (size := raw.stat().st_size):
                await asyncio.sleep(still)
