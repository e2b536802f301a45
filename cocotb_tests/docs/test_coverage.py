"""docs/rfc6581.md has a row for every statement of the RFCs, and every test that it names exists."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "rfc6581.md"

# Counted in the texts of the RFCs: every occurrence of a keyword of RFC 2119 in §4 to §10 of RFC 6581 (§4 and §8 have
# none), and in §7.1, §7.1.1 and §7.1.2 of RFC 5044, where "MUST not" counts as MUST NOT.
KEYWORDS = {
    "RFC 6581": {
        "5": {"MUST NOT": 1},
        "6": {"MUST": 4, "MUST NOT": 1, "MAY": 1},
        "7": {"MUST": 5, "MUST NOT": 2, "SHOULD": 1, "MAY": 1},
        "9": {"MUST": 1},
        "9.1": {"MUST": 11, "SHOULD": 1, "MAY": 2},
        "9.2": {"MUST": 13, "SHOULD": 1, "MAY": 1},
        "9.3": {"MUST": 1},
        "10": {"REQUIRED": 2, "MUST": 4, "MUST NOT": 1, "MAY": 1},
    },
    "RFC 5044 §7.1": {
        "7.1": {"MUST": 2, "MAY": 2},
        "7.1.1": {"MUST": 14, "MUST NOT": 2, "REQUIRED": 3},
        "7.1.2": {"MUST": 13, "MUST NOT": 1, "SHOULD": 8, "MAY": 4},
    },
}
TEST = re.compile(r"`([\w/]+\.py)::(test_\w+)`")


def rows(document):
    """Return the table under a heading of the page, as lists of cells."""
    section = PAGE.read_text().split(f"\n## {document}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("document", KEYWORDS)
def test_every_statement_has_a_row(document):
    found = Counter((section, keyword) for section, keyword, *_ in rows(document))
    expected = {
        (section, keyword): count
        for section, keywords in KEYWORDS[document].items()
        for keyword, count in keywords.items()
    }
    assert found == expected


@pytest.mark.parametrize("document", KEYWORDS)
def test_every_row_has_an_explanation_and_existing_tests(document):
    for row in rows(document):
        section, keyword, statement, how, tests = row
        assert statement, row
        assert how, row
        named = TEST.findall(tests)
        assert named or how.startswith("does not apply"), f"§{section} {keyword} {statement}: no test"
        assert len(named) == tests.count("::"), row
        for path, name in named:
            assert name in functions(path), f"{path} has no {name}"


def functions(path):
    tree = ast.parse((TESTS / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
