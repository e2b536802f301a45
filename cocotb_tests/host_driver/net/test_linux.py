"""The host against this machine's own Linux stack, in a network namespace of each test's own."""

import subprocess
import sys

import pytest

from open_rnic.cocotb_tests.host_driver.net import linux
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs


@needs("ip", "unshare", TAP)
@pytest.mark.parametrize("scenario", linux.SCENARIOS)
def test_linux_and_the_host_understand_each_other(scenario):
    command = ["unshare", "--net", sys.executable, "-m", linux.__name__, scenario]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
