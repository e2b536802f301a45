"""The twin and the program of the TCP engine do what the scripts say, and send the same segments."""

import pytest

from open_rnic.cocotb_tests.tcp_scripts.cases import CASES
from open_rnic.cocotb_tests.tcp_scripts.runner import ISNS, Player
from open_rnic.cocotb_tests.tcp_scripts.subjects import Program, Twin


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_twin_does_what_the_script_says_and_the_program_does_what_the_twin_does(case):
    for isns in ISNS:
        trace = Player(case, Twin(case, isns[0]), *isns).run()
        if not case.needs_the_twin:
            assert Player(case, Program(case, isns[0]), *isns).run() == trace
