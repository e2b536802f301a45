"""The MAC: frames in the core's clock domain, octets in those of a PHY."""

from amaranth.hdl import Cat, DomainRenamer, Module, ResetInserter, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet, packet
from open_rnic.rtl.lib.stream import Buffer
from open_rnic.rtl.mac.arrivals import Arrivals
from open_rnic.rtl.mac.events import EventCrossing
from open_rnic.rtl.mac.frame_fifo import FrameFifo
from open_rnic.rtl.mac.layouts import LONGEST_FRAME, LONGEST_TAGGED, PADDING, Discarded, RxOctets, TxOctets
from open_rnic.rtl.mac.receiver import MacReceiver
from open_rnic.rtl.mac.restart import FarReset
from open_rnic.rtl.mac.transmitter import MacTransmitter
from open_rnic.rtl.net.layouts import Frame

__all__ = ["EARLY", "Mac", "MacCounts"]

# Words: the fewest with which the transmission of a frame may begin. At 1 Gb/s and a core clock of 40 MHz, word n is
# stored by 25n ns, and seen by the other side 6 cycles of each clock later at most, by 25n + 223 ns. It is needed 64 ns
# of preamble and 32n ns after the first 8 words have been stored and seen, which takes more than 200 ns, so at
# 32n + 264 ns or later.
EARLY = 8

_WORDS = 512  # block RAM, and more than in the longest frame
# LUT RAM for 512 ns at 1 Gb/s: within 495 ns, the core has seen that a word has left, and the other side the next one.
_EARLY_WORDS = 16
_FCS = 4  # octets


class MacCounts(data.StructLayout):
    """How many frames something happened to in this cycle, at most 3 of each.

    Members
    -------
    rx_frames : 2 bits
        Received, and stored for the core.
    rx_no_room : 2 bits
        Received, and discarded, because the core had not taken the frames before it.
    rx_error, rx_oversize, rx_runt, rx_fcs : 2 bits
        Discarded for the reasons in :class:`.Discarded`.
    tx_frames : 2 bits
        Transmitted.
    tx_dropped : 2 bits
        Not transmitted: the MAC was not running, or the frame was too long, or had no header.
    """

    def __init__(self):
        super().__init__({
            "rx_frames": 2, "rx_no_room": 2, "rx_error": 2, "rx_oversize": 2, "rx_runt": 2, "rx_fcs": 2,
            "tx_frames": 2, "tx_dropped": 2,
        })  # fmt: skip


class _Gate(wiring.Component):
    """Passes frames on while it is open. Of a frame during which it was shut, the rest is discarded."""

    i: In(packet(1))
    o: Out(packet(1))
    open: In(1)
    dropped: Out(1)

    def elaborate(self, platform):
        m = Module()
        within = Signal()  # a frame
        discards = Signal()
        passes = Signal()
        m.d.comb += [
            passes.eq(self.open & ~discards),
            self.o.payload.eq(self.i.payload),
            self.o.valid.eq(self.i.valid & passes),
            self.i.ready.eq(self.o.ready | ~passes),
            self.dropped.eq(self.i.valid & ~passes & self.i.payload.last),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += within.eq(~self.i.payload.last)
        with m.If(self.i.valid & self.i.ready & self.i.payload.last):
            m.d.sync += discards.eq(0)
        with m.Elif(~self.open & (within | self.i.valid)):
            m.d.sync += discards.eq(1)
        return m


def _placed(m, name, component, *, domains=None, **resets):
    """Place a component with ``there`` in the domain of the first two letters of its name, and with resets."""
    domains = {"there": f"mac_{name[:2]}", "sync": "sync"} | (domains or {})
    m.submodules[name] = DomainRenamer(domains)(ResetInserter(resets)(component) if resets else component)
    return component


class Mac(wiring.Component):
    """An Ethernet MAC for full duplex, at 10, 100 and 1000 Mb/s, without PAUSE frames.

    .. code-block:: text

        octets ▸ MacReceiver    ▸ FrameFifo ▸ rx_frames (with ``early``: Arrivals)
        octets ◂ MacTransmitter ◂ FrameFifo ◂ tx_frames

    There are three clock domains, none of which need be related to another: the core's ``sync``, and ``mac_rx`` and
    ``mac_tx`` with the clocks of the octets. Frames pass between them as a whole, so that transmit never runs out of
    octets, and the core sees good frames only. Frames for which there is no room are discarded.

    With ``early``, frames pass while they come, both ways: the core must take and give a word in each cycle, at a clock
    of 40 MHz or more, and the last beat of a received frame says whether it is bad.

    While the MAC does not run, it discards frames of both sides. When it stops, a frame that is being transmitted is
    cut off, and one that the core is taking is not. It starts again from the state after power-up, once both clocks of
    the PHY have been seen.

    Latency at 1 Gb/s and a core clock of 62.5 MHz: from the last octet of a received frame to its first beat, 105 to
    170 ns; from a frame's last beat (or the last one of ``early``) to its first octet of preamble, 80 to 138 ns.
    Throughput: one octet per ``strobe``.

    Parameters
    ----------
    rx_words, tx_words : room for frames in words without ``early``, a power of 2: at least 512
    longest : octets of the longest received frame, with FCS
    early : words of a frame with which its transmission begins, at least 8; None: frames pass as a whole

    Members
    -------
    rx_octets, tx_octets : In, :class:`.RxOctets`, in ``mac_rx``; Out, :class:`.TxOctets`, in ``mac_tx``
    rx_frames, tx_frames : Out, stream of :class:`.Frame`; In, stream of :class:`.Packet`; without FCS, behind two
        octets of padding. A frame to transmit is padded to 60 octets; one over 1,514 is discarded, or with ``early``
        cut off there, and counted as ``tx_dropped``. Without ``early``, no frame is ``bad``
    enable : In, 1 bit; let the MAC run; only while the link is up
    running, stopped : Out, 1 bit; the MAC runs; it does not, and is in reset in all of its clock domains
    counts : Out, :class:`MacCounts`

    """

    def __init__(self, *, rx_words: int = _WORDS, tx_words: int = _WORDS, longest: int = LONGEST_TAGGED,
                 early: int | None = None):  # fmt: skip
        if early is not None and early < EARLY:
            raise ValueError(f"early must be at least {EARLY} words, not {early!r}")
        for name, words in (("rx_words", rx_words), ("tx_words", tx_words)):
            if words < _WORDS:
                raise ValueError(f"{name} must be at least {_WORDS}, not {words!r}")
        self.receiver = MacReceiver(longest)
        self.early = early
        self.rx_fifo = FrameFifo(rx_words) if early is None else Arrivals(_EARLY_WORDS)
        self.tx_fifo = FrameFifo(
            tx_words if early is None else _EARLY_WORDS, longest=(PADDING + LONGEST_FRAME - _FCS) // 4, early=early
        )
        super().__init__({
            "rx_octets": In(RxOctets()),
            "tx_octets": Out(TxOctets()),
            "rx_frames": Out(stream.Signature(Frame())),
            "tx_frames": In(packet(1)),
            "enable": In(1),
            "running": Out(1),
            "stopped": Out(1),
            "counts": Out(MacCounts()),
        })

    def elaborate(self, platform):
        m = Module()
        rx_reset = Signal()
        tx_reset = Signal()
        near_reset = Signal()
        receiver = _placed(m, "rx_receiver", self.receiver, sync=rx_reset, domains={"sync": "mac_rx"})
        transmitter = _placed(m, "tx_transmitter", MacTransmitter(), sync=tx_reset, domains={"sync": "mac_tx"})
        rx_fifo = _placed(m, "rx_fifo", self.rx_fifo, write=rx_reset, read=near_reset,
                          domains={"write": "mac_rx", "read": "sync"})  # fmt: skip
        tx_fifo = _placed(m, "tx_fifo", self.tx_fifo, write=near_reset, read=tx_reset,
                          domains={"write": "sync", "read": "mac_tx"})  # fmt: skip
        m.submodules.gate = gate = _Gate()
        self._resets(m, rx_reset, tx_reset, near_reset)
        self._receive(m, receiver)
        self._transmit(m, gate, transmitter, tx_reset)

        # Counts.
        rx_events = _placed(m, "rx_events", EventCrossing(2 + len(Discarded().members)))
        tx_events = _placed(m, "tx_events", EventCrossing(1))
        counts = self.counts
        m.d.comb += [
            rx_events.events.eq(Cat(rx_fifo.committed, rx_fifo.dropped, receiver.discarded) & ~rx_reset.replicate(6)),
            tx_events.events.eq(transmitter.sent & ~tx_reset),
            Cat(counts.rx_frames, counts.rx_no_room, *(counts[f"rx_{name}"] for name, _ in Discarded())).eq(
                Cat(rx_events.steps)
            ),
            counts.tx_frames.eq(tx_events.steps[0]),
            counts.tx_dropped.eq(gate.dropped | tx_fifo.dropped),
        ]
        return m

    def _resets(self, m, rx_reset, tx_reset, near_reset):
        """Reset the far sides first, then the near sides of the queues, when the core has taken the last frame."""
        stopped = Signal(init=1)
        rx_far = _placed(m, "rx_far_reset", FarReset())
        tx_far = _placed(m, "tx_far_reset", FarReset())
        m.d.comb += [
            rx_far.hold.eq(stopped),
            tx_far.hold.eq(stopped),
            rx_reset.eq(rx_far.reset),
            tx_reset.eq(tx_far.reset),
            near_reset.eq(stopped & rx_far.held & tx_far.held & self.rx_fifo.empty),
            self.rx_fifo.frozen.eq(stopped),
            self.stopped.eq(near_reset),
            self.running.eq(~stopped & ~rx_far.held & ~tx_far.held),
        ]
        with m.If(near_reset & self.enable):
            m.d.sync += stopped.eq(0)
        with m.Elif(self.running & ~self.enable):
            m.d.sync += stopped.eq(1)

    def _receive(self, m, receiver):
        rx_fifo = self.rx_fifo
        wiring.connect(m, wiring.flipped(self.rx_octets), receiver.octets)
        m.d.comb += [
            rx_fifo.i.payload.eq(receiver.word),
            rx_fifo.i.valid.eq(receiver.valid),
            rx_fifo.bad.eq(receiver.bad),
            self.rx_frames.payload.as_value()[: rx_fifo.o.payload.shape().size].eq(rx_fifo.o.payload.as_value()),
            self.rx_frames.valid.eq(rx_fifo.o.valid),
            rx_fifo.o.ready.eq(self.rx_frames.ready),
        ]

    def _transmit(self, m, gate, transmitter, tx_reset):
        connect, flipped = wiring.connect, wiring.flipped
        connect(m, flipped(self.tx_frames), gate.i)
        connect(m, gate.o, self.tx_fifo.i)
        if self.early is None:
            # With registers behind it, the output of the queue can be beside its block RAM, whose words come late.
            tx_words = _placed(m, "tx_words", Buffer(Packet(1)), sync=tx_reset, domains={"sync": "mac_tx"})
            connect(m, self.tx_fifo.o, tx_words.i)
            connect(m, tx_words.o, transmitter.i)
        else:
            connect(m, self.tx_fifo.o, transmitter.i)
        connect(m, transmitter.octets, flipped(self.tx_octets))
        m.d.comb += gate.open.eq(self.running)
