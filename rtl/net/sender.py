"""Builds the frames that are transmitted."""

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, enum, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.formats.layouts import Packet
from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.addresses import Kinds
from open_rnic.rtl.net.checksum import FOLDED_BITS, Checksum
from open_rnic.rtl.net.cut_through import CutThrough
from open_rnic.rtl.net.headers import CONSTANTS, Stored, arp_packet, ipv4_packet
from open_rnic.rtl.net.layouts import LEAST_WORDS, MOST_WORDS, Station, TxDatagram, TxSegment
from open_rnic.rtl.net.neighbours import UNIT, Neighbours, Task, Word
from open_rnic.rtl.net.packet_memory import PacketWriter
from open_rnic.rtl.net.receiver import ArpPacket

__all__ = ["Sender"]

DEFENCE = 11  # units of age until an address is defended again: 10.2 to 11.3 s (RFC 5227 §1.1, DEFEND_INTERVAL)

_SOURCES = data.StructLayout(dict.fromkeys((
    "tcp", "udp", "icmp", "stored", "tcp_destination", "udp_destination", "udp_ports", "sender", "gateway",
    "mac", "mac_end", "address", "address_begin_high", "address_end_low", "length_low", "length_high", "checksum",
    "cut_through", "cut_through_destination", "saved",
), 1))  # fmt: skip

_TASK = data.StructLayout(dict.fromkeys((
    "sends_arp",
    "replies",  # to an ARP request
    "creates",  # an entry for the sender of an ARP packet
    "to_all",
    "asks",  # an ARP request follows
    "begun",  # the first word of data has been taken
    "is_cut_through",  # the packet is in the frame already
    "whole",  # all of it
    "looked_up",
    "given_up",
), 1))  # fmt: skip

_HEADERS = 14  # words of the headers in front of TCP's payload, if it has no options


class Origin(enum.Enum, shape=2):
    """The origin of a task."""

    TCP = 0
    UDP = 1
    ICMP = 2


class Sender(wiring.Component):
    """Builds frames one after the other: segments, datagrams, echo replies and ARP packets.

    A frame is written into a queue; the checksums are written when their sums are complete. A packet whose next hop has
    no known MAC is discarded, and an ARP request is sent for it. Each origin has its turn. All words pass one bus,
    from which they are written, added, and taken as an address or a length.

    The octets of a packet that is cut through (:class:`.CutThrough`) are written before its headers. A frame of another
    origin may still overtake it.

    Throughput: at most 38 cycles for the shortest frame, and 402 for the longest, with 8 entries in the cache.

    Parameters
    ----------
    words : depth of the queue
    has_udp : whether ``udp`` is used; if not, its logic is omitted
    entries, unit : see :class:`.Neighbours`

    Members
    -------
    tcp : In, stream of :class:`.TxSegment`
    cut_through : In, :class:`.CutThrough`
    udp : In, stream of :class:`.TxDatagram`
    icmp : In, stream of :class:`.Packet`; echo requests as :class:`.Receiver` writes them: source, length, ICMP message
    arp : In, stream of :class:`.ArpPacket`; received ARP packets
    o : Out, signature :class:`.PacketWriter`; frames, behind two octets of padding, padded to 60 octets
    station : In, :class:`.Station`
    examined, kinds, kinds_valid : Out, 32 bits; In, :class:`.Kinds`; In, 1 bit; to a :class:`.Classifier`. ``kinds`` is
        that of ``examined`` if ``kinds_valid`` is 1
    tick : In, 1 bit; a millisecond has passed
    idle : Out, 1 bit; no frame is being built
    conflict : Out, 1 bit; another host used this host's address (RFC 5227 §2.4)

    """

    def __init__(self, words: int, *, has_udp: bool = True, entries: int = 8, unit: int = UNIT):
        self.words = words
        self.has_udp = has_udp
        self.neighbours = Neighbours(entries, [*CONSTANTS.values()], unit)
        self._checksum = Checksum()
        super().__init__({
            "tcp": In(stream.Signature(TxSegment())),
            "cut_through": In(CutThrough()),
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
            "conflict": Out(1),
        })

        self._origin = Signal(Origin)
        self._is = Signal(data.StructLayout({"tcp": 1, "udp": 1, "icmp": 1}))  # the origin
        self._task = Signal(_TASK)
        self._subject = Signal(32)  # the address that is examined or looked up
        self._length = Signal(11)  # of the segment, the datagram's payload, or the ICMP message
        self._defence = Signal(range(DEFENCE + 1))  # units of age until the address may be defended again
        self._place = Signal(range(MOST_WORDS + 1))  # of the word that is written
        self._behind = Signal.like(self._place)  # the place behind a packet that is cut through
        self._short = Signal()  # the place is not behind the shortest frame
        self._ends_shortest = Signal()  # the place is the last of the shortest frame

        self._bus = Signal(32)
        self._give = Signal(_SOURCES)
        self._added = Signal(5)  # octets of headers in the length
        self._saved = Signal(FOLDED_BITS)  # the sum of a packet that is cut through
        self._writes = Signal()  # the word on the bus is written

        self._waiting = Signal()  # an origin has a task
        self._chosen = Signal(Origin)
        self._beat = Signal(data.StructLayout({"valid": 1, "last": 1, "octets": range(5)}))  # of the origin
        self._take = Signal()  # the beat
        self._collecting = Signal()  # the beat is one that is cut through

    def elaborate(self, platform):
        m = Module()
        m.submodules.neighbours = self.neighbours
        m.submodules.checksum = self._checksum
        self._connect(m)
        self._choose(m)
        self._select_beat(m)
        self._drive_bus(m)
        with m.FSM():
            self._begin(m)
            self._answer_arp(m)
            self._route(m)
            self._discard(m)
            self._collect(m)
            self._request(m)
            self._write_headers(m)
            self._write_data(m)
            self._finish(m)
        return m

    def _connect(self, m):
        place = self._place
        m.d.comb += [
            self._is.tcp.eq(self._origin == Origin.TCP),
            self._is.udp.eq((self._origin == Origin.UDP) & self.has_udp),
            self._is.icmp.eq(self._origin == Origin.ICMP),
            self.examined.eq(self._subject),
            self.neighbours.address.eq(self._subject),
            self.neighbours.sender.eq(self.arp.payload.mac),
            self.neighbours.tick.eq(self.tick),
            self.neighbours.show.eq(Mux(self._task.to_all, Stored.ALL_0, Word.MAC_0)),
            self._short.eq(~place[4:].any()),
            self._ends_shortest.eq(self._short & (place[:4] == LEAST_WORDS - 1)),
            self.o.place.eq(place),
            self.o.word.data.eq(self._bus),
            self.o.low.eq(self._writes),
            self.o.high.eq(self._writes),
            self._checksum.word.eq(self._bus),
        ]
        with m.If(self.neighbours.sweep & (self._defence != 0)):
            m.d.sync += self._defence.eq(self._defence - 1)

    def _choose(self, m):
        """The origins take turns."""
        m.d.comb += self._waiting.eq(self.tcp.valid | self.udp.valid | self.icmp.valid)
        with m.If(self.tcp.valid & ~(self._is.tcp & (self.udp.valid | self.icmp.valid))):
            m.d.comb += self._chosen.eq(Origin.TCP)
        with m.Elif(self.udp.valid & ~(self._is.udp & self.icmp.valid)):
            m.d.comb += self._chosen.eq(Origin.UDP)
        with m.Else():
            m.d.comb += self._chosen.eq(Origin.ICMP)

    def _select_beat(self, m):
        beat, cut_through = self._beat, self.cut_through.beat
        origins = [(self._is.tcp, self.tcp), (self._is.udp, self.udp), (self._is.icmp, self.icmp)]
        last = reduce(or_, (chosen & each.payload.last for chosen, each in origins))
        octets = self.icmp.payload.octets
        for chosen, each in origins[1::-1]:
            octets = Mux(chosen, each.payload.octets, octets)
        m.d.comb += [
            beat.valid.eq(reduce(or_, (chosen & each.valid for chosen, each in origins))),
            beat.last.eq(Mux(self._collecting, cut_through.last, last)),
            beat.octets.eq(Mux(self._collecting, cut_through.octets, octets)),
            *(each.ready.eq(chosen & self._take) for chosen, each in origins),
        ]

    def _drive_bus(self, m):
        """All words pass one bus: the sum of its sources, of which those that are not given are 0."""
        tcp, udp, station, give = self.tcp.payload, self.udp.payload, self.station, self._give
        checksum = self._checksum.checksum
        length = Signal(16)  # with headers
        kept = Cat(~self._beat.last | (octet < self._beat.octets) for octet in range(4))
        octets_of_data = {"tcp": tcp.data, "udp": udp.data, "icmp": self.icmp.payload.data,
                          "cut_through": self.cut_through.beat.data}  # fmt: skip
        words = {
            "stored": self.neighbours.word,
            "tcp_destination": swap_octets(tcp.destination),
            "udp_destination": swap_octets(udp.destination),
            "udp_ports": Cat(swap_octets(udp.source_port), swap_octets(udp.destination_port)),
            "sender": self.arp.payload.address,
            "gateway": station.gateway,
            "mac": station.mac[:32],
            "mac_end": Cat(station.mac[32:], Const(0, 16)),
            "address": station.address,
            "address_begin_high": Cat(Const(0, 16), station.address[:16]),
            "address_end_low": Cat(station.address[16:], Const(0, 16)),
            "length_low": Cat(swap_octets(length), Const(0, 16)),
            "length_high": Cat(Const(0, 16), swap_octets(length)),
            "checksum": Cat(checksum, checksum),
            "cut_through_destination": swap_octets(self.cut_through.destination),
            "saved": self._saved,
        }
        terms = [value & give[name].replicate(32) for name, value in words.items()]
        terms += [
            value & Cat((give[name] & each).replicate(8) for each in kept) for name, value in octets_of_data.items()
        ]
        m.d.comb += [length.eq(self._length + self._added), self._bus.eq(reduce(or_, terms))]

    def _begin(self, m):
        task = self._task
        with m.State("Idle"):
            # Every task may need room for the shortest frame.
            m.d.comb += [
                self.idle.eq(1),
                self.o.place.eq(LEAST_WORDS - 1),
                self.neighbours.rest.eq(1),
                self._give.sender.eq(1),
                self._checksum.clear.eq(1),
                self.cut_through.accepts.eq(self.o.fits & ~self.arp.valid & ~self._waiting),
            ]
            m.d.sync += [task.eq(0), self._place.eq(8), self._subject.eq(self._bus)]
            with m.If(self.o.fits):
                with m.If(self.arp.valid):
                    m.next = "Examine"
                with m.Elif(self._waiting):
                    m.d.sync += self._origin.eq(self._chosen)
                    m.next = "Destination"
                with m.Elif(self.cut_through.begin):
                    m.d.sync += self._origin.eq(Origin.TCP)
                    m.next = "CutThrough"

    def _answer_arp(self, m):
        """A received ARP packet (RFC 826)."""
        task, arp, kinds, neighbours = self._task, self.arp.payload, self.kinds, self.neighbours
        with m.State("Examine"):
            conflict = Signal()
            m.d.comb += conflict.eq(kinds.ours & ~arp.reflected)
            with m.If(self.kinds_valid):
                m.d.comb += self.conflict.eq(conflict)
                m.d.sync += [
                    task.sends_arp.eq(1),
                    task.to_all.eq(conflict),
                    task.replies.eq(arp.asks & ~kinds.ours),
                    task.creates.eq(arp.asks & kinds.local & ~kinds.broadcast & ~kinds.ours),
                ]
                m.next = "Learn"

        with m.State("Learn"):
            m.d.comb += neighbours.task.eq(Mux(task.creates, Task.LEARN, Task.UPDATE))
            m.d.sync += self._place.eq(0)
            with m.If(neighbours.done):
                m.d.comb += self.arp.ready.eq(1)
                m.next = "Idle"
                with m.If(task.replies):
                    m.next = "Begin"
                with m.Elif(task.to_all & (self._defence == 0)):
                    m.d.sync += self._defence.eq(DEFENCE)
                    m.next = "Begin"

    def _route(self, m):
        """The next hop of a packet (RFC 1122 §3.3.1)."""
        task, kinds, neighbours, give = self._task, self.kinds, self.neighbours, self._give
        with m.State("Destination"):
            m.d.comb += [
                give.tcp_destination.eq(self._is.tcp),
                give.udp_destination.eq(self._is.udp),
                give.icmp.eq(self._is.icmp),
                self.icmp.ready.eq(self._is.icmp),
                self._writes.eq(1),
                self._checksum.adds.eq(1),
            ]
            m.d.sync += self._subject.eq(self._bus)
            m.next = "Length"

        with m.State("Length"):
            tcp_or_udp = Mux(self._is.tcp, self.tcp.payload.length, self.udp.payload.length)
            m.d.comb += self.icmp.ready.eq(self._is.icmp)
            m.d.sync += self._length.eq(Mux(self._is.icmp, self.icmp.payload.data, tcp_or_udp))
            with m.If(self.icmp.valid | ~self._is.icmp):
                m.next = "Route"

        with m.State("Route"):
            m.d.comb += give.gateway.eq(1)
            m.d.sync += self._place.eq(0)
            with m.If(self.kinds_valid):
                m.d.sync += task.to_all.eq(kinds.broadcast)
                with m.If(~kinds.local):
                    m.d.sync += self._subject.eq(self._bus)
                with m.If(kinds.broadcast & self._is.udp):
                    m.next = "Begin"
                with m.Elif(kinds.broadcast | kinds.no_host | kinds.ours | ~kinds.routed):
                    m.next = "Discard"
                with m.Else():
                    m.next = "LookUp"

        with m.State("LookUp"):
            m.d.comb += neighbours.task.eq(Task.LOOK_UP)
            m.d.sync += task.asks.eq(neighbours.ask)
            with m.If(neighbours.done):
                m.next = "Discard"
                with m.If(neighbours.known):
                    m.next = "Header"

    def _discard(self, m):
        """A packet without a next hop, or whose next hop has no known MAC."""
        with m.State("Discard"):
            m.d.comb += self._take.eq(1)
            with m.If(self._beat.valid & self._beat.last):
                m.next = "Ask"

    def _collect(self, m):
        """A packet that is cut through."""
        task, kinds, neighbours, give = self._task, self.kinds, self.neighbours, self._give
        cut_through = self.cut_through
        with m.State("CutThrough"):
            m.d.comb += give.cut_through_destination.eq(1)
            m.d.sync += [self._subject.eq(self._bus), task.is_cut_through.eq(1)]
            m.next = "CutThroughRoute"

        with m.State("CutThroughRoute"):
            m.d.comb += give.gateway.eq(1)
            m.d.sync += self._place.eq(_HEADERS)
            with m.If(~kinds.local):
                m.d.sync += self._subject.eq(self._bus)
            m.next = "Collect"
            with m.If(~self.kinds_valid | kinds.broadcast | kinds.no_host | kinds.ours | ~kinds.routed):
                m.next = "Idle"

        with m.State("Collect"):
            last = cut_through.valid & self._beat.last
            m.d.comb += [
                self._collecting.eq(1),
                give.cut_through.eq(cut_through.valid),
                self._writes.eq(cut_through.valid),
                self._checksum.adds.eq(cut_through.valid),
                self.o.word.last.eq(self._beat.last),
                self.o.word.octets.eq(self._beat.octets),
                cut_through.collects.eq(~task.given_up),
                cut_through.collected.eq(task.whole & task.looked_up & ~task.given_up),
            ]
            with m.If(~task.looked_up):
                m.d.comb += neighbours.task.eq(Task.LOOK_UP)
            with m.If(neighbours.done):
                m.d.sync += [task.looked_up.eq(1), task.asks.eq(neighbours.ask)]
            with m.If(cut_through.valid):
                m.d.sync += [self._place.eq(self._place + 1), task.whole.eq(self._beat.last)]
            with m.If(
                cut_through.cancel
                | self.arp.valid
                | self._waiting
                | (neighbours.done & ~neighbours.known)
                | (last & (self._place < LEAST_WORDS))  # it would need padding
                | (cut_through.valid & (self._place == MOST_WORDS))
            ):
                m.d.sync += task.given_up.eq(1)
            with m.If(cut_through.finish):
                m.d.sync += [self._behind.eq(self._place), self._length.eq(cut_through.length)]
                m.next = "Address"
            with m.Elif(task.given_up & task.looked_up):
                m.next = "Ask"

        with m.State("Address"):
            m.d.comb += [
                give.cut_through_destination.eq(1), self.o.place.eq(8), self._writes.eq(1), self._checksum.adds.eq(1)
            ]  # fmt: skip
            m.d.sync += self._place.eq(0)
            m.next = "Header"

    def _request(self, m):
        """An ARP request, if one is due, and room for a frame."""
        with m.State("Ask"):
            # The entry of the next hop of the packet, which may have been sent, is still shown.
            task = self._task
            m.d.sync += [self._place.eq(0), task.sends_arp.eq(1), task.to_all.eq(~self.neighbours.known)]
            m.next = "Idle"
            with m.If(task.asks):
                m.next = "Begin"

        with m.State("Begin"):
            m.d.comb += self.o.place.eq(LEAST_WORDS - 1)
            with m.If(self.o.fits):
                m.next = "Header"

    def _write_headers(self, m):
        """The words of a header's table, from ``place`` on."""
        task, place, give, checksum = self._task, self._place, self._give, self._checksum
        tables = (ipv4_packet(task.to_all, self._is.tcp, self._is.udp), arp_packet(task.to_all, task.replies))
        with m.State("Header"):
            m.d.sync += place.eq(place + 1)
            with m.If(task.is_cut_through & (place[:4] == 0)):  # the sum is that of the packet; its address follows
                m.d.comb += checksum.restart.eq(1)
                m.d.sync += self._saved.eq(checksum.folded)
            with m.Switch(Cat(place[:4], task.sends_arp)):
                for is_arp, table in enumerate(tables):
                    for at, word in enumerate(table):
                        with m.Case(at | is_arp << 4):
                            self._write_word(m, word)
                            # A stored word is shown a cycle after its selection; before this state, it is word 0's.
                            if at + 1 < len(table) and table[at + 1].stored is not None:
                                m.d.comb += self.neighbours.show.eq(table[at + 1].stored)
            with m.If(~task.sends_arp & (place[:4] == 8)):
                m.next = "Await"
            with m.If(place[:4] == 10):
                m.next = "Data"
                with m.If(task.sends_arp):
                    m.next = "Pad"

        with m.State("Await"):
            m.d.comb += [give.saved.eq(task.is_cut_through), checksum.adds.eq(task.is_cut_through)]
            m.next = "HeaderChecksum"

        with m.State("HeaderChecksum"):
            m.d.comb += [give.checksum.eq(1), self.o.place.eq(6), self.o.high.eq(1)]
            m.d.comb += checksum.clear.eq(self._is.icmp)  # it has no pseudo-header
            m.next = "Data"
            with m.If(self._is.udp):
                m.next = "Header"

    def _write_word(self, m, word):
        m.d.comb += [
            self._writes.eq(word.written),
            self._checksum.adds.eq(word.summed),
            self._added.eq(word.added),
            self._give.stored.eq(0 if word.stored is None else word.is_stored),
            *(self._give[source].eq(1) for source in word.sources),
        ]

    def _write_data(self, m):
        """Data, and padding."""
        task, beat, word = self._task, self._beat, self.o.word
        with m.State("Data"):
            m.d.comb += [
                self._give.tcp.eq(self._is.tcp),
                self._give.udp.eq(self._is.udp),
                self._give.icmp.eq(self._is.icmp & task.begun),  # the type of an echo reply, and a checksum of 0
                word.last.eq(beat.last & (~self._short | self._ends_shortest)),
                word.octets.eq(beat.octets),
                self._take.eq(self.o.fits),
                self._writes.eq(beat.valid),
                self._checksum.adds.eq(beat.valid & self.o.fits),
            ]
            with m.If(self._ends_shortest & (beat.octets < 2)):
                m.d.comb += word.octets.eq(2)
            with m.If(beat.valid & self.o.fits):
                m.d.sync += [self._place.eq(self._place + 1), task.begun.eq(1)]
                with m.If(word.last):
                    m.next = "AwaitSum"
                with m.Elif(beat.last & task.is_cut_through):
                    m.d.sync += self._place.eq(self._behind)
                    m.next = "AwaitSum"
                with m.Elif(beat.last):
                    m.next = "Pad"

        with m.State("Pad"):
            m.d.comb += [self._writes.eq(1), word.last.eq(self._ends_shortest), word.octets.eq(2)]
            m.d.sync += self._place.eq(self._place + 1)
            with m.If(self._ends_shortest):
                m.next = "Fold"

    def _finish(self, m):
        """The checksum of the data, and the end."""
        checksum = self._checksum.checksum
        with m.State("AwaitSum"):
            m.next = "Fold"

        with m.State("Fold"):
            m.d.comb += self.neighbours.show.eq(Stored.ALL_2)
            m.next = "Checksum"
            with m.If(self._task.sends_arp):
                m.next = "Commit"

        with m.State("Checksum"):
            # At octet 16 of TCP's header, 6 of UDP's, 2 of ICMP's.
            m.d.comb += [
                self._give.checksum.eq(1),
                self.o.place.eq(Mux(self._is.tcp, 13, Mux(self._is.udp, 10, 9))),
                self.o.low.eq(self._is.tcp),
                self.o.high.eq(~self._is.tcp),
            ]
            with m.If(self._is.udp & (checksum == 0)):  # RFC 768: 0 means no checksum
                m.d.comb += self._give.stored.eq(1)
            m.next = "Commit"

        with m.State("Commit"):
            m.d.comb += self.o.commit.eq(1)
            m.next = "Ask"
            with m.If(self._task.sends_arp):
                m.next = "Idle"
