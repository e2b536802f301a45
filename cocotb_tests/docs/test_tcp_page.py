"""docs/tcp.md names modules and tests that exist."""

import re
from pathlib import Path

from open_rnic.cocotb_tests.docs.test_coverage import TEST, functions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tcp.md").read_text()
RFCS = ("9293", "1122", "5681", "5961", "6298", "6528", "6582", "2018", "6675", "7323")


def rows():
    """Return the rows of all tables of the RFCs, as lists of cells."""
    section = PAGE.partition("\n## The RFCs\n")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if re.match(r"\| [\d., ]+ \|", line)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_rfc_has_a_table():
    assert tuple(re.findall(r"^### RFC (\d+),", PAGE, re.MULTILINE)) == RFCS
    assert len(rows()) > 2 * len(RFCS)


def test_every_row_names_modules_and_tests_that_exist():
    for row in rows():
        _, rule, modules, tests = row
        assert rule, row
        for module in re.findall(r"`(\w+)`", modules):
            assert any((ROOT / "host_driver" / folder / f"{module}.py").exists() for folder in ("tcp", "net")), row
        named = TEST.findall(tests)
        assert len(named) == tests.count("::"), row
        assert named or tests == "none", row
        for path, name in named:
            assert name in functions(path), f"{path} has no {name}"
