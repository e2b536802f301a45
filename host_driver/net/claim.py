"""The claim of a host to its address (RFC 5227): probes, announcements and defence."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from ipaddress import IPv4Address
from random import Random
from typing import NamedTuple

from open_rnic.host_driver.net.frames import NO_ADDRESS, UNKNOWN_MAC, Arp, ArpOperation

# RFC 5227 §1.1; in seconds, except for the two numbers
PROBE_WAIT = 1.0
PROBE_NUM = 3
PROBE_MIN = 1.0
PROBE_MAX = 2.0
ANNOUNCE_WAIT = 2.0
ANNOUNCE_NUM = 2
ANNOUNCE_INTERVAL = 2.0
DEFEND_INTERVAL = 10.0


class ClaimState(Enum):
    """Whether the host may use its address."""

    HELD = auto()
    PROBING = auto()
    LOST = auto()  # another host answered a probe, or probes for the same address


class _Step(NamedTuple):
    """A packet to be sent ``delay`` seconds after the one before it, and the state from then on."""

    state: ClaimState
    delay: float


class AddressClaim:
    """The use of one address. An address is held from the start; ``probe`` asks first whether another host uses it.

    ``broadcast`` sends an ARP packet to all hosts.

    Attributes
    ----------
    state : ClaimState
    conflict : the MAC of the last other host that used or probed for the address in conflict, or None
    deadline : the time at which ``tick`` must be called next, or None

    """

    def __init__(self, mac: bytes, address: IPv4Address, broadcast: Callable[[Arp], None], random: Random) -> None:
        self.state = ClaimState.HELD
        self.conflict: bytes | None = None
        self.deadline: float | None = None
        self._mac = mac
        self._address = address
        self._broadcast = broadcast
        self._random = random
        self._schedule: deque[_Step] = deque()
        self._defended: float | None = None

    def probe(self, now: float) -> None:
        """Begin to probe for the address (RFC 5227 §2.1.1); announcements follow if no other host objects."""
        first = _Step(ClaimState.PROBING, self._random.uniform(0, PROBE_WAIT))
        probes = [_Step(ClaimState.PROBING, self._random.uniform(PROBE_MIN, PROBE_MAX)) for _ in range(PROBE_NUM - 1)]
        announcements = [_Step(ClaimState.HELD, ANNOUNCE_INTERVAL)] * (ANNOUNCE_NUM - 1)
        self._schedule = deque([first, *probes, _Step(ClaimState.HELD, ANNOUNCE_WAIT), *announcements])
        self.state = ClaimState.PROBING
        self.conflict = None
        self._wait(now)

    def tick(self, now: float) -> None:
        """Send the probe or announcement that is due."""
        if self.deadline is None or now < self.deadline:
            return
        self.state = self._schedule.popleft().state
        self._send(NO_ADDRESS if self.state is ClaimState.PROBING else self._address)
        self._wait(now)

    def contest(self, packet: Arp, now: float) -> bool:
        """Examine a received ARP packet; returns whether it conflicts with the use of the address.

        A conflict ends probing (RFC 5227 §2.1.1). An address that is held is defended with an announcement, at most one
        in ``DEFEND_INTERVAL``, and is kept (§2.4 (c)). The caller answers a probe for an address that is held.
        """
        used = packet.sender == self._address
        probed = packet.is_probe and packet.target == self._address and self.state is ClaimState.PROBING
        if packet.sender_mac == self._mac or not (used or probed):
            return False
        self.conflict = packet.sender_mac
        if self.state is ClaimState.PROBING:
            self.state = ClaimState.LOST
            self.deadline = None
        elif self.state is ClaimState.HELD and (self._defended is None or now - self._defended >= DEFEND_INTERVAL):
            self._defended = now
            self._send(self._address)
        return True

    def _wait(self, now: float) -> None:
        self.deadline = now + self._schedule[0].delay if self._schedule else None

    def _send(self, sender: IPv4Address) -> None:
        self._broadcast(Arp(ArpOperation.REQUEST, self._mac, sender, UNKNOWN_MAC, self._address))
