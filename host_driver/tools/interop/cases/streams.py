"""Streams that a relay cuts or joins, several connections at once, and long transfers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import rping
from open_rnic.host_driver.tools.interop.case import MULPDU, Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.cases.offers import crc, exchanged, printed, theirs, work
from open_rnic.host_driver.tools.interop.cases.programs import ended
from open_rnic.host_driver.tools.interop.judge import SMALL, Expected
from open_rnic.host_driver.tools.interop.relay import Treatment
from open_rnic.rtl.registers import Model, Role

_SIZE = 65000  # octets of a ping
_SEVERAL = 4
_PINGS = 5  # on each of several connections
_CUT, _JOIN = SMALL, 20000  # octets
_SMALL = 510  # MULPDU of the cases that join FPDUs; also avoids PAD

_INITIATOR = Config(Role.INITIATOR, ird=1, ord=1)
_RESPONDER = Config(Role.RESPONDER, ird=1, ord=1)


async def _relayed_to_guest(setting: Setting, config: Config, to_siw: Treatment, from_siw: Treatment) -> Finding:
    to_siw, from_siw = replace(to_siw), replace(from_siw)
    command = f"rping -s -a {setting.address} -p {setting.guest.service} -C {_PINGS} -S {_SIZE} -V"
    server = await setting.serve(command)
    port = await setting.relay(setting.guest.port, to_siw, from_siw)
    config = replace(config, role=Role.INITIATOR)
    async with await setting.connect(config, port=port, mulpdu=_mulpdu(to_siw)) as connection:
        with setting.measured(2 * _SIZE * _PINGS, connection):
            await rping.client(connection, count=_PINGS, size=_SIZE, validate=True)
    ended(await server)
    _were(to_siw, from_siw)
    return Finding(setting.reply, f"{_PINGS} pings of {_SIZE} octets returned unchanged")


async def _relayed_from_guest(setting: Setting, config: Config, to_siw: Treatment, from_siw: Treatment) -> Finding:
    to_siw, from_siw = replace(to_siw), replace(from_siw)
    listener = await setting.listen(replace(config, role=Role.RESPONDER), mulpdu=_mulpdu(to_siw))
    port = await setting.relay(listener.address[1], from_siw, to_siw)
    client = setting.run(f"rping -c -a {setting.host} -p {port} -C {_PINGS} -S {_SIZE} -V")
    async with await (await listener.request()).accept() as connection:
        with setting.measured(2 * _SIZE * _PINGS, connection):
            served = await rping.server(connection)
    ended(await client)
    check(served == _PINGS, f"{served} pings arrived, not {_PINGS}")
    _were(to_siw, from_siw)
    return Finding(setting.reply, f"{setting.ours}; answered {_PINGS} pings of {_SIZE} octets")


def _mulpdu(treatment: Treatment) -> int:
    return _SMALL if treatment.join else MULPDU


def _were(*treatments: Treatment) -> None:
    """Raise Mismatch unless the relay has cut or joined in each direction; the data of each ping passes once."""
    for treatment in treatments:
        if treatment.cut:
            least = _PINGS * _SIZE // treatment.cut - _PINGS
            check(treatment.cuts >= least, f"the relay has cut {treatment.cuts} times, not at least {least}")
        if treatment.join:
            check(treatment.joins >= _PINGS, f"the relay has joined {treatment.joins} times, not at least {_PINGS}")


async def _several_to_guest(setting: Setting) -> Finding:
    shown = "server ping data: rdma-ping-"  # first words of each ping's line, which is longer than the buffer of stdio
    rping_ = f"rping -s -P -a {setting.address} -p {setting.guest.service} -S {_SIZE} -v -V"
    server = await setting.serve(f"{rping_} 2>&1 | cut -c1-{len(shown) + 1}")
    connections = [await setting.connect(_INITIATOR, nudged=False) for _ in range(_SEVERAL)]
    for connection, seen in zip(connections, setting.seen, strict=True):
        setting.nudge(connection, seen)
    try:
        with setting.measured(2 * _SIZE * _PINGS * _SEVERAL, *connections):
            await asyncio.gather(*(rping.client(c, count=_PINGS, size=_SIZE, validate=True) for c in connections))
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))
    await setting.guest.run("killall rping")
    lines = (await server).lines
    for number in range(_PINGS):
        got = lines.count(f"{shown}{number}")
        what = f"the server received ping {number} {got} times, not {_SEVERAL}: {' | '.join(lines[-3:])}"
        check(got == _SEVERAL, what)
    siw = f"{_SEVERAL} connections: {setting.reply}; the server showed every ping"
    return Finding(siw, f"{_PINGS} pings of {_SIZE} octets on each")


async def _several_from_guest(setting: Setting) -> Finding:
    listener = await setting.listen(_RESPONDER)
    command = f"rping -c -a {setting.host} -p {listener.address[1]} -C {_PINGS} -S {_SIZE} -V"
    clients = [setting.run(command) for _ in range(_SEVERAL)]

    async def answer(connection: rdma.Connection) -> int:
        async with connection:
            return await rping.server(connection)

    connections = [await (await listener.request()).accept() for _ in range(_SEVERAL)]
    with setting.measured(2 * _SIZE * _PINGS * _SEVERAL, *connections):
        served = await asyncio.gather(*(answer(connection) for connection in connections))
    check(served == [_PINGS] * _SEVERAL, f"pings on each connection: {served}")
    for output in await asyncio.gather(*clients):
        ended(output)
    return Finding(f"{_SEVERAL} connections: {setting.reply}", f"answered {_PINGS} pings of {_SIZE} octets on each")


async def _bulk_to_guest(setting: Setting, octets: int, message: int) -> Finding:
    """We send, write and read; ``peer`` checks the received octets."""
    words = f"memory={octets} receive check hold"
    server = await setting.serve(f"peer listen {setting.guest.service} ird=16 ord=16 {words}")
    data = work(octets)
    async with await setting.connect() as connection, exchanged(connection) as offers:
        with setting.measured(2 * octets + message, connection):
            read = await connection.read(octets, offers.stag, offers.to)
            await connection.write(data, offers.stag, offers.to)
            await connection.send(data[:message])
            await connection.read(1, offers.stag, offers.to)  # the response follows all octets written before
        check(read == theirs(octets), "the octets read differ from the guest's memory")
    sent = f"received {message} crc {crc(data[:message])}"
    printed(await server, sent, f"memory crc {crc(data)}")
    return Finding(setting.reply, f"{octets} octets read, {octets} written and {message} sent, all unchanged")


async def _bulk_from_guest(setting: Setting, octets: int, message: int) -> Finding:
    """The guest writes, reads and sends."""
    listener = await setting.listen()
    words = f"ird=16 ord=16 write={octets} read={octets} send={message} hold"
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} {words}")
    data = work(octets)
    async with await (await listener.request()).accept() as connection, exchanged(connection, octets) as offers:
        with setting.measured(2 * octets + message, connection):
            received = await connection.receive()
        check(bytes(offers.ours.view) == data, "the octets in our memory differ from those that the guest wrote")
        check(bytes(received) == data[:message], "the octets received differ from those that the guest sent")
    printed(await client, f"write {octets}: success", f"read {octets}: success", f"crc {crc(data)}")
    ours = f"{setting.ours}; the guest wrote {octets} octets, read {octets} back, and sent {message}"
    return Finding(setting.reply, ours)


def _relayed() -> list[Case]:
    any_cut, words = Treatment(cut=_CUT), Treatment(cut=_CUT, step=4)
    joined = Treatment(join=_JOIN)
    plain = replace(_INITIATOR, model=Model.CLIENT_SERVER, crc=False)
    cut = f"cut at random into pieces of 1 to {_CUT} octets"
    kinds = (
        # Only whole words towards siw, because siw rejects a CRC that is cut: see the case crc-split-to-guest
        ("cut", f"{cut}, of whole words towards siw; CRCs", _INITIATOR, words, any_cut),
        ("joined", f"joined into pieces of {_JOIN} octets or more both ways; CRCs", _INITIATOR, joined, joined),
        ("cut-no-crc", f"{cut} both ways; no CRCs", plain, any_cut, any_cut),
    )
    cases = []
    for name, how, config, to_siw, from_siw in kinds:
        small, inside = ((50, 1500), (0, 0)) if to_siw.cut else ((0, 0), (300, 100))  # half of those observed
        expected = Expected(crc=config.crc, small=small, inside=inside)
        rule = "RFC 5044 §5.1: FPDUs may be cut anywhere and share segments"
        for ends, who, act in (
            ("to-guest", "we ping", _relayed_to_guest),
            ("from-guest", "the guest pings", _relayed_from_guest),
        ):
            relayed = partial(act, config=config, to_siw=to_siw, from_siw=from_siw)
            cases.append(Case(f"{name}-{ends}", f"FPDUs {how}; {who}", rule, relayed, expected, relayed=True))
    return cases


def _bulk(octets: int, message: int, *, small: tuple[int, int] | None = None) -> tuple[Case, Case]:
    """Return the cases, whose transfer and message are ``small`` if the device is a board."""
    smaller = _bulk(*small) if small else (None, None)
    rule = "RFC 5040 §5: octets arrive unchanged and in order"
    size = f"{octets >> 20} MiB" if octets >> 20 else f"{octets} octets"
    sent = f"{message // 1024} KiB"
    to = partial(_bulk_to_guest, octets=octets, message=message)
    back = partial(_bulk_from_guest, octets=octets, message=message)
    return (
        Case("bulk-to-guest", f"we read {size}, write {size}, and send {sent}", rule, to, smaller=smaller[0]),
        Case(
            "bulk-from-guest",
            f"the guest writes {size}, reads {size}, and sends {sent}",
            rule,
            back,
            smaller=smaller[1],
        ),
    )


CASES = (
    *_relayed(),
    Case(
        "several-to-guest",
        f"{_SEVERAL} connections at once; we ping",
        "RFC 5044 §3: connections are independent streams",
        _several_to_guest,
        large=True,
    ),
    Case(
        "several-from-guest",
        f"{_SEVERAL} connections at once; the guest pings",
        "RFC 5044 §3: connections are independent streams",
        _several_from_guest,
        large=True,
    ),
    *_bulk(1 << 20, 1 << 16, small=(1 << 12, 1 << 11)),
)
