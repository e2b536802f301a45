"""The host's part of a TCP engine, with a device that does nothing by itself."""

import asyncio
from ipaddress import IPv4Address

import pytest

from open_rnic.host_driver.lib.waiting import Gate
from open_rnic.host_driver.tcp import engine
from open_rnic.host_driver.tcp.engine import EngineStatus, EngineTcp
from open_rnic.rtl.tcp.words import Command, Reason, State

HERE, THERE = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")


class Device:
    """A TcpDevice whose statuses the test sets."""

    def __init__(self, connections=1):
        self.gate = Gate()
        self.commands = []
        self.statuses = [EngineStatus(0, THERE, 7000, 8000, 0)] * connections

    def show(self, status, connection=0):
        self.statuses[connection] = EngineStatus(status, THERE, 7000, 8000, len(self.commands))
        self.gate.look()

    async def given(self, count):
        """Wait until so many commands have been given, with their connections; return those."""
        await self.gate.until(lambda: len(self.commands) >= count)
        return self.commands

    def command(self, command, connection, ports=0, peer=0, iss=0):
        self.commands.append((command, connection))
        self.gate.look()
        return len(self.commands)

    async def send_packet(self, connection, octets):
        self.show(State.FIN_WAIT_1)

    def accept(self, connection, wanted):
        pass


async def closed(device, tcp):
    """Open the connection of the device, and close it."""
    opening = asyncio.create_task(tcp.connect(str(THERE), 8000, 1, None))
    await device.given(1)
    device.show(State.ESTABLISHED)
    (await opening).close(reset=False)
    await asyncio.sleep(0)


@pytest.mark.parametrize("stalls", [State.FIN_WAIT_1, State.CLOSING, State.FIN_WAIT_2], ids=lambda state: state.name)
async def test_only_fin_wait_2_is_cut_short(monkeypatch, stalls):
    """Before, the peer has not acknowledged everything: only its silence ends the connection, which TCP times."""
    monkeypatch.setattr(engine, "_PATIENCE", 0.02)
    device = Device()
    async with EngineTcp(device, HERE) as tcp:
        await closed(device, tcp)
        device.show(stalls)
        await asyncio.sleep(0.1)
        assert device.commands == [(Command.OPEN, 0), *[(Command.ABORT, 0)] * (stalls is State.FIN_WAIT_2)]


async def test_fin_wait_2_is_cut_short_however_long_the_peer_stalled_before(monkeypatch):
    monkeypatch.setattr(engine, "_PATIENCE", 0.02)
    device = Device()
    async with EngineTcp(device, HERE) as tcp:
        await closed(device, tcp)
        await asyncio.sleep(0.1)
        device.show(State.FIN_WAIT_2)
        assert await device.given(2) == [(Command.OPEN, 0), (Command.ABORT, 0)]


async def listening(device, tcp):
    """Return a listener that has both connections of the device in LISTEN."""
    listening = asyncio.create_task(tcp.listen(str(HERE), 7000))
    await device.given(2)
    for connection in range(2):
        device.show(State.LISTEN, connection)
    return await listening


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_syn_that_takes_a_connection_from_under_a_connect_loses_nothing(cancelled):
    device = Device(connections=2)
    async with EngineTcp(device, HERE) as tcp:
        listener = await listening(device, tcp)
        opening = asyncio.create_task(tcp.connect(str(THERE), 8000, 1, None))
        assert (await device.given(3))[-1] == (Command.UNLISTEN, 1)
        if cancelled:
            opening.cancel()
            await asyncio.wait([opening])
        device.show(State.SYN_RECEIVED, 1)
        device.show(State.ESTABLISHED, 1)
        assert (await listener.accept())._row.number == 1
        if cancelled:
            return
        assert (await device.given(4))[-1] == (Command.UNLISTEN, 0)
        device.show(Reason.ABORTED, 0)
        assert (await device.given(5))[-1] == (Command.OPEN, 0)
        device.show(State.ESTABLISHED, 0)
        assert (await opening)._row.number == 0


async def test_the_oldest_connection_whose_peer_does_not_answer_gives_way(monkeypatch):
    monkeypatch.setattr(engine, "_HALF_OPEN", 0.2)
    device = Device(connections=2)
    async with EngineTcp(device, HERE) as tcp:
        await listening(device, tcp)
        for forged in (1, 0):
            device.show(State.SYN_RECEIVED, forged)
            await asyncio.sleep(0.001)
        assert len(device.commands) == 2
        assert (await device.given(3))[-1] == (Command.UNLISTEN, 1)
        device.show(Reason.ABORTED, 1)
        assert (await device.given(4))[-1] == (Command.LISTEN_AT, 1)
        device.show(State.LISTEN, 1)
        await asyncio.sleep(0.4)  # the other may stay, as one listens
        assert len(device.commands) == 4


class Obedient(Device):
    """It carries out each command at once."""

    RESULTS = {
        Command.LISTEN_AT: State.LISTEN, Command.OPEN: State.ESTABLISHED, Command.UNLISTEN: Reason.ABORTED,
        Command.ABORT: Reason.ABORTED,
    }  # fmt: skip

    def command(self, command, connection, ports=0, peer=0, iss=0):
        asyncio.get_running_loop().call_soon(self.show, self.RESULTS[command], connection)
        return super().command(command, connection, ports, peer, iss)


@pytest.mark.parametrize("wants", ["connect", "listen"])
async def test_it_gives_way_to_a_connect_and_to_another_listener_too(monkeypatch, wants):
    """The other listener has no connection that could give way."""
    monkeypatch.setattr(engine, "_HALF_OPEN", 0.1)
    device = Obedient(connections=2)
    async with EngineTcp(device, HERE) as tcp:
        await tcp.listen(str(HERE), 7000)
        for forged in (1, 0):
            device.show(State.SYN_RECEIVED, forged)
            await asyncio.sleep(0.001)
        if wants == "connect":
            await tcp.connect(str(THERE), 8000, 1, None)
            given = [(Command.OPEN, 0), (Command.OPEN, 1)]
        else:
            await tcp.listen(str(HERE), 7001)
            given = [(Command.LISTEN_AT, 0), (Command.LISTEN_AT, 1)]
        assert device.commands[2] == (Command.UNLISTEN, 1)
        assert {*given} & {*device.commands[3:]}
