"""The cost of a host's stages: the kernels match the software data path, and the fit is correct."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from open_rnic.host_driver.mpa.fpdu import FpduFramer
from open_rnic.host_driver.tools.split import measure
from open_rnic.host_driver.tools.split.measure import Kernels, MeasureError, check
from open_rnic.host_driver.tools.split.profile import dump, read


@pytest.fixture(scope="module")
def kernels():
    return Kernels()


def test_all_crc_methods_give_the_same_result(kernels):
    assert "table" in kernels.tiers
    octets = random.Random(2).randbytes(20_000)
    for tier in kernels.tiers:
        assert kernels.crc(tier, b"123456789") == 0xE3069283
        for length in (0, 1, 7, 8, 63, 64, 191, 192, 511, 512, 4096, 20_000):
            assert kernels.crc(tier, octets[:length]) == crc32c(octets[:length])


@pytest.mark.parametrize("place", [0, 4, 256, 504, 508])
def test_markers_are_inserted_and_removed_as_by_the_software_data_path(kernels, place):
    for length in (0, 1, 494, 500, 502, 503, 506, 510, 1442, 8882):
        ulpdu = bytes(range(256)) * 35
        plain, marked = (FpduFramer(markers=each, crc=False, offset=place).frame(ulpdu[:length])[:-4]
                         for each in (False, True))  # fmt: skip
        assert kernels.insert_markers(plain, place) == marked
        assert kernels.remove_markers(marked, place) == plain


def test_a_wrong_fpduptr_is_detected(kernels):
    marked = bytearray(kernels.insert_markers(bytes(1000), 4))
    marked[508 + 3] ^= 4
    assert kernels.remove_markers(bytes(marked), 4) == b""


def test_a_wrong_kernel_is_not_timed(kernels, monkeypatch):
    monkeypatch.setattr(Kernels, "crc", lambda self, tier, octets: 0)
    with pytest.raises(MeasureError, match="the CRC-32C of 1 octets"):
        check(kernels)


@pytest.mark.parametrize(("fixed", "each"), [(40.0, 0.25), (0.0, 1.5), (12.0, 0.0)])
def test_the_fit_finds_the_line(fixed, each):
    found = measure._line([(octets, fixed + each * octets) for octets in measure.SIZES])
    assert found == pytest.approx((fixed, each, 0.0), abs=1e-9)


def test_costs_are_never_negative():
    fixed, each, worst = measure._line([(64, 1.0), (1024, 100.0), (8880, 900.0)])
    assert fixed == 0.0
    assert each > 0
    assert worst > 0


def test_this_machine_is_measured_once_and_every_figure_has_a_source(monkeypatch, tmp_path):
    monkeypatch.setenv("OPEN_RNIC_BUILD", str(tmp_path))
    monkeypatch.setattr(measure, "ROUNDS", 3)
    monkeypatch.setattr(measure, "_ENOUGH", 2)
    monkeypatch.setattr(measure, "_MEMORY", 4 << 20)

    async def startup():
        return 1e-3

    monkeypatch.setattr(measure, "_startup", startup)
    host = measure.this_host()
    assert read(type(host), dump(host), "x") == host
    assert 1e8 < host.clock_hz.value < 1e10
    assert host.crc["table"].per_octet.value > 0.5
    monkeypatch.setattr(measure, "measure", lambda progress: pytest.fail("measured again"))
    assert measure.this_host() == host


def test_a_missing_compiler_for_kernels_is_named_with_its_package(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(MeasureError, match="no-such-compiler is missing"):
        Kernels()
