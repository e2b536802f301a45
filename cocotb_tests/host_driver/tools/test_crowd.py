"""A listener with many peers: no peer delays another one, and the cost of each is bounded."""

import asyncio
import json
import resource
import socket
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from open_rnic.cocotb_tests.harness.commands import RNIC
from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import manager
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.bench.crowd import REQUEST, crowd
from open_rnic.rtl.registers import Role

PATIENT = Config(Role.RESPONDER, timeout=3600.0)  # silent peers remain connected until the end


def peers(stack, listener, count):
    """Open TCP connections that send nothing."""
    return [stack.enter_context(socket.create_connection(listener.address[:2])) for _ in range(count)]


async def serve(listener):
    async with asyncio.TaskGroup() as group:
        async for request in listener:
            group.create_task(echo(request))


async def echo(request):
    connection = await request.accept()
    try:
        while True:
            await connection.send(bytes(await connection.receive(64)))
    except rdma.RdmaError:
        await connection.abort()


async def good_client(listener):
    async with await rdma.connect(*listener.address[:2]) as connection:
        await connection.send(b"good")
        assert bytes(await connection.receive(64)) == b"good"


async def test_silent_slow_and_idle_peers_do_not_delay_a_regular_client():
    failures, opened = [], []

    async def device():
        opened.append(1)
        return await rdma.manager.software()

    async with await rdma.listen(config=PATIENT, device=device, failed=lambda *what: failures.append(what)) as listener:
        serving = asyncio.create_task(serve(listener))
        with ExitStack() as stack:
            idle = [await rdma.connect(*listener.address[:2]) for _ in range(100)]
            peers(stack, listener, 200)
            slow = peers(stack, listener, 200)
            for octet in REQUEST[:30]:
                for each in slow:
                    each.send(bytes((octet,)))
                await good_client(listener)
            assert not failures  # regular clients were answered before any other peer gave up
            assert len(opened) == 100 + 30  # silent peers have no device
            await asyncio.gather(*(each.abort() for each in idle))
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_connection_above_the_limit_closes_the_oldest_one(monkeypatch):
    monkeypatch.setattr(manager, "HEARING", 8)
    failures = []
    async with await rdma.listen(config=PATIENT, failed=lambda *failure: failures.append(failure)) as listener:
        serving = asyncio.create_task(serve(listener))
        with ExitStack() as stack:
            silent = peers(stack, listener, 10)
            await good_client(listener)  # the third one above the limit
            assert [peer for peer, _ in failures] == [each.getsockname() for each in silent[:3]]
            assert str(failures[0][1]) == "closed before its MPA Request was taken: 8 newer connections wait"
            for each in silent[:3]:
                assert each.recv(1) == b""
            silent[3].setblocking(False)
            try:
                silent[3].recv(1)
            except BlockingIOError:
                pass
            else:
                raise AssertionError("the fourth was closed, too")
        serving.cancel()
        await asyncio.wait((serving,))


async def test_a_request_may_arrive_in_pieces():
    async with await rdma.listen(config=PATIENT) as listener:
        with ExitStack() as stack:
            (peer,) = peers(stack, listener, 1)
            for octet in REQUEST:
                peer.send(bytes((octet,)))
                await asyncio.sleep(0)
            request = await listener.request()
            assert request.private_data == bytes(400)
            assert (request.ird, request.ord) == (16, 16)
            await request.reject(b"", config=replace(PATIENT))


@contextmanager
def listening(files):
    """Run ``rnic listen`` with a hard limit of open files; yields its port and its output lines."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert soft > files
    command = [*RNIC, "listen", "--echo", "--json", "--timeout", "3600"]
    with subprocess.Popen(
        ["sh", "-c", f'ulimit -S -n 20; ulimit -H -n {files}; exec "$@"', "sh", *command],
        stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield json.loads(process.stdout.readline())["port"], process
        finally:
            process.kill()


def test_silent_peers_beyond_the_file_limit_are_closed_for_a_regular_client(capsys):
    with listening(files=60) as (port, process), ExitStack() as stack:
        for _ in range(100):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert cli.run(["connect", "127.0.0.1", str(port), "--send", "good"]) == 0
        assert 'received 4 octets: "good"' in capsys.readouterr().out
        soft, _ = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == 60  # raised to the hard limit
        event = json.loads(process.stdout.readline())
        assert event["event"] == "failed"
        limit = "Too many open files, 60 is this process's limit (ulimit -n)"
        assert event["reason"].startswith("closed before its MPA Request was taken: cannot take a connection at ")
        assert event["reason"].endswith(limit)


async def test_reaching_the_file_limit_is_reported_once():
    with listening(files=60) as (port, process):

        async def events(name):
            """Return all events up to the next one of this name."""
            found = []
            while not found or found[-1]["event"] != name:
                found.append(json.loads(await asyncio.to_thread(process.stdout.readline)))
            return found

        opened = []
        reading = asyncio.create_task(events("failed"))
        while not reading.done():
            opened.append(asyncio.create_task(rdma.connect("127.0.0.1", port)))
            await asyncio.wait((opened[-1], reading), return_when=asyncio.FIRST_COMPLETED)
        reported = reading.result()
        failed = reported[-1]
        assert failed["reason"].endswith("Too many open files, 60 is this process's limit (ulimit -n)")
        assert failed["peer"] == ["127.0.0.1", port]
        await (await opened[0]).close()  # frees a file
        await opened[-1]
        while [each["event"] for each in reported].count("established") < len(opened):
            reported += await events("established")
        assert [each["event"] for each in reported].count("failed") == 1, reported
        for each in opened[1:]:
            await (await each).abort()


def test_the_memory_of_connections_is_bounded():
    found = asyncio.run(crowd(100, 10, 100, 2, lambda what, total: None))
    assert found.silent_octets < 20 * 1024
    assert found.idle_octets < 100 * 1024
    assert len(found.waited_s) == len(found.alone_s) == 2
