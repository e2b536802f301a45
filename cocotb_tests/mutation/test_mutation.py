"""Mutation testing: the mutants that are made, how tests kill them, and how survivors are reported."""

import ast
from collections import Counter

import pytest
from amaranth.hdl import Module, Signal

from open_rnic.cocotb_tests.mutation import __main__ as mutation
from open_rnic.cocotb_tests.mutation import sites, tests
from open_rnic.cocotb_tests.rtl.rdma.streams import run
from open_rnic.host_driver.builds import cache

KEY = "rtl/a.py A.elaborate: a < b -> a <= b"

SOURCE = """\
class Block:
    def elaborate(self, platform):
        m = Module()
        with m.If(~self.a & (self.b < 3)):
            m.d.sync += self.o.eq(1)
            m.next = "Idle"
        m.d.comb += self.p.eq(Mux(self.q.any(), self.b + 1, 0))
        return m
"""


@pytest.fixture(autouse=True)
def _no_sites(monkeypatch):
    monkeypatch.setattr(sites, "SITES", [])


def keys(source):
    sites.Rewriter("rtl/block.py").visit(ast.parse(source))
    return [key for site in sites.SITES for key in site.keys.values()]


def test_every_kind_of_mutant_is_made():
    found = {each.removeprefix("rtl/block.py Block.elaborate: ") for each in keys(SOURCE)}
    assert {
        "If ~self.a & (self.b < 3) -> If True",
        "If ~self.a & (self.b < 3) -> If False",
        "~self.a & (self.b < 3) -> ~self.a | (self.b < 3)",
        "~self.a & (self.b < 3) -> self.b < 3",
        "~self.a -> self.a",
        "self.b < 3 -> self.b <= 3",
        "self.b < 3 -> self.b < 3 + 1",
        "self.o.eq(1) -> nothing",
        "self.o.eq(1) -> self.o.eq(1 ^ 1)",
        "m.next = 'Idle' -> nothing",
        "Mux self.q.any() -> Mux True",
        "self.q.any() -> self.q.all()",
        "self.b + 1 -> self.b - 1",
    } <= found


def test_keys_are_unique_and_independent_of_line_numbers():
    twice = SOURCE.replace("        return m\n", "        m.d.comb += self.r.eq(self.b < 3)\n        return m\n")
    found = keys(twice)
    assert max(Counter(found).values()) == 1
    assert "rtl/block.py Block.elaborate: self.b < 3 -> self.b <= 3 (2)" in found
    sites.SITES.clear()
    assert keys("# a comment\n\n" + twice) == found


def test_the_choice_is_stable_if_mutants_are_added():
    few = [f"rtl/a.py f: {n} -> nothing" for n in range(100)]
    more = [*few, *(f"rtl/b.py f: {n} -> nothing" for n in range(10))]
    assert len(set(mutation.choose(few, 1, 50)) - set(mutation.choose(more, 1, 50))) <= 10
    assert mutation.choose(few, 1, 50) == mutation.choose(reversed(few), 1, 50) != mutation.choose(few, 2, 50)


@pytest.mark.parametrize(
    ("killed", "excused", "known", "complaint"),
    [
        ({}, {}, {KEY}, f"survived: {KEY}"),
        ({}, {KEY: "why"}, {KEY}, None),
        ({KEY: "test_a"}, {}, {KEY}, None),
        ({KEY: "test_a"}, {KEY: "why"}, {KEY}, f"equivalent.toml has a mutant that test_a kills: {KEY}"),
        ({KEY: "test_a"}, {"gone": "why"}, {KEY}, "equivalent.toml has a mutant that does not exist: gone"),
    ],
)
def test_survivors_and_obsolete_reasons_are_reported(tmp_path, killed, excused, known, complaint):
    campaign = mutation.Campaign(tmp_path, [KEY], 1)
    campaign._plan["killed"] = killed
    assert mutation.complaints(campaign, excused, known) == ([complaint] if complaint else [])


def test_every_equivalent_mutant_has_a_reason():
    assert all(reason.strip() for reason in mutation.reasons().values())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--count", "0"], "--count must be at least 1, not 0"),
        (["--jobs", "-1"], "--jobs must be at least 1, not -1"),
    ],
)
def test_an_invalid_option_is_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        mutation.main(arguments)
    assert message in capsys.readouterr().err


def test_an_assignment_between_the_states_of_an_fsm_has_a_mutant_without_it(monkeypatch):
    here, output = Signal(), Signal()
    monkeypatch.setattr(sites, "_is", lambda key: here)
    statement = output.eq(1)
    statement._mutant = "output.eq(1) -> nothing"
    m = Module()
    with m.FSM():
        with m.State("One"):
            m.next = "Other"
        sites.add(m, "comb", [statement])
        with m.State("Other"):
            m.next = "One"

    async def look(ctx):
        for chosen in (0, 1):
            ctx.set(here, chosen)
            await ctx.tick()
            assert ctx.get(output) == 1 - chosen

    run(m, look, cycles=10)


BENCH = '''\
import random
from pathlib import Path
from cocotb.triggers import RisingEdge
from open_rnic.cocotb_tests.harness import bench, simulate
from block import block


@bench(cycles=100)
async def random_numbers_are_those_without_a_mutant(dut):
    without, number = Path("without"), str(random.random())
    if not without.exists():  # the first fork
        without.write_text(number)
    assert without.read_text() == number


@bench(cycles=100)
async def a_beat_passes(dut):
    dut.o__ready.value = 1
    dut.i__valid.value = 1
    dut.i__payload.value = 5
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    await RisingEdge(dut.clk)
    assert dut.o__valid.value
    assert dut.o__payload.value.to_unsigned() == 5

def test_a_beat_passes():
    simulate(block(), __name__)
'''
BLOCK = """\
from open_rnic.rtl.lib.stream import Stage

def block():
    return Stage(8)
"""
STAGE = "rtl/lib/stream.py Stage.elaborate: "
SEEN = STAGE + "self.o.valid.eq(self.i.valid) -> nothing"
UNSEEN = STAGE + "self.o.ready & ~stays -> ~stays"
RESET = STAGE + "reset of o__valid = 0 -> 1"


@pytest.fixture
def _other_verdicts(tmp_path, monkeypatch):
    """A cache of its own, but with the user's simulations."""
    simulations = cache.root() / "simulations"
    simulations.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "simulations").symlink_to(simulations)
    monkeypatch.setenv("OPEN_RNIC_CACHE", str(tmp_path / "cache"))


@pytest.mark.usefixtures("_other_verdicts")
def test_a_test_kills_only_mutants_that_it_can_detect_and_that_is_known_until_a_line_changes(tmp_path):
    """The test never clears ``ready``; all mutants of a Stage are in one build."""
    test, block = tmp_path / "test_stage.py", tmp_path / "block.py"

    def tried(**options):
        campaign = mutation.Campaign(tmp_path, [SEEN, UNSEEN, RESET], 2, **options)
        assert campaign.test([test], 1, own=True)
        assert list(campaign.killed) == [SEEN]
        assert campaign.alive == [UNSEEN, RESET]
        return campaign.known.partition(" runs")[0]

    test.write_text(BENCH)
    block.write_text(BLOCK)
    assert tried() == "0 of 3"
    assert mutation.Campaign(tmp_path, [SEEN, UNSEEN], 2, resume=True).alive == [UNSEEN]
    assert tried() == "3 of 3"
    assert tried(fresh=True) == "0 of 3"
    block.write_text(BLOCK.replace("8", "9"))  # the text of the test is the same, and the design is not
    assert tried() == "0 of 3"
    test.write_text(BENCH.replace("payload.value = 5", "payload.value = 5  # still"))
    assert tried() == "0 of 3"


@pytest.mark.usefixtures("_other_verdicts")
def test_verdicts_are_joined_and_not_kept_if_modules_have_changed_meanwhile(monkeypatch):
    tests.remember("key", {1: True, 2: False})
    tests.remember("key", {3: True})
    tests.remember("other", {4: True})
    monkeypatch.setattr(tests.sources, "settled", lambda: False)
    tests.remember("key", {5: True})
    assert tests.recall("key") == {1: True, 2: False, 3: True}
