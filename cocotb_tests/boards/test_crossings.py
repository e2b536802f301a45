# amaranth: UnusedElaboratable=no
"""The crossings from one clock domain to another: each kind, those that are of none, and those of boards."""

from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, DomainRenamer, Elaboratable, Module, Signal
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory

from open_rnic.boards import BOARDS, find
from open_rnic.boards.board import Ethernet
from open_rnic.boards.build import top
from open_rnic.boards.core import Core
from open_rnic.boards.crossings import (
    KINDS,
    Crossing,
    Netlist,
    UnknownCellError,
    crossings,
    find_crossings,
    netlist_of,
)
from open_rnic.boards.top import _add_clocks, _add_sdram
from open_rnic.cocotb_tests.plugins.lengths import long, shortened
from open_rnic.host_driver.tools import cli
from open_rnic.host_driver.tools.cli.crossings import tables
from open_rnic.rtl.mac.clock_exchange import Exchange
from open_rnic.rtl.mac.events import EventCrossing
from open_rnic.rtl.memory import litedram

WITH_ETHERNET = [name for name in BOARDS if find(name).ethernet]
DOCS = Path(__file__).parents[2] / "docs" / "clocks.md"


def kinds(build):
    """Return the kinds of the crossings of a small design, which ``build`` adds to a module."""
    m = Module()
    domains = [ClockDomain(name, reset_less=True) for name in ("sync", "there")]
    m.domains += domains
    ports = [*(each.clk for each in domains), *build(m)]
    return [each.kind for each in crossings(netlist_of(rtlil.convert(m, ports=ports, emit_src=False)))]


def changing(m, bits=1, domain="sync"):
    """Return a register that counts."""
    register = Signal(bits, name=f"counter_{domain}")
    m.d[domain] += register.eq(register + 1)
    return register


def synchronized(m, value):
    seen = Signal.like(value, name="seen")
    m.submodules.synchronizer = FFSynchronizer(value, seen, o_domain="there")
    return [seen]


def a_bit(m):
    return synchronized(m, changing(m))


def gray(m):
    m.submodules.crossing = crossing = EventCrossing(1)
    m.d.comb += crossing.events.eq(changing(m, domain="there"))
    return [*crossing.steps]


def bare(m):
    taken = Signal()
    m.d.there += taken.eq(changing(m))
    return [taken]


def logic_before(m):
    a, b = changing(m), Signal()
    m.d.sync += b.eq(~a)
    return synchronized(m, a ^ b)


def logic_between(m):
    first, second, third = Signal(), Signal(), Signal()
    m.d.there += [first.eq(changing(m)), second.eq(first), third.eq(first ^ second)]
    return [third]


def a_word(m):
    return synchronized(m, changing(m, bits=2))


def twice(m):
    """Two synchronizers of the same bit may differ for a cycle."""
    bit = changing(m)
    ports = []
    for n in range(2):
        seen = Signal(name=f"seen_{n}")
        m.submodules[f"synchronizer_{n}"] = FFSynchronizer(bit, seen, o_domain="there")
        ports.append(seen)
    return ports


def an_enable(m):
    held = Signal()
    with m.If(changing(m)):
        m.d.there += held.eq(changing(m, domain="there"))
    return [held]


def no_sign(m):
    """A word that is taken at any time."""
    taken = Signal(4)
    with m.If(changing(m, domain="there")):
        m.d.there += taken.eq(changing(m, bits=4))
    return [taken]


def a_bare_memory(m):
    m.submodules.memory = memory = Memory(shape=8, depth=16, init=[])
    write, read = memory.write_port(), memory.read_port(domain="there")
    place = changing(m, bits=4)
    m.d.comb += [write.addr.eq(place), write.data.eq(place), write.en.eq(1), read.addr.eq(changing(m, 4, "there"))]
    return [read.data]


def exchanged(m):
    m.submodules.exchange = exchange = DomainRenamer({"write": "sync", "read": "there"})(Exchange(4))
    m.d.comb += [exchange.written.eq(changing(m, 4)), exchange.read.eq(changing(m, 4, "there"))]
    return [exchange.written_seen, exchange.read_seen]


@pytest.mark.parametrize(("build", "expected"), [
    (a_bit, {"bit"}), (gray, {"Gray"}), (exchanged, {"bit", "exchange"}),
])  # fmt: skip
def test_the_safe_kinds_are_known(build, expected):
    assert set(kinds(build)) == expected


@pytest.mark.parametrize("build", [
    bare, logic_before, logic_between, a_word, twice, an_enable, no_sign, a_bare_memory,
])  # fmt: skip
def test_a_bad_crossing_is_of_no_kind(build):
    assert "" in kinds(build)


def test_an_unknown_cell_is_an_error():
    module = {"ports": {}, "netnames": {}, "cells": {"new": {"type": "NEW", "connections": {}, "parameters": {}}}}
    with pytest.raises(UnknownCellError, match="does not know the cell NEW"):
        Netlist(module)


def test_a_cell_with_two_clocks_that_are_not_in_step_is_unsafe():
    clocks = {"a_clk": 2, "b_clk": 3}
    cell = {"type": "ODDRX2F", "connections": {"SCLK": [2], "ECLK": [3], "Q": [4]}, "parameters": {}}
    module = {
        "ports": {name: {"direction": "input", "bits": [bit]} for name, bit in clocks.items()},
        "netnames": {name: {"hide_name": 0, "bits": [bit]} for name, bit in clocks.items()},
        "cells": {"pin": cell},
    }
    assert crossings(Netlist(module)) == [Crossing("a", "b", "pin.SCLK", "pin.ECLK", 1, "")]


class SdramAlone(Elaboratable):
    """The SDRAM of a board with its clocks and pins, and a register of the domain ``taken`` behind one of ``given``."""

    def __init__(self, board, given=None, taken=None):
        self.board, self.given, self.taken = board, given, taken

    def elaborate(self, platform):
        m = Module()
        _add_sdram(m, platform, self.board.ethernet, _add_clocks(m, self.board, Core.RNIC))
        if self.given:
            taken = Signal(name="taken", attrs={"keep": 1})
            m.d[self.taken] += taken.eq(changing(m, domain=self.given))
        return m


def with_sdram(name):
    return find(name).sized(in_sdram=True)


def of_sdram(board, *crossing):
    """Return the crossings of the SDRAM of a board."""
    return find_crossings(board, SdramAlone(board, *crossing))


def unsafe(found):
    return {(each.of, each.to, each.sink.rpartition(".")[2]) for each in found if not each.kind}


@pytest.mark.parametrize(("name", "expected"), [
    ("colorlight_i5", {"answer", "reset"}), ("ecpix5", {"bit", "control", "gear", "pin", "reset"}),
])  # fmt: skip
def test_each_crossing_of_an_sdram_is_safe(name, expected):
    found = of_sdram(with_sdram(name))
    assert {each.kind for each in found} == expected


@pytest.mark.parametrize(("given", "taken"), [("sync", "sdram"), ("sdram", "sync")])
def test_a_register_of_another_clock_of_the_same_pll_is_unsafe(given, taken):
    """Place and route, by nextpnr, has no limit for a path from a clock to another one."""
    assert unsafe(of_sdram(with_sdram("colorlight_i5"), given, taken)) == {(given, taken, "taken")}


def test_pins_beside_a_clock_that_is_not_in_step_are_unsafe(monkeypatch):
    monkeypatch.setattr(Ethernet, "clocks", {"sync": 50_000_000, "mac_tx": 125_000_000, "sdram": 75_000_000})
    found = unsafe(of_sdram(with_sdram("colorlight_i5")))
    assert found == {("pins", "sync", f"i_ddr{n}") for n in range(32)}


def test_the_phy_of_litedram_has_logic_at_ports_without_a_clock(monkeypatch):
    monkeypatch.setattr(litedram, "_with_registers", lambda made: made)
    monkeypatch.setattr(litedram, "phy", litedram.phy.__wrapped__)
    found = unsafe(of_sdram(with_sdram("ecpix5")))
    assert {(of, to) for of, to, sink in found if sink == "PAUSE"} == {("init", "sdram"), ("sync", "sdram")}
    assert {(of, to) for of, to, sink in found if sink != "PAUSE"} == {("pins", "sync")}  # BURSTDET


@pytest.mark.parametrize("name", shortened(
    "the same RTL behind other pins", 1, sorted(WITH_ETHERNET, key=lambda name: name != "arty_a7")
))  # fmt: skip
def test_each_crossing_of_a_board_is_safe_and_in_the_docs(name):
    crossings_are_safe_and_in_the_docs(find(name))


@long("builds with what the tests above have alone")
@pytest.mark.parametrize("name", ["colorlight_i5", "ecpix5", "versa_ecp5"])
def test_each_crossing_of_a_board_with_sdram_is_safe_and_in_the_docs(name):
    crossings_are_safe_and_in_the_docs(with_sdram(name))


@pytest.mark.parametrize(("board", "message"), [
    ("ulx3s", "ulx3s has no Ethernet that an RNIC could use"),
    ("colorlight_i5", "SDRAM needs LiteDRAM: run pip install '.[litex]'"),
])  # fmt: skip
def test_sdram_that_is_not_there_and_a_missing_package_are_reported_in_one_line(board, message, monkeypatch, capsys):
    def lacks(*_):
        raise ValueError("SDRAM needs LiteDRAM: run pip install '.[litex]'")

    monkeypatch.setattr("open_rnic.boards.crossings.find_crossings", lacks)
    assert cli.run(["crossings", board, "--memory", "sdram"]) == 2
    assert capsys.readouterr().err == f"rnic: {message}\n"


def crossings_are_safe_and_in_the_docs(board):
    found = find_crossings(board, top(board, board.core, 1, None))
    assert [each for each in found if each.kind not in KINDS] == []
    assert len(found) > 20
    text = DOCS.read_text()
    assert [line for line in tables({board.name: found}).splitlines() if line.rpartition(" | ")[0] not in text] == []
