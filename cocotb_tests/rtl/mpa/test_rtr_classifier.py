"""RtrClassifier distinguishes what its twin in the host driver does: RTRs, with any field changed, and other ULPDUs."""

import random
from collections.abc import Iterator

from cocotb.triggers import ClockCycles

from open_rnic.cocotb_tests.harness import bench, simulate
from open_rnic.host_driver.ddp import TERMINATE_QN, Opcode, Untagged
from open_rnic.host_driver.mpa.rtr import (
    is_empty_read_response,
    is_terminate_instead_of_rtr,
    read_response,
    rtr_kind,
    rtr_ulpdu,
)
from open_rnic.rtl.mpa.rtr import HEADER
from open_rnic.rtl.mpa.rx.rtr_classifier import RtrClassifier
from open_rnic.rtl.registers import Rtr

TERMINATE = Untagged(Opcode.TERMINATE, TERMINATE_QN, 1, mo=0, last=True, payload=bytes(4)).encode()


def ulpdus() -> Iterator[bytes]:
    """Yield ULPDUs that are recognised, and those that differ from them in a bit or in their length."""
    rtrs = [rtr_ulpdu(kind) for kind in (Rtr.SEND, Rtr.WRITE, Rtr.READ)]
    for ulpdu in (*rtrs, read_response(rtrs[-1]), TERMINATE):
        yield ulpdu
        for bit in range(8 * len(ulpdu)):
            yield (int.from_bytes(ulpdu, "little") ^ 1 << bit).to_bytes(len(ulpdu), "little")
        yield ulpdu + bytes(1)
        yield from (ulpdu[:length] for length in range(len(ulpdu)))


@bench()
async def all_are_distinguished(dut):
    for ulpdu in ulpdus():
        dut.octets.value = int.from_bytes(ulpdu[:HEADER], "little")
        dut.length.value = len(ulpdu)
        dut.holds.value = 0
        await ClockCycles(dut.clk, 1)
        dut.length.value = random.getrandbits(16)
        dut.holds.value = 1
        await ClockCycles(dut.clk, 3)
        kind = rtr_kind(ulpdu)
        assert dut.kinds.value == (1 << kind >> 1 if kind else 0), ulpdu.hex()
        assert dut.is_response.value == is_empty_read_response(ulpdu), ulpdu.hex()
        assert (dut.is_terminate.value and dut.has_queue.value) == is_terminate_instead_of_rtr(ulpdu), ulpdu.hex()


def test_rtr_classifier():
    simulate(RtrClassifier(), __name__)
