"""The host's part of a TCP engine, with a device that does nothing by itself."""

import asyncio
from ipaddress import IPv4Address

import pytest

from open_rnic.host_driver.tcp import engine
from open_rnic.host_driver.tcp.engine import EngineStatus, EngineTcp
from open_rnic.host_driver.waiting import Gate
from open_rnic.rtl.tcp.words import Command, State

HERE, THERE = IPv4Address("10.9.0.1"), IPv4Address("10.9.0.2")


class Device:
    """A TcpDevice with one connection, whose status the test sets."""

    def __init__(self):
        self.gate = Gate()
        self.commands = []
        self.show(0)

    def show(self, status):
        self.statuses = [EngineStatus(status, THERE, 7000, 8000, len(self.commands))]
        self.gate.look()

    def command(self, command, connection, ports=0, peer=0, iss=0):
        self.commands.append(command)
        return len(self.commands)

    async def send_packet(self, connection, octets):
        self.show(State.FIN_WAIT_1)

    def accept(self, connection, wanted):
        pass


@pytest.mark.parametrize("stalls", [State.FIN_WAIT_1, State.CLOSING, State.FIN_WAIT_2], ids=lambda state: state.name)
def test_only_fin_wait_2_is_cut_short(monkeypatch, stalls):
    """Before, the peer has not acknowledged everything: only its silence ends the connection, which TCP times."""
    monkeypatch.setattr(engine, "_PATIENCE", 0.02)

    async def body():
        device = Device()
        async with EngineTcp(device, HERE) as tcp:
            opening = asyncio.create_task(tcp.connect(str(THERE), 8000, 1, None))
            while not device.commands:
                await asyncio.sleep(0)
            device.show(State.ESTABLISHED)
            (await opening).close(reset=False)
            await asyncio.sleep(0)
            device.show(stalls)
            await asyncio.sleep(0.1)
            assert device.commands == [Command.OPEN, *[Command.ABORT] * (stalls is State.FIN_WAIT_2)]

    asyncio.run(body())
