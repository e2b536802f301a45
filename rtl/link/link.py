"""The device's end of a link: requests come in, are carried out, and are answered."""

from amaranth.hdl import Cat, Const, Module, Mux, ResetInserter, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from ..bus import RegisterBus
from ..registers import Verdict
from ..stream import Packet, RxUlpdu, TxUlpdu, check_lanes
from .beats import ToBeats
from .crc import FrameCrc
from .protocol import (
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
from .requests import Requests
from .responses import Responses

__all__ = ["PATIENCE", "Link"]

PATIENCE = 128  # cycles in which nothing moves, after which nothing is waited for
GAP = 8  # cycles without a beat that a record goes on for


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
    interrupt : an event is waiting
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
            "interrupt": In(1),
            "active": Out(1),
            "tx_ulpdu": Out(stream.Signature(TxUlpdu(lanes))),
            "rx_mpa": Out(stream.Signature(Packet(lanes))),
            "tx_mpa": In(stream.Signature(Packet(lanes))),
            "rx_ulpdu": In(stream.Signature(RxUlpdu(lanes))),
        })

    def elaborate(self, platform):
        m = Module()
        width = 4 * self.lanes
        margin = 1 << (MARGIN + width - 1).bit_length()
        m.submodules.requests = requests = Requests(self.size)
        m.submodules.responses = responses = Responses(self.size, margin)
        wiring.connect(m, wiring.flipped(self.i), requests.i)
        wiring.connect(m, responses.o, wiring.flipped(self.o))
        m.d.comb += self.active.eq(requests.waiting | responses.sending)

        # The request's octets, one after the other.
        place = Signal(range(self.size))
        octet = requests.octet
        take = Signal()
        m.d.comb += requests.address.eq(place + take)
        m.d.sync += place.eq(requests.address)

        # The response's octets, and the CRC: of a request's octets first, and then of its response's.
        m.submodules.crc = crc = FrameCrc(self.crc_bits)
        check = Signal()
        give = Signal()
        gave = Signal()
        given = responses.i.payload
        m.d.comb += [
            crc.valid.eq((give | check) & ~given.end),
            crc.octet.eq(given.octet),
            responses.i.valid.eq(give & (crc.first | given.end)),
            gave.eq(crc.done | (given.end & responses.i.ready)),
        ]

        # The header, and what the device remembers from one request to the next.
        sequence = Signal(4)
        expected = Signal(4)
        session = Signal(32)
        same = Signal()
        known = Signal()  # there has been a session
        opens = Signal()
        ask_ulpdu = Signal()
        ask_mpa = Signal()
        behind = Signal(4)
        busy = Signal()  # what the response would be made in is being sent
        refused = Signal()
        damaged = Signal(8)
        drop = Signal()
        m.d.comb += [
            behind.eq(expected - sequence),
            responses.half.eq(sequence[0]),
            busy.eq(responses.sending & (responses.sent == responses.half)),
        ]
        with m.If(requests.lost | drop):
            m.d.sync += damaged.eq(damaged + 1)

        # An operation and its arguments.
        code = Signal(8)
        arguments = Signal(40)
        kind = code[3:6]
        value = Signal(32, reset_less=True)  # of the register
        step = Signal(3)
        m.d.comb += [
            self.bus.write.eq(kind == Op.WRITE),
            self.bus.address.eq(arguments[32:]),
            self.bus.write_data.eq(arguments[:32]),
        ]

        # Octets on their way in.
        turns = Signal(2)  # of the two streams; they are told apart by bit 0 of `kind`
        clear = Signal()
        put = Signal()
        accepted = Signal()
        at_end = Signal()
        is_ulpdu = kind[0]
        empty = kind == Op.EMPTY
        m.d.comb += at_end.eq((place == arguments[24:]) | empty)  # of the operation
        length = Signal(16, reset_less=True)
        m.d.comb += self.tx_ulpdu.payload.length.eq(length)
        with m.If(put & accepted & is_ulpdu):
            m.d.sync += length.eq(arguments[8:])
        for name, chosen, target in (("mpa", ~is_ulpdu, self.rx_mpa), ("ulpdu", is_ulpdu, self.tx_ulpdu)):
            port = ToBeats(self.lanes)
            m.submodules[name] = ResetInserter(clear)(port)
            with m.If(chosen):
                m.d.comb += accepted.eq(port.ready)
            m.d.comb += [
                port.valid.eq(put & chosen),
                port.octet.eq(octet),
                port.last.eq(code[LAST.bit_length() - 1] & at_end),
                port.empty.eq(empty),
                *(target.payload[field].eq(port.o.payload[field]) for field in Packet(self.lanes).members),
                target.valid.eq(port.o.valid),
                port.o.ready.eq(target.ready),
            ]

        # Octets on their way out: whole beats of one stream at a time.
        from_ulpdu = Signal()
        there = Signal(2)
        here = Signal()
        moves = Signal()
        at = Signal(range(width + 1))
        after = Signal.like(at)
        count = Signal(8)
        counted = Signal(8)
        last = Signal()
        verdict = Signal(Verdict)
        chosen = Signal(8)
        octets = Signal.like(at)
        for n, source in enumerate((self.tx_mpa, self.rx_ulpdu)):
            beat = source.payload
            with m.If(from_ulpdu == n):
                m.d.comb += [
                    here.eq(source.valid),
                    source.ready.eq(moves),
                    chosen.eq(beat.data.word_select(at[:-1], 8)),
                    last.eq(beat.last),
                    octets.eq(Mux(beat.last, beat.octets, width)),
                ]
        m.d.comb += [
            there.eq(Cat(self.tx_mpa.valid & ask_mpa, self.rx_ulpdu.valid & ask_ulpdu)
                     & (~responses.full).replicate(2)),
            after.eq(at + 1),
            counted.eq(count + 1),
        ]
        ended = Signal()

        idle = Signal(range(PATIENCE))  # cycles in which nothing has moved
        m.d.sync += idle.eq(idle + 1)

        def giving(state, what, *, then, times=None, do=(), signal=give, as_well=()):
            """A state that gives an octet, or with ``times`` as many, of which the caller has set ``step``."""
            with m.State(state):
                m.d.comb += [signal.eq(1), given.octet.eq(what), *as_well]
                with m.If(gave):
                    m.d.sync += [*do]
                    if times is not None:
                        m.d.sync += step.eq(step - 1)
                    with m.If(step == 0 if times is not None else 1):
                        m.d.sync += step.eq(3)
                        m.next = then

        with m.FSM():
            with m.State("Idle"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += [step.eq(3), same.eq(1), refused.eq(0), place.eq(0)]
                with m.If(requests.waiting):
                    m.next = "Check"
            # All of the request is looked at before anything is done.
            giving("Check", octet, then="Check session", signal=check, as_well=[take.eq(gave)],
                   do=[Cat(sequence, opens, ask_ulpdu, ask_mpa).eq(octet)])  # fmt: skip
            giving("Check session", octet, times=4, then="Check operations", signal=check, as_well=[take.eq(gave)],
                   do=[session.eq(Cat(session[8:], session[:8])), same.eq(same & (octet == session[:8]))])  # fmt: skip
            with m.State("Check operations"):
                m.d.comb += [check.eq(1), given.octet.eq(octet), take.eq(gave)]
                with m.If(place == requests.length):
                    m.d.comb += [check.eq(0), take.eq(0)]
                    m.d.sync += place.eq(0)
                    m.next = "Decide"
            with m.State("Decide"):
                m.d.comb += crc.start.eq(1)
                m.d.sync += step.eq(HEADER - 1)
                m.next = "Header"
                with m.If(~crc.good):
                    m.d.comb += [drop.eq(1), requests.release.eq(1)]
                    m.next = "Idle"
                with m.Elif(busy):
                    m.d.comb += crc.start.eq(0)
                    m.next = "Decide"
                with m.Elif(~same):
                    m.d.sync += refused.eq(~opens)
                    with m.If(opens):
                        m.d.sync += expected.eq(sequence)
                with m.Elif((behind == 1) | (behind == 2)):
                    m.next = "Send"
                with m.Elif(behind != 0):
                    m.d.comb += requests.release.eq(1)
                    m.next = "Idle"
            # Of the header's octets the session remains, which is last.
            giving("Header", octet, times=HEADER, then="Begin", as_well=[take.eq(gave)],
                   do=[session.eq(Mux(refused, session, Cat(session[8:], octet)))])  # fmt: skip
            with m.State("Begin"):
                m.next = "Status"
                with m.If(~refused):
                    m.d.sync += [known.eq(1), expected.eq(expected + 1)]
                    m.next = "Operation"

            with m.State("Operation"):
                m.d.comb += take.eq(1)
                m.d.sync += [code.eq(octet), step.eq(octet[:3] - 1), idle.eq(0)]
                m.next = "Arguments"
                with m.If(octet[:3] == 0):
                    m.next = "Carry out"
            with m.State("Arguments"):
                m.d.comb += take.eq(1)
                m.d.sync += [arguments.eq(Cat(arguments[8:], octet)), step.eq(step - 1)]
                with m.If(step == 0):
                    m.next = "Carry out"
            with m.State("Carry out"):
                m.d.sync += step.eq(3)
                with m.Switch(kind):
                    with m.Case(Op.READ, Op.WRITE):
                        m.next = "Access"
                    with m.Case(Op.CLEAR):
                        m.d.comb += clear.eq(1)
                        m.d.sync += turns.eq(0)
                        m.next = "Operation"
                    with m.Case(Op.END):
                        m.next = "Move"
                    with m.Default():
                        m.next = "Move"
                        with m.If(turns.bit_select(is_ulpdu, 1) != code[TURN.bit_length() - 1]):
                            m.next = "Skip"
            with m.State("Access"):
                m.d.comb += self.bus.request.eq(1)
                m.d.sync += value.eq(self.bus.read_data)
                with m.If(self.bus.ack):
                    m.next = "Operation"
                    with m.If(kind == Op.READ):
                        m.next = "Value"
            giving("Value", value.word_select(~step[:2], 8), times=4, then="Value's tag")
            giving("Value's tag", VALUE, then="Operation")

            with m.State("Move"):
                m.d.comb += put.eq(kind != Op.END)
                m.d.sync += [at.eq(0), count.eq(0), ended.eq(0)]
                with m.If(put & accepted):
                    m.d.comb += take.eq(~empty)
                    m.d.sync += idle.eq(0)
                    with m.If(at_end):
                        m.next = "Operation"
                with m.Elif(there.bit_select(from_ulpdu, 1)):
                    m.next = "Octets"
                with m.Elif(there.any()):
                    m.d.sync += from_ulpdu.eq(~from_ulpdu)
                with m.Elif(idle.all()):
                    m.next = "Status"
                    with m.If(put):
                        m.next = "Short"
            with m.State("Octets"):
                with m.If(here):
                    m.d.sync += idle.eq(0)
                    m.d.comb += [given.octet.eq(chosen), give.eq(octets != 0)]
                    with m.If(gave):
                        m.d.sync += [at.eq(after), count.eq(counted)]
                    with m.If(gave & (after == octets) | (octets == 0)):
                        m.d.comb += moves.eq(1)
                        m.d.sync += [at.eq(0), ended.eq(last), verdict.eq(self.rx_ulpdu.payload.verdict)]
                        with m.If(last | counted[6:].all() | responses.full):
                            m.next = "Count"
                with m.Elif(idle[GAP.bit_length() - 1]):
                    m.next = "Count"
            giving("Count", count, then="Count's tag")
            giving(
                "Count's tag",
                Cat(Const(0, VERDICT_LSB), verdict, ended, from_ulpdu, Const(1, 1)),
                then="Move", do=[from_ulpdu.eq(~from_ulpdu), idle.eq(0)],
            )  # fmt: skip

            giving("Short", place[:8], then="Short's tag")
            giving("Short's tag", Cat(place[8:], Const(0, 14 - len(place)), Const(SHORT >> 6, 2)), then="Skip",
                   do=[turns.eq(turns ^ Cat(~is_ulpdu, is_ulpdu))])  # fmt: skip
            with m.State("Skip"):
                m.d.comb += take.eq(~empty)
                with m.If(at_end):
                    m.next = "Operation"

            giving("Status", Cat(refused, self.interrupt, ~known), then="Damaged")
            giving("Damaged", damaged, then="Info")
            giving("Info", VERSION << 4 | self.size.bit_length() - 1, then="Crc")
            giving("Crc", crc.crc, times=4, then="End", as_well=[crc.shift.eq(1)])
            with m.State("End"):
                m.d.comb += [give.eq(1), given.end.eq(1)]
                with m.If(gave):
                    m.next = "Send"
            with m.State("Send"):
                m.d.comb += responses.send.eq(1)
                with m.If(~responses.sending):
                    m.d.comb += requests.release.eq(1)
                    m.next = "Idle"
        return m
