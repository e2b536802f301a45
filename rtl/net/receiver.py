"""Parses and checks received frames."""

from collections.abc import Iterable

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

    def elaborate(self, platform):
        m = Module()
        station = self.station

        # The beat, and its number in the frame.
        valid = Signal()
        beat = Signal(Frame(), reset_less=True)
        at = Signal(11, init=1)  # bit n: the beat is word n
        index = Signal(range(MOST_WORDS + 1))
        too_long = Signal()
        begins = Signal(11)
        ends = Signal()
        lane = beat.data
        m.d.comb += [
            self.frames.ready.eq(1),
            begins.eq(at & valid.replicate(11)),
            ends.eq(valid & beat.last),
        ]
        m.d.sync += [valid.eq(self.frames.valid), beat.eq(self.frames.payload)]
        # A tag (IEEE 802.1Q §9.6) stands in front of the EtherType: the word behind is the same as without.
        tagged = Signal()
        tag = Signal()
        m.d.comb += tag.eq(at[3] & ~tagged & (lane[16:] == lane16(EtherType.VLAN)))
        with m.If(ends):
            m.d.sync += [at.eq(1), index.eq(0), too_long.eq(0), tagged.eq(0)]
        with m.Elif(valid & tag):
            m.d.sync += tagged.eq(1)
        with m.Elif(valid):
            m.d.sync += [at.eq(at << 1), index.eq(index + 1)]
            with m.If(index == MOST_WORDS - 1):
                m.d.sync += too_long.eq(1)

        # The Ethernet header.
        to_us = Signal()
        to_all = Signal()
        is_ip = Signal()
        is_arp = Signal()
        with m.If(begins[0]):
            m.d.sync += [to_us.eq(lane[16:] == station.mac[:16]), to_all.eq(lane[16:] == 0xFFFF)]
        with m.If(begins[1]):
            m.d.sync += [to_us.eq(to_us & (lane == station.mac[16:])), to_all.eq(to_all & (lane == 0xFFFF_FFFF))]
        ip_follows = Signal()
        in_vlan = Signal()  # the tag has not only a priority, but a VLAN ID
        m.d.comb += [
            in_vlan.eq(tagged & Cat(lane[:4], lane[8:16]).any()),
            ip_follows.eq((lane[16:] == lane16(EtherType.IPV4)) & ~in_vlan),
        ]
        with m.If(begins[3]):
            m.d.sync += [is_ip.eq(ip_follows), is_arp.eq((lane[16:] == lane16(EtherType.ARP)) & ~in_vlan)]

        # The extent of the IPv4 packet and its header.
        total = Signal(16)  # Total Length, in word 4
        ihl = Signal(4)
        payload_lanes = Signal(_LENGTH_BITS - 1)
        payload_length = Signal(_LENGTH_BITS)
        total_kept = Signal(_LENGTH_BITS)
        in_header = Signal()
        header_left = Signal(4)  # words of the header, from this one on
        in_payload = Signal()  # or in the octets behind the packet
        in_packet = Signal()
        packet_left = Signal(_LENGTH_BITS - 2)  # full words of the packet from the previous one on
        tail = Signal(2)  # octets in the packet's last word, modulo 4
        final = Signal()  # this is the packet's last word
        whole = Signal()  # the packet has arrived
        becomes_whole = Signal()
        m.d.comb += [
            total.eq(swap_octets(lane[16:])),
            payload_lanes.eq(total_kept[2:] - ihl),
            final.eq(in_packet & (packet_left == Mux(tail == 0, 2, 1))),
            becomes_whole.eq(Mux(is_arp, at[10] & (~beat.last | beat.octets[2]),
                                 final & (~beat.last | Mux(tail == 0, beat.octets[2], beat.octets >= tail)))),
        ]  # fmt: skip
        with m.If(begins[3]):
            m.d.sync += in_header.eq(ip_follows & ~beat.last)
        with m.If(begins[4]):
            m.d.sync += [ihl.eq(lane[:4]), header_left.eq(lane[:4] - 1), total_kept.eq(total)]
        with m.Elif(valid):
            m.d.sync += header_left.eq(header_left - 1)
        with m.If(begins[5]):
            m.d.sync += payload_length.eq(Cat(total_kept[:2], payload_lanes))
        with m.If(ends):
            m.d.sync += [in_header.eq(0), in_payload.eq(0), in_packet.eq(0)]
        with m.Elif(begins[4] & is_ip):
            m.d.sync += [in_packet.eq(1), packet_left.eq(total[2:]), tail.eq(total)]
        with m.Elif(valid):
            m.d.sync += packet_left.eq(packet_left - 1)
            with m.If(final):
                m.d.sync += in_packet.eq(0)
            with m.If(in_header & (header_left == 1) & ~at[4]):
                m.d.sync += [in_header.eq(0), in_payload.eq(1)]
        with m.If(ends):
            m.d.sync += whole.eq(0)
        with m.Elif(valid & becomes_whole):
            m.d.sync += whole.eq(1)

        # The checks of the IPv4 header.
        is_tcp = Signal()
        is_udp = Signal()
        is_icmp = Signal()
        wrong_ip = Signal()
        m.d.comb += wrong_ip.eq(
            (at[4] & ((lane[4:8] != 4) | (lane[:4] < 5) | total[_LENGTH_BITS:].any()))
            | (at[5] & (payload_lanes[-1] | Cat(lane[16:22], lane[24:]).any()))  # a length, or a fragment
        )
        with m.If(begins[6]):
            m.d.sync += [
                is_tcp.eq(lane[8:16] == Protocol.TCP),
                is_udp.eq((lane[8:16] == Protocol.UDP) & bool(self.udp_ports)),
                is_icmp.eq(lane[8:16] == Protocol.ICMP),
            ]

        # The addresses.
        kinds = self.kinds
        wrong_address = Signal()
        m.d.comb += [
            self.examined.eq(lane),
            self.examines.eq(begins[7] | begins[8] | begins[10]),
            wrong_address.eq(
                (at[7] & (kinds.no_host | kinds.broadcast | kinds.ours | ~kinds.routed))  # RFC 1122 §3.2.1.3
                # RFC 1122 §3.2.2.6, §3.3.6; RFC 9293 §3.9.2.3
                | (at[8] & ~((kinds.ours & ~to_all) | (kinds.broadcast & is_udp)))
            ),
        ]

        # ARP (RFC 826).
        arp = Signal(ArpPacket(), reset_less=True)
        keeps = Signal()  # the fields of this packet are kept
        is_request = Signal()
        no_mac = Signal()
        our_mac = Signal()
        wrong_arp = Signal()
        m.d.comb += wrong_arp.eq(
            (at[4] & (lane != 0x0008_0100))
            | (at[5] & ((lane[:24] != 0x00_0406) | ~((lane[24:] == 1) | (lane[24:] == 2))))
            | (at[6] & lane[0])
            | (at[7] & no_mac & (lane[:16] == 0))
        )
        with m.If(begins[3]):
            m.d.sync += keeps.eq(~self.arp.valid)
        with m.If(begins[5]):
            m.d.sync += is_request.eq(lane[24])
        with m.If(begins[6]):
            m.d.sync += [no_mac.eq(lane == 0), our_mac.eq(lane == station.mac[:32])]
        with m.If(keeps & is_arp & ~self.arp.valid):
            with m.If(begins[6]):
                m.d.sync += arp.mac[:32].eq(lane)
            with m.If(begins[7]):
                m.d.sync += [
                    arp.mac[32:].eq(lane),
                    arp.address[:16].eq(lane[16:]),
                    arp.reflected.eq(our_mac & (lane[:16] == station.mac[32:])),
                ]
            with m.If(begins[8]):
                m.d.sync += arp.address[16:].eq(lane)
            with m.If(begins[10]):
                m.d.sync += arp.asks.eq(is_request & kinds.ours)

        # The words of the payload, and the checks of its first words.
        in_data = Signal()  # a word of the payload
        nth = Signal(4)  # bit n: the next word of the payload is word n
        formed = Signal()  # the transport's header is well-formed
        becomes_formed = Signal()
        no_checksum = Signal()
        known_port = Signal()
        offset = lane[4:8]  # of TCP's data
        long_enough = payload_length[3:].any()  # for the headers of UDP and ICMP
        m.d.comb += [
            in_data.eq(valid & in_payload & in_packet),
            becomes_formed.eq(
                (nth[3] & is_tcp & (offset >= 5) & (offset <= payload_length[2:]))
                | (nth[1] & is_udp & (swap_octets(lane[:16]) == payload_length) & long_enough & known_port)
                | (nth[0] & is_icmp & (lane[:16] == _ECHO) & long_enough)
            ),
        ]
        with m.If(begins[6]):
            m.d.sync += [nth.eq(1), formed.eq(0)]
        with m.If(in_data):
            m.d.sync += [
                nth.eq(nth << 1),
                formed.eq(formed | becomes_formed),
            ]
            with m.If(nth[0]):
                m.d.sync += known_port.eq(Cat(lane[16:] == lane16(port) for port in self.udp_ports).any())
            with m.If(nth[1]):
                m.d.sync += no_checksum.eq(lane[16:] == 0)

        # The sums of the header and of the payload with the pseudo-header, whose last word is added after the frame.
        header_sum = Signal(SUM_BITS)
        payload_sum = Signal(SUM_BITS)
        summand = Signal(32)
        protocol = Signal(8)
        ended = Signal(3)  # bit n: the frame's last beat was n + 1 cycles ago
        kept_octets = Cat(~final | (tail == 0) | (octet < tail) for octet in range(4))
        kept_bits = Cat(each.replicate(8) for each in kept_octets)
        m.d.comb += [
            protocol.eq(Mux(is_udp, Protocol.UDP, Protocol.TCP)),
            summand.eq(Mux(ended[0], Cat(swap_octets(Cat(payload_length, Const(0, 5))),
                                         Const(0, 8), protocol), lane & kept_bits)),
        ]  # fmt: skip
        with m.If(begins[3]):
            m.d.sync += header_sum.eq(0)
        with m.Elif(valid & in_header):
            m.d.sync += header_sum.eq(add_word(header_sum, lane))
        with m.If(begins[6]):
            m.d.sync += payload_sum.eq(0)
        with m.Elif(in_data | (~is_icmp & (begins[7] | begins[8] | ended[0]))):
            m.d.sync += payload_sum.eq(add_word(payload_sum, summand))

        # The verdict, 3 cycles after the last beat, when both sums have been folded.
        fine = Signal()
        wrong = Signal()
        sound = Signal(3)
        intact = Signal(3)  # as far as the MAC knows
        header_folded = Signal(FOLDED_BITS)
        payload_folded = Signal(FOLDED_BITS)
        correct = Signal()
        m.d.comb += [
            wrong.eq(valid & ((is_ip & (wrong_ip | wrong_address)) | (is_arp & wrong_arp))),
            correct.eq(is_arp | (is_correct(header_folded)
                                 & (is_correct(payload_folded) | (is_udp & no_checksum)))),
        ]  # fmt: skip
        with m.If(begins[3]):
            m.d.sync += fine.eq(to_us | to_all)
        with m.Elif(wrong):
            m.d.sync += fine.eq(0)
        m.d.sync += [
            header_folded.eq(fold(header_sum)),
            payload_folded.eq(fold(payload_sum)),
            ended.eq(Cat(ends, ended)),
            intact.eq(Cat(~beat.bad, intact)),
            sound.eq(Cat(fine & ~wrong & ~too_long & (whole | becomes_whole)
                         & (is_arp | (is_ip & (formed | (in_data & becomes_formed)))), sound)),
        ]  # fmt: skip

        # The queues: all store the payload of each packet; one of them commits it, if it fits.
        place = Signal(range(MOST_WORDS + 2))
        stores = Signal()
        m.d.comb += stores.eq(begins[7] | begins[8] | in_data)
        with m.If(begins[6]):
            m.d.sync += place.eq(0)
        with m.Elif(stores):
            m.d.sync += place.eq(place + 1)
        good = Signal()
        m.d.comb += good.eq(ended[2] & sound[2] & intact[2] & correct)
        no_room = Signal(3)
        for nth_queue, (queue, chosen) in enumerate(((self.tcp, is_tcp), (self.udp, is_udp), (self.icmp, is_icmp))):
            full = Signal(name=f"full_{nth_queue}")
            with m.If(begins[6]):
                m.d.sync += full.eq(0)
            with m.Elif(stores & ~queue.fits):
                m.d.sync += full.eq(1)
            m.d.comb += [
                queue.place.eq(place),
                queue.word.data.eq(Mux(at[8], Cat(payload_length, Const(0, 5), lane[16:]), lane)),
                queue.word.octets.eq(Cat(tail, tail == 0)),
                queue.word.last.eq(final),
                queue.low.eq(stores),
                queue.high.eq(stores),
                queue.commit.eq(good & is_ip & chosen & ~full),
                no_room[nth_queue].eq(is_ip & chosen & full),
            ]

        m.d.comb += [
            self.arp.payload.eq(arp),
            self.counts.no_room.eq(good & Mux(is_arp, ~keeps, no_room.any())),
            self.counts.checksum.eq(ended[2] & intact[2] & sound[2] & ~correct),
            self.counts.ignored.eq(ended[2] & intact[2] & ~sound[2]),
        ]
        with m.If(good & is_arp & keeps):
            m.d.sync += self.arp.valid.eq(1)
        with m.Elif(self.arp.ready):
            m.d.sync += self.arp.valid.eq(0)
        return m
