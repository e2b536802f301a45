"""All cases, and the sections of RFCs that they cite."""

import tomllib

from open_rnic.cocotb_tests.tcp_scripts.script import FOLDER, load

__all__ = ["CASES", "SECTIONS"]

NO_CASES = ("openings.toml", "sections.toml")

CASES = [case for path in sorted(FOLDER.glob("*.toml")) if path.name not in NO_CASES for case in load(path)]
SECTIONS = tomllib.loads((FOLDER / "sections.toml").read_text())
