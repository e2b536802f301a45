"""The option ``--transport``, with this machine's TCP as the peer of the twin's."""

import subprocess
import sys

import pytest

from open_rnic.cocotb_tests.plugins.limits import HANG
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.host_driver.tools import cli

RNIC = f"{sys.executable} -m open_rnic.host_driver"
SETUP = "ip tuntap add rn0 mode tap && ip addr add 10.9.0.1/24 dev rn0 && ip link set rn0 up"
needs_network = needs("ip", "unshare", TAP)


def shell(script):
    """Run a script in a network namespace of its own, with the TAP device rn0."""
    return subprocess.run(
        ["unshare", "-n", "sh", "-c", f"{SETUP} && {script}"],
        capture_output=True,
        text=True,
        timeout=HANG,
        check=False,
    )


@needs_network
def test_rping_pings_a_server_behind_a_tap_device():
    wait = "until grep -q listening log; do sleep 0.1; done"
    folder = "cd $(mktemp -d)"
    server = f"{RNIC} rping -s -a 10.9.0.2 --transport tap:rn0,10.9.0.2/24 -v >log 2>&1 &"
    result = shell(f"{folder}; {server} {wait}; {RNIC} rping -c -a 10.9.0.2 -C 3 -V && wait && cat log")
    assert result.returncode == 0, result.stderr
    assert "gone after 3 pings" in result.stdout


@needs_network
@pytest.mark.parametrize(
    ("transport", "host", "message"),
    [
        ("tap:rn0,10.9.0.1/24", "10.9.0.3", "10.9.0.1 is in use by "),
        ("tap:rn0,10.9.0.2/24", "10.9.0.1", "cannot connect to 10.9.0.1 port 7174: Connection refused"),
        ("tap:rn0,10.9.0.2/24", "192.0.2.1", "no route to 192.0.2.1"),
        ("tap:rn,10.9.0.2/24", "10.9.0.1",
         "no TAP device rn: this machine has lo, rn0; ip tuntap add rn mode tap makes one"),
        ("tap:lo,10.9.0.2/24", "10.9.0.1", "no TAP device lo: another kind of interface has this name"),
    ],
)
def test_bad_use_is_reported_in_one_line(transport, host, message):
    result = shell(f"{RNIC} rping -c -a {host} -C 1 --transport {transport}")
    assert result.returncode != 0
    assert result.stderr.startswith("rnic: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


@pytest.mark.parametrize("transport", ["tap", "tap:rn0", "tap:rn0,10.9.0.300/24", "tap:rn0,10.9.0.1/24,x", "udp:1"])
def test_a_transport_that_cannot_be_parsed_is_reported(capsys, transport):
    assert cli.run(["rping", "-s", "--transport", transport]) == 2
    assert repr(transport) in capsys.readouterr().err
