"""Builds the frames that are transmitted."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import enum, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.layouts import Packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.addresses import classify
from open_rnic.rtl.net.checksum import FOLDED_BITS, SUM_BITS, add_word, complement, fold
from open_rnic.rtl.net.layouts import (
    LEAST_WORDS,
    MOST_WORDS,
    EtherType,
    Protocol,
    Station,
    TxDatagram,
    TxSegment,
    lane16,
)
from open_rnic.rtl.net.neighbours import Neighbours, Task
from open_rnic.rtl.net.packet_fifo import PacketWriter
from open_rnic.rtl.net.receiver import ArpPacket

__all__ = ["Sender"]

DEFENCE = 40  # sweeps of the ARP cache until an address is defended again: 10.2 s (RFC 5227 §1.1, DEFEND_INTERVAL)

# What the sum of an IPv4 header exceeds that of the pseudo-header by: version, IHL, DF, TTL, and the header's length.
_HEADER_EXCESS = 0x4500 + 0x4000 + 0x4000 + 20


class Origin(enum.Enum, shape=2):
    """What asks the sender for something."""

    TCP = 0
    UDP = 1
    ICMP = 2
    RESOLVE = 3


class Sender(wiring.Component):
    """Builds frames one after the other: segments, datagrams, echo replies and ARP packets.

    A frame is written into a queue; the checksums are written when their sums are complete. A packet whose next hop has
    no known MAC is discarded, and an ARP request is sent for it. Each origin has its turn. All words pass one bus,
    from which they are written, added, and taken as an address or a length.

    Throughput: a frame in 31 cycles and the number of words of its payload.

    Parameters
    ----------
    words : depth of the queue
    entries : see :class:`.Neighbours`

    Members
    -------
    tcp : In, stream of :class:`.TxSegment`
    udp : In, stream of :class:`.TxDatagram`
    icmp : In, stream of :class:`.Packet`
        Echo requests: the source, the length, and the ICMP message, as :class:`.Receiver` writes them.
    arp : In, stream of :class:`.ArpPacket`
        Received ARP packets.
    o : Out, signature :class:`.PacketWriter`
        Frames, preceded by two octets of padding, padded to 60 octets.
    station : In, :class:`.Station`
    tick : In, 1 bit
        A millisecond has passed.
    sent : Out, 1 bit
        A segment of ``tcp`` has been taken.
    unresolved : Out, 1 bit
        With ``sent``: it was discarded, because the MAC of its next hop is not known.
    resolve_valid : In, 1 bit
        Look for the MAC of a next hop; stays until ``resolve_done``.
    resolve_address : In, 32 bits
        A destination, as an integer.
    resolve_done : Out, 1 bit
        The address has been looked for.
    resolve_hit : Out, 1 bit
        With ``resolve_done``: the MAC is known. If it is not, a request has been sent.
    conflict : Out, 1 bit
        Another host used this host's address (RFC 5227 §2.4).

    """

    def __init__(self, words: int, *, entries: int = 8):
        self.words = words
        self.neighbours = Neighbours(entries)
        super().__init__({
            "tcp": In(stream.Signature(TxSegment())),
            "udp": In(stream.Signature(TxDatagram())),
            "icmp": In(stream.Signature(Packet(1))),
            "arp": In(stream.Signature(ArpPacket())),
            "o": Out(PacketWriter(words)),
            "station": In(Station()),
            "tick": In(1),
            "sent": Out(1),
            "unresolved": Out(1),
            "resolve_valid": In(1),
            "resolve_address": In(32),
            "resolve_done": Out(1),
            "resolve_hit": Out(1),
            "conflict": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.neighbours = neighbours = self.neighbours
        station, word = self.station, self.o.word
        tcp, udp, icmp, arp = self.tcp.payload, self.udp.payload, self.icmp.payload, self.arp.payload

        origin = Signal(Origin)
        is_tcp = Signal()
        is_udp = Signal()
        is_icmp = Signal()
        resolves = Signal()
        bus = Signal(32)
        subject = Signal(32)  # the address that is looked up; the target of an ARP packet
        length = Signal(11)  # of the segment, the datagram's payload, or the ICMP message
        kinds = classify(m, subject, station)
        sends_arp = Signal()
        replies = Signal()  # to ``arp``
        to_all = Signal()
        asks = Signal()  # an ARP request follows
        place = Signal(range(MOST_WORDS + 1))
        first = Signal()  # the next word is the first of the data
        m.d.comb += [
            is_tcp.eq(origin == Origin.TCP),
            is_udp.eq(origin == Origin.UDP),
            is_icmp.eq(origin == Origin.ICMP),
            resolves.eq(origin == Origin.RESOLVE),
            neighbours.address.eq(subject),
            neighbours.sender.eq(arp.mac),
            neighbours.tick.eq(self.tick),
            word.data.eq(bus),
            self.o.place.eq(place),
        ]

        # Whose turn it is.
        waiting = Signal()
        chosen = Signal(Origin)
        m.d.comb += waiting.eq(self.tcp.valid | self.udp.valid | self.icmp.valid)
        with m.If(self.resolve_valid):
            m.d.comb += chosen.eq(Origin.RESOLVE)
        with m.Elif(self.tcp.valid & (~is_tcp | ~(self.udp.valid | self.icmp.valid))):
            m.d.comb += chosen.eq(Origin.TCP)
        with m.Elif(self.udp.valid & (~is_udp | ~self.icmp.valid)):
            m.d.comb += chosen.eq(Origin.UDP)
        with m.Else():
            m.d.comb += chosen.eq(Origin.ICMP)

        # A beat of data.
        data_valid = Signal()
        data_last = Signal()
        data_octets = Signal(range(5))
        data_ready = Signal()
        data = Signal(32)
        kept_octets = Cat(~data_last | (octet < data_octets) for octet in range(4))
        source = Mux(is_tcp, tcp.data, Mux(is_udp, udp.data, Mux(first, 0, icmp.data)))
        m.d.comb += [
            data_valid.eq(Mux(is_tcp, self.tcp.valid, Mux(is_udp, self.udp.valid, self.icmp.valid))),
            data_last.eq(Mux(is_tcp, tcp.last, Mux(is_udp, udp.last, icmp.last))),
            data_octets.eq(Mux(is_tcp, tcp.octets, Mux(is_udp, udp.octets, icmp.octets))),
            data.eq(source & Cat(each.replicate(8) for each in kept_octets)),
            self.tcp.ready.eq(is_tcp & data_ready),
            self.udp.ready.eq(is_udp & data_ready),
            self.icmp.ready.eq(is_icmp & data_ready),
        ]

        # The length with the headers in front of it.
        added = Signal(5)
        sum_of_lengths = Signal(16)
        m.d.comb += sum_of_lengths.eq(length + added)

        # The checksum.
        adds = Signal()
        total = Signal(SUM_BITS)
        folded = Signal(FOLDED_BITS)
        checksum = Signal(16)
        m.d.sync += folded.eq(fold(total))
        m.d.comb += checksum.eq(complement(folded))
        with m.If(adds):
            m.d.sync += total.eq(add_word(total, bus))

        # The time since the address was defended.
        seconds_left = Signal(range(DEFENCE + 1))
        with m.If(neighbours.sweep & (seconds_left != 0)):
            m.d.sync += seconds_left.eq(seconds_left - 1)

        def write():
            """Write the bus; return whether it fits."""
            m.d.comb += [self.o.low.eq(1), self.o.high.eq(1)]
            return self.o.fits

        own_mac, own_address = station.mac, station.address
        with m.FSM():
            with m.State("Idle"):
                m.d.sync += [
                    place.eq(0),
                    total.eq(0),
                    first.eq(1),
                    sends_arp.eq(0),
                    replies.eq(0),
                    to_all.eq(0),
                    asks.eq(0),
                ]
                with m.If(self.arp.valid):
                    m.d.comb += bus.eq(arp.address)
                    m.d.sync += subject.eq(bus)
                    m.next = "Learn"
                with m.Elif(self.resolve_valid | waiting):
                    m.d.sync += origin.eq(chosen)
                    m.next = "Destination"

            with m.State("Destination"):
                m.d.comb += self.o.place.eq(8)
                with m.Switch(origin):
                    with m.Case(Origin.TCP):
                        m.d.comb += bus.eq(swap_octets(tcp.destination))
                    with m.Case(Origin.UDP):
                        m.d.comb += bus.eq(swap_octets(udp.destination))
                    with m.Case(Origin.RESOLVE):
                        m.d.comb += bus.eq(swap_octets(self.resolve_address))
                    with m.Default():
                        m.d.comb += bus.eq(icmp.data)
                with m.If(write()):
                    m.d.comb += [adds.eq(1), self.icmp.ready.eq(is_icmp)]
                    m.d.sync += subject.eq(bus)
                    m.next = "Length"

            with m.State("Length"):
                m.d.comb += self.icmp.ready.eq(is_icmp)
                m.d.sync += length.eq(Mux(is_tcp, tcp.length, Mux(is_udp, udp.length, icmp.data)))
                with m.If(self.icmp.valid | ~is_icmp):
                    m.next = "Route"

            with m.State("Route"):
                with m.If(~kinds.local):
                    m.d.comb += bus.eq(station.gateway)
                    m.d.sync += subject.eq(bus)
                with m.If(kinds.broadcast & ~resolves):
                    m.d.sync += to_all.eq(1)
                    m.next = "Header"
                with m.Elif(kinds.no_host | kinds.ours | kinds.broadcast | ~kinds.routed):
                    m.next = "Unreachable"
                with m.Else():
                    m.next = "LookUp"

            with m.State("LookUp"):
                m.d.comb += neighbours.task.eq(Task.LOOK_UP)
                m.d.sync += asks.eq(neighbours.ask)
                with m.If(neighbours.done):
                    with m.If(resolves):
                        m.d.comb += [self.resolve_done.eq(1), self.resolve_hit.eq(neighbours.known)]
                        m.next = "Ask"
                    with m.Elif(neighbours.known):
                        m.next = "Header"
                    with m.Else():
                        m.next = "Discard"

            with m.State("Unreachable"):
                m.d.comb += self.resolve_done.eq(resolves)
                m.next = "Discard"
                with m.If(resolves):
                    m.next = "Idle"

            with m.State("Discard"):
                m.d.comb += data_ready.eq(1)
                with m.If(data_valid & data_last):
                    m.d.comb += [self.sent.eq(is_tcp), self.unresolved.eq(1)]
                    m.next = "Ask"

            with m.State("Header"):
                with m.Switch(Cat(place[:4], sends_arp)):
                    with m.Case("-0000"):
                        with m.If(to_all):
                            m.d.comb += bus.eq(0xFFFF_0000)
                        with m.Elif(replies):
                            m.d.comb += bus[16:].eq(arp.mac[:16])
                        with m.Else():
                            m.d.comb += bus[16:].eq(neighbours.mac[:16])
                    with m.Case("-0001"):
                        with m.If(to_all):
                            m.d.comb += bus.eq(0xFFFF_FFFF)
                        with m.Elif(replies):
                            m.d.comb += bus.eq(arp.mac[16:])
                        with m.Else():
                            m.d.comb += bus.eq(neighbours.mac[16:])
                    with m.Case("-0010", "10110"):
                        m.d.comb += bus.eq(own_mac)
                    with m.Case("00011"):
                        m.d.comb += bus.eq(Cat(own_mac[32:], Const(lane16(EtherType.IPV4), 16)))
                    with m.Case("00100"):
                        m.d.comb += [
                            added.eq(Mux(is_udp, 28, 20)),
                            bus.eq(Cat(Const(0x45, 16), swap_octets(sum_of_lengths))),
                            adds.eq(self.o.fits),
                        ]
                    with m.Case("00101"):
                        m.d.comb += [bus[16:].eq(lane16(0x4000)), adds.eq(self.o.fits)]  # DF
                    with m.Case("00110"):
                        m.d.comb += [
                            bus.eq(Cat(Const(64, 8), Mux(is_tcp, Protocol.TCP, Mux(is_udp, Protocol.UDP,
                                                                                   Const(Protocol.ICMP, 8))))),
                            adds.eq(self.o.fits),
                        ]  # fmt: skip
                    with m.Case("00111"):
                        m.d.comb += [bus.eq(own_address), adds.eq(self.o.fits)]
                    with m.Case("10011"):
                        m.d.comb += bus.eq(Cat(own_mac[32:], Const(lane16(EtherType.ARP), 16)))
                    with m.Case("10100"):
                        m.d.comb += bus.eq(0x0008_0100)
                    with m.Case("10101"):
                        m.d.comb += bus.eq(Cat(Const(0x0406, 24), ~replies, replies))
                    with m.Case("10111"):
                        m.d.comb += bus.eq(Cat(own_mac[32:], own_address[:16]))
                    with m.Case("11000"):
                        m.d.comb += bus.eq(Cat(own_address[16:], arp.mac[:16] & replies.replicate(16)))
                    with m.Case("11001"):
                        m.d.comb += bus.eq(arp.mac[16:] & replies.replicate(32))
                    with m.Default():  # the last word of an ARP packet
                        m.d.comb += bus.eq(subject)
                with m.If(write()):
                    m.d.sync += place.eq(place + 1)
                    with m.If(~sends_arp & (place[:3] == 7)):
                        m.next = "Correct"
                    with m.If(sends_arp & (place[:4] == 10)):
                        m.next = "Pad"

            with m.State("Correct"):
                # The sum is that of the header. It becomes that of the pseudo-header; ICMP has none.
                m.d.comb += [bus.eq(lane16(0xFFFF - _HEADER_EXCESS)), adds.eq(1)]
                m.d.sync += place.eq(9)
                with m.If(is_icmp):
                    m.d.sync += total.eq(0)
                m.next = "HeaderChecksum"

            with m.State("HeaderChecksum"):
                m.d.comb += [bus[16:].eq(checksum), self.o.place.eq(6), self.o.high.eq(1)]
                m.next = "Data"
                with m.If(is_udp):
                    m.next = "Ports"

            with m.State("Ports"):
                m.d.comb += bus.eq(Cat(swap_octets(udp.source_port), swap_octets(udp.destination_port)))
                with m.If(write()):
                    m.d.comb += adds.eq(1)
                    m.d.sync += place.eq(place + 1)
                    m.next = "UdpLength"

            with m.State("UdpLength"):
                m.d.comb += [added.eq(8), bus.eq(swap_octets(sum_of_lengths))]
                with m.If(write()):
                    m.d.comb += adds.eq(1)
                    m.d.sync += place.eq(place + 1)
                    m.next = "Data"

            with m.State("Data"):
                far = Signal()  # no padding is needed
                m.d.comb += [
                    bus.eq(data),
                    far.eq(place >= LEAST_WORDS - 1),
                    word.last.eq(data_last & far),
                    word.octets.eq(data_octets),
                ]
                with m.If((place == LEAST_WORDS - 1) & (data_octets < 2)):
                    m.d.comb += word.octets.eq(2)
                with m.If(data_valid):
                    with m.If(write()):
                        m.d.comb += [data_ready.eq(1), adds.eq(1)]
                        m.d.sync += [place.eq(place + 1), first.eq(0)]
                        with m.If(data_last):
                            m.next = "Pad"
                            with m.If(far):
                                m.next = "Fold"

            with m.State("Pad"):
                m.d.comb += [word.last.eq(place == LEAST_WORDS - 1), word.octets.eq(2)]
                with m.If(write()):
                    m.d.sync += place.eq(place + 1)
                    with m.If(word.last):
                        m.next = "Fold"

            with m.State("Fold"):
                m.next = "Checksum"
                with m.If(sends_arp):
                    m.next = "Commit"

            with m.State("Checksum"):
                # At octet 16 of TCP's header, 6 of UDP's, 2 of ICMP's.
                m.d.comb += [
                    bus.eq(Cat(checksum, checksum)),
                    self.o.place.eq(Mux(is_tcp, 13, Mux(is_udp, 10, 9))),
                    self.o.low.eq(is_tcp),
                    self.o.high.eq(~is_tcp),
                ]
                with m.If(is_udp & (checksum == 0)):  # RFC 768: 0 means no checksum
                    m.d.comb += bus.eq(0xFFFF_FFFF)
                m.next = "Commit"

            with m.State("Commit"):
                m.d.comb += [
                    self.o.commit.eq(1),
                    self.sent.eq(is_tcp & ~sends_arp),
                    self.arp.ready.eq(sends_arp & self.arp.valid & replies),
                ]
                m.next = "Ask"
                with m.If(sends_arp):
                    m.next = "Idle"

            with m.State("Ask"):
                # The next hop of the packet, which may have been sent, is still in ``subject``.
                m.d.sync += [place.eq(0), sends_arp.eq(1), to_all.eq(~neighbours.known)]
                m.next = "Idle"
                with m.If(asks):
                    m.next = "Header"

            with m.State("Learn"):
                m.d.comb += neighbours.task.eq(
                    Mux(arp.neighbour & ~arp.conflict, Mux(arp.asks, Task.LEARN, Task.UPDATE), Task.NONE)
                )
                with m.If(arp.conflict):
                    m.d.comb += self.conflict.eq(1)
                with m.If(arp.conflict | neighbours.done | ~arp.neighbour):
                    m.d.sync += [sends_arp.eq(1), replies.eq(arp.asks), to_all.eq(arp.conflict)]
                    with m.If(arp.conflict & (seconds_left == 0)):
                        m.d.sync += seconds_left.eq(DEFENCE)
                        m.d.comb += self.arp.ready.eq(1)
                        m.next = "Header"
                    with m.Elif(arp.asks & ~arp.conflict):
                        m.next = "Header"
                    with m.Else():
                        m.d.comb += self.arp.ready.eq(1)
                        m.next = "Idle"
        return m
