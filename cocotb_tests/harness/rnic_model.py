"""A model of a whole RNIC at its end of the link: its streams return packets, and each packet makes an event."""

import random
from collections import deque

from open_rnic.cocotb_tests.harness.link_model import DeviceModel
from open_rnic.host_driver.devices.udp.driver import PATH, RNIC, page_of
from open_rnic.rtl import registers as mpa
from open_rnic.rtl.host_link.protocol import SIZES, Status
from open_rnic.rtl.mpa.stream_registers import BY_NAME as STREAM
from open_rnic.rtl.mpa.stream_registers import ROOM
from open_rnic.rtl.rdma import registers as rdma
from open_rnic.rtl.registers import EventKind, Verdict
from open_rnic.rtl.rnic import registers as rnic_registers
from open_rnic.rtl.tcp import registers as tcp

MEMORY = 1 << 12


class PathModel:
    """A data path: words that are written come back, when the model lets them; ``events`` counts packets."""

    def __init__(self, rng: random.Random):
        self._rng = rng
        self.queue = deque()  # written words: (word, octets, last)
        self.waiting = deque()  # words for the host
        self.left = 0
        self.announced = False
        self.events = deque()
        self.engine = False  # requests an interrupt
        self.memory = bytearray(MEMORY)
        self.address = 0
        self.resets = 0

    def move(self) -> None:
        """Let some words through."""
        while self.queue and self._rng.random() < 0.8:
            word = self.queue.popleft()
            self.waiting.append(word)
            if word[2]:
                self.events.append(mpa.BY_NAME["EVENT"]["kind"].put(EventKind.RTR_RECEIVED))

    def state(self) -> int:
        """STREAM_STATE."""
        field = STREAM["STREAM_STATE"]
        self.announced = bool(self.waiting)
        word = field["room"].put(ROOM - len(self.queue))
        if self.waiting:
            _, octets, last = self.waiting[0]
            word |= field["waits"].put(1) | field["last"].put(last) | field["octets"].put(octets)
            word |= field["verdict"].put(Verdict.STREAM)
        return word

    def write(self, word: int) -> None:
        """STREAM_WORD."""
        assert self.left, "a word beyond the packet"
        assert len(self.queue) < ROOM, "a word without room"
        octets = min(self.left, 4)
        self.left -= octets
        self.queue.append((word, octets, not self.left))


class RnicModel(DeviceModel):
    """Answers request frames. ``log`` has all writes to other registers than those of streams and memory."""

    def __init__(self, rng: random.Random, connections: int = 2, size: int = SIZES[1]):
        super().__init__(rng, size)
        self.paths = [PathModel(rng) for _ in range(connections)]
        self.log = []
        pages = PATH, RNIC, *map(page_of, range(connections))
        self._names = {page.address(name) // 4: (page, name) for page in pages for name in page.registers}
        fixed = {
            (PATH, "IDENTITY"): tcp.IDENTITY,
            (PATH, "VERSION"): tcp.VERSION,
            (RNIC, "RNIC_IDENTITY"): rnic_registers.IDENTITY,
            (RNIC, "RNIC_VERSION"): rnic_registers.VERSION,
            (RNIC, "RNIC_CAPABILITIES"): connections,
        }
        for n in range(connections):
            page = page_of(n)
            fixed |= {(page, "IDENTITY"): mpa.IDENTITY, (page, "VERSION"): mpa.VERSION}
            fixed |= {(page, "RDMA_IDENTITY"): rdma.IDENTITY, (page, "RDMA_VERSION"): rdma.VERSION}
            fixed |= {(page, "MEMORY_OCTETS"): MEMORY}
        for (page, name), word in fixed.items():
            self.registers[page.address(name) // 4] = word

    def load(self, address: int) -> int:
        """See DeviceModel."""
        page, name = self._names[address]
        for path in self.paths:
            path.move()
        if page == RNIC:
            match name:
                case "RNIC_EVENTS" | "RNIC_EVENTS_32":
                    return self._bits(name, lambda path: path.events)
                case "RNIC_STREAMS" | "RNIC_STREAMS_32":
                    return self._bits(name, lambda path: path.waiting)
                case "RNIC_ENGINES" | "RNIC_ENGINES_32":
                    return self._bits(name, lambda path: path.engine)
        elif page != PATH:
            path = self.paths[page.number - 1]
            match name:
                case "STREAM_STATE":
                    return path.state()
                case "STREAM_RECEIVED":
                    taken = path.waiting.popleft()[0] if path.announced else 0
                    path.announced = False
                    return taken
                case "EVENT":
                    return path.events.popleft() if path.events else 0
                case "MEMORY_READ":
                    at, path.address = path.address, path.address + 4
                    return int.from_bytes(path.memory[at : at + 4], "little")
        return super().load(address)

    def store(self, address: int, word: int) -> None:
        """See DeviceModel."""
        page, name = self._names[address]
        path = self.paths[page.number - 1] if page not in (PATH, RNIC) else None
        match name:
            case "STREAM_BEGIN":
                assert not path.left, "a packet within a packet"
                path.left = word
                if not word:
                    path.queue.append((0, 0, True))
            case "STREAM_WORD":
                path.write(word)
            case "MEMORY_ADDRESS":
                path.address = word
            case "MEMORY_WRITE":
                at, path.address = path.address, path.address + 4
                path.memory[at : at + 4] = word.to_bytes(4, "little")
            case "CONTROL" if path and word & mpa.BY_NAME["CONTROL"]["reset"].mask:
                resets = path.resets + 1
                path.__init__(self._rng)
                path.resets = resets
            case _:
                self.log.append((name, word))
                super().store(address, word)

    def status(self) -> int:
        """See DeviceModel."""
        events = any(path.events or path.waiting for path in self.paths)
        return Status.EVENT * events | Status.INTERRUPT * any(path.engine for path in self.paths)

    def _bits(self, name, holds) -> int:
        first = rnic_registers.BY_NAME[name]["value"].first
        return sum(bool(holds(path)) << n for n, path in enumerate(self.paths[first : first + mpa.WORD]))
