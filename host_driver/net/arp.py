"""The ARP cache (RFC 826, RFC 1122 §2.3.2): it maps the addresses of neighbours to their MACs.

It is sans-IO. Two functions do its output: one sends an ARP request, the other an IPv4 packet to a MAC. Nothing waits:
packets for an address that is being resolved are queued.

=============  =====================================================================================
the MAC is     a packet to the address
=============  =====================================================================================
unknown        is queued; broadcast requests follow, one a second. After the last, all are discarded
up to 60 s     is sent
up to 120 s    is sent; requests to the MAC alone follow, one a second. After the last, it is unknown
older          is treated as if the MAC were unknown
=============  =====================================================================================
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv4Address

from open_rnic.host_driver.net.frames import BROADCAST_MAC, Discard

FRESH = 60.0  # seconds after which a MAC is confirmed by unicast polls (RFC 1122 §2.3.2.1: on the order of a minute)
EXPIRED = 120.0  # seconds after which a MAC that was not confirmed is no longer used
INTERVAL = 1.0  # seconds between requests for an address (RFC 1122 §2.3.2.1: at most one a second)
TRIES = 3
MOST_WAITING = 8  # packets that wait for an address (RFC 1122 §2.3.2.2: at least one)
MOST_ADDRESSES = 256  # known addresses, and as many again that are being resolved


@dataclass(slots=True)
class _Entry:
    mac: bytes
    confirmed: float  # the time of the last ARP packet with this MAC


@dataclass(slots=True)
class _Question:
    """A series of requests for an address."""

    due: float  # the time of the next request, or of giving up
    requests: int = 1
    waiting: deque[bytes] = field(default_factory=deque)


class ArpCache:
    """The MACs of neighbours, and the packets that wait for one.

    ``request(address, mac)`` sends an ARP request for the address to the MAC. ``transmit(mac, packet)`` sends an IPv4
    packet. Discarded packets are counted in ``counters``.
    """

    def __init__(
        self,
        request: Callable[[IPv4Address, bytes], None],
        transmit: Callable[[bytes, bytes], None],
        counters: Counter[Discard],
    ) -> None:
        self._request = request
        self._transmit = transmit
        self._counters = counters
        self._entries: dict[IPv4Address, _Entry] = {}  # the one that was confirmed longest ago is the first
        self._questions: dict[IPv4Address, _Question] = {}

    @property
    def deadline(self) -> float | None:
        """The time at which ``tick`` must be called next; None if no request is open."""
        return min((question.due for question in self._questions.values()), default=None)

    def lookup(self, address: IPv4Address, now: float) -> bytes | None:
        """Return the MAC of the address if it is known."""
        entry = self._entries.get(address)
        return entry.mac if entry and now - entry.confirmed < EXPIRED else None

    def send(self, address: IPv4Address, packet: bytes, now: float) -> None:
        """Transmit the packet to the neighbour with this address, or queue it until the MAC is known."""
        mac = self.lookup(address, now)
        if mac is None:
            self._queue(address, packet, now)
            return
        self._transmit(mac, packet)
        if now - self._entries[address].confirmed >= FRESH and address not in self._questions:
            self._ask(address, mac, now)  # RFC 1122 §2.3.2.1 (2), unicast poll

    def learn(self, address: IPv4Address, mac: bytes, now: float, *, create: bool) -> bool:
        """Take the sender of an ARP packet, and transmit what waits for it.

        Unless ``create`` is set, only addresses that are known or being resolved are taken, as in the Merge_flag of
        RFC 826. Returns whether the address was taken.
        """
        question = self._questions.pop(address, None)
        if not (create or question or address in self._entries):
            return False
        self._entries.pop(address, None)
        if len(self._entries) == MOST_ADDRESSES:
            del self._entries[next(iter(self._entries))]
        self._entries[address] = _Entry(mac, now)
        for packet in question.waiting if question else ():
            self._transmit(mac, packet)
        return True

    def tick(self, now: float) -> None:
        """Repeat the requests that are due, and give up those that were not answered."""
        for address, question in list(self._questions.items()):
            if now < question.due:
                continue
            if question.requests == TRIES:
                del self._questions[address]
                self._entries.pop(address, None)
                self._count(Discard.ARP_FAILED, len(question.waiting))
                continue
            question.requests += 1
            question.due = now + INTERVAL
            self._request(address, self.lookup(address, now) or BROADCAST_MAC)

    def _queue(self, address: IPv4Address, packet: bytes, now: float) -> None:
        if address not in self._questions:
            if len(self._questions) == MOST_ADDRESSES:
                self._count(Discard.ARP_QUEUE, 1)
                return
            self._ask(address, BROADCAST_MAC, now)
        waiting = self._questions[address].waiting
        waiting.append(packet)
        if len(waiting) > MOST_WAITING:
            waiting.popleft()  # RFC 1122 §2.3.2.2: the latest is kept
            self._count(Discard.ARP_QUEUE, 1)

    def _ask(self, address: IPv4Address, mac: bytes, now: float) -> None:
        self._questions[address] = _Question(now + INTERVAL)
        self._request(address, mac)

    def _count(self, reason: Discard, packets: int) -> None:
        if packets:
            self._counters[reason] += packets
