"""Setup and hold at RGMII: what a board's delays leave of what its PHY and its FPGA give."""

from dataclasses import replace
from pathlib import Path

import pytest

from open_rnic.boards import find
from open_rnic.boards import margins as module
from open_rnic.boards.margins import margins, with_rgmii
from open_rnic.host_driver.tools.cli.margins import table
from open_rnic.rtl.mac.rgmii import RgmiiDelays

DOCS = Path(__file__).parents[2] / "docs" / "clocks.md"
#: Negative if all figures are at their worst together; docs/clocks.md says why the delays stay as they are.
SHORT = {("Broadcom B50612D", "receive"), ("Realtek RTL8211FD", "receive"), ("Marvell 88E1512", "receive")}


@pytest.mark.parametrize("name", with_rgmii())
def test_a_board_has_margins_that_the_docs_show(name):
    both = margins(name)
    for each in both:
        assert min(each.setup, each.hold) > 0
        assert (min(each.worst_setup, each.worst_hold) < 0) == ((find(name).ethernet.phy, each.way) in SHORT)
    assert set(table({name: both}).splitlines()) <= set(DOCS.read_text().splitlines())


@pytest.mark.parametrize(("delays", "way", "field"), [
    (RgmiiDelays(), 0, "setup"), (RgmiiDelays(tx_clock=3000), 0, "hold"),
    (RgmiiDelays(rx_data=2500), 1, "setup"), (RgmiiDelays(rx_clock=2000), 1, "hold"),
])  # fmt: skip
def test_a_wrong_delay_has_a_negative_margin(delays, way, field, monkeypatch):
    """KSZ9031: it delays RXC by 1.2 ns, and TXC not at all."""
    board = find("ecpix5")
    changed = replace(board, ethernet=replace(board.ethernet, delays=delays))
    monkeypatch.setattr(module, "find", lambda name: changed)
    assert getattr(margins("ecpix5")[way], field) < 0


@pytest.mark.parametrize("name", with_rgmii())
def test_the_middle_has_as_much_setup_as_hold(name, monkeypatch):
    board = find(name)
    transmit, receive = (each.middle for each in margins(name))
    delays = replace(board.ethernet.delays, tx_clock=transmit, rx_data=receive)
    monkeypatch.setattr(module, "find", lambda name: replace(board, ethernet=replace(board.ethernet, delays=delays)))
    assert all(abs(each.setup - each.hold) <= 25 for each in margins(name))
