"""The device's end of a link: requests come in, are carried out, and are answered."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.bus import RegisterBus
from open_rnic.rtl.layouts import Packet, RxUlpdu, TxUlpdu
from open_rnic.rtl.lib.lanes import check_lanes
from open_rnic.rtl.link.crc import FrameCrc
from open_rnic.rtl.link.protocol import (
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
from open_rnic.rtl.link.requests import Requests
from open_rnic.rtl.link.responses import Responses
from open_rnic.rtl.link.streams import FromStreams, ToStreams
from open_rnic.rtl.registers import Verdict

__all__ = ["PATIENCE", "Link"]

PATIENCE = 128  # cycles in which nothing moves, after which nothing is waited for
GAP = 8  # cycles without a beat that a record goes on for


class _Parts:
    """The parts of a :class:`Link` that the states of its FSM share: blocks, and what is known of the request."""

    def __init__(self, link: "Link"):
        width = 4 * link.lanes
        self.requests = Requests(link.size)
        self.responses = Responses(link.size, 1 << (MARGIN + width - 1).bit_length())
        self.crc = FrameCrc(link.crc_bits)
        self.to_streams = ToStreams(link.lanes)
        self.from_streams = FromStreams(link.lanes)

        # Of the request, an octet after the other is looked at.
        self.place = Signal(range(link.size))
        self.take = Signal()  # go on to the next

        # Of the response, an octet after the other is given; the CRC is of a request's octets first.
        self.check = Signal()  # the CRC takes the octet, which is not given
        self.give = Signal()
        self.gave = Signal()  # the octet has been given, or checked
        self.step = Signal(3)  # octets that are still to come, but for this one

        # The header, and what the device remembers from one request to the next.
        self.sequence = Signal(4)
        self.opens = Signal()
        self.ask_ulpdu = Signal()
        self.ask_mpa = Signal()
        self.expected = Signal(4)
        self.session = Signal(32)
        self.same = Signal()  # the request is of this session
        self.known = Signal()  # there has been a session
        self.refused = Signal()
        self.damaged = Signal(8)
        self.drop = Signal()

        # An operation and its arguments.
        self.code = Signal(8)
        self.arguments = Signal(40)
        self.kind = self.code[3:6]
        self.value = Signal(32, reset_less=True)  # of the register
        self.turns = Signal(2)  # of the two streams; they are told apart by bit 0 of ``kind``
        self.is_ulpdu = self.kind[0]
        self.empty = self.kind == Op.EMPTY
        self.at_end = Signal()  # of the operation
        self.idle = Signal(range(PATIENCE))  # cycles in which nothing has moved

        # A record of octets of a stream.
        self.count = Signal(8)
        self.ended = Signal()
        self.verdict = Signal(Verdict)

    def giving(self, m, state, what, *, then, times=None, do=(), signal=None, as_well=()):
        """A state that gives an octet, or with ``times`` as many, of which the caller has set ``step``.

        With ``check`` for ``signal`` it looks at the octet only. ``as_well`` holds in each cycle, and ``do`` is done
        with each octet.
        """
        with m.State(state):
            m.d.comb += [(self.give if signal is None else signal).eq(1), self.responses.i.payload.octet.eq(what)]
            m.d.comb += [*as_well]
            with m.If(self.gave):
                m.d.sync += [*do]
                if times is not None:
                    m.d.sync += self.step.eq(self.step - 1)
                with m.If(self.step == 0 if times is not None else 1):
                    m.d.sync += self.step.eq(3)
                    m.next = then


class Link(wiring.Component):
    """Carries out what the host asks for over a line of octets, and answers: :mod:`.protocol`.

    Nothing is sent but in answer to a request, and nothing is done twice: a request that is repeated is answered with
    the same response again. Octets of the line are taken one a cycle; to look at one of a request, or to give one of a
    response, takes ``8 / crc_bits`` cycles, and to carry out one of a request one more.

    A request is over when nothing of it has moved for 128 cycles. What a stream has not taken by then is refused, and
    so is all that follows for that stream until the host has changed the stream's turn.

    Parameters
    ----------
    lanes : width of the streams: 1, 2, 4, 8 or 16
    crc_bits : 1, 2 or 4: how fast that is; 1 is smallest, and as fast as a UART needs
    size : octets of memory for a frame, 512 to 4096, four times; a request has fewer, and a response as it is sent, too

    Members
    -------
    i : octets of the line, one in any cycle
    o : octets for the line
    bus : registers
    irq : an event is waiting
    active : a request waits or is carried out, or a response is sent
    tx_ulpdu, rx_mpa, tx_mpa, rx_ulpdu : the streams of :class:`.MpaDatapath`

    """

    def __init__(self, lanes: int, *, size: int = 2048, crc_bits: int = 1):
        check_lanes(lanes)
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(map(str, SIZES))}, not {size!r}")
        self.lanes = lanes
        self.size = size
        self.crc_bits = crc_bits
        super().__init__({
            "i": In(stream.Signature(8)),
            "o": Out(stream.Signature(8)),
            "bus": Out(RegisterBus()),
            "irq": In(1),
            "active": Out(1),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(lanes))),
            "rx_mpa": Out(stream.Signature(Packet(lanes))),
            "tx_mpa": In(stream.Signature(Packet(lanes))),
            "rx_ulpdu": In(stream.Signature(RxUlpdu(lanes))),
        })

    def elaborate(self, platform):
        m = Module()
        x = _Parts(self)
        for name in ("requests", "responses", "crc", "to_streams", "from_streams"):
            m.submodules[name] = getattr(x, name)
        wiring.connect(m, wiring.flipped(self.i), x.requests.i)
        wiring.connect(m, x.responses.o, wiring.flipped(self.o))
        m.d.comb += self.active.eq(x.requests.waiting | x.responses.sending)
        self._octets(m, x)
        self._register_bus(m, x)
        self._streams(m, x)
        m.d.sync += x.idle.eq(x.idle + 1)
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
        """Of the request, an octet is read; one of the response is given, or only the CRC looks at it."""
        given = x.responses.i
        m.d.comb += [
            x.requests.address.eq(x.place + x.take),
            x.crc.valid.eq((x.give | x.check) & ~given.payload.end),
            x.crc.octet.eq(given.payload.octet),
            given.valid.eq(x.give & (x.crc.first | given.payload.end)),
            x.gave.eq(x.crc.done | (given.payload.end & given.ready)),
            x.responses.half.eq(x.sequence[0]),
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
            x.at_end.eq((x.place == x.arguments[24:]) | x.empty),
            x.to_streams.octet.eq(x.requests.octet),
            x.to_streams.last.eq(x.code[LAST.bit_length() - 1] & x.at_end),
            x.to_streams.empty.eq(x.empty),
            x.to_streams.is_ulpdu.eq(x.is_ulpdu),
            x.to_streams.length.eq(x.arguments[8:]),
            x.from_streams.taken.eq(x.gave),
        ]

    def _check_request(self, m, x):
        """All of the request is looked at before anything is done."""
        octet = x.requests.octet
        with m.State("Idle"):
            m.d.comb += x.crc.start.eq(1)
            m.d.sync += [x.step.eq(3), x.same.eq(1), x.refused.eq(0), x.place.eq(0)]
            with m.If(x.requests.waiting):
                m.next = "Check"
        x.giving(m, "Check", octet, then="Check session", signal=x.check, as_well=[x.take.eq(x.gave)],
                 do=[Cat(x.sequence, x.opens, x.ask_ulpdu, x.ask_mpa).eq(octet)])  # fmt: skip
        x.giving(m, "Check session", octet, times=4, then="Check operations", signal=x.check,
                 as_well=[x.take.eq(x.gave)],
                 do=[x.session.eq(Cat(x.session[8:], x.session[:8])),
                     x.same.eq(x.same & (octet == x.session[:8]))])  # fmt: skip
        with m.State("Check operations"):
            m.d.comb += [x.check.eq(1), x.responses.i.payload.octet.eq(octet), x.take.eq(x.gave)]
            with m.If(x.place == x.requests.length):
                m.d.comb += [x.check.eq(0), x.take.eq(0)]
                m.d.sync += x.place.eq(0)
                m.next = "Decide"

    def _decide(self, m, x):
        """Drop the request, refuse it, send its response again, or carry it out."""
        behind = Signal(4)
        busy = Signal()  # the memory for the response is being sent from
        m.d.comb += [
            behind.eq(x.expected - x.sequence),
            busy.eq(x.responses.sending & (x.responses.sent == x.responses.half)),
        ]
        with m.State("Decide"):
            m.d.comb += x.crc.start.eq(1)
            m.d.sync += x.step.eq(HEADER - 1)
            m.next = "Header"
            with m.If(~x.crc.good):
                m.d.comb += [x.drop.eq(1), x.requests.release.eq(1)]
                m.next = "Idle"
            with m.Elif(busy):
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
        """The response begins with the header of the request, whose last octets are the session."""
        octet = x.requests.octet
        x.giving(m, "Header", octet, times=HEADER, then="Begin", as_well=[x.take.eq(x.gave)],
                 do=[x.session.eq(Mux(x.refused, x.session, Cat(x.session[8:], octet)))])  # fmt: skip
        with m.State("Begin"):
            m.next = "Status"
            with m.If(~x.refused):
                m.d.sync += [x.known.eq(1), x.expected.eq(x.expected + 1)]
                m.next = "Operation"

    def _carry_out(self, m, x):
        """Read an operation and its arguments, and begin with it."""
        octet = x.requests.octet
        with m.State("Operation"):
            m.d.comb += x.take.eq(1)
            m.d.sync += [x.code.eq(octet), x.step.eq(octet[:3] - 1), x.idle.eq(0)]
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
        """READ and WRITE: the word that was read is a record of the response."""
        with m.State("Access"):
            m.d.comb += self.bus.request.eq(1)
            m.d.sync += x.value.eq(self.bus.read_data)
            with m.If(self.bus.ack):
                m.next = "Operation"
                with m.If(x.kind == Op.READ):
                    m.next = "Value"
        x.giving(m, "Value", x.value.word_select(~x.step[:2], 8), times=4, then="Value's tag")
        x.giving(m, "Value's tag", VALUE, then="Operation")

    def _move_octets(self, m, x):
        """Octets move both ways: into a stream until the operation's end, and out of those whose octets are welcome.

        END moves none in. It is over when nothing has moved for a while.
        """
        there = Signal(2)  # streams whose beats can go into the response
        counted = Signal(8)
        source = x.from_streams
        put = x.to_streams.valid
        m.d.comb += [
            there.eq(Cat(self.tx_mpa.valid & x.ask_mpa, self.rx_ulpdu.valid & x.ask_ulpdu)
                     & (~x.responses.full).replicate(2)),
            counted.eq(x.count + 1),
        ]
        with m.State("Move"):
            m.d.comb += put.eq(x.kind != Op.END)
            m.d.sync += [x.count.eq(0), x.ended.eq(0)]
            with m.If(put & x.to_streams.ready):
                m.d.comb += x.take.eq(~x.empty)
                m.d.sync += x.idle.eq(0)
                with m.If(x.at_end):
                    m.next = "Operation"
            with m.Elif(there.bit_select(source.of_ulpdu, 1)):
                m.next = "Octets"
            with m.Elif(there.any()):
                m.d.comb += source.other.eq(1)
            with m.Elif(x.idle.all()):
                m.next = "Status"
                with m.If(put):
                    m.next = "Short"
        with m.State("Octets"):
            m.d.comb += source.enable.eq(1)
            with m.If(source.there):
                m.d.sync += x.idle.eq(0)
                m.d.comb += [x.responses.i.payload.octet.eq(source.octet), x.give.eq(~source.empty)]
                with m.If(x.gave):
                    m.d.sync += x.count.eq(counted)
                with m.If(source.leaves):
                    m.d.sync += [x.ended.eq(source.last), x.verdict.eq(source.verdict)]
                    with m.If(source.last | counted[6:].all() | x.responses.full):
                        m.next = "Count"
            with m.Elif(x.idle[GAP.bit_length() - 1]):
                m.next = "Count"
        x.giving(m, "Count", x.count, then="Count's tag")
        with m.State("Count's tag"):
            m.d.comb += [
                x.give.eq(1),
                x.responses.i.payload.octet.eq(
                    Cat(Const(0, VERDICT_LSB), x.verdict, x.ended, source.of_ulpdu, Const(1, 1))
                ),
            ]
            with m.If(x.gave):
                m.d.comb += source.other.eq(1)
                m.d.sync += x.idle.eq(0)
                m.next = "Move"

    def _refuse_octets(self, m, x):
        """What a stream has not taken is skipped, with all that follows of this turn, and a record says where."""
        x.giving(m, "Short", x.place[:8], then="Short's tag")
        x.giving(m, "Short's tag", Cat(x.place[8:], Const(0, 14 - len(x.place)), Const(SHORT >> 6, 2)), then="Skip",
                 do=[x.turns.eq(x.turns ^ Cat(~x.is_ulpdu, x.is_ulpdu))])  # fmt: skip
        with m.State("Skip"):
            m.d.comb += x.take.eq(~x.empty)
            with m.If(x.at_end):
                m.next = "Operation"

    def _end_response(self, m, x):
        """Behind the records: status, damaged frames, version and size, CRC; then the response is sent."""
        x.giving(m, "Status", Cat(x.refused, self.irq, ~x.known), then="Damaged")
        x.giving(m, "Damaged", x.damaged, then="Info")
        x.giving(m, "Info", VERSION << 4 | self.size.bit_length() - 1, then="Crc")
        x.giving(m, "Crc", x.crc.crc, times=4, then="End", as_well=[x.crc.shift.eq(1)])
        with m.State("End"):
            m.d.comb += [x.give.eq(1), x.responses.i.payload.end.eq(1)]
            with m.If(x.gave):
                m.next = "Send"
        with m.State("Send"):
            m.d.comb += x.responses.send.eq(1)
            with m.If(~x.responses.sending):
                m.d.comb += x.requests.release.eq(1)
                m.next = "Idle"
