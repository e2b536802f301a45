"""CrcAppender against Amaranth's own CRC."""

import random

from amaranth.lib.crc.catalog import CRC32_ISCSI

from open_rnic.cocotb_tests.harness import Sink, Source, bench, pauses, simulate, stalls
from open_rnic.rtl.mpa.tx.crc_appender import CrcAppender


@bench(cycles=10_000)
async def the_crc_follows(dut):
    source, sink = Source(dut, "i", pauses(0.3)), Sink(dut, "o", stalls(0.3))
    fpdus = [random.randbytes(4 * random.randint(1, 40)) for _ in range(50)]
    for fpdu in fpdus:
        source.send(fpdu, abort=0, crc=1)
    for fpdu in fpdus:
        crc = CRC32_ISCSI(data_width=8).compute(fpdu)
        assert (await sink.receive()).octets == fpdu + crc.to_bytes(4, "little")


def test_the_crc_follows():
    simulate(CrcAppender(4), the_crc_follows)
