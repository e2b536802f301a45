"""The data path in every situation of :mod:`open_rnic.cocotb_tests.coverage`, compared with the software."""

import functools
import itertools
import random

import pytest

from open_rnic.cocotb_tests.coverage import FENCE
from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.harness.datapath import STREAM_ONLY, Datapath, SideBySide, taken
from open_rnic.cocotb_tests.mpa import Fault, MpaSink, MpaSource, layout
from open_rnic.cocotb_tests.system.test_fence import RESPONSE, RTRS, TERMINATE, fpdus, spoilt
from open_rnic.host_driver.mpa.datapath import MpaDatapath as Software
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, Cause, Model, Role, Rtr, Verdict

LONGEST = 700  # RX_MAX_ULPDU: enough to reach the next marker from any phase
CAUSES = {Fault.CRC: Cause.CRC, Fault.FPDUPTR: Cause.FPDUPTR, Fault.LENGTH: Cause.RX_LENGTH}
SETTINGS = list(itertools.product((False, True), repeat=2))  # markers, CRC


QUARTERS = [*((1, nth) for nth in range(4)), *((lanes, nth) for nth, lanes in enumerate(LANES[1:]))]


def phases():
    """Return the phases of this simulation: a quarter, which includes every alignment of an FPDU to a beat."""
    return range(32 * parameter("quarter"), 32 * (parameter("quarter") + 1))


def length_for(phase, residue, markers):
    """Return a short ULPDU_Length with this residue; with markers, the FPDU contains one at its start or inside."""
    reach = max(512 - 4 * phase - 4, 4) if markers and phase else 4
    return reach + residue


def places(offset, length, markers):
    """Return random positions for cuts, one in each field, except the FPDU's start."""
    fields = {}
    for name, start, end in layout(offset, length, markers=markers):
        fields.setdefault(name, []).extend(range(max(start - offset, 1), end - offset))
    return set(map(random.choice, fields.values()))


async def error(path):
    """Wait for the error, and return its cause, value and stream offset."""
    while not (word := await path.get("ERROR")):
        pass
    register = BY_NAME["ERROR"]
    return register["cause"].get(word), register["value"].get(word), await path.get("ERROR_OFFSET_LO")


@bench(cycles=10_000_000)
async def every_error_is_found_at_every_phase_and_cut(dut):
    path = Datapath(dut)
    for phase, residue, (markers, crc), fault, cut in itertools.product(
        phases(), range(4), SETTINGS, (None, *CAUSES), (False, True)
    ):
        if (fault is Fault.CRC and not crc) or (fault is Fault.FPDUPTR and not markers):
            continue
        await path.set_fields("CONTROL", reset=1)
        await path.set("RX_MAX_ULPDU", LONGEST)
        await path.start(4 * phase, markers_rx=markers, crc_rx=crc)
        source = MpaSource(path.rx_mpa.send, markers=markers, crc=crc, offset=4 * phase)
        ulpdu = random.randbytes(length_for(phase, residue, markers and fault is not Fault.LENGTH))
        value = LONGEST + 1 + (residue - LONGEST - 1) % 4 if fault is Fault.LENGTH else None
        cuts = places(4 * phase, len(ulpdu), markers) if cut else ()
        source.send(ulpdu, fault, value=value, cuts=cuts)
        if fault is None:
            octets, fields = await path.rx_ulpdu.receive()
            assert (octets, fields["verdict"]) == (ulpdu, Verdict.GOOD), (phase, len(ulpdu), markers, crc, cuts)
            assert await path.get("ERROR") == 0
            continue
        await path.rx_mpa.drained()
        cause, _, where = await error(path)
        assert (cause, where) == (CAUSES[fault], 4 * phase), (len(ulpdu), markers, crc, cuts)
        await path.cycles(8)
        await taken(path.rx_ulpdu)


@bench(cycles=10_000_000)
async def fpdus_are_correct_at_every_phase(dut):
    path = Datapath(dut)
    for phase, residue, (markers, crc) in itertools.product(phases(), range(4), SETTINGS):
        await path.set_fields("CONTROL", reset=1)
        await path.start(4 * phase, markers_tx=markers, crc_tx=crc)
        sink = MpaSink(path.tx_mpa.receive, markers=markers, crc=crc, offset=4 * phase, packets=True)
        ulpdu = random.randbytes(length_for(phase, residue, markers))
        path.send_ulpdu(ulpdu)
        assert (await sink.receive()).ulpdu == ulpdu


@bench(cycles=1_000_000)
async def invalid_ulpdus_are_rejected(dut):
    path = Datapath(dut)
    for residue, (markers, crc), kind in itertools.product(range(4), SETTINGS, (Cause.TX_LENGTH, -1, 1)):
        await path.set_fields("CONTROL", reset=1)
        await path.set("TX_MAX_ULPDU", 400)
        await path.start(markers_tx=markers, crc_tx=crc)
        length = (401 if kind is Cause.TX_LENGTH else random.randrange(20, 200)) // 4 * 4 + 4 + residue
        announced = length if kind is Cause.TX_LENGTH else max(length - kind * random.randrange(1, 9), 0)
        path.send_ulpdu(bytes(length), announced)
        await path.tx_ulpdu.drained()
        cause, value, _ = await error(path)
        assert (cause, value) == (kind if kind is Cause.TX_LENGTH else Cause.TX_MISMATCH, announced)
        await path.cycles(60)
        assert len(await taken(path.tx_mpa)) == (kind is not Cause.TX_LENGTH)


# --- the fence

FIRST = {
    "nothing": b"", "empty": fpdus(b""), "Send": fpdus(RTRS[Rtr.SEND]), "Write": fpdus(RTRS[Rtr.WRITE]),
    "Read": fpdus(RTRS[Rtr.READ]), "Read Response": fpdus(RESPONSE), "Terminate": fpdus(TERMINATE),
    "other": fpdus(b"other octets"), "error": spoilt(b"other octets"),
}  # fmt: skip


class Quick(SideBySide):
    """A comparison without pauses, which waits only as long as short ULPDUs need to settle."""

    async def renew(self, **config):
        rtl = self.rtl
        await rtl.set_fields("CONTROL", reset=1)
        await rtl.set("TX_STREAM_OCTETS", STREAM_ONLY)  # releases ULPDUs that the fence has held back
        await rtl.tx_ulpdu.drained()
        await rtl.cycles(10)
        await taken(rtl.tx_mpa)
        await rtl.set_fields("CONTROL", reset=1)
        self.software = Software(lanes=parameter("lanes"), event_depth=16)
        await self.set("CONFIG", **config)

    async def _settle(self, beats):
        await self.rtl.cycles(2 if not beats else 100 + 8 * beats)


def configurations():
    """Yield CONFIG for each role and model with each RTR."""
    yield {"role": Role.INITIATOR}
    yield {"role": Role.RESPONDER}
    yield from ({"role": Role.INITIATOR, "model": Model.PEER_TO_PEER, "rtr_send": kind} for kind in Rtr)
    for accepted, permissive in itertools.product(range(8), (0, 1)):
        peer_to_peer = {"role": Role.RESPONDER, "model": Model.PEER_TO_PEER}
        yield peer_to_peer | {"rtr_accept": accepted, "permissive": permissive}


@bench(cycles=10_000_000)
async def rtl_and_software_agree_on_every_first_fpdu_in_every_order(dut):
    pair = Quick(dut, parameter("lanes"))
    for config, order in itertools.product(configurations(), FENCE.dimensions["order"]):
        steps = order.split()
        if not {"mpa", "ulpdu"} <= {*steps}:
            continue
        for octets in [each for first, each in FIRST.items() if first != "nothing"] if "fpdu" in steps else [b""]:
            await pair.renew(**config)
            await pair.set("CONTROL", rx_enable=1)
            for step in steps:
                match step:
                    case "mpa":
                        await pair.set("CONTROL", rx_enable=1, tx_enable=1)
                        await pair.rtl.cycles(70)  # for the longest RTR and a ULPDU behind it
                    case "ulpdu":
                        await pair.transmit(b"one")
                    case "fpdu":
                        await pair.receive(octets)
            await pair.agree()


def covers(bench, lanes, **parameters):
    # The limit of wall time is generous: a simulation that hangs ends at its limit of cycles.
    make, parameters = functools.partial(MpaDatapath, lanes), {"lanes": lanes} | parameters
    simulate(make, bench, parameters=parameters, collects=True, seconds=7200)


@pytest.mark.parametrize(("lanes", "quarter"), QUARTERS)
def test_receive_in_every_situation(lanes, quarter):
    covers(every_error_is_found_at_every_phase_and_cut, lanes, quarter=quarter)


@pytest.mark.parametrize(("lanes", "quarter"), QUARTERS)
def test_transmit_in_every_situation(lanes, quarter):
    covers(fpdus_are_correct_at_every_phase, lanes, quarter=quarter)


@pytest.mark.parametrize("lanes", LANES)
def test_rejected_ulpdus_in_every_situation(lanes):
    covers(invalid_ulpdus_are_rejected, lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_the_fence_in_every_situation(lanes):
    covers(rtl_and_software_agree_on_every_first_fpdu_in_every_order, lanes)
