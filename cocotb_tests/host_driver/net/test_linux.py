"""The host against this machine's own Linux stack, in a network namespace of each test's own."""

import os
import shutil
import subprocess
import sys

import pytest

from open_rnic.cocotb_tests.host_driver.net import linux


def missing():
    """Why a namespace with a TAP device cannot be made here; no text if it can."""
    if os.geteuid() != 0:
        return "needs root, for a network namespace with a TAP device"
    for program in ("ip", "unshare"):
        if not shutil.which(program):
            return f"needs the program {program}"
    if not os.path.exists("/dev/net/tun"):
        return "needs /dev/net/tun"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return tried.stderr.strip()


@pytest.mark.skipif(missing() != "", reason=missing())
@pytest.mark.parametrize("scenario", linux.SCENARIOS)
def test_linux_and_the_host_understand_each_other(scenario):
    command = ["unshare", "--net", sys.executable, "-m", linux.__name__, scenario]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
