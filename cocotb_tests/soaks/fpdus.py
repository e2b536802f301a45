"""Streams of FPDUs with faults, for the software data path and for the RTL in Verilator.

The software delivers all ULPDUs before the first fault, and no more; the RTL does the same as the software.
"""

import functools
import os
import random
import tempfile
from collections import Counter
from pathlib import Path

import msgspec

from open_rnic.cocotb_tests.harness import bench, parameter, simulate
from open_rnic.cocotb_tests.harness.datapath import SideBySide, word_of
from open_rnic.cocotb_tests.soaks.case import Case, Lanes
from open_rnic.cocotb_tests.soaks.faults import mutated, pieces
from open_rnic.host_driver.mpa import datapath as software
from open_rnic.host_driver.mpa.fpdu import FpduDelineator, FpduFramer
from open_rnic.host_driver.mpa.rtr import rtr_ulpdu
from open_rnic.rtl.lib.lanes import LANES
from open_rnic.rtl.mpa.datapath import MpaDatapath
from open_rnic.rtl.registers import BY_NAME, Cause, EventKind, Model, Role, Rtr

RTRS = (Rtr.SEND, Rtr.WRITE, Rtr.READ)
# Of a responder in the peer-to-peer model.
CONFIG = {"role": Role.RESPONDER, "model": Model.PEER_TO_PEER, "rtr_accept": sum(kind.bit for kind in RTRS)}


class Fpdus(Case, frozen=True, tag="fpdus"):
    """The ``octets`` of a stream, the ``good`` ones before any fault, and the size of its first FPDU, the RTR.

    One stream of 100 has no fault, and shows that earlier cases have left no state behind.
    """

    markers: bool
    octets: bytes
    good: bytes
    rtr: int

    COUNT, BATCH, PARTS = 498_000, 2000, "octets"

    @classmethod
    def make(cls, seed, number):
        rng = random.Random(seed)
        markers = rng.random() < 0.5
        framer = FpduFramer(markers=markers, crc=True)
        ulpdus = [rtr_ulpdu(rng.choice(RTRS)), *(rng.randbytes(rng.randint(1, 700)) for _ in range(rng.randrange(5)))]
        fpdus = [bytes(framer.frame(each)) for each in ulpdus]
        good = b"".join(fpdus)
        octets = good if rng.random() < 0.01 else mutated(rng, good)
        while _lacks_whole_fpdus(octets, fpdus):
            octets = mutated(rng, good)
        return cls(seed, markers, octets, good, len(fpdus[0]))

    def run(self):
        path = configured(markers=self.markers)
        delivered = []
        for piece in pieces(random.Random(self.seed), self.octets):
            path.receive(piece)
            delivered += [path.ulpdus.pop().octets for _ in range(len(path.ulpdus))]
        ulpdus, whole = self.expected()
        assert delivered == ulpdus, f"{len(delivered)} ULPDUs were delivered, but {len(ulpdus)} are good"
        errors = []
        while (event := path.take_event()).kind is not EventKind.NONE:
            if event.kind is EventKind.ERROR:
                errors.append(event)
        assert len(errors) <= 1, f"{len(errors)} errors"
        assert path.rx_octets == 0
        if not errors:
            return Counter(["waits for more"])
        assert errors[0].what
        assert path.read("RX_FPDUS") == whole
        return Counter([Cause(errors[0].cause).name])

    def expected(self):
        """Return the ULPDUs behind the RTR that are complete before the first fault, and the number of FPDUs."""
        same = os.path.commonprefix([self.good, self.octets])  # noqa: RUF071 -- of octets, not of names
        delineator = FpduDelineator(markers=self.markers, crc=True)
        delineator.feed(same)
        ulpdus = delineator.take()
        return ulpdus[1:], len(ulpdus)


class FpdusRtl(Case, frozen=True, tag="fpdus-rtl"):
    """Streams on an RTL of this width, one after the other."""

    lanes: Lanes
    streams: list[Fpdus]

    COUNT, SIMULATES, PARTS = 50, True, "streams"

    @classmethod
    def make(cls, seed, number):
        return cls(seed, LANES[number % len(LANES)], [Fpdus.make(f"{seed}-{n}", n) for n in range(40)])

    def run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "streams.json")
            path.write_bytes(msgspec.json.encode(self.streams))
            simulate(
                functools.partial(MpaDatapath, self.lanes), streams_end_as_in_the_software,
                parameters={"lanes": self.lanes, "streams": str(path)}, seconds=3600,
            )  # fmt: skip
        return Counter({"same as the software": len(self.streams)})


@bench(cycles=100_000_000)
async def streams_end_as_in_the_software(dut):
    pair = SideBySide(dut, parameter("lanes"))
    streams = msgspec.json.decode(Path(parameter("streams")).read_bytes(), type=list[Fpdus])
    for number, stream in enumerate(streams):
        try:
            await pair.connect(markers_rx=stream.markers, **CONFIG)
            random.seed(stream.seed)
            longest = random.choice([3, 20, 1460, 65536])
            # The software answers a Read RTR and opens the fence at once. The RTL needs some cycles, and an error in
            # this time keeps its fence shut, so the octets behind the RTR wait until the RTL has settled.
            await pair.receive(stream.octets[: stream.rtr], longest)
            await pair.receive(stream.octets[stream.rtr :], longest)
            assert (await pair.agree()).delivered == stream.expected()[0]
            if number % 10 == 9:
                await pair.connect(markers_rx=0, **CONFIG)
                framer = FpduFramer(markers=False, crc=True)
                await pair.receive(framer.frame(rtr_ulpdu(Rtr.WRITE)) + framer.frame(b"good"))
                assert (await pair.agree()).delivered == [b"good"]
        except AssertionError as error:
            line = str(error).partition("\n")[0]
            raise AssertionError(f"{stream.seed}: {line}") from None


def _lacks_whole_fpdus(octets, fpdus):
    """Whether a later FPDU stands where another was cut out as a whole, which no receiver can distinguish."""
    for number, fpdu in enumerate(fpdus):
        if not octets.startswith(fpdu):
            return octets.startswith(tuple(fpdus[number + 1 :]))
        octets = octets.removeprefix(fpdu)
    return False


def configured(*, markers, crc=True, permissive=False):
    """Return a software data path in MPA mode."""
    path = software.MpaDatapath(lanes=4)
    path.write("CONFIG", word_of("CONFIG", **CONFIG, markers_rx=markers, crc_rx=crc, permissive=permissive))
    path.write("CONTROL", BY_NAME["CONTROL"]["rx_enable"].mask)
    return path
