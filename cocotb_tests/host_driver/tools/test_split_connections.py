"""Splits on whole devices: the octets that cross the host link are those that the model predicts."""

import asyncio
from dataclasses import replace

import pytest

from open_rnic.cocotb_tests.host_driver.tools.test_split import SETTING, whole
from open_rnic.cocotb_tests.plugins.lengths import long
from open_rnic.host_driver.tools.split.connections import count, devices, table
from open_rnic.host_driver.tools.split.model import name

WHOLE = replace(SETTING, device=whole(), lanes=1, tcp=True, markers=False)
OCTETS = 20_000
SHORT = "nothing", "MPA, RDMA", "TCP, MPA"


def test_whole_devices_do_whole_parts():
    assert [name(each.device) for each in devices(WHOLE)] == [
        "nothing", "MPA", "MPA, RDMA", "TCP", "TCP, MPA", "TCP, MPA, RDMA",
    ]  # fmt: skip


@pytest.mark.parametrize("split", [
    pytest.param(each, marks=() if name(each.device) in SHORT else long("its parts are in the short run"))
    for each in devices(WHOLE)
], ids=lambda each: name(each.device))  # fmt: skip
def test_the_octets_over_the_link_are_those_that_were_predicted(split):
    """The Send behind the message and options of TCP are not predicted."""
    found = asyncio.run(count(WHOLE, split, OCTETS))
    assert abs(found.error) < 0.02
    assert found.counted["transmit"] == pytest.approx(found.counted["receive"], rel=0.01)
    assert table([found]).rows[0][0] == name(split.device)
