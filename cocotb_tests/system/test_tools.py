"""``rnic frame`` and ``rnic deframe``: RTL and software give the same results for all sizes and widths."""

import itertools
import random

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_cli_frame import options
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.cocotb_tests.vectors import FPDUS
from open_rnic.rtl.registers import MAX_ULPDU


def chunks(octets):
    """Cut the octets into chunks of random lengths."""
    longest = random.choice([3, 50, 3000])
    while octets:
        size = random.randint(1, longest)
        yield octets[:size].hex()
        octets = octets[size:]


@pytest.mark.parametrize("flags", [[], ["--no-crc"], ["--markers"], ["--markers", "--no-crc"]], ids=" ".join)
@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
def test_ulpdus_of_all_sizes_are_framed_and_deframed(rnic, lanes, flags):
    offset = str(4 * random.randrange(999))
    simulated = ["--device", "simulated", "--lanes", str(lanes), *flags, "--stream-offset", offset]
    software = ["--device", "software", *simulated[4:]]
    sizes = [0, 1, 2, 3, MAX_ULPDU, MAX_ULPDU - 1, *random.choices(range(MAX_ULPDU + 1), k=5), *range(500, 514)]
    lines = [random.randbytes(size).hex() for size in random.sample(sizes, len(sizes))]
    status, fpdus, _ = rnic("frame", *simulated, lines=lines)
    assert (status, fpdus, "") == rnic("frame", *software, lines=lines)
    status, found, _ = rnic("deframe", *simulated, lines=list(chunks(bytes.fromhex(fpdus))))
    assert status == 0
    assert found.splitlines() == [f'{{"ulpdu": "{line}"}}' for line in lines]


@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
def test_rtl_and_software_report_a_flipped_bit_in_the_same_words(rnic, lanes):
    simulated = ["--device", "simulated", "--lanes", str(lanes), "--markers"]
    lines = [random.randbytes(random.randrange(1500)).hex() for _ in range(9)]
    fpdus = [bytes.fromhex(line) for line in rnic("frame", "--markers", lines=lines)[1].splitlines()]
    spoilt = random.randrange(1, 8)
    bit = random.randrange(48, 8 * len(fpdus[spoilt]))  # behind a leading marker and ULPDU_Length
    fpdus[spoilt] = (int.from_bytes(fpdus[spoilt], "little") ^ 1 << bit).to_bytes(len(fpdus[spoilt]), "little")
    stream = list(chunks(b"".join(fpdus)))
    status, found, _ = rnic("deframe", *simulated, lines=stream)
    assert (status, found, "") == rnic("deframe", "--markers", lines=stream)
    assert status == 1
    *good, error = found.splitlines()
    assert len(good) == spoilt
    assert error.startswith('{"error": 2,')
    assert error.endswith(f'"offset": {sum(map(len, fpdus[:spoilt]))}}}')


@pytest.mark.parametrize("lanes", shortened("MpaDatapath has tests at other widths", 2, [1, 4, 2, 8, 16]))
def test_vectors(rnic, lanes):
    for same, group in itertools.groupby(FPDUS, options):
        vectors = list(group)
        simulated = ["--device", "simulated", "--lanes", str(lanes), *same]
        framed = rnic("frame", *simulated, lines=[vector.ulpdu.hex() for vector in vectors])
        assert framed[:2] == (0, "".join(f"{vector.wire.hex()}\n" for vector in vectors))
        found = rnic("deframe", *simulated, lines=[vector.wire.hex() for vector in vectors])
        assert found[:2] == (0, "".join(f'{{"ulpdu": "{vector.ulpdu.hex()}"}}\n' for vector in vectors))
