"""Samples of our device's fabric in a ring of a program in the guest."""

from __future__ import annotations

import hashlib
import re
import struct
from functools import partial

from open_rnic.host_driver.rdma.samples import Delivery, SampleStatus, SampleWriter, SignalGenerator, SignalStatus
from open_rnic.host_driver.tools.interop.case import Case, Finding, Mismatch, Setting, check
from open_rnic.host_driver.tools.interop.cases.programs import ended
from open_rnic.host_driver.tools.interop.qemu import Output

_RING = 1 << 15
_SAMPLES = 50_000
_SLOW = 100  # milliseconds that the slow program sleeps after each doorbell


async def _samples(setting: Setting, program: str, slow: int) -> Finding:
    """The program gets all samples, or if it is ``slow``, what the sample writer did not drop."""
    listener = await setting.listen()
    place = f"{setting.host} {listener.address[1]}"
    running = setting.run(f"{program} -r {_RING} {f'-w {slow} {place}' if slow else f'-o - {place} | sha256sum'}")
    request = await setting.request(listener, running)
    async with await SampleWriter.accept(request, Delivery(drops=bool(slow))) as writer:
        with setting.measured(4 * _SAMPLES, writer.connection):
            generator = await SignalGenerator.open(writer.connection.device)
            await writer.start()
            await generator.start(samples=_SAMPLES)
            signal, status = await generator.finished(writer.connection), await writer.finish()
    output = await running
    ended(output)
    if not slow:
        written = hashlib.sha256(struct.pack(f"<{_SAMPLES}I", *range(_SAMPLES))).hexdigest()
        check(f"{written}  -" in output.lines, "the program has not written the samples to its standard output")
    printed = " ".join(line for line in output.lines if line.startswith(("received", "dropped")))
    return Finding(f"{setting.reply}; {printed}", _counts(output, signal, status, drops=bool(slow)))


def _counts(output: Output, signal: SignalStatus, status: SampleStatus, *, drops: bool) -> str:
    """Compare what the guest's program and our device have counted."""
    # The hash of the samples, which sha256sum prints, may stand between the program's lines.
    received, bells = _numbers(output, r"received (\d+) samples in (\d+) doorbells")
    (dropped,) = _numbers(output, r"dropped (\d+) before the last")
    check(signal.given == _SAMPLES, f"the signal generator gave {signal.given} samples, not {_SAMPLES}")
    check(4 * received == status.octets, f"{received} samples arrived, but {status.octets} octets were written")
    check(bells == status.bells, f"{bells} doorbells arrived, but {status.bells} were sent")
    check(received + status.dropped == _SAMPLES, f"{received} arrived and {status.dropped} dropped of {_SAMPLES}")
    check(dropped <= status.dropped, f"{dropped} drops were reported to the guest, but there were {status.dropped}")
    check(bool(dropped) == drops, f"{dropped} samples were dropped before others")
    return f"{received} samples written in order, {status.dropped} dropped"


def _numbers(output: Output, pattern: str) -> list[int]:
    """Return the numbers of a line that the guest's program printed."""
    found = re.search(pattern, output.text)
    if not found:
        raise Mismatch(f"the guest's program printed {' | '.join(output.lines)}")
    return [int(number) for number in found.groups()]


def _case(name: str, description: str, slow: int = 0, program: str = "receive_samples -c") -> Case:
    standard = "RFC 5040 §5.5: the peer has the data of an RDMA Write when it has a later Send"
    return Case(name, description, standard, partial(_samples, program=program, slow=slow), samples=True)


CASES = (
    _case("samples-to-guest", "samples of our fabric stream into a ring of a program in the guest"),
    _case("samples-to-slow-guest", "the same with a slow program: samples are dropped and counted", slow=_SLOW),
    _case("samples-to-python-guest", "the same with a program in Python, with pyverbs", program="receive_samples.py"),
)
