"""The collector of functional coverage (:mod:`.coverage`), which observes an ``MpaDatapath`` inside a simulation."""

from typing import Any

import cocotb
from cocotb.triggers import Event, RisingEdge

from open_rnic.cocotb_tests.coverage import FENCE, RECEIVE, REFUSED, TRANSMIT, Bin, Cross
from open_rnic.cocotb_tests.harness import Beat, Probe
from open_rnic.cocotb_tests.mpa import Checker, Fault, Fpdu
from open_rnic.host_driver.devices.sim.signals import level
from open_rnic.host_driver.mpa.rtr import is_empty_read_response, is_terminate, rtr_kind
from open_rnic.rtl.registers import BY_NAME, MAP, MAX_ULPDU, Rtr

STREAMS = ("tx_ulpdu", "tx_mpa", "rx_mpa")
_BY_ADDRESS = {each.address >> 2: each.name for each in MAP}
_RESET_CYCLES = 4  # from the write of the reset until all of the connection is reset
_ERRORS = {Fault.CRC: "CRC", Fault.FPDUPTR: "FPDUPTR", Fault.LENGTH: "RX_LENGTH"}


class Collector:
    """Observes the ports in each cycle. It follows register writes, and finds FPDUs in the streams by itself."""

    def __init__(self, dut: Any):
        self.seen: dict[str, set[Bin]] = {}
        self._dut = dut
        self._streams = [Probe(dut, each) for each in STREAMS]
        self._lanes = self._streams[0].octets_per_beat // 4
        self._width = "1 lane" if self._lanes == 1 else "more"
        self._forget()

    def _forget(self) -> None:
        """Begin a new connection."""
        self._quiet = _RESET_CYCLES
        self._words = {each.name: each.reset for each in MAP}
        self._order: list[str] = []
        self._first = "nothing"
        self._given: int | None = None  # octets so far of the ULPDU that is being transferred
        self._announced = 0
        self._tx_error = False
        self._tx_passed = self._rx_passed = 0  # octets of stream mode
        self._tx_packet = bytearray()
        self._tx_offset = 0
        self._checker: Checker | None = None

    def _get(self, register: str, field: str = "value") -> int:
        return BY_NAME[register][field].get(self._words[register])

    def _hit(self, cross: Cross, *values: Any) -> None:
        self.seen.setdefault(cross.name, set()).add(values)

    async def run(self) -> None:
        """Observe until the simulation ends."""
        dut, edge = self._dut, RisingEdge(self._dut.clk)
        request, ack, write = dut.bus__request, dut.bus__ack, dut.bus__write
        woken = Event()

        async def wake(signal: Any) -> None:
            while True:
                await RisingEdge(signal)
                woken.set()

        for each in (request, *(dut[f"{stream}__valid"] for stream in STREAMS)):
            cocotb.start_soon(wake(each))
        while True:
            await edge
            asked = level(request)
            if asked and level(ack) and level(write):
                self._write(level(dut.bus__address), level(dut.bus__write_data))
            if self._quiet:
                self._quiet -= 1
                continue
            offered = [each.offered() for each in self._streams]
            if any(offered):
                self._look(*offered)
            if "mpa" not in self._order and self._sends_mpa():
                self._order.append("mpa")
            if not (asked or any(offered)):  # nothing can be missed until the next ``valid`` or request
                woken.clear()
                await woken.wait()

    def _look(self, ulpdu: bool, sent: bool, received: bool) -> None:
        """Process the streams whose ``valid`` is set."""
        of_ulpdu, of_sent, of_received = self._streams
        if ulpdu:
            if self._tx_passed >= self._get("TX_STREAM_OCTETS") and "ulpdu" not in self._order:
                self._order.append("ulpdu")
            if beat := of_ulpdu.moved():
                self._take_ulpdu(beat)
        if sent and (beat := of_sent.moved()):
            self._take_sent(beat)
        if received and (beat := of_received.moved()):
            self._take_received(beat)

    def _write(self, address: int, value: int) -> None:
        name = _BY_ADDRESS.get(address, "")
        if name == "CONTROL" and BY_NAME[name]["reset"].get(value):
            self.close()
            self._forget()
        elif name:
            self._words[name] = value

    def close(self) -> None:
        """End the connection, whose first FPDU and order of events are now known."""
        if {"mpa", "ulpdu"} <= {*self._order}:
            role = ("initiator", "responder")[self._get("CONFIG", "role")]
            peer_to_peer = bool(self._get("CONFIG", "model"))
            sends, accepts = Rtr(self._get("CONFIG", "rtr_send")).bit, self._get("CONFIG", "rtr_accept")
            kinds = accepts if role == "responder" else sends
            kind = FENCE.dimensions["RTR"][1 + kinds] if peer_to_peer else "-"
            permissive = bool(self._get("CONFIG", "permissive")) and role == "responder" and peer_to_peer
            model = "peer-to-peer" if peer_to_peer else "client-server"
            order = " ".join(self._order)
            self._hit(FENCE, self._lanes, role, model, permissive, kind, self._first, order)

    def _sends_mpa(self) -> bool:
        return self._tx_passed >= self._get("TX_STREAM_OCTETS") and bool(self._get("CONTROL", "tx_enable"))

    def _crc(self, direction: str) -> bool:
        return bool(self._get("CONFIG", f"crc_{direction}"))

    def _markers(self, direction: str) -> bool:
        return bool(self._get("CONFIG", f"markers_{direction}"))

    def _take_ulpdu(self, beat: Beat) -> None:
        if self._given is None:
            self._given, self._announced = 0, beat.fields["length"]
        self._given += len(beat.octets)
        if beat.last:
            given, self._given = self._given, None
            if not self._sends_mpa() or self._tx_error:
                return
            over = self._announced > min(self._get("TX_MAX_ULPDU"), MAX_ULPDU)
            if over or given != self._announced:
                self._tx_error = True
                error = "TX_LENGTH" if over else "too short" if given < self._announced else "too long"
                self._hit(REFUSED, self._lanes, given % 4, self._crc("tx"), self._markers("tx"), error)

    def _take_sent(self, beat: Beat) -> None:
        if self._tx_passed < self._get("TX_STREAM_OCTETS"):
            self._tx_passed += len(beat.octets)
            return
        self._tx_packet += beat.octets
        if beat.last:
            packet, self._tx_packet = bytes(self._tx_packet), bytearray()
            offset = self._tx_offset + (self._get("TX_MPA_OFFSET") & ~3)
            checker = Checker(markers=self._markers("tx"), crc=self._crc("tx"), offset=offset)
            for fpdu in checker.feed(packet):
                if not fpdu.problems:
                    phase = offset // 4 % 128
                    self._hit(TRANSMIT, self._width, phase, fpdu.length % 4, checker.crc, checker.markers)
            self._tx_offset += len(packet)

    def _take_received(self, beat: Beat) -> None:
        octets = beat.octets
        if self._rx_passed < self._get("RX_STREAM_OCTETS"):
            room = self._get("RX_STREAM_OCTETS") - self._rx_passed
            self._rx_passed += len(octets[:room])
            octets = octets[room:]
            if not octets:
                return
        if self._checker is None:
            self._checker = Checker(
                markers=self._markers("rx"), crc=self._crc("rx"), offset=self._get("RX_MPA_OFFSET") & ~3,
                max_ulpdu=min(self._get("RX_MAX_ULPDU"), MAX_ULPDU),
            )  # fmt: skip
        if not self._checker.ended:
            for fpdu in self._checker.feed(octets, ends=beat.last):
                self._received(fpdu)

    def _received(self, fpdu: Fpdu) -> None:
        checker = self._checker
        error = next((_ERRORS[each.fault] for each in fpdu.problems if each.fault in _ERRORS), "none")
        if self._first == "nothing":
            self._order.append("fpdu")
            self._first = _first(fpdu, error)
        phase = fpdu.offset // 4 % 128
        cuts = {_field(fpdu, each) for each in fpdu.cuts} | ({"none"} if not fpdu.cuts[1:] else set())
        for cut in cuts:
            self._hit(RECEIVE, self._width, phase, fpdu.length % 4, cut, checker.crc, checker.markers, error)


def _first(fpdu: Fpdu, error: str) -> str:
    if error != "none":
        return "error"
    ulpdu = fpdu.ulpdu
    if not ulpdu:
        return "empty"
    if is_terminate(ulpdu):
        return "Terminate"
    if is_empty_read_response(ulpdu):
        return "Read Response"
    return {Rtr.SEND: "Send", Rtr.WRITE: "Write", Rtr.READ: "Read"}.get(rtr_kind(ulpdu), "other")


def _field(fpdu: Fpdu, cut: int) -> str:
    """Return the name of the field in which a chunk begins."""
    return "start" if cut == fpdu.offset else next(each.name for each in fpdu.fields if each.start <= cut < each.end)
