"""The guest: a Linux kernel in QEMU with software emulation, reachable only over loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from open_rnic.host_driver.sockets import KERNEL
from open_rnic.host_driver.tools.interop.cable import Cable, Plan
from open_rnic.host_driver.tools.interop.errors import InteropError
from open_rnic.host_driver.tools.interop.initramfs import (
    ADDRESS,
    AGENT_NETWORK,
    AGENT_PORT,
    HOST,
    PROGRAMS,
    READY,
    STATUS,
)
from open_rnic.host_driver.tools.interop.tools import end_group
from open_rnic.host_driver.transport import Tcp

BOOT = 120.0  # seconds; it takes 5 on an idle machine
MEMORY = 768  # MiB
GRACE = 5.0  # seconds that the guest may take to report that a command was killed
_PROGRAMS = " ".join(("peer", "memory", "receive_samples", *PROGRAMS))  # programs of the cases, which may hang
_TICKS = os.sysconf("SC_CLK_TCK")
_FAULTS = re.compile(r"Kernel panic.*|Oops: .*|BUG: .*|kernel BUG .*|general protection fault.*|WARNING: .*")


@dataclass(frozen=True)
class Image:
    """The files to boot."""

    kernel: Path
    initramfs: Path


@dataclass(frozen=True)
class Output:
    """The output of a command in the guest; ``status`` is its exit status, or None if the guest did not report it."""

    text: str
    status: int | None

    @property
    def lines(self) -> list[str]:
        """The printed lines, without empty ones."""
        return [line.strip() for line in self.text.splitlines() if line.strip()]

    def value(self, start: str) -> str | None:
        """Return the rest of the first line that begins with this text."""
        return next((line.removeprefix(start).strip() for line in self.lines if line.startswith(start)), None)


class Guest:
    """A running guest, made by ``start``; an asynchronous context manager that ends it.

    Our end reaches the guest's ``service`` port, where its servers listen, at address ``host`` and port ``port`` of
    ``tcp``, and listens at ``host_here``. With ``plan``, the guest's card is at the end of a :class:`.Cable`.
    """

    service = 7174

    def __init__(self, image: Image, log: Path, plan: Plan | None = None) -> None:
        self.image = image
        self.log = log
        self.tcp: Tcp = KERNEL
        self.host = self.host_here = "127.0.0.1"
        self.port = 0
        self._plan = plan
        self._stack = contextlib.AsyncExitStack()
        self._agent = 0
        self._process: asyncio.subprocess.Process | None = None
        self._folder: Path | None = None
        self._monitor: _Monitor | None = None
        self._variant = "siw"

    @classmethod
    async def start(cls, image: Image, log: Path, plan: Plan | None = None) -> Self:
        """Boot a guest whose console goes to ``log``. Raises InteropError if the guest does not start."""
        guest = cls(image, log, plan)
        try:
            await guest._boot()
        except BaseException:
            await guest.kill()
            raise
        return guest

    async def run(self, command: str, timeout: float = 60.0, heard: bytearray | None = None) -> Output:
        """Run a shell command, which is killed after ``timeout`` seconds; its status is then that of SIGKILL.

        Its output goes to ``heard`` as it arrives, for callers that cannot wait until the end.
        """
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._agent)
        except OSError as error:
            what = f"the guest does not accept commands: {error.strerror}"
            raise InteropError(f"{what}; its console is in {self.log}") from None
        text = bytearray() if heard is None else heard
        writer.write(f"timeout -s KILL {max(timeout, 1):.0f} sh -c {_quoted(command)}\n".encode())
        try:
            async with asyncio.timeout(timeout + GRACE):
                while octets := await reader.read(65536):
                    text += octets
        except (TimeoutError, OSError):
            pass  # the output may be incomplete
        finally:
            writer.transport.abort()
        body, _, status = text.decode(errors="replace").rpartition(STATUS)
        if not status.strip().isdigit():
            return Output(text.decode(errors="replace"), None)
        return Output(body, int(status))

    async def load(self, variant: str) -> None:
        """Load this variant of siw, if it is not loaded; raises InteropError."""
        if variant != self._variant:
            output = await self.run(f"load {variant}")
            if output.status != 0:
                raise InteropError(f"the guest cannot load {variant}: {' '.join(output.lines) or 'no reason given'}")
            self._variant = variant

    async def listening(self, port: int, timeout: float = 20.0) -> None:
        """Wait until a server in the guest listens at this port and waits for connections; raises InteropError."""
        # In /proc/net/tcp, addresses are in hex, and 0A is LISTEN. siw's socket listens before siw handles connections,
        # and a connection that arrives in between is never answered. So the server's listen call must have ended, too.
        listens = f"grep -qi ':{port:04x} 00000000:0000 0A' /proc/net/tcp /proc/net/tcp6"
        works = f"cat $(printf '/proc/%s/stat ' $(pidof {_PROGRAMS})) | grep -q ') [RD] '"
        looks = f"until {listens} && ! {works}; do usleep 20000; done"
        if (await self.run(looks, timeout)).status != 0:
            raise InteropError(f"no program in the guest listened at port {port} within {timeout:g} s")

    async def clear(self) -> bool:
        """Kill the programs that cases left behind; returns whether the guest is then in its initial state."""
        gone = f"! grep -qi ':{self.service:04x} .* 0A ' /proc/net/tcp /proc/net/tcp6 && ! pidof {_PROGRAMS}"
        try:
            output = await self.run(f"killall -q -9 {_PROGRAMS}; until {gone}; do usleep 20000; done", 5)
        except InteropError:
            return False
        return output.status == 0 and self.fault is None

    @contextlib.asynccontextmanager
    async def captured(self, file: Path) -> AsyncIterator[None]:
        """Capture the traffic of the guest's network interface in ``file`` as pcap, while the body runs."""
        assert self._monitor
        await self._monitor.execute(
            "object-add", **{"qom-type": "filter-dump", "id": "dump", "netdev": "net", "file": str(file)}
        )
        try:
            yield
        finally:
            with contextlib.suppress(InteropError):  # the guest may have been killed
                await self._monitor.execute("object-del", id="dump")

    @property
    def cpu_seconds(self) -> float:
        """The processor time that the guest has used."""
        return cpu_seconds(self._process.pid) if self._process else 0.0

    @property
    def fault(self) -> str | None:
        """The first error message of the kernel on its console, or None."""
        match = _FAULTS.search(self._console())
        return match[0].strip() if match else None

    @property
    def alive(self) -> bool:
        """Whether :meth:`kill` has not been called."""
        return self._process is not None

    async def kill(self) -> None:
        """End the guest at once. Idempotent."""
        process, self._process = self._process, None
        if process:
            end_group(process.pid)
            await process.wait()
        if self._monitor:
            self._monitor.close()
        await self._stack.aclose()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()

    async def _boot(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rnic-guest-"))
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.log.write_bytes(b"")
        self._agent, self.port = free_ports(2)
        control = self._folder / "qmp"
        forwards, cable = {self._agent: AGENT_PORT, self.port: self.service}, None
        if self._plan:
            cable = await self._stack.enter_async_context(Cable(self._folder / "cable", self._plan))
            self.tcp, self.host, self.port, self.host_here = cable.tcp, ADDRESS, self.service, HOST
        options = cable.options if cable else None
        words = command(self.image, serial=f"file:{self.log}", forwards=forwards, cable=options)
        self._process = await asyncio.create_subprocess_exec(
            *words,
            "-qmp",
            f"unix:{control},server=on,wait=off",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(BOOT):
                while READY not in self._console():
                    if self._process.returncode is not None:
                        raise InteropError(await self._why())
                    await asyncio.sleep(0.05)
                while (await self.run("true", 2)).status != 0:  # READY is printed just before the agent listens
                    await asyncio.sleep(0.05)
                self._monitor = await _Monitor.open(control)
        except TimeoutError:
            raise InteropError(f"the guest was not ready within {BOOT:g} s; its console is in {self.log}") from None

    async def _why(self) -> str:
        assert self._process
        assert self._process.stderr
        said = (await self._process.stderr.read()).decode(errors="replace").strip().splitlines()
        return f"the guest ended: {said[-1] if said else self.fault or 'no reason given'}; its console is in {self.log}"

    def _console(self) -> str:
        return self.log.read_text(errors="replace")


class _Monitor:
    """QEMU's control socket (QMP)."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: Path) -> _Monitor:
        reader, writer = await asyncio.open_unix_connection(path)
        await reader.readline()  # a greeting
        monitor = cls(reader, writer)
        await monitor.execute("qmp_capabilities")
        return monitor

    async def execute(self, command: str, **arguments: Any) -> None:
        try:
            self._writer.write(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            async with asyncio.timeout(20):
                while line := await self._reader.readline():
                    answer = json.loads(line)
                    if "error" in answer:
                        raise InteropError(f"QEMU refused {command}: {answer['error']['desc']}")
                    if "return" in answer:
                        return
        except (OSError, TimeoutError):
            pass
        raise InteropError(f"QEMU did not answer {command}")

    def close(self) -> None:
        self._writer.close()


def command(
    image: Image, *, serial: str, forwards: dict[int, int], append: str = "", cable: str | None = None
) -> list[str]:
    """Return QEMU's command line; ``forwards`` maps ports of this machine's loopback to ports of the guest.

    ``cable`` is the network of the guest's first card; QEMU's own network is then that of a second card.
    """
    user = ",".join(f"hostfwd=tcp:127.0.0.1:{here}-:{there}" for here, there in forwards.items())
    networks = [f"user,id=net,ipv6=off,{user}"]
    if cable:
        networks = [cable, f"user,id=agent,ipv6=off,net={AGENT_NETWORK}.0/24,{user}"]
    cards = []
    for nth, network in enumerate(networks):
        cards += ["-netdev", network, "-device", f"virtio-net-pci,netdev={'agent' if nth else 'net'}"]
    return [
        "setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64",  # QEMU ends with this process, even if it is killed
        "-accel", "tcg", "-cpu", "qemu64,+rdrand", "-m", str(MEMORY),
        "-no-reboot", "-display", "none", "-nodefaults", "-no-user-config",
        "-kernel", str(image.kernel), "-initrd", str(image.initramfs),
        "-append", f"console=ttyS0 quiet panic=-1 mitigations=off {append}",
        "-serial", serial, *cards,
    ]  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Return ports of this machine's loopback that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def cpu_seconds(process: int) -> float:
    """Return the processor time of a process and the children that it has waited for; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / _TICKS


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
