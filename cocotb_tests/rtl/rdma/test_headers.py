# amaranth: UnusedElaboratable=no
"""ULPDUs for the host: Terminates, and those without a valid header. They end the stream."""

import random

import cocotb
import pytest

from open_rnic.cocotb_tests.harness import bench, pauses, simulate, stalls
from open_rnic.cocotb_tests.plugins.lengths import widths
from open_rnic.cocotb_tests.rtl.rdma.bench import Engine, engine
from open_rnic.host_driver.ddp import TAGGED_OCTETS, UNTAGGED_OCTETS, Opcode, Tagged, Terminate, Untagged
from open_rnic.host_driver.ddp.faults import Fault
from open_rnic.rtl.lib.lanes import LANES

STAG, AT, LENGTH = 0x5EED_0001, 0x2005, 400
TAGGED = (Opcode.RDMA_WRITE, Opcode.RDMA_READ_RESPONSE)
KINDS = ("terminate", "short", "opcode", "kind of segment", "DDP version", "RDMAP version")


def good():
    payload = random.randbytes(random.randint(1, 100))
    return Tagged(Opcode.RDMA_WRITE, STAG, random.randrange(200), True, payload).encode()


def strange(kind):
    """Return a ULPDU of this kind, whose reserved bits are random."""
    tagged = random.getrandbits(1)
    octets = bytearray(random.randbytes(random.randint(UNTAGGED_OCTETS, 90)))
    opcode = random.choice([each for each in Opcode if each is not Opcode.TERMINATE and (each in TAGGED) == tagged])
    versions = [1, 1]
    match kind:
        case "terminate":
            return Terminate.of(random.choice([*Fault]), good()).encode()
        case "short":
            del octets[random.randrange(1, TAGGED_OCTETS if tagged else UNTAGGED_OCTETS):]
        case "opcode":
            opcode = random.randrange(8, 16)
        case "kind of segment":
            tagged = not tagged
        case "DDP version":
            versions = [random.choice([0, 2, 3]), 1]
        case "RDMAP version":
            versions = [1, random.choice([0, 2, 3])]
    control = tagged << 15 | random.getrandbits(5) << 10 | versions[0] << 8 | versions[1] << 6 | opcode
    control |= random.getrandbits(2) << 4
    octets[:2] = control.to_bytes(2, "big")[: len(octets)]
    return bytes(octets)


@cocotb.parametrize(number=range(len(KINDS)))
@bench()
async def what_has_no_valid_header_passes_to_the_host(dut, number):
    """Whole, once all before it has been placed; what follows is discarded."""
    end = Engine(dut, pauses(0.2), stalls(0.4))
    for _ in range(16):
        await end.reset()
        await end.start()
        await end.region(STAG, AT, LENGTH)
        before = [good() for _ in range(random.randrange(3))]
        ulpdu = strange(KINDS[number])
        end.memory.touched.clear()
        end.receive(*before, ulpdu, good(), strange(KINDS[number]), good())
        await end.settle()
        assert end.passed == [ulpdu]
        assert await end.field("passed")
        assert await end.field("refused")
        assert await end.field("received") == len(before)
        assert not await end.field("placing")
        touched = {
            AT + int.from_bytes(each[6:14], "big") + n for each in before for n in range(len(each) - TAGGED_OCTETS)
        }
        assert end.memory.touched == touched
        await end.work(Opcode.SEND, (AT, 10))
        await end.settle()
        assert not end.sent
        end.passed.clear()


@bench()
async def a_terminate_behind_a_refused_ulpdu_is_discarded(dut):
    end = Engine(dut, pauses(0.2), stalls(0.2))
    for _ in range(16):
        await end.reset()
        await end.start()
        bad = Tagged(Opcode.RDMA_WRITE, STAG, 0, True, b"no region")
        end.receive(bad, strange("terminate"), strange("short"))
        await end.settle()
        await end.expect_refused(bad)
        assert not end.passed


@bench()
async def reserved_bits_are_ignored(dut):
    """RFC 5041 §4.1, RFC 5040 §4.1."""
    end = Engine(dut)
    await end.start()
    await end.region(STAG, AT, LENGTH)
    for number in range(64):
        ulpdu = bytearray(Tagged(Opcode.RDMA_WRITE, STAG, number, True, bytes([number])).encode())
        ulpdu[0] |= (number & 15) << 2
        ulpdu[1] |= (number >> 4) << 4
        end.receive(bytes(ulpdu))
    await end.settle()
    assert end.memory.get(AT, 64) == bytes(range(64))
    end.receive(Untagged(Opcode.SEND, 0, 1, 0, True, b"octets", 0xFFFF_FFFF))  # RFC 5040 §4.1: reserved, too
    await end.buffer(0x4000, 6)
    await end.settle()
    assert await end.received() == [(Opcode.SEND, 6, None)]


@pytest.mark.parametrize("lanes", widths(*LANES))
def test_headers(lanes):
    simulate(engine(lanes), __name__, parameters={"lanes": lanes})
