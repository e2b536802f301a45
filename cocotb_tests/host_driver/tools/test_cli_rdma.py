"""``rnic listen``, ``rnic connect`` and ``rnic rping``."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import struct
from contextlib import contextmanager
from itertools import product
from threading import Timer

import pytest

from open_rnic.cocotb_tests.harness.commands import Command
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.rdma import Access, Fault
from open_rnic.host_driver.rdma.rping import ping_data
from open_rnic.host_driver.tools.cli.endpoint import peer_of
from open_rnic.rtl.registers import Role


class Process(Command):
    """A command in a process of its own, which prints one event per line."""

    def line(self):
        return self.stdout.readline()

    def event(self):
        return json.loads(self.line())

    def events(self, last):
        """Return all events up to one of this name."""
        events = [self.event()]
        while events[-1]["event"] != last:
            events.append(self.event())
        return events

    def end(self):
        """Wait for the end; returns the exit status, and the rest of standard output and standard error."""
        out, err = self.communicate()
        return self.returncode, out, err


@contextmanager
def running(*arguments):
    with Process(*map(str, arguments)) as one:
        watchdog = Timer(HANG, os.kill, [one.pid, signal.SIGKILL])  # so that no reader waits forever
        watchdog.start()
        try:
            yield one
        finally:
            watchdog.cancel()


@contextmanager
def listening(*arguments):
    """Run a listener; yields it and its port."""
    with running("listen", "--json", *arguments) as one:
        event = one.event()
        assert event["event"] == "listening"
        yield one, event["port"]


def events_of(out):
    return [json.loads(line) for line in out.splitlines()]


RTRS = [("client-server", None), *(("peer-to-peer", kind) for kind in ("send", "write", "read"))]
FLAGS = [("--require-crc", True), ("--no-crc", False)]


RESPONDERS = [(FLAGS[0], True), (FLAGS[1], False), (FLAGS[0], False), (FLAGS[1], True)]


@pytest.mark.parametrize(
    ("responder_crc", "responder_markers"), shortened("both values of both are in the short run", 2, RESPONDERS)
)
def test_both_ends_report_the_same_connection_in_every_combination(rnic, responder_crc, responder_markers):
    arguments = [responder_crc[0], *(["--markers"] * responder_markers), "--echo", "--ird", 3, "--ord", 5]
    with listening(*arguments, "--private-data", "welcome") as (listener, port):
        for (model, rtr), crc, markers in product(RTRS, FLAGS, (False, True)):
            options = ["--model", model, crc[0], "--private-data", "hello", "--send", "one", "--send", "two"]
            options += ["--markers"] * markers + (["--rtr", rtr] if rtr else [])
            status, out, err = rnic("connect", "127.0.0.1", port, "--json", *options)
            assert (status, err) == (0, "")
            ours, theirs = events_of(out), listener.events("closed")
            assert [each["event"] for each in ours] == ["established", "received", "received", "closed"]
            assert [each["event"] for each in theirs] == ["request", "established", "received", "received", "closed"]
            request = theirs[0]
            assert (request["model"], request["peer_rtr"]) == (model, [rtr] if rtr else [])
            assert (request["peer_ird"], request["peer_ord"], request["private_data"]) == (16, 16, b"hello".hex())
            assert (request["peer_crc"], request["peer_markers"]) == (crc[1], markers)
            one, other = ours[0], theirs[1]
            for end in (one, other):
                assert end["enhanced"] is True
                assert (end["model"], end["rev"]) == (model, 2)
                assert end["rtr"] == rtr
                assert end["crc"] is (crc[1] or responder_crc[1])
            assert (one["markers_tx"], one["markers_rx"]) == (responder_markers, markers)
            assert (other["markers_tx"], other["markers_rx"]) == (markers, responder_markers)
            assert (one["peer_ird"], one["peer_ord"]) == (other["ird"], other["ord"])
            assert (other["peer_ird"], other["peer_ord"]) == (16, 16)
            assert bytes.fromhex(one["private_data"]) == b"welcome"
            assert [each["text"] for each in ours[1:3]] == ["one", "two"]
            assert [bytes.fromhex(each["data"]) for each in theirs[2:4]] == [b"one", b"two"]
            assert other["peer"] == one["local"]
            for name in request.keys() & other.keys():  # fields with the same name must be equal
                assert request[name] == other[name] or name == "event", name


def test_the_text_output_describes_the_connection(rnic):
    with running("listen", "--once", "--port", 0, "--echo", "--private-data", "welcome") as listener:
        line = listener.line()
        assert line.startswith("listening at 127.0.0.1 port ")
        status, out, _ = rnic("connect", "127.0.0.1", int(line.split()[-1]), "--send", "hello", "--rtr", "read")
        assert status == 0
        status, heard, err = listener.end()
        assert (status, err) == (0, "")
        lines = out.splitlines() + heard.splitlines()
        for part in (
            ": enhanced, peer-to-peer, RTR Read, IRD 16, ORD 16, the peer's 16 and 16, CRC, no markers, MULPDU ",
            ', private data "welcome"',
            'received 5 octets: "hello"',
            "request from 127.0.0.1 port ",
            ": peer-to-peer, Rev 2, RTR Read, IRD 16, ORD 16",
        ):
            assert any(part in line for line in lines), (part, lines)
        assert lines.count("closed") == 2


def test_a_listener_serves_many_and_ends_when_interrupted(rnic):
    with running("listen") as listener:
        port = int(listener.line().split()[-1])
        for _ in range(3):
            assert rnic("connect", f"127.0.0.1:{port}")[0] == 0
            while not (line := listener.line()).endswith("] closed\n"):
                assert line.startswith("[127.0.0.1 port ")
        listener.send_signal(signal.SIGINT)
        assert listener.end() == (130, "", "")


@pytest.mark.parametrize("device", ["software", "simulated"])
def test_a_file_arrives_completely(rnic, tmp_path, device):
    data = bytes(range(256)) * (1200 if device == "software" else 100)
    path = tmp_path / "data"
    path.write_bytes(data)
    options = ["--device", device, "--timeout", HANG]
    with listening("--once", *options) as (listener, port):
        status, _, err = rnic("connect", "127.0.0.1", port, *options, "--send", f"@{path}", "--send", "", "--markers")
        assert (status, err) == (0, "")
        *_, empty, _ = received = listener.events("closed")[2:]
        assert empty["octets"] == 0
        arrived = b"".join(bytes.fromhex(each["data"]) for each in received[:-1])
        assert hashlib.sha256(arrived).digest() == hashlib.sha256(data).digest()


def test_the_responder_may_speak_first_in_the_peer_to_peer_model(rnic):
    with listening("--once", "--send", "first") as (listener, port):
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json")
        assert status == 0
        assert [each.get("text") for each in events_of(out)][1] == "first"
        assert listener.end()[0] == 0


def test_a_number_of_connections_is_served_at_once_and_the_worst_is_the_exit_status(rnic):
    with listening("--connections", 3, "--model", "peer-to-peer", "--echo") as (listener, port):
        with running("connect", "127.0.0.1", port, "--json", "--echo") as held:  # neither end closes
            assert held.event()["event"] == "established"
            assert rnic("connect", "127.0.0.1", port, "--send", "first")[0] == 0
            assert rnic("connect", "127.0.0.1", port, "--model", "client-server")[0] == 3
            names = [each["event"] for each in listener.events("rejected")]
            assert (names.count("request"), names.count("established"), names.count("closed")) == (3, 2, 1)
        status, out, _ = listener.end()
        assert (status, [each["event"] for each in events_of(out)]) == (3, ["closed"])


def test_contradicting_numbers_of_connections_are_refused(rnic):
    for arguments, message in (
        (["--connections", -1], "--connections must be at least 0, not -1"),
        (["--connections", 2, "--once"], "--once contradicts --connections 2"),
    ):
        status, _, err = rnic("listen", *arguments)
        assert (status, err.count(message)) == (2, 1)


def test_rejections_are_reported_at_both_ends(rnic, tmp_path):
    path = tmp_path / "why"
    path.write_bytes(b"\xffnot today")
    asked = "the Request asks for peer-to-peer, and --model is client-server"
    for arguments, why in (
        (["--reject"], "every Request is rejected (--reject)"),
        (["--model", "client-server"], asked),
    ):
        with listening("--once", *arguments, "--private-data", f"@{path}") as (listener, port):
            status, out, err = rnic("connect", "127.0.0.1", port, "--json")
            assert status == 3
            assert err.startswith("rnic: rejected by the peer: the responder rejected the connection (R=1)")
            assert err.count("\n") == 1
            (event,) = events_of(out)
            assert (event["event"], event["by"], event["peer"]) == ("rejected", "peer", ["127.0.0.1", port])
            assert (event["peer_ird"], event["peer_ord"]) == (16, 16)
            assert event["private_data"] == b"\xffnot today".hex()
            request, rejected = listener.event(), listener.event()
            assert (request["event"], rejected["event"], rejected["by"]) == ("request", "rejected", "local")
            assert (rejected["peer_ird"], rejected["peer_ord"], rejected["reason"]) == (16, 16, why)
            status, _, err = listener.end()
            assert (status, err.count("\n")) == (3, 1)
            assert err.startswith(f"rnic: rejected by this end: {why}")
    with listening("--once", "--reject") as (listener, port):
        _, out, _ = rnic("connect", "127.0.0.1", port, "--json", "--rev", 1)
        assert [each["peer_ird"] for each in (*events_of(out), listener.events("rejected")[-1])] == [None, None]


def test_a_rejection_reports_the_ord_that_the_responder_needs(rnic):
    with listening("--min-ord", 8, "--private-data", "why") as (listener, port):
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json", "--ird", 3, "--ord", 5)
        (theirs,), ours = events_of(out), listener.event()
        assert (status, theirs["event"], ours["event"]) == (3, "rejected", "rejected")
        assert (theirs["by"], theirs["peer_ord"], theirs["private_data"]) == ("peer", 8, b"why".hex())
        assert (ours["by"], ours["peer_ird"], ours["peer_ord"]) == ("local", 3, 5)
        assert "the initiator's IRD 3 is under the ORD 8" in ours["reason"]
        assert rnic("connect", "127.0.0.1", port, "--ird", 8)[0] == 0


@pytest.mark.parametrize(
    ("theirs", "ours", "code"),
    [
        (["--rtr", "read"], ["--rtr", "send", "--rtr", "write"], 7),
        (["--dialect", "draft-02"], ["--dialect", "draft-02", "--ird", 4, "--max-ird", 15], 6),
    ],
)
def test_both_ends_report_the_terminate_of_an_initiator_that_cannot_honour_the_reply(rnic, theirs, ours, code):
    with listening("--once", *theirs) as (listener, port):
        status, out, err = rnic("connect", "127.0.0.1", port, "--json", *ours)
        assert (status, err.count("\n")) == (4, 1)
        assert err.startswith("rnic: terminated: this end ended the connection")
        (event,), peers_event = events_of(out), listener.events("terminated")[-1]
        numbers = "layer", "type", "code", "by"
        assert [event[name] for name in ("event", *numbers)] == ["terminated", 2, 0, code, "local"]
        assert [peers_event[name] for name in numbers] == [2, 0, code, "peer"]
        assert event["peer"] == ["127.0.0.1", port]
        status, out, err = listener.end()
        assert (status, out) == (4, "")
        assert err.startswith("rnic: terminated: the peer ended the connection")


def test_unnegotiated_depths_are_kept_and_reported(rnic):
    with listening("--echo", "--ird", 3, "--ord", 5) as (listener, port):
        options = ["--json", "--ird", 7, "--ord", 9]
        for option, sent, named in (
            ("--no-negotiate-ird", (0x3FFF, 9), (True, False)),  # the peer's ORD corresponds to this end's IRD
            ("--no-negotiate-ord", (7, 0x3FFF), (False, True)),
        ):
            _, out, _ = rnic("connect", "127.0.0.1", port, *options, option)
            request, theirs = listener.events("established")
            listener.event()
            ours = events_of(out)[0]
            assert (request["peer_ird"], request["peer_ord"]) == sent
            assert (theirs["ird_negotiated"], theirs["ord_negotiated"]) == named
            assert (ours["ord_negotiated"], ours["ird_negotiated"]) == named
            assert theirs["ird"] == (9 if named[0] else 3)
            assert ours["ird"] == 7
            assert (ours["peer_ird"] == 0x3FFF, ours["peer_ord"] == 0x3FFF) == (not named[0], not named[1])
    with listening("--no-negotiate-ird", "--no-negotiate-ord") as (_, port):
        status, out, _ = rnic("connect", "127.0.0.1", port)
        assert status == 0
        assert ", IRD 16, ORD 16, the peer's none and none, " in out


def test_an_ird_is_raised_at_most_to_its_limit(rnic):
    with listening("--ird", 3, "--max-ird", 10) as (listener, port):
        for asked, given in ((2, 3), (9, 9), (11, 10)):
            assert rnic("connect", "127.0.0.1", port, "--ord", asked)[0] == 0
            assert listener.events("closed")[1]["ird"] == given


def test_rev_1_has_no_enhanced_data_and_is_the_fallback(rnic):
    with listening("--rev", 1) as (listener, port):
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json", "--rev", 1)
        assert status == 0
        established = events_of(out)[0]
        assert established["enhanced"] is False
        assert (established["peer_ird"], established["rtr"]) == (None, None)
        listener.events("closed")
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json")
        assert status == 1
        assert events_of(out)[-1]["event"] == "failed"
        status, out, err = rnic("connect", "127.0.0.1", port, "--json", "--fallback")
        assert (status, err) == (0, "")
        first, second, _ = events_of(out)
        assert [first[name] for name in ("event", "peer", "code", "stage")] == [
            "fallback", ["127.0.0.1", port], 1, "startup"
        ]  # fmt: skip
        assert first["reason"].startswith("the peer closed")
        assert (second["event"], second["enhanced"]) == ("established", False)
        _, out, _ = rnic("connect", "127.0.0.1", port, "--fallback")
        assert out.startswith("retrying without enhanced frames, which the peer seems not to support: the peer closed")
    with listening("--rev", 1, "--once") as (listener, port):  # a Request that it cannot answer does not count
        assert rnic("connect", "127.0.0.1", port, "--fallback")[0] == 0
        assert [each["event"] for each in listener.events("closed")] == ["failed", "request", "established", "closed"]
        assert listener.end()[:2] == (0, "")


def test_a_dialect_works_with_itself(rnic):
    with listening("--once", "--dialect", "draft-02", "--echo") as (_, port):
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json", "--dialect", "draft-02", "--send", "x")
        assert status == 0
        assert [each["event"] for each in events_of(out)] == ["established", "received", "closed"]


def test_a_terminate_is_reported_with_its_numbers_and_its_sender():
    async def misbehave(port):
        async with await rdma.connect("127.0.0.1", port) as connection:
            with pytest.raises(TimeoutError):  # a listener without data to send keeps the connection open
                await asyncio.wait_for(connection.disconnected(), 0.3)
            await connection.write(b"x", 1234)
            await connection.disconnected()
            return connection.error

    with listening("--once") as (listener, port):
        error = asyncio.run(misbehave(port))
        assert (error.layer, error.type, error.code, error.by) == (*Fault.STAG.value, "peer")
        event = listener.events("terminated")[-1]
        assert [event[name] for name in ("layer", "type", "code", "by")] == [1, 1, 0, "local"]
        assert "STag 0x4d2 is not valid" in event["reason"]
        status, _, err = listener.end()
        assert (status, err) == (4, f"rnic: terminated: {event['reason']}\n")


async def test_an_initiator_reports_the_peers_terminate(rnic):
    async def serve(port_known):
        async with await rdma.listen() as listener:
            port_known.set_result(listener.address[1])
            connection = await (await listener.request()).accept()
            await connection.receive()
            await connection.terminate(Fault.OPERATION)

    port = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(port))
    with running("connect", "127.0.0.1", await port, "--json", "--send", "x", "--echo") as process:
        status, out, _ = await asyncio.to_thread(process.end)
    await serving
    event = events_of(out)[-1]
    assert [event[name] for name in ("event", "layer", "type", "code", "by")] == ["terminated", 0, 2, 255, "peer"]
    assert status == 4


def test_an_invalid_request_is_a_failure_and_the_listener_continues(rnic):
    with listening("--timeout", "0.3") as (listener, port):
        for octets, what, code in (
            (b"GET / HTTP/1.1\r\n\r\n\r\n", "Key", 4),
            (b"", "no whole MPA Request within 0.3 s", None),
            (StartupFrame(FrameKind.REPLY).encode(), "Key", 4),
        ):
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(octets)
                event = listener.event()
                assert (event["event"], event["code"], event["stage"]) == ("failed", code, "startup")
                assert what in event["reason"]
                assert event["peer"] == list(sock.getsockname())
        assert rnic("connect", "127.0.0.1", port)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["connect", "127.0.0.1", 70000], 2, "a port must be 0 to 65535, not 70000"),
        (["connect", "127.0.0.1"], 2, "PORT"),
        (["connect", "127.0.0.1", 9, "--rev", 3], 2, "--rev must be 1 or 2, not 3"),
        (["connect", "127.0.0.1", 9, "--rev", 1, "--model", "peer-to-peer"], 2, "--model peer-to-peer needs --rev 2"),
        (["listen", "--rev", 1, "--model", "peer-to-peer"], 2, "--model peer-to-peer needs --rev 2"),
        (["connect", "127.0.0.1", 9, "--rev", 1, "--rtr", "read"], 2, "--rtr has no effect with --rev 1"),
        (["connect", "127.0.0.1", 9, "--rev", 1, "--fallback"], 2, "--fallback has no effect with --rev 1"),
        (["connect", "127.0.0.1", 9, "--rev", 1, "--no-negotiate-ird"], 2, "--no-negotiate-ird has no effect with"),
        (["listen", "--rev", 1, "--no-negotiate-ord"], 2, "--no-negotiate-ord has no effect with --rev 1"),
        (["listen", "--rev", 1, "--min-ord", 1], 2, "--min-ord has no effect with --rev 1"),
        (["listen", "--keep-alive", "0"], 2, "idle of keep-alive is 1 to 32767, not 0"),
        (["connect", "127.0.0.1", 9, "--keep-alive", "60,10,0"], 2, "probes of keep-alive is 1 to 127, not 0"),
        (["connect", "127.0.0.1", 9, "--keep-alive", "60,x"], 2, "'x' is not a whole number"),
        (["connect", "127.0.0.1", 9, "--keep-alive", "1,2,3,4"], 2, "'1,2,3,4' is not SECONDS, or"),
        (["listen", "--rev", 1, "--dialect", "draft-02"], 2, "--dialect draft-02 has no effect with --rev 1"),
        (["connect", "127.0.0.1", 9, "--model", "client-server", "--rtr", "read"], 2, "--rtr has no effect with"),
        (["listen", "--require-crc", "--no-crc"], 2, "--require-crc and --no-crc exclude each other"),
        (["connect", "127.0.0.1", 0], 2, "port 0 cannot be connected to"),
        (["rping", "-c", "-p", 0], 2, "port 0 cannot be connected to"),
        (["rping", "-s", "--model", "client-server"], 2, "--model client-server is for a client"),
        (["connect", "127.0.0.1", 9, "--ird", 20000], 2, "ird is 0 to 16382, not 20000"),
        (["connect", "127.0.0.1", 9, "--send", "@/no/such"], 2, "--send @/no/such: No such file or directory"),
        (["connect", "127.0.0.1", 9, "--private-data", "x" * 509], 2, "octets, not 509 (RFC 6581 §9: "),
        (["connect", "127.0.0.1", 9, "--rev", 1, "--private-data", "x" * 513], 2, "not 513 (RFC 5044 §7.1.1)"),
        (["connect", "127.0.0.1", 9, "--ird", 4, "--max-ird", 3], 2, "ird 4 is over the device's 3"),
        (["listen", "--min-ord", 17], 2, "min_ord 17 is over ord 16"),
        (["connect", "127.0.0.1", 9, "--device", "fpga"], 2, "no device is called 'fpga'"),
        (["connect", "127.0.0.1", 9, "--lanes", 3], 2, "lanes wide, not 3"),
        (
            ["rping", "-c", "--offload", "rdma", "--device", "serial:sim:ice40_hx8k"],
            2,
            "--offload rdma needs an RDMA engine, and --device serial:sim:ice40_hx8k has none",
        ),
        *(
            (["connect", "127.0.0.1", 9, "--timeout", seconds], 2, f"more than 0, not {seconds}")
            for seconds in ("0.0", "-1.0", "nan", "inf")
        ),
        (["listen", "--timeout", "nan"], 2, "timeout is a finite number of seconds, more than 0, not nan"),
        (["connect", "127.0.0.1", 9, "--rtr", "none"], 2, "'none' is not one of"),
        (["listen", "--private-data", "x" * 509], 2, "private data may have 508 octets, not 509"),
        (["listen", "--host", "192.0.2.1"], 1, "cannot listen at 192.0.2.1 port 0: "),
        (["listen", "--host", "a..b"], 1, "cannot find 'a..b' port 0: that is no host name"),
        (["connect", "a" * 64, 9], 1, "' port 9: that is no host name"),
        (["rping", "-c", "-P"], 2, "-P is for a server"),
        (["rping"], 2, "rping is either a server, with -s, or a client, with -c"),
        (["rping", "-s", "-c"], 2, "rping is either a server"),
        (["rping", "-c", "-S", 25], 2, "-S must be 26 to 65535 octets, not 25"),
        (["rping", "-c", "-S", 65536], 2, "-S must be 26 to 65535 octets, not 65536"),
        (["rping", "-s", "-I", "127.0.0.2"], 2, "-I 127.0.0.2 is for a client: a server listens at -a"),
        (["rping", "-c", "-p", 1, "-I", "192.0.2.1"], 1, "from 192.0.2.1 port 0: Cannot assign requested address"),
        (["connect", "127.0.0.1", 1, "--bind", "::1"], 1, "from ::1 port 0: one address is IPv4, the other IPv6"),
        (["rping", "-c", "-C", -1], 2, "-C must be at least 0, not -1"),
        (["rping", "-c", "-p", 1], 1, "cannot connect to 127.0.0.1 port 1: Connection refused"),
    ],
)
def test_an_impossible_command_is_rejected_in_one_line(rnic, arguments, status, what):
    got, out, err = rnic(*arguments)
    assert (got, out) == (status, "")
    assert what in err
    assert err.startswith("rnic: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "peer", "what", "code", "stage"),
    [
        (["connect", "127.0.0.1", 1], ["127.0.0.1", 1], "port 1: Connection refused", 1, "connect"),
        (["connect", "no-such-host.invalid", 1], ["no-such-host.invalid", 1], "cannot find 'no-such", 5, "connect"),
        (["connect", "::1", 1, "--device", "serial:/no/port"], ["::1", 1], "/no/port", None, "device"),
        (["listen", "--host", "192.0.2.1"], None, "cannot listen at 192.0.2.1 port 0: ", 5, "listen"),
    ],
)
def test_a_failure_before_the_connection_is_an_event_and_a_line(rnic, arguments, peer, what, code, stage):
    status, out, err = rnic(*arguments, "--json")
    (event,) = events_of(out)
    assert (status, event["event"], event.get("peer")) == (1, "failed", peer)
    assert (event["code"], event["stage"]) == (code, stage)
    assert what in event["reason"]
    assert err == f"rnic: {event['reason']}\n"


def test_a_port_in_use_is_an_event(rnic):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        status, out, err = rnic("listen", "--port", sock.getsockname()[1], "--json")
    (event,) = events_of(out)
    assert (status, event["event"], err) == (1, "failed", f"rnic: {event['reason']}\n")
    assert event["reason"].endswith("Address already in use")


# rping


@contextmanager
def serving(*arguments):
    """Run an rping server; yields it and its port."""
    with running("rping", "-s", "-v", "-a", "127.0.0.1", "-p", 0, *arguments) as server:
        yield server, int(server.line().split()[-1])


@pytest.mark.parametrize(
    "options",
    [[], ["-S", 20000, "--markers"], ["--model", "client-server", "--no-crc"], ["--offload", "none"]],
)
def test_rping_works_with_itself(rnic, options):
    with serving() as (server, port):
        status, out, err = rnic("rping", "-c", "-p", port, "-C", 3, "-v", "-V", *options)
        assert (status, err) == (0, "")
        size = 20000 if "-S" in options else 64
        pings = [ping_data(number, size)[:-1].decode() for number in range(3)]
        assert out.splitlines() == [f"ping data: {each}" for each in pings]
        status, out, err = server.end()
        assert (status, err) == (0, "")
        *lines, last = out.splitlines()
        assert lines == [f"server ping data: {each}" for each in pings]
        assert last.endswith("has gone after 3 pings")


def test_a_client_uses_the_given_source_address(rnic):
    with serving() as (server, port):
        assert rnic("rping", "-c", "-p", port, "-C", 1, "-I", "127.0.0.2")[0] == 0
        assert server.end()[1].splitlines()[-1].startswith("127.0.0.2 port ")
    with listening("--once") as (listener, port):
        status, out, _ = rnic("connect", "127.0.0.1", port, "--json", "--bind", "127.0.0.2")
        assert (status, events_of(out)[0]["local"][0]) == (0, "127.0.0.2")
        assert listener.events("closed")[0]["peer"][0] == "127.0.0.2"


def test_rping_works_with_itself_over_two_simulated_devices(rnic):
    simulated = ["--device", "simulated"]
    with serving(*simulated) as (server, port):
        status, out, _ = rnic("rping", "-c", "-p", port, "-C", 2, "-v", "-V", *simulated)
        assert status == 0
        assert out.count("ping data: rdma-ping-") == 2
        assert server.end()[0] == 0


@pytest.mark.parametrize("broken", ["the peer leaves before its RTR", "no RTR", "no rping"])
def test_a_server_reports_an_error_once(rnic, broken):
    with serving() as (server, port):
        if broken == "no rping":
            rnic("connect", "127.0.0.1", port, "--send", "x")
        else:
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(StartupFrame(FrameKind.REQUEST, enhanced=EnhancedData(1, 1, True)).encode())
                if broken == "no RTR":
                    sock.sendall(FpduFramer(markers=False, crc=True).frame(b"hello"))
                sock.recv(24)
        status, _, err = server.end()
        assert (status, err.count("\n")) == (4 if broken == "no RTR" else 1, 1)


def test_a_persistent_server_serves_clients_in_sequence(rnic):
    with serving("-P") as (server, port):
        for _ in range(2):
            assert rnic("rping", "-c", "-p", port, "-C", 1, "-V")[0] == 0
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(b"what is this, a web server?")
        assert rnic("rping", "-c", "-p", port, "-C", 1, "-V")[0] == 0
        server.send_signal(signal.SIGTERM)
        status, _, err = server.end()
        assert status == 143
        assert "Key" in err


@pytest.mark.parametrize("when", ["ping", "pong"])
def test_a_persistent_server_survives_a_client_whose_memory_wraps(rnic, when):
    async def offend(port):
        async with await rdma.connect("127.0.0.1", port) as connection:
            if when == "pong":
                with connection.register(bytearray(64), Access.REMOTE_READ) as region:
                    await connection.send(INFO.pack(region.to, region.stag, 64))
                    await connection.receive()
            await connection.send(INFO.pack(2**64 - 1, 5, 64))
            await connection.disconnected()

    with serving("-P") as (server, port):
        asyncio.run(offend(port))
        assert rnic("rping", "-c", "-p", port, "-C", 1, "-V")[0] == 0
        server.send_signal(signal.SIGTERM)
        _, _, err = server.end()
        assert err.count("\n") == 1
        assert "the client offers a wrong buffer: 64 octets from TO 0xffffffffffffffff on wrap" in err


def test_the_text_matches_the_original_rping():
    assert ping_data(0, 64) == b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqr\0"
    assert ping_data(57, 30) == b"rdma-ping-57: zABCDEFGHIJKLMN\0"
    assert ping_data(58, 30) == b"rdma-ping-58: ABCDEFGHIJKLMNO\0"
    assert ping_data(2**31 - 1, 26) == b"rdma-ping-2147483647: " + ping_data(2**31 - 1, 100)[22:25] + b"\0"


INFO = struct.Struct(">QII")


async def test_an_rping_client_follows_the_protocol(rnic):
    """The server is implemented here, message by message."""

    async def serve(port_known):
        async with await rdma.listen(config=Config(Role.RESPONDER, ird=1, ord=1)) as listener:
            port_known.set_result(listener.address[1])
            request = await listener.request()
            assert (request.ird, request.ord, request.private_data) == (1, 1, b"")
            async with await request.accept() as connection:
                for number in range(2):
                    to, stag, size = INFO.unpack((await connection.receive(16)).data)
                    assert size == 40
                    ping = await connection.read(size, stag, to)
                    assert ping == ping_data(number, 40)
                    await connection.send(bytes(16))
                    to, other, size = INFO.unpack((await connection.receive(16)).data)
                    assert other != stag
                    assert size == 40
                    await connection.write(ping, other, to)
                    await connection.send(bytes(16))
                assert await connection.disconnected() is None

    port = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(port))
    with running("rping", "-c", "-V", "-C", 2, "-S", 40, "-p", await port) as process:
        assert (await asyncio.to_thread(process.end))[0] == 0
    await task


@pytest.mark.parametrize("what", ["a short Send", "too much", "changed data"])
def test_a_peer_that_violates_the_rping_protocol_is_reported(what):
    async def ping(port):
        connection = await rdma.connect("127.0.0.1", port)
        async with connection:
            buffer = bytearray(ping_data(0, 64))
            region = connection.register(buffer, Access.REMOTE_READ)
            await connection.send(b"?" * 15 if what == "a short Send" else INFO.pack(0, region.stag, 1 << 30))
            await connection.disconnected()

    async def serve(port_known):
        async with await rdma.listen() as listener:
            port_known.set_result(listener.address[1])
            async with await (await listener.request()).accept() as connection:
                await connection.receive(16)
                await connection.send(bytes(16))
                await connection.receive(16)
                await connection.send(bytes(16))  # before any RDMA Write
                await connection.disconnected()

    async def client():
        port = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(serve(port))
        with running("rping", "-c", "-V", "-C", 1, "-p", await port) as process:
            status, _, err = await asyncio.to_thread(process.end)
        await task
        return status, err

    if what == "changed data":
        assert asyncio.run(client()) == (1, "rnic: ping 0 came back changed\n")
        return
    with serving() as (server, port):
        asyncio.run(ping(port))
        status, _, err = server.end()
        assert status == 1
        expected = "a Send of 15 octets where 16 are due" if what == "a short Send" else "a buffer of 1073741824 octets"
        assert err.startswith(f"rnic: {expected}")


@pytest.mark.parametrize(("host", "port"), [("::1", 7), ("[::1]:7", None), ("[::1]", 7)])
def test_a_responder_is_named_by_host_and_port(host, port):
    assert peer_of(host, port) == ("::1", 7)


@pytest.mark.parametrize(("host", "line"), [
    ("127.0.0.1", "the responder's port is missing: 127.0.0.1 PORT"),
    ("::1", "the responder's port is missing: ::1 PORT"),
    ("127.0.0.1:0", "Invalid value: port 0 cannot be connected to"),
])  # fmt: skip
def test_a_responder_without_a_port_is_an_error(rnic, host, line):
    assert rnic("connect", host)[::2] == (2, f"rnic: {line}\n")


@pytest.mark.parametrize("host", ["127.0.0.1:7", "[::1]:7"])
def test_a_port_that_is_given_twice_is_an_error(rnic, host):
    assert rnic("connect", host, "8")[::2] == (2, f"rnic: the responder's port is given twice: {host} 8\n")
