# amaranth: UnusedElaboratable=no
"""Cycles: RDMA Writes in both directions, and from an RDMA Read Request to its Read Response."""

import pytest

from open_rnic.cocotb_tests.plugins.lengths import long, widths
from open_rnic.cocotb_tests.rtl.rdma.rates import WIDTHS, rates

ALONE = "the short run has the engine with MPA"
LOADING = 3  # cycles to load a message of one piece


@pytest.mark.parametrize("lanes", widths(*WIDTHS))
def test_rdma_writes_take_as_many_cycles_as_their_fpdus_have_beats(lanes):
    """From one word up. One that is sent from another place in its words takes one cycle more: for another word."""
    found = rates("datapath", lanes)
    for each in found.writes:
        assert each.received == each.beats
        assert each.beats <= each.sent <= each.beats + (each.aside != 0)
    assert found.segments.sent == found.segments.beats


@long(ALONE)
@pytest.mark.parametrize("lanes", WIDTHS)
def test_the_engine_alone_takes_a_beat_a_cycle(lanes):
    """It sends a ULPDU in a cycle more than it has beats: MPA sends the CRC then."""
    found = rates("engine", lanes)
    for each in found.writes:
        asides = each.aside != 0
        assert each.beats <= each.received <= each.beats + asides
        assert each.sent == max(each.beats + 1, LOADING) + asides
    assert found.segments.sent == found.segments.beats + 1


@pytest.mark.parametrize(("name", "most"), [pytest.param("engine", 26, marks=long(ALONE)), ("datapath", 62)])
@pytest.mark.parametrize("lanes", widths(*WIDTHS))
def test_a_read_response_follows_its_request(name, most, lanes):
    assert rates(name, lanes).response <= most
