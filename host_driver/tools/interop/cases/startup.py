"""The startup exchange: CRC, models, RTRs, IRD and ORD, private data, Rev 1, markers, rejections."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.connection import MpaConnectionError, RejectedError
from open_rnic.host_driver.mpa.negotiation import Config, Negotiated, Reason
from open_rnic.host_driver.mpa.startup_frames import NO_NEGOTIATION, EnhancedData
from open_rnic.host_driver.rdma import RdmaError
from open_rnic.host_driver.tools.interop.case import Case, Finding, Mismatch, Setting, check, describe
from open_rnic.host_driver.tools.interop.cases.offers import crc, exchanged, printed, theirs
from open_rnic.host_driver.tools.interop.cases.programs import from_rping, to_rping
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.rtl.registers import Model, Role, Rtr

SIZE = 64
SIW_MAX = 128  # siw's largest IRD and ORD
DEPTHS = (0, 1, 128, 129, NO_NEGOTIATION)
PRIVATE = (0, 1, 251)  # octets
_READ = 256
# iwarp.h declares the Terminate's fields as bit fields, which start at the wrong end of each octet
REVERSED = "RFC 5040 §4.8: layer and error type are exchanged, and M, D and R are at the wrong end of their octet"

_INITIATOR = Config(Role.INITIATOR, ird=1, ord=1)
_RESPONDER = Config(Role.RESPONDER, ird=1, ord=1)
_PLAIN = replace(_INITIATOR, model=Model.CLIENT_SERVER)


async def _crc_is(setting: Setting, used: bool, finding: Finding) -> Finding:
    frames = setting.first.sent, setting.first.received
    agreed = any(frame.crc for frame in frames if frame)
    check(agreed == used, f"CRCs are {'on' if agreed else 'off'}: {setting.ours}; {setting.reply}")
    return finding


async def _pings_without_crc(setting: Setting) -> Finding:
    return await _crc_is(setting, False, await to_rping(setting, SIZE, replace(_PLAIN, crc=False)))


async def _pinged_without_crc(setting: Setting) -> Finding:
    return await _crc_is(setting, False, await from_rping(setting, SIZE, replace(_RESPONDER, crc=False)))


async def _guest_asks_crc(setting: Setting) -> Finding:
    finding = await from_rping(setting, SIZE, replace(_RESPONDER, crc=False))
    assert setting.first.received
    check(setting.first.received.crc, "siw did not request CRCs")
    return await _crc_is(setting, True, finding)


async def _guest_follows(setting: Setting) -> Finding:
    finding = await _crc_is(setting, False, await to_rping(setting, SIZE, replace(_PLAIN, crc=False)))
    return replace(finding, siw=f"{finding.siw}: mpa_crc_required applies to its own Requests only")


async def _rtr_sent(setting: Setting, rtr: Rtr) -> Finding:
    finding = await to_rping(setting, SIZE, replace(_INITIATOR, rtr=(rtr,)))
    assert setting.first.received
    assert setting.first.received.enhanced
    chosen = setting.first.received.enhanced.rtr
    check(chosen == {rtr}, f"siw chose {', '.join(kind.name for kind in chosen) or 'no RTR'}")
    return finding


async def _rtr_received(setting: Setting, rtr: Rtr) -> Finding:
    finding = await from_rping(setting, SIZE, replace(_RESPONDER, rtr=(rtr,)))
    check(f"received a {rtr.name.capitalize()} RTR" in finding.ours, f"another RTR arrived: {finding.ours}")
    return finding


async def _rtr_not_offered(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} silent hold")
    try:
        connection = await setting.connect(replace(_INITIATOR, rtr=(Rtr.SEND,)))
    except MpaConnectionError as error:
        check(error.reason is Reason.NO_MATCHING_RTR, f"the connection failed with another error: {error}")
    else:
        await connection.abort()
        raise Mismatch("a connection was established")
    server.cancel()
    return Finding(
        f"{setting.reply}; siw does not support the Send RTR, and names another one",
        "ended with Terminate 2/0/7, and reported the RTRs of both ends",
        departs="siw accepts the Terminate as the RTR; its program then never ends, or the kernel stops (iwcm.c)",
    )


async def _startup_terminate(setting: Setting, config: Config, words: str, *, shown: bool = True) -> Finding:
    """Our Reply contains a value that siw cannot accept; siw sends a Terminate with a CRC field of 0.

    Only if ``shown``, our end has the octets of an FPDU with a wrong CRC.
    """
    listener = await setting.listen(config)
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} silent {words}")
    try:
        async with await (await listener.request()).accept() as connection:
            error: Exception | None = await connection.disconnected()
    except (MpaConnectionError, RdmaError) as caught:
        error = caught
    check(error is not None, "no error was reported")
    check("CRC" in str(error), f"another error was reported: {error}")
    check(not shown or "Terminate" in str(error), f"the peer's Terminate was not reported: {error}")
    await client
    return Finding(
        f"{setting.reply}; sent a Terminate with a CRC field of 0",
        f"{setting.ours}; reported the bad CRC{', and the content of the Terminate' if shown else ''}",
        departs=f"RFC 5044 §4.4: CRCs were negotiated; {REVERSED}",
    )


async def _asked(setting: Setting, name: str, value: int) -> Finding:
    """Our Request contains this IRD or ORD."""
    config = _with_depth(Config(Role.INITIATOR, ird=2, ord=2), name, value)
    reads = f"read={_READ}" if config.ird else ""
    server = await setting.serve(f"peer listen {setting.guest.service} ird=1 ord={SIW_MAX} {reads} send=1 hold")
    async with await setting.connect(config) as connection:
        await _read_both_ways(connection, by_us=config.ord > 0)
    if reads:
        printed(await server, f"read {_READ}: success", f"crc {crc(bytes(_READ))}")
    agreed = connection.negotiated
    asked, reply = _data(setting)
    _carries(asked, name, value)
    broken = _broken(asked, reply)
    check(broken == _KNOWN.get((name, value), ""), f"the Reply does not break the known rules, but: {broken or 'none'}")
    # A depth that is not negotiated remains unchanged
    ird = config.ird if NO_NEGOTIATION in (asked.ird, reply.ord) else max(config.ird, reply.ord)
    ord_ = config.ord if NO_NEGOTIATION in (asked.ord, reply.ird) else min(config.ord, reply.ird)
    check((agreed.ird, agreed.ord) == (ird, ord_), f"we use IRD {agreed.ird}, ORD {agreed.ord}, not {ird}, {ord_}")
    ours = f"IRD {agreed.ird}, ORD {agreed.ord} in use; RDMA Reads {_ways(agreed)}"
    return Finding(setting.reply, ours, f"RFC 6581 §9.1: {broken}" if broken else "")


async def _replied(setting: Setting, name: str, value: int) -> Finding:
    """Our Reply contains this IRD or ORD, or the closest value that siw's Request permits."""
    config = _with_depth(Config(Role.RESPONDER, ird=2, ord=2), name, value)
    listener = await setting.listen(config)
    theirs_ = f"ird={SIW_MAX} ord={min(config.ird, 1)}"
    reads = f"read={_READ}" if config.ird else ""
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} {theirs_} {reads} send=1 hold")
    async with await (await listener.request()).accept() as connection:
        await _read_both_ways(connection, by_us=config.ord > 0)
    output = await client
    if reads:
        printed(output, f"read {_READ}: success", f"crc {crc(bytes(_READ))}")
    reply, request = _data(setting)
    _carries(reply, name, min(value, request.ird) if name == "ord" else value)
    check(not (broken := _broken(request, reply)), f"our Reply breaks RFC 6581 §9.1: {broken}")
    agreed = connection.negotiated
    ird, ord_ = config.ird, min(config.ord, request.ird)
    check((agreed.ird, agreed.ord) == (ird, ord_), f"we use IRD {agreed.ird}, ORD {agreed.ord}, not {ird}, {ord_}")
    established = (output.value("established: ") or "nothing").removesuffix("private").strip()
    expected = f"ird {reply.ird % 256} ord {reply.ord % 256}"  # the ULP's interface has 8 bits for each depth
    check(established == expected, f"siw reported {established} to its ULP, not {expected}")
    siw = f"{setting.reply}; reported {established} to its ULP"
    return Finding(siw, f"{setting.ours}; RDMA Reads {_ways(connection.negotiated)}")


async def _read_both_ways(connection: rdma.Connection, *, by_us: bool = True) -> None:
    may = connection.negotiated.ord > 0
    check(may == by_us, f"RDMA Reads of ours are {'possible' if may else 'impossible'} with this ORD")
    async with exchanged(connection) as offers:
        # Posted in advance: a Send without a buffer would delay the Read Response behind it.
        done = connection.post_receive(bytearray(16))
        if by_us:
            octets = await connection.read(_READ, offers.stag, offers.to)
            check(octets == theirs(_READ), "the octets read differ from the guest's memory")
        await done  # the guest sends when its own RDMA Read is complete


def _data(setting: Setting) -> tuple[EnhancedData, EnhancedData]:
    """Return the enhanced data of our startup frame, and of siw's."""
    frames = setting.first.sent, setting.first.received
    check(all(frame and frame.enhanced for frame in frames), f"no enhanced data: {setting.ours}; {setting.reply}")
    ours, siw = (frame.enhanced for frame in frames if frame and frame.enhanced)
    return ours, siw


def _carries(ours: EnhancedData, name: str, value: int) -> None:
    """Raise Mismatch unless our startup frame has this IRD or ORD, and 2 for the other one."""
    ird, ord_ = (value, 2) if name == "ird" else (2, value)
    check((ours.ird, ours.ord) == (ird, ord_), f"our frame has IRD {ours.ird}, ORD {ours.ord}, not {ird}, {ord_}")


def _ways(agreed: Negotiated) -> str:
    ways = [name for name, depth in (("by us", agreed.ord), ("by the guest", agreed.ird)) if depth]
    return " and ".join(ways) or "by nobody"


def _depth(value: int) -> str:
    return "0x3FFF" if value == NO_NEGOTIATION else str(value)


def _with_depth(config: Config, name: str, value: int) -> Config:
    """Return the configuration with this IRD or ORD in its startup frame."""
    most = max(value, SIW_MAX)
    match name, value:
        case "ird", 0x3FFF:
            return replace(config, negotiate_ird=False)
        case "ord", 0x3FFF:
            return replace(config, negotiate_ord=False)
        case "ird", _:
            return replace(config, ird=value, max_ird=most)
        case _:
            return replace(config, ord=value, max_ord=most)


def _broken(request: EnhancedData, reply: EnhancedData) -> str:
    """Return the rules of RFC 6581 §9.1 that a Reply breaks, or ""."""
    broken = []
    if request.ord == NO_NEGOTIATION != reply.ird:
        broken.append(f"ORD 0x3FFF is answered with IRD {reply.ird}")
    if request.ird == NO_NEGOTIATION != reply.ord:
        broken.append(f"IRD 0x3FFF is answered with ORD {reply.ord}")
    if NO_NEGOTIATION != request.ord > reply.ird:
        broken.append(f"IRD {reply.ird} is less than the requested ORD {request.ord}")
    if NO_NEGOTIATION != reply.ord > request.ird:
        broken.append(f"ORD {reply.ord} is more than the offered IRD {request.ird}")
    return "; ".join(broken)


_KNOWN = {  # rules that siw's Reply breaks, by the depth in our Request
    ("ird", NO_NEGOTIATION): "IRD 0x3FFF is answered with ORD 128",
    ("ord", 129): "IRD 128 is less than the requested ORD 129",
    ("ord", NO_NEGOTIATION): "ORD 0x3FFF is answered with IRD 128",
}


async def _private_to_guest(setting: Setting, octets: int) -> Finding:
    data = bytes(range(octets))
    server = await setting.serve(f"peer listen {setting.guest.service} private={octets} hold")
    async with await setting.connect(replace(_INITIATOR, private_data=data)) as connection, exchanged(connection):
        got = connection.negotiated.private_data
    return _private(setting, data, got, (await server).value("request: "))


async def _private_from_guest(setting: Setting, octets: int) -> Finding:
    data = bytes(range(octets))
    listener = await setting.listen(_RESPONDER)
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} private={octets} hold")
    request = await listener.request()
    async with await request.accept(data) as connection, exchanged(connection):
        pass
    return _private(setting, data, request.private_data, (await client).value("established: "))


def _private(setting: Setting, data: bytes, got: bytes, established: str | None) -> Finding:
    check(got == data, f"{len(got)} octets of private data arrived, not {len(data)}: {got[:16].hex()}")
    there = (established or "nothing").partition("private")[2].strip()
    check(there == data.hex(), f"the guest received {len(there) // 2} octets of private data, not {len(data)}: {there}")
    return Finding(setting.reply, f"{setting.ours}; each ULP received the other's private data")


async def _rev1_to_guest(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} ird=2 ord=2 read={_READ} send=1 hold")
    config = Config(Role.INITIATOR, model=Model.CLIENT_SERVER, enhanced=False, ird=2, ord=2)
    async with await setting.connect(config) as connection:
        await _read_both_ways(connection)
    printed(await server, f"read {_READ}: success", f"crc {crc(bytes(_READ))}")
    _is_rev1(setting)
    return Finding(setting.reply, f"{setting.ours}; RDMA Reads {_ways(connection.negotiated)}")


async def _rev1_from_guest(setting: Setting) -> Finding:
    finding = await from_rping(setting, SIZE, _RESPONDER)
    _is_rev1(setting)
    return finding


def _is_rev1(setting: Setting) -> None:
    for frame in (setting.first.sent, setting.first.received):
        assert frame
        alone = frame.rev == 1 and not frame.enhanced
        check(alone, f"a startup frame does not follow RFC 5044 alone: {describe(frame)}")


async def _markers_asked(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} silent")
    try:
        await (await setting.connect(replace(_INITIATOR, markers=True))).abort()
    except RejectedError as error:
        server.cancel()
        check("marker" in str(error), f"the error does not mention markers: {error}")
        departs = "RFC 5044 §4.3: every sender must be able to insert markers"
        return Finding(setting.reply, f"error: {error}", departs)
    raise Mismatch("siw accepted")


async def _markers_replied(setting: Setting) -> Finding:
    listener = await setting.listen(replace(_RESPONDER, markers=True))
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} silent")
    async with await (await listener.request()).accept() as connection:
        error = await connection.disconnected()
    check(error is None, f"siw did more than close the connection: {error}")
    output = await client
    check(output.status != 0, "siw accepted")
    departs = "RFC 5044 §4.3: every sender must be able to insert markers"
    return Finding(f"{setting.reply}; {output.lines[-1]}", f"{setting.ours}; reported that the peer closed", departs)


async def _guest_rejects(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} reject private=5")
    try:
        await (await setting.connect()).abort()
    except RejectedError as error:
        printed(await server, "rejected")
        got = error.frame.private_data
        check(got == bytes(range(5)), f"the private data is {got.hex()}")
        return Finding(setting.reply, f"error: {error}; the ULP received the private data")
    raise Mismatch("the guest accepted")


async def _we_reject(setting: Setting) -> Finding:
    listener = await setting.listen()
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} silent")
    await (await listener.request()).reject(bytes(range(5)))
    output = await client
    check(output.status != 0, "the guest treated the Reply as an acceptance")
    got = (output.value("reply: ") or "nothing").partition("private")[2].strip()
    check(got == bytes(range(5)).hex(), f"the guest's ULP received the private data {got or 'nothing'}")
    return Finding(f"{setting.reply}; {output.value('event ')}, and the ULP received the private data", setting.ours)


def _depths() -> Iterator[Case]:
    rule = "RFC 6581 §9.1: Reply's IRD ≥ Request's ORD, Reply's ORD ≤ Request's IRD, 0x3FFF is the answer to 0x3FFF"
    for name in ("ird", "ord"):
        for value in DEPTHS:
            label = f"{name}-{_depth(value).lower()}"
            asked = f"{name.upper()} {_depth(value)} in our Request, {'ORD' if name == 'ird' else 'IRD'} 2"
            depths = Expected(depths=(value, 2) if name == "ird" else (2, value))
            act = partial(_asked, name=name, value=value)
            yield _offloaded(Case(f"{label}-asked", asked, rule, act, depths), name, value)
            replied = f"{name.upper()} {_depth(value)} in our Reply"
            if (name, value) == ("ord", NO_NEGOTIATION):
                config = _with_depth(_RESPONDER, name, value)
                act = partial(_startup_terminate, config=config, words="")
                rule_ = "RFC 6581 §9.1: 0x3FFF leaves the initiator's IRD unchanged"
                terminated = replace(_terminated(6), depths=(None, value))
                alone = Case(f"{label}-replied", replied, rule_, act, terminated)
                yield replace(alone, smaller=replace(alone, act=partial(act, shown=False)))
                continue
            if (name, value) == ("ord", 129):
                replied = "our ORD is 129, and the Request offers IRD 128"
                depths = Expected(depths=(2, SIW_MAX))
            act = partial(_replied, name=name, value=value)
            yield _offloaded(Case(f"{label}-replied", replied, rule, act, depths), name, value)


def _offloaded(each: Case, name: str, value: int) -> Case:
    """The case without an engine, if that has no room for so many RDMA Reads: one has 128, as siw, or 16 on a board."""
    plain = replace(each, offloads=False)
    if (name, value) == ("ird", 128):
        return replace(each, smaller=plain)
    return plain if (name, value) == ("ird", 129) else each


def _privates() -> Iterator[Case]:
    for octets in PRIVATE:
        tested = f"{octets} octets of private data in Request and Reply"
        rule = "RFC 5044 §7.1.1, RFC 6581 §6: up to 508 octets behind the enhanced data"
        act = partial(_private_to_guest, octets=octets)
        yield Case(f"private-{octets}-to-guest", f"{tested}; we connect", rule, act)
        act = partial(_private_from_guest, octets=octets)
        yield Case(f"private-{octets}-from-guest", f"{tested}; the guest connects", rule, act)


def _terminated(code: int) -> Expected:
    """Return the requirements for a Terminate 2/0/code from siw with a CRC field of 0, and ours for that bad CRC."""
    return Expected(terminates=(f"siw 0/2/{code}", "ours 2/0/2"), bad_siw=1)


_C = "RFC 5044 §7.1.1: CRCs are used if either end sets C, and otherwise not checked"
_RTR = "RFC 6581 §9.2: the Reply names the accepted RTRs, and one of them is the first FPDU"

CASES = (
    Case("crc-nobody-to-guest", "neither end requests CRCs; we ping", _C, _pings_without_crc, Expected(crc=False)),
    Case(
        "crc-nobody-from-guest",
        "neither end requests CRCs; the guest pings",
        _C,
        _pinged_without_crc,
        Expected(crc=False),
    ),
    Case("crc-guest", "the guest requests CRCs, and pings", _C, _guest_asks_crc, variant="siw-strict"),
    Case(
        "crc-guest-replies",
        "C=0 in our Request to a guest with mpa_crc_required; we ping",
        "RFC 5044 §7.1.1: CRCs are used if either end sets C; a responder may set it",
        _guest_follows,
        Expected(crc=False),
        variant="siw-strict",
    ),
    Case(
        "client-server",
        "client-server model; we ping",
        "RFC 6581 §9.2: A=0, and no RTR",
        partial(to_rping, size=SIZE, config=_PLAIN),
    ),
    Case("rtr-write-to-guest", "we offer only the Write RTR; we ping", _RTR, partial(_rtr_sent, rtr=Rtr.WRITE)),
    Case("rtr-read-to-guest", "we offer only the Read RTR; we ping", _RTR, partial(_rtr_sent, rtr=Rtr.READ)),
    Case(
        "rtr-send-to-guest",
        "we offer only the Send RTR; we connect",
        "RFC 6581 §9.2: without a common RTR, the initiator sends Terminate 2/0/7",
        _rtr_not_offered,
        Expected(terminates=("ours 2/0/7",)),
        kills=True,
    ),
    Case(
        "rtr-write-from-guest",
        "the guest requests peer-to-peer; we accept the Write RTR",
        _RTR,
        partial(_rtr_received, rtr=Rtr.WRITE),
        variant="siw-strict",
    ),
    Case(
        "rtr-read-from-guest",
        "the guest requests peer-to-peer; we accept the Read RTR",
        _RTR,
        partial(_rtr_received, rtr=Rtr.READ),
        variant="siw-strict",
    ),
    Case(
        "rtr-send-from-guest",
        "the guest requests peer-to-peer; we accept only the Send RTR",
        "RFC 6581 §9.2: without a common RTR, the initiator sends Terminate 2/0/7",
        partial(_startup_terminate, config=replace(_RESPONDER, rtr=(Rtr.SEND,)), words=""),
        _terminated(7),
        variant="siw-strict",
        octets=True,
    ),
    *_depths(),
    *_privates(),
    Case(
        "rev1-to-guest",
        "Rev 1; we connect; RDMA Reads both ways",
        "RFC 6581 §10: the Reply to an unenhanced Request is unenhanced",
        _rev1_to_guest,
    ),
    Case(
        "rev1-from-guest",
        "Rev 1; the guest pings",
        "RFC 6581 §10: the Reply to an unenhanced Request is unenhanced",
        _rev1_from_guest,
        variant="siw-rev1",
    ),
    Case(
        "markers-asked",
        "our Request requires markers",
        "RFC 5044 §7.1.1: if the Request has M=1, the responder inserts markers",
        _markers_asked,
        Expected(crc=None),
    ),
    Case(
        "markers-replied",
        "our Reply requires markers",
        "RFC 5044 §7.1.1: if the Reply has M=1, the initiator inserts markers",
        _markers_replied,
        Expected(crc=None),
    ),
    Case(
        "guest-rejects",
        "the guest's ULP rejects the Request",
        "RFC 5044 §7.1.2 rule 2: R=1, with private data",
        _guest_rejects,
        Expected(crc=None),
    ),
    Case(
        "we-reject",
        "our ULP rejects the Request",
        "RFC 5044 §7.1.2 rule 2: R=1, with private data",
        _we_reject,
        Expected(crc=None),
    ),
)
