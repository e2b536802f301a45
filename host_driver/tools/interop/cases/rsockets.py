"""librdmacm's programs on rsockets in the guest: rcopy, rstream and riostream, as client and as server."""

from __future__ import annotations

import hashlib
import random
import tempfile
from functools import partial
from pathlib import Path

from open_rnic.host_driver.rdma import rcopy, rsocket, rstream
from open_rnic.host_driver.tools.interop.case import Case, Finding, Mismatch, Setting, check
from open_rnic.host_driver.tools.interop.cases.programs import ended
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.qemu import Output

_MIB = 1 << 20
# The server sends last, and closes without waiting. If a CREDIT arrives after that, Linux resets the connection, and
# what has not been received is lost. With these settings, our end sends its last CREDIT before the last turn.
_STREAM = rstream.Settings(size=5000, count=30, iterations=3, verify=True)
_SMALL_STREAM = rstream.Settings(size=500, count=10, iterations=2, verify=True)
_SMALL_CREDITS = 16
_SMALL_BUFFER = 2048  # octets of a receive buffer in a board's memory
_RULE = "RFC 5040 §5.5 rule 10: when a Send is delivered, the RDMA Writes before it are in memory"
_PEEKING = "RFC 5040 §5.5 rule 5: riostream takes the last octet in memory for the arrival of an RDMA Write"
_FILE = "/copied"
# The guest's programs close without waiting: a CREDIT, with its entry, or the end of our stream may come too late.
_EXPECTED = Expected(late=3)


async def _rcopy_from_guest(setting: Setting, octets: int, own: rsocket.Settings) -> Finding:
    """The guest copies a file of random octets to us."""
    listener = await setting.listen()
    made = await setting.run(f"head -c {octets} /dev/urandom >{_FILE}; sha256sum {_FILE}")
    ended(made)
    digest = made.lines[-1].split()[0]
    client = setting.run(f"rcopy {_FILE} {setting.host}:arrived -p {listener.address[1]}", timeout=900)
    copied: list[rcopy.Copied] = []
    with tempfile.TemporaryDirectory() as folder:
        async with await rsocket.accept(await listener.request(), settings=own) as connected:
            with setting.measured(octets, connected.connection):
                await rcopy.serve(connected, Path(folder), copied.append)
        output = await client
        ended(output)
        _same(digest, await _hash(Path(folder, "arrived")))
    check([each.octets for each in copied] == [octets], f"{len(copied)} files arrived")
    return Finding(
        f"{setting.reply}; {_rate(output)}", f"{setting.ours}; the file has the guest's SHA-256, {digest[:8]}…"
    )


async def _rcopy_to_guest(setting: Setting, octets: int, own: rsocket.Settings) -> Finding:
    """We copy a file to the guest."""
    server = await setting.serve(f"rcopy -p {setting.guest.service}")
    with tempfile.NamedTemporaryFile() as file:
        source = Path(file.name)
        source.write_bytes(random.Random(octets).randbytes(octets))
        async with await setting.rsocket(own) as connected:
            with setting.measured(octets, connected.connection):
                await rcopy.send_file(connected, source, _FILE)
        summed = await setting.run(f"sha256sum {_FILE}")
        ended(summed)
        digest = await _hash(source)
    _same(summed.lines[-1].split()[0], digest)
    await setting.guest.run("killall rcopy")
    printed = (await server).text
    check(f"...{octets} bytes..." in printed and "done" in printed, f"rcopy printed {printed!r}")
    return Finding(setting.reply, f"{octets} octets copied; the guest's file has our SHA-256, {digest[:8]}…")


async def _rstream_from_guest(setting: Setting, program: str, plan: rstream.Settings, own: rsocket.Settings) -> Finding:
    """The guest's program is the client; both ends verify the data."""
    listener = await setting.listen()
    client = setting.run(f"{_command(program, plan, listener.address[1])} -s {setting.host}")
    async with await rsocket.accept(await listener.request(), settings=own) as connected:
        results = await _measured(setting, program, plan, connected, leads=False)
    _table(await client)
    ours = f"{setting.ours}; {results.octets} octets, all right"
    return Finding(f"{setting.reply}; its data was right", ours, departs=_departs(program))


async def _rstream_to_guest(setting: Setting, program: str, plan: rstream.Settings, own: rsocket.Settings) -> Finding:
    """The guest's program is the server; both ends verify the data."""
    server = await setting.serve(_command(program, plan, setting.guest.service))
    async with await setting.rsocket(own) as connected:
        results = await _measured(setting, program, plan, connected, leads=True)
    _table(await server)
    ours = f"{results.octets} octets, all right"
    return Finding(f"{setting.reply}; its data was right", ours, departs=_departs(program))


async def _measured(
    setting: Setting, program: str, plan: rstream.Settings, connected: rsocket.Rsocket, *, leads: bool
) -> rstream.Results:
    run = rstream.mapped if program == "riostream" else rstream.stream
    octets = 2 * plan.size * plan.count * plan.iterations
    with setting.measured(octets, connected.connection):
        return await run(connected, plan, leads=leads)


def _command(program: str, plan: rstream.Settings, port: int) -> str:
    """Return the command, with calls that block: the others never sleep, and look busy while they listen."""
    size, count, iterations = plan.size, plan.count, plan.iterations
    return f"{program} -p {port} -S {size} -C {count} -I {iterations} -T b -T v"


def _departs(program: str) -> str:
    return _PEEKING if program == "riostream" else ""


def _table(output: Output) -> None:
    """Check the row that rstream and riostream print after a test without wrong data."""
    ended(output)
    text = " ".join(output.lines)
    check("verification failed" not in text and "custom" in text, f"the guest's program printed {text!r}")


def _rate(output: Output) -> str:
    """Return the rate that rcopy printed."""
    lines = [line for line in output.lines if " bytes in " in line]
    if not lines:
        raise Mismatch(f"rcopy printed {' '.join(output.lines)!r}")
    return lines[-1].rpartition("done")[2].strip()


async def _hash(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _same(guest: str, ours: str) -> None:
    check(guest == ours, f"the SHA-256 of the file is {guest} in the guest, and {ours} here")


def _copies(octets: int, name: str, *, long: bool = False, small: int = 0) -> tuple[Case, Case]:
    """Return the cases, which copy ``small`` octets if the device is a board."""
    size = f"{octets // _MIB} MiB" if octets >= _MIB else f"{octets // 1024} KiB"
    timeout = 1200.0 if long else 300.0
    own = rsocket.Settings() if octets >= _MIB else rsocket.Settings(buffer=_SMALL_BUFFER, credits=_SMALL_CREDITS)
    smaller = _copies(small, name) if small else (None, None)
    return (
        Case(
            f"rcopy-{name}from-guest",
            f"rcopy in the guest copies a file of {size} to our end",
            _RULE,
            partial(_rcopy_from_guest, octets=octets, own=own),
            _EXPECTED,
            timeout=timeout,
            long=long,
            smaller=smaller[0],
        ),
        Case(
            f"rcopy-{name}to-guest",
            f"rcopy in the guest as server: our end copies a file of {size} to it",
            _RULE,
            partial(_rcopy_to_guest, octets=octets, own=own),
            _EXPECTED,
            timeout=timeout,
            long=long,
            smaller=smaller[1],
        ),
    )


def _streams(program: str, *, small: bool = False) -> tuple[Case, Case]:
    plan, buffer = (_SMALL_STREAM, _SMALL_BUFFER) if small else (_STREAM, rstream.BUFFER)
    own = rsocket.Settings(buffer=buffer, maps=1, **({"credits": _SMALL_CREDITS} if small else {}))
    smaller = (None, None) if small else _streams(program, small=True)
    what = "written to mapped memory" if program == "riostream" else "as a stream"
    each = f"{plan.iterations} times {plan.count} transfers of {plan.size} octets each way, {what}"
    return (
        Case(
            f"{program}-from-guest",
            f"{program} in the guest, our end serves it: {each}",
            _RULE,
            partial(_rstream_from_guest, program=program, plan=plan, own=own),
            _EXPECTED,
            smaller=smaller[0],
        ),
        Case(
            f"{program}-to-guest",
            f"{program} in the guest as server: {each}",
            _RULE,
            partial(_rstream_to_guest, program=program, plan=plan, own=own),
            _EXPECTED,
            smaller=smaller[1],
        ),
    )


CASES = (
    *_copies(2 * _MIB, "", small=1 << 15),
    *_streams("rstream"),
    *_streams("riostream"),
    *_copies(64 * _MIB, "64-mib-", long=True),
)
