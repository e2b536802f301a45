"""Debian's own programs in the guest: rping, rdma_client and rdma_server, ucmatose."""

from __future__ import annotations

import asyncio
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.tools.interop.case import Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.qemu import Output
from open_rnic.rtl.registers import Model, Role, Rtr

COUNT = 20  # pings
# rping's last line if one of its threads closes a file for which another one still waits
_RACE = "rdma_get_cm_event: Bad file descriptor"
_FAR = 16  # octets in a Send of rdma_client and rdma_server
_UCMATOSE = 10, 100  # number of messages in each direction, and their size in octets


async def to_rping(setting: Setting, size: int, config: Config, count: int = COUNT) -> Finding:
    """We ping the guest."""
    server = await setting.serve(f"rping -s -a {setting.address} -p {setting.guest.service} -C {count} -S {size} -V")
    async with await setting.connect(config) as connection:
        with setting.measured(2 * size * count, connection):
            await rping.client(connection, count=count, size=size, validate=True)
        rtr = f"; sent a {connection.rtr.name.capitalize()} RTR" if connection.rtr is not Rtr.NONE else ""
    ended(await server)
    return Finding(setting.reply, f"{count} pings of {size} octets returned unchanged{rtr}")


async def from_rping(setting: Setting, size: int, config: Config, count: int = COUNT) -> Finding:
    """The guest pings us."""
    listener = await setting.listen(config)
    options = f"-C {count} -S {size} -V"
    client = setting.run(f"rping -c -a {setting.host} -p {listener.address[1]} {options}")
    async with await (await listener.request()).accept() as connection:
        with setting.measured(2 * size * count, connection):
            served = await rping.server(connection)
        rtr = f"; received a {connection.rtr.name.capitalize()} RTR" if connection.rtr is not Rtr.NONE else ""
    ended(await client)
    check(served == count, f"{served} pings arrived, not {count}")
    return Finding(setting.reply, f"{setting.ours}; answered {count} pings of {size} octets{rtr}")


async def _rdma_server(setting: Setting) -> Finding:
    server = await setting.serve(f"rdma_server -p {setting.guest.service}")
    async with await setting.connect() as connection:
        with setting.measured(2 * _FAR, connection):
            await connection.send(bytes(_FAR))
            received = await connection.receive()
        _is_theirs(received)
    output = await server
    check(output.value("rdma_server: end") == "0", f"rdma_server printed {' '.join(output.lines)}")
    return Finding(setting.reply, "a Send of 16 octets each way")


async def _rdma_client(setting: Setting) -> Finding:
    listener = await setting.listen()
    client = setting.run(f"rdma_client -s {setting.host} -p {listener.address[1]}")
    async with await (await listener.request()).accept() as connection:
        with setting.measured(2 * _FAR, connection):
            received = await connection.receive()
            await connection.send(bytes(_FAR))
        _is_theirs(received)
        await connection.disconnected()
    output = await client
    check(output.value("rdma_client: end") == "0", f"rdma_client printed {' '.join(output.lines)}")
    return Finding(setting.reply, f"{setting.ours}; a Send of 16 octets each way")


async def _ucmatose_server(setting: Setting) -> Finding:
    count, size = _UCMATOSE
    server = await setting.serve(f"ucmatose -p {setting.guest.service} -C {count} -S {size}")
    async with await setting.connect(Config(Role.INITIATOR, model=Model.CLIENT_SERVER)) as connection:
        with setting.measured(2 * count * size, connection):
            await _receive(connection, count, size)  # before this end has sent anything
            await _send(connection, count, size)
        await connection.disconnected()
    ended(await server)
    return Finding(
        f"{setting.reply}; sent the first FPDU",
        f"received {count} Sends before it sent an FPDU, then sent {count}",
        departs="RFC 5044 §7.1.2 rule 4: siw lets a responder send before it has received an FPDU",
    )


async def _ucmatose_client(setting: Setting) -> Finding:
    count, size = _UCMATOSE
    listener = await setting.listen()
    client = setting.run(f"ucmatose -s {setting.host} -p {listener.address[1]} -C {count} -S {size}")
    async with await (await listener.request()).accept() as connection:
        with setting.measured(2 * count * size, connection):
            await _send(connection, count, size)
            await _receive(connection, count, size)
    ended(await client)
    siw = f"{setting.reply}; sent its RTR before other FPDUs"
    return Finding(siw, f"{setting.ours}; {count} Sends each way behind the RTR")


async def _ucmatose_waits(setting: Setting) -> Finding:
    count, size = _UCMATOSE
    listener = await setting.listen()
    client = setting.run(f"ucmatose -s {setting.host} -p {listener.address[1]} -C {count} -S {size}")
    async with await (await listener.request()).accept() as connection:
        for _ in range(count):
            connection.post_send(bytes(size))
        await asyncio.sleep(1)
        check(setting.fpdus == 0, f"our end sent {setting.fpdus} FPDUs before it had received one")
        check(not client.done(), "ucmatose did not wait for the first message")
        await connection.abort()
    await client
    return Finding(f"{setting.reply}; waits for the responder", "the fence holds the ULP's Sends")


def _is_theirs(received: rdma.Received) -> None:
    """Check a Send of rdma_client or rdma_server, which send zeros, and do not check what they receive."""
    check(bytes(received) == bytes(_FAR), f"a Send of {len(received)} octets arrived: {bytes(received)[:_FAR].hex()}")


async def _receive(connection: rdma.Connection, count: int, size: int) -> None:
    for number in range(count):  # the contents are arbitrary: ucmatose sends uninitialised memory
        received = await connection.receive()
        check(len(received) == size, f"Send {number} has {len(received)} octets, not {size}")


async def _send(connection: rdma.Connection, count: int, size: int) -> None:
    for number in range(count):
        await connection.send(bytes([number]) * size)


def ended(output: Output) -> None:
    """Raise Mismatch unless a program in the guest has ended without an error."""
    status, lines = output.status, output.lines
    good = (status == 0 or lines[-1:] == [_RACE]) and not any("mismatch" in line for line in lines)
    check(good, f"the guest's program ended with status {status}: {' | '.join(lines[-3:])}")


def _pings(size: int, small: int | None = None) -> tuple[Case, Case]:
    smaller = (None, None) if small is None else _pings(small)
    initiator, responder = Config(Role.INITIATOR, ird=1, ord=1), Config(Role.RESPONDER, ird=1, ord=1)
    return (
        Case(
            f"rping-{size}-to-guest",
            f"rping: we ping the guest, {size} octets; we request CRCs; peer-to-peer, any RTR",
            "RFC 5044 §7.1.1: CRCs are used if either end sets C; RFC 6581 §9.2: one RTR, before other FPDUs",
            partial(to_rping, size=size, config=initiator),
            smaller=smaller[0],
        ),
        Case(
            f"rping-{size}-from-guest",
            f"rping: the guest pings us, {size} octets; we request CRCs; client-server",
            "RFC 5044 §7.1.2: the initiator sends the first FPDU",
            partial(from_rping, size=size, config=responder),
            smaller=smaller[1],
        ),
    )


CASES = (
    *_pings(64),
    *_pings(65000, 1500),
    Case(
        "rdma_server",
        "rdma_server in the guest, we are its client",
        "RFC 5040 §5.3: a Send fills one buffer",
        _rdma_server,
    ),
    Case(
        "rdma_client",
        "rdma_client in the guest, we are its server",
        "RFC 5040 §5.3: a Send fills one buffer",
        _rdma_client,
    ),
    Case(
        "ucmatose-server",
        "ucmatose in the guest as server, which sends first; client-server",
        "RFC 5044 §7.1.2 rule 4: a responder sends nothing before it has received an FPDU",
        _ucmatose_server,
        Expected(siw_first=_UCMATOSE[0]),
    ),
    Case(
        "ucmatose-client",
        "ucmatose in the guest as client, we send first; peer-to-peer",
        "RFC 6581 §4: the responder may send after the RTR",
        _ucmatose_client,
        variant="siw-strict",
    ),
    Case(
        "ucmatose-client-waits",
        "ucmatose in the guest as client, our ULP tries to send first; client-server",
        "RFC 5044 §7.1.2 rule 4: a responder sends nothing before it has received an FPDU",
        _ucmatose_waits,
    ),
)
