"""Connections whose DDP is in the RDMA engine of a device."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial

import pytest

from open_rnic.cocotb_tests.host_driver.rdma.test_rdma import INITIATOR, RESPONDER, connected, exercise
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver import rdma
from open_rnic.host_driver.devices import open_device
from open_rnic.host_driver.devices.software import SoftwareDevice
from open_rnic.host_driver.errors import MpaConnectionError, RejectedError
from open_rnic.host_driver.rdma import Access, offload
from open_rnic.host_driver.rdma.engine import MappedMemory, Twin
from open_rnic.host_driver.rdma.offload import OffloadStream
from open_rnic.rtl.rdma.registers import BY_NAME


async def offloading():
    return SoftwareDevice(offload=True)


async def test_a_device_with_an_engine_does_ddp_and_the_application_sees_no_difference():
    async with connected(device=offloading) as (ours, theirs):
        assert isinstance(ours._stream, OffloadStream)
        assert isinstance(theirs._stream, OffloadStream)
        await asyncio.gather(exercise(ours, theirs), exercise(theirs, ours))
        assert ours.error is theirs.error is None


async def test_a_region_that_was_awaited_is_known_to_the_device_however_the_peer_learns_of_it(monkeypatch):
    async with connected(device=offloading) as (ours, theirs):
        device, line, buffer = theirs.device, [], bytearray(9)
        push, get = device.push, device.get

        async def behind(register):  # an answer comes behind what was pushed
            while line:
                push(*line.pop(0))
            return await get(register)

        monkeypatch.setattr(device, "push", lambda *words: line.append(words))
        monkeypatch.setattr(device, "get", behind)
        region = theirs.register(buffer, Access.REMOTE_WRITE)
        assert line
        assert await region is region
        assert not line
        await ours.write(b"any octet", region.stag, region.to)
        await ours.send(b"")
        await theirs.receive()
        assert buffer == b"any octet"


async def test_a_connection_that_does_not_fit_into_a_device_that_must_do_ddp_is_refused():
    async def small():
        device = SoftwareDevice(offload=True, octets=1 << 14)
        device.needs_engine = True
        return device

    domain = rdma.ProtectionDomain()
    region = domain.register(bytearray(1 << 15), Access.REMOTE_WRITE)
    full = "does not fit into the device: the device has no 32768 consecutive octets of memory left"
    async with await rdma.listen(config=RESPONDER, device=small, domain=domain) as listener:
        with pytest.raises(MpaConnectionError, match=full):
            await rdma.connect(*listener.address, INITIATOR, device=small, domain=domain)
        connecting = asyncio.create_task(rdma.connect(*listener.address, INITIATOR))
        request = await listener.request()
        with pytest.raises(MpaConnectionError, match=full):
            await request.accept()
        with pytest.raises(RejectedError):
            await connecting
    region.deregister()


@pytest.mark.parametrize("octets", shortened("another length of FPDUs", 1, [1000, 4096]))
async def test_messages_of_any_length_and_alignment_pass_through_the_rtl(octets):
    one = rdma.Options(mulpdu=octets)
    device = partial(open_device, "simulated", lanes=4, offload=True)
    async with connected(one=one, device=device) as (ours, theirs):
        message = bytes(n % 251 for n in range(3 * octets))
        memory = bytearray(5 * octets)
        region = theirs.register(memory, Access.REMOTE_READ | Access.REMOTE_WRITE)
        for number in (*range(20), octets - 19, octets - 18, octets - 17, 2 * octets, 2 * octets + 1):
            await ours.send([message[:number], message[number : 2 * number]])
            assert bytes(await theirs.receive()) == message[: 2 * number]
            await ours.write(message[:number], region.stag, number)
            assert await ours.read(number, region.stag, number) == message[:number]
            assert memory[number : 2 * number] == message[:number]


@pytest.mark.parametrize("kind", ["software", "simulated"])
@pytest.mark.parametrize("ends", ["terminate", "abort"])
async def test_an_end_amid_a_send_passes_no_octets_that_were_not_posted(kind, ends):
    device = partial(open_device, kind, lanes=4, offload=True)
    message = b"\xaa" * 4096
    async with connected(device=device) as (ours, theirs):
        posted = [ours.post_send(message) for _ in range(100)]
        received = [theirs.post_receive(bytearray(4096)) for _ in range(100)]
        while not posted[3].done():
            await asyncio.sleep(0)
        await getattr(ours, ends)()
        await theirs.disconnected()
        sent = await asyncio.gather(*posted, return_exceptions=True)
        results = await asyncio.gather(*received, return_exceptions=True)
        whole = [bytes(each) for each in results if not isinstance(each, Exception)]
        assert whole
        assert set(whole) == {message}
        failed = [each for each in sent if isinstance(each, Exception)]
        assert all(each is ours.error for each in failed)
        if ends == "terminate":  # what arrived has been completed as sent
            assert len(whole) <= len(sent) - len(failed)


@pytest.mark.parametrize("kind", ["software", "simulated"])
async def test_a_buffer_does_not_get_the_addresses_to_which_an_rdma_write_is_under_way(kind):
    device = partial(open_device, kind, lanes=4, offload=True)
    octets = 1 << 16
    async with connected(device=device) as (ours, theirs):
        theirs.device.memory.places.space = 2 * octets  # room for one
        region = theirs.register(bytearray(octets), Access.REMOTE_WRITE)
        writes = [ours.post_write(b"\xaa" * octets, region.stag) for _ in range(20)]
        while region.view[0] != 0xAA:
            await asyncio.sleep(0)
        stag = region.stag
        region.deregister()
        with pytest.raises(ValueError, match="no 65536 consecutive octets of memory left"):
            theirs.register(bytearray(octets), Access.REMOTE_READ)
        await asyncio.gather(*writes, return_exceptions=True)
        with suppress(rdma.RdmaError):
            await ours.write(b"late", stag)
        await theirs.disconnected()
        assert isinstance(theirs.error, rdma.TerminatedError)


async def test_the_addresses_of_a_region_are_free_soon_after_it_was_deregistered():
    async with connected(device=offloading) as (ours, _):
        ours.device.memory.places.space = 4096
        for _ in range(5):
            ours.register(bytearray(3000), Access.REMOTE_WRITE).deregister()
            await asyncio.sleep(0.01)
        assert len(ours.device.memory) == 0


class Stalls:
    """The registers of a device whose memory does not take a word."""

    def __init__(self, device):
        self.ulpdus, self.looks = 0, 0
        self.stalls = True
        self._get = device.get
        device.get = self.get

    async def get(self, register):
        word = await self._get(register)
        if self.stalls and register == "RDMA_STATUS":
            self.looks += 1
            return word | BY_NAME["RDMA_STATUS"]["placing"].mask
        return word + self.ulpdus if register == "RDMA_ULPDUS" else word

    async def looked(self, times):
        until = self.looks + times
        while self.looks < until:
            await asyncio.sleep(0)


@pytest.mark.parametrize("ends", ["placed", "others behind"])
async def test_addresses_are_not_free_while_octets_are_on_their_way_to_memory(ends):
    async with connected(device=offloading) as (ours, theirs):
        memory, registers = theirs.device.memory, Stalls(theirs.device)
        theirs.register(bytearray(100), Access.REMOTE_WRITE).deregister()
        await registers.looked(5)
        assert len(memory) == 1
        if ends == "placed":
            registers.stalls = False
        else:
            registers.ulpdus = offload._BEHIND - 1
            await registers.looked(5)
            assert len(memory) == 1
            registers.ulpdus += 1
        while len(memory):
            await asyncio.sleep(0)
        registers.stalls = False
        await asyncio.gather(ours.send(b"octets"), theirs.receive())


async def test_a_memory_that_takes_no_octets_of_a_region_that_was_deregistered_ends_the_connection(monkeypatch):
    monkeypatch.setattr(offload, "PLACED", 0.05)
    async with connected(device=offloading) as (ours, theirs):
        Stalls(theirs.device)
        theirs.register(bytearray(100), Access.REMOTE_WRITE).deregister()
        await asyncio.gather(ours.disconnected(), theirs.disconnected())
        assert "the memory of the device has not taken octets for 0.05 s" in str(theirs.error)
        assert isinstance(theirs.error, rdma.TerminatedError)
        assert "local catastrophic" in str(ours.error)
        await theirs.close()
        assert len(theirs.device.memory) == 0


@pytest.mark.parametrize("access", [Access.REMOTE_READ, Access.REMOTE_WRITE])
async def test_reads_that_are_under_way_when_a_source_is_deregistered_return_its_octets(access):
    async with connected(device=offloading) as (ours, _):
        memory, buffer = ours.device.memory, bytearray(b"\xaa" * 100)
        region = ours.register([buffer[:50], buffer[50:]], access)
        address = ours.device_address(region)
        region.deregister()
        assert memory.read(address + 40, 20) == (b"\xaa" if access is Access.REMOTE_READ else b"\0") * 20
        while len(memory):
            await asyncio.sleep(0)
        assert memory.read(address, 100) == bytes(100)


@pytest.mark.parametrize("crc", shortened("CRCs do not matter to it", 1, [True, False]))
async def test_a_read_whose_source_is_deregistered_has_its_octets_or_fails(crc):
    octets, one = 3000, rdma.Options(mulpdu=1000)
    device = partial(open_device, "simulated", lanes=4, offload=True)
    initiator, responder = (replace(each, crc=crc) for each in (INITIATOR, RESPONDER))
    for steps in range(0, 40, 8):
        async with connected(initiator, responder, one=one, device=device) as (ours, theirs):
            region = theirs.register(bytearray(b"\xaa" * octets), Access.REMOTE_READ)
            sinks = [bytearray(octets) for _ in range(30)]
            reads = [asyncio.ensure_future(ours.post_read(sink, stag=region.stag)) for sink in sinks]
            await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            for _ in range(steps):
                await asyncio.sleep(0)
            region.deregister()
            results = await asyncio.gather(*reads, return_exceptions=True)
            done = [bytes(s) for s, result in zip(sinks, results, strict=True) if not isinstance(result, Exception)]
            assert set(done) == {b"\xaa" * octets}
            if len(done) < len(sinks):
                await asyncio.gather(ours.disconnected(), theirs.disconnected())
                assert f"STag {region.stag:#x} is not valid" in str(theirs.error)
                assert isinstance(ours.error, rdma.RdmaError)
            else:
                assert theirs.error is ours.error is None


async def test_a_memory_that_answers_with_an_error_ends_the_connection():
    async with connected(device=offloading) as (ours, theirs):
        device, get = ours.device, ours.device.get
        failed = BY_NAME["RDMA_STATUS"]["memory_failed"].mask

        async def get_failed(register):
            return await get(register) | (failed if register == "RDMA_STATUS" else 0)

        device.get = get_failed
        await asyncio.gather(ours.send(b"octets"), theirs.receive())
        await asyncio.gather(ours.disconnected(), theirs.disconnected())
        assert "the memory of the device has answered with an error" in str(ours.error)
        assert isinstance(ours.error, rdma.TerminatedError)
        assert "local catastrophic" in str(theirs.error)


async def test_an_engine_that_does_not_become_ready_is_a_failure_of_the_device(monkeypatch):
    monkeypatch.setattr(offload, "READY", 0.05)

    async def stuck():
        device = SoftwareDevice(offload=True)
        get = device.get

        async def not_ready(register):
            return 0 if register == "RDMA_STATUS" else await get(register)

        device.get = not_ready
        return device

    async with await rdma.listen(device=stuck) as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2]))
        with pytest.raises(rdma.MpaConnectionError, match=r"not ready within 0\.05 s of the reset"):
            await (await listener.request()).accept()
        async with await connecting as ours:
            await ours.disconnected()


async def small():
    """Return a device whose engine has room for little."""
    device = SoftwareDevice()
    device.memory = MappedMemory()
    device._twin = Twin(device.memory, regions=8, buffers=2, work=2, reads=2)
    device._path.seen = device._report_rtrs
    return device


async def test_work_and_buffers_beyond_the_engines_queues_wait_for_their_turn():
    async with connected(device=small) as (ours, theirs):
        assert (ours.negotiated.ird, theirs.negotiated.ird) == (2, 2)
        region = theirs.register(bytearray(range(100)), Access.REMOTE_READ)
        received = [theirs.post_receive(bytearray(1)) for _ in range(20)]
        sinks = [bytearray(5) for _ in range(20)]
        done = []
        for number, sink in enumerate(sinks):
            done.append(ours.post_read(sink, stag=region.stag, to=number))
            done.append(ours.post_send(bytes([number])))
        finished = []
        for number, each in enumerate(done):
            each.add_done_callback(lambda _, number=number: finished.append(number))
        await asyncio.gather(*done)
        assert finished == list(range(40))  # RFC 5040 §5.5 rule 15
        assert sinks == [bytes(range(number, number + 5)) for number in range(20)]
        assert [bytes(await each) for each in received] == [bytes([number]) for number in range(20)]
        assert len(ours.domain) == 0


async def test_a_full_table_of_the_engine_refuses_regions_until_one_is_deregistered():
    async with connected(device=small) as (ours, theirs):
        regions = [theirs.register(bytearray(4), Access.REMOTE_WRITE) for _ in range(6)]
        with pytest.raises(ValueError, match="the device's STag table is full"):
            theirs.register(bytearray(4), Access.REMOTE_WRITE)  # the rest is for the sinks of RDMA Reads
        assert len({region.stag % 8 for region in regions}) == 6
        regions[0].deregister()
        again = theirs.register(bytearray(4), Access.REMOTE_WRITE)
        await ours.write(b"abcd", again.stag)
        await ours.send(b"")
        await theirs.receive()
        assert bytes(again.view) == b"abcd"


async def test_the_sink_of_an_rdma_read_finds_its_row_in_a_small_table_whatever_other_connections_have():
    async with connected(device=small) as (ours, theirs):
        others = rdma.ProtectionDomain(ours.domain.stags)
        regions = [others.register(bytearray(1), Access.REMOTE_READ) for _ in range(1024)]
        for region in regions:
            if region.stag % 1024 in (5, 13):
                region.deregister()
        ours.register(bytearray(1), Access.REMOTE_READ)  # in row 5 of the engine, the one of STags 5 and 13
        source = theirs.register(b"abcd", Access.REMOTE_READ)
        assert await ours.read(4, source.stag) == b"abcd"
        for region in regions:
            region.deregister()


async def test_an_unexpected_error_ends_the_connection_with_a_terminate(monkeypatch):
    async with connected(device=offloading) as (ours, theirs):

        async def broken(**_):
            raise ValueError("no reason")

        monkeypatch.setattr(ours._stream, "sync", broken)
        await theirs.send(b"")
        posted = ours.post_receive(bytearray(1))
        with pytest.raises(rdma.TerminatedError, match=r"catastrophic error .*: ValueError\('no reason'\)"):
            await posted
        error = await theirs.disconnected()
        assert error.fault is rdma.Fault.RDMAP_CATASTROPHIC


async def test_a_domain_that_does_not_fit_into_the_engine_is_served_in_software():
    domain = rdma.ProtectionDomain()
    regions = [domain.register(bytearray(4), Access.REMOTE_WRITE) for _ in range(9)]
    async with await rdma.listen(device=small, domain=domain) as listener:
        connecting = asyncio.create_task(rdma.connect(*listener.address[:2], device=small))
        theirs, ours = await (await listener.request()).accept(), await connecting
        assert not isinstance(theirs._stream, OffloadStream)
        for region in regions:
            await ours.write(b"abcd", region.stag)
        await ours.send(b"")
        await theirs.receive()
        assert {bytes(region.view) for region in regions} == {b"abcd"}
        await asyncio.gather(ours.close(), theirs.close())
    for region in regions:
        region.deregister()
