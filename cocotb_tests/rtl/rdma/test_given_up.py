# amaranth: UnusedElaboratable=no
"""Octets that are not those of a region never reach the peer in a good FPDU, and the stream ends there."""

import functools
import itertools

import pytest

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.harness.datapath import word_of
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.rtl.rdma.bench import Engine, OnDatapath, request
from open_rnic.host_driver.connection import terminate_ulpdu
from open_rnic.host_driver.ddp import Opcode, ReadRequest, decode
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.rtl.rdma.datapath import RdmaDatapath
from open_rnic.rtl.rdma.registers import Command, Right
from open_rnic.rtl.registers import BY_NAME, Cause, DirectionState, EventKind

STAG, AT, OCTETS, MULPDU = 0x5EED_0001, 0x2005, 250, 114
SEGMENTS = 3
TERMINATE = terminate_ulpdu(5)


class Ending(OnDatapath):
    """A connection that ends with a Terminate of the host, which ``rest`` gives."""

    async def mpa(self, name, value=None):
        return await self._access(BY_NAME[name], value)

    async def renew(self, *, crc=True):
        await self.mpa("CONTROL", word_of("CONTROL", reset=1))
        self._framer = FpduFramer(markers=False, crc=True)
        self.peer = self._delineator = FpduDelineator(markers=False, crc=crc)
        self.sent.clear()
        await Engine.start(self, mulpdu=MULPDU)
        await self.mpa("CONFIG", word_of("CONFIG", crc_tx=crc))
        await self.mpa("CONTROL", word_of("CONTROL", tx_enable=1, rx_enable=1))
        await self.region(STAG, AT, OCTETS, rights=Right.REMOTE_READ)

    async def good(self):
        """Return the payload of all good FPDUs; no other message than one of these octets is sent."""
        await self.settle()
        segments = [decode(each) for each in self.sent]
        payload = b"".join(each.payload for each in segments)
        assert payload == self.memory.get(AT, OCTETS)[: len(payload)]
        assert [each.last for each in segments[:-1]] == [False] * len(segments[:-1])
        assert not segments or segments[-1].last == (len(payload) == OCTETS)
        return payload

    async def end(self, *, spoilt, crc=True):
        """Have the host send its Terminate, and check the end of the stream."""
        assert not await self.field("sending")
        errors = []
        while word := await self.mpa("EVENT"):
            kind, detail = (BY_NAME["EVENT"][name].get(word) for name in ("kind", "detail"))
            errors += [Cause(detail)] * (kind == EventKind.ERROR)
        assert errors == [Cause.TX_MISMATCH] * spoilt
        before, fpdus = len(self.sent), await self.mpa("TX_FPDUS")
        self.host_sends(TERMINATE)
        await self.settle()
        assert await self.mpa("TX_FPDUS") - fpdus == (crc or not spoilt)
        assert BY_NAME["STATE"]["tx"].get(await self.mpa("STATE")) == DirectionState.STOPPED
        if not spoilt:
            assert self.sent[before:] == [TERMINATE]
        else:  # the peer has found a wrong CRC, or waits for the rest of the FPDU
            assert self.sent[before:] == []
            assert (self.peer.error is not None) == crc
            assert crc or self.peer.held
            assert not self.peer.error or self.peer.error.cause is Cause.CRC


@bench(cycles=1_000_000)
async def a_source_is_revoked_in_every_cycle_of_its_read_response(dut):
    end = Ending(dut)
    found = []
    for crc in (True, False):
        for delay in itertools.count(0, 1 if crc else 7):
            await end.renew(crc=crc)
            await end.access("COMMAND", Command.REVOKE << 28)
            end.receive(request(1, ReadRequest(1, 1000, OCTETS, STAG, 0)))
            await end.cycles(delay)
            await end.access("COMMAND", STAG)
            payload = await end.good()
            refused = await end.field("source_refused")
            left = await end.access("SOURCE_LEFT") if refused else 0
            assert len(payload) == OCTETS - left
            spoilt = bool(await end.mpa("ERROR"))
            assert refused or not spoilt
            await end.end(spoilt=spoilt, crc=crc)
            found.append((crc, len(payload), spoilt))
            if not refused:
                break
    lengths = range(0, OCTETS, MULPDU - 14)
    assert len(lengths) == SEGMENTS
    assert set(found) >= {(crc, length, True) for crc in (True, False) for length in lengths}
    assert (True, 0, False) in found


@bench(cycles=1_000_000)
async def memory_cannot_read_one_of_the_words_of_a_message(dut):
    end = Ending(dut)
    width = 4 * parameter("lanes")
    for opcode in (Opcode.RDMA_READ_RESPONSE, Opcode.RDMA_WRITE, Opcode.SEND):
        for word in range(AT // width * width, AT + OCTETS, width * (1 if opcode is Opcode.RDMA_WRITE else 5)):
            await end.renew()
            end.memory.faulty = {word}
            if opcode is Opcode.RDMA_READ_RESPONSE:
                end.receive(request(1, ReadRequest(1, 1000, OCTETS, STAG, 0)))
            else:
                await end.work(opcode, (AT, OCTETS), stag=1, to=1000)
            payload = await end.good()
            room = MULPDU - (18 if opcode is Opcode.SEND else 14)
            assert len(payload) == max(word - AT, 0) // room * room
            assert int(dut.irq.value) >> 1  # before STATUS is read
            assert await end.field("memory_failed")
            assert not await end.field("source_refused")
            assert await end.done() == (0, 0)
            await end.end(spoilt=True)


@pytest.mark.parametrize("lanes", shortened("a width with the same store", 1, [1, 2]))
def test_given_up(lanes):
    options = {"regions": 16, "buffers": 4, "work": 8, "reads": 4, "store_and_forward": 1024}
    simulate(functools.partial(RdmaDatapath, lanes, **options), __name__, parameters={"lanes": lanes})
