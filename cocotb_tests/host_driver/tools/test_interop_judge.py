"""The verdict on a capture: the output of tshark, required contents, and a capture of a real siw."""

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from dpkt import pcap, pcapng

from open_rnic.cocotb_tests.plugins.system_packages import needs
from open_rnic.host_driver.mpa.startup_frames import EnhancedData, FrameKind, StartupFrame
from open_rnic.host_driver.tools.interop import judge
from open_rnic.host_driver.tools.interop.capture import extract
from open_rnic.host_driver.tools.interop.judge import Expected, read, verdict

RECORDED = Path(__file__).parents[3] / "docs" / "interop" / "rping.pcapng"  # one ping to a guest's rping
OURS, SIW = "10.0.2.2", "10.0.2.15"
RAW = {OURS: 0, SIW: 0}


def frame(number, source, *lines):
    """Return one frame as tshark prints it with -V and -O."""
    other = SIW if source == OURS else OURS
    return "\n".join(
        (f"Frame {number}: 78 bytes on wire", f"Internet Protocol Version 4, Src: {source}, Dst: {other}", *lines)
    )


def fpdu(ulpdu_length, crc="Good CRC32", opcode="Send (0x3)"):
    lines = ("    FPDU", f"        ULPDU length: {ulpdu_length} bytes", f"        CRC check: 0x01020304 ({crc})")
    return (*lines, f"            .... 0011 = OpCode: {opcode}")


TERMINATE = (
    *fpdu(22, "Bad CRC32, should be 0x11e5f8d6", "Terminate (0x7)"),
    "            Terminate Control",
    "                0000 .... = Layer: RDMA (0x0)",
    "                .... 0010 = Error Types for RDMA layer: Remote Operation Error (0x2)",
    "                Error Code for RDMA layer: Catastrophic error, localized to RDMAP Stream (0x07)",
)
STARTUP = (
    frame(1, OURS, "    Request frame header", "        Private data length: 4 bytes"),
    frame(2, SIW, "    Reply frame header", "        Private data length: 5 bytes"),
)
GOOD = "\n".join((*STARTUP, frame(3, OURS, *fpdu(14), *fpdu(35)), frame(4, SIW, *fpdu(46))))
OCTETS = {OURS: 24 + 20 + 44, SIW: 25 + 52}


def test_the_output_of_tshark_is_parsed():
    found = read(GOOD)
    assert (found.ours.fpdus, found.ours.good, found.ours.octets) == (2, 2, OCTETS[OURS])
    assert (found.siw.fpdus, found.siw.good, found.siw.octets) == (1, 1, OCTETS[SIW])
    assert found.ours.opcodes == {"Send": 2}
    assert judge.summary(found) == "3 FPDUs, 3 good CRCs"


def test_a_good_capture_has_no_errors():
    assert verdict(read(GOOD), OCTETS, Expected(), sent=2) == []
    assert verdict(read(GOOD), OCTETS, Expected(late=1), sent=3) == []
    assert verdict(read(GOOD), OCTETS, Expected(least=(77, 88)), sent=2) == []


@pytest.mark.parametrize(
    ("change", "octets", "expected", "sent", "wrong"),
    [
        (lambda text: text.replace("Good", "Bad", 1), OCTETS, Expected(), 2, "1 bad CRCs in the FPDUs from our end"),
        (str, OCTETS, Expected(bad_siw=1), 2, "0 bad CRCs in the FPDUs from siw; expected: 1"),
        (str, OCTETS, Expected(crc=False), 2, "2 good CRCs in 2 FPDUs"),
        (str, OCTETS, Expected(crc=None), 2, "without a connection"),
        (str, OCTETS, Expected(), 3, "finds 2 FPDUs from our end, which sent 3"),
        (str, OCTETS, Expected(late=1), 4, "finds 2 FPDUs from our end, which sent 4"),
        (str, OCTETS, Expected(late=1), 1, "finds 2 FPDUs from our end, which sent 1"),
        (str, OCTETS, Expected(least=(78, 0)), 2, "77 octets came from siw; expected: 78 or more"),
        (str, OCTETS, Expected(least=(0, 89)), 2, "88 octets came from our end; expected: 89 or more"),
        (str, OCTETS | {SIW: 100}, Expected(), 2, "dissects 77 of the 100 octets from siw"),
        (str, OCTETS, Expected(terminates=("ours 2/0/2",)), 2, "sees Terminates: none; expected: ours 2/0/2"),
        (lambda text: text + "\n[Malformed Packet: MPA]", OCTETS, Expected(), 2, "cannot read frame 4"),
    ],
)
def test_deviations_are_reported(change, octets, expected, sent, wrong):
    assert any(wrong in line for line in verdict(read(change(GOOD)), octets, expected, sent))


def test_terminates_are_reported_as_on_the_wire():
    found = read("\n".join((*STARTUP, frame(3, SIW, *TERMINATE))))
    assert found.siw.terminates == ["0/2/7"]
    expected = Expected(terminates=("siw 0/2/7",), bad_siw=1)
    octets = {OURS: 24, SIW: 25 + 28}
    assert verdict(found, octets, expected, sent=0) == []
    assert verdict(found, octets, replace(expected, terminates=()), sent=0)


def packet(source, destination, ports, sequence, flags, octets=b"", ack=0):
    """Return an Ethernet frame with a TCP segment; addresses are the last two octets of 10.0.0.0/16."""
    tcp = struct.pack(">HHIIBBHHH", *ports, sequence % 2**32, ack % 2**32, 0x50, flags, 65535, 0, 0) + octets
    addresses = bytes((10, 0, *source, 10, 0, *destination))
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + addresses
    return bytes(12) + b"\x08\x00" + ip + tcp


HOST, GUEST = (2, 2), (2, 15)
THERE, BACK = (5000, 7174), (7174, 5000)
ACK = 0x10


def extracted(tmp_path, packets, ports=(7174,), times=()):
    """Return the traffic, the original packets, and the TCP payloads in the aligned copy."""
    raw, file, aligned = tmp_path / "raw.pcap", tmp_path / "out.pcapng", tmp_path / "aligned.pcapng"
    with raw.open("wb") as out:
        writer = pcap.Writer(out)
        for octets, time in zip(packets, times or [1.0] * len(packets), strict=True):
            writer.writepkt(octets, ts=time)
    with raw.open("ab") as out:
        out.write(bytes(9))  # an incomplete packet
    traffic = extract(raw, file, aligned, ports)
    with file.open("rb") as written, aligned.open("rb") as copy:
        return traffic, [each for _, each in pcapng.Reader(written)], [each[54:] for _, each in pcapng.Reader(copy)]


def test_a_capture_has_only_packets_of_its_ports_and_counts_octets_once(tmp_path):
    packets = [
        packet(HOST, GUEST, THERE, 2**32 - 2, 2),
        packet(GUEST, HOST, BACK, 9, 0x12),
        packet(HOST, GUEST, (6000, 7000), 1, 2, b"agent"),
        packet(HOST, GUEST, THERE, 2**32 - 1, ACK, b"MPA "),
        packet(HOST, GUEST, THERE, 2**32 - 1, ACK, b"MPA "),  # retransmitted
        packet(HOST, GUEST, THERE, 3, ACK, b"ID R"),
        packet(HOST, GUEST, THERE, 7, 0x11),
        b"not IP, and short",
    ]
    traffic, written, aligned = extracted(tmp_path, packets)
    assert traffic.octets == {OURS: 8, SIW: 0}
    assert written == packets[:2] + packets[3:7]
    assert aligned == [b"", b""]  # no frame is complete


@pytest.mark.parametrize("size", [1, 7, 24, 1460])
def test_every_frame_has_its_own_segment_in_the_copy(tmp_path, size):
    request = StartupFrame(FrameKind.REQUEST, private_data=b"abc").encode()
    fpdus = [bytes.fromhex("000568656c6c6f009fd73e48"), bytes(8), b"\x04\x00" + bytes(1024 + 2 + 4)]
    stream = request + b"".join(fpdus) + b"\0\5he"
    reply = StartupFrame(FrameKind.REPLY).encode()
    packets = [packet(HOST, GUEST, THERE, 2**32 - 100, 2), packet(GUEST, HOST, BACK, 9, 0x12)]
    there = [
        packet(HOST, GUEST, THERE, 2**32 - 99 + at, ACK, stream[at : at + size]) for at in range(0, len(stream), size)
    ]
    there[1:3] = there[2:0:-1]  # out of order
    back = [packet(GUEST, HOST, BACK, 10, ACK, reply + fpdus[0])]
    traffic, _, aligned = extracted(tmp_path, packets + there + back)
    assert traffic.octets == {OURS: len(stream), SIW: len(reply) + len(fpdus[0])}
    [(ours, siw)] = traffic.connections
    head = len(request)
    assert [(fpdu.offset, fpdu.size) for fpdu in ours.fpdus] == [(head, 12), (head + 12, 8), (head + 20, 1032)]
    assert sum(octets for _, _, octets in ours.segments) == len(stream)
    assert len(siw.frames) == 2
    assert aligned == [b"", b"", request, *fpdus, reply, fpdus[0]]


REQUEST, REPLY = (StartupFrame(kind).encode() for kind in (FrameKind.REQUEST, FrameKind.REPLY))
RTR = bytes.fromhex("000ec140 00000001 0000000000000000 ebd34c5f")
A_NUDGE = judge.NUDGED + bytes(12)


def exchange(tmp_path, *steps):
    """Return the traffic of a connection, from steps of time, sender and octets; siw acknowledges everything."""
    packets = [packet(HOST, GUEST, THERE, 99, 2), packet(GUEST, HOST, BACK, 9, 0x12, ack=100)]
    there, back = 100, 10
    for _, who, octets in steps:
        if who == "ours":
            packets.append(packet(HOST, GUEST, THERE, there, ACK, octets, ack=back))
            there += len(octets)
        else:
            packets.append(packet(GUEST, HOST, BACK, back, ACK, octets, ack=there))
            back += len(octets)
    return extracted(tmp_path, packets, times=[0.0, 0.0, *(time for time, *_ in steps)])[0]


BEGUN = ((0.1, "ours", REQUEST), (0.2, "siw", REPLY))


@pytest.mark.parametrize(("cut", "split"), [(3, False), (18, False), (19, True), (20, True), (23, True), (24, False)])
def test_a_pad_and_crc_in_two_pieces_is_found(tmp_path, cut, split):
    stream = 2 * RTR + bytes.fromhex("0010") + bytes(16 + 2 + 4) + RTR
    at = 2 * len(RTR)
    pieces = ((0.3, "ours", piece) for piece in (stream[: at + cut], stream[at + cut :]))
    assert judge.split(exchange(tmp_path, *BEGUN, *pieces)) == (len(REQUEST) + at if split else None)


def test_octets_that_reached_the_guest_before_a_nudge_were_overlooked_by_siw(tmp_path):
    lain = (*BEGUN, (0.3, "ours", RTR), (0.4, "siw", b""), (1.3, "ours", A_NUDGE), (1.4, "siw", RTR))
    assert judge.overlooked(exchange(tmp_path, *lain), 1) == []
    assert judge.overlooked(exchange(tmp_path, *lain), 2)


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        # this end had held an FPDU back
        (((0.3, "ours", RTR), (0.4, "siw", b""), (1.3, "ours", RTR), (1.3, "ours", A_NUDGE)), "for 0.00 s"),
        (((1.3, "ours", RTR + A_NUDGE), (1.4, "siw", RTR)), "for 0.00 s"),
        (((0.3, "ours", RTR), (1.0, "siw", b""), (1.3, "ours", A_NUDGE)), "for 0.30 s"),
        (((1.3, "ours", A_NUDGE), (1.4, "siw", RTR)), "our first FPDU was a nudge"),
        # siw had answered, and this end did not react
        (((0.3, "ours", RTR), (0.4, "siw", RTR), (1.3, "ours", A_NUDGE)), "siw had sent FPDUs"),
    ],
)
def test_errors_of_this_end_are_not_attributed_to_siw(tmp_path, steps, wrong):
    assert any(wrong in line for line in judge.overlooked(exchange(tmp_path, *BEGUN, *steps), 1))


def test_pieces_are_counted_as_received_by_each_end(tmp_path):
    steps = ((0.3, "ours", RTR + RTR[:4]), (0.4, "ours", RTR[4:]), (0.5, "ours", RTR * 5), (0.6, "siw", RTR * 2))
    siw, ours = judge.pieces(exchange(tmp_path, *BEGUN, *steps), [(0, 10), (10, 10), (20, 20), (40, 20)])
    assert siw == judge.Pieces(small=2, inside=5)
    assert ours == judge.Pieces(small=2, inside=0)


def test_ird_and_ord_of_our_frame_are_checked_in_the_capture(tmp_path):
    request = StartupFrame(FrameKind.REQUEST, enhanced=EnhancedData(ird=129, ord=2, peer_to_peer=True)).encode()
    traffic = exchange(tmp_path, (0.1, "ours", request), (0.2, "siw", REPLY))
    assert judge.streams(traffic, Expected(depths=(129, 2))) == []
    assert judge.streams(traffic, Expected(depths=(128, None))) == ["our startup frame has IRD 129, not 128"]


def test_siw_sent_first_only_if_the_capture_shows_it(tmp_path):
    first = exchange(tmp_path, *BEGUN, (0.3, "siw", RTR), (0.4, "ours", RTR), (0.5, "siw", RTR))
    assert judge.streams(first, Expected(siw_first=1)) == []
    assert judge.streams(first, Expected(siw_first=2)) == ["siw sent 1 FPDUs before our first FPDU; expected: 2"]
    assert judge.streams(first, Expected()) == []


@needs("tshark")
async def test_tshark_accepts_a_recorded_connection_with_siw():
    found = await judge.dissect(RECORDED)
    octets = {OURS: found.ours.octets, SIW: found.siw.octets}
    assert verdict(found, octets, Expected(), sent=4) == []
    assert found.ours.opcodes == {"Write": 1, "Send": 2, "Read Response": 1}
    assert found.siw.opcodes == {"Read Request": 1, "Send": 2, "Write": 1}


@needs("tshark")
async def test_a_recorded_connection_with_an_altered_octet_is_rejected(tmp_path):
    octets = RECORDED.read_bytes()
    at = octets.index(b"rdma-ping-0")
    spoiled = tmp_path / "spoiled.pcapng"
    spoiled.write_bytes(octets[:at] + b"R" + octets[at + 1 :])
    found = await judge.dissect(spoiled)
    assert any("1 bad CRCs" in line for line in verdict(found, {}, Expected(whole=False), sent=None))
