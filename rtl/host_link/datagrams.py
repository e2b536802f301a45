"""The link over UDP: the octets of datagrams, and datagrams of octets."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.host_link.beats import ToBeats
from open_rnic.rtl.host_link.protocol import LINK_PORT
from open_rnic.rtl.net.layouts import RxDatagram, TxDatagram

__all__ = ["DatagramPort"]


class DatagramPort(wiring.Component):
    """Connects a :class:`.Link` to the UDP streams of a :class:`.Net`.

    The payloads of received datagrams, one behind the other, are the octets from the host. Each response is a datagram,
    for the source of the latest datagram.

    Throughput: an octet in each cycle, except that a datagram of a response is offered in words, of 5 cycles each.

    Parameters
    ----------
    size : as that of the link, whose responses must fit into datagrams: at most 1024

    Members
    -------
    udp_rx : In, stream of :class:`.RxDatagram`
    udp_tx : Out, stream of :class:`.TxDatagram`
    o : Out, stream of 8 bits
        Octets from the host.
    i : In, stream of 8 bits
        Octets of responses.
    length : In, range(``size`` + 1)
        The number of octets of the response whose octets are offered.

    """

    def __init__(self, size: int):
        if size > 1024:
            raise ValueError(f"responses of up to {size} octets do not fit into datagrams: size must be at most 1024")
        self.size = size
        super().__init__({
            "udp_rx": In(stream.Signature(RxDatagram())), "udp_tx": Out(stream.Signature(TxDatagram())),
            "o": Out(stream.Signature(8)), "i": In(stream.Signature(8)), "length": In(range(size + 1)),
        })  # fmt: skip

    def elaborate(self, platform):
        m = Module()
        source = Signal(32)
        source_port = Signal(16)
        self._receive(m, source, source_port)
        self._send(m, source, source_port)
        return m

    def _receive(self, m, source, source_port):
        given, beat = self.udp_rx, self.udp_rx.payload
        at = Signal(2)  # the octet of the word
        octets = Signal(3)  # of the word
        follows = Signal()  # the word is not the first one of its datagram
        m.d.comb += [
            octets.eq(Mux(beat.last, beat.octets, 4)),
            self.o.valid.eq(given.valid & (octets != 0)),
            self.o.payload.eq(beat.data.word_select(at, 8)),
            given.ready.eq((octets == 0) | (self.o.ready & (at == (octets - 1)[:2]))),
        ]
        with m.If(self.o.valid & self.o.ready):
            m.d.sync += at.eq(at + 1)
        with m.If(given.valid & given.ready):
            m.d.sync += [at.eq(0), follows.eq(~beat.last)]
        with m.If(given.valid & ~follows):
            m.d.sync += [source.eq(beat.source), source_port.eq(beat.source_port)]

    def _send(self, m, source, source_port):
        m.submodules.words = words = ToBeats(1)
        out = self.udp_tx.payload
        left = Signal(range(self.size + 1))  # octets of the datagram that have not been taken
        m.d.comb += [
            words.valid.eq(self.i.valid & (left != 0)),
            words.octet.eq(self.i.payload),
            words.last.eq(left == 1),
            self.i.ready.eq(words.ready & (left != 0)),
            self.udp_tx.valid.eq(words.o.valid),
            *(out[name].eq(words.o.payload[name]) for name in ("data", "octets", "last")),
            words.o.ready.eq(self.udp_tx.ready),
            out.source_port.eq(LINK_PORT),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += left.eq(left - 1)
        with m.Elif(self.i.valid & (left == 0) & words.ready):
            # A response begins, and all words of the one before have left.
            m.d.sync += [
                left.eq(self.length),
                out.length.eq(self.length),
                out.destination.eq(source),
                out.destination_port.eq(source_port),
            ]
