"""``rnic perftest``, ``rnic rcopy``, ``rnic rstream`` and ``rnic riostream``: each opposite itself."""

import asyncio
import re
import signal
import struct
from contextlib import contextmanager, nullcontext
from functools import partial

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_cli_rdma import running
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma.perftest import Program
from open_rnic.host_driver.rdma.samples import SampleReader
from open_rnic.host_driver.rdma.shared import memory_of, share
from open_rnic.host_driver.tools.cli.common import CommandError
from open_rnic.host_driver.tools.cli.endpoint import End, serve_all
from open_rnic.host_driver.tools.cli.memory import _serve
from open_rnic.host_driver.tools.cli.perftest import ProgramName


@contextmanager
def serving(*arguments):
    """Run a server; yields it and its port."""
    with running(*arguments, "-p", 0, "--bind", "127.0.0.1") as server:
        yield server, int(server.line().split()[-1])


@pytest.mark.parametrize("test", shortened("test_perftest.py has all programs, in one process", 2, ProgramName))
def test_perftest_works_with_itself(rnic, test):
    options = [test.value, "-s", 100, "-n", 7]
    with serving("perftest", *options) as (server, port):
        status, out, err = rnic("perftest", *options, "127.0.0.1", "-p", port, "--offload", "none")
        assert (status, err) == (0, "")
        assert out.startswith("7 messages of 100 octets: ")
        status, out, err = server.end()
        assert (status, err) == (0, "")
        assert out.startswith("7 messages of 100 octets: ")


def test_perftest_names_what_must_be_the_same_if_the_connection_ends(rnic):
    with serving("perftest", "ib_send_bw", "-s", 100, "-n", 7) as (server, port):
        status, _, err = rnic("perftest", "ib_send_bw", "-s", 200, "-n", 7, "127.0.0.1", "-p", port)
        assert status in (1, 4)
        assert re.fullmatch(r"rnic: .*: do both ends have the same test, -s and -n\?\n", err)
        server.end()


def test_the_command_knows_all_tests():
    assert [each.value for each in ProgramName] == list(Program)


def test_rcopy_works_with_itself(rnic, tmp_path):
    source, folder = tmp_path / "source", tmp_path / "served"
    source.write_bytes(bytes(range(256)) * 1000)
    folder.mkdir()
    with serving("rcopy", "--folder", folder) as (server, port):
        for name in ("one", "two"):
            status, out, err = rnic("rcopy", source, f"127.0.0.1:{name}", "-p", port)
            assert (status, err) == (0, "")
            assert re.fullmatch(rf"{name}: 256000 octets in \d+\.\d\d s, \d+\.\d\d MB/s\n", out)
            assert server.line().startswith(f"{name}: 256000 octets")
            assert (folder / name).read_bytes() == source.read_bytes()
        status, _, err = rnic("rcopy", source, "127.0.0.1:../x", "-p", port)
        assert (status, err) == (1, "rnic: the server cannot open ../x: Permission denied\n")
        status, _, err = rnic("connect", "127.0.0.1", port, "--private-data", "hello")
        assert status == 3


@pytest.mark.parametrize("wraps", ["table", "buffer"])
def test_rcopy_serves_the_next_client_after_one_whose_memory_wraps(rnic, tmp_path, wraps):
    table, buffer = (2**64 - 1 if wraps == each else 0 for each in ("table", "buffer"))
    places = struct.pack(">QIIQII", table, 1, 2, buffer, 2, 65536)
    hostile = Config(rdma.Role.INITIATOR, private_data=struct.pack(">BBH4x", 1, 2, 384) + places)
    with serving("rcopy", "--folder", tmp_path) as (server, port):
        with pytest.raises(rdma.RejectedError):
            asyncio.run(rdma.connect("127.0.0.1", port, hostile))
        status, _, err = rnic("rcopy", "pyproject.toml", "127.0.0.1:copy", "-p", port)
        assert (status, err) == (0, "")
        server.send_signal(signal.SIGTERM)
        status, _, err = server.end()
        assert re.fullmatch(r"rnic: \[127.0.0.1 port \d+\] the peer offers wrong memory: .* on wrap\n", err)


def test_whatever_a_connection_raises_is_one_line_and_the_others_go_on(capsys):
    """The third client is served after two that failed, one of them for a reason that nobody has thought of."""
    served = []

    async def handle(request):
        async with await request.accept() as connection:
            message = bytes(await connection.receive())
            if message != b"good":
                raise rdma.LostError("bad", rdma.Reason.LOCAL) if message == b"bad" else KeyError(message)
            served.append(message)

    async def test():
        async with await rdma.listen() as listener:
            serving = asyncio.create_task(serve_all(listener, handle))
            for message in (b"bad", b"strange\n", b"good"):
                async with await rdma.connect(*listener.address[:2]) as connection:
                    await connection.send(message)
                    await connection.disconnected()
            serving.cancel()
            await asyncio.wait((serving,))

    asyncio.run(test())
    assert served == [b"good"]
    lines = [line.partition("] ")[2] for line in capsys.readouterr().err.splitlines()]
    assert lines == ["bad", r"KeyError: b'strange\n'"]


@pytest.mark.parametrize("program", ["rstream", "riostream"])
def test_streams_work_with_themselves(rnic, program):
    options = [program, "-S", 300, "-C", 4, "-I", 2, "--verify"]
    with serving(*options) as (server, port):
        status, out, err = rnic(*options, "-s", "127.0.0.1", "-p", port)
        assert (status, err) == (0, "")
        assert out.startswith("4800 octets in ")
        status, out, err = server.end()
        assert (status, err) == (0, "")
        assert out.startswith("4800 octets in ")


@pytest.mark.parametrize(
    ("arguments", "status", "what"),
    [
        (["perftest", "ib_atomic_bw"], 2, "Invalid value for 'TEST': 'ib_atomic_bw' is not one of 'ib_write_bw'"),
        (["perftest", "ib_write_bw", "-s", 0], 2, "-s must be 1 to 1073741824, not 0"),
        (["perftest", "ib_write_bw", "-n", 0], 2, "-n must be at least 1, not 0"),
        (["perftest", "ib_write_bw", "-t", 8193], 2, "-t must be 1 to 8192, not 8193"),
        (["perftest", "ib_write_bw", "-r", 0], 2, "-r must be 1 to 8192, not 0"),
        (["perftest", "ib_write_bw", "-o", 129], 2, "-o must be 1 to 128, not 129"),
        (["perftest", "ib_write_bw", "--model", "client-server"], 2, "is for a client"),
        (["perftest", "ib_write_bw", "127.0.0.1", "-p", 0], 2, "port 0 cannot be connected to"),
        (["perftest", "ib_write_bw", "127.0.0.1", "-p", 1], 1, "port 1: Connection refused"),
        (["rcopy", "/no/file", "127.0.0.1"], 2, "/no/file is no file"),
        (["rcopy", "pyproject.toml"], 2, "the server to which pyproject.toml is copied is missing"),
        (["rcopy", "pyproject.toml", ":x"], 2, "the server to which pyproject.toml is copied is missing"),
        (["rcopy", "pyproject.toml", "h", "--folder", "f"], 2, "--folder f is for a server"),
        (["rcopy", "pyproject.toml", "h", "--once"], 2, "--once is for a server"),
        (["rcopy", "pyproject.toml", "::1"], 2, "the IPv6 address ::1 must be in brackets: [::1]"),
        (["rcopy", "pyproject.toml", "[::1"], 2, "[::1 is not [ADDRESS] or [ADDRESS]:PATH"),
        (["rcopy", "pyproject.toml", "[::1]x"], 2, "[::1]x is not [ADDRESS] or [ADDRESS]:PATH"),
        (["rcopy", "pyproject.toml", "[::1]:x", "-p", 1], 1, "::1"),
        (["rcopy", "--folder", "/no/folder"], 2, "--folder /no/folder is no folder"),
        (["rcopy", "--model", "client-server"], 2, "is for a client"),
        (["rcopy", "pyproject.toml", "127.0.0.1", "-p", 1], 1, "port 1: Connection refused"),
        (["rstream", "-S", 0], 2, "-S must be 1 to 1073741824, not 0"),
        (["rstream", "-C", 0], 2, "-C must be at least 1, not 0"),
        (["riostream", "-I", -1], 2, "-I must be at least 1, not -1"),
        (["riostream", "-s", "127.0.0.1", "-p", 0], 2, "port 0 cannot be connected to"),
        (["riostream", "-s", "127.0.0.1", "--bind", "127.0.0.1"], 2, "--bind 127.0.0.1 is for a server"),
    ],
)
def test_an_impossible_command_is_rejected_in_one_line(rnic, arguments, status, what):
    got, out, err = rnic(*arguments)
    assert (got, out) == (status, "")
    assert what in err
    assert err.startswith("rnic: ")
    assert err.count("\n") == 1


async def visit(port, act):
    async with await rdma.connect("127.0.0.1", port) as connection:
        return await act(connection, rdma.Place.decode(connection.negotiated.private_data))


async def leave_octets(connection, place):
    await connection.write(b"12345", place.stag, place.to + place.octets - 5)


async def read_octets(connection, place):
    return bytes(await connection.read(6, place.stag, place.to + place.octets - 6))


async def read_too_many(connection, place):
    with pytest.raises(rdma.RdmaError):
        await connection.read(place.octets + 1, place.stag, place.to)


@pytest.mark.parametrize("offload", ["rdma", "none"])
def test_memory_keeps_the_octets_of_a_peer_for_the_next_one_also_behind_one_that_fails(offload):
    with serving("memory", "--octets", 1000, "--offload", offload) as (server, port):
        asyncio.run(visit(port, leave_octets))
        assert server.line().endswith("has gone: 5 octets have changed\n")
        asyncio.run(visit(port, read_too_many))
        assert server.line().endswith("has gone: 0 octets have changed\n")
        assert asyncio.run(visit(port, read_octets)) == b"\0" + b"12345"


@pytest.mark.parametrize("device", [partial(SoftwareDevice, offload=True, octets=32768), SoftwareDevice])
@pytest.mark.parametrize("octets", [1000, 65536])  # more than fits into the device: DDP is then in software
def test_memory_of_a_device_is_in_the_buffer_when_the_peer_has_gone(device, octets):
    memory = bytearray(octets)

    async def main():
        async def opened():
            return device()

        async with await rdma.listen(device=opened) as listener:
            client = asyncio.create_task(visit(listener.address[1], leave_octets))
            assert await share(await listener.request(), memory) is None
            await client

    asyncio.run(main())
    assert memory == bytes(octets - 5) + b"12345"


async def test_memory_of_the_device_itself_is_shared_and_not_copied():
    async def opened():
        return SoftwareDevice(offload=True, octets=32768)

    async with await rdma.listen(device=opened) as listener:
        port = listener.address[1]
        client = asyncio.create_task(visit(port, leave_octets))
        request = await listener.request()
        memory = memory_of(request.device, 1000)
        assert isinstance(memory, rdma.DeviceBuffer)
        memory.write(bytes(1000))
        assert await share(request, memory) is None
        await client
        assert await memory.read() == bytes(995) + b"12345"


async def test_more_memory_than_the_device_has_is_refused_before_it_is_announced(capsys):
    async def opened():
        return SoftwareDevice(offload=True, octets=32768)

    async def serve(octets):
        with pytest.raises(CommandError) as caught:
            await _serve(End("127.0.0.1", 0, Config(rdma.Role.RESPONDER), nullcontext((None, opened))), octets, True)
        return str(caught.value), capsys.readouterr().out

    message = "--octets 32768: the device has no 32768 consecutive octets of memory left for a buffer"
    assert await serve(32768) == (message, "")


def test_memory_without_octets_is_refused(rnic):
    status, _, err = rnic("memory", "--octets", 0)
    assert (status, err) == (2, f"rnic: --octets must be 1 to {1 << 30}, not 0\n")


def test_samples_of_a_simulated_device_arrive_in_order_one_peer_after_the_other(rnic):
    async def read(port):
        async with await SampleReader.connect("127.0.0.1", port, octets=4096) as reader:
            return [number async for block in reader for (number,) in struct.iter_unpack("<I", block.octets)]

    with serving("samples", "--device", "simulated", "--count", 3000) as (server, port):
        for _ in range(2):
            assert asyncio.run(read(port)) == list(range(3000))
            assert server.line().endswith("has gone: 3000 samples, 3000 written, 0 dropped\n")
        status, _, _ = rnic("connect", "127.0.0.1", port, "--private-data", "hello")
        assert status == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--device software has no sample writer; simulated and udp:sim:ecpix5 have one"),
        (
            ["--device", "udp:sim:colorlight_i9", "--transport", "tap:tap0,10.9.0.2/24"],
            "--device udp:sim:colorlight_i9 has no sample writer; simulated and udp:sim:ecpix5 have one",
        ),
        (["--device", "udp:sim:ecpix5:3"],
         "a board is BOARD[:N][:sdram|:netlist] with N 1, 2, 4, 8, 16, 32 or 64, not 'ecpix5:3'"),
        (["--device", "udp:"], "udp: needs the IPv4 address of a board, as in udp:10.0.0.2, not ''"),
        (
            ["--device", "simulated", "--offload", "none"],
            "--device simulated --offload none has no sample writer; simulated and udp:sim:ecpix5 have one",
        ),
        (["--device", "simulated", "--turn", 1], "--turn must be 2 to 4294967295, not 1"),
        (["--device", "simulated", "--period", 0], "--period must be 1 to 4294967295, not 0"),
    ],
)
def test_samples_that_no_device_can_give_are_refused(rnic, arguments, message):
    status, _, err = rnic("samples", *arguments)
    assert (status, err) == (2, f"rnic: {message}\n")
