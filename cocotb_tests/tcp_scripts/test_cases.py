"""The scripts themselves: their number, the sections that they cite, and the errors of the parser and the runner."""

import tomllib

import pytest

from open_rnic.cocotb_tests.tcp_scripts.cases import CASES, SECTIONS
from open_rnic.cocotb_tests.tcp_scripts.runner import Player
from open_rnic.cocotb_tests.tcp_scripts.script import FOLDER, ScriptError, load
from open_rnic.cocotb_tests.tcp_scripts.subjects import Twin

CASE = """
[[case]]
name = "a case"
rfc = "RFC 9293 §3.5"
after = "established"
script = '''
+0   in   P. 1:101 ack 1
{}
'''
"""


def written(tmp_path, *lines):
    path = tmp_path / "some.toml"
    path.write_text(CASE.format("\n".join(lines)))
    return path


def played(path):
    (case,) = load(path)
    return Player(case, Twin(case, 0), 0, 0).run()


def test_there_are_more_than_150_cases_for_the_path_each_with_a_name_of_its_own():
    assert sum(case.fits_the_path for case in CASES) > 150
    assert len({str(case) for case in CASES}) == len(CASES)


def test_each_case_cites_a_section_that_exists_and_each_section_is_cited():
    known = {f"{rfc} §{section}" for rfc, titles in SECTIONS.items() for section in titles}
    assert {case.rfc for case in CASES} == known


def test_the_page_shows_a_case():
    page = (FOLDER.parents[1] / "docs" / "tcp.md").read_text()
    (shown,) = tomllib.loads(page.partition("```toml\n")[2].partition("```")[0])["case"]
    assert shown in tomllib.loads((FOLDER / "overlap.toml").read_text())["case"]


def test_a_script_is_played_to_its_end(tmp_path):
    trace = played(written(tmp_path, "+40  out  . 1:1 ack 101   # delayed"))
    assert [(at, segment.ack) for at, _, segment in trace] == [(0, 1), (40, 101)]


@pytest.mark.parametrize(("line", "message"), [
    ("in S 0:0", "'in S 0:0' does not begin as +10 user, +0 in, +0 out or +0 state"),
    ("+0 user sing", "'sing' is nothing that a user does: listen, open, close, abort, send, read, keep_alive"),
    ("+0 user send", "'send' is nothing that a user does: listen, open, close, abort, send, read, keep_alive"),
    ("+0 in S", "'S' is no segment, as S. 0:0 ack 1"),
    ("+0 in X 0:0", "'X 0:0' is no segment, as S. 0:0 ack 1"),
    ("+0 in . 0:0", "a segment with the flag . has an ack, others have none"),
    ("+0 in P. 5:1 ack 1", "5:1 ends before it begins"),
    ("+0 in S 0:0 <maximum 5>", "'maximum 5' is no option"),
])  # fmt: skip
def test_the_parser_names_the_line(tmp_path, line, message):
    with pytest.raises(ScriptError) as error:
        load(written(tmp_path, line))
    assert str(error.value) == f"some.toml:8: {message}"


def test_an_unknown_key_is_named(tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("after", "behind"))
    with pytest.raises(ScriptError, match="a case: unknown: behind"):
        load(path)


@pytest.mark.parametrize(("lines", "message"), [
    (["+40 out . 1:1 ack 102"], "left     . 1:1 ack 101 win 8092\nexpected . 1:1 ack 102"),
    (["+30 out . 1:1 ack 101"], "left     nothing\nexpected . 1:1 ack 101"),
    (["+50 out . 1:1 ack 101"], "left     . 1:1 ack 101 win 8092\nexpected nothing"),
    (["+50 state ESTABLISHED"], "left     . 1:1 ack 101 win 8092\nexpected nothing"),
    (["+0 state LISTEN"], "the state is ESTABLISHED, not LISTEN"),
    (["+0 user abort", "+0 out R. 1:1 ack 101", "+0 state CLOSED"], "the state is CLOSED aborted, not CLOSED"),
    (["+0 user read 99", "+0 user read 2"], "1 octets were read, or other ones"),
    (["+0 user send 9000"], "8192 octets were taken"),
])  # fmt: skip
def test_the_runner_names_the_line_and_what_left(tmp_path, lines, message):
    with pytest.raises(ScriptError) as error:
        played(written(tmp_path, *lines))
    where, _, rest = str(error.value).partition("\n")
    assert where == f"some.toml:{7 + len(lines)}: 'a case', Twin, ISNs 0x0 and 0x0:"
    assert rest == message
