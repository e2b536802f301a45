"""Deliberate errors of one end, and the Terminate that the other end sends."""

from __future__ import annotations

from functools import partial

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import TerminatedError
from open_rnic.host_driver.tools.interop.case import MULPDU, Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.cases.offers import exchanged
from open_rnic.host_driver.tools.interop.cases.startup import REVERSED
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.relay import Treatment
from open_rnic.rtl.registers import Role, Rtr

_MEMORY = 4096
_OCTETS = 64
_ROOM = 70000  # octets in a buffer of ``peer``
_LONG = _ROOM + 16  # octets of a Send
# Behind four full FPDUs, a Send of this length has one of 40 octets that the buffer has no room for. siw resets a
# connection that it terminates while more arrives, so a long FPDU would be lost in part, and tshark could not read it.
_LONG_MULPDU = _ROOM // 4 + 18
_EMPTY, _SEND = 20, 40  # octets of the FPDUs of an empty RDMA Write, and of a Send of 16 octets
_SPOILED = 60  # position of the octet in a Send's FPDU that the relay corrupts
_WRITE_RTR = Config(Role.INITIATOR, rtr=(Rtr.WRITE,))


def _sent(setting: Setting) -> int:
    """Return the number of octets sent when offers have been exchanged: the RTR, the nudges, and our offer."""
    return _EMPTY * (1 + setting.first.nudges) + _SEND


async def _we_err(setting: Setting, what: str, seen: str) -> Finding:
    """We cause an error; siw's Terminate is expected to arrive as ``seen``."""
    server = await setting.serve(f"peer listen {setting.guest.service} memory={_MEMORY} hold")
    mulpdu = _LONG_MULPDU if what == "longsend" else MULPDU
    async with await setting.connect(mulpdu=mulpdu) as connection, exchanged(connection) as offers:
        wrong, past = offers.stag ^ 0x5A00, offers.to + _MEMORY - _OCTETS // 2
        match what:
            case "badwrite":
                connection.post_write(bytes(_OCTETS), wrong, offers.to)
            case "farwrite":
                connection.post_write(bytes(_OCTETS), offers.stag, past)
            case "badread":
                connection.post_read(offers.ours, _OCTETS, wrong, offers.to)
            case "farread":
                connection.post_read(offers.ours, _OCTETS, offers.stag, past)
            case "longsend":
                connection.post_send(bytes(_LONG))
        error = await connection.disconnected()
    _is(error, rdma.By.PEER, seen)
    await server
    return Finding(f"Terminate {seen}", f"error: {error}", _departure(what, seen))


def _departure(what: str, seen: str) -> str:
    due = _DUE[what]
    if seen == due:
        return ""
    layer, kind, code = seen.split("/")
    meant = f"{kind}/{layer}/{code}"
    if meant == due:
        return REVERSED
    return f"{meant} instead of {due}; {REVERSED}"


async def _guest_errs(setting: Setting, what: str, code: str) -> Finding:
    """The guest causes an error, and we end the connection with this Terminate."""
    listener = await setting.listen()
    word = f"send={_LONG}" if what == "longsend" else what
    client = setting.run(f"peer connect {setting.host} {listener.address[1]} {word} hold")
    async with await (await listener.request()).accept() as connection, exchanged(connection, _MEMORY) as offers:
        if what == "longsend":  # it waits for a buffer; other errors may have ended the connection already
            connection.post_receive(bytearray(_OCTETS))
        view = offers.ours.view
        error = await connection.disconnected()
        check(not any(bytes(view)), "memory was changed")
    _is(error, rdma.By.LOCAL, code)
    output = await client
    outcome = next((line for line in output.lines if line.startswith((word.split("=")[0], "ended"))), "nothing")
    return Finding(f"its program printed: {outcome}", f"Terminate {code}; memory unchanged")


async def _spoiled_to_guest(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} hold")
    treatment = Treatment()
    port = await setting.relay(setting.guest.port, forth=treatment)
    async with await setting.connect(_WRITE_RTR, port=port) as connection, exchanged(connection):
        treatment.corrupt = _sent(setting) + _SPOILED
        connection.post_send(bytes(1000))
        error = await connection.disconnected()
    _is(error, rdma.By.PEER, "0/2/2")
    await server
    return Finding("Terminate 0/2/2", f"error: {error}", REVERSED)


async def _split_to_guest(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} receive hold")
    treatment = Treatment()
    port = await setting.relay(setting.guest.port, forth=treatment)
    async with await setting.connect(_WRITE_RTR, port=port) as connection, exchanged(connection):
        treatment.pause = _sent(setting) + _SEND - 2  # the middle of its CRC
        connection.post_send(bytes(16))
        error = await connection.disconnected()
    _is(error, rdma.By.PEER, "0/2/2")
    await server
    departs = "RFC 5044 §5.1: FPDUs may be cut anywhere; siw loses the first part of a CRC if the rest arrives later"
    return Finding("Terminate 0/2/2, although the CRC is good", f"error: {error}", f"{departs}; {REVERSED}")


async def _spoiled_from_guest(setting: Setting) -> Finding:
    server = await setting.serve(f"peer listen {setting.guest.service} send=1000 hold")
    port = await setting.relay(setting.guest.port, back=Treatment(corrupt=_SEND + _SPOILED))
    async with await setting.connect(port=port) as connection, exchanged(connection):
        error = await connection.disconnected()
    _is(error, rdma.By.LOCAL, "2/0/2")
    return Finding(f"ended the connection: {(await server).value('ended:')}", f"Terminate 2/0/2: {_what(error)}")


def _what(error: Exception | None) -> str:
    return error.what if isinstance(error, TerminatedError) else str(error)


def _is(error: Exception | None, by: rdma.By, code: str) -> None:
    check(isinstance(error, TerminatedError), f"the connection did not end with a Terminate, but with: {error}")
    assert isinstance(error, TerminatedError)
    numbers = f"{error.layer}/{error.type}/{error.code}"
    check(error.by == by and numbers == code, f"{numbers} by {error.by}, not {code} by {by}: {error}")


_WRONG = {
    "badwrite": "an RDMA Write with an STag that was never advertised",
    "farwrite": "an RDMA Write past the end of the memory",
    "badread": "an RDMA Read with an STag that was never advertised",
    "farread": "an RDMA Read past the end of the memory",
    "longsend": "a Send that is longer than its buffer",
}
_DUE = {"badwrite": "1/1/0", "farwrite": "1/1/1", "badread": "0/1/0", "farread": "0/1/1", "longsend": "1/2/5"}
_OF_SIW = {"badwrite": "1/1/0", "farwrite": "1/1/1", "badread": "1/0/0", "farread": "1/0/1", "longsend": "2/1/2"}


def _cases() -> list[Case]:
    cases = []
    for what, error in _WRONG.items():
        rule = f"RFC 5040 §4.8, RFC 5041 §7.2: Terminate {_DUE[what]}"
        seen = _OF_SIW[what]
        expected = Expected(terminates=(f"siw {seen}",))
        act = partial(_we_err, what=what, seen=seen)
        cases.append(Case(f"{what}-to-guest", f"{error}; sent by us", rule, act, expected, large=what == "longsend"))
        expected = Expected(terminates=(f"ours {_DUE[what]}",))
        refuse = partial(_guest_errs, what=what, code=_DUE[what])
        cases.append(Case(f"{what}-from-guest", f"{error}; sent by the guest", rule, refuse, expected))
    return cases


CASES = (
    *_cases(),
    Case(
        "crc-spoiled-to-guest",
        "a relay inverts one bit that we sent",
        "RFC 5044 §8: Terminate 2/0/2",
        _spoiled_to_guest,
        Expected(terminates=("siw 0/2/2",), bad_ours=1),
        relayed=True,
    ),
    Case(
        "crc-spoiled-from-guest",
        "a relay inverts one bit that siw sent",
        "RFC 5044 §8: Terminate 2/0/2",
        _spoiled_from_guest,
        Expected(terminates=("ours 2/0/2",)),
        relayed=True,
    ),
    Case(
        "crc-split-to-guest",
        "a relay cuts one of our FPDUs in the middle of its CRC",
        "RFC 5044 §5.1, §6: a receiver must accept FPDUs that are cut anywhere",
        _split_to_guest,
        Expected(terminates=("siw 0/2/2",)),
        relayed=True,
    ),
)
