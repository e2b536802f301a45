"""The host's access to the ULPDU streams of a data path."""

from amaranth.hdl import Module, Mux, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.fifo import SyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import RxUlpdu, TxUlpdu
from open_rnic.rtl.mpa.stream_registers import ROOM, STREAM_MAP
from open_rnic.rtl.registers.bank import RegisterBank
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["StreamWindow"]


class StreamWindow(wiring.Component):
    """Passes ULPDUs and stream octets through registers (:data:`.STREAM_MAP`), in place of streams to the host.

    This suits a host that sends and receives startup frames only, because an RDMA engine has the ULPDUs. Up to
    :data:`.ROOM` words wait to be sent; a word without room is lost. Received words wait in the data path.

    Members
    -------
    reset : In, 1 bit
        The data path is reset: discard all words.
    bus : In, :class:`.RegisterBus`
    waits : Out, 1 bit
        A received word waits.
    tx_ulpdu : Out, stream of :class:`.TxUlpdu`
    rx_ulpdu : In, stream of :class:`.RxUlpdu`

    """

    def __init__(self):
        super().__init__({
            "reset": In(1), "bus": In(RegisterBus()), "waits": Out(1),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(1))), "rx_ulpdu": In(stream.Signature(RxUlpdu(1))),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        m.submodules.bank = bank = RegisterBank(STREAM_MAP)
        wiring.connect(m, wiring.flipped(self.bus), bank.bus)
        self._send(m, bank)
        self._receive(m, bank)
        return m

    def _send(self, m, bank):
        beat = Signal(TxUlpdu(1))
        fifo = SyncFIFOBuffered(width=len(Value.cast(beat)), depth=ROOM)
        m.submodules.queue = ResetInserter(self.reset)(fifo)
        length = Signal(16)  # of the packet
        left = Signal(16)  # octets of it that have not been written
        is_empty = Signal()  # the packet has no octets
        is_last = Signal()
        m.d.comb += [
            is_empty.eq(bank.BEGIN.push & (bank.BEGIN.octets == 0)),
            is_last.eq(left <= 4),
            beat.data.eq(bank.WORD.value),
            beat.last.eq(is_empty | is_last),
            beat.octets.eq(Mux(is_empty, 0, Mux(is_last, left, 4))),
            beat.length.eq(Mux(is_empty, 0, length)),
            fifo.w_data.eq(beat),
            fifo.w_en.eq(is_empty | (bank.WORD.push & (left != 0))),
            bank.STATE.room.eq(ROOM - fifo.level),
            self.tx_ulpdu.valid.eq(fifo.r_rdy),
            Value.cast(self.tx_ulpdu.payload).eq(fifo.r_data),
            fifo.r_en.eq(self.tx_ulpdu.ready),
        ]
        with m.If(self.reset):
            m.d.sync += left.eq(0)
        with m.Elif(bank.BEGIN.push):
            m.d.sync += [length.eq(bank.BEGIN.octets), left.eq(bank.BEGIN.octets)]
        with m.Elif(bank.WORD.push & fifo.w_rdy):
            m.d.sync += left.eq(Mux(is_last, 0, left - 4))

    def _receive(self, m, bank):
        given, beat = self.rx_ulpdu, self.rx_ulpdu.payload
        announced = Signal()  # STATE has been read since this word came
        m.d.comb += [
            self.waits.eq(given.valid),
            bank.STATE.waits.eq(given.valid),
            bank.STATE.last.eq(beat.last),
            bank.STATE.octets.eq(Mux(beat.last, beat.octets, 4)),
            bank.STATE.verdict.eq(beat.verdict),
            bank.RECEIVED.value.eq(Mux(announced, beat.data, 0)),
            given.ready.eq(bank.RECEIVED.pop & announced),
        ]
        with m.If(self.reset | bank.RECEIVED.pop):
            m.d.sync += announced.eq(0)
        with m.Elif(bank.STATE.pop):
            m.d.sync += announced.eq(given.valid)
