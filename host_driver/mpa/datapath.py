"""The whole data path of one connection in software, behind the registers of ``rtl.registers``.

It is sans-IO and synchronous: it processes octets and ULPDUs at once, and puts the results into three queues.
``host_driver.devices.software`` wraps it in the asynchronous device interface.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from open_rnic.host_driver.device import Event, Ulpdu
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.rtr import (
    is_empty_read_response,
    is_terminate,
    is_terminate_instead_of_rtr,
    read_response,
    rtr_kind,
    rtr_ulpdu,
)
from open_rnic.rtl.registers import (
    BY_NAME,
    MAP,
    MAX_ULPDU,
    Access,
    Cause,
    DirectionState,
    EventKind,
    Model,
    Role,
    Rtr,
    Verdict,
)

_WRITABLE = {
    register.name: sum(field.mask for field in register.fields if field.access is Access.RW) for register in MAP
}
_RESET = {register.name: register.reset for register in MAP}
_HOSTS = {name: _RESET[name] for name, mask in _WRITABLE.items() if mask}  # reset values of the host's registers
_CONFIG = {field.name: field for field in BY_NAME["CONFIG"].fields}
_CONTROL = BY_NAME["CONTROL"]
_NO_ERROR = Event(EventKind.ERROR)


class OctetQueue:
    """A queue of octet strings. ``octets`` is their total length, plus some octets for each entry."""

    _ENTRY = 64  # bounds the number of empty entries as well

    def __init__(self) -> None:
        self.octets = 0
        self._entries: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, entry: bytes) -> None:
        """Put ``entry`` at the end."""
        self._entries.append(entry)
        self.octets += len(entry) + self._ENTRY

    def extend(self, entries: Sequence[bytes]) -> None:
        """Put ``entries`` at the end."""
        self._entries.extend(entries)
        self.octets += sum(map(len, entries)) + len(entries) * self._ENTRY

    def peek(self) -> bytes:
        """Return the oldest entry, and keep it."""
        return self._entries[0]

    def pop(self) -> bytes:
        """Take the oldest entry."""
        entry = self._entries.popleft()
        self.octets -= len(entry) + self._ENTRY
        return entry

    def pop_all(self) -> list[bytes]:
        """Take all entries, the oldest first."""
        entries = list(self._entries)
        self._entries.clear()
        self.octets = 0
        return entries


class Delivered:
    """The data for the host: octets of stream mode, and behind them good ULPDUs."""

    def __init__(self) -> None:
        self.stream = OctetQueue()
        self.good = OctetQueue()

    def __len__(self) -> int:
        return len(self.stream) + len(self.good)

    @property
    def octets(self) -> int:
        """See OctetQueue."""
        return self.stream.octets + self.good.octets

    def pop(self) -> Ulpdu:
        """Take the oldest entry."""
        return Ulpdu(self.stream.pop(), Verdict.STREAM) if self.stream else Ulpdu(self.good.pop())


class MpaDatapath:
    """TX framing behind the fence, RX delineation and checks, RTRs, events and registers.

    ``transmit`` and ``receive`` take octets. ``mpa`` holds the entries for the peer, one FPDU or stream-mode packet
    each, and ``ulpdus`` the data for the host. Only the event FIFO is bounded here: callers check ``tx_octets`` and
    ``rx_octets`` first.

    CONFIG and the MPA offsets are sampled when MPA starts in a direction, except for ``permissive``, ``rdmap`` and
    ``rtr_accept``, which are read when they matter. Only a reset leaves MPA. A Terminate passes a shut fence only
    after an error; it always ends transmission.
    """

    def __init__(self, *, lanes: int, event_depth: int = 32) -> None:
        self._words = _RESET.copy()
        self._words["CAPABILITIES"] = sum(
            BY_NAME["CAPABILITIES"][name].put(value)
            for name, value in {"lanes": lanes, "event_depth": event_depth, "store_and_forward": 1}.items()
        )
        self._event_depth = event_depth
        self.seen: Callable[[Event], None] = lambda event: None  # called with each event, for logic beside the path
        self.reset()

    def reset(self) -> None:
        """Forget the connection, and reset the registers that the host writes."""
        self._words |= _HOSTS
        self.mpa = OctetQueue()
        self.ulpdus = Delivered()
        self.events: deque[Event] = deque()
        self._overflow = False
        self._event_offset = 0
        self._error = _NO_ERROR

        self._tx_waiting = OctetQueue()  # in front of the fence
        self._tx_stream_octets = 0
        self._tx_mpa = False
        self._tx_ended = False  # nothing more is sent
        self._only_terminate = False
        self._granted = False  # the condition for an open fence holds
        self._fence_open = False
        self._response: bytes | None = None  # to a Read RTR
        self._framer = FpduFramer(markers=False, crc=False)

        self._rx_held = bytearray()  # past the stream-mode octets, before MPA is enabled
        self._rx_stream_octets = 0
        self._rx_mpa = False
        self._rx_ended = False
        self._screen: Callable[[bytes, int], bool] | None = None  # returns True for a ULPDU that is not for the host
        self._delineator = FpduDelineator(markers=False, crc=False)

    # Fill levels.

    @property
    def tx_octets(self) -> int:
        """Octets that wait on their way to the peer; 0 if transmit drops everything."""
        return 0 if self._tx_ended else self._tx_waiting.octets + self.mpa.octets

    @property
    def rx_octets(self) -> int:
        """Octets that wait on their way to the host, without an incomplete FPDU; 0 if receive drops everything."""
        return 0 if self._rx_ended else len(self._rx_held) + self.ulpdus.octets

    # Registers and events.

    def read(self, name: str) -> int:
        """Return a register's word; raises ValueError for an unknown name. A read of EVENT pops the event FIFO."""
        if name not in self._words:
            raise ValueError(f"no register is called {name}")
        if name in _LIVE:
            return _LIVE[name](self)
        wide = _LIVE_WIDE.get(name[:-3])
        if wide is None:
            return self._words[name]
        return (wide(self) >> 32) & 0xFFFF if name.endswith("_HI") else wide(self) & 0xFFFF_FFFF

    def write(self, name: str, value: int) -> None:
        """Write a register; raises ValueError for an unknown name and for more than 32 bits."""
        if name not in self._words:
            raise ValueError(f"no register is called {name}")
        if not 0 <= value < 1 << 32:
            raise ValueError(f"{name} holds 32 bits, not {value}")
        if name == "CONTROL" and value & _CONTROL["reset"].mask:
            self.reset()
            return
        if name == "EVENT_STATUS" and value & BY_NAME[name]["overflow"].mask:
            self._overflow = False
        if mask := _WRITABLE[name]:
            self._words[name] = value & mask
        self._delineator.max_ulpdu = self._max_ulpdu("RX_MAX_ULPDU")
        self._advance_tx()
        self._advance_rx()

    def take_event(self) -> Event:
        """Pop the event FIFO; returns an event of kind NONE if it is empty."""
        if not self.events:
            return Event(EventKind.NONE)
        event = self.events.popleft()
        self._event_offset = event.offset
        return event

    def _take_event_word(self) -> int:
        event = self.take_event()
        return event.kind | event.detail << 8 | event.value << 16

    def _emit(self, kind: EventKind, detail: int = 0, value: int = 0, offset: int = 0) -> None:
        event = Event(kind, detail, min(value, 0xFFFF), offset & (1 << 48) - 1)
        if kind is EventKind.ERROR:
            self._error = event
        if len(self.events) < self._event_depth:
            self.events.append(event)
        else:
            self._overflow = True
        self.seen(event)

    def _config(self, name: str) -> int:
        return _CONFIG[name].get(self._words["CONFIG"])

    def _max_ulpdu(self, name: str) -> int:
        return min(self._words[name], MAX_ULPDU)  # RFC 5044 §3 bounds what the host may ask for

    def _state(self) -> int:
        def direction(stopped: bool, mpa: bool, passed: int, stream_octets: int) -> DirectionState:
            if stopped:
                return DirectionState.STOPPED
            if mpa:
                return DirectionState.MPA
            return DirectionState.STREAM if passed < stream_octets else DirectionState.WAITING

        tx = direction(self._tx_ended, self._tx_mpa, self._tx_stream_octets, self._words["TX_STREAM_OCTETS"])
        rx = direction(self._rx_ended, self._rx_mpa, self._rx_stream_octets, self._words["RX_STREAM_OCTETS"])
        return tx | rx << 2 | self._fence_open << 4

    # Transmit.

    def transmit(self, octets: bytes) -> None:
        """Take one ULPDU from the host, or in stream mode one packet of stream octets."""
        if self._tx_waiting or not self._deal_with(octets):
            self._tx_waiting.push(octets)

    def transmit_all(self, packets: Sequence[bytes]) -> None:
        """Take several packets in order: cheaper than single calls if the fence is open."""
        if (
            self._fence_open
            and not (self._tx_ended or self._only_terminate)
            and max(map(len, packets), default=0) <= self._max_ulpdu("TX_MAX_ULPDU")
            and not any(map(is_terminate, packets))
        ):  # _deal_with would send each of them
            self.mpa.extend(self._framer.frame_all(packets))
        else:
            for each in packets:
                self.transmit(each)

    def _advance_tx(self) -> None:
        self._enter_tx_mpa()
        while self._tx_waiting and self._deal_with(self._tx_waiting.peek()):
            self._tx_waiting.pop()

    def _deal_with(self, packet: bytes) -> bool:
        """Send, refuse or drop the packet; returns False if it must wait."""
        if self._tx_ended:
            return True
        if not self._tx_mpa:
            room = self._words["TX_STREAM_OCTETS"] - self._tx_stream_octets
            if room <= 0:
                return False
            if len(packet) > room:
                self._fail_tx(Cause.TX_STREAM, len(packet) - room)
            elif packet:
                self.mpa.push(packet)
                self._tx_stream_octets += len(packet)
                self._enter_tx_mpa()
            return True
        if self._only_terminate:
            if not is_terminate(packet):
                return True
        elif not self._fence_open:
            return False
        if len(packet) > self._max_ulpdu("TX_MAX_ULPDU"):
            self._fail_tx(Cause.TX_LENGTH, len(packet))
            return True
        if is_terminate(packet) and self._config("rdmap"):  # nothing follows it: RFC 5040 §5.4
            self._emit(EventKind.TERMINATE_SENT)
            self._tx_ended = True
        self._send(packet)
        return True

    def _send(self, ulpdu: bytes) -> None:
        self.mpa.push(self._framer.frame(ulpdu))

    def _enter_tx_mpa(self) -> None:
        if (
            self._tx_mpa
            or self._tx_ended
            or not _CONTROL["tx_enable"].get(self._words["CONTROL"])
            or self._tx_stream_octets < self._words["TX_STREAM_OCTETS"]
        ):
            return
        self._tx_mpa = True
        self._framer = FpduFramer(
            markers=bool(self._config("markers_tx")),
            crc=bool(self._config("crc_tx")),
            offset=self._words["TX_MPA_OFFSET"] & ~3,
        )
        self._emit(EventKind.TX_MPA)
        if self._config("role") == Role.INITIATOR and not self._only_terminate:
            kind = Rtr(self._config("rtr_send"))
            if self._config("model") == Model.CLIENT_SERVER:
                self._granted = True
            elif kind is not Rtr.NONE:  # without an RTR nothing may ever leave (RFC 6581 §5)
                self._emit(EventKind.RTR_SENT, kind)
                self._send(rtr_ulpdu(kind))
                self._granted = True
                if kind is Rtr.READ:
                    self._screen = self._screen_response
        self._open_fence()

    def _open_fence(self) -> None:
        """Open the fence if the conditions hold. The answer to a Read RTR leaves before anything else."""
        if self._fence_open or not self._granted or not self._tx_mpa or self._only_terminate or self._tx_ended:
            return
        if self._response:
            self._emit(EventKind.RESPONSE_SENT)
            self._send(self._response)
        self._fence_open = True
        self._emit(EventKind.FENCE_OPEN)

    def _fail_tx(self, cause: Cause, value: int) -> None:
        self._emit(EventKind.ERROR, cause, value)
        if self._tx_mpa and self._config("rdmap"):
            self._only_terminate = True
        else:
            self._tx_ended = True

    # Receive.

    def receive(self, octets: bytes) -> None:
        """Take octets of the stream from the peer, cut anywhere."""
        if self._rx_ended:
            return
        if self._rx_mpa:
            self._delineator.feed(octets)
            self._deliver()
        else:
            self._rx_held += octets
            self._advance_rx()

    def _advance_rx(self) -> None:
        if self._rx_mpa or self._rx_ended:
            return
        stream_octets = self._words["RX_STREAM_OCTETS"]
        room = stream_octets - self._rx_stream_octets
        if room > 0 and self._rx_held:
            octets = bytes(self._rx_held[:room])
            del self._rx_held[:room]
            self._rx_stream_octets += len(octets)
            self.ulpdus.stream.push(octets)
        if self._rx_stream_octets < stream_octets or not _CONTROL["rx_enable"].get(self._words["CONTROL"]):
            return
        self._rx_mpa = True
        self._delineator = FpduDelineator(
            markers=bool(self._config("markers_rx")),
            crc=bool(self._config("crc_rx")),
            offset=self._words["RX_MPA_OFFSET"] & ~3,
            max_ulpdu=self._max_ulpdu("RX_MAX_ULPDU"),
        )
        self._emit(EventKind.RX_MPA)
        if self._config("role") == Role.RESPONDER:
            self._screen = self._screen_first
        self._delineator.feed(bytes(self._rx_held))
        self._rx_held.clear()
        self._deliver()

    def _deliver(self) -> None:
        delineator = self._delineator
        offset = delineator.offset
        while self._screen and (ulpdus := delineator.take(1)):
            if not self._screen(ulpdus[0], offset):
                self.ulpdus.good.push(ulpdus[0])
            if self._rx_ended:
                return
            offset = delineator.offset
        self.ulpdus.good.extend(delineator.take())
        if error := delineator.error:
            self._fail_rx(error.cause, error.value, error.offset)

    def _screen_first(self, ulpdu: bytes, offset: int) -> bool:
        """Let a responder's first FPDU open the fence; returns True if the FPDU is not for the host.

        A permissive responder reports an FPDU that is no RTR as RTR_RECEIVED of kind NONE. A Terminate instead of the
        RTR is for the host and leaves the fence shut.
        """
        if self._config("model") == Model.CLIENT_SERVER:  # RFC 5044 §7.1.2 rule 4
            self._screen = None
            self._grant()
            return False
        if is_terminate_instead_of_rtr(ulpdu):
            return False
        self._screen = None
        kind = rtr_kind(ulpdu)
        if not kind.bit & self._config("rtr_accept") and not self._config("permissive"):
            self._fail_rx(Cause.NOT_RTR, len(ulpdu), offset)
            return True
        self._emit(EventKind.RTR_RECEIVED, kind, len(ulpdu), offset)
        if kind is Rtr.READ:  # RFC 5040 §5.2.1: even a Read of no octets is answered
            self._response = read_response(ulpdu)
        self._grant()
        return kind is not Rtr.NONE

    def _grant(self) -> None:
        self._granted = True
        self._open_fence()
        self._advance_tx()

    def _screen_response(self, ulpdu: bytes, offset: int) -> bool:
        """Take the answer to this end's Read RTR; returns True if this was the answer."""
        if not is_empty_read_response(ulpdu):
            return False
        self._screen = None
        self._emit(EventKind.RESPONSE_RECEIVED, value=len(ulpdu), offset=offset)
        return True

    def _fail_rx(self, cause: Cause, value: int, offset: int) -> None:
        self._emit(EventKind.ERROR, cause, value, offset)
        self._rx_ended = True
        if self._config("rdmap"):
            self._only_terminate = True
            self._advance_tx()


# Registers whose words are computed when they are read; the wide ones are pairs, named _LO and _HI
_LIVE: dict[str, Callable[[MpaDatapath], int]] = {
    "STATE": MpaDatapath._state,
    "EVENT": MpaDatapath._take_event_word,
    "EVENT_STATUS": lambda path: len(path.events) | path._overflow << 8,
    "ERROR": lambda path: path._error.cause.code | path._error.detail << 8 | path._error.value << 16,
    "TX_FPDUS": lambda path: path._framer.fpdus & 0xFFFF_FFFF,
    "TX_MARKERS": lambda path: path._framer.markers & 0xFFFF_FFFF,
    "RX_FPDUS": lambda path: path._delineator.fpdus & 0xFFFF_FFFF,
    "RX_MARKERS": lambda path: path._delineator.markers & 0xFFFF_FFFF,
    "RX_CRC_ERRORS": lambda path: int((path._delineator.error or _NO_ERROR).cause is Cause.CRC),
}
_LIVE_WIDE: dict[str, Callable[[MpaDatapath], int]] = {
    "EVENT_OFFSET": lambda path: path._event_offset,
    "ERROR_OFFSET": lambda path: path._error.offset,
    "TX_OCTETS": lambda path: path._framer.octets,
    "RX_OCTETS": lambda path: path._delineator.octets,
    "CYCLES": lambda path: 0,
}
