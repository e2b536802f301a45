"""In the simulation of a network path: the scripts, with frames in and out, against the RTL and the twin."""

from ipaddress import IPv4Address

from cocotb.task import bridge, resume

from open_rnic.cocotb_tests.harness import parameter
from open_rnic.cocotb_tests.rtl.tcp import path
from open_rnic.cocotb_tests.tcp_scripts.cases import CASES
from open_rnic.cocotb_tests.tcp_scripts.runner import BEGIN, ISNS, Player
from open_rnic.cocotb_tests.tcp_scripts.script import HERE, OTHER, PORT, Case, ScriptError
from open_rnic.cocotb_tests.tcp_scripts.subjects import Engine, Twin, engine_status
from open_rnic.host_driver.devices.sim.dut import start
from open_rnic.host_driver.devices.sim.network_path import tick_cycles
from open_rnic.host_driver.net.frames import Arp, ArpOperation, EtherType, Ipv4
from open_rnic.host_driver.tcp.segment import PROTOCOL
from open_rnic.rtl.net.neighbours import FRESH, UNIT
from open_rnic.rtl.tcp.words import Command

QUIET = 600  # cycles without a change after which nothing will happen: the segments of the scripts are short


class Path(path.Path):
    """The path, which also knows another peer, and the statuses of its connections."""

    forgets = 0  # ms until the path may have forgotten its peers

    def introduce(self):
        if self.forgets > 0:
            return
        request = Arp(ArpOperation.REQUEST, path.PEER_MAC, OTHER, bytes(6), HERE)
        self.give(EtherType.ARP, request.encode(), b"\xff" * 6)
        resume(self.settle)()  # there is room for one at a time
        super().introduce()
        self.forgets = FRESH * UNIT

    async def settle(self):
        ticks = max(0, self.now - self.time)
        if ticks:  # all at once, which is faster for many
            self.control["ticks"] = (self.control["ticks"] + ticks) % (1 << 16)
            self.time = self.now
            self.forgets -= ticks
            await self.clock.step(ticks * tick_cycles(path.CONNECTIONS))
        await super().settle()


class Rtl(Engine):
    """A connection of the path."""

    def __init__(self, engine: Path, iss: int):
        super().__init__(engine.begin(None, PORT, iss))
        engine.time = engine.now = BEGIN

    def receive(self, source: IPv4Address, octets: bytes) -> None:
        """Take the octets of a segment, whatever they are."""
        self.engine.give(EtherType.IPV4, Ipv4(source, HERE, PROTOCOL, octets).encode())
        resume(self.engine.settle)()
        self.collect()

    @property
    def state(self) -> str:
        """The state, with CLOSED the reason."""
        return engine_status(self.engine.clock.status[f"status_{self.engine.connection}"])


def play(path: Path, case: Case, iss: int, irs: int) -> None:
    """Play a case on the next connection; raise ScriptError if it fails."""
    path.introduce()
    subject = Rtl(path, iss)
    try:
        trace = Player(case, subject, iss, irs).run()
        if trace != Player(case, Twin(case, iss), iss, irs).run():
            raise ScriptError(f"{case}: the twin sends other segments")
    finally:
        path.command(Command.ABORT)
        path.segments.clear()
        path.octets = b""


async def play_the_scripts(dut):
    """Play all that fit, and that take at most ``longest`` ms."""
    await start(dut)
    path = Path(dut, QUIET)

    def play_all():
        failures = []
        cases = [case for case in CASES if case.fits_the_path]
        for at, case in enumerate(cases, parameter("turn")):
            if case.duration > parameter("longest"):
                continue
            try:
                play(path, case, *ISNS[at % len(ISNS)])
            except ScriptError as error:
                failures.append(str(error))
        assert not failures, "\n".join(failures)

    await bridge(play_all)()
