"""The device's end of a link, which receives, executes and answers requests."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.host_link.crc import FrameCrc
from open_rnic.rtl.host_link.protocol import (
    HEADER,
    LAST,
    MARGIN,
    SHORT,
    SIZES,
    TURN,
    VALUE,
    VERDICT_LSB,
    VERSION,
    Op,
)
from open_rnic.rtl.host_link.requests import Requests
from open_rnic.rtl.host_link.responses import Responses
from open_rnic.rtl.host_link.streams import FromStreams, ToStreams
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.registers import Verdict
from open_rnic.rtl.registers.bus import RegisterBus

__all__ = ["PATIENCE", "Link"]

# After this number of cycles without a transfer, the octets of a stalled stream are refused, and a request ends.
PATIENCE = 128
GAP = 8  # cycles without a beat after which a record ends


class _Parts:
    """The blocks and signals of a :class:`Link` that the states of its FSM share."""

    def __init__(self, link: "Link"):
        width = 4 * link.lanes
        self.requests = Requests(link.size)
        self.responses = Responses(link.size, 1 << (MARGIN + width - 1).bit_length())
        self.crc = FrameCrc(link.crc_bits)
        self.to_streams = ToStreams(link.lanes)
        self.from_streams = FromStreams(link.lanes)

        # The request is read octet by octet.
        self.place = Signal(range(link.size), reset_less=True)  # the position of the current octet
        self.take = Signal()  # continue with the next octet

        # The response is written octet by octet. The same CRC block first checks the request.
        self.check = Signal()  # process the octet in the CRC only
        self.give = Signal()  # process the octet in the CRC, and write it to the response
        self.gave = Signal()  # the octet is processed in this cycle
        self.step = Signal(3, reset_less=True)  # number of octets of this state after the current one

        # The header of the request, and state that remains from one request to the next.
        self.sequence = Signal(4, reset_less=True)
        self.opens = Signal(reset_less=True)  # the flag OPEN of the request
        self.ask_ulpdu = Signal(reset_less=True)  # its flag ULPDU
        self.ask_mpa = Signal(reset_less=True)  # its flag MPA
        self.expected = Signal(4)  # sequence number of the next new request
        self.session = Signal(32)  # the current session; 0, which is none, after a reset
        self.same = Signal(reset_less=True)  # the request belongs to the current session
        self.known = Signal()  # a session has begun since the device started
        self.refused = Signal(reset_less=True)
        self.damaged = Signal(8)  # number of discarded frames, modulo 256
        self.drop = Signal()  # discard this frame

        # An operation and its arguments.
        self.code = Signal(8, reset_less=True)  # the first octet
        self.arguments = Signal(48, reset_less=True)
        self.kind = self.code[3:6]
        self.value = Signal(32, reset_less=True)  # the word of the register that was read
        self.turns = Signal(2)  # the turns of the MPA stream (bit 0) and of ULPDUs (bit 1)
        self.is_ulpdu = self.kind[0]
        self.empty = self.kind == Op.EMPTY
        self.at_end = Signal()  # the current octet is the last one of the operation
        self.idle = Signal(range(PATIENCE), reset_less=True)  # number of cycles since the last transfer
        self.moves = Signal()  # a transfer: restart ``idle``

        # A record with octets of a stream.
        self.count = Signal(8, reset_less=True)  # number of octets in the record so far
        self.counted = Signal(8)  # the same, with the current octet
        self.between = Signal()  # no record has begun: restart ``count``
        self.ended = Signal(reset_less=True)  # the packet ends with the record
        self.verdict = Signal(Verdict, reset_less=True)

    def octet_state(self, m, state, octet, *, then, times=None, each_octet=(), signal=None, each_cycle=()):
        """Add a state that writes ``octet`` to the response, and continues in the state ``then``.

        With ``times``, the state writes that many octets; the previous state has set ``step`` to one less. With
        ``check`` as ``signal``, octets are processed in the CRC only. The statements ``each_cycle`` (domain ``comb``)
        are in effect in each cycle of the state, the statements ``each_octet`` (domain ``sync``) once per octet.
        """
        with m.State(state):
            m.d.comb += [(self.give if signal is None else signal).eq(1), self.responses.i.payload.octet.eq(octet)]
            m.d.comb += [*each_cycle]
            with m.If(self.gave):
                m.d.sync += [*each_octet]
                if times is not None:
                    m.d.sync += self.step.eq(self.step - 1)
                with m.If(self.step == 0 if times is not None else 1):
                    m.d.sync += self.step.eq(3)
                    m.next = then


class Link(wiring.Component):
    """Executes the requests of a host, and sends a response to each (:mod:`.protocol`, ``docs/link.md``).

    The device sends nothing without a request, and executes no request twice: it answers a repeated request with the
    stored response.

    If a stream accepts no octets for 128 cycles, and nothing else is transferred either, the remaining octets are
    refused, and so are all further octets for this stream until the host uses the stream's new turn. At the end of a
    request, the device adds octets of the output streams to the response until none has been available for 128 cycles.

    Throughput: ``i`` accepts an octet in every cycle. Checking an octet of a request, and writing an octet of a
    response, takes 8 / ``crc_bits`` cycles. Executing a request takes 1 more cycle for each of its octets.

    Parameters
    ----------
    lanes : width of the streams in 32-bit lanes: 1, 2, 4, 8 or 16
    crc_bits : number of bits that the CRC processes in a cycle: 1, 2 or 4. The smallest, 1, is fast enough for a UART.
    address_bits : width of the addresses of registers, at most 16
    size : size of the memory for a frame in octets: 512, 1024, 2048 or 4096. Two requests and two responses are stored.
        A request with its CRC, and a response after COBS, must be shorter.

    Members
    -------
    i : In, stream of 8 bits
        Octets from the line; ``ready`` is always 1.
    o : Out, stream of 8 bits
        Octets for the line.
    length : Out, range(``size`` + 1)
        The number of octets of the response that ``o`` sends, with its zero.
    bus : Out, :class:`.RegisterBus`
        Accesses to the registers.
    irq : In, 2 bits
        An event is pending; the RDMA engine requests an interrupt.
    active : Out, 1 bit
        A request is waiting or being executed, or a response is being sent.
    tx_ulpdu, rx_mpa, tx_mpa, rx_ulpdu
        The streams of :class:`.MpaDatapath`, with the opposite directions.

    """

    def __init__(self, lanes: int, *, size: int = 2048, crc_bits: int = 1, address_bits: int = 8):
        check_lanes(lanes)
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(map(str, SIZES))}, not {size!r}")
        self.lanes = lanes
        self.size = size
        self.crc_bits = crc_bits
        super().__init__({
            "i": In(stream.Signature(8)),
            "o": Out(stream.Signature(8)),
            "length": Out(range(size + 1)),
            "bus": Out(RegisterBus(address_bits)),
            "irq": In(2),
            "active": Out(1),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(lanes))),
            "rx_mpa": Out(stream.Signature(Packet(lanes))),
            "tx_mpa": In(stream.Signature(Packet(lanes))),
            "rx_ulpdu": In(stream.Signature(RxUlpdu(lanes))),
        })

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self)
        m.submodules.requests = x.requests
        m.submodules.responses = x.responses
        m.submodules.crc = x.crc
        m.submodules.to_streams = x.to_streams
        m.submodules.from_streams = x.from_streams
        wiring.connect(m, wiring.flipped(self.i), x.requests.i)
        wiring.connect(m, x.responses.o, wiring.flipped(self.o))
        m.d.comb += [self.active.eq(x.requests.waiting | x.responses.sending), self.length.eq(x.responses.length)]
        self._octets(m, x)
        self._register_bus(m, x)
        self._streams(m, x)
        self._counters(m, x)
        with m.FSM():
            self._check_request(m, x)
            self._decide(m, x)
            self._begin_response(m, x)
            self._carry_out(m, x)
            self._access_register(m, x)
            self._move_octets(m, x)
            self._refuse_octets(m, x)
            self._end_response(m, x)
        return m

    def _octets(self, m, x):
        """Connect the ports at which octets are read from the request, checked, and written to the response."""
        given = x.responses.i
        m.d.comb += [
            x.requests.address.eq(x.place + x.take),
            x.crc.valid.eq((x.give | x.check) & ~given.payload.end),
            x.crc.octet.eq(given.payload.octet),
            given.valid.eq(x.give & (x.crc.first | given.payload.end)),
            x.gave.eq(x.crc.done | (given.payload.end & given.ready)),
            x.responses.half.eq(x.sequence[0]),
            # A refusal replaces no stored response: the host of the session may still ask for both.
            x.responses.apart.eq(~x.same & ~x.opens),
        ]
        m.d.sync += x.place.eq(x.requests.address)
        with m.If(x.requests.lost | x.drop):
            m.d.sync += x.damaged.eq(x.damaged + 1)

    def _register_bus(self, m, x):
        m.d.comb += [
            self.bus.write.eq(x.kind == Op.WRITE),
            self.bus.address.eq(x.arguments[32:]),
            self.bus.write_data.eq(x.arguments[:32]),
        ]

    def _streams(self, m, x):
        wiring.connect(m, x.to_streams.mpa, wiring.flipped(self.rx_mpa))
        wiring.connect(m, x.to_streams.ulpdu, wiring.flipped(self.tx_ulpdu))
        wiring.connect(m, wiring.flipped(self.tx_mpa), x.from_streams.mpa)
        wiring.connect(m, wiring.flipped(self.rx_ulpdu), x.from_streams.ulpdu)
        m.d.comb += [
            x.at_end.eq((x.place == x.arguments[32:]) | x.empty),
            x.to_streams.octet.eq(x.requests.octet),
            x.to_streams.last.eq(x.code[LAST.bit_length() - 1] & x.at_end),
            x.to_streams.empty.eq(x.empty),
            x.to_streams.is_ulpdu.eq(x.is_ulpdu),
            x.to_streams.length.eq(x.arguments[16:]),
            x.from_streams.taken.eq(x.gave),
        ]

    def _counters(self, m, x):
        """Count octets and idle cycles outside the FSM, where a restart is a reset of the flip-flops, not a LUT."""
        m.d.sync += x.idle.eq(x.idle + 1)
        with m.If(x.moves):
            m.d.sync += x.idle.eq(0)
        m.d.comb += x.counted.eq(x.count + 1)
        with m.If(x.between):
            m.d.sync += x.count.eq(0)
        with m.Elif(x.from_streams.enable & x.gave):
            m.d.sync += x.count.eq(x.counted)

    def _check_request(self, m, x):
        """Read the complete request, and check its CRC and session, before anything is executed."""
        octet = x.requests.octet
        with m.State("Idle"):
            m.d.comb += x.crc.start.eq(1)
            m.d.sync += [x.step.eq(3), x.same.eq(1), x.refused.eq(0), x.place.eq(0)]
            with m.If(x.requests.waiting):
                m.next = "Check"
        x.octet_state(m, "Check", octet, then="Check session", signal=x.check, each_cycle=[x.take.eq(x.gave)],
                      each_octet=[Cat(x.sequence, x.opens, x.ask_ulpdu, x.ask_mpa).eq(octet)])  # fmt: skip
        x.octet_state(m, "Check session", octet, times=4, then="Check operations", signal=x.check,
                      each_cycle=[x.take.eq(x.gave)],
                      each_octet=[x.session.eq(Cat(x.session[8:], x.session[:8])),
                                  x.same.eq(x.same & (octet == x.session[:8]))])  # fmt: skip
        with m.State("Check operations"):
            m.d.comb += [x.check.eq(1), x.responses.i.payload.octet.eq(octet), x.take.eq(x.gave)]
            with m.If(x.place == x.requests.length):
                m.d.comb += [x.check.eq(0), x.take.eq(0)]
                m.d.sync += x.place.eq(0)
                m.next = "Decide"

    def _decide(self, m, x):
        """Discard the request, refuse it, send its response again, or execute it."""
        behind = Signal(4)  # 0: a new request; 1 or 2: a repeated one whose response is stored
        m.d.comb += behind.eq(x.expected - x.sequence)
        with m.State("Decide"):
            m.d.comb += x.crc.start.eq(1)
            m.d.sync += x.step.eq(HEADER - 1)
            m.next = "Header"
            with m.If(~x.crc.good):
                m.d.comb += [x.drop.eq(1), x.requests.release.eq(1)]
                m.next = "Idle"
            with m.Elif(x.responses.conflict):
                m.d.comb += x.crc.start.eq(0)
                m.next = "Decide"
            with m.Elif(~x.same):
                m.d.sync += x.refused.eq(~x.opens)
                with m.If(x.opens):
                    m.d.sync += x.expected.eq(x.sequence)
            with m.Elif((behind == 1) | (behind == 2)):
                m.next = "Send"
            with m.Elif(behind != 0):
                m.d.comb += x.requests.release.eq(1)
                m.next = "Idle"

    def _begin_response(self, m, x):
        """Begin the response with the header of the request, and store the session in it."""
        octet = x.requests.octet
        x.octet_state(m, "Header", octet, times=HEADER, then="Begin", each_cycle=[x.take.eq(x.gave)],
                      each_octet=[x.session.eq(Mux(x.refused, x.session, Cat(x.session[8:], octet)))])  # fmt: skip
        with m.State("Begin"):
            m.next = "Status"
            with m.If(~x.refused):
                m.d.sync += [x.known.eq(1), x.expected.eq(x.expected + 1)]
                m.next = "Operation"

    def _carry_out(self, m, x):
        """Read an operation with its arguments, and begin to execute it."""
        octet = x.requests.octet
        with m.State("Operation"):
            m.d.comb += [x.take.eq(1), x.moves.eq(1)]
            m.d.sync += [x.code.eq(octet), x.step.eq(octet[:3] - 1)]
            m.next = "Arguments"
            with m.If(octet[:3] == 0):
                m.next = "Carry out"
        with m.State("Arguments"):
            m.d.comb += x.take.eq(1)
            m.d.sync += [x.arguments.eq(Cat(x.arguments[8:], octet)), x.step.eq(x.step - 1)]
            with m.If(x.step == 0):
                m.next = "Carry out"
        with m.State("Carry out"):
            m.d.sync += x.step.eq(3)
            with m.Switch(x.kind):
                with m.Case(Op.READ, Op.WRITE):
                    m.next = "Access"
                with m.Case(Op.CLEAR):
                    m.d.comb += x.to_streams.clear.eq(1)
                    m.d.sync += x.turns.eq(0)
                    m.next = "Operation"
                with m.Case(Op.END):
                    m.next = "Move"
                with m.Default():
                    m.next = "Move"
                    with m.If(x.turns.bit_select(x.is_ulpdu, 1) != x.code[TURN.bit_length() - 1]):
                        m.next = "Skip"

    def _access_register(self, m, x):
        """Execute READ or WRITE. READ adds a record with the word to the response."""
        with m.State("Access"):
            m.d.comb += self.bus.request.eq(1)
            m.d.sync += x.value.eq(self.bus.read_data)
            with m.If(self.bus.ack):
                m.next = "Operation"
                with m.If(x.kind == Op.READ):
                    m.next = "Value"
        x.octet_state(m, "Value", x.value.word_select(~x.step[:2], 8), times=4, then="Value's tag")
        x.octet_state(m, "Value's tag", VALUE, then="Operation")

    def _move_octets(self, m, x):
        """Transfer the octets of an operation to its stream, and octets of the output streams into the response.

        The latter are transferred only if the request accepts them and the response has room. END transfers no octets
        to a stream, and is complete after PATIENCE cycles without a transfer.
        """
        available = Signal(2)  # output streams that have a beat for the response
        source = x.from_streams
        put = x.to_streams.valid
        m.d.comb += [
            available.eq(Cat(self.tx_mpa.valid & x.ask_mpa, self.rx_ulpdu.valid & x.ask_ulpdu)
                         & (~x.responses.full).replicate(2)),
        ]
        with m.State("Move"):
            m.d.comb += [put.eq(x.kind != Op.END), x.between.eq(1)]
            m.d.sync += x.ended.eq(0)
            with m.If(put & x.to_streams.ready):
                m.d.comb += [x.take.eq(~x.empty), x.moves.eq(1)]
                with m.If(x.at_end):
                    m.next = "Operation"
            with m.Elif(available.bit_select(source.of_ulpdu, 1)):
                m.next = "Octets"
            with m.Elif(available.any()):
                m.d.comb += source.other.eq(1)
            with m.Elif(x.idle.all()):
                m.next = "Status"
                with m.If(put):
                    m.next = "Short"
        with m.State("Octets"):
            m.d.comb += source.enable.eq(1)
            with m.If(source.offered):
                m.d.comb += [
                    x.responses.i.payload.octet.eq(source.octet),
                    x.give.eq(~source.empty),
                    x.moves.eq(1),
                ]
                with m.If(source.leaves):
                    m.d.sync += [x.ended.eq(source.last), x.verdict.eq(source.verdict)]
                    with m.If(source.last | x.counted[6:].all() | x.responses.full):
                        m.next = "Count"
            with m.Elif(x.idle[GAP.bit_length() - 1]):
                m.next = "Count"
        x.octet_state(m, "Count", x.count, then="Count's tag")
        with m.State("Count's tag"):
            m.d.comb += [
                x.give.eq(1),
                x.responses.i.payload.octet.eq(
                    Cat(Const(0, VERDICT_LSB), x.verdict, x.ended, source.of_ulpdu, Const(1, 1))
                ),
            ]
            with m.If(x.gave):
                m.d.comb += source.other.eq(1)
                m.next = "Move"

    def _refuse_octets(self, m, x):
        """Write a record with the position at which a stream stalled, change its turn, and skip all later octets."""
        x.octet_state(m, "Short", x.place[:8], then="Short's tag")
        x.octet_state(m, "Short's tag", Cat(x.place[8:], Const(0, 14 - len(x.place)), Const(SHORT >> 6, 2)),
                      then="Skip",
                      each_octet=[x.turns.eq(x.turns ^ Cat(~x.is_ulpdu, x.is_ulpdu))])  # fmt: skip
        with m.State("Skip"):
            m.d.comb += x.take.eq(~x.empty)
            with m.If(x.at_end):
                m.next = "Operation"

    def _end_response(self, m, x):
        """Write the trailer of the response: status, discarded frames, version and size, CRC. Then send it."""
        x.octet_state(m, "Status", Cat(x.refused, self.irq[0], ~x.known, self.irq[1]), then="Damaged")
        x.octet_state(m, "Damaged", x.damaged, then="Info")
        x.octet_state(m, "Info", VERSION << 4 | self.size.bit_length() - 1, then="Crc")
        x.octet_state(m, "Crc", x.crc.crc, times=4, then="End", each_cycle=[x.crc.shift.eq(1)])
        with m.State("End"):
            m.d.comb += [x.give.eq(1), x.responses.i.payload.end.eq(1)]
            with m.If(x.gave):
                m.next = "Send"
        with m.State("Send"):
            m.d.comb += x.responses.send.eq(1)
            with m.If(~x.responses.sending):
                m.d.comb += x.requests.release.eq(1)
                m.next = "Idle"
