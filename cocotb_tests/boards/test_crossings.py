"""The crossings from one clock domain to another: each kind, those that are of none, and those of boards."""

from pathlib import Path

import pytest
from amaranth.back import rtlil
from amaranth.hdl import ClockDomain, DomainRenamer, Module, Signal
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.memory import Memory

from open_rnic.boards import BOARDS, find
from open_rnic.boards.build import top
from open_rnic.boards.crossings import KINDS, Netlist, UnknownCellError, crossings, find_crossings, netlist_of
from open_rnic.cocotb_tests.plugins.lengths import shortened
from open_rnic.host_driver.tools.cli.crossings import tables
from open_rnic.rtl.mac.events import EventCrossing
from open_rnic.rtl.mac.exchange import Exchange

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


@pytest.mark.parametrize("name", shortened(
    "the same RTL behind other pins", 1, sorted(WITH_ETHERNET, key=lambda name: name != "arty_a7")
))  # fmt: skip
def test_each_crossing_of_a_board_is_safe_and_in_the_docs(name):
    board = find(name)
    found = find_crossings(board, top(board, board.core, 1, None))
    assert [each for each in found if each.kind not in KINDS] == []
    assert len(found) > 20
    text = DOCS.read_text()
    assert [line for line in tables({name: found}).splitlines() if line.rpartition(" | ")[0] not in text] == []
