"""``rnic demo``, on the software device."""

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess

import pytest

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.cocotb_tests.host_driver.tools.test_pcap import judge
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver import ddp
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.demo import Endpoint, Result, SendReceiver
from open_rnic.rtl.registers import Role

SOFTWARE = ["demo", "--device", "software"]


def test_the_demo_verifies_every_octet(rnic):
    status, out, err = rnic(*SOFTWARE, "--size", "100K")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[-1] == "verified 102400 octets each way"
    story = [
        "─ MPA Request ─",
        "A=1 peer-to-peer, RTR Write, IRD 16, ORD 16",
        "─ MPA Reply ─",
        "● RTR sent: Write",
        "─ RTR: RDMA Write ─",
        "FPDU of 24 octets: ULPDU_Length 14",
        "RTR received: Write ●",
        "TX fence opens ●",
        "Send, QN 0, MSN 1, MO 0",
        "● TCP connection closed",
        "102,400 of 102,400",
        "SHA-256 received",
    ]
    at = 0
    for part in story:
        at = out.index(part, at)


@needs("tshark")
@pytest.mark.parametrize(
    "ends", [["--transport", "twin", "--device", "software"], ["--transport", "rtl", "--device", "simulated"]], ids=str
)
def test_the_demo_runs_over_a_lossy_pipe_and_captures_its_frames(rnic, tmp_path, ends):
    path = tmp_path / "frames.pcapng"
    status, out, err = rnic("demo", *ends, "--drop", 0.02, "--size", "40K", "--pcap", path)
    assert (status, err) == (0, ""), err
    assert "verified 40960 octets each way" in out
    lost = subprocess.run(["tshark", "-r", path, "-Y", 'frame.comment contains "drop"'], capture_output=True, text=True,
                          check=True)  # fmt: skip
    assert lost.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--drop", "0.1"], "--drop needs --transport twin or rtl"),
        (["--drop", "1", "--transport", "twin"], "--drop must be from 0 to less than 1, not 1.0"),
        (["--waves", "w", "--transport", "rtl"], "--waves needs another --transport than rtl"),
    ],
)
def test_options_of_the_transport_that_have_no_effect_are_refused(rnic, options, message):
    status, _, err = rnic("demo", *options)
    assert status == 2
    assert message in err


MODELS = [("peer-to-peer", "send"), ("peer-to-peer", "write"), ("peer-to-peer", "read"), ("client-server", "write")]
FLAGS = [("--markers", "--crc"), ("--no-markers", "--no-crc"), ("--markers", "--no-crc"), ("--no-markers", "--crc")]
SETTINGS = [  # the first eight have each pair of values
    (*FLAGS[number ^ 2 * (place % 2)], *model) for number in range(4) for place, model in enumerate(MODELS)
]


@needs("tshark")
@pytest.mark.parametrize(("markers", "crc", "model", "rtr"), shortened("each pair is in the short run", 8, SETTINGS))
def test_every_setting_transfers_the_data_and_tshark_accepts_it(rnic, tmp_path, markers, crc, model, rtr):
    path = tmp_path / "a.pcapng"
    options = ["--model", model, "--rtr", rtr, "--size", 5000, "--mulpdu", 1430, "--pcap", path, "--json"]
    status, out, err = rnic(*SOFTWARE, markers, crc, *options)
    assert (status, err) == (0, "")
    result = json.loads(out)
    ends = result["initiator"], result["responder"]
    assert result["verified"]
    assert [end["octets_received"] for end in ends] == [5000, 5000]
    assert all((end["tx_markers"] > 0) == (markers == "--markers") for end in ends)
    sent = sum(end["tx_fpdus"] for end in ends)
    assert sent == 8 + (model == "peer-to-peer") + (model == "peer-to-peer" and rtr == "read")
    judge(path, fpdus=sent, crc=crc == "--crc")
    agreed = result["initiator"]["negotiated"]
    assert (agreed["model"], agreed["crc"]) == (model, crc == "--crc")
    assert agreed["rtr_send"] == (rtr if model == "peer-to-peer" else "none")


OPTIONS = [["--rtr", "write"], ["--rtr", "read"], ["--model", "client-server"]]
LENGTHS = [  # the first three have each value
    (mulpdu, OPTIONS[(number + place) % 3]) for number in range(3) for place, mulpdu in enumerate((0, 502, 1430))
]


@needs("tshark")
@pytest.mark.parametrize(("mulpdu", "options"), shortened("each length and each kind is in the short run", 3, LENGTHS))
def test_no_fpdu_ends_where_tshark_miscounts_markers(rnic, tmp_path, mulpdu, options):
    path = tmp_path / "a.pcapng"
    status, out, _ = rnic(*SOFTWARE, *options, "--size", "250K", "--mulpdu", mulpdu, "--pcap", path, "--json")
    result = json.loads(out)
    assert status == 0
    judge(path, fpdus=result["initiator"]["tx_fpdus"] + result["responder"]["tx_fpdus"], crc=True)


@pytest.mark.parametrize("size", [0, 1, 4, 300000])
def test_a_file_is_transferred_in_both_directions(rnic, tmp_path, size):
    path = tmp_path / "file"
    path.write_bytes(random.Random(size).randbytes(size))
    status, out, _ = rnic(*SOFTWARE, "--file", path, "--json")
    result = json.loads(out)
    assert (status, result["octets"]) == (0, size)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for end in (result["initiator"], result["responder"]):
        assert end["sha256_sent"] == end["sha256_received"] == digest


def test_the_json_output_contains_the_ladder(rnic):
    _, out, _ = rnic(*SOFTWARE, "--size", 10, "--rtr", "read", "--json")
    ladder = json.loads(out)["ladder"]
    request = next(step for step in ladder if step["what"] == "MPA Request")
    assert (request["from"], request["to"], request["D_rtr_read"], request["C_rtr_write"]) == (
        "initiator", "responder", 1, 0,
    )  # fmt: skip
    assert {"at": "responder", "event": "RTR_RECEIVED", "rtr": "read"}.items() <= next(
        step for step in ladder if step.get("event") == "RTR_RECEIVED"
    ).items()
    assert [step["opcode"] for step in ladder if "opcode" in step] == ["RDMA_READ_REQUEST", "RDMA_READ_RESPONSE"]


def test_different_data_is_reported_as_a_failure(rnic, monkeypatch):
    take = SendReceiver.take
    monkeypatch.setattr(SendReceiver, "take", lambda self, ulpdu: take(self, ulpdu)[:-1] + b"?")
    status, out, err = rnic(*SOFTWARE, "--size", 10)
    assert status == 1
    assert "verified" not in out
    assert err.startswith("rnic: the responder received 10 octets with SHA-256 ")
    assert err.count("\n") == 1


def test_missing_octets_are_a_difference():
    one, other = Endpoint(Role.INITIATOR, (), 5, 5, 7), Endpoint(Role.RESPONDER, (), 7, 7, 4)
    assert len(Result(one, other, 1.0).differences()) == 1


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["--file", "no/such"], 1, "no/such: No such file or directory"),
        (["--file", "."], 1, ".: Is a directory"),
        (["--file", "/dev/null"], 1, "/dev/null is not a regular file"),
        (["--pcap", "no/such/file"], 1, "no/such/file: No such file or directory"),
        (["--size", "many"], 2, "'many' is not a number of octets, such as 100000, 64K or 4M"),
        (["--size", "-1"], 2, "'-1' is not a number of octets"),
        (["--lanes", "3"], 2, "1, 2, 4, 8 or 16 lanes wide, not 3"),
        (["--device", "none"], 2, "no device is called 'none'"),
        (["--mulpdu", "127"], 2, "--mulpdu must be 128 to 64768 octets (RFC 5044 §4.5), not 127"),
        (["--port", "65536"], 2, "--port must be 0 to 65535, not 65536"),
        (["--waves", "x"], 2, "the software device has no waveforms"),
        (["--rtr", "atomic"], 2, "'atomic' is not one of"),
        (["--model", "none"], 2, "'none' is not one of"),
    ],
)
def test_an_error_is_reported_in_one_line(rnic, arguments, status, what):
    got, out, err = rnic(*SOFTWARE, *arguments)
    assert got == status
    assert what in err
    assert err.startswith("rnic: ")
    assert err.count("\n") == 1
    assert "verified" not in out


def test_a_port_in_use_is_reported_in_one_line(rnic):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        status, _, err = rnic(*SOFTWARE, "--port", port)
    assert (status, err) == (1, f"rnic: cannot listen at 127.0.0.1 port {port}: Address already in use\n")


def test_the_given_port_is_used(rnic):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    _, out, _ = rnic(*SOFTWARE, "--port", port, "--size", 1, "--json")
    assert json.loads(out)["responder"]["address"] == ["127.0.0.1", port]


def children(pid):
    """Return the child processes of a process."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(each) for each in file.read().split()]


def is_alive(pid):
    """Return whether the process exists and is not a zombie."""
    with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(("device", "number"), shortened("each device and each signal is in the short run", 2, [
    ("software", signal.SIGINT), ("simulated", signal.SIGTERM),
    ("software", signal.SIGTERM), ("simulated", signal.SIGINT),
]))  # fmt: skip
def test_a_signal_ends_the_demo_and_its_child_processes(rnic, device, number):
    if device == "simulated":
        assert rnic("demo", "--device", device, "--size", "0")[0] == 0  # which builds the simulation
    command = [*RNIC, "demo", "--device", device, "--size", "10G"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            while b"TX fence opens" not in process.stdout.readline():
                assert process.poll() is None
            started = children(process.pid)
            assert len(started) == (2 if device == "simulated" else 0)
            process.send_signal(number)
            _, err = process.communicate(timeout=HANG)  # 10 GB would take hours
            assert (process.returncode, err) == (128 + number, b"")
            assert not [pid for pid in started if is_alive(pid)]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_demo_runs_on_the_rtl(rnic):
    status, out, err = rnic("demo", "--size", "100K", "--rtr", "read", "--json")
    assert (status, err) == (0, "")
    result = json.loads(out)
    for end in (result["initiator"], result["responder"]):
        assert end["octets_received"] == 102400
        assert end["octets_per_cycle"] > 1
        assert end["cycles"] > 102400 / 16


def test_connections_at_once_have_data_of_their_own(rnic, tmp_path):
    capture = tmp_path / "capture.pcapng"
    status, out, err = rnic(
        "demo", "--device", "software", "--connections", "3", "--size", "100K", "--pcap", str(capture), "--json"
    )
    assert (status, err) == (0, "")
    results = json.loads(out)["connections"]
    assert [result["verified"] for result in results] == [True] * 3
    ends = [result[end] for result in results for end in ("initiator", "responder")]
    assert len({end["sha256_received"] for end in ends}) == 6
    assert len({tuple(end["address"]) for end in ends}) == 4  # one of them is the listener's
    status, out, err = rnic("demo", "--device", "software", "--connections", "3", "--size", "1K")
    assert "verified 1024 octets each way of each of 3 connections" in out.splitlines()
    for wrong in "0", "65":
        status, out, err = rnic("demo", "--connections", wrong)
        assert (status, err) == (2, f"rnic: --connections must be 1 to 64, not {wrong}\n")
    status, _, err = rnic("demo", "--device", "udp:sim:colorlight_5a75b", "--connections", 3)
    message = "udp:sim:colorlight_5a75b has room for 1 of 3 connections: --device udp:sim:colorlight_5a75b:4"
    assert (status, err) == (2, f"rnic: {message}\n")


def test_the_capture_cannot_replace_the_file_to_send(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_bytes(b"precious")
    assert cli.run(["demo", "--device", "software", "--file", str(file), "--pcap", str(file)]) == 1
    assert capsys.readouterr().err == f"rnic: {file} cannot be the capture: it is the file to send\n"
    assert file.read_bytes() == b"precious"


def send(msn, payload, *, mo=0, last=True):
    return ddp.Untagged(ddp.Opcode.SEND, 0, msn, mo, last, payload).encode()


def test_a_receiver_returns_the_payload_of_each_segment_in_order():
    receiver = SendReceiver(2**32 - 1)
    segments = [send(2**32 - 1, b"ab", last=False), send(2**32 - 1, b"c", mo=2), send(0, b""), send(1, b"d")]
    assert b"".join(map(receiver.take, segments)) == b"abcd"
    receiver.finish()


@pytest.mark.parametrize(
    ("ulpdu", "message"),
    [
        (ddp.Tagged(ddp.Opcode.RDMA_WRITE, 5, 6, True, b"x").encode(), "RDMA Write, STag 0x5, TO 0x6, L=1, 1 octets"),
        (ddp.Untagged(ddp.Opcode.TERMINATE, 2, 1, 0, True).encode(), "Terminate, QN 2, MSN 1, MO 0, L=1, no octets"),
        (send(4, b"abc"), "Send, QN 0, MSN 4, MO 0, L=1, 3 octets instead of MSN 3, MO 0"),
    ],
)
def test_a_receiver_refuses_any_other_segment(ulpdu, message):
    with pytest.raises(ddp.DdpError, match=message):
        SendReceiver(3).take(ulpdu)


def test_a_receiver_refuses_an_end_inside_a_message():
    receiver = SendReceiver(1)
    receiver.take(send(1, bytes(110), last=False))
    with pytest.raises(ddp.DdpError, match="ended after 110 octets of the Send with MSN 1"):
        receiver.finish()
