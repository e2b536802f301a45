"""Builds the frames that are transmitted."""

from enum import IntEnum
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.addresses import Kinds
from open_rnic.rtl.net.checksum import FOLDED_BITS, SUM_BITS, add_word, complement, fold
from open_rnic.rtl.net.express import Express
from open_rnic.rtl.net.layouts import (
    LEAST_WORDS,
    MOST_WORDS,
    EtherType,
    Protocol,
    Station,
    TxDatagram,
    TxSegment,
)
from open_rnic.rtl.net.neighbours import UNIT, Neighbours, Task, Word
from open_rnic.rtl.net.packet_memory import PacketWriter
from open_rnic.rtl.net.receiver import ArpPacket

__all__ = ["Sender"]

DEFENCE = 11  # units of age until an address is defended again: 10.2 to 11.3 s (RFC 5227 §1.1, DEFEND_INTERVAL)

# Of the sums of an IPv4 header and of its pseudo-header, the difference: version, IHL, DF, TTL, and the header length.
_HEADER_EXCESS = 0x4500 + 0x4000 + 0x4000 + 20


def _lane(*octets: int) -> int:
    """Return a word with these octets."""
    return int.from_bytes(bytes(octets), "little")


# Words that do not depend on the packet; octets of 0 are given by another source.
_CONSTANTS = {
    "ALL_0": _lane(0, 0, 0xFF, 0xFF),
    "ALL_2": _lane(0xFF, 0xFF, 0xFF, 0xFF),
    "TYPE_IPV4": _lane(0, 0, *EtherType.IPV4.to_bytes(2, "big")),
    "TYPE_ARP": _lane(0, 0, *EtherType.ARP.to_bytes(2, "big")),
    "IPV4_4": _lane(0x45, 0, 0, 0),
    "IPV4_5": _lane(0, 0, 0x40, 0),  # DF
    "IPV4_6_TCP": _lane(64, Protocol.TCP, 0, 0),  # TTL: RFC 1700
    "IPV4_6_UDP": _lane(64, Protocol.UDP, 0, 0),
    "IPV4_6_ICMP": _lane(64, Protocol.ICMP, 0, 0),
    "ARP_4": _lane(0, 1, 8, 0),
    "ARP_5_REQUEST": _lane(6, 4, 0, 1),
    "ARP_5_REPLY": _lane(6, 4, 0, 2),
    "PSEUDO_HEADER": _lane(*(0xFFFF - _HEADER_EXCESS).to_bytes(2, "big"), 0, 0),
}
_SHOWN = IntEnum("_SHOWN", list(_CONSTANTS), start=Word.CONSTANTS)

_SOURCES = data.StructLayout(dict.fromkeys((
    "tcp", "udp", "icmp", "neighbour", "tcp_destination", "udp_destination", "udp_ports", "resolved", "sender",
    "gateway", "mac", "mac_end", "address", "address_begin_high", "address_end_low", "length_low", "length_high",
    "checksum", "express", "express_destination", "saved",
), 1))  # fmt: skip


_HEADERS = 14  # words of the headers in front of TCP's payload, if it has no options


class Origin(enum.Enum, shape=2):
    """The origin of a task."""

    TCP = 0
    UDP = 1
    ICMP = 2
    RESOLVE = 3


class Sender(wiring.Component):
    """Builds frames one after the other: segments, datagrams, echo replies and ARP packets.

    A frame is written into a queue; the checksums are written when their sums are complete. A packet whose next hop has
    no known MAC is discarded, and an ARP request is sent for it. Each origin has its turn. All words pass one bus,
    from which they are written, added, and taken as an address or a length.

    The octets of a packet on the :class:`.Express` way are written before its headers. A frame of another origin may
    still overtake it.

    Throughput: at most 38 cycles for the shortest frame, and 402 for the longest, with 8 entries in the cache.

    Parameters
    ----------
    words : depth of the queue
    has_udp : whether ``udp`` is used; if not, its logic is omitted
    entries, unit : see :class:`.Neighbours`

    Members
    -------
    tcp : In, stream of :class:`.TxSegment`
    express : In, :class:`.Express`
    udp : In, stream of :class:`.TxDatagram`
    icmp : In, stream of :class:`.Packet`
        Echo requests: the source, the length, and the ICMP message, as :class:`.Receiver` writes them.
    arp : In, stream of :class:`.ArpPacket`
        Received ARP packets.
    o : Out, signature :class:`.PacketWriter`
        Frames, preceded by two octets of padding, padded to 60 octets.
    station : In, :class:`.Station`
    examined, kinds, kinds_valid : Out, 32 bits; In, :class:`.Kinds`; In, 1 bit
        To a :class:`.Classifier`. ``kinds`` is that of ``examined`` if ``kinds_valid`` is 1.
    tick : In, 1 bit
        A millisecond has passed.
    idle : Out, 1 bit
        No frame is being built.
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

    def __init__(self, words: int, *, has_udp: bool = True, entries: int = 8, unit: int = UNIT):
        self.words = words
        self.has_udp = has_udp
        self.neighbours = Neighbours(entries, [*_CONSTANTS.values()], unit)
        super().__init__({
            "tcp": In(stream.Signature(TxSegment())),
            "express": In(Express()),
            "udp": In(stream.Signature(TxDatagram())),
            "icmp": In(stream.Signature(Packet(1))),
            "arp": In(stream.Signature(ArpPacket())),
            "o": Out(PacketWriter(words)),
            "station": In(Station()),
            "examined": Out(32),
            "kinds": In(Kinds()),
            "kinds_valid": In(1),
            "tick": In(1),
            "idle": Out(1),
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
        station, word, kinds = self.station, self.o.word, self.kinds
        tcp, udp, icmp, arp = self.tcp.payload, self.udp.payload, self.icmp.payload, self.arp.payload

        # The task.
        origin = Signal(Origin)
        is_tcp = Signal()
        is_udp = Signal()
        is_icmp = Signal()
        resolves = Signal()
        subject = Signal(32)  # the address that is examined or looked up
        length = Signal(11)  # of the segment, the datagram's payload, or the ICMP message
        sends_arp = Signal()
        replies = Signal()
        to_all = Signal()
        asks = Signal()  # an ARP request follows
        place = Signal(range(MOST_WORDS + 1))
        m.d.comb += [
            is_tcp.eq(origin == Origin.TCP),
            is_udp.eq((origin == Origin.UDP) & self.has_udp),
            is_icmp.eq(origin == Origin.ICMP),
            resolves.eq(origin == Origin.RESOLVE),
            self.examined.eq(subject),
            neighbours.address.eq(subject),
            neighbours.sender.eq(arp.mac),
            neighbours.tick.eq(self.tick),
            self.o.place.eq(place),
        ]

        # The origins take turns.
        chosen = Signal(Origin)
        waiting = Signal()
        m.d.comb += waiting.eq(self.resolve_valid | self.tcp.valid | self.udp.valid | self.icmp.valid)
        with m.If(self.resolve_valid):
            m.d.comb += chosen.eq(Origin.RESOLVE)
        with m.Elif(self.tcp.valid & ~(is_tcp & (self.udp.valid | self.icmp.valid))):
            m.d.comb += chosen.eq(Origin.TCP)
        with m.Elif(self.udp.valid & ~(is_udp & self.icmp.valid)):
            m.d.comb += chosen.eq(Origin.UDP)
        with m.Else():
            m.d.comb += chosen.eq(Origin.ICMP)

        # The beat of data.
        data_valid = Signal()
        data_last = Signal()
        data_octets = Signal(range(5))
        data_ready = Signal()
        kept = Signal(4)  # octets
        collecting = Signal()  # a packet on the express way
        express = self.express
        m.d.comb += [
            data_valid.eq((is_tcp & self.tcp.valid) | (is_udp & self.udp.valid) | (is_icmp & self.icmp.valid)),
            data_last.eq(
                Mux(collecting, express.beat.last, (is_tcp & tcp.last) | (is_udp & udp.last) | (is_icmp & icmp.last))
            ),
            data_octets.eq(
                Mux(collecting, express.beat.octets, Mux(is_tcp, tcp.octets, Mux(is_udp, udp.octets, icmp.octets)))
            ),
            kept.eq(Cat(~data_last | (octet < data_octets) for octet in range(4))),
            self.tcp.ready.eq(is_tcp & data_ready),
            self.udp.ready.eq(is_udp & data_ready),
            self.icmp.ready.eq(is_icmp & data_ready),
        ]

        # The bus: the sum of its sources, of which all but one are 0.
        bus = Signal(32)
        give = Signal(_SOURCES)
        checksum = Signal(16)
        added = Signal(5)
        longer = Signal(16)  # the length, with headers
        saved = Signal(FOLDED_BITS)  # the sum of a packet that is in the frame already
        given_data = [(give.tcp, tcp.data), (give.udp, udp.data), (give.icmp, icmp.data),
                      (give.express, express.beat.data)]  # fmt: skip
        given_words = [
            (give.neighbour, neighbours.word),
            (give.tcp_destination, swap_octets(tcp.destination)),
            (give.udp_destination, swap_octets(udp.destination)),
            (give.udp_ports, Cat(swap_octets(udp.source_port), swap_octets(udp.destination_port))),
            (give.resolved, swap_octets(self.resolve_address)),
            (give.sender, arp.address),
            (give.gateway, station.gateway),
            (give.mac, station.mac[:32]),
            (give.mac_end, Cat(station.mac[32:], Const(0, 16))),
            (give.address, station.address),
            (give.address_begin_high, Cat(Const(0, 16), station.address[:16])),
            (give.address_end_low, Cat(station.address[16:], Const(0, 16))),
            (give.length_low, Cat(swap_octets(longer), Const(0, 16))),
            (give.length_high, Cat(Const(0, 16), swap_octets(longer))),
            (give.checksum, Cat(checksum, checksum)),
            (give.express_destination, swap_octets(express.destination)),
            (give.saved, saved),
        ]
        terms = [value & select.replicate(32) for select, value in given_words]
        terms += [value & Cat((select & each).replicate(8) for each in kept) for select, value in given_data]
        m.d.comb += [longer.eq(length + added), bus.eq(reduce(or_, terms)), word.data.eq(bus)]

        # The checksum.
        adds = Signal()
        summand = Signal(32)  # 0 if nothing is added
        total = Signal(SUM_BITS)
        folded = Signal(FOLDED_BITS)
        m.d.sync += [total.eq(add_word(total, summand)), folded.eq(fold(total))]
        m.d.comb += checksum.eq(complement(folded))
        with m.If(adds):
            m.d.sync += summand.eq(bus)
        with m.Else():
            m.d.sync += summand.eq(0)

        # The time until the address may be defended again.
        defended = Signal(range(DEFENCE + 1))
        with m.If(neighbours.sweep & (defended != 0)):
            m.d.sync += defended.eq(defended - 1)

        first = Signal()  # the next word of data is the first
        is_express = Signal()  # the packet is in the frame already
        whole = Signal()  # all of it
        looked_up = Signal()
        given_up = Signal()
        behind = Signal.like(place)  # the end of the frame
        creates = Signal()  # an entry for the sender of an ARP packet
        short = Signal()  # this word is not behind the shortest frame
        ends_shortest = Signal()  # this word is the last of the shortest frame
        writes = Signal()
        m.d.comb += [
            short.eq(~place[4:].any()),
            ends_shortest.eq(short & (place[:4] == LEAST_WORDS - 1)),
            self.o.low.eq(writes),
            self.o.high.eq(writes),
        ]
        show = neighbours.show
        m.d.comb += show.eq(Mux(to_all, _SHOWN.ALL_0, Word.MAC_0))
        with m.FSM():
            with m.State("Idle"):
                # Every task may need room for the shortest frame.
                m.d.comb += [self.o.place.eq(LEAST_WORDS - 1), neighbours.rest.eq(1), give.sender.eq(1)]
                m.d.comb += self.idle.eq(1)
                m.d.sync += [
                    place.eq(8),
                    total.eq(0),
                    first.eq(1),
                    sends_arp.eq(0),
                    replies.eq(0),
                    to_all.eq(0),
                    asks.eq(0),
                    is_express.eq(0),
                    whole.eq(0),
                    looked_up.eq(0),
                    given_up.eq(0),
                    subject.eq(bus),
                ]
                m.d.comb += express.accepts.eq(self.o.fits & ~self.arp.valid & ~waiting)
                with m.If(self.o.fits):
                    with m.If(self.arp.valid):
                        m.next = "Examine"
                    with m.Elif(waiting):
                        m.d.sync += origin.eq(chosen)
                        m.next = "Destination"
                    with m.Elif(express.begin):
                        m.d.sync += origin.eq(Origin.TCP)
                        m.next = "Express"

            # A received ARP packet (RFC 826).

            with m.State("Examine"):
                conflict = Signal()
                m.d.comb += conflict.eq(kinds.ours & ~arp.reflected)
                with m.If(self.kinds_valid):
                    m.d.comb += self.conflict.eq(conflict)
                    m.d.sync += [
                        sends_arp.eq(1),
                        to_all.eq(conflict),
                        replies.eq(arp.asks & ~kinds.ours),
                        creates.eq(arp.asks & kinds.local & ~kinds.broadcast & ~kinds.ours),
                    ]
                    m.next = "Learn"

            with m.State("Learn"):
                m.d.comb += neighbours.task.eq(Mux(creates, Task.LEARN, Task.UPDATE))
                m.d.sync += place.eq(0)
                with m.If(neighbours.done):
                    m.d.comb += self.arp.ready.eq(1)
                    m.next = "Idle"
                    with m.If(replies):
                        m.next = "Begin"
                    with m.Elif(to_all & (defended == 0)):
                        m.d.sync += defended.eq(DEFENCE)
                        m.next = "Begin"

            # Packets.

            with m.State("Destination"):
                m.d.comb += [
                    give.tcp_destination.eq(is_tcp),
                    give.udp_destination.eq(is_udp),
                    give.resolved.eq(resolves),
                    give.icmp.eq(is_icmp),
                    self.icmp.ready.eq(is_icmp),
                    writes.eq(1),
                    adds.eq(1),
                ]
                m.d.sync += subject.eq(bus)
                m.next = "Length"

            with m.State("Length"):
                m.d.comb += self.icmp.ready.eq(is_icmp)
                m.d.sync += length.eq(Mux(is_tcp, tcp.length, Mux(is_udp, udp.length, icmp.data)))
                with m.If(self.icmp.valid | ~is_icmp):
                    m.next = "Route"

            with m.State("Route"):
                m.d.comb += give.gateway.eq(1)
                m.d.sync += place.eq(0)
                with m.If(self.kinds_valid):
                    m.d.sync += to_all.eq(kinds.broadcast)
                    with m.If(~kinds.local):
                        m.d.sync += subject.eq(bus)
                    with m.If(kinds.broadcast & is_udp):
                        m.next = "Begin"
                    with m.Elif(kinds.broadcast | kinds.no_host | kinds.ours | ~kinds.routed):
                        m.next = "Unreachable"
                    with m.Else():
                        m.next = "LookUp"

            with m.State("LookUp"):
                m.d.comb += [
                    neighbours.task.eq(Task.LOOK_UP),
                    self.resolve_done.eq(neighbours.done & resolves),
                    self.resolve_hit.eq(neighbours.known),
                ]
                m.d.sync += asks.eq(neighbours.ask)
                with m.If(neighbours.done):
                    m.next = "Discard"
                    with m.If(resolves):
                        m.next = "Ask"
                    with m.Elif(neighbours.known):
                        m.next = "Header"

            # A packet on the express way.

            with m.State("Express"):
                m.d.comb += give.express_destination.eq(1)
                m.d.sync += [subject.eq(bus), is_express.eq(1)]
                m.next = "ExpressRoute"

            with m.State("ExpressRoute"):
                m.d.comb += give.gateway.eq(1)
                m.d.sync += place.eq(_HEADERS)
                with m.If(~kinds.local):
                    m.d.sync += subject.eq(bus)
                m.next = "Collect"
                with m.If(~self.kinds_valid | kinds.broadcast | kinds.no_host | kinds.ours | ~kinds.routed):
                    m.next = "Idle"

            with m.State("Collect"):
                m.d.comb += [
                    collecting.eq(1),
                    give.express.eq(express.valid),
                    writes.eq(express.valid),
                    adds.eq(express.valid),
                    word.last.eq(data_last),
                    word.octets.eq(data_octets),
                    express.collects.eq(~given_up),
                    express.collected.eq(whole & looked_up & ~given_up),
                ]
                with m.If(~looked_up):
                    m.d.comb += neighbours.task.eq(Task.LOOK_UP)
                with m.If(neighbours.done):
                    m.d.sync += [looked_up.eq(1), asks.eq(neighbours.ask)]
                with m.If(express.valid):
                    m.d.sync += [place.eq(place + 1), whole.eq(data_last)]
                with m.If(
                    express.cancel
                    | self.arp.valid
                    | waiting
                    | (neighbours.done & ~neighbours.known)
                    | (express.valid & data_last & (place < LEAST_WORDS))  # it would need padding
                    | (express.valid & (place == MOST_WORDS))
                ):
                    m.d.sync += given_up.eq(1)
                with m.If(express.finish):
                    m.d.sync += [behind.eq(place), length.eq(express.length)]
                    m.next = "Address"
                with m.Elif(given_up & looked_up):
                    m.next = "Ask"

            with m.State("Address"):
                m.d.comb += [give.express_destination.eq(1), self.o.place.eq(8), writes.eq(1), adds.eq(1)]
                m.d.sync += place.eq(0)
                m.next = "Header"

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

            with m.State("Ask"):
                # The entry of the next hop of the packet, which may have been sent, is still shown.
                m.d.sync += [place.eq(0), sends_arp.eq(1), to_all.eq(~neighbours.known)]
                m.next = "Idle"
                with m.If(asks):
                    m.next = "Begin"

            with m.State("Begin"):
                m.d.comb += self.o.place.eq(LEAST_WORDS - 1)
                with m.If(self.o.fits):
                    m.next = "Header"

            # Headers.

            with m.State("Header"):
                # A word of the next hop is shown a cycle after it has been selected; before this state, it is word 0.
                m.d.comb += writes.eq(1)
                m.d.sync += place.eq(place + 1)
                with m.If(is_express & (place[:4] == 0)):  # the sum is that of the packet; its address follows
                    m.d.sync += [saved.eq(folded), total.eq(summand)]
                with m.Switch(Cat(place[:4], sends_arp)):
                    with m.Case("-0000"):
                        m.d.comb += [give.neighbour.eq(1), show.eq(Mux(to_all, _SHOWN.ALL_2, Word.MAC_2))]
                    with m.Case("-0001"):
                        m.d.comb += give.neighbour.eq(1)
                    with m.Case("-0010"):
                        m.d.comb += [give.mac.eq(1), show.eq(Mux(sends_arp, _SHOWN.TYPE_ARP, _SHOWN.TYPE_IPV4))]
                    with m.Case("-0011"):
                        m.d.comb += [
                            give.neighbour.eq(1),
                            give.mac_end.eq(1),
                            show.eq(Mux(sends_arp, _SHOWN.ARP_4, _SHOWN.IPV4_4)),
                        ]
                    with m.Case("00100"):
                        m.d.comb += [
                            give.neighbour.eq(1),
                            give.length_high.eq(1),
                            added.eq(Mux(is_udp, 28, 20)),
                            adds.eq(1),
                            show.eq(_SHOWN.IPV4_5),
                        ]
                    with m.Case("00101"):
                        m.d.comb += [give.neighbour.eq(1), adds.eq(1), show.eq(_SHOWN.IPV4_6_ICMP)]
                        with m.If(is_tcp):
                            m.d.comb += show.eq(_SHOWN.IPV4_6_TCP)
                        with m.Elif(is_udp):
                            m.d.comb += show.eq(_SHOWN.IPV4_6_UDP)
                    with m.Case("00110"):
                        m.d.comb += [give.neighbour.eq(1), adds.eq(1)]
                    with m.Case("00111"):
                        m.d.comb += [give.address.eq(1), adds.eq(1), show.eq(_SHOWN.PSEUDO_HEADER)]
                    with m.Case("10100"):
                        m.d.comb += [
                            give.neighbour.eq(1), show.eq(Mux(replies, _SHOWN.ARP_5_REPLY, _SHOWN.ARP_5_REQUEST))
                        ]  # fmt: skip
                    with m.Case("10101"):
                        m.d.comb += give.neighbour.eq(1)
                    with m.Case("10110"):
                        m.d.comb += give.mac.eq(1)
                    with m.Case("10111"):
                        m.d.comb += [give.mac_end.eq(1), give.address_begin_high.eq(1), show.eq(Word.MAC_0)]
                    with m.Case("11000"):
                        m.d.comb += [give.address_end_low.eq(1), give.neighbour.eq(replies), show.eq(Word.MAC_2)]
                    with m.Case("11001"):
                        m.d.comb += [give.neighbour.eq(replies), show.eq(Word.ADDRESS)]
                    with m.Default():
                        m.d.comb += give.neighbour.eq(1)  # the target
                with m.If(~sends_arp & (place[:3] == 7)):
                    m.next = "Correct"
                with m.If(sends_arp & (place[:4] == 10)):
                    m.next = "Pad"

            with m.State("Correct"):
                # The sum is that of the header. It becomes that of the pseudo-header; ICMP has none.
                m.d.comb += [give.neighbour.eq(1), adds.eq(1)]
                m.d.sync += place.eq(9)
                m.next = "Await"

            with m.State("Await"):
                m.d.comb += [give.saved.eq(is_express), adds.eq(is_express)]
                m.next = "HeaderChecksum"

            with m.State("HeaderChecksum"):
                m.d.comb += [give.checksum.eq(1), self.o.place.eq(6), self.o.high.eq(1)]
                with m.If(is_icmp):
                    m.d.sync += total.eq(0)
                m.next = "Data"
                with m.If(is_udp):
                    m.next = "Ports"

            with m.State("Ports"):
                m.d.comb += [give.udp_ports.eq(1), writes.eq(1), adds.eq(1)]
                m.d.sync += place.eq(place + 1)
                m.next = "DatagramLength"

            with m.State("DatagramLength"):
                m.d.comb += [added.eq(8), give.length_low.eq(1), writes.eq(1), adds.eq(1)]
                m.d.sync += place.eq(place + 1)
                m.next = "Data"

            # Data, padding and checksum.

            with m.State("Data"):
                m.d.comb += [
                    give.tcp.eq(is_tcp),
                    give.udp.eq(is_udp),
                    give.icmp.eq(is_icmp & ~first),  # the type of an echo reply, and a checksum of 0
                    word.last.eq(data_last & (~short | ends_shortest)),
                    word.octets.eq(data_octets),
                    data_ready.eq(self.o.fits),
                    writes.eq(data_valid),
                    adds.eq(data_valid & self.o.fits),
                ]
                with m.If(ends_shortest & (data_octets < 2)):
                    m.d.comb += word.octets.eq(2)
                with m.If(data_valid & self.o.fits):
                    m.d.sync += [place.eq(place + 1), first.eq(0)]
                    with m.If(word.last):
                        m.next = "AwaitSum"
                    with m.Elif(data_last & is_express):
                        m.d.sync += place.eq(behind)
                        m.next = "AwaitSum"
                    with m.Elif(data_last):
                        m.next = "Pad"

            with m.State("Pad"):
                m.d.comb += [writes.eq(1), word.last.eq(ends_shortest), word.octets.eq(2)]
                m.d.sync += place.eq(place + 1)
                with m.If(ends_shortest):
                    m.next = "Fold"

            with m.State("AwaitSum"):
                m.next = "Fold"

            with m.State("Fold"):
                m.d.comb += show.eq(_SHOWN.ALL_2)
                m.next = "Checksum"
                with m.If(sends_arp):
                    m.next = "Commit"

            with m.State("Checksum"):
                # At octet 16 of TCP's header, 6 of UDP's, 2 of ICMP's.
                m.d.comb += [
                    give.checksum.eq(1),
                    self.o.place.eq(Mux(is_tcp, 13, Mux(is_udp, 10, 9))),
                    self.o.low.eq(is_tcp),
                    self.o.high.eq(~is_tcp),
                ]
                with m.If(is_udp & (checksum == 0)):  # RFC 768: 0 means no checksum
                    m.d.comb += give.neighbour.eq(1)
                m.next = "Commit"

            with m.State("Commit"):
                m.d.comb += [self.o.commit.eq(1), self.sent.eq(is_tcp & ~sends_arp)]
                m.next = "Ask"
                with m.If(sends_arp):
                    m.next = "Idle"
        return m
