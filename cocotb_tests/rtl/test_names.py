"""Rules for the whole RTL: all signals have names, and no operation drops bits that its author meant.

With names, netlists, timing reports and waveforms can be related to the source.
"""

from fractions import Fraction

import pytest
from amaranth.hdl import Const, Fragment
from amaranth.hdl._ast import Operator

from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.lib.garbage import not_collected
from open_rnic.host_driver.tools.split.segment import receive, transmit
from open_rnic.rtl.host_link.top import UartDatapath
from open_rnic.rtl.mpa.axi import AxiMpaDatapath
from open_rnic.rtl.rdma.axi import AxiRdmaDatapath
from open_rnic.rtl.rnic.shared_datapath import SharedDatapath
from open_rnic.rtl.rnic.shared_rnic import SharedRnic

# Those of the short run, then those whose blocks are in one of them, too.
DESIGNS = {
    "axi-2-store": lambda: AxiMpaDatapath(2, store_and_forward=4096),
    "axi-rdma-4": lambda: AxiRdmaDatapath(4, measure=128, sample=2),
    "uart-1": lambda: UartDatapath(1, Fraction(25, 3)),
    "transmit-2": lambda: transmit(2),
    "receive-1": lambda: receive(1),
    "shared-4": lambda: SharedDatapath(4, 4096, 4096, 4),
    "rnic-1": lambda: SharedRnic(4, memory=4096),
    "axi-1": lambda: AxiMpaDatapath(1),
    "axi-4": lambda: AxiMpaDatapath(4),
    "axi-rdma-1": lambda: AxiRdmaDatapath(1),
    "receive-2": lambda: receive(2),
    "shared-1": lambda: SharedDatapath(4, 4096, 4096),
}


@pytest.fixture
def short_ands(monkeypatch):
    """The places where 1 bit and several bits are combined with &, which leaves the lowest bit alone."""
    found = []
    made = Operator.__init__

    def make(self, operator, operands, *, src_loc_at=0):
        made(self, operator, operands, src_loc_at=src_loc_at + 1)
        are_words = {len(each) > 1 for each in self.operands if not isinstance(each, Const)}
        if operator == "&" and are_words == {False, True}:
            found.append(self.src_loc)

    monkeypatch.setattr(Operator, "__init__", make)
    return found


def names(component):
    """The names of all signals in a component, without the conversion to a netlist, which takes longest."""
    with not_collected():
        design = Fragment.get(component, None).prepare()
    return {name for each in design.fragments.values() for name in each.signal_names.values()}


@pytest.mark.parametrize("design", shortened("a design whose blocks are in another one", 7, DESIGNS))
def test_every_signal_has_a_name_and_no_flag_masks_a_word(design, short_ands):
    found = names(DESIGNS[design]())
    assert len(found) > 100
    assert not [name for name in found if "$signal" in name]
    assert not short_ands
