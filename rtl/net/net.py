"""A host on Ethernet: ARP, IPv4, ICMP echo and UDP, and the segments of a TCP engine."""

from collections.abc import Iterable

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.addresses import Classifier
from open_rnic.rtl.net.cut_through import CutThrough
from open_rnic.rtl.net.delivery import DatagramDelivery, SegmentDelivery
from open_rnic.rtl.net.layouts import Counts, Frame, RxDatagram, RxSegment, TxDatagram, TxSegment
from open_rnic.rtl.net.neighbours import UNIT
from open_rnic.rtl.net.packet_fifo import PacketFifo
from open_rnic.rtl.net.packet_slots import SLOT, PacketSlots
from open_rnic.rtl.net.receiver import Receiver
from open_rnic.rtl.net.sender import Sender

__all__ = ["Net"]

_SEGMENTS = 1024  # words: at least two full segments with their sources and lengths
_FRAMES = 1024  # words: two full frames, and short ones between them


class Net(wiring.Component):
    """Everything between an Ethernet MAC and TCP.

    ``docs/net.md`` shows its blocks. Receive never waits: a packet for which there is no room is discarded. Frames have
    no FCS, and are preceded by two octets of padding. Addresses are integers: the first octet is the most significant.

    Parameters
    ----------
    udp_ports : the UDP ports whose datagrams are received; without any, the logic for UDP is omitted, also on transmit
    entries : of the ARP cache: 2, 4 or 8
    unit : ticks in a unit of age of the ARP cache, a power of 2; less than the default only in simulations

    Members
    -------
    rx_frames : In, stream of :class:`.Frame`; ``ready`` is always 1
    tx_frames : Out, stream of :class:`.Packet`; padded to 60 octets, without pauses
    tcp_rx : Out, stream of :class:`.RxSegment`; with good frame, lengths and checksums
    tcp_tx : In, stream of :class:`.TxSegment`; discarded if the MAC of their next hop is not known, or there is
        none. An ARP request is sent, at most one a second for an address
    cut_through : In, :class:`.CutThrough`; a segment that is cut through
    tcp_soon : Out, 1 bit; a segment that begins now would leave soon, behind one frame at most
    udp_rx : Out, stream of :class:`.RxDatagram`
    udp_tx : In, stream of :class:`.TxDatagram`; discarded likewise
    mac, address, prefix, gateway : In, 48 bits, 32 bits each; ``prefix`` is the mask of the network, ``gateway`` the
        next hop for other networks, 0 for none
    tick : In, 1 bit; a millisecond has passed
    conflict : Out, 1 bit; another host used ``address`` (RFC 5227 §2.4). An announcement, at most one in 10 s, defends
        it
    counts : Out, :class:`.Counts`; the discarded frames

    """

    def __init__(self, *, udp_ports: Iterable[int] = (), entries: int = 8, unit: int = UNIT):
        self.receiver = Receiver(tcp_words=_SEGMENTS, udp_words=SLOT, icmp_words=SLOT, udp_ports=udp_ports)
        self.sender = Sender(_FRAMES, has_udp=bool(self.receiver.udp_ports), entries=entries, unit=unit)
        super().__init__({
            "rx_frames": In(stream.Signature(Frame())),
            "tx_frames": Out(packet(1)),
            "tcp_rx": Out(stream.Signature(RxSegment())),
            "tcp_tx": In(stream.Signature(TxSegment())),
            "cut_through": In(CutThrough()),
            "tcp_soon": Out(1),
            "udp_rx": Out(stream.Signature(RxDatagram())),
            "udp_tx": In(stream.Signature(TxDatagram())),
            "mac": In(48),
            "address": In(32),
            "prefix": In(32),
            "gateway": In(32),
            "tick": In(1),
            "conflict": Out(1),
            "counts": Out(Counts()),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.receiver = receiver = self.receiver
        m.submodules.sender = sender = self.sender
        m.submodules.classifier = classifier = Classifier()
        m.submodules.segments = segments = PacketFifo(_SEGMENTS)
        m.submodules.echoes = echoes = PacketSlots(1)
        m.submodules.frames = frames = PacketFifo(_FRAMES)
        m.submodules.segment_delivery = segment_delivery = SegmentDelivery()

        wiring.connect(m, wiring.flipped(self.rx_frames), receiver.frames)
        wiring.connect(m, receiver.tcp, segments.i)
        wiring.connect(m, segments.o, segment_delivery.i)
        wiring.connect(m, segment_delivery.o, wiring.flipped(self.tcp_rx))
        wiring.connect(m, receiver.icmp, echoes.i)
        wiring.connect(m, echoes.o, sender.icmp)
        wiring.connect(m, receiver.arp, sender.arp)
        wiring.connect(m, wiring.flipped(self.tcp_tx), sender.tcp)
        wiring.connect(m, wiring.flipped(self.cut_through), sender.cut_through)
        # Instead of the sender's alone.
        m.d.comb += self.cut_through.accepts.eq(sender.cut_through.accepts & frames.soon)
        wiring.connect(m, sender.o, frames.i)
        wiring.connect(m, frames.o, wiring.flipped(self.tx_frames))
        if receiver.udp_ports:
            m.submodules.datagrams = datagrams = PacketSlots(2)
            m.submodules.datagram_delivery = datagram_delivery = DatagramDelivery()
            wiring.connect(m, receiver.udp, datagrams.i)
            wiring.connect(m, datagrams.o, datagram_delivery.i)
            wiring.connect(m, datagram_delivery.o, wiring.flipped(self.udp_rx))
            wiring.connect(m, wiring.flipped(self.udp_tx), sender.udp)

        for part in (receiver, sender, classifier):
            m.d.comb += [
                part.station.mac.eq(swap_octets(self.mac)),
                part.station.address.eq(swap_octets(self.address)),
                part.station.mask.eq(swap_octets(self.prefix)),
                part.station.gateway.eq(swap_octets(self.gateway)),
            ]
        m.d.comb += [
            classifier.first.eq(receiver.examined),
            classifier.first_valid.eq(receiver.examines),
            classifier.second.eq(sender.examined),
            receiver.kinds.eq(classifier.kinds),
            sender.kinds.eq(classifier.kinds),
            sender.kinds_valid.eq(~receiver.examines),
            sender.tick.eq(self.tick),
            self.tcp_soon.eq(sender.idle & frames.soon),
            self.conflict.eq(sender.conflict),
            self.counts.eq(receiver.counts),
        ]
        return m
