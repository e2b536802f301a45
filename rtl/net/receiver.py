"""Parses and checks received frames."""

from collections.abc import Iterable
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from open_rnic.rtl.lib.stream import swap_octets
from open_rnic.rtl.net.addresses import Kinds
from open_rnic.rtl.net.checksum import FOLDED_BITS, SUM_BITS, add_word, fold, is_correct
from open_rnic.rtl.net.layouts import MOST_WORDS, Counts, EtherType, Frame, Protocol, Station, lane16
from open_rnic.rtl.net.packet_memory import PacketWriter

__all__ = ["ArpPacket", "Receiver"]

_LENGTH_BITS = 11  # of the length of a packet that a frame can hold
_ECHO = 8  # the type of an ICMP echo request (RFC 792)


class ArpPacket(data.StructLayout):
    """A received ARP packet.

    Members
    -------
    mac : 48 bits
        The sender's MAC, its first octet in bits 7:0.
    address : 32 bits
        The sender's IPv4 address, its first octet in bits 7:0.
    asks : 1 bit
        A request for this host's address.
    reflected : 1 bit
        ``mac`` is this host's.
    """

    def __init__(self):
        super().__init__({"mac": 48, "address": 32, "asks": 1, "reflected": 1})


class Receiver(wiring.Component):
    """Delivers the content of good frames: TCP segments, UDP datagrams, ICMP echo requests and ARP packets.

    A frame is checked while it arrives, and its content is written into all three queues. After the frame has ended,
    the packet is committed to the right one, or to none.

    A tag that has only a priority is skipped, and a frame of a VLAN discarded. IPv4 options are skipped. Fragments are
    discarded (RFC 1122 §3.3.2 asks for reassembly; this host sets DF, and its TCP announces an MSS). A UDP datagram is
    discarded if its Length is not that of its IPv4 payload.

    Latency: 4 cycles from the last beat of a frame to ``commit``. Throughput: one beat per cycle.

    Parameters
    ----------
    tcp_words, udp_words, icmp_words : depths of the three queues
    udp_ports : the UDP ports whose datagrams are received

    Members
    -------
    frames : In, stream of :class:`.Frame`
        Frames from the MAC, preceded by two octets of padding; ``ready`` is always 1.
    station : In, :class:`.Station`
        The addresses of this host.
    examined, examines, kinds : Out, 32 bits; Out, 1 bit; In, :class:`.Kinds`
        To a :class:`.Classifier`.
    tcp, udp, icmp : Out, signature :class:`.PacketWriter`
        Each packet consists of the sender's address as it lies in the header, the length of the IPv4 payload in bits
        15:0 of a word, and this payload.
    arp : Out, stream of :class:`ArpPacket`
        While a packet is not taken, others are discarded.
    counts : Out, :class:`.Counts`
        The discarded frames.

    """

    def __init__(self, *, tcp_words: int, udp_words: int, icmp_words: int, udp_ports: Iterable[int]):
        self.udp_ports = tuple(udp_ports)
        for port in self.udp_ports:
            if not 0 < port < 1 << 16:
                raise ValueError(f"a UDP port is 1 to 65535, not {port!r}")
        super().__init__({
            "frames": In(stream.Signature(Frame())),
            "station": In(Station()),
            "examined": Out(32),
            "examines": Out(1),
            "kinds": In(Kinds()),
            "tcp": Out(PacketWriter(tcp_words)),
            "udp": Out(PacketWriter(udp_words)),
            "icmp": Out(PacketWriter(icmp_words)),
            "arp": Out(stream.Signature(ArpPacket())),
            "counts": Out(Counts()),
        })

        self._valid = Signal()
        self._beat = Signal(Frame(), reset_less=True)
        self._at = Signal(11, init=1)  # bit n: the beat is word n
        self._begins = Signal(11)  # bit n: the valid beat is word n
        self._ends = Signal()
        self._too_long = Signal()
        self._tagged = Signal()
        self._in_vlan = Signal()  # the tag has not only a priority, but a VLAN ID

        self._to_us = Signal()
        self._to_all = Signal()
        self._ip_follows = Signal()
        self._is_ip = Signal()
        self._is_arp = Signal()
        self._is_tcp = Signal()
        self._is_udp = Signal()
        self._is_icmp = Signal()

        self._total = Signal(16)  # Total Length, in word 4
        self._payload_lanes = Signal(_LENGTH_BITS - 1)  # of the payload's length, and its sign
        self._payload_length = Signal(_LENGTH_BITS)
        self._in_header = Signal()
        self._in_payload = Signal()  # or in the octets behind the packet
        self._in_data = Signal()  # a word of the payload
        self._tail = Signal(2)  # octets in the packet's last word, modulo 4
        self._final = Signal()  # this is the packet's last word
        self._whole = Signal()  # the packet has arrived, or arrives with this word

        self._arp_packet = Signal(ArpPacket(), reset_less=True, name="arp_packet")
        self._keeps_arp = Signal()  # the fields of this packet are kept
        self._no_mac = Signal()  # the first octets of the sender's MAC are 0
        self._formed = Signal()  # the transport's header is well-formed, up to this word
        self._no_checksum = Signal()
        self._correct = Signal()  # the checksums
        self._ended = Signal(3)  # bit n: the frame's last beat was n + 1 cycles ago
        self._sound = Signal(3)  # bit n: but for checksums, it was a good one
        self._intact = Signal(3)  # bit n: as far as the MAC knows

    def elaborate(self, platform):
        m = Module()
        self._count(m)
        self._take(m, self._ethernet_fields())
        self._take(m, self._protocol_fields())
        self._measure(m)
        self._find_payload(m)
        self._take_arp(m)
        self._check_transport(m)
        self._add(m)
        self._judge(m)
        self._store(m)
        return m

    def _count(self, m):
        """The beat, and its number in the frame."""
        lane, valid, at = self._beat.data, self._valid, self._at
        index = Signal(range(MOST_WORDS + 1))
        m.d.comb += [
            self.frames.ready.eq(1),
            self._begins.eq(at & valid.replicate(11)),
            self._ends.eq(valid & self._beat.last),
        ]
        m.d.sync += [valid.eq(self.frames.valid), self._beat.eq(self.frames.payload)]
        # A tag (IEEE 802.1Q §9.6) stands in front of the EtherType: the word behind is the same as without.
        tag = Signal()
        m.d.comb += tag.eq(at[3] & ~self._tagged & (lane[16:] == lane16(EtherType.VLAN)))
        with m.If(self._ends):
            m.d.sync += [at.eq(1), index.eq(0), self._too_long.eq(0), self._tagged.eq(0)]
        with m.Elif(valid & tag):
            m.d.sync += self._tagged.eq(1)
        with m.Elif(valid):
            m.d.sync += [at.eq(at << 1), index.eq(index + 1)]
            with m.If(index == MOST_WORDS - 1):
                m.d.sync += self._too_long.eq(1)
        m.d.comb += [
            self._in_vlan.eq(self._tagged & Cat(lane[:4], lane[8:16]).any()),
            self._ip_follows.eq((lane[16:] == lane16(EtherType.IPV4)) & ~self._in_vlan),
        ]

    def _take(self, m, fields):
        """Take the fields of each word of a table when it begins."""
        for word, taken in fields.items():
            with m.If(self._begins[word]):
                m.d.sync += [field.eq(value) for field, value in taken]

    def _ethernet_fields(self):
        lane, mac, to_us, to_all = self._beat.data, self.station.mac, self._to_us, self._to_all
        return {
            0: [(to_us, lane[16:] == mac[:16]), (to_all, lane[16:] == 0xFFFF)],
            1: [(to_us, to_us & (lane == mac[16:])), (to_all, to_all & (lane == 0xFFFF_FFFF))],
            3: [
                (self._is_ip, self._ip_follows),
                (self._is_arp, (lane[16:] == lane16(EtherType.ARP)) & ~self._in_vlan),
            ],
        }

    def _protocol_fields(self):
        protocol = self._beat.data[8:16]
        return {
            6: [
                (self._is_tcp, protocol == Protocol.TCP),
                (self._is_udp, (protocol == Protocol.UDP) & bool(self.udp_ports)),
                (self._is_icmp, protocol == Protocol.ICMP),
            ],
        }

    def _ip_faults(self):
        """Return what is wrong with each word of an IPv4 header."""
        lane, kinds = self._beat.data, self.kinds
        return {
            4: (lane[4:8] != 4) | (lane[:4] < 5) | self._total[_LENGTH_BITS:].any(),
            5: self._payload_lanes[-1] | Cat(lane[16:22], lane[24:]).any(),  # a length, or a fragment
            7: kinds.no_host | kinds.broadcast | kinds.ours | ~kinds.routed,  # RFC 1122 §3.2.1.3
            # RFC 1122 §3.2.2.6, §3.3.6; RFC 9293 §3.9.2.3
            8: ~((kinds.ours & ~self._to_all) | (kinds.broadcast & self._is_udp)),
        }

    def _measure(self, m):
        """The lengths in the IPv4 header, and the words of the packet."""
        beat, begins, tail, lane = self._beat, self._begins, self._tail, self._beat.data
        ihl = Signal(4)
        total_kept = Signal(_LENGTH_BITS)
        in_packet = Signal()
        packet_left = Signal(_LENGTH_BITS - 2)  # full words of the packet from the previous one on
        whole = Signal()
        becomes_whole = Signal()
        m.d.comb += [
            self._total.eq(swap_octets(lane[16:])),
            self._payload_lanes.eq(total_kept[2:] - ihl),
            self._final.eq(in_packet & (packet_left == Mux(tail == 0, 2, 1))),
            becomes_whole.eq(Mux(self._is_arp, self._at[10] & (~beat.last | beat.octets[2]),
                                 self._final & (~beat.last | Mux(tail == 0, beat.octets[2], beat.octets >= tail)))),
            self._whole.eq(whole | becomes_whole),
        ]  # fmt: skip
        with m.If(begins[4]):
            m.d.sync += [ihl.eq(lane[:4]), total_kept.eq(self._total)]
        with m.If(begins[5]):
            m.d.sync += self._payload_length.eq(Cat(total_kept[:2], self._payload_lanes))
        with m.If(self._ends):
            m.d.sync += in_packet.eq(0)
        with m.Elif(begins[4] & self._is_ip):
            m.d.sync += [in_packet.eq(1), packet_left.eq(self._total[2:]), tail.eq(self._total)]
        with m.Elif(self._valid):
            m.d.sync += packet_left.eq(packet_left - 1)
            with m.If(self._final):
                m.d.sync += in_packet.eq(0)
        with m.If(self._ends):
            m.d.sync += whole.eq(0)
        with m.Elif(self._valid & becomes_whole):
            m.d.sync += whole.eq(1)
        m.d.comb += self._in_data.eq(self._valid & self._in_payload & in_packet)

    def _find_payload(self, m):
        """The payload follows the IPv4 header, whose options are skipped."""
        begins, lane = self._begins, self._beat.data
        header_left = Signal(4)  # words of the header, from this one on
        with m.If(begins[3]):
            m.d.sync += self._in_header.eq(self._ip_follows & ~self._beat.last)
        with m.If(begins[4]):
            m.d.sync += header_left.eq(lane[:4] - 1)
        with m.Elif(self._valid):
            m.d.sync += header_left.eq(header_left - 1)
        with m.If(self._ends):
            m.d.sync += [self._in_header.eq(0), self._in_payload.eq(0)]
        with m.Elif(self._valid & self._in_header & (header_left == 1) & ~self._at[4]):
            m.d.sync += [self._in_header.eq(0), self._in_payload.eq(1)]

    def _arp_faults(self):
        """Return what is wrong with each word of an ARP packet (RFC 826)."""
        lane = self._beat.data
        return {
            4: lane != 0x0008_0100,
            5: (lane[:24] != 0x00_0406) | ~((lane[24:] == 1) | (lane[24:] == 2)),
            6: lane[0],
            7: self._no_mac & (lane[:16] == 0),
        }

    def _take_arp(self, m):
        """The fields of an ARP packet (RFC 826)."""
        lane, arp, mac = self._beat.data, self._arp_packet, self.station.mac
        is_request = Signal()
        our_mac = Signal()
        self._take(m, {
            3: [(self._keeps_arp, ~self.arp.valid)],
            5: [(is_request, lane[24])],
            6: [(self._no_mac, lane == 0), (our_mac, lane == mac[:32])],
        })
        with m.If(self._keeps_arp & self._is_arp & ~self.arp.valid):
            self._take(m, {
                6: [(arp.mac[:32], lane)],
                7: [
                    (arp.mac[32:], lane),
                    (arp.address[:16], lane[16:]),
                    (arp.reflected, our_mac & (lane[:16] == mac[32:])),
                ],
                8: [(arp.address[16:], lane)],
                10: [(arp.asks, is_request & self.kinds.ours)],
            })

    def _check_transport(self, m):
        """The checks of the payload's first words."""
        lane, length = self._beat.data, self._payload_length
        nth = Signal(4)  # bit n: the next word of the payload is word n
        formed = Signal()
        becomes_formed = Signal()
        known_port = Signal()
        offset = lane[4:8]  # of TCP's data
        long_enough = length[3:].any()  # for the headers of UDP and ICMP
        m.d.comb += [
            becomes_formed.eq(
                (nth[3] & self._is_tcp & (offset >= 5) & (offset <= length[2:]))
                | (nth[1] & self._is_udp & (swap_octets(lane[:16]) == length) & long_enough & known_port)
                | (nth[0] & self._is_icmp & (lane[:16] == _ECHO) & long_enough)
            ),
            self._formed.eq(formed | (self._in_data & becomes_formed)),
        ]
        with m.If(self._begins[6]):
            m.d.sync += [nth.eq(1), formed.eq(0)]
        with m.If(self._in_data):
            m.d.sync += [nth.eq(nth << 1), formed.eq(formed | becomes_formed)]
            with m.If(nth[0]):
                m.d.sync += known_port.eq(Cat(lane[16:] == lane16(port) for port in self.udp_ports).any())
            with m.If(nth[1]):
                m.d.sync += self._no_checksum.eq(lane[16:] == 0)

    def _add(self, m):
        """The sums of the header, and of the payload with the pseudo-header, whose end is added behind the frame."""
        lane, begins, tail = self._beat.data, self._begins, self._tail
        length = swap_octets(Cat(self._payload_length, Const(0, 5)))
        header_sum = Signal(SUM_BITS)
        payload_sum = Signal(SUM_BITS)
        header_folded = Signal(FOLDED_BITS)
        payload_folded = Signal(FOLDED_BITS)
        summand = Signal(32)
        protocol = Signal(8)
        kept_octets = Cat(~self._final | (tail == 0) | (octet < tail) for octet in range(4))
        kept_bits = Cat(each.replicate(8) for each in kept_octets)
        m.d.comb += [
            protocol.eq(Mux(self._is_udp, Protocol.UDP, Protocol.TCP)),
            summand.eq(Mux(self._ended[0], Cat(length, Const(0, 8), protocol), lane & kept_bits)),
        ]
        with m.If(begins[3]):
            m.d.sync += header_sum.eq(0)
        with m.Elif(self._valid & self._in_header):
            m.d.sync += header_sum.eq(add_word(header_sum, lane))
        with m.If(begins[6]):
            m.d.sync += payload_sum.eq(0)
        with m.Elif(self._in_data | (~self._is_icmp & (begins[7] | begins[8] | self._ended[0]))):
            m.d.sync += payload_sum.eq(add_word(payload_sum, summand))
        m.d.sync += [header_folded.eq(fold(header_sum)), payload_folded.eq(fold(payload_sum))]
        payload_correct = is_correct(payload_folded) | (self._is_udp & self._no_checksum)
        m.d.comb += self._correct.eq(self._is_arp | (is_correct(header_folded) & payload_correct))

    def _judge(self, m):
        """The verdict, 3 cycles after the last beat, when both sums have been folded."""
        fine = Signal()
        wrong = Signal()
        sound = Signal()
        wrong_ip, wrong_arp = (
            reduce(or_, (self._at[word] & fault for word, fault in faults.items()))
            for faults in (self._ip_faults(), self._arp_faults())
        )
        m.d.comb += [
            self.examined.eq(self._beat.data),
            self.examines.eq(self._begins[7] | self._begins[8] | self._begins[10]),
            wrong.eq(self._valid & ((self._is_ip & wrong_ip) | (self._is_arp & wrong_arp))),
            sound.eq(fine & ~wrong & ~self._too_long & self._whole & (self._is_arp | (self._is_ip & self._formed))),
        ]
        with m.If(self._begins[3]):
            m.d.sync += fine.eq(self._to_us | self._to_all)
        with m.Elif(wrong):
            m.d.sync += fine.eq(0)
        m.d.sync += [
            self._ended.eq(Cat(self._ends, self._ended)),
            self._intact.eq(Cat(~self._beat.bad, self._intact)),
            self._sound.eq(Cat(sound, self._sound)),
        ]

    def _store(self, m):
        """The queues: all store the payload of each packet; one of them commits it, if it fits."""
        begins, lane = self._begins, self._beat.data
        place = Signal(range(MOST_WORDS + 2))
        stores = Signal()
        m.d.comb += stores.eq(begins[7] | begins[8] | self._in_data)
        with m.If(begins[6]):
            m.d.sync += place.eq(0)
        with m.Elif(stores):
            m.d.sync += place.eq(place + 1)
        arrived = self._ended[2] & self._intact[2]
        good = Signal()
        m.d.comb += good.eq(arrived & self._sound[2] & self._correct)
        no_room = Signal(3)
        queues = ((self.tcp, self._is_tcp), (self.udp, self._is_udp), (self.icmp, self._is_icmp))
        for nth, (queue, chosen) in enumerate(queues):
            full = Signal(name=f"full_{nth}")
            with m.If(begins[6]):
                m.d.sync += full.eq(0)
            with m.Elif(stores & ~queue.fits):
                m.d.sync += full.eq(1)
            m.d.comb += [
                queue.place.eq(place),
                queue.word.data.eq(Mux(self._at[8], Cat(self._payload_length, Const(0, 5), lane[16:]), lane)),
                queue.word.octets.eq(Cat(self._tail, self._tail == 0)),
                queue.word.last.eq(self._final),
                queue.low.eq(stores),
                queue.high.eq(stores),
                queue.commit.eq(good & self._is_ip & chosen & ~full),
                no_room[nth].eq(self._is_ip & chosen & full),
            ]
        m.d.comb += [
            self.arp.payload.eq(self._arp_packet),
            self.counts.no_room.eq(good & Mux(self._is_arp, ~self._keeps_arp, no_room.any())),
            self.counts.checksum.eq(arrived & self._sound[2] & ~self._correct),
            self.counts.ignored.eq(arrived & ~self._sound[2]),
        ]
        with m.If(good & self._is_arp & self._keeps_arp):
            m.d.sync += self.arp.valid.eq(1)
        with m.Elif(self.arp.ready):
            m.d.sync += self.arp.valid.eq(0)
