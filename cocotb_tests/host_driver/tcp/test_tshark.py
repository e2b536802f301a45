"""Captures of the twin with Linux, judged by tshark."""

import subprocess

import pytest

from open_rnic.cocotb_tests.host_driver.tcp.linux import both_ways, connected, network
from open_rnic.cocotb_tests.host_driver.tools.test_pcap import fields, tshark
from open_rnic.cocotb_tests.plugins.coroutines import run
from open_rnic.cocotb_tests.plugins.system_packages import TAP, needs
from open_rnic.host_driver.net.pipe import Faults, Kind
from open_rnic.host_driver.tcp.config import TcpConfig

pytestmark = needs(TAP, "ip", "tshark")

# Names of tcp.analysis.* flags
FLAGS = (
    "ack_lost_segment", "duplicate_ack", "fast_retransmission", "keep_alive", "keep_alive_ack", "lost_segment",
    "out_of_order", "retransmission", "reused_ports", "spurious_retransmission", "window_full", "window_update",
    "zero_window", "zero_window_probe", "zero_window_probe_ack",
)  # fmt: skip
# A receiver reports more room when its application has read; the transfers are too small to fill a window.
ALWAYS = {"window_update"}
# A lost segment causes duplicate ACKs and a retransmission. If a lost one was sent again out of order, or an ACK was
# lost, tshark takes the retransmission for an out-of-order or a spurious one.
REPAIRS = {
    "duplicate_ack", "retransmission", "fast_retransmission", "spurious_retransmission", "out_of_order", "lost_segment",
}  # fmt: skip
# Frames that arrive damaged are left out: both stacks discard them, but tshark would believe their sequence numbers.
DAMAGED = "frame.packet_flags_direction == 1 && " + (
    f'(frame.comment contains "{Kind.CORRUPT}" || frame.comment contains "{Kind.TRUNCATE}")'
)
ipv4 = {"only": lambda frame: frame[12:14] == b"\x08\x00"}
PLANS = {
    "drop": (Faults(drop=0.05, **ipv4), REPAIRS),
    # The second copy of a segment is a retransmission to tshark, and is answered with a duplicate ACK.
    "duplicate": (Faults(duplicate=0.05, **ipv4), REPAIRS - {"lost_segment", "out_of_order", "fast_retransmission"}),
    "reorder": (Faults(reorder=0.05, **ipv4), REPAIRS),
    "corrupt": (Faults(corrupt=0.05, **ipv4), REPAIRS),
    "truncate": (Faults(truncate=0.05, **ipv4), REPAIRS),
}


def views(folder, faults=Faults()):  # noqa: B008
    """Capture a transfer both ways; return a file for each end of the pipe, with each frame once."""
    path = folder / "both.pcapng"

    async def test():
        # Neither end is so impatient that a slow machine causes a retransmission.
        async with network(faults, capture=path, config=TcpConfig(shortest_rto=2000)) as (linux, twin, _):
            linux.sysctl("net.ipv4.tcp_early_retrans", 0)
            route = ["ip", "route", "change", "10.9.0.0/24", "dev", "rnic0", "rto_min", "2s"]
            linux.inside(subprocess.run, route, check=True)
            ours, theirs = await connected(linux, twin, active=True)
            with theirs:
                await both_ways(ours, theirs, 60_000)

    run(test())
    for end in ("one", "other"):
        tshark(path, "-Y", f'frame.interface_name == "{end}" && !({DAMAGED})', "-w", str(folder / end))
    return folder / "one", folder / "other"


def judge(view, explained=frozenset()):
    """Check that no frame is malformed or has a wrong checksum, and that the flags are explained; return the flags."""
    found = set()
    names = "_ws.malformed", "ip.checksum.status", "tcp.checksum.status", "tcp.analysis.flags"
    for *whole, flagged, row in (
        (*each[:4], each[4:]) for each in fields(view, "tcp", *names, *(f"tcp.analysis.{name}" for name in FLAGS))
    ):
        assert whole == ["", "1", "1"]
        flags = {name for name, value in zip(FLAGS, row, strict=True) if value}
        assert flags or not flagged, "a flag is missing in FLAGS"
        found |= flags
    assert found <= explained | ALWAYS, found - explained
    return found


def test_without_faults_no_frame_is_malformed_and_nothing_is_flagged(tmp_path):
    for view in views(tmp_path):
        judge(view)
        assert len(fields(view, "tcp", "frame.number")) > 80


@pytest.mark.parametrize("plan", PLANS)
def test_under_faults_tshark_flags_only_what_the_plan_explains(plan, tmp_path):
    faults, explained = PLANS[plan]
    found = [judge(view, explained) for view in views(tmp_path, faults)]
    assert any(found)  # tshark does flag faults
