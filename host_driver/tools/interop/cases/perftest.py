"""perftest in the guest, with connections of rdma_cm (``-R``): as client and as server."""

from __future__ import annotations

from functools import partial
from math import inf

from open_rnic.host_driver import rdma
from open_rnic.host_driver.mpa.negotiation import Config
from open_rnic.host_driver.rdma import perftest
from open_rnic.host_driver.rdma.perftest import Bandwidth, Program, Settings
from open_rnic.host_driver.tools.interop.case import Case, Finding, Setting, check
from open_rnic.host_driver.tools.interop.cases.programs import ended
from open_rnic.host_driver.tools.interop.judge import Expected
from open_rnic.host_driver.tools.interop.qemu import Output
from open_rnic.rtl.registers import Role

_RULE = "RFC 5040 §5.5 rule 13: messages are sent in the order in which they were posted"
_PEEKING = "RFC 5040 §5.5 rule 5: ib_write_lat takes the last octet in memory for the arrival of an RDMA Write"
_READS = 16  # RDMA Reads outstanding
_ITERATIONS, _TURNS, _FEW_TURNS = 24, 100, 20
_SMALL = 1024  # octets of a message from or to a board's memory
_SMALL_SEND = 64
# The first words of perftest's line if the processor's clock, which QEMU emulates, does not match that of the kernel
_UNSTEADY = "Correlation coefficient"
_NAMES = {
    Program.WRITE_BW: "RDMA Writes",
    Program.READ_BW: "RDMA Reads",
    Program.SEND_BW: "Sends",
    Program.WRITE_LAT: "RDMA Writes in turns",
    Program.READ_LAT: "single RDMA Reads",
}


def _settings(program: Program, *, small: bool) -> Settings:
    if program.latency:
        return Settings.of(program, iterations=_FEW_TURNS if small else _TURNS)
    size = _SMALL_SEND if program is Program.SEND_BW else _SMALL  # all posted buffers of Sends have a place there
    return Settings.of(program, size=size if small else None, iterations=_ITERATIONS)


async def _from_guest(setting: Setting, settings: Settings) -> Finding:
    """The guest is the client."""
    program = settings.program
    listener = await setting.listen()
    client = setting.run(f"{_command(settings, listener.address[1])} {setting.host}")
    results = await perftest.server(listener, settings)
    table = _table(await client, settings)
    if isinstance(results, Bandwidth) and program is not Program.SEND_BW:
        reported = f"{results.rate:.2f}"
        check(f"{table[3]:.2f}" == reported, f"the guest printed {table[3]:.2f} MiB/s, and reported {reported}")
    siw = f"{setting.reply}; {_measured(program, table)}"
    return Finding(siw, f"{setting.ours}; served {settings.iterations} messages", departs=_departs(program))


async def _to_guest(setting: Setting, settings: Settings) -> Finding:
    """The guest is the server."""
    program = settings.program
    server = await setting.serve(_command(settings, setting.guest.service))

    async def connect(options: rdma.Options) -> rdma.Connection:
        return await setting.connect(Config(Role.INITIATOR, ird=_READS, ord=_READS), options=options, nudged=False)

    results = await perftest.client(connect, settings)
    output = await server
    measured = ""
    if program is not Program.READ_LAT:
        table = _table(output, settings)
        measured = f"; {_measured(program, table)}"
        if isinstance(results, Bandwidth) and program is not Program.SEND_BW:
            ours = f"{results.rate:.2f}"
            check(f"{table[3]:.2f}" == ours, f"the guest printed {table[3]:.2f} MiB/s, and our end reported {ours}")
    else:
        ended(output)
    ours = f"{settings.iterations} messages of {settings.size} octets"
    return Finding(f"{setting.reply}{measured}", ours, departs=_departs(program))


def _departs(program: Program) -> str:
    return _PEEKING if program is Program.WRITE_LAT else ""


def _command(settings: Settings, port: int) -> str:
    reads = f" -o {_READS}" if settings.program in (Program.READ_BW, Program.READ_LAT) else ""
    return f"{settings.program} -R -F -p {port} -s {settings.size} -n {settings.iterations}{reads}"


def _table(output: Output, settings: Settings) -> list[float]:
    """Return the row of perftest's table, which begins with the size and the number of messages."""
    ended(output)
    heads = [number for number, line in enumerate(output.lines) if line.startswith("#bytes")]
    check(len(heads) == 1 and heads[0] + 1 < len(output.lines), f"no table: {' | '.join(output.lines[-3:])}")
    row = [float(word) for word in output.lines[heads[0] + 1].split()]
    check(row[:2] == [settings.size, settings.iterations], f"perftest's table has the row {row}")
    timed = not any(line.startswith(_UNSTEADY) for line in output.lines)
    small = settings.size < Settings.of(settings.program).size  # its rate may be printed as 0.00
    measured = all(0 < value < inf or (small and value == 0) for value in row[3:5])
    check(measured or not timed, f"perftest's table has the row {row}")
    return row


def _measured(program: Program, table: list[float]) -> str:
    value = table[4] if program.latency else table[3]
    if not 0 <= value < inf:
        return "its clock was too unsteady to measure"
    return f"measured {value:.0f} µs (median)" if program.latency else f"measured {value:.2f} MiB/s"


def _case(program: Program, act: str, *, small: bool = False) -> Case:
    settings = _settings(program, small=small)
    smaller = None if small else _case(program, act, small=True)
    what = f"{settings.iterations} {_NAMES[program]} of {settings.size} octets"
    octets = settings.iterations * settings.size
    from_siw = (act == "from-guest") != (program in (Program.READ_BW, Program.READ_LAT))
    if program is Program.WRITE_LAT:  # both ends write
        expected = Expected(least=(octets, octets))
    else:
        expected = Expected(least=(octets, 0) if from_siw else (0, octets))
    if act == "from-guest":
        # With the unmodified siw, the client requests the client-server model, in which our responder must not send
        # the first FPDU, as ib_write_lat's server does.
        first = program is Program.WRITE_LAT
        return Case(
            f"{program}-from-guest".replace("_", "-"),
            f"{program} -R in the guest, our end serves it: {what}" + ("; peer-to-peer" if first else ""),
            "RFC 6581 §4: the responder may send after the RTR" if first else _RULE,
            partial(_from_guest, settings=settings),
            expected,
            variant="siw-strict" if first else "siw",
            connections=2,
            smaller=smaller,
        )
    return Case(
        f"{program}-to-guest".replace("_", "-"),
        f"{program} -R in the guest as server: {what}",
        _RULE,
        partial(_to_guest, settings=settings),
        expected,
        connections=2,
        smaller=smaller,
    )


CASES = tuple(_case(program, act) for program in Program for act in ("from-guest", "to-guest"))
