"""The capture, judged by tshark, whose implementation of MPA is independent of this project."""

import asyncio
import subprocess
from dataclasses import replace
from itertools import pairwise

import pytest

from open_rnic.cocotb_tests.host_driver.test_connection import (
    INITIATOR,
    REPLY,
    REQUEST,
    RESPONDER,
    RTR,
    connected,
    transfer,
)
from open_rnic.cocotb_tests.plugins.coroutines import run
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.connection import initiate, listen
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.tools.pcap import Capture
from open_rnic.rtl.registers import Role, Rtr

# Other dissectors would claim short Sends
OPTIONS = ["-o", "tcp.desegment_tcp_streams:TRUE", "--disable-protocol", "rpcordma", "--disable-protocol", "smb_direct"]
OPTIONS += ["-o", "tcp.try_heuristic_first:TRUE"]  # even if the port belongs to another protocol
OPTIONS += ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]


def tshark(path, *arguments):
    """Return the lines that tshark prints for a capture."""
    command = ["tshark", "-r", str(path), *OPTIONS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG)
    return done.stdout.splitlines()


def fields(path, only, *names, options=()):
    """Return the values of these fields in the packets that the display filter ``only`` selects."""
    lines = tshark(path, *options, "-Y", only, "-T", "fields", *(word for name in names for word in ("-e", name)))
    return [line.split("\t") for line in lines]


def capture(path, initiator, responder, there, back):
    """Record a connection that carries these ULPDUs."""

    async def test():
        recorder = Capture(file)
        observers = recorder.end(Role.INITIATOR), recorder.end(Role.RESPONDER)
        async with connected(initiator, responder, observers) as (ours, theirs):
            arrived = await asyncio.gather(transfer(ours, theirs, there), transfer(theirs, ours, back))
            assert arrived == [there, back]

    with path.open("wb") as file:
        run(test())


def judge(path, fpdus, crc):
    """Check that tshark finds this number of FPDUs, and no errors."""
    verdicts = "\n".join(tshark(path, "-V", "-O", "iwarp_mpa"))
    assert verdicts.count("Good CRC32") == (fpdus if crc else 0)
    assert "Bad CRC32" not in verdicts
    names = ("iwarp_mpa.fpdu", "_ws.malformed", "tcp.analysis.flags", "tcp.checksum.status", "ip.checksum.status")
    rows = fields(path, "tcp", *names)
    assert sum(row[0] != "" for row in rows) == fpdus
    assert {tuple(row[1:4]) for row in rows} == {("", "", "1")}  # no errors, and a good TCP checksum
    assert {row[4] for row in rows} <= {"1", ""}  # IPv6 has none


def send(msn, payload):
    """Return a Send of one segment."""
    return bytes.fromhex("41430000000000000000") + msn.to_bytes(4, "big") + bytes(4) + payload


@needs("tshark")
@pytest.mark.parametrize("crc", [False, True], ids=["no-crc", "crc"])
@pytest.mark.parametrize("markers", [False, True], ids=["no-markers", "markers"])
def test_tshark_accepts_every_fpdu(tmp_path, crc, markers):
    path = tmp_path / "a.pcapng"
    there = [send(n + 1, bytes(range(256)) * n) for n in range(12)]
    back = [send(n + 1, b"\xa5" * 517 * n) for n in range(12)] + [send(13, bytes(64000))]
    initiator = replace(INITIATOR, crc=crc, markers=markers)
    capture(path, initiator, replace(RESPONDER, crc=crc, markers=markers), there, back)
    judge(path, fpdus=1 + len(there) + len(back), crc=crc)
    assert [row[0] for row in fields(path, "iwarp_mpa.req", "iwarp_mpa.rev")] == ["2"]
    opcodes = fields(path, "iwarp_rdma.opcode", "iwarp_rdma.opcode")
    assert opcodes[0] == ["0x00"]  # the RTR
    assert opcodes[1:] == [["0x03"]] * 25


@needs("tshark")
async def test_ipv6_and_the_longest_fpdu_fit(tmp_path):
    path = tmp_path / "six.pcapng"
    with path.open("wb") as file:
        recorder = Capture(file)
        async with SoftwareDevice() as one, SoftwareDevice() as other, await listen("::1") as listener:
            accepting = asyncio.create_task(listener.accept(other, RESPONDER, recorder.end(Role.RESPONDER)))
            ends = recorder.end(Role.INITIATOR)
            async with (
                await initiate(*listener.address[:2], one, INITIATOR, ends) as ours,
                await accepting as theirs,
            ):
                await transfer(ours, theirs, [send(1, bytes(64768 - 18))])
    judge(path, fpdus=2, crc=True)
    assert fields(path, "iwarp_mpa.req", "ipv6.src") == [["::1"]]


@needs("tshark")
def test_sequence_numbers_are_contiguous_and_addresses_are_real(tmp_path):
    path = tmp_path / "a.pcapng"
    capture(path, replace(INITIATOR, rtr=(Rtr.READ,)), RESPONDER, [send(1, b"x" * n) for n in range(5)], [])
    rows = fields(path, "tcp", "tcp.srcport", "tcp.seq", "tcp.nxtseq", "tcp.len", "ip.src")
    assert {row[4] for row in rows} == {"127.0.0.1"}
    for port in {row[0] for row in rows}:
        own = [row for row in rows if row[0] == port and row[3] != "0"]
        assert own
        assert all(one[2] == other[1] for one, other in pairwise(own))
    opcodes = [row[0] for row in fields(path, "iwarp_rdma.opcode", "iwarp_rdma.opcode")]
    assert opcodes[0] == "0x01"
    assert sorted(opcodes[1:]) == ["0x02", *["0x03"] * 5]


@needs("tshark")
def test_tshark_detects_a_bad_crc(tmp_path):
    path = tmp_path / "bad.pcapng"
    with path.open("wb") as file:
        recorder = Capture(file)
        recorder.opened(Role.INITIATOR, ("127.0.0.1", 1), ("127.0.0.1", 2))
        recorder.sent(Role.INITIATOR, REQUEST.encode())
        recorder.sent(Role.RESPONDER, REPLY.encode())
        recorder.sent(Role.INITIATOR, RTR[:-1] + b"\0")
    with pytest.raises(AssertionError):
        judge(path, fpdus=1, crc=True)
