"""Every kind of violation, 16 times: the Terminate is right, tshark agrees, and memory is untouched."""

import asyncio
import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.violations import IRD, KINDS, Violations, commit
from open_rnic.cocotb_tests.host_driver.tools.test_pcap import fields
from open_rnic.cocotb_tests.plugins.coroutines import run
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.tools.interop import judge
from open_rnic.host_driver.tools.pcap import Capture
from open_rnic.rtl.registers import Role

ROOT = Path(__file__).parents[3]
SEEDS = [range(4), pytest.param(range(4, 16), marks=long("more violations of each kind"))]
CONFIG = Config(Role.RESPONDER, ird=IRD, max_ird=IRD, timeout=HANG)
OPTIONS = rdma.Options(receiver_waits=False)
DEVICES = {"software": ("software", False), "twin": ("software", True), "RTL": ("simulated", True)}


@asynccontextmanager
async def kept(name, offload):
    """Open a device that connections use one after the other, as a simulation takes a second to start."""
    device = await open_device(name, lanes=4, offload=offload)
    close = device.close

    async def stay_open():
        pass

    async def opened():
        return device

    device.close = stay_open
    try:
        yield opened
    finally:
        await close()


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seeds: f"{len(seeds)} of each kind")
def seeds(request):
    return request.param


@pytest.fixture(scope="module", params=DEVICES)
def answers(request, seeds):
    """The answers to all violations; that they are right and that memory is unchanged is checked on the way."""
    name, offload = DEVICES[request.param]
    answers = []

    async def commit_all():
        async with (
            kept(name, offload) as device,
            await rdma.listen(config=CONFIG, options=OPTIONS, device=device) as listener,
        ):
            for kind in KINDS:
                for seed in seeds:
                    answers.append(await commit(listener, kind, seed, engine=offload))

    run(commit_all(), 4 * HANG)
    return answers


def test_violations_are_answered_by_the_right_terminate_and_change_no_memory(answers, seeds):
    assert len(answers) == len(seeds) * len(KINDS)


@needs("tshark")
def test_tshark_finds_the_same_terminates(answers, tmp_path):
    captured(tmp_path / "terminates.pcapng", answers)
    judged(tmp_path / "terminates.pcapng", answers)


def test_there_is_a_violation_for_each_documented_answer():
    table = (ROOT / "docs" / "rdma.md").read_text().partition("\n## Terminates\n")[2].partition("\nChoices that")[0]
    documented = set(re.findall(r"\b[01]/\d/\d\b", table))  # those of MPA are others' tests
    assert documented == {"/".join(map(str, getattr(Violations, kind).fault)) for kind in KINDS}


def captured(path, answers):
    """Write what this end has sent: each answer is a connection."""
    framer = FpduFramer(markers=False, crc=True)
    with path.open("wb") as file:
        for number, answer in enumerate(answers):
            capture = Capture(file, clock=lambda: 0.0)
            capture.opened(Role.INITIATOR, ("127.0.0.1", 20000 + number), ("127.0.0.2", 7174))
            capture.sent(Role.INITIATOR, answer.request)
            capture.sent(Role.RESPONDER, answer.reply)
            for fpdu in answer.fpdus:
                capture.sent(Role.RESPONDER, framer.frame(fpdu))


def judged(path, answers):
    """Compare the Terminates with those that tshark finds."""
    found = asyncio.run(judge.dissect(path)).ours
    assert found.terminates == ["/".join(map(str, getattr(Violations, each.kind).fault)) for each in answers]
    assert (found.good, found.bad) == (sum(len(each.fpdus) for each in answers), 0)
    names = ["term_hdrct_m", "hdrct_d", "hdrct_r", "term_ddp_seg_len", "term_ddp_h", "term_rdma_h"]
    rows = fields(path, "iwarp_rdma.terminate", *(f"iwarp_rdma.{name}" for name in names))
    for answer, (*bits, length, ddp, rdma_header) in zip(answers, rows, strict=True):
        bits = [bit in ("1", "True") for bit in bits]
        ulpdu, (layer, kind, _) = answer.refused, getattr(Violations, answer.kind).fault
        header = 14 if ulpdu[0] & 0x80 else 18
        whole, request = len(ulpdu) >= header, (layer, kind) == (0, 1) and answer.kind.startswith("read_")
        assert bits == [whole, whole, request]
        copies = ulpdu[: header + (28 if request else 0)].hex() if whole else ""
        assert length == (f"{len(ulpdu):04x}" if whole else "")
        shown = ddp + rdma_header
        if (layer, kind) == (0, 1):  # tshark takes the DDP header for one of 14 octets
            assert shown
            assert copies.startswith(shown)
        elif not (layer == 0 and header == 14):  # tshark does not show the DDP header of a tagged segment here
            assert shown == copies
