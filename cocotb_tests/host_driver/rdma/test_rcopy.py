"""rcopy, rstream and riostream on rsockets. ``make interop`` has librdmacm's programs."""

import asyncio
import errno
import os
import stat
import struct
from contextlib import asynccontextmanager

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rsocket import pair
from open_rnic.host_driver.rdma import ClosedError, rcopy, rsocket, rstream
from open_rnic.host_driver.rdma.rcopy import RcopyError
from open_rnic.host_driver.rdma.rstream import RstreamError

HEADER = struct.Struct("<BBHIQ")


@asynccontextmanager
async def serving(folder, error=None):
    """Yield a client of a server that stores files in ``folder``, and that ends with ``error``."""
    copied = []
    async with pair() as (client, server):
        task = asyncio.create_task(rcopy.serve(server, folder, copied.append))
        try:
            yield client, copied
        finally:
            await client.close()
            if error:
                with pytest.raises(RcopyError, match=error):
                    await task
            else:
                await task


@pytest.mark.parametrize("size", [0, 1, 70000, 3 << 20])
async def test_a_file_arrives_whole_with_its_mode(tmp_path, size):
    source, folder = tmp_path / "source", tmp_path / "served"
    folder.mkdir()
    source.write_bytes(os.urandom(size))
    source.chmod(0o640)
    async with serving(folder) as (client, copied):
        sent = await rcopy.send_file(client, source, "/a file")
        again = await rcopy.send_file(client, source, "b")
    assert [each.octets for each in (sent, again)] == [size, size]
    assert [(each.path, each.octets) for each in copied] == ([("/a file", size), ("b", size)] if size else [])
    for name in ("a file", "b"):
        assert (folder / name).read_bytes() == source.read_bytes()
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o640


@pytest.mark.parametrize("read", [False, True])
async def test_a_server_writes_to_no_fifo(tmp_path, read):
    source, folder = tmp_path / "source", tmp_path / "served"
    folder.mkdir()
    source.write_bytes(b"x")
    os.mkfifo(folder / "fifo")
    reader = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK) if read else -1
    async with serving(folder, "may not open fifo: it is no regular file, but a FIFO") as (client, copied):
        with pytest.raises(RcopyError, match="cannot open fifo"):
            await rcopy.send_file(client, source, "fifo")
    assert copied == []
    if read:
        os.close(reader)


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/../x", "link/x", ".", "/", "no/x", "link"])
async def test_a_server_stores_nothing_outside_its_folder(tmp_path, path):
    source, folder = tmp_path / "source", tmp_path / "served"
    folder.mkdir()
    source.write_bytes(b"secret")
    (folder / "link").symlink_to(tmp_path)
    what = "No such file" if path == "no/x" else "Permission denied"
    async with serving(folder, f"may not open {path}: {what}") as (client, copied):
        with pytest.raises(RcopyError, match=f"cannot open {path}: {what}"):
            await rcopy.send_file(client, source, path)
    assert copied == []
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["link", "served", "source"]


async def test_the_protocol_has_rcopys_format(tmp_path):
    """A client, octet by octet as rcopy sends them."""
    async with serving(tmp_path) as (client, copied):
        await client.send(HEADER.pack(0, 1, 16 + 8, 0o100600, 77) + b"/x".ljust(8, b"\0"))
        assert await client.recv_exactly(16) == HEADER.pack(0, 0x81, 16, 0, 77)
        await client.send(HEADER.pack(0, 3, 24, 0, 0) + struct.pack("<Q", 5))
        await client.send(b"hello")
        assert await client.recv_exactly(16) == HEADER.pack(0, 0x83, 16, 0, 0)
        await client.send(HEADER.pack(0, 2, 16, 0, 0))
        assert await client.recv_exactly(16) == HEADER.pack(0, 0x82, 16, 0, 0)
    assert [each.octets for each in copied] == [5]
    assert (tmp_path / "x").read_bytes() == b"hello"


@pytest.mark.parametrize(
    ("messages", "status", "error"),
    [
        ([HEADER.pack(0, 3, 24, 0, 0)], errno.EINVAL, "request 0x03, with 24 octets"),  # no file is open
        ([HEADER.pack(0, 9, 16, 0, 0)], errno.EINVAL, "request 0x09, with 16 octets"),
        ([HEADER.pack(0, 1, 16, 0, 0)], errno.EINVAL, "request 0x01, with 16 octets"),
        ([HEADER.pack(0, 2, 17, 0, 0)], errno.EINVAL, "request 0x02, with 17 octets"),
        ([HEADER.pack(0, 1, 16 + 8, 0o600, 0) + b"x".ljust(8, b"\0")] * 2, errno.EBUSY, "opened a second file"),
        ([HEADER.pack(1, 1, 24, 0, 0)], None, "a request of version 1"),
        ([HEADER.pack(0, 1, 15, 0, 0)], None, "version 0, with 15 octets"),
        ([HEADER.pack(0, 1, 24, 0, 0)[:9]], None, "closed inside a request"),
    ],
)
async def test_a_client_that_breaks_the_protocol_is_answered_and_reported(tmp_path, messages, status, error):
    async with serving(tmp_path, error) as (client, _):
        for message in messages:
            await client.send(message)
        if status:
            answers = await client.recv_exactly(16 * len(messages))
            assert HEADER.unpack(answers[-16:])[3] == status


async def test_a_client_that_leaves_inside_a_file_is_reported(tmp_path):
    async with serving(tmp_path, "closed inside a request") as (client, _):
        await client.send(HEADER.pack(0, 1, 24, 0o600, 0) + b"x".ljust(8, b"\0"))
        await client.send(HEADER.pack(0, 3, 24, 0, 0) + struct.pack("<Q", 6) + b"hello")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HEADER.pack(0, 0x82, 16, 0, 0), "answered OPEN with version 0, 0x82"),
        (HEADER.pack(1, 0x81, 16, 0, 0), "version 1"),
        (HEADER.pack(0, 0x81, 17, 0, 0), "17 octets"),
        (HEADER.pack(0, 0x81, 16, errno.ENOSPC, 0), "No space left"),
    ],
)
async def test_a_server_that_refuses_or_breaks_the_protocol_is_reported(tmp_path, answer, error):
    (tmp_path / "x").write_bytes(b"hello")
    async with pair() as (client, server):
        await server.send(answer)
        with pytest.raises(RcopyError, match=error):
            await rcopy.send_file(client, tmp_path / "x", "x")


async def test_a_client_learns_why_the_server_stopped_in_the_middle(tmp_path, monkeypatch):
    source, folder = tmp_path / "source", tmp_path / "served"
    source.write_bytes(bytes(3 << 20))
    folder.mkdir()

    async def fill(rsocket, file, octets):
        await rsocket.recv()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rcopy, "_receive", fill)
    async with pair() as (client, server):

        async def serve():
            with pytest.raises(RcopyError, match="cannot write x: No space left on device"):
                await rcopy.serve(server, folder)
            await server.close()

        task = asyncio.create_task(serve())
        with pytest.raises(RcopyError, match="cannot write x: No space left on device"):
            await rcopy.send_file(client, source, "x")
        await client.close()
        await task


@pytest.mark.parametrize("path", ["", "a\0b", "x" * 4096])
def test_an_impossible_path_is_rejected(tmp_path, path):
    with pytest.raises(ValueError, match="a destination has 1 to 4095 octets"):
        asyncio.run(rcopy.send_file(None, tmp_path, path))


# rstream, riostream


async def measured(run_end, ours, theirs):
    settings = rsocket.Settings(buffer=4096, maps=1)
    async with pair(settings, settings) as (client, server), asyncio.TaskGroup() as group:
        serving = group.create_task(run_end(server, theirs, leads=False))
        results = await run_end(client, ours, leads=True)
    return results, serving.result()


@pytest.mark.parametrize("run_end", [rstream.stream, rstream.mapped])
@pytest.mark.parametrize("size", [1, 300, 5000])
async def test_both_ends_transfer_and_verify(run_end, size):
    settings = rstream.Settings(size, 3, 4, verify=True)
    for each in await measured(run_end, settings, settings):
        assert each.octets == 2 * size * 3 * 4
        assert each.seconds > 0


async def test_turns_of_mapped_memory_count_modulo_256():
    settings = rstream.Settings(1, 1, 260, verify=True)
    await measured(rstream.mapped, settings, settings)


async def test_wrong_data_is_reported():
    async with pair() as (client, server):
        await server.send(bytes(range(16)))
        await server.send(bytes(range(16, 26)) + b"!")
        with pytest.raises(RstreamError, match="wrong data in a transfer of 11 octets"):
            await rstream.stream(client, rstream.Settings(11, 1, verify=True), leads=True)


async def test_wrong_mapped_data_is_reported():
    settings = rsocket.Settings(maps=1)
    async with pair(settings, settings) as (client, server):
        task = asyncio.create_task(rstream.mapped(client, rstream.Settings(3, 1, verify=True), leads=True))
        await server.map(bytearray(3), 0)
        await server.send(bytes(16))
        await server.recv_exactly(16)
        await server.write_at(b"\0\2\1", 0)
        with pytest.raises(RstreamError, match="wrong data in a transfer of 3 octets"):
            await task


async def test_a_peer_that_leaves_before_its_turn_is_reported():
    settings = rsocket.Settings(maps=1)
    async with pair(settings, settings) as (client, server):
        task = asyncio.create_task(rstream.mapped(client, rstream.Settings(3, 1), leads=True))
        await server.map(bytearray(3), 0)
        await server.send(bytes(16))
        await server.close()
        with pytest.raises(ClosedError):
            await task


@pytest.mark.parametrize("change", [{"size": 0}, {"count": 0}, {"iterations": 0}, {"size": (1 << 30) + 1}])
def test_impossible_parameters_are_rejected(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} must be at "):
        rstream.Settings(**change)
