"""The modules that a file imports."""

import ast
from itertools import chain
from pathlib import Path

import pytest

from open_rnic.host_driver.builds import sources

ROOT = Path(__file__).parents[3]
FOLDERS = "rtl", "host_driver", "boards", "cocotb_tests", "docs"


def test_all_imports_of_each_file_are_found():
    for file in chain(*((ROOT / folder).rglob("*.py") for folder in FOLDERS)):
        assert {*sources._imports(ast.parse(file.read_bytes()))} <= sources.imported(file), file


@pytest.mark.parametrize("line", [
    "import open_rnic.rtl.lib.lanes",
    "from  open_rnic.rtl.lib import lanes",
    "if True: from open_rnic.rtl.lib import lanes",
    "from open_rnic.rtl.lib import \\\n    lanes",
    "from open_rnic.rtl.lib import (\n    # of all (blocks)\n    lanes,\n)",
    "a = 1; import open_rnic.rtl.lib.lanes as b",
])  # fmt: skip
def test_an_import_may_have_any_form(line, tmp_path):
    file = tmp_path / "file.py"
    file.write_text(f"from open_rnic.rtl import registers\n{line}\n")
    assert {"open_rnic.rtl.registers", "open_rnic.rtl.lib.lanes"} <= sources.imported(file)
