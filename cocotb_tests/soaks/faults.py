"""Faults that soaks give to what they try: octets that were changed, random frames, and forged segments."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

from open_rnic.host_driver.net.frames import Arp, FrameError, Ipv4
from open_rnic.host_driver.tcp.segment import PROTOCOL, Flag, Segment, SegmentError

IPV4, ARP = b"\x08\x00", b"\x08\x06"
HEADER = 14  # octets of the Ethernet header


def mutated(rng: random.Random, octets: bytes) -> bytes:
    """Return the octets with one to three random faults."""
    changed = bytearray(octets)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(changed) + 1)
        some = rng.randbytes(rng.choice([1, 1, 2, 4, 40]))
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at : at + len(some)] = some
            case 2:
                changed[at:at] = some
            case 3:
                del changed[at : at + len(some)]
            case 4:
                del changed[at:]
            case 5:
                changed[at:] = rng.randbytes(rng.randrange(600))
    return bytes(changed)


def pieces(rng: random.Random, octets: bytes) -> Iterator[bytes]:
    """Yield the octets in pieces, as TCP may deliver them."""
    while octets:
        size = rng.choice([1, 3, 20, 1460, 65536])
        yield octets[:size]
        octets = octets[size:]


def bad_frame(rng, target, source, good, segment):
    """Return a bad frame of a random kind from host ``source`` to ``target``, each a MAC and an address, and its kind.

    One of the ``good`` frames is mutated, or the good ``segment`` is forged. Instead of a frame that no host can
    distinguish from a good one, None is returned.
    """
    (mac, address), (peer_mac, peer) = target, source
    kind = rng.choice(("random", "mutated", "mutated", "forged"))
    original = rng.choice(good)
    match kind:
        case "random":
            frame = rng.randbytes(rng.choice([0, 1, 13, 20, 60, 100, 1500, 3000]))
            if rng.random() < 0.8:
                frame = mac + peer_mac + rng.choice([IPV4, ARP, rng.randbytes(2)]) + frame
        case "mutated":
            frame = mutated(rng, original)
        case _:
            packet = Ipv4(peer, address, PROTOCOL, forged(segment, rng).encode(peer, address))
            frame = mac + peer_mac + IPV4 + packet.encode()
    if misleads(kind, frame, original, (address, peer)):
        return None, "left out: no host can distinguish it from a good one"
    return frame, kind


def misleads(kind, frame, original, addresses):
    """Whether a mutated segment has right checksums by chance, or an ARP packet claims one of these addresses."""
    with contextlib.suppress(FrameError, SegmentError):
        if frame[12:HEADER] == ARP:
            return Arp.decode(frame[HEADER:]).sender in addresses
        if kind == "mutated" and frame[12:HEADER] == IPV4:
            packet = Ipv4.decode(frame[HEADER:])
            Segment.decode(packet.payload, packet.source, packet.destination)
            return packet != Ipv4.decode(original[HEADER:])
    return False


def near(rng, number):
    """A number near to another, or any number."""
    return (number + rng.choice([0, 1, -1, 2**31, rng.randint(-70_000, 70_000), rng.getrandbits(32)])) % 2**32


def forged(segment, rng):
    """A segment with a correct checksum, whose fields differ a little from those of a good one."""
    changes = {
        "seq": near(rng, segment.seq),
        "ack": near(rng, segment.ack),
        "flags": Flag(rng.getrandbits(6)),
        "window": rng.choice([0, 1, 1000, 65535]),
        "payload": rng.randbytes(rng.choice([0, 1, 100, 1460])),
        "mss": rng.choice([None, 0, 1, 1460, 65535]),
        "scale": rng.choice([None, 0, 14]),
        "sack": tuple((near(rng, segment.ack), near(rng, segment.ack)) for _ in range(rng.randint(0, 4))),
        "timestamps": rng.choice([None, (rng.getrandbits(32), rng.getrandbits(32)), segment.timestamps]),
    }
    chosen = rng.sample(sorted(changes), rng.randint(1, 3))
    fields = {name: changes[name] for name in chosen}
    if len(fields.get("sack", segment.sack)) == 4 and (fields.get("timestamps", segment.timestamps) or "mss" in fields):
        fields["sack"] = ()  # the options would be too long
    return replace(segment, **fields)
